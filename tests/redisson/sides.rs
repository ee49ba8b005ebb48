//! A server with the module that is sent the commands, or one without it that runs the scripts: what each shows of a
//! step of [`crate::as_scripts`].

use std::cmp::Ordering;

use fairlock_testing::{Client, Listener, Message, Server, WAKE_UPS, lua, show};
use redis::Value;

use crate::as_scripts::{Step, ask};

/// A short lease or patience, in milliseconds.
const SHORT: &str = "40";

/// What PTTL says of a key that is not there.
const NO_KEY: i64 = -2;

/// In front of a script, it makes a server pass numbers as Redis 7.2.0 to 7.2.4 do: with an exponent where that is
/// shorter, such as `1e+8` (redis 13113), which PEXPIRE refuses. Here all great numbers have one.
const EXPONENTS: &str = "
local redis = setmetatable({}, { __index = redis })
for _, name in ipairs({ 'call', 'pcall' }) do
  redis[name] = function(...)
    local words = { ... }
    for index, word in ipairs(words) do
      if type(word) == 'number' and word >= 1e8 then
        words[index] = string.format('%.17e', word)
      end
    end
    return getmetatable(redis).__index[name](unpack(words))
  end
end
";

/// What a server shows of one step.
#[derive(Clone, Debug)]
pub struct Seen {
    reply: String,
    /// A time in the reply.
    retry_after: i64,
    holder: Vec<String>,
    queue: String,
    waiters: Vec<String>,
    lease_left: i64,
}

/// A server and how it is called.
pub struct Side {
    _server: Server,
    client: Client,
    listener: Listener,
    by_script: bool,
    /// Digests of the scripts, and of those that are called in their place.
    instead: Vec<(String, String)>,
    /// The last token of the lock.
    token: i64,
}

impl Side {
    pub fn new(server: Server, by_script: bool) -> Self {
        let mut client = server.connect();
        lua::load(&mut client);
        Self {
            client,
            listener: Listener::new(server.port, WAKE_UPS),
            _server: server,
            by_script,
            instead: Vec::new(),
            token: 0,
        }
    }

    /// The scripts run as on Redis 7.2.0 to 7.2.4.
    pub fn with_exponents(mut self) -> Self {
        for script in lua::SCRIPTS.iter() {
            let text = format!("{EXPONENTS}{}", script.text);
            let load: [&[u8]; 3] = [b"SCRIPT", b"LOAD", text.as_bytes()];
            self.client.raw(&load).expect("loaded");
            self.instead.push((script.sha1.clone(), lua::sha1(&text)));
        }
        self
    }

    pub fn begin(&mut self) {
        self.listener.until_now();
        self.token = 0;
    }

    /// The messages to this lock's waiters.
    pub fn heard(&self, keys: &[String; 4]) -> Vec<Message> {
        let channel = keys[1].replace("lock_queue", "lock__channel") + ":";
        let mut messages = self.listener.until_now();
        messages.retain(|(of, _)| of.starts_with(&channel));
        messages
    }

    /// What comes before a nap.
    pub fn tire(&mut self, ends: bool, keys: &[String; 4]) {
        if self.client.run(&format!("LLEN {}", keys[1])) == "0" {
            let short = format!("ACQUIRE s ENQUEUE LEASE {SHORT} PATIENCE {SHORT}");
            // It may be refused: what comes after it shows that.
            let _ = self.call(&ask(&short), keys);
        }
        if ends {
            self.client.run(&format!("PEXPIRE {} {SHORT}", keys[0]));
        }
    }

    pub fn take(&mut self, step: &Step, keys: &[String; 4]) -> Seen {
        let reply = match step {
            Step::Call(words) => self.call(words, keys),
            Step::CallWithFullMemory(words) => {
                self.client.run("CONFIG SET maxmemory 1");
                let reply = self.call(words, keys);
                self.client.run("CONFIG SET maxmemory 0");
                reply
            }
            Step::Foreign(words) => {
                let [lock, queue, deadlines, _] = keys;
                let words = words.replace("{lock}", lock).replace("{queue}", queue);
                self.client.run(&words.replace("{deadlines}", deadlines));
                self.call(&ask("ACQUIRE z ENQUEUE"), keys)
            }
            Step::Nap { .. } => self.call(&ask("ACQUIRE z ENQUEUE"), keys),
        };
        let (reply, retry_after) = self.read(reply);
        self.look(reply, retry_after, keys)
    }

    fn call(&mut self, words: &[String], keys: &[String; 4]) -> Result<Value, String> {
        let token = self.token.to_string();
        let mut words: Vec<String> = words
            .iter()
            .map(|word| word.replace("{token}", &token))
            .collect();
        words.insert(1, keys[0].clone());
        words[0] = format!("FAIRLOCK.{}", words[0]);
        if self.by_script {
            words = lua::call(&words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if let Some((_, other)) = self.instead.iter().find(|(sha1, _)| *sha1 == words[1]) {
            words[1].clone_from(other);
        }
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        self.client.raw(&words)
    }

    /// A reply in words that are the same everywhere, and a time in it.
    fn read(&mut self, reply: Result<Value, String>) -> (String, i64) {
        match reply {
            Err(error) => (error.split(' ').next().unwrap_or_default().to_owned(), 0),
            Ok(Value::Int(token))
                if token > 1_000_000_000_000_000 && token < 4_000_000_000_000_000 =>
            {
                let word = match token.cmp(&self.token) {
                    Ordering::Equal => "the token",
                    Ordering::Greater => "a greater token",
                    Ordering::Less => "A SMALLER TOKEN",
                };
                self.token = token;
                (word.to_owned(), 0)
            }
            Ok(Value::Array(place)) => match &place[..] {
                [Value::Int(position), Value::Int(retry_after)] => {
                    (format!("position {position}"), *retry_after)
                }
                other => panic!("{other:?}"),
            },
            Ok(other) => (show(&other), 0),
        }
    }

    fn look(&mut self, reply: String, retry_after: i64, keys: &[String; 4]) -> Seen {
        let [lock, queue, deadlines, _] = keys;
        let answers = self.client.run_many([
            "MULTI".to_owned(),
            format!("HGETALL {lock}"),
            format!("LRANGE {queue} 0 -1"),
            format!("ZRANGE {deadlines} 0 -1"),
            format!("PTTL {lock}"),
            "EXEC".to_owned(),
        ]);
        let Some(Value::Array(answers)) = answers.last() else {
            panic!("{answers:?}");
        };
        let [lock, queue, deadlines, lease_left] = &answers[..] else {
            panic!("{answers:?}");
        };
        let mut holder: Vec<String> = words(lock)
            .chunks(2)
            .map(|field| match field {
                [name, _] if name.is_empty() => "and a token".to_owned(),
                field => field.join(" "),
            })
            .collect();
        holder.sort();
        // Where others have taken the owner out of the hash, the module deletes what is left, and a script leaves it
        // until the lease is over. The lock is free either way.
        let is_free = holder == ["and a token"];
        if is_free {
            holder.clear();
        }
        let mut waiters = words(deadlines);
        waiters.sort();
        let lease_left = match lease_left {
            _ if is_free => NO_KEY,
            Value::Int(left) => *left,
            other => panic!("{other:?}"),
        };
        Seen {
            reply,
            retry_after,
            holder,
            queue: words(queue).join(" "),
            waiters,
            lease_left,
        }
    }
}

/// The words of an answer; of an error its code.
fn words(answer: &Value) -> Vec<String> {
    match answer {
        Value::Array(items) => items.iter().map(show).collect(),
        other => vec![show(other).split(' ').next().unwrap_or_default().to_owned()],
    }
}

impl Seen {
    pub fn is_like(&self, other: &Self, apart: u128) -> bool {
        let near = |one: i64, other: i64| {
            (one < 0) == (other < 0) && u128::from(one.abs_diff(other)) < apart
        };
        // While the head has its turn, a script has others ask in the middle of it, which wakes those behind a silent
        // head. The module has a timer for that.
        let is_half = other.holder.is_empty() && near(self.retry_after, 2 * other.retry_after);
        self.reply == other.reply
            && self.reply != "A SMALLER TOKEN"
            && (near(self.retry_after, other.retry_after) || is_half)
            && self.holder == other.holder
            && self.queue == other.queue
            && self.waiters == other.waiters
            && near(self.lease_left, other.lease_left)
    }
}
