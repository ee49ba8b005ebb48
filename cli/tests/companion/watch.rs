//! `fairlock watch`.

use fairlock_testing::{Server, wait_until};
use serde_json::Value;

use crate::program::{Program, connection, kill_connection};

fn announcing() -> Server {
    Server::with(&["--notify-keyspace-events", "Kd"])
}

/// The second and third word of each line, the key and the event.
fn events(out: &str) -> Vec<String> {
    let lines = out
        .lines()
        .map(|line| line.splitn(4, ' ').collect::<Vec<_>>());
    lines
        .map(|words| format!("{} {}", words[1], words[2]))
        .collect()
}

#[test]
fn events_are_printed_in_order() {
    let server = announcing();
    let mut client = server.connect();
    let program = Program::start(server.port, &["watch", "k", "other"]);
    program.wait_for(" k watching free waiting=0\n");
    program.wait_for(" other watching free");
    let token = client.run("FAIRLOCK.ACQUIRE k ann");
    program.wait_for(&format!(
        " k fairlock.acquire to=ann holder=ann token={token} lease="
    ));
    client.run("FAIRLOCK.ACQUIRE k bob ENQUEUE");
    program.wait_for("waiting=1 next=bob\n");
    client.run("FAIRLOCK.CANCEL k bob");
    client.run("FAIRLOCK.RELEASE k ann");
    program.wait_for(" k fairlock.release from=ann free waiting=0\n");
    let expected = [
        "k fairlock.acquire",
        "k fairlock.enqueue",
        "k fairlock.cancel",
        "k fairlock.release",
    ];
    assert_eq!(events(&program.out())[2..], expected);
    assert_eq!(program.errors(), "");
}

#[test]
fn other_events_of_the_key_are_printed_unless_only_its_own_are_wanted() {
    let server = Server::with(&["--notify-keyspace-events", "KA"]);
    let mut client = server.connect();
    let all = Program::start(server.port, &["watch", "k"]);
    let own = Program::start(server.port, &["watch", "k", "--own"]);
    all.wait_for(" watching ");
    own.wait_for(" watching ");
    client.int("FAIRLOCK.ACQUIRE k a");
    client.run("DEL k");
    client.int("FAIRLOCK.ACQUIRE k b");
    client.run("FAIRLOCK.RELEASE k b");
    for program in [&all, &own] {
        program.wait_for(" fairlock.release ");
    }
    assert!(events(&all.out()).contains(&"k del".to_owned()));
    let expected = [
        "k fairlock.acquire",
        "k fairlock.acquire",
        "k fairlock.release",
    ];
    assert_eq!(events(&own.out())[1..], expected);
}

#[test]
fn an_event_is_an_object_of_json() {
    let server = announcing();
    let mut client = server.connect();
    let program = Program::start(server.port, &["watch", "k", "--json"]);
    program.wait_for("watching");
    client.run("FAIRLOCK.ACQUIRE k ann LEASE 60000 SESSION");
    program.wait_for("fairlock.acquire");
    wait_until("the line is complete", || program.out().ends_with('\n'));
    let out = program.out();
    let line = out.lines().last().expect("a line");
    let event: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(event["key"], "k");
    assert_eq!(event["event"], "fairlock.acquire");
    assert_eq!(event["owner"], "ann");
    assert_eq!(event["to"], serde_json::json!(["ann"]));
    assert_eq!(event["from"], serde_json::json!([]));
    assert_eq!(event["session"], true);
    assert_eq!(event["waiting"], 0);
    assert_eq!(event["next"], Value::Null);
    assert!(event["token"].as_i64() > Some(0));
    assert!(event["lease_ms"].as_i64() > Some(50_000));
}

#[test]
fn without_events_it_says_what_to_set_and_sets_it_if_told_to() {
    let server = Server::with(&["--notify-keyspace-events", "Eg"]);
    let ended = Program::ended(server.port, &["watch", "k"]);
    assert_eq!(ended.code, 78, "{ended:?}");
    let advice = format!(
        "redis-cli -u redis://127.0.0.1:{} CONFIG SET notify-keyspace-events ",
        server.port
    );
    assert!(ended.errors.contains(&advice), "{ended:?}");
    assert!(ended.errors.contains("--enable-events"), "{ended:?}");
    let program = Program::start(server.port, &["watch", "k", "--enable-events"]);
    program.wait_for(" watching ");
    program.wait_for_error("CONFIG REWRITE keeps it");
    server.connect().int("FAIRLOCK.ACQUIRE k a");
    // Of events that come together, the first names the new holder.
    program.wait_for(" expire to=a holder=a ");
    program.wait_for(" fairlock.acquire holder=a ");
    let flags = server.connect().run("CONFIG GET notify-keyspace-events");
    for flag in ["E", "g", "K", "d", "x"] {
        assert!(flags.contains(flag), "{flags}");
    }
}

#[test]
fn the_advice_is_a_command_that_helps() {
    let server = Server::start();
    let ended = Program::ended(server.port, &["watch", "k"]);
    let advice = ended.errors.split('`').nth(1).expect("a command");
    let mut shell = std::process::Command::new("sh");
    let out = shell.args(["-c", advice]).output().expect("a shell");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "OK\n", "{advice}");
    let program = Program::start(server.port, &["watch", "k"]);
    program.wait_for(" watching ");
}

#[test]
fn a_connection_that_ends_is_told_of_and_made_anew() {
    let server = announcing();
    let mut client = server.connect();
    let program = Program::start(server.port, &["watch", "k"]);
    program.wait_for(" watching ");
    kill_connection(&mut client, connection(&server, "cmd=fairlock.info "));
    program.wait_for_error("lost sight of k");
    program.wait_for_error("following k at 127.0.0.1:");
    client.int("FAIRLOCK.ACQUIRE k a");
    program.wait_for(" fairlock.acquire to=a holder=a ");
    assert_eq!(program.out().matches(" watching ").count(), 2);
}

#[test]
fn each_database_has_its_own_events() {
    let server = announcing();
    let url = format!("redis://127.0.0.1:{}/3", server.port);
    let program = Program::start(server.port, &["watch", "k", "--url", &url]);
    program.wait_for(" watching ");
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k zero");
    client.run("SELECT 3");
    client.int("FAIRLOCK.ACQUIRE k three");
    program.wait_for("holder=three");
    assert!(!program.out().contains("zero"), "{}", program.out());
}

#[test]
fn a_lock_with_several_holders_tells_how_many() {
    let server = announcing();
    let mut client = server.connect();
    let program = Program::start(server.port, &["watch", "k"]);
    program.wait_for(" watching free");
    let first = client.int("FAIRLOCK.ACQUIRE k ann SHARED");
    program.wait_for(&format!(" to=ann holder=ann token={first} lease="));
    program.wait_for(" holders=1 limit=none waiting=0\n");
    client.int("FAIRLOCK.ACQUIRE k bob SHARED 5");
    program.wait_for(" to=bob holder=ann ");
    program.wait_for(" holders=2 limit=5 waiting=0\n");
    client.run("FAIRLOCK.RELEASE k ann");
    program.wait_for(" fairlock.release from=ann holder=bob ");
    program.wait_for(" holders=1 limit=5 waiting=0\n");
}

#[test]
fn a_hand_off_says_who_released_and_who_got_it() {
    let server = announcing();
    let mut client = server.connect();
    client.int("FAIRLOCK.ACQUIRE k ann");
    let program = Program::start(server.port, &["watch", "k"]);
    program.wait_for(" watching holder=ann ");
    let bob = server.block("FAIRLOCK.ACQUIRE k bob");
    program.wait_for(" fairlock.enqueue holder=ann ");
    client.run("FAIRLOCK.RELEASE k ann");
    bob.int();
    program.wait_for(" fairlock.release from=ann to=bob holder=bob ");
    client.run("FAIRLOCK.BREAK k");
    program.wait_for(" from=bob free ");
    // The same owner again has another token.
    client.int("FAIRLOCK.ACQUIRE k ann");
    program.wait_for(" fairlock.acquire to=ann holder=ann ");
}

#[test]
fn a_user_that_may_not_list_holders_is_not_told_who_has_come_and_gone() {
    let server = announcing();
    let mut client = server.connect();
    client.run("ACL SETUSER ann on >secret ~k &* +fairlock.info +subscribe +config|get");
    let url = format!("redis://ann:secret@127.0.0.1:{}", server.port);
    let program = Program::start(1, &["--url", &url, "watch", "k"]);
    program.wait_for(" watching free");
    client.int("FAIRLOCK.ACQUIRE k a SHARED");
    program.wait_for(" fairlock.acquire holder=a ");
    client.run("FAIRLOCK.RELEASE k a");
    program.wait_for(" fairlock.release free ");
}
