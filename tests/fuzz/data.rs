//! What is in a server's keys.

use std::collections::BTreeMap;

use fairlock_testing::{Client, show};
use redis::Value;

/// Databases of the servers.
pub const DATABASES: usize = 4;

/// Digests of values with their types, and when they expire, by database and name.
pub type Data = BTreeMap<(usize, String), (String, i64)>;

/// All that is there and has not expired.
pub fn data(client: &mut Client) -> Data {
    let mut data = Data::new();
    for database in 0..DATABASES {
        client.run(&format!("SELECT {database}"));
        let Ok(Value::Array(keys)) = client.raw(&[b"KEYS", b"*"]) else {
            panic!("no keys");
        };
        for key in keys {
            let Value::BulkString(name) = &key else {
                panic!("no name: {key:?}");
            };
            let mut ask = |words: &[&[u8]]| {
                let words = [words, &[name.as_slice()]].concat();
                client
                    .raw(&words)
                    .map_or_else(|error| error, |reply| show(&reply))
            };
            let kind = ask(&[b"TYPE"]);
            let digest = ask(&[b"DEBUG", b"DIGEST-VALUE"]);
            let expires = ask(&[b"PEXPIRETIME"]).parse().expect("a time");
            // It may have expired while it was looked at.
            if expires != -2 {
                data.insert(
                    (database, show(&key)),
                    (format!("{kind} {digest}"), expires),
                );
            }
        }
    }
    client.run("SELECT 0");
    data
}

/// How other data differs from what two looks at a server have found, but for what has expired by a
/// point in time, and for what has changed from one look to the next: a session with a short lease
/// is renewed all the time.
pub fn differences([one, later]: [&Data; 2], other: &Data, now: i64) -> Vec<String> {
    let lives = |entry: Option<&(String, i64)>| {
        let entry = entry.filter(|(_, expires)| *expires == -1 || *expires > now);
        entry.cloned()
    };
    let mut keys: Vec<_> = one.keys().chain(other.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let pairs = keys
        .into_iter()
        .filter(|key| one.get(*key) == later.get(*key))
        .map(|key| (key, lives(one.get(key)), lives(other.get(key))));
    pairs
        .filter(|(_, one, other)| one != other)
        .map(|difference| format!("{difference:?}"))
        .collect()
}
