//! A server's locks in this process: the rules of FAIRLOCK.ACQUIRE and the others, for the fake. Strictly first come,
//! first served; leases do not end by themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::oneshot;

use crate::error::{Failure, Outcome};

struct Holder {
    owner: String,
    token: i64,
    limit: Option<usize>,
}

struct Waiter {
    number: u64,
    owner: String,
    limit: Option<usize>,
    /// `None`: it has its place, and is to ask again.
    reply: Option<oneshot::Sender<Outcome<Value>>>,
}

impl Waiter {
    fn answer(self, reply: &Outcome<Value>) {
        self.reply
            .into_iter()
            .for_each(|to| drop(to.send(reply.clone())));
    }
}

#[derive(Default)]
struct Lock {
    holders: Vec<Holder>,
    queue: Vec<Waiter>,
}

#[derive(Default)]
struct State {
    locks: HashMap<String, Lock>,
    tokens: i64,
    waiters: u64,
}

#[derive(Default)]
pub(crate) struct FakeServer {
    state: Mutex<State>,
}

/// Leaves the queue when whoever waits gives up.
struct Place<'a> {
    server: &'a FakeServer,
    name: &'a str,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let state = &mut *self.server.state();
        if let Some(lock) = state.locks.get_mut(self.name) {
            lock.queue.retain(|waiter| waiter.number != self.number);
            lock.serve(&mut state.tokens);
        }
    }
}

impl FakeServer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn run(&self, words: &[String]) -> Outcome<Value> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words[..] {
            ["ROLE"] => Ok(Value::Array(vec![Value::SimpleString("master".to_owned())])),
            ["FAIRLOCK.INFO", name] => Ok(self.info(name)),
            ["FAIRLOCK.ACQUIRE", name, owner, ref options @ ..] => {
                self.acquire(name, owner, options).await
            }
            ["FAIRLOCK.RELEASE", name, owner, ref options @ ..] => {
                self.release(name, owner, options.last().copied())
            }
            ["FAIRLOCK.RENEW", name, owner, _, lease] => self.renew(name, owner, lease),
            ["FAIRLOCK.CANCEL", name, owner] => Ok(Value::Int(self.cancel(name, owner))),
            _ => Err(Failure::Refusal("ERR unknown command".to_owned())),
        }
    }

    async fn acquire(&self, name: &str, owner: &str, options: &[&str]) -> Outcome<Value> {
        let (number, reply) = {
            let state = &mut *self.state();
            let lock = state.locks.entry(name.to_owned()).or_default();
            let limit = limit_of(options);
            if let Some(holder) = lock.holders.iter().find(|holder| holder.owner == owner) {
                return Ok(Value::Int(holder.token));
            }
            let place = lock.queue.iter().position(|waiter| waiter.owner == owner);
            if place.unwrap_or(lock.queue.len()) == 0 && lock.fits(limit) {
                lock.queue.retain(|waiter| waiter.owner != owner);
                let token = lock.grant(owner, limit, &mut state.tokens);
                lock.serve(&mut state.tokens);
                return Ok(Value::Int(token));
            }
            if options.contains(&"NOWAIT") {
                return Ok(Value::Nil);
            }
            state.waiters += 1;
            let mut waiter = Waiter {
                number: state.waiters,
                owner: owner.to_owned(),
                limit,
                reply: None,
            };
            if options.contains(&"ENQUEUE") {
                if place.is_none() {
                    lock.queue.push(waiter);
                }
                return Ok(Value::Array(Vec::new()));
            }
            let (sender, reply) = oneshot::channel();
            waiter.reply = Some(sender);
            lock.join(waiter);
            (state.waiters, reply)
        };
        let _place = Place {
            server: self,
            name,
            number,
        };
        let gone = || Err(Failure::Broken("the fake has gone".to_owned()));
        let wait = options
            .iter()
            .position(|word| *word == "WAIT")
            .and_then(|at| options.get(at + 1));
        match wait.and_then(|wait| wait.parse().ok()) {
            None => reply.await.unwrap_or_else(|_| gone()),
            Some(wait) => match tokio::time::timeout(Duration::from_millis(wait), reply).await {
                Ok(reply) => reply.unwrap_or_else(|_| gone()),
                Err(_) => Ok(Value::Nil),
            },
        }
    }

    fn release(&self, name: &str, owner: &str, token: Option<&str>) -> Outcome<Value> {
        let state = &mut *self.state();
        let lock = state.locks.entry(name.to_owned()).or_default();
        let before = lock.holders.len();
        lock.holders.retain(|holder| {
            holder.owner != owner || token.is_some_and(|token| token != holder.token.to_string())
        });
        if lock.holders.len() == before {
            return not_held();
        }
        lock.serve(&mut state.tokens);
        Ok(Value::Int(0))
    }

    fn renew(&self, name: &str, owner: &str, lease: &str) -> Outcome<Value> {
        if self.holders(name).iter().any(|holder| holder == owner) {
            return Ok(Value::Int(lease.parse().unwrap_or_default()));
        }
        not_held()
    }

    fn info(&self, name: &str) -> Value {
        let state = self.state();
        let empty = Lock::default();
        let lock = state.locks.get(name).unwrap_or(&empty);
        let first = lock.holders.first();
        let limits = lock.holders.iter().filter_map(|holder| holder.limit);
        let number = |number: usize| Value::Int(number.try_into().unwrap_or(i64::MAX));
        let fields = [
            (
                "owner",
                first.map_or(Value::Nil, |first| Value::SimpleString(first.owner.clone())),
            ),
            ("holds", number(lock.holders.len().min(1))),
            ("lease", Value::Int(-1)),
            (
                "token",
                first.map_or(Value::Nil, |first| Value::Int(first.token)),
            ),
            ("session", Value::Boolean(false)),
            ("waiting", number(lock.queue.len())),
            ("holders", number(lock.holders.len())),
            ("limit", number(limits.min().unwrap_or(0))),
        ];
        let fields = fields.map(|(name, value)| (Value::SimpleString(name.to_owned()), value));
        Value::Map(fields.into())
    }

    fn cancel(&self, name: &str, owner: &str) -> i64 {
        let state = &mut *self.state();
        let lock = state.locks.entry(name.to_owned()).or_default();
        let Some(place) = lock.queue.iter().position(|waiter| waiter.owner == owner) else {
            return 0;
        };
        lock.queue.remove(place).answer(&Ok(Value::Nil));
        lock.serve(&mut state.tokens);
        1
    }
}

/// What a test can do to, and see of, the locks.
#[cfg_attr(not(feature = "testing"), allow(dead_code))]
impl FakeServer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes the lock from all that hold it, and serves the next ones; returns the tokens that it had.
    pub(crate) fn free(&self, name: &str) -> Vec<i64> {
        let state = &mut *self.state();
        let Some(lock) = state.locks.get_mut(name) else {
            return Vec::new();
        };
        let tokens = lock.holders.drain(..).map(|holder| holder.token).collect();
        lock.serve(&mut state.tokens);
        tokens
    }

    /// Those that have come to wait: one that only has its place is not told yet when the lock is free.
    pub(crate) fn waiting(&self, name: &str) -> Vec<String> {
        let state = self.state();
        let queue = state.locks.get(name).map(|lock| &lock.queue);
        queue
            .into_iter()
            .flatten()
            .filter(|waiter| waiter.reply.is_some())
            .map(|waiter| waiter.owner.clone())
            .collect()
    }
}

impl FakeServer {
    pub(crate) fn holders(&self, name: &str) -> Vec<String> {
        let state = self.state();
        let holders = state.locks.get(name).map(|lock| &lock.holders);
        holders
            .into_iter()
            .flatten()
            .map(|holder| holder.owner.clone())
            .collect()
    }
}

impl Lock {
    /// Every holder tolerates at most its limit of holders in all, itself included.
    fn fits(&self, limit: Option<usize>) -> bool {
        let all = self.holders.len() + 1;
        let mut limits = self
            .holders
            .iter()
            .map(|holder| holder.limit)
            .chain([limit])
            .flatten();
        limits.all(|limit| all <= limit)
    }

    fn grant(&mut self, owner: &str, limit: Option<usize>, tokens: &mut i64) -> i64 {
        *tokens += 1;
        self.holders.push(Holder {
            owner: owner.to_owned(),
            token: *tokens,
            limit,
        });
        *tokens
    }

    fn join(&mut self, waiter: Waiter) {
        match self
            .queue
            .iter_mut()
            .find(|there| there.owner == waiter.owner)
        {
            None => self.queue.push(waiter),
            Some(there) => {
                let before = std::mem::replace(there, waiter);
                let text = "TAKENOVER the owner asks on another connection".to_owned();
                before.answer(&Err(Failure::Refusal(text)));
            }
        }
    }

    fn serve(&mut self, tokens: &mut i64) {
        while self
            .queue
            .first()
            .is_some_and(|waiter| waiter.reply.is_some() && self.fits(waiter.limit))
        {
            let waiter = self.queue.remove(0);
            let token = self.grant(&waiter.owner, waiter.limit, tokens);
            waiter.answer(&Ok(Value::Int(token)));
        }
    }
}

fn not_held() -> Outcome<Value> {
    Err(Failure::Refusal(
        "NOTHELD the owner does not hold the lock".to_owned(),
    ))
}

/// One is exclusive, none is SHARED without a limit.
fn limit_of(options: &[&str]) -> Option<usize> {
    match options {
        ["SHARED", limit, ..] => limit.parse().ok(),
        _ => Some(1),
    }
}
