//! A lock that only scripts work on, as Lua: the module adds the wake-ups that nobody sends, and no others.

use std::thread;
use std::time::Duration;

use fairlock_testing::{Client, Server, wait_until};

use super::redisson_keys::{try_lock, unlock};

const PATIENCE: u64 = 300_000;
const CHANNEL: &str = "redisson_lock__channel:{k}:";
/// The module looks at such a lock a few milliseconds after its keys have changed.
const LATER: Duration = Duration::from_millis(50);

/// A server on which the first of these owners holds the lock and the others wait for it, all by scripts.
fn queued(owners: &[&str]) -> (Server, Client) {
    let server = Server::with(&["--enable-debug-command", "yes"]);
    let mut client = server.connect();
    for owner in owners {
        try_lock(&mut client, owner, PATIENCE);
    }
    (server, client)
}

/// Those who are woken while `steps` are taken, and a moment later.
fn woken(server: &Server, steps: impl FnOnce()) -> Vec<String> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port));
    let mut listener = client
        .and_then(|client| client.get_connection())
        .expect("a connection");
    let mut channels = listener.as_pubsub();
    channels
        .psubscribe(format!("{CHANNEL}*"))
        .expect("subscribed");
    steps();
    thread::sleep(LATER);
    server.connect().run(&format!("PUBLISH {CHANNEL}end 0"));
    let mut names = std::iter::from_fn(|| {
        let message = channels.get_message().expect("a message");
        let owner = message.get_channel_name().strip_prefix(CHANNEL);
        owner.filter(|owner| *owner != "end").map(str::to_owned)
    });
    names.by_ref().collect()
}

#[test]
fn a_release_by_a_script_wakes_the_head_once() {
    let (server, mut client) = queued(&["u:1", "u:2", "u:3"]);
    let names = woken(&server, || {
        unlock(&mut client, "u:1");
        // Those who join behind the head, who takes its time, wake nobody.
        try_lock(&mut client, "u:1", PATIENCE);
        thread::sleep(LATER);
        try_lock(&mut client, "u:4", PATIENCE);
    });
    assert_eq!(names, ["u:2"]);
}

/// Takes steps one after the other, or all in one iteration of the event loop.
fn take(client: &mut Client, in_one_write: bool, steps: impl FnOnce(&mut Client)) {
    if in_one_write {
        client.run("MULTI");
    }
    steps(client);
    if in_one_write {
        client.run("EXEC");
    }
}

/// The first holder hands the lock to the head, who takes it.
fn hand_on(client: &mut Client) {
    unlock(client, "u:1");
    try_lock(client, "u:2", PATIENCE);
}

#[test]
fn a_lock_that_is_deleted_right_behind_a_hand_off_wakes_the_next() {
    for in_one_write in [true, false] {
        let (server, mut client) = queued(&["u:1", "u:2", "u:3"]);
        let names = woken(&server, || {
            take(&mut client, in_one_write, |client| {
                hand_on(client);
                client.run("DEL k");
            });
        });
        assert_eq!(names, ["u:2", "u:3"], "in one write: {in_one_write}");
    }
}

/// The lock is due for a look before the iteration ends in which a script has woken the head.
#[test]
fn a_slow_transaction_that_hands_on_and_deletes_wakes_the_next_once() {
    let (server, mut client) = queued(&["u:1", "u:2", "u:3"]);
    let names = woken(&server, || {
        take(&mut client, true, |client| {
            hand_on(client);
            client.run("DEBUG SLEEP 0.02");
            client.run("DEL k");
        });
    });
    assert_eq!(names, ["u:2", "u:3"]);
}

#[test]
fn a_waiter_that_comes_back_is_woken_again() {
    for in_one_write in [true, false] {
        let (server, mut client) = queued(&["u:1", "u:2"]);
        let names = woken(&server, || {
            take(&mut client, in_one_write, hand_on);
            // The queue is empty for a moment.
            unlock(&mut client, "u:2");
            try_lock(&mut client, "u:1", PATIENCE);
            try_lock(&mut client, "u:2", PATIENCE);
            client.run("DEL k");
        });
        assert_eq!(names, ["u:2", "u:2"], "in one write: {in_one_write}");
    }
}

#[test]
fn a_head_that_a_script_drops_from_a_free_lock_leaves_its_turn_to_the_next() {
    let (server, mut client) = queued(&["u:1", "u:2", "u:3"]);
    let names = woken(&server, || {
        unlock(&mut client, "u:1");
        client.run("ZREM redisson_lock_timeout:{k} u:2");
        client.run("LPOP redisson_lock_queue:{k}");
    });
    assert_eq!(names, ["u:2", "u:3"]);
}

#[test]
fn a_lease_that_is_shortened_ends_with_a_wake_up() {
    let (server, mut client) = queued(&["u:1", "u:2", "u:3"]);
    let names = woken(&server, || {
        hand_on(&mut client);
        client.run("PEXPIRE k 1");
    });
    assert_eq!(names, ["u:2", "u:3"]);
}

#[test]
fn a_lock_whose_queue_has_become_empty_is_forgotten() {
    let (server, mut client) = queued(&["u:1", "u:2"]);
    let locks = || server.connect().run("FAIRLOCK.LOCKS");
    assert!(locks().contains("name, k, "), "{}", locks());
    hand_on(&mut client);
    wait_until("it is forgotten", || !locks().contains("name, k, "));
}

#[test]
fn the_scores_of_many_waiters_are_kept_as_a_skip_list() {
    let owners: Vec<String> = (0..10).map(|n| format!("u:{n}")).collect();
    let owners: Vec<&str> = owners.iter().map(String::as_str).collect();
    let (server, mut client) = queued(&owners);
    let encoding = || {
        let mut client = server.connect();
        client.run("OBJECT ENCODING redisson_lock_timeout:{k}")
    };
    wait_until("it is converted", || encoding() == "skiplist");
    // Nothing else is different, and a key that is made anew is converted, too.
    assert_eq!(client.int("ZCARD redisson_lock_timeout:{k}"), 9);
    client.run("DEL k redisson_lock_queue:{k} redisson_lock_timeout:{k}");
    for owner in &owners {
        try_lock(&mut client, owner, PATIENCE);
    }
    wait_until("it is converted again", || encoding() == "skiplist");
    assert_eq!(client.int("ZCARD redisson_lock_timeout:{k}"), 9);
}
