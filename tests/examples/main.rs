//! The programs in `examples/`, which use the client packages: each does what its first lines say, at a real server.

// All of it is for tests: one that cannot go on panics.
#![cfg(test)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use fairlock_testing::{Program, Server, paths, wait_until};

/// Starts a program at a server, with its dependencies and more arguments.
fn start(language: &str, program: &str, server: &Server, more: &[&str]) -> Program {
    // The script becomes the program, so that its process is the program's.
    let script = paths::root().join("scripts/clients").join(language);
    let mut command = Command::new(script);
    command
        .arg("run")
        .arg(paths::root().join("examples").join(program))
        .arg(format!("redis://127.0.0.1:{}", server.port))
        .args(more)
        .env("CARGO_TARGET_DIR", paths::target());
    Program::start(&mut command)
}

/// What a program says until it ends with success.
fn to_its_end(program: Program) -> String {
    let ended = program.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    ended.out
}

/// A field of FAIRLOCK.INFO.
fn field(server: &Server, lock: &str, field: &str) -> String {
    let said = server.connect().run(&format!("FAIRLOCK.INFO {lock}"));
    let words: Vec<&str> = said.trim_matches(['[', ']']).split(", ").collect();
    let found = words.chunks(2).find(|pair| pair[0] == field);
    found.map(|pair| pair[1].to_owned()).unwrap_or_default()
}

#[test]
fn workers_take_turns_at_the_orders_of_a_customer() {
    let (server, mut client) = Server::connected();
    let workers = [0; 3].map(|_| start("python", "python/worker.py", &server, &[]));
    // A program that has not begun cannot end cleanly yet.
    wait_until("all wait for orders", || {
        server.info("clients", "blocked_clients") == "3"
    });
    for order in 0..10 {
        client.run(&format!("RPUSH orders ann:{order} bob:{order}"));
    }
    let mut bills = || ["ann", "bob"].map(|who| client.run(&format!("HGET bills {who}")));
    // Lost updates would show as smaller numbers.
    wait_until("all orders are billed", || bills() == ["10", "10"]);
    for worker in &workers {
        worker.signal("TERM");
    }
    let said = workers.map(to_its_end).concat();
    assert_eq!(said.lines().count(), 20, "{said}");
    assert_eq!(server.connect().run("FAIRLOCK.LOCKS"), "[]");
    assert_eq!(server.connect().int("LLEN orders:under-way"), 0);
}

#[test]
fn a_leader_that_dies_is_followed_at_once_and_one_that_resigns_too() {
    let server = Server::start();
    let elect = |name: &str| start("typescript", "node/leader.mjs", &server, &[name]);
    let first = elect("first");
    first.wait_for("first leads, token ");
    let (second, third) = (elect("second"), elect("third"));
    wait_until("two wait", || field(&server, "leader", "waiting") == "2");
    drop(first); // Killed: it says nothing, and releases nothing.
    wait_until("another leads", || {
        field(&server, "leader", "waiting") == "1"
    });
    // The server decides which of the two was first.
    let next = field(&server, "leader", "owner");
    let is_second = next.contains(&format!(":{}:", second.id()));
    let (leader, waiter) = if is_second {
        (&second, &third)
    } else {
        (&third, &second)
    };
    leader.wait_for("leads, token ");
    leader.signal("TERM");
    leader.wait_for("has resigned");
    waiter.wait_for("leads, token ");
}

#[test]
fn the_messages_of_a_conversation_are_answered_one_after_another() {
    for server in [Server::start(), Server::without_module(&[])] {
        conversations(&server);
    }
}

/// Two webhooks, and their senders.
fn conversations(server: &Server) {
    let program = "python/conversations.py";
    let webhooks = [0; 2].map(|_| start("python", program, server, &["0"]));
    let ports = webhooks.each_ref().map(|webhook| {
        webhook.wait_for("\n");
        let said = webhook.printed("out");
        let port = said.trim_end().strip_prefix("listening on ");
        port.and_then(|port| port.parse::<u16>().ok())
            .expect("a port")
    });
    let mut client = server.connect();
    let hard = send(ports[0], "ann", "a hard question");
    client.wait_for("EXISTS conversation:ann", "1");
    let waiting: Vec<TcpStream> = (0..10)
        .map(|number| {
            let message = send(ports[number % 2], "ann", &format!("message {number}"));
            wait_until("it is in the queue", || {
                let length = client.int("LLEN redisson_lock_queue:{conversation:ann}");
                usize::try_from(length) == Ok(number + 1)
            });
            message
        })
        .collect();
    // No waiting handler has a connection of its own.
    let connections = server.info("clients", "connected_clients");
    assert!(connections.parse::<usize>().expect("a number") < 12);
    // Its handler is cancelled: it would take a minute.
    client.run("DEL conversation:ann");
    assert!(answer(hard).contains("503 Service Unavailable"));
    let answers: Vec<String> = waiting.into_iter().map(answer).collect();
    assert!(answers.iter().all(|said| said.contains("200 OK")));
    // The tokens say in which order they were answered.
    let token = |said: &String| said.rsplit("token ").next().map(str::to_owned);
    let tokens: Vec<_> = answers.iter().map(token).collect();
    assert!(tokens.is_sorted(), "{answers:?}");
}

fn send(port: u16, conversation: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    let length = text.len();
    let head = format!("POST /{conversation} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + text).as_bytes()).expect("written");
    stream
}

fn answer(mut message: TcpStream) -> String {
    let mut said = String::new();
    message.read_to_string(&mut said).expect("read");
    said
}
