//! A server and two JVMs. Tests command the JVMs' threads; [`Look`] is all that can be observed.
//!
//! The threads of the first JVM have names that begin with `a`, those of the second with `b`.

use std::collections::HashMap;
use std::time::Duration;

use fairlock_testing::redisson::{Answer, Driver};
use fairlock_testing::{Client, Server, wait_until};

use crate::conformance::waiting;
use crate::listener::{Listener, Message};
use crate::topologies::commands;
use crate::trace::Trace;
use crate::view::{KEYS, Names, View, name};

/// The key that runs out while nothing happens.
pub const HOURGLASS: &str = "hourglass";
/// The length of a turn on the server with the module.
pub const TURN: Duration = Duration::from_millis(200);
/// Far longer than anything the module does in a turn or after it.
const TURNS: Duration = Duration::from_secs(1);

/// A server and its clients.
pub struct Stage {
    _server: Server,
    client: Client,
    a: Driver,
    b: Driver,
    names: Names,
    /// Threads that were told to do something, and have not answered yet.
    busy: HashMap<String, Answer>,
    trace: Trace,
    listener: Listener,
}

/// What can be seen.
#[derive(Clone, Debug, Default)]
pub struct Look {
    view: View,
    /// What was written since the step began, and what was published.
    writes: Vec<String>,
    messages: Vec<Message>,
}

impl Look {
    /// Whether nothing tells two servers apart.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.writes == other.writes
            && self.messages == other.messages
            && self.view.agrees_with(&other.view)
    }
}

impl Stage {
    pub fn new(server: Server, release: &str, threads: &[&str]) -> Self {
        let [a, b] = Driver::several([release; 2], &server, &[]);
        let mut stage = Self {
            client: server.connect(),
            a,
            b,
            names: Names::new(),
            busy: HashMap::new(),
            trace: Trace::new(&server),
            listener: Listener::new(server.port),
            _server: server,
        };
        for thread in threads {
            let owner = stage.driver(thread).run(thread, "owner k");
            stage.names.insert(owner, (*thread).to_owned());
        }
        stage
    }

    fn driver(&self, thread: &str) -> &Driver {
        if thread.starts_with('a') {
            &self.a
        } else {
            &self.b
        }
    }

    /// Lets a thread do something that is done at once.
    pub fn says(&mut self, thread: &str, operation: &str, expected: &str) {
        let answer = self.driver(thread).run(thread, operation);
        assert_eq!(answer, expected, "{thread}: {operation}");
    }

    /// Lets a thread do something that fails.
    pub fn fails(&mut self, thread: &str, operation: &str) {
        let answer = self.driver(thread).run(thread, operation);
        assert!(answer.starts_with("failed"), "{operation}: {answer}");
    }

    /// Has a thread join the queue, and waits until it sleeps.
    pub fn joins(&mut self, thread: &str, operation: &str) {
        let before = (waiting(&mut self.client, "k"), self.scripts());
        let answer = self.driver(thread).send(thread, operation);
        wait_until(operation, || {
            // It asks to join, and once more after it has subscribed. On a busy machine a short wait
            // may be over by then.
            waiting(&mut self.client, "k") > before.0 && self.scripts() >= before.1 + 2
                || answer.has_come()
        });
        self.busy.insert(thread.to_owned(), answer);
    }

    /// Waits until the answer of a thread has come.
    pub fn receives(&mut self, thread: &str, expected: &str) {
        let answer = self.busy.remove(thread).expect("a busy thread").get();
        assert!(answer.starts_with(expected), "{thread}: {answer}");
    }

    /// Gives the lock back, and waits until the next one has it.
    pub fn passes(&mut self, holder: &str, next: &str) {
        self.says(holder, "unlock k", "done");
        self.receives(next, "true");
    }

    pub fn interrupts(&mut self, thread: &str) {
        self.says(thread, "interrupt k", "done");
        self.receives(thread, "failed");
    }

    /// Kills the second JVM.
    pub fn kills_b(&mut self) {
        self.b.kill();
    }

    /// A command of an operator.
    pub fn operator(&mut self, command: &str) {
        let reply = self.client.run(command);
        assert!(!reply.starts_with("(error)"), "{command}: {reply}");
    }

    /// Without a queue the lock is as good as new.
    pub fn operator_clears_all(&mut self) {
        self.operator(&format!("DEL {}", KEYS.join(" ")));
    }

    /// Waits until the lock is free.
    pub fn is_free(&mut self) {
        wait_until("the lock is free", || self.client.run("EXISTS k") == "0");
    }

    /// Publishes a wake-up that neither the scripts nor the module publish.
    pub fn is_woken(&mut self, thread: &str) {
        let owners = self.names.iter();
        let owner = owners
            .filter(|(_, name)| *name == thread)
            .map(|(owner, _)| owner);
        let owner = owner.last().expect("a thread").clone();
        self.operator(&format!("PUBLISH redisson_lock__channel:{{k}}:{owner} 0"));
    }

    /// Several turns pass.
    pub fn turns_pass(&mut self) {
        pass(&mut self.client, TURNS);
    }

    fn scripts(&mut self) -> u64 {
        commands(&mut self.client, "eval") + commands(&mut self.client, "evalsha")
    }

    /// Adds what has happened since it was called last.
    pub fn look(&mut self, so_far: Look) -> Look {
        let Look {
            mut writes,
            mut messages,
            ..
        } = so_far;
        let names = &self.names;
        let by_name = |line: &String| {
            let words = line.split(' ').map(|word| name(names, word));
            words.collect::<Vec<_>>().join(" ")
        };
        writes.extend(self.trace.until_now(&KEYS).iter().map(by_name));
        let of_thread = |(channel, text): Message| {
            let (prefix, owner) = channel.split_once("{k}:").expect("a channel of k");
            (format!("{prefix}{{k}}:{}", name(names, owner)), text)
        };
        messages.extend(self.listener.until_now().into_iter().map(of_thread));
        Look {
            view: View::of(&mut self.client, names),
            writes,
            messages,
        }
    }
}

/// Some time passes, by the server's clock.
pub fn pass(client: &mut Client, time: Duration) {
    client.run(&format!("SET {HOURGLASS} 1 PX {}", time.as_millis()));
    wait_until("the hourglass has run out", || {
        client.run(&format!("EXISTS {HOURGLASS}")) == "0"
    });
}
