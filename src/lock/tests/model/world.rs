//! A small world: the state of one lock, the server around it, and what clients were told.

use super::super::memory::Memory;
use super::action::{Action, Step};
use super::oracle::{Cause, Checked, Oracle, Scene, Slot, index};
use super::scope::Scope;
use crate::lock;
use crate::lock::{Connection, Due, Event, Millis, Now, Rules, Session, SharedHolders, Tick};

/// What the owners are called.
pub const NAMES: [&[u8]; 4] = [b"A", b"B", b"C", b"D"];

/// A hand-off whose receiver was gone.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    pub owner: usize,
    pub token: i64,
    /// The connection that the lock was bound to with it.
    pub session: Option<Connection>,
}

/// A small world.
#[derive(Clone, Debug)]
pub struct World {
    pub state: Memory,
    pub now: Now,
    pub grace: Tick,
    /// When the server looks at the lock, as it worked out after the last step.
    pub due: Due,
    /// Waiters that have left, to be swept.
    pub gone: Vec<usize>,
    /// Hand-offs whose receivers were gone, to be taken back.
    pub undelivered: Vec<Lost>,
    /// Connections that have closed while the lock was bound to them, to be swept.
    pub closed: Vec<Connection>,
    /// A client has touched the keys: the lock must be looked at.
    pub touched: bool,
    /// Something has happened to the lock that no step of the rules has seen yet.
    pub stirred: bool,
    /// How often the wall clock was set.
    pub clock_steps: u8,
    pub oracle: Oracle,
    /// How many of the step's events have been heard.
    heard: usize,
    /// Tickets and connections have numbers of their own.
    last_number: u64,
}

impl World {
    /// A server that has just started, with a free lock.
    pub fn new(scope: &Scope) -> Self {
        let mut world = Self {
            state: Memory::default(),
            now: Now::from_millis(1_700_000_000_000),
            grace: 0,
            due: Due::default(),
            gone: Vec::new(),
            undelivered: Vec::new(),
            closed: Vec::new(),
            touched: false,
            stirred: false,
            clock_steps: 0,
            oracle: Oracle::default(),
            heard: 0,
            last_number: 0,
        };
        world.oracle.slots = scope.owners.iter().map(|_| world.slots()).collect();
        world
    }

    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Fresh connections of an owner.
    pub(super) fn slots(&mut self) -> [Slot; 2] {
        [(); 2].map(|()| Slot {
            connection: self.number(),
            blocked: None,
            session: false,
        })
    }

    pub(super) fn rules(&self, scope: &Scope) -> Rules {
        Rules {
            grace: self.grace,
            ..scope.rules
        }
    }

    /// What follows from a step, and whether the lock was handed over in it. An error is a broken
    /// promise.
    pub fn after(&self, step: Step, scope: &Scope) -> Checked<(Self, bool)> {
        let mut world = self.clone();
        world.read_deadlines();
        world.act(step, scope)?;
        let mut before = self.state.clone();
        if step.action == Action::Restart {
            before.restart(self.now);
        }
        world.check(&before, scope)?;
        let granted = |event: &Event| matches!(event, Event::Granted { .. });
        let handed_over = world.state.events.iter().any(granted);
        world.state.events.clear();
        world.heard = 0;
        Ok((world, handed_over))
    }

    fn act(&mut self, step: Step, scope: &Scope) -> Checked {
        match step.action {
            Action::Acquire { .. } => self.acquire(step, scope),
            Action::Release { .. } => self.release(step, scope),
            Action::Renew(owner, lease) => self.renew(owner, lease, step, scope),
            Action::Cancel(owner) => self.cancel(owner, step, scope),
            Action::Break(owner) => self.break_lock(owner, step, scope),
            Action::TimeOut(owner, slot) => {
                self.leave(owner, slot);
                Ok(())
            }
            Action::Close(owner, slot) => {
                self.close(owner, slot);
                Ok(())
            }
            Action::LockByScript(owner) => self.lock_by_script(owner, step, scope),
            Action::UnlockByScript(owner) => self.unlock_by_script(owner, step, scope),
            Action::LeaveByScript(owner) => self.leave_by_script(owner, step, scope),
            Action::Delete => {
                self.state.lose_key();
                self.oracle.deleted();
                self.touched = true;
                self.stirred = true;
                Ok(())
            }
            Action::LoseToken => {
                self.state.token = None;
                Ok(())
            }
            Action::Restart => self.restart(scope),
            Action::Silence => self.silence(step, scope),
            Action::Stall => {
                self.pass();
                self.stirred |= self.is_overdue();
                Ok(())
            }
            Action::SetClock(by) => self.set_clock(by, step, scope),
        }
    }

    /// Lets clients hear what happened, and works out when the lock is due next. Returns how often
    /// the lock was given up.
    pub(super) fn hear(&mut self, cause: Cause, step: Step, scope: &Scope) -> Checked<usize> {
        self.read_deadlines();
        let events = self.state.events.split_off(self.heard);
        let scene = Scene {
            now: self.now,
            grace: self.grace,
            turn: scope.rules.turn,
            intercepts: scope.rules.intercepts,
            patience: scope.patience,
            wait: scope.wait,
            lease: scope.lease,
            cause,
            undelivered: step.undelivered,
        };
        let mut freed = 0;
        for event in &events {
            freed += usize::from(self.oracle.hear(event, &scene)?);
            match event {
                Event::Granted {
                    owner,
                    token,
                    session,
                    ..
                } if step.undelivered => {
                    let owner = index(owner);
                    self.lose_receiver(owner, *token, *session);
                }
                // The owner knows now that it holds the lock: it is not taken back.
                Event::HeldAgain { token, once: true } => {
                    self.undelivered.retain(|lost| lost.token != *token);
                }
                _ => (),
            }
        }
        // The checks want to see them too.
        self.state.events.extend(events);
        self.heard = self.state.events.len();
        // A connection that the lock is not bound to any more may close without a trace.
        let bound: Vec<Connection> = self.connections().collect();
        self.closed.retain(|closed| bound.contains(closed));
        self.remember_due(scope);
        Ok(freed)
    }

    /// The sessions of all holders.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &Session> {
        let shared = self.state.shared.iter().flat_map(SharedHolders::iter);
        let sessions = shared.filter_map(|(_, holder)| holder.session());
        self.state.session.iter().chain(sessions)
    }

    /// The connections that holds are bound to.
    pub(super) fn connections(&self) -> impl Iterator<Item = Connection> {
        let holders = self.sessions().flat_map(|session| &session.holders);
        holders.map(|(connection, _)| *connection)
    }

    /// An owner's fencing token, as the keys have it.
    pub(super) fn stored_token(&self, owner: usize) -> Option<i64> {
        match &self.state.shared {
            Some(shared) => shared.get(NAMES[owner]).map(|holder| holder.token),
            None => self.state.token,
        }
    }

    /// When an owner's lease ends, as the keys have it.
    pub(super) fn stored_lease_end(&self, owner: usize) -> Option<Millis> {
        match &self.state.shared {
            Some(shared) => shared.get(NAMES[owner]).map(|holder| holder.lease_end),
            None => self.state.lease_end,
        }
    }

    /// The connection closes that was to be told of a hand-off; its owner opens another.
    fn lose_receiver(&mut self, owner: usize, token: i64, session: Option<Connection>) {
        self.undelivered.push(Lost {
            owner,
            token,
            session,
        });
        if let Some(connection) = session {
            self.close_bound(owner, connection);
        }
    }

    /// A connection closes that the lock is bound to; its owner opens another.
    pub(super) fn close_bound(&mut self, owner: usize, connection: Connection) {
        self.closed.push(connection);
        let fresh = self.number();
        for slot in &mut self.oracle.slots[owner] {
            if slot.connection == connection {
                slot.connection = fresh;
            }
        }
    }

    pub(super) fn remember_due(&mut self, scope: &Scope) {
        let rules = self.rules(scope);
        let state = &self.state;
        let idle = state.queue.is_empty() && state.session.is_none() && state.shared.is_none();
        self.due = if idle {
            Due::default()
        } else {
            lock::Step::new(&mut self.state, &rules, self.now).next_due()
        };
    }

    /// Whether the server should have looked at the lock by now. A key lives through the
    /// millisecond in which it expires.
    pub fn is_overdue(&self) -> bool {
        self.due.wall.is_some_and(|at| at < self.now.millis())
            || self.due.tick.is_some_and(|at| at <= self.now.tick())
    }

    /// Whether there is something to sweep.
    pub fn is_noted(&self) -> bool {
        self.touched
            || !(self.gone.is_empty() && self.undelivered.is_empty() && self.closed.is_empty())
    }
}
