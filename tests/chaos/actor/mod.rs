//! Clients of all kinds. Each is one owner with one connection. It writes down each request and its outcome, and
//! reconnects when its connection breaks.

use fairlock_testing::resp::Reply;
use fairlock_testing::{Dice, lua};

mod blocking;
mod observer;
mod polling;
mod scripted;
mod trying;

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::history::{ANY, Answer, Call, EXCLUSIVE, Limit, Request, Way};
use crate::wire::{GIVE_UP, Gone, Wire};
use crate::world::{CLIENTS, LOCKS, World, lock_name, owner};

pub use scripted::fetch_scripts;

/// The lease of holds that their owners release, in milliseconds. Longer than all faults but a kill.
pub const LEASE: u64 = 4000;
/// The lease of holds that their owners overstay or die with, in milliseconds.
const SHORT_LEASE: u64 = 400;
/// The locks from 0 up to this one are used by scripts as well.
pub const SCRIPTED: usize = 2;

/// The round is over, and no client waits.
#[derive(Clone, Copy, Debug)]
pub struct Over;

/// How a hold is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Release,
    /// The owner goes away and never releases.
    Die,
    /// The owner holds on after its lease.
    Overstay,
}

/// One client.
pub struct Actor {
    world: Arc<World>,
    number: usize,
    name: String,
    /// How many holders it tolerates, by lock. It never asks in another way: a reader that asks as a writer is refused.
    limits: Vec<Limit>,
    dice: Dice,
    wire: Option<Wire>,
    /// It has found no module when it connected, and sends the commands as scripts on this connection.
    by_scripts: bool,
    attempt: u64,
}

/// A kind of client: what one attempt is, and whether it asks SHARED.
pub type Kind = (fn(&mut Actor) -> Result<(), Over>, bool);

/// What clients of the module do.
pub const KINDS: [Kind; 12] = [
    (blocking::run, false),
    (polling::run, false),
    (blocking::run, true),
    (scripted::run, false),
    (blocking::run, false),
    (polling::run, true),
    (trying::run, false),
    (scripted::run, false),
    (blocking::run, true),
    (polling::run, false),
    (blocking::run, false),
    (trying::run, true),
];

/// What clients do that go over from scripts to the module: they ask in ways that both know, and block where they can.
pub const GOING_OVER: [Kind; 4] = [
    (polling::run, false),
    (block_or_poll, false),
    (polling::run, false),
    (trying::run, false),
];

fn block_or_poll(actor: &mut Actor) -> Result<(), Over> {
    if !actor.world.has_module() {
        return polling::run(actor);
    }
    if actor.by_scripts {
        actor.wire = None;
    }
    blocking::run(actor)
}

/// Starts a round's clients: of each of these kinds in turn.
pub fn start(kinds: &[Kind], world: &Arc<World>, seed: u64) -> Vec<JoinHandle<()>> {
    let start = |number| {
        let (run, shares) = kinds[number % kinds.len()];
        let mut dice = Dice::new(seed, number);
        let limits = (0..LOCKS).map(|_| {
            if shares {
                dice.pick(&[ANY, ANY, 2, 3])
            } else {
                EXCLUSIVE
            }
        });
        let mut actor = Actor {
            world: Arc::clone(world),
            number,
            name: owner(number),
            limits: limits.collect(),
            dice,
            wire: None,
            by_scripts: false,
            attempt: 0,
        };
        thread::spawn(move || while !actor.world.is_over() && run(&mut actor).is_ok() {})
    };
    let mut threads: Vec<_> = (0..CLIENTS).map(start).collect();
    let world = Arc::clone(world);
    threads.push(thread::spawn(move || observer::run(&world)));
    threads
}

impl Actor {
    /// After a pause, begins an attempt; one of so many locks to ask for.
    fn begin(&mut self, locks: usize) -> usize {
        let ms = self.dice.u64(..self.world.load.think);
        thread::sleep(Duration::from_millis(ms));
        self.attempt += 1;
        self.dice.usize(..locks)
    }

    /// The words by which it asks for a lock, up to its options.
    fn asking(&self, lock: usize) -> Vec<String> {
        let words = ["FAIRLOCK.ACQUIRE", &lock_name(lock), &self.name];
        let mut words: Vec<String> = words.map(str::to_owned).into();
        match self.limits[lock] {
            EXCLUSIVE => (),
            ANY => words.push("SHARED".to_owned()),
            limit => words.extend(["SHARED".to_owned(), limit.to_string()]),
        }
        words
    }

    /// How long it holds a lock. Holders that share it hold it for longer, so that they meet.
    fn holding_time(&mut self, lock: usize) -> u64 {
        let longest = self.world.load.hold;
        if self.limits[lock] == EXCLUSIVE {
            self.dice.u64(..longest)
        } else {
            self.dice.u64(..5 * longest)
        }
    }

    /// How a hold is to end, and its lease in milliseconds.
    fn fate(&mut self) -> (Fate, u64) {
        if !self.dice.one_in(self.world.load.deaths) {
            (Fate::Release, LEASE)
        } else if self.dice.one_in(2) {
            (Fate::Die, SHORT_LEASE)
        } else {
            (Fate::Overstay, SHORT_LEASE)
        }
    }

    /// A request for a lock, by a lease in milliseconds.
    fn request(&self, lock: usize, way: Way, lease: u64, once: bool) -> Request {
        Request::Acquire {
            way,
            lease: lease * 1000,
            session: false,
            once,
            wait: None,
            limit: self.limits[lock],
        }
    }

    /// The connection, a new one if it was lost.
    fn wire(&mut self) -> Result<&mut Wire, Over> {
        if self.wire.is_none() {
            self.by_scripts = !self.world.has_module();
            self.wire = Some(self.world.connect_client(self.number).ok_or(Over)?);
        }
        self.wire.as_mut().ok_or(Over)
    }

    /// Asks, and writes down what came of it.
    fn call(
        &mut self,
        lock: usize,
        request: Request,
        words: &[&str],
        read: fn(Reply) -> Answer,
    ) -> Result<Answer, Over> {
        self.wire()?;
        let invoked = self.world.recorder.now();
        let reply = self.exchange(words);
        let answered = self.world.recorder.now();
        let gave_up = Duration::from_micros(answered - invoked) >= GIVE_UP;
        let answer = match reply {
            Ok(reply) => read(reply),
            Err(Gone) if gave_up || self.world.is_closing() => Answer::Never,
            Err(Gone) => {
                self.wire = None;
                Answer::Lost
            }
        };
        // A master that has become a replica is not the master any more.
        if let Answer::Refused(error) = &answer {
            if is_moved(error) {
                self.wire = None;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.world.recorder.call(Call {
            client: self.number,
            lock,
            attempt: self.attempt,
            request,
            invoked,
            answered,
            answer: answer.clone(),
        });
        if answer == Answer::Never {
            Err(Over)
        } else {
            Ok(answer)
        }
    }

    /// A script is sent by its text, for a server that was restarted does not know it.
    fn exchange(&mut self, words: &[&str]) -> Result<Reply, Gone> {
        let wire = self.wire.as_mut().ok_or(Gone)?;
        match words[0].strip_prefix("FAIRLOCK.") {
            Some(command) if self.by_scripts => {
                let mut call = lua::call(words);
                "EVAL".clone_into(&mut call[0]);
                call[1].clone_from(&lua::script(command).text);
                wire.ask(&strs(&call))
            }
            _ => wire.ask(words),
        }
    }

    /// Closes the connection, and says so.
    fn close(&mut self, lock: usize) {
        let now = self.world.recorder.now();
        self.world.recorder.call(Call {
            client: self.number,
            lock,
            attempt: self.attempt,
            request: Request::Close,
            invoked: now,
            answered: now,
            answer: Answer::Done,
        });
        self.wire = None;
    }

    /// Releases, as often as it takes to know that it was done.
    fn release(&mut self, lock: usize, token: Option<i64>) -> Result<(), Over> {
        let (lock_name, name) = (lock_name(lock), self.name.clone());
        let token = token.filter(|_| self.dice.one_in(2));
        let request = Request::Release { token };
        let token = token.map(|token| token.to_string());
        let mut words = vec!["FAIRLOCK.RELEASE", &lock_name, &name];
        words.extend(token.iter().flat_map(|token| ["TOKEN", token]));
        loop {
            match self.call(lock, request, &words, released)? {
                Answer::Left(1..) | Answer::Lost | Answer::Refused(_) => (),
                _ => return Ok(()),
            }
        }
    }
}

fn strs(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

/// The reply to ACQUIRE.
fn acquired(reply: Reply) -> Answer {
    match reply {
        Reply::Int(token) => Answer::Granted(Some(token)),
        Reply::Nil | Reply::Items(_) => Answer::NotNow,
        other => refused(other),
    }
}

/// The reply to RELEASE.
fn released(reply: Reply) -> Answer {
    match reply {
        Reply::Int(left) => Answer::Left(left),
        other => done(other),
    }
}

/// Any reply but an error will do.
fn done(reply: Reply) -> Answer {
    match reply {
        error if error.is_error("NOTHELD") => Answer::NotHeld,
        Reply::Error(_) => refused(reply),
        _ => Answer::Done,
    }
}

fn refused(reply: Reply) -> Answer {
    Answer::Refused(match reply {
        Reply::Error(_) => reply.text().into_owned(),
        other => format!("a reply of an unexpected kind: {other:?}"),
    })
}

/// Whether an error says that another server is the master now.
fn is_moved(error: &str) -> bool {
    ["READONLY", "UNBLOCKED", "LOADING", "MASTERDOWN"]
        .iter()
        .any(|code| error.starts_with(code))
}
