//! What happened, as the clients saw it: the only thing that the checker is told.
//!
//! All times are microseconds by one steady clock, that of this process, since the round began. A
//! client is a number, and it is the owner of that number too: it has one request at a time.

use std::sync::Mutex;
use std::time::Instant;

use serde::Serialize;

/// Microseconds since the round began.
pub type Micros = u64;

/// How a client asks for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// ACQUIRE that blocks.
    Blocked,
    /// ENQUEUE, and asking again when woken.
    Polling,
    /// NOWAIT.
    Trying,
    /// Redisson's script, which leaves no token.
    Script,
}

/// How many holders a request tolerates, the one that asks included.
pub type Limit = usize;
/// Without SHARED.
pub const EXCLUSIVE: Limit = 1;
/// SHARED without a limit.
pub const ANY: Limit = usize::MAX;

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Request {
    Acquire {
        way: Way,
        lease: Micros,
        /// The lock is to live as long as the connection.
        session: bool,
        /// A holder that asks again keeps its hold count.
        once: bool,
        /// WAIT.
        wait: Option<Micros>,
        limit: Limit,
    },
    Release {
        /// TOKEN.
        token: Option<i64>,
    },
    Renew {
        lease: Micros,
    },
    /// Takes an owner, not always the calling one, out of the queue.
    Cancel {
        owner: usize,
    },
    /// Not a command: the client closes its connection.
    Close,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "answer", content = "got", rename_all = "snake_case")]
pub enum Answer {
    /// The lock is held, by this token if it has one.
    Granted(Option<i64>),
    /// Not in time, or in the queue now.
    NotNow,
    /// Released; the holds that remain.
    Left(i64),
    NotHeld,
    Done,
    /// The connection broke before the reply came: it may have been carried out, or not.
    Lost,
    /// There was no reply for as long as one waits, or when the round was over.
    Never,
    /// An error.
    Refused(String),
}

/// One request of one client, and its reply.
#[derive(Clone, Debug, Serialize)]
pub struct Call {
    pub client: usize,
    pub lock: usize,
    /// Requests with the same number belong to one attempt to get the lock.
    pub attempt: u64,
    #[serde(flatten)]
    pub request: Request,
    /// Before the request was written.
    #[serde(rename = "from")]
    pub invoked: Micros,
    /// After the reply was read.
    #[serde(rename = "to")]
    pub answered: Micros,
    #[serde(flatten)]
    pub answer: Answer,
}

impl Call {
    /// Whether it has got the lock.
    pub fn is_granted(&self) -> bool {
        matches!(self.request, Request::Acquire { .. }) && matches!(self.answer, Answer::Granted(_))
    }
}

/// What was done to the server, its data or its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "snake_case")]
pub enum Harm {
    /// Killed and started again. Everything since `lost_since` may be lost; `None`: nothing is.
    Kill {
        lost_since: Option<Micros>,
    },
    /// Stopped for a while.
    Pause,
    /// The client's connection was closed by the server.
    ClientKill {
        client: usize,
    },
    /// The client has lost its connection, and the server does not know until the fault ends.
    HalfOpen {
        client: usize,
    },
    /// The server's wall clock was set, by these seconds.
    ClockStep {
        seconds: i64,
    },
    FlushAll,
    /// One of the lock's keys was deleted.
    Delete {
        lock: usize,
        key: Part,
    },
    /// BREAK, of all holders or of one.
    Break {
        lock: usize,
        client: Option<usize>,
    },
    /// CONFIG SET of an option that takes nothing from a client, by its place among `plan::OPTIONS`.
    Config {
        choice: usize,
    },
    /// No memory may be used any more.
    OutOfMemory,
    RewriteAof,
    Snapshot,
    /// The replica became the master, with everything the master had.
    Failover,
}

/// One of a lock's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Lock,
    Queue,
    Deadlines,
    Token,
    /// What is kept of those that hold it together, beside the lock itself.
    Shared,
}

/// A fault, from before it was begun to after it was over.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fault {
    #[serde(flatten)]
    pub harm: Harm,
    pub from: Micros,
    pub to: Micros,
}

/// What an observer read of a lock's keys at an instant between two.
#[derive(Clone, Debug, Serialize)]
pub struct Sight {
    pub lock: usize,
    pub from: Micros,
    pub to: Micros,
    pub holders: Vec<usize>,
    pub queue: Vec<usize>,
}

/// A time in which the machine kept the server or its clients from running: it had no processor
/// for them, or the disk was not done. The server itself is not asked, see `witness`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stall {
    pub from: Micros,
    pub to: Micros,
}

/// All of a round.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they were answered.
    pub calls: Vec<Call>,
    pub faults: Vec<Fault>,
    /// In order.
    pub sights: Vec<Sight>,
    /// In order, without overlap.
    pub stalls: Vec<Stall>,
    /// Keys that are left when all clients have gone and all leases have ended.
    pub left_behind: Vec<String>,
    /// Locks that clients use by Redisson's scripts too.
    pub scripted: Vec<usize>,
    /// How long a polling waiter has to come for the lock.
    pub turn: Micros,
    /// The rest of a longer one: there may be holders from before.
    pub resumed: bool,
}

/// Writes a history down.
pub struct Recorder {
    began: Instant,
    history: Mutex<History>,
}

impl Recorder {
    pub fn new(history: History) -> Self {
        Self {
            began: Instant::now(),
            history: Mutex::new(history),
        }
    }

    /// Now.
    pub fn now(&self) -> Micros {
        u64::try_from(self.began.elapsed().as_micros()).expect("not that long")
    }

    pub fn call(&self, call: Call) {
        self.with(|history| history.calls.push(call));
    }

    /// A fault that has just ended.
    pub fn fault(&self, harm: Harm, from: Micros) {
        let to = self.now();
        self.with(|history| history.faults.push(Fault { harm, from, to }));
    }

    pub fn sight(&self, sight: Sight) {
        self.with(|history| history.sights.push(sight));
    }

    /// One that began after the last one had ended, or as it did.
    pub fn stall(&self, stall: Stall) {
        self.with(|history| match history.stalls.last_mut() {
            Some(last) if last.to == stall.from => last.to = stall.to,
            _ => history.stalls.push(stall),
        });
    }

    pub fn with<T>(&self, body: impl FnOnce(&mut History) -> T) -> T {
        body(&mut self.history.lock().expect("no panic elsewhere"))
    }
}
