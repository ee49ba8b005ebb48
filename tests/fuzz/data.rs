//! What is in a server's keys and files: looked at, copied, and taken out again.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fairlock_testing::{Client, Server, show};
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
        // What is about to expire may do so while it is looked at.
        let entry = entry.filter(|(_, expires)| *expires == -1 || *expires > now + 2000);
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

/// Values of which DUMP makes payloads for RESTORE.
pub const VALUES: &[&str] = &[
    "HSET v a 1",
    "HSET v u:1 2 b x",
    "HSET v a 9223372036854775807",
    "RPUSH v a b a",
    "RPUSH v u:1 v:1 a",
    "ZADD v 1 a 2 b",
    "ZADD v inf a -inf b 99999999999999 u:1",
    "SET v 5",
    "SET v 9223372036854775807",
    "SET v x",
    "SADD v a b",
    "XADD v * a b",
];

pub fn dump(client: &mut Client, value: &str) -> Vec<u8> {
    client.run("DEL v");
    client.run(value);
    let dump = client.raw(&[b"DUMP", b"v"]);
    client.run("DEL v");
    match dump {
        Ok(Value::BulkString(bytes)) => bytes,
        other => panic!("{value}: {other:?}"),
    }
}

pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("the folder") {
        let entry = entry.expect("an entry");
        // One that a rewrite has made needless may be gone.
        let _ = fs::copy(entry.path(), to.join(entry.file_name()));
    }
}

/// What a server without the module makes of a directory.
pub fn loaded(dir: &Path) -> Data {
    let dir = dir.to_str().expect("a UTF-8 path");
    let databases = DATABASES.to_string();
    let server = Server::without_module(&[
        "--dir",
        dir,
        "--appendonly",
        "yes",
        "--databases",
        &databases,
        "--enable-debug-command",
        "yes",
    ]);
    data(&mut server.connect())
}

/// Waiters that poll are alive until their patience is over, and come back where others have
/// deleted them: they have to leave.
pub fn cancel_all(control: &mut Client) {
    for database in 0..DATABASES {
        control.run(&format!("SELECT {database}"));
        for lock in list(control, &[b"FAIRLOCK.LOCKS", b"COUNT", b"1000"]) {
            // The name of the field, and the lock's.
            let [_, Value::BulkString(lock), ..] = &lock[..] else {
                continue;
            };
            for waiter in list(control, &[b"FAIRLOCK.QUEUE", lock]) {
                if let Value::BulkString(owner) = &waiter[0] {
                    // Its lease or patience may end first.
                    let _ = control.raw(&[b"FAIRLOCK.CANCEL", lock, owner]);
                }
            }
        }
    }
    control.run("SELECT 0");
}

/// A reply that is a list of lists; empty if it is none.
fn list(control: &mut Client, words: &[&[u8]]) -> Vec<Vec<Value>> {
    let reply = control.raw(words).ok();
    reply
        .and_then(|reply| redis::from_redis_value(reply).ok())
        .unwrap_or_default()
}
