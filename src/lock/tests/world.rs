//! A world: the state of one lock, the server around it, and what clients were told.

use super::action::{Action, Step};
use super::checks::Before;
use super::memory::Memory;
use super::oracle::{Cause, Checked, Oracle, Scene, Slot, index};
use super::scope::Scope;
use crate::lock;
use crate::lock::{Connection, Due, Event, Millis, Now, Rules, Session, SharedHolders, Wall};

/// What the owners are called.
pub const NAMES: [&[u8]; 7] = [b"A", b"B", b"C", b"D", b"E", b"F", b"G"];

/// A hand-off whose receiver was gone.
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    pub owner: usize,
    pub token: i64,
    /// The connection that the lock was bound to with it.
    pub session: Option<Connection>,
}

/// A world.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "they have nothing to do with each other"
)]
pub struct World {
    pub state: Memory,
    pub now: Now,
    pub rules: Rules,
    /// When the server looks at the lock, as it worked out after the last step.
    pub due: Due,
    /// Waiters that have left, to be removed.
    pub gone: Vec<usize>,
    /// Hand-offs whose receivers were gone, to be taken back.
    pub undelivered: Vec<Lost>,
    /// Connections that have closed while the lock was bound to them, whose holds are to be given up.
    pub closed: Vec<Connection>,
    /// A client has touched the keys: the lock must be looked at.
    pub touched: bool,
    /// Something has happened to the lock that no step of the rules has seen yet.
    pub stirred: bool,
    /// How often the wall clock was set.
    pub clock_steps: u8,
    pub oracle: Oracle,
    /// In this step an owner asked, and waits.
    pub waits: bool,
    /// Connections that close with the step, before a hand-off could be told.
    closing: Vec<Connection>,
    /// The receiver of a hand-off in this step is gone.
    is_receiver_gone: bool,
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
            rules: scope.rules,
            due: Due::default(),
            gone: Vec::new(),
            undelivered: Vec::new(),
            closed: Vec::new(),
            touched: false,
            stirred: false,
            clock_steps: 0,
            oracle: Oracle::default(),
            waits: false,
            closing: Vec::new(),
            is_receiver_gone: false,
            heard: 0,
            last_number: 0,
        };
        world.oracle.slots = vec![[Slot::default(); 2]; scope.owners.len()];
        world.connect();
        world
    }

    /// Each owner has a fresh connection of its own, and one in common.
    pub(super) fn connect(&mut self) {
        let common = self.number();
        for owner in 0..self.oracle.slots.len() {
            self.oracle.slots[owner] = [self.number(), common].map(|connection| Slot {
                connection,
                ..Slot::default()
            });
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Takes a step of the rules.
    pub(super) fn step<T>(&mut self, step: impl FnOnce(lock::Step<'_, Memory>) -> T) -> T {
        step(lock::Step::new(&mut self.state, &self.rules, self.now))
    }

    /// What follows from a step, and whether the lock was handed over in it. An error is a broken
    /// promise.
    pub fn after(&self, step: Step) -> Checked<(Self, bool)> {
        let mut world = self.clone();
        world.read_scores();
        (world.waits, world.is_receiver_gone) = (false, step.undelivered);
        world.act(step.action)?;
        for connection in std::mem::take(&mut world.closing) {
            world.close_connection(connection);
        }
        let mut before = Before {
            state: self.state.clone(),
            action: step.action,
        };
        if step.action == Action::Restart {
            before.state.restart(world.now);
        }
        world.check(&before)?;
        let granted = |event: &Event| matches!(event, Event::Granted { .. });
        let handed_over = world.state.events.iter().any(granted);
        world.state.events.clear();
        world.heard = 0;
        Ok((world, handed_over))
    }

    fn act(&mut self, action: Action) -> Checked {
        match action {
            Action::Acquire(request) => self.acquire(request)?,
            Action::Release(owner, slot, token, all) => self.release((owner, slot), token, all)?,
            Action::Renew(owner, lease) => self.renew(owner, lease)?,
            Action::Cancel(owner) => self.cancel(owner)?,
            Action::Break(owner) => self.break_lock(owner)?,
            Action::TimeOut(owner, slot) => self.leave(owner, slot),
            Action::Close(owner, slot) => self.close(owner, slot),
            Action::LockByScript(script) => self.lock_by_script(script)?,
            Action::UnlockByScript(owner, lease, skew) => {
                self.unlock_by_script(owner, lease, skew)?;
            }
            Action::ForceUnlock(skew) => self.force_unlock(skew)?,
            Action::LeaveByScript(owner) => self.leave_by_script(owner)?,
            Action::Delete => self.delete(),
            Action::DeleteHolder(owner) => self.delete_holder(owner),
            Action::SetExpiry(lease) => self.set_expiry(lease),
            Action::SetScore(owner, ahead) => self.set_score(owner, ahead),
            Action::LoseToken => self.state.token = None,
            Action::Restart => self.restart()?,
            Action::Silence(time) => self.silence(time)?,
            Action::Late => {
                self.pass(1);
                self.stirred |= self.is_overdue();
            }
            Action::Stall(time) => {
                self.now = self.now.after_stall(time);
                self.expire();
                self.look()?;
            }
            Action::SetClock(by) => self.set_clock(by)?,
        }
        Ok(())
    }

    /// Tells clients what happened, and works out when the lock is due next. Returns how often
    /// the lock was given up.
    pub(super) fn receive(&mut self, cause: Cause) -> Checked<usize> {
        self.hear_at(cause, self.now.wall())
    }

    /// As [`Self::receive`], after a script of a client whose clock shows this time.
    pub(super) fn hear_at(&mut self, cause: Cause, clock: Wall) -> Checked<usize> {
        self.read_scores();
        let events = self.state.events.split_off(self.heard);
        let scene = Scene {
            now: self.now,
            clock: clock.max(self.now.wall()),
            rules: self.rules,
            cause,
            undelivered: self.is_receiver_gone,
        };
        let mut freed = 0;
        for event in &events {
            freed += usize::from(self.oracle.receive(event, &scene)?);
            match event {
                Event::Granted {
                    owner,
                    token,
                    session,
                    ..
                } if self.is_receiver_gone => {
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
        self.remember_due();
        Ok(freed)
    }

    /// The sessions of all holders.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &Session> {
        let shared = self.state.shared.iter().flat_map(SharedHolders::iter);
        let sessions = shared.filter_map(|(_, holder)| holder.session.as_ref());
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
            None => self.state.token.filter(|_| self.holds_alone(owner)),
        }
    }

    /// When an owner's lease ends, as the keys have it.
    pub(super) fn stored_lease_end(&self, owner: usize) -> Option<Wall> {
        match &self.state.shared {
            Some(shared) => shared.get(NAMES[owner]).map(|holder| holder.lease_end),
            None => self.state.lease_end.filter(|_| self.holds_alone(owner)),
        }
    }

    fn holds_alone(&self, owner: usize) -> bool {
        let holder = self.state.holder.as_ref();
        holder.is_some_and(|(holder, _)| **holder == *NAMES[owner])
    }

    /// What is left of the lease.
    pub(super) fn lease_left(&self) -> Millis {
        let end = self.state.lease_end.unwrap_or_default();
        end.since(self.now.wall())
    }

    /// The connection closes that was to be told of a hand-off.
    fn lose_receiver(&mut self, owner: usize, token: i64, session: Option<Connection>) {
        self.undelivered.push(Lost {
            owner,
            token,
            session,
        });
        self.closing.extend(session);
    }

    fn remember_due(&mut self) {
        let state = &self.state;
        let idle = state.queue.is_empty() && state.session.is_none() && state.shared.is_none();
        self.due = if idle {
            Due::default()
        } else {
            self.step(|mut step| step.next_due())
        };
    }

    /// Milliseconds until the server looks at the lock by itself. A key lives through the millisecond in which it
    /// expires.
    pub(super) fn until_due(&self) -> Option<Millis> {
        let wall = self.due.wall.map(|at| at.after(1).since(self.now.wall()));
        let tick = self.due.tick.map(|at| at.since(self.now.tick()));
        wall.into_iter().chain(tick).min()
    }

    /// Whether the server should have looked at the lock by now.
    pub fn is_overdue(&self) -> bool {
        self.until_due() == Some(0)
    }

    /// Whether something was noted that is to be dealt with.
    pub fn is_noted(&self) -> bool {
        self.touched
            || !(self.gone.is_empty() && self.undelivered.is_empty() && self.closed.is_empty())
    }
}
