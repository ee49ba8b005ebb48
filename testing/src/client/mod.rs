//! A client for tests, on the redis crate.
//!
//! Commands are words in one string, and replies are text: tests read like a session of redis-cli.

mod blocked;
mod listener;
mod wire;

use std::collections::BTreeSet;
use std::time::Duration;

use redis::{Connection, ConnectionLike, Value};

use crate::lua;
use crate::wait::{give_up, wait_until};

pub use blocked::Blocked;
pub use listener::{Listener, Message, WAKE_UPS};
pub use wire::Wire;

/// A connection. Commands are words in one string; [`Client::raw`] takes any bytes.
pub struct Client {
    connection: Connection,
    /// The connection's id.
    pub id: i64,
    port: u16,
}

impl Client {
    /// Connects to a server of this machine, speaking RESP2 or RESP3.
    pub fn new(port: u16, resp: u8) -> Self {
        let suffix = if resp == 3 { "?protocol=resp3" } else { "" };
        let url = format!("redis://127.0.0.1:{port}/{suffix}");
        let client = redis::Client::open(url).expect("a valid address");
        let connection = client.get_connection_with_timeout(give_up());
        let mut client = Self {
            connection: connection.expect("a connection"),
            id: 0,
            port,
        };
        // A command that is not answered fails its test.
        client.waits_at_most(Some(give_up()));
        client.id = client.int("CLIENT ID");
        client
    }

    pub(crate) fn waits_at_most(&self, limit: Option<Duration>) {
        // One that is closed shows it at the next command.
        let _ = self.connection.set_read_timeout(limit);
    }

    /// Sends a command; the reply or the error's text.
    pub fn raw(&mut self, arguments: &[&[u8]]) -> Result<Value, String> {
        let mut command = redis::Cmd::new();
        for argument in arguments {
            command.arg(*argument);
        }
        let reply: Result<Value, _> = command.query(&mut self.connection);
        reply.map_err(|error| match (error.code(), error.detail()) {
            (Some(code), Some(detail)) => format!("{code} {detail}"),
            (Some(code), None) => code.to_owned(),
            _ => format!("not a reply: {error}"),
        })
    }

    /// Sends commands all at once; their replies, errors among them.
    pub fn pipeline(&mut self, commands: &[Vec<Vec<u8>>]) -> Vec<Value> {
        let mut pipeline = redis::Pipeline::new();
        for command in commands {
            let words = pipeline.cmd(std::str::from_utf8(&command[0]).expect("a name"));
            command[1..].iter().for_each(|word| {
                words.arg(word);
            });
        }
        let packed = pipeline.get_packed_pipeline();
        let replies = self
            .connection
            .req_packed_commands(&packed, 0, commands.len());
        replies.expect("replies")
    }

    /// Sends commands all at once, each its words in one string; their replies, errors among them.
    pub fn run_many<S: AsRef<str>>(&mut self, commands: impl IntoIterator<Item = S>) -> Vec<Value> {
        let words = |command: S| command.as_ref().split(' ').map(Vec::from).collect();
        let commands: Vec<_> = commands.into_iter().map(words).collect();
        self.pipeline(&commands)
    }

    /// Sends words; the reply as text: `12`, `(nil)`, `a`, `[a, 1]`, or `(error) ...`. `LUA.ACQUIRE` and so on stand
    /// for the [scripts](lua) of commands.
    pub fn run(&mut self, words: &str) -> String {
        let words: Vec<&str> = words.split(' ').collect();
        if words[0].starts_with("LUA.") {
            self.run_words(&lua::call(&words))
        } else {
            self.run_words(&words)
        }
    }

    /// As [`Client::run`], words of any bytes.
    pub fn run_words(&mut self, words: &[impl AsRef<[u8]>]) -> String {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        match self.raw(&words) {
            Ok(value) => show(&value),
            Err(error) => format!("(error) {error}"),
        }
    }

    /// A lock's holder and hold count, as `[a, 1]`: its hash without the field that has no name, which is the token.
    pub fn holders(&mut self, lock: &str) -> String {
        let fields = self.run(&format!("HGETALL {lock}"));
        let Some(list) = fields
            .strip_prefix('[')
            .and_then(|list| list.strip_suffix(']'))
        else {
            return fields;
        };
        let words: Vec<&str> = list.split(", ").collect();
        let named = words.chunks(2).filter(|field| !field[0].is_empty());
        format!(
            "[{}]",
            named.flatten().copied().collect::<Vec<_>>().join(", ")
        )
    }

    /// The token in a lock's hash.
    pub fn token(&mut self, lock: &str) -> i64 {
        let token = self.raw(&[b"HGET", lock.as_bytes(), b""]);
        token
            .map(|token| show(&token))
            .unwrap_or_default()
            .parse()
            .unwrap_or(0)
    }

    /// Runs commands as one transaction, so that no time passes between them; the reply of EXEC.
    #[track_caller]
    pub fn at_once(&mut self, commands: &[&str]) -> String {
        assert_eq!(self.run("MULTI"), "OK");
        for command in commands {
            assert_eq!(self.run(command), "QUEUED", "{command}");
        }
        self.run("EXEC")
    }

    /// What a server announces in database 0 during some steps, as `event key`.
    pub fn events(port: u16, steps: impl FnOnce()) -> Vec<String> {
        const CHANNEL: &str = "__keyevent@0__:";
        let listener = Listener::new(port, &format!("{CHANNEL}*"));
        steps();
        let event = |(channel, key): Message| {
            let name = channel.trim_start_matches(CHANNEL);
            format!("{name} {key}")
        };
        listener.until_now().into_iter().map(event).collect()
    }

    /// The module's commands as the server lists them, without their prefix: `ACQUIRE`.
    pub fn commands(&mut self) -> BTreeSet<String> {
        let list = self.run("COMMAND LIST FILTERBY MODULE fairlock");
        let names = list.trim_matches(['[', ']']).split(", ").map(command_of);
        names.collect()
    }

    /// Fails if a list of calls (`FAIRLOCK.ACQUIRE k a`, or `ACQUIRE k a`) lacks a command of the module.
    #[track_caller]
    pub fn assert_calls_all<'a>(&mut self, calls: impl IntoIterator<Item = &'a str>) {
        let named: BTreeSet<String> = calls.into_iter().map(command_of).collect();
        assert_eq!(named, self.commands());
    }

    /// Sends words that must get this reply.
    #[track_caller]
    pub fn assert_reply(&mut self, words: &str, reply: &str) {
        assert_eq!(self.run(words), reply, "{words}");
    }

    /// Sends words that must get a reply that begins so.
    #[track_caller]
    pub fn assert_start(&mut self, words: &str, start: &str) {
        let reply = self.run(words);
        assert!(reply.starts_with(start), "{words}: {reply}");
    }

    /// Sends words that must get a reply with this in it.
    #[track_caller]
    pub fn assert_has(&mut self, words: &str, part: &str) {
        let reply = self.run(words);
        assert!(reply.contains(part), "{words}: {reply}");
    }

    /// Sends words that must get an error of this code.
    #[track_caller]
    pub fn assert_error(&mut self, words: &str, code: &str) {
        self.assert_start(words, &format!("(error) {code} "));
    }

    /// Sends words until they get this reply.
    #[track_caller]
    pub fn wait_for(&mut self, words: &str, reply: &str) {
        wait_until(&format!("{words}: {reply}"), || self.run(words) == reply);
    }

    /// The server's time in milliseconds.
    pub fn now(&mut self) -> i64 {
        let time = self.list("TIME");
        let [seconds, micros] = [0, 1].map(|part| time[part].parse::<i64>().expect("a time"));
        seconds * 1000 + micros / 1000
    }

    /// A reply that is a list, which may be empty.
    pub fn list(&mut self, words: &str) -> Vec<String> {
        let reply = self.run(words);
        let items = reply.trim_matches(['[', ']']).split(", ");
        items
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Owners join the queue of `k` without blocking, in this order, and stay alive for longer than any test.
    pub fn enqueue<const N: usize>(&mut self, owners: [&str; N]) {
        for owner in owners {
            let ask = format!("FAIRLOCK.ACQUIRE k {owner} ENQUEUE PATIENCE 600000");
            self.assert_start(&ask, "[");
        }
    }

    /// An integer reply.
    #[track_caller]
    pub fn int(&mut self, words: &str) -> i64 {
        let reply = self.run(words);
        reply.parse().unwrap_or_else(|_| panic!("{words}: {reply}"))
    }
}

/// The command that a call names, without the module's prefix.
fn command_of(call: &str) -> String {
    let name = call.split(' ').next().unwrap_or_default().to_uppercase();
    name.trim_start_matches("FAIRLOCK.").to_owned()
}

/// A reply as text.
pub fn show(value: &Value) -> String {
    match value {
        Value::Nil => "(nil)".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Boolean(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::Okay => "OK".to_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::BulkString(bytes) => bytes.escape_ascii().to_string().replace("\\r\\n", "\n"),
        Value::Array(items) | Value::Set(items) => {
            let items: Vec<_> = items.iter().map(show).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|(key, value)| format!("{}: {}", show(key), show(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => format!("{other:?}"),
    }
}
