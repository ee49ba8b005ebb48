//! A client as tests like to use it, on the redis crate.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use redis::{Connection, ConnectionLike, Value};

use crate::server::give_up;

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
        let mut connection = client.get_connection().expect("a connection");
        let id = redis::cmd("CLIENT").arg("ID").query(&mut connection);
        let id = id.expect("an id");
        Self {
            connection,
            id,
            port,
        }
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

    /// Sends words; the reply as text: `12`, `(nil)`, `a`, `[a, 1]`, or `(error) ...`.
    pub fn run(&mut self, words: &str) -> String {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        match self.raw(&words) {
            Ok(value) => show(&value),
            Err(error) => format!("(error) {error}"),
        }
    }

    /// Who holds a lock and how often, as `[a, 1]`: its hash without the field that has no name, which is
    /// the token.
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
        let mut client = Self::new(port, 2);
        let mut channel = client.connection.as_pubsub();
        channel
            .psubscribe(format!("{CHANNEL}*"))
            .expect("subscribed");
        steps();
        let last = format!("{CHANNEL}the-end");
        Self::new(port, 2).run(&format!("PUBLISH {last} k"));
        let mut events = Vec::new();
        loop {
            let message = channel.get_message().expect("an event");
            let name = message.get_channel_name();
            if name == last {
                return events;
            }
            let event = name.trim_start_matches(CHANNEL);
            let key: String = message.get_payload().expect("a key");
            events.push(format!("{event} {key}"));
        }
    }

    /// The whole text of a bulk reply.
    pub fn text(&mut self, words: &str) -> String {
        self.run(words)
    }

    /// An integer reply.
    #[track_caller]
    pub fn int(&mut self, words: &str) -> i64 {
        let reply = self.run(words);
        reply.parse().unwrap_or_else(|_| panic!("{words}: {reply}"))
    }
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

/// A command under way on a connection of its own, which closes when this is dropped or its reply
/// is taken.
pub struct Blocked {
    replies: Receiver<(String, Client)>,
    reply: OnceCell<(String, Client)>,
    /// The connection's id.
    pub id: i64,
    port: u16,
}

impl Blocked {
    /// Sends a command on a connection of its own, without waiting for the reply.
    pub fn send(port: u16, words: &str) -> Self {
        Self::send_on(Client::new(port, 2), words)
    }

    /// Sends a command without waiting for the reply.
    pub fn send_on(mut client: Client, words: &str) -> Self {
        let (id, port) = (client.id, client.port);
        let words = words.to_owned();
        let (sender, replies) = mpsc::channel();
        thread::spawn(move || {
            let reply = client.run(&words);
            // Nobody may be there to take it any more.
            let _ = sender.send((reply, client));
        });
        Self {
            replies,
            reply: OnceCell::new(),
            id,
            port,
        }
    }

    /// Whether the reply has come.
    pub fn is_done(&self) -> bool {
        if let Ok(reply) = self.replies.try_recv() {
            let _ = self.reply.set(reply);
        }
        self.reply.get().is_some()
    }

    /// The reply; the connection closes.
    #[track_caller]
    pub fn reply(self) -> String {
        self.reply_and_client().0
    }

    /// The reply, and the connection as it is.
    #[track_caller]
    pub fn reply_and_client(self) -> (String, Client) {
        if let Some(reply) = self.reply.into_inner() {
            return reply;
        }
        let reply = self.replies.recv_timeout(give_up());
        reply.expect("a reply to the blocked command")
    }

    /// An integer reply.
    #[track_caller]
    pub fn int(self) -> i64 {
        let reply = self.reply();
        reply.parse().unwrap_or_else(|_| panic!("{reply}"))
    }

    /// Closes its connection, as a client that dies does.
    pub fn disconnect(self) {
        let killed = Client::new(self.port, 2).run(&format!("CLIENT KILL ID {}", self.id));
        assert_eq!(killed, "1");
    }
}

/// A bare connection, for tests of what comes back line by line, and when.
pub struct Wire {
    socket: BufReader<TcpStream>,
    /// The connection's id; 0 if the server does not tell.
    pub id: i64,
}

impl Wire {
    /// Connects to a server of this machine.
    pub fn new(port: u16) -> Self {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let timeout = Some(give_up());
        socket.set_read_timeout(timeout).expect("a timeout");
        let mut wire = Self {
            socket: BufReader::new(socket),
            id: 0,
        };
        wire.send("CLIENT ID");
        let id = wire.line();
        wire.id = id.trim_start_matches(':').parse().unwrap_or(0);
        wire
    }

    /// Sends commands, one a line, all at once.
    pub fn send(&mut self, commands: &str) {
        let bytes = format!("{}\r\n", commands.replace('\n', "\r\n"));
        // A connection that was closed shows that by what it replies.
        let _ = self.socket.get_mut().write_all(bytes.as_bytes());
    }

    /// Sends one command of any words.
    pub fn send_words(&mut self, words: &[Vec<u8>]) {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        let sent = self
            .socket
            .get_mut()
            .write_all(&command.get_packed_command());
        sent.expect("sent");
    }

    /// The next line that comes back, as the protocol has it; empty when the connection is closed.
    pub fn line(&mut self) -> String {
        self.line_if_open().unwrap_or_default()
    }

    /// A token, or another integer, that comes back.
    #[track_caller]
    pub fn token(&mut self) -> i64 {
        let line = self.line();
        let token = line.strip_prefix(':').and_then(|token| token.parse().ok());
        token.unwrap_or_else(|| panic!("no token: {line}"))
    }

    /// The next line that comes back, which can be an empty string; `None` when the connection is
    /// closed.
    pub fn line_if_open(&mut self) -> Option<String> {
        let mut line = String::new();
        // A reset is a way of closing.
        let _ = self.socket.read_line(&mut line);
        (!line.is_empty()).then(|| line.trim_end().to_owned())
    }
}

/// A subscriber of one channel, on a connection of its own.
pub struct Listener {
    messages: Receiver<String>,
    unread: RefCell<VecDeque<String>>,
}

impl Listener {
    /// Subscribes to a channel.
    pub fn new(port: u16, channel: &str) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"));
        let client = client.expect("a valid address");
        let mut connection = client.get_connection().expect("a connection");
        let channel = channel.to_owned();
        let (sender, messages) = mpsc::channel();
        let (ready, subscribed) = mpsc::channel();
        thread::spawn(move || {
            let mut pubsub = connection.as_pubsub();
            ready.send(pubsub.subscribe(&channel)).expect("a listener");
            // Until the server ends, or the test does.
            while let Ok(message) = pubsub.get_message() {
                let text = message.get_payload().expect("a text");
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        let done = subscribed.recv().expect("a subscription");
        done.expect("subscribed");
        let unread = RefCell::default();
        Self { messages, unread }
    }

    /// The next message.
    #[track_caller]
    pub fn message(&self) -> String {
        if let Some(message) = self.unread.borrow_mut().pop_front() {
            return message;
        }
        let message = self.messages.recv_timeout(give_up());
        message.expect("a message")
    }

    /// Whether nothing has come that was not read.
    pub fn is_quiet(&self) -> bool {
        let mut unread = self.unread.borrow_mut();
        unread.extend(self.messages.try_iter());
        unread.is_empty()
    }
}
