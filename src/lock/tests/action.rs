//! What can happen next: the steps of clients and of time, and what goes wrong.

use std::iter::repeat;

use super::scope::{Fault, Kind, Scope, Wait};
use super::world::World;
use crate::lock::Millis;
use crate::lock::scripts::Sleep;

/// ACQUIRE on one of the owner's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub owner: usize,
    pub slot: usize,
    pub wait: Wait,
    /// How many holders it tolerates; 0 for any number.
    pub limit: u32,
    pub lease: Millis,
    pub patience: Millis,
    pub once: bool,
    /// As without LEASE: a holder keeps a lease that is longer.
    pub keeps: bool,
    pub session: bool,
}

/// Redisson's script that takes the lock or joins the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    pub owner: usize,
    pub lease: Millis,
    /// Its patience, and for how long it sleeps; none if it does not wait.
    pub wait: Option<(Millis, Sleep)>,
    /// By how much its client's clock is ahead.
    pub skew: i64,
    /// The server may not use more memory.
    pub memory_is_full: bool,
}

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Acquire(Request),
    /// RELEASE on one of the owner's connections; with no token, the right one, or another one; of all holds or one.
    Release(usize, usize, Option<bool>, bool),
    /// RENEW, with a lease in milliseconds.
    Renew(usize, Millis),
    /// CANCEL, by any client.
    Cancel(usize),
    /// BREAK, by any client; of all holders, or of one owner.
    Break(Option<usize>),
    /// A blocked request's time is up: it is told nil at once, its place is removed later.
    TimeOut(usize, usize),
    /// A connection closes, which is noted and dealt with later; its owner opens another one.
    Close(usize, usize),
    LockByScript(Script),
    /// Redisson's script that gives up a hold and sets this lease, by a clock that is ahead.
    UnlockByScript(usize, Millis, i64),
    /// Redisson's script that frees the lock from all holders.
    ForceUnlock(i64),
    /// Redisson's script by which a waiter leaves the queue.
    LeaveByScript(usize),
    /// A client deletes the lock's key. The lock is looked at later in the same iteration.
    Delete,
    /// A client deletes one of several holders from it.
    DeleteHolder(usize),
    /// A client sets its expiry.
    SetExpiry(Millis),
    /// A client sets the score of a waiter, as a distance from now.
    SetScore(usize, i64),
    /// The token's key is lost.
    LoseToken,
    /// The server restarts: connections are lost, keys are kept.
    Restart,
    /// No client acts: noted work is done, or the lock is looked at if it is due; or, if neither, so many milliseconds
    /// pass, and the lock is looked at whenever it is due.
    Silence(Millis),
    /// A millisecond passes in which the server does nothing, even if work is due.
    Late,
    /// The server stands still for so many milliseconds. What clients have sent is read later.
    Stall(Millis),
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

/// A broken promise, and how it came to that.
pub fn story(broken: &str, way: &[Step]) -> String {
    format!("{broken} after {way:?}").replace("Step {", "\nStep {")
}

impl World {
    /// All that can happen next in the search. Owners, and connections of one owner, that nothing tells apart are as
    /// good as each other: one stands for all.
    pub fn actions(&self, scope: &Scope) -> Vec<Action> {
        let mut actions = vec![Action::Silence(1)];
        let mut faults = vec![
            (Fault::Break, Action::Break(None)),
            (Fault::Delete, Action::Delete),
            (Fault::LoseToken, Action::LoseToken),
            (Fault::Restart, Action::Restart),
            (Fault::Late, Action::Late),
            (Fault::Stall, Action::Stall(1)),
            (Fault::SetClock, Action::SetClock(-4)),
            (Fault::SetClock, Action::SetClock(4)),
        ];
        for owner in self.distinct_owners(scope) {
            match scope.owners[owner] {
                Kind::Commands(limits) => {
                    for slot in self.distinct_slots(owner, scope) {
                        self.requests((owner, slot), limits, scope, &mut actions);
                        self.releases((owner, slot), &mut actions);
                        faults.push((Fault::TimeOut, Action::TimeOut(owner, slot)));
                        faults.push((Fault::Close, Action::Close(owner, slot)));
                    }
                }
                Kind::Redisson => self.scripts(owner, scope, &mut actions),
            }
            let leases = scope.renewals.iter();
            actions.extend(leases.map(|lease| Action::Renew(owner, *lease)));
            faults.push((Fault::Cancel, Action::Cancel(owner)));
            faults.push((Fault::Break, Action::Break(Some(owner))));
        }
        let faults = faults.iter().filter(|(fault, _)| scope.has(*fault));
        actions.extend(faults.map(|(_, action)| action));
        actions.retain(|action| self.can(*action));
        actions
    }

    /// Whether a step can happen now. Little is noted at a time, and the clock is seldom set: more of that says nothing
    /// new.
    pub fn can(&self, action: Action) -> bool {
        let slot = |owner: usize, slot: usize| self.oracle.slots[owner][slot];
        let is_blocked = |owner, of| slot(owner, of).blocked.is_some();
        match action {
            Action::Acquire(of) => !is_blocked(of.owner, of.slot),
            Action::Release(owner, of, ..) => !is_blocked(owner, of),
            Action::TimeOut(owner, of) => is_blocked(owner, of) && self.noted.gone.len() < 3,
            Action::Close(owner, of) if is_blocked(owner, of) => self.noted.gone.len() < 3,
            Action::Close(owner, of) => {
                let mut bound = self.oracle.bound_to(slot(owner, of).connection);
                bound.next().is_some() && self.noted.closed.len() < 2
            }
            // What is due comes first.
            Action::LockByScript(_)
            | Action::UnlockByScript(..)
            | Action::Late
            | Action::Stall(_) => !self.is_overdue(),
            Action::LeaveByScript(owner) | Action::SetScore(owner, _) => {
                self.oracle.queued(owner).is_some()
            }
            Action::Delete => self.state.holder.is_some() || !self.state.counts.is_empty(),
            Action::LoseToken => self.may_lose_token(),
            Action::SetClock(_) => self.clock_steps < 2,
            _ => true,
        }
    }

    fn requests(
        &self,
        (owner, slot): (usize, usize),
        limits: &[u32],
        scope: &Scope,
        actions: &mut Vec<Action>,
    ) {
        for wait in scope.waits {
            for (limit, how) in limits.iter().flat_map(|limit| repeat(limit).zip(0..4)) {
                let request = Request {
                    owner,
                    slot,
                    wait: *wait,
                    limit: *limit,
                    lease: scope.lease,
                    patience: scope.patience,
                    once: how & 1 > 0,
                    keeps: false,
                    session: how & 2 > 0,
                };
                if self.is_sensible(request, scope) {
                    actions.push(Action::Acquire(request));
                }
            }
        }
    }

    /// Whether a request says something that others do not.
    fn is_sensible(&self, request: Request, scope: &Scope) -> bool {
        let Request { once, session, .. } = request;
        let holder = self.oracle.holder(request.owner, self.now);
        // The holder is answered at once, however it would wait; and ONCE says something
        // to the holder alone.
        let alike = match holder {
            Some(_) => request.wait != scope.waits[0],
            None => once,
        };
        let unknown = (once && !scope.once) || (session && !scope.sessions);
        let holds = holder.map_or(0, |holder| holder.holds);
        !alike && !unknown && (once || holds < scope.most_holds)
    }

    fn releases(&self, (owner, slot): (usize, usize), actions: &mut Vec<Action>) {
        let all = [
            (None, false),
            (Some(true), false),
            (Some(false), true),
            (None, true),
        ];
        let differ = match self.oracle.holds(owner) {
            0 => 1,
            1 => 3,
            _ => 4,
        };
        let differ = all.iter().take(differ);
        actions.extend(differ.map(|(token, all)| Action::Release(owner, slot, *token, *all)));
    }

    fn scripts(&self, owner: usize, scope: &Scope, actions: &mut Vec<Action>) {
        // By one whose lease has ended, the head is woken once more.
        actions.push(Action::UnlockByScript(owner, scope.lease, 0));
        if self.oracle.holder(owner, self.now).is_some() {
            return;
        }
        actions.push(Action::LeaveByScript(owner));
        let refused = scope.scripts.contains(&None).then_some((None, true));
        let calls = scope.scripts.iter().map(|wait| (*wait, false));
        actions.extend(calls.chain(refused).map(|(wait, memory_is_full)| {
            Action::LockByScript(Script {
                owner,
                lease: scope.lease,
                wait,
                skew: 0,
                memory_is_full,
            })
        }));
    }
}
