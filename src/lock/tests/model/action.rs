//! What can happen next: the steps of clients, of time and of fortune.

use std::fmt;

use super::scope::{Fault, Kind, Scope, Wait};
use super::world::World;
use crate::lock::Millis;

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// ACQUIRE on one of the owner's connections.
    Acquire {
        owner: usize,
        slot: usize,
        wait: Wait,
        /// How many holders it tolerates; 0 for any number.
        limit: u32,
        once: bool,
        session: bool,
    },
    /// RELEASE on one of the owner's connections. `token`: none, the right one, another one.
    Release {
        owner: usize,
        slot: usize,
        token: Option<bool>,
        all: bool,
    },
    /// RENEW, with a lease in milliseconds.
    Renew(usize, Millis),
    /// CANCEL, by any client.
    Cancel(usize),
    /// BREAK, by any client; of all holders, or of one owner.
    Break(Option<usize>),
    /// A blocked request's time is up: it is told nil at once, its place is swept later.
    TimeOut(usize, usize),
    /// A connection closes, which is noted and swept later; its owner opens another one.
    Close(usize, usize),
    /// Redisson's script that takes the lock or joins the queue.
    LockByScript(usize),
    /// Redisson's script that gives up a hold.
    UnlockByScript(usize),
    /// Redisson's script by which a waiter leaves the queue.
    LeaveByScript(usize),
    /// A client deletes the lock's key. The lock is looked at later in the same iteration.
    Delete,
    /// The token's key is lost.
    LoseToken,
    /// The server restarts: connections are lost, keys are kept.
    Restart,
    /// No client acts: noted work is done; or, if there is none, a millisecond passes, and the lock is looked at if it
    /// is due.
    Silence,
    /// A millisecond passes in which the server does nothing, even if work is due.
    Stall,
    /// The wall clock is set this many milliseconds ahead or back.
    SetClock(i64),
}

/// An action, and how the hand-off ends that it leads to, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub action: Action,
    /// The receiver of the hand-off is gone before it can be told.
    pub undelivered: bool,
}

impl Step {
    /// An action after which all receivers are there.
    pub fn of(action: Action) -> Self {
        Self {
            action,
            undelivered: false,
        }
    }
}

impl World {
    /// All that can happen next. Owners, and connections of one owner, that nothing tells apart are as good as each
    /// other: one stands for all.
    pub fn actions(&self, scope: &Scope) -> Vec<Action> {
        let mut actions = vec![Action::Silence];
        for owner in self.distinct_owners(scope) {
            match scope.owners[owner] {
                Kind::Ours(_) => self.commands(owner, scope, &mut actions),
                Kind::Redisson => self.scripts(owner, &mut actions),
            }
            if self.oracle.holder(owner, self.now).is_some() {
                let leases = scope.renewals.iter();
                actions.extend(leases.map(|lease| Action::Renew(owner, *lease)));
            }
            if scope.has(Fault::Cancel) && self.oracle.queued(owner).is_some() {
                actions.push(Action::Cancel(owner));
            }
        }
        self.accidents(scope, &mut actions);
        actions
    }

    fn commands(&self, owner: usize, scope: &Scope, actions: &mut Vec<Action>) {
        for slot in self.distinct_slots(owner, scope) {
            if self.oracle.slots[owner][slot].blocked.is_some() {
                if self.gone.len() > 2 {
                    continue;
                }
                if scope.has(Fault::TimeOut) {
                    actions.push(Action::TimeOut(owner, slot));
                }
                if scope.has(Fault::Close) {
                    actions.push(Action::Close(owner, slot));
                }
                continue;
            }
            self.requests(owner, slot, scope, actions);
            self.releases(owner, slot, scope, actions);
            let bound = self
                .oracle
                .holds_of(self.oracle.slots[owner][slot].connection)
                > 0;
            if bound && scope.has(Fault::Close) && self.closed.len() < 2 {
                actions.push(Action::Close(owner, slot));
            }
        }
    }

    fn requests(&self, owner: usize, slot: usize, scope: &Scope, actions: &mut Vec<Action>) {
        let Kind::Ours(limits) = scope.owners[owner] else {
            return;
        };
        for wait in scope.waits {
            for limit in limits {
                for (once, session) in [(false, false), (true, false), (false, true), (true, true)]
                {
                    if self.is_sensible(owner, *wait, once, session, scope) {
                        actions.push(Action::Acquire {
                            owner,
                            slot,
                            wait: *wait,
                            limit: *limit,
                            once,
                            session,
                        });
                    }
                }
            }
        }
    }

    /// Whether a request can be made, and says something that others do not.
    fn is_sensible(
        &self,
        owner: usize,
        wait: Wait,
        once: bool,
        session: bool,
        scope: &Scope,
    ) -> bool {
        let holder = self.oracle.holder(owner, self.now);
        // The holder is answered at once, however it would wait; and ONCE says something
        // to the holder alone.
        let alike = match holder {
            Some(_) => wait != scope.waits[0],
            None => once,
        };
        let unknown = (once && !scope.once) || (session && !scope.sessions);
        let holds = holder.map_or(0, |holder| holder.holds);
        !alike && !unknown && (once || holds < scope.most_holds)
    }

    fn releases(&self, owner: usize, slot: usize, scope: &Scope, actions: &mut Vec<Action>) {
        let mut release = |token, all| {
            actions.push(Action::Release {
                owner,
                slot,
                token,
                all,
            });
        };
        release(None, false);
        let holds = self.oracle.holds(owner);
        if holds > 0 {
            release(Some(true), false);
            release(Some(false), true);
        }
        if holds > 1 && scope.most_holds > 1 {
            release(None, true);
        }
    }

    fn scripts(&self, owner: usize, actions: &mut Vec<Action>) {
        // The server looks at what is due before any command.
        if self.is_overdue() {
            return;
        }
        if self.oracle.holder(owner, self.now).is_some() {
            actions.push(Action::UnlockByScript(owner));
            return;
        }
        actions.push(Action::LockByScript(owner));
        if self.oracle.queued(owner).is_some() {
            actions.push(Action::LeaveByScript(owner));
        }
    }

    fn accidents(&self, scope: &Scope, actions: &mut Vec<Action>) {
        let held = self.state.holder.is_some() || !self.state.counts.is_empty();
        let possible = [
            (Fault::Break, Action::Break(None), held),
            (Fault::Delete, Action::Delete, held),
            (Fault::LoseToken, Action::LoseToken, self.may_lose_token()),
            (Fault::Restart, Action::Restart, true),
            (Fault::Stall, Action::Stall, !self.is_overdue()),
        ];
        for (fault, action, enabled) in possible {
            if enabled && scope.has(fault) {
                actions.push(action);
            }
        }
        if held && scope.has(Fault::Break) && scope.is_shared() {
            let owners = self.distinct_owners(scope).into_iter();
            actions.extend(owners.map(|owner| Action::Break(Some(owner))));
        }
        if self.clock_steps < scope.clock_steps {
            actions.extend([-4, 4].map(Action::SetClock));
        }
    }
}

fn name(owner: usize) -> char {
    char::from(b'A' + u8::try_from(owner).unwrap_or(25))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Acquire {
                owner,
                slot,
                wait,
                limit,
                once,
                session,
            } => {
                write!(f, "{} on {slot}: ACQUIRE {wait:?}", name(owner))?;
                if limit != 1 {
                    write!(f, " SHARED {limit}")?;
                }
                if once {
                    write!(f, " ONCE")?;
                }
                if session {
                    write!(f, " SESSION")?;
                }
                Ok(())
            }
            Self::Release {
                owner,
                slot,
                token,
                all,
            } => {
                write!(f, "{} on {slot}: RELEASE", name(owner))?;
                match token {
                    Some(true) => write!(f, " with its token")?,
                    Some(false) => write!(f, " with another token")?,
                    None => (),
                }
                if all { write!(f, " ALL") } else { Ok(()) }
            }
            Self::Renew(owner, lease) => write!(f, "{}: RENEW {lease}", name(owner)),
            Self::Cancel(owner) => write!(f, "CANCEL {}", name(owner)),
            Self::Break(None) => write!(f, "BREAK"),
            Self::Break(Some(owner)) => write!(f, "BREAK OWNER {}", name(owner)),
            Self::TimeOut(owner, slot) => write!(f, "{} on {slot}: time is up", name(owner)),
            Self::Close(owner, slot) => write!(f, "{} on {slot}: connection closes", name(owner)),
            Self::LockByScript(owner) => write!(f, "{}: script takes or joins", name(owner)),
            Self::UnlockByScript(owner) => write!(f, "{}: script unlocks", name(owner)),
            Self::LeaveByScript(owner) => write!(f, "{}: script leaves", name(owner)),
            Self::Delete => write!(f, "DEL of the lock"),
            Self::LoseToken => write!(f, "DEL of the token"),
            Self::Restart => write!(f, "restart"),
            Self::Silence => write!(f, "no client acts"),
            Self::Stall => write!(f, "a millisecond passes, the server does nothing"),
            Self::SetClock(by) => write!(f, "the wall clock is set by {by} ms"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.action)?;
        if self.undelivered {
            write!(f, " (the receiver of the lock is gone)")?;
        }
        Ok(())
    }
}
