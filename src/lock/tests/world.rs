//! A world: the state of one lock, the server around it, and what clients were told.

use super::action::{Action, Step};
use super::checks::connections;
use super::memory::Memory;
use super::oracle::{Cause, Checked, Oracle, Scene, Slot, index};
use super::scope::Scope;
use crate::lock;
use crate::lock::{Connection, Due, Event, Millis, Now, Rules, Wall};

/// What the owners are called.
pub const NAMES: [&[u8]; 7] = [b"A", b"B", b"C", b"D", b"E", b"F", b"G"];

/// A hand-off whose receiver was gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    pub owner: usize,
    pub token: i64,
    /// The connection that the lock was bound to with it.
    pub session: Option<Connection>,
}

/// What the server has noted, to deal with it later in the same iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Waiters that have left, to be removed.
    pub gone: Vec<usize>,
    /// Hand-offs whose receivers were gone, to be taken back.
    pub undelivered: Vec<Lost>,
    /// Connections that have closed while the lock was bound to them, whose holds are to be given up.
    pub closed: Vec<Connection>,
    /// A client has touched the keys: the lock must be looked at.
    pub touched: bool,
}

/// A world.
#[derive(Clone, Debug)]
pub struct World {
    pub state: Memory,
    pub now: Now,
    pub rules: Rules,
    /// When the server looks at the lock, as it worked out after the last step.
    pub due: Due,
    pub noted: Noted,
    /// Something has happened to the lock that no step of the rules has seen yet.
    pub stirred: bool,
    /// How often the wall clock was set.
    pub clock_steps: u8,
    pub oracle: Oracle,
    /// The time by the clock of a script's client, if one runs in this step.
    pub client: Wall,
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
            noted: Noted::default(),
            stirred: false,
            clock_steps: 0,
            oracle: Oracle::default(),
            client: Wall::default(),
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
        world.client = Wall::default();
        world.act(step.action)?;
        for connection in std::mem::take(&mut world.closing) {
            world.close_connection(connection);
        }
        let mut before = self.state.clone();
        if step.action == Action::Restart {
            before.restart(world.now);
        }
        world.check(&before, step.action)?;
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
            Action::Close(owner, slot) => {
                self.close_connection(self.oracle.slots[owner][slot].connection);
            }
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
        self.read_scores();
        let events = self.state.events.split_off(self.heard);
        let scene = Scene {
            now: self.now,
            clock: self.client.max(self.now.wall()),
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
                    // Its connection closes.
                    self.noted.undelivered.push(Lost {
                        owner: index(owner),
                        token: *token,
                        session: *session,
                    });
                    self.closing.extend(session);
                }
                // The owner knows now that it holds the lock: it is not taken back.
                Event::HeldAgain { token, once: true } => {
                    self.noted.undelivered.retain(|lost| lost.token != *token);
                }
                _ => (),
            }
        }
        // The checks want to see them too.
        self.state.events.extend(events);
        self.heard = self.state.events.len();
        // A connection that the lock is not bound to any more may close without a trace.
        let bound = connections(&self.state);
        let is_bound = |closed: &Connection| bound.iter().any(|(bound, _)| bound == closed);
        self.noted.closed.retain(is_bound);
        self.due = self.step(|mut step| step.next_due());
        Ok(freed)
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
        self.noted != Noted::default()
    }
}
