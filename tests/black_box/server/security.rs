//! Clients that mean harm: they may use some locks, and try to read, block or free others, by names
//! and owners built for it, or without any permission.

use fairlock_testing::commands::{Command, calls_of_a_lock, of_a_lock, on};
use fairlock_testing::{Client, Listener, Server};

/// A connection of a user with these permissions.
pub fn user(server: &Server, name: &str, permissions: &str) -> Client {
    let mut client = server.connect();
    let set = format!("ACL SETUSER {name} reset on nopass {permissions}");
    client.assert_reply(&set, "OK");
    client.assert_reply(&format!("AUTH {name} x"), "OK");
    client
}

/// All data, by key.
fn contents(client: &mut Client) -> Vec<String> {
    let mut keys = client.list("KEYS *");
    keys.sort_unstable();
    let content = |key: String| format!("{key} {}", client.run(&format!("DUMP {key}")));
    keys.into_iter().map(content).collect()
}

pub const REFUSED: &str = "(error) NOPERM ";

/// Calls on lock `K` by its holder, its waiters and a stranger.
fn calls() -> Vec<String> {
    let others = [
        "ACQUIRE K x NOWAIT",
        "ACQUIRE K x ENQUEUE",
        "CANCEL K w",
        "CANCEL K b",
    ];
    let mut calls = calls_of_a_lock();
    calls.extend(others.map(str::to_owned));
    calls
}

/// By Redisson's rule for names the locks `a` and `{a}` have one queue, which is that of the one in use.
#[test]
fn a_name_in_braces_opens_no_other_lock() {
    for ((used, other), hold) in [("a", "{a}"), ("{a}", "a")]
        .into_iter()
        .flat_map(|names| ["", " SESSION", " SHARED"].map(|hold| (names, hold)))
    {
        let (server, mut admin) = Server::connected();
        let mut ann = user(&server, "ann", &format!("~{other} +@all"));
        admin.int(&format!("FAIRLOCK.ACQUIRE {used} o{hold} LEASE 600000"));
        if hold.is_empty() {
            admin.run(&format!("FAIRLOCK.ACQUIRE {used} w ENQUEUE"));
        }
        let before = contents(&mut admin);
        for command in &calls() {
            let reply = ann.run(&on(command, other));
            let is_refused = ["one queue", "'a'", "'{a}'"].map(|part| reply.contains(part));
            assert_eq!(is_refused, [true; 3], "{hold}, {command}: {reply}");
        }
        ann.assert_reply("FAIRLOCK.LOCKS", "[]");
        assert_eq!(contents(&mut admin), before);
        admin.run(&format!("FAIRLOCK.CANCEL {used} w"));
        admin.assert_reply(&format!("FAIRLOCK.RELEASE {used} o"), "0");
        ann.int(&format!("FAIRLOCK.ACQUIRE {other} x"));
    }
}

/// Names that a user of locks `app:*` may try, to reach other locks.
const NAMES: &[&str] = &[
    "app:",
    "app:}",
    "app:{",
    "app:{}",
    "app:x}:victim",
    "app:{victim}",
    "app:}{victim}",
    "app:redisson_lock_queue:{victim}",
    "app:x\\",
];

/// Owners to try.
const OWNERS: &[&str] = &[
    "redisson_lock__channel:{victim}:w",
    "victim",
    "redisson_lock_queue:{victim}",
    ":w",
    "}:w",
    "{victim}",
];

#[test]
fn names_and_owners_reach_no_key_and_no_channel_of_other_locks() {
    let (server, mut admin) = Server::connected();
    admin.int("FAIRLOCK.ACQUIRE victim o LEASE 600000");
    admin.run("FAIRLOCK.ACQUIRE victim w ENQUEUE PATIENCE 600000");
    let before = contents(&mut admin);
    let listener = Listener::new(server.port, "redisson_lock__channel:{victim}:*");
    let mut ann = user(&server, "ann", "~app:* resetchannels +@all");
    for name in NAMES {
        ann.int(&format!("FAIRLOCK.ACQUIRE {name} first"));
        for owner in OWNERS {
            let place = ann.run(&format!("FAIRLOCK.ACQUIRE {name} {owner} ENQUEUE"));
            assert!(place.starts_with('['), "{name} {owner}: {place}");
        }
        // All waiters are woken.
        ann.assert_reply(&format!("FAIRLOCK.RELEASE {name} first"), "0");
        for owner in OWNERS {
            ann.int(&format!("FAIRLOCK.ACQUIRE {name} {owner} ENQUEUE"));
            ann.assert_reply(&format!("FAIRLOCK.RELEASE {name} {owner}"), "0");
        }
    }
    for key in admin.list("KEYS *") {
        let own = ["app:", "fairlock_token:{app:", "fairlock_token:app:"];
        assert!(
            key.contains("victim}") && !key.contains("app:")
                || key == "victim"
                || own.iter().any(|prefix| key.starts_with(prefix)),
            "{key}"
        );
    }
    let theirs = |line: &String| !line.contains("app:");
    let after: Vec<_> = contents(&mut admin).into_iter().filter(theirs).collect();
    assert_eq!(after, before);
    assert_eq!(listener.until_now(), []);
}

/// What SECURITY.md tells operators to set.
fn users_of_the_document() -> Vec<&'static str> {
    const TEXT: &str = include_str!("../../../SECURITY.md");
    let (_, rest) = TEXT.split_once("<!-- users: begin -->").expect("a begin");
    let (users, _) = rest.split_once("<!-- users: end -->").expect("an end");
    users
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect()
}

#[test]
fn the_users_of_the_document_can_do_their_work_and_no_more() {
    let (server, mut admin) = Server::connected();
    let names = ["blocker secret1", "poller secret2", "watcher secret3"];
    let mut users = names.map(|_| server.connect());
    for line in users_of_the_document() {
        assert_eq!(admin.run(line), "OK", "{line}");
    }
    for (user, name) in users.iter_mut().zip(names) {
        user.assert_reply(&format!("AUTH {name}"), "OK");
    }
    let mut stranger = server.wire("FAIRLOCK.INFO app:1");
    assert!(stranger.line().starts_with("-NOAUTH "));

    let [mut blocker, mut poller, mut watcher] = users;
    assert!(blocker.int("FAIRLOCK.ACQUIRE app:1 b SESSION") > 0);
    assert!(blocker.run("FAIRLOCK.RENEW app:1 b").parse::<i64>().is_ok());
    let mut wakes = server.wire("AUTH poller secret2\nSUBSCRIBE redisson_lock__channel:{app:1}:p");
    let replies: Vec<_> = (0..7).map(|_| wakes.line()).collect();
    assert_eq!(replies[6], ":1");
    poller.assert_start("FAIRLOCK.ACQUIRE app:1 p ENQUEUE", "[1, ");
    watcher.assert_start("FAIRLOCK.QUEUE app:1", "[[p, polling, ");
    watcher.assert_start("FAIRLOCK.INFO app:1", "[owner, b, ");
    watcher.assert_start("FAIRLOCK.HOLDERS app:1", "[[b, 1, ");
    admin.int("FAIRLOCK.ACQUIRE other o SESSION");
    let listed = watcher.run("FAIRLOCK.LOCKS");
    assert!(
        listed.contains("app:1") && !listed.contains("other"),
        "{listed}"
    );
    blocker.assert_reply("FAIRLOCK.RELEASE app:1 b", "0");
    let message: Vec<_> = (0..7).map(|_| wakes.line()).collect();
    assert_eq!(message[2], "message");
    assert!(poller.int("FAIRLOCK.ACQUIRE app:1 p ENQUEUE") > 0);
    poller.assert_reply("FAIRLOCK.RELEASE app:1 p", "0");
    poller.assert_reply("FAIRLOCK.CANCEL app:1 p", "0");

    let refused = |client: &mut Client, command: &str| {
        let reply = client.run(command);
        assert!(reply.starts_with(REFUSED), "{command}: {reply}");
    };
    for lock in ["other", "{app:1}", "redisson_lock_queue:{app:1}", ""] {
        for command in &calls() {
            for client in [&mut blocker, &mut poller, &mut watcher] {
                refused(client, &on(command, lock));
            }
        }
    }
    let shown: Vec<_> = of_a_lock().filter(Command::only_reads).collect();
    let only_reads = |call: &String| shown.iter().any(|command| call.starts_with(command.name));
    for call in calls().iter().filter(|call| !only_reads(call)) {
        refused(&mut watcher, &on(call, "app:1"));
    }
    for command in [
        "BREAK app:1",
        "INFO app:1",
        "QUEUE app:1",
        "HOLDERS app:1",
        "LOCKS",
        "EVALSHA 8e19a1ddbdee9138df9f32a480c57addab4353d1 1 app:1 1 b",
    ] {
        refused(&mut blocker, &format!("FAIRLOCK.{command}"));
    }
    for command in [
        "DEL app:1",
        "LRANGE redisson_lock_queue:{app:1} 0 -1",
        "SUBSCRIBE redisson_lock__channel:{other}:p",
        "PUBLISH redisson_lock__channel:{app:1}:p 0",
        "INFO fairlock",
        "EVAL return 0",
    ] {
        refused(&mut poller, command);
    }
}
