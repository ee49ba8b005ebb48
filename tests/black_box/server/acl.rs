//! Permissions, and the server's information on each command: users, key patterns, flags, keys, documentation.

use fairlock_testing::commands::{COMMANDS, SCRIPTS};
use fairlock_testing::{Blocked, Client, Server, show, wait_until};
use redis::Value;

use super::security::{self, REFUSED};

/// A connection of a user with these permissions.
fn user(server: &Server, permissions: &str) -> Client {
    security::user(server, "ann", permissions)
}

/// Waits for the lock `a`, as the only one.
fn wait_as(server: &Server, user: Client) -> Blocked {
    let waits = Blocked::send_on(user, "FAIRLOCK.ACQUIRE a ann");
    wait_until("it waits", || server.blocked() == 1);
    waits
}

/// Items of an array, or pairs of a map one after the other.
fn items(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items.clone(),
        Value::Map(pairs) => pairs
            .iter()
            .flat_map(|(key, value)| [key.clone(), value.clone()])
            .collect(),
        _ => Vec::new(),
    }
}

/// What a map has under a key.
fn get(map: &Value, key: &str) -> Value {
    let items = items(map);
    let mut pairs = items.chunks_exact(2);
    let pair = pairs.find(|pair| show(&pair[0]) == key);
    pair.map_or(Value::Nil, |pair| pair[1].clone())
}

#[test]
fn command_info_has_arity_flags_keys_and_categories() {
    let (server, mut client) = Server::connected();
    client.assert_calls_all(COMMANDS.iter().map(|command| command.name).chain(SCRIPTS));
    for command in COMMANDS.iter() {
        let name = format!("fairlock.{}", command.name.to_lowercase());
        let reply = client.raw(&[b"COMMAND", b"INFO", name.as_bytes()]);
        let info = items(&items(&reply.expect("a reply"))[0]);
        assert_eq!(show(&info[0]), name);
        assert_eq!(info[1], Value::Int(command.arity), "{name}");
        let mut has: Vec<_> = items(&info[2]).iter().map(show).collect();
        // Every command of a module has it.
        has.retain(|flag| flag != "module");
        has.sort();
        assert_eq!(has.join(" "), command.flags, "{name}");
        let has_key = i64::from(!command.key.is_empty());
        assert_eq!(info[3..6], vec![Value::Int(has_key); 3], "{name}");
        let mut known: Vec<_> = items(&info[6]).iter().map(show).collect();
        known.sort();
        // A server without information on a module's commands shows none.
        let wanted = if server.knows_7_2() {
            command.categories
        } else {
            ""
        };
        assert_eq!(known.join(" "), wanted, "{name}");
        let specs = items(&info[8]);
        assert_eq!(specs.len(), usize::from(has_key == 1), "{name}");
        for spec in &specs {
            let flags: Vec<_> = items(&get(spec, "flags")).iter().map(show).collect();
            assert_eq!(flags.join(" "), command.key, "{name}");
            let begin = get(&get(&get(spec, "begin_search"), "spec"), "index");
            assert_eq!(begin, Value::Int(1), "{name}");
            // It is the only one.
            let last = get(&get(&get(spec, "find_keys"), "spec"), "lastkey");
            assert_eq!(last, Value::Int(0), "{name}");
        }
    }
}

/// The arguments of COMMAND DOCS as the usual notation has them.
fn syntax(argument: &Value) -> String {
    let text = |key: &str| match get(argument, key) {
        Value::Nil => None,
        value => Some(show(&value)),
    };
    let (kind, name) = (text("type").expect("a type"), text("name").expect("a name"));
    let parts = items(&get(argument, "arguments"));
    let parts: Vec<_> = parts.iter().map(syntax).collect();
    let value = match kind.as_str() {
        "pure-token" => None,
        "oneof" => Some(parts.join("|")),
        "block" => Some(parts.join(" ")),
        "key" | "string" | "integer" => Some(name),
        other => panic!("an argument of type {other}"),
    };
    let whole: Vec<_> = [text("token"), value].into_iter().flatten().collect();
    let whole = whole.join(" ");
    let flags: Vec<_> = items(&get(argument, "flags")).iter().map(show).collect();
    match flags.as_slice() {
        [] => whole,
        [flag] if flag == "optional" => format!("[{whole}]"),
        other => panic!("flags {other:?}"),
    }
}

#[test]
fn each_command_is_documented_with_the_syntax_that_help_says() {
    let server = Server::start();
    let help = items(&server.connect().raw(&[b"FAIRLOCK.HELP"]).expect("a reply"));
    let help: Vec<_> = help
        .iter()
        .map(|line| show(line).replace(" | ", "|"))
        .collect();
    for mut client in [server.connect(), server.connect_resp3()] {
        for command in COMMANDS.iter() {
            let name = format!("fairlock.{}", command.name.to_lowercase());
            let reply = client.raw(&[b"COMMAND", b"DOCS", name.as_bytes()]);
            let docs = get(&reply.expect("a reply"), &name);
            for key in ["summary", "complexity"] {
                let text = show(&get(&docs, key));
                assert!(
                    text.len() > 3 && !text.contains('\n'),
                    "{name} {key}: {text}"
                );
            }
            let summary = show(&get(&docs, "summary"));
            assert!(summary.ends_with('.'), "{summary}");
            let since = show(&get(&docs, "since"));
            assert_eq!(since.split('.').count(), 3, "{since}");
            assert_eq!(show(&get(&docs, "group")), "module");
            assert_eq!(show(&get(&docs, "module")), "fairlock");
            let arguments = items(&get(&docs, "arguments"));
            let arguments: Vec<_> = arguments.iter().map(syntax).collect();
            let call = [name.to_uppercase(), arguments.join(" ")].join(" ");
            assert!(
                help.contains(&call.trim_end().to_owned()),
                "{call}: {help:?}"
            );
        }
    }
}

#[test]
fn who_loses_the_permission_while_waiting_does_not_get_the_lock() {
    let (server, mut admin) = Server::connected();
    for change in [
        "resetkeys",
        "resetkeys ~b",
        "resetkeys %R~a",
        "-fairlock.acquire",
        "-@all",
        "reset on",
    ] {
        admin.int("FAIRLOCK.ACQUIRE a o");
        let ann = user(&server, "~a +fairlock.acquire");
        let waits = wait_as(&server, ann);
        let next = server.block("FAIRLOCK.ACQUIRE a next");
        admin.run(&format!("ACL SETUSER ann {change}"));
        admin.assert_reply("FAIRLOCK.RELEASE a o", "0");
        let reply = waits.reply();
        assert!(reply.starts_with(REFUSED), "{change}: {reply}");
        assert!(next.int() > 0);
        assert_eq!(admin.holders("a"), "[next, 1]");
        admin.assert_reply("FAIRLOCK.QUEUE a", "[]");
        admin.int("FAIRLOCK.RELEASE a next");
    }
}

#[test]
fn a_permission_that_is_lost_in_a_transaction_is_lost_all_the_same() {
    // A command that is renamed to itself keeps its name.
    for exec in ["EXEC", "go"] {
        let renamed = ["--rename-command", "EXEC", exec];
        let (server, mut admin) = Server::connected_with(&renamed);
        admin.int("FAIRLOCK.ACQUIRE a o");
        let ann = user(&server, "~a +fairlock.acquire");
        // Begun before ann asks.
        admin.run("MULTI");
        admin.run("acl setuser ann -fairlock.acquire");
        let waits = wait_as(&server, ann);
        admin.assert_reply(exec, "[OK]");
        admin.assert_reply("FAIRLOCK.RELEASE a o", "0");
        let reply = waits.reply();
        assert!(reply.starts_with(REFUSED), "{exec}: {reply}");
    }
}

#[test]
fn who_keeps_the_permission_gets_the_lock_though_others_change() {
    let (server, mut admin) = Server::connected();
    admin.int("FAIRLOCK.ACQUIRE a o");
    let ann = user(&server, "~a +fairlock.acquire");
    let waits = wait_as(&server, ann);
    admin.run("ACL SETUSER ann +fairlock.release");
    admin.run("ACL SETUSER bob on");
    // One that may no longer log in is served all the same.
    admin.run("ACL SETUSER ann off");
    admin.int("FAIRLOCK.RELEASE a o");
    assert!(waits.int() > 0);
}

/// Valkey has permissions for databases since 9.1.
#[test]
fn a_waiter_with_permission_for_one_database_gets_the_lock_there_and_loses_it_with_the_permission()
{
    let (server, mut admin) = Server::connected();
    for (rules, may) in [("db=1", true), ("resetdbs db=0", false)] {
        let mut ann = user(&server, "~a +@all");
        if admin.run("ACL SETUSER ann resetdbs db=0,1") != "OK" {
            return;
        }
        for client in [&mut ann, &mut admin] {
            client.assert_reply("SELECT 1", "OK");
        }
        admin.int("FAIRLOCK.ACQUIRE a o");
        let waits = wait_as(&server, ann);
        admin.assert_reply(&format!("ACL SETUSER ann {rules}"), "OK");
        admin.run("FAIRLOCK.RELEASE a o");
        let reply = waits.reply();
        assert_eq!(!reply.starts_with(REFUSED), may, "{rules}: {reply}");
        admin.run("FAIRLOCK.BREAK a");
    }
}

#[test]
fn sessions_belong_to_the_connection_and_to_no_user() {
    let (server, mut admin) = Server::connected();
    let mut ann = user(&server, "~a +fairlock.acquire +reset");
    security::user(&server, "bob", "~b +@all");
    ann.int("FAIRLOCK.ACQUIRE a ann SESSION LEASE 600000");
    // As another user the connection may do only what that user may.
    ann.assert_reply("AUTH bob x", "OK");
    for command in ["RELEASE a ann", "RENEW a ann", "ACQUIRE a ann SESSION"] {
        let reply = ann.run(&format!("FAIRLOCK.{command}"));
        assert!(reply.starts_with(REFUSED), "{command}: {reply}");
    }
    assert_eq!(admin.holders("a"), "[ann, 1]");
    drop(ann);
    wait_until("its session has ended", || admin.run("EXISTS a") == "0");
    // An operator ends what a user's connections hold.
    admin.run("ACL SETUSER ann on nopass ~a +@all");
    let mut wire = server.wire("AUTH ann x\nFAIRLOCK.ACQUIRE a ann SESSION LEASE 600000");
    assert_eq!(wire.line(), "+OK");
    assert!(wire.line().starts_with(':'));
    admin.run("ACL SETUSER ann resetkeys");
    admin.assert_reply("CLIENT KILL USER ann", "1");
    wait_until("its session has ended", || admin.run("EXISTS a") == "0");
}

#[test]
fn breaking_a_lock_takes_the_permission_of_an_administrator() {
    let (server, mut admin) = Server::connected();
    for (permissions, may) in [
        ("+@all", true),
        ("+@all -@dangerous", false),
        ("+@all -@admin", false),
        ("-@all +fairlock.break", true),
        ("+@all -debug", true),
        ("+@all -fairlock.break", false),
    ] {
        admin.int("FAIRLOCK.ACQUIRE a o ONCE");
        let mut user = user(&server, &format!("~* {permissions}"));
        if !may {
            user.assert_start(
                "EVAL return(redis.call('FAIRLOCK.BREAK','a')) 1 a",
                "(error)",
            );
        }
        let reply = user.run("FAIRLOCK.BREAK a");
        assert_eq!(reply == "1", may, "{permissions}: {reply}");
        assert_eq!(reply.starts_with(REFUSED), !may, "{permissions}: {reply}");
        assert_eq!(admin.run("EXISTS a") == "0", may, "{permissions}");
    }
}
