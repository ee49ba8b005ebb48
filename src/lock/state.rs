//! The state of one lock, wherever it is stored, as the rules need it.
//!
//! Implementations only store and fetch; every decision is in [`super::Step`]. No method on queue
//! and holders may cost more than the logarithm of their number. An owner is in the queue at most once, and
//! has a score exactly while it is queued. What other writers changed about that is repaired before
//! a step begins.

use super::clock::Wall;
use super::event::Event;
use super::holders::{Holder, SharedHolders};
use super::parts::{Holds, Owner, Session, Turn, Waiter};

/// The state of one lock: its holders, its waiters, and what is in no key: turn, session, and what has happened.
pub trait State {
    /// Whether anyone holds the lock.
    fn is_held(&mut self) -> bool;
    /// When the lock frees itself; `None` if it is free or has no lease. Of a lock with several holders
    /// it is the end of the last lease.
    fn lease_end(&mut self) -> Option<Wall>;
    /// How often `owner` holds the lock.
    fn holds(&mut self, owner: &[u8]) -> Holds;
    /// Whether the key that is held is a lock: it has one holder with a hold count, or known shared holders.
    fn is_lock(&mut self) -> bool;
    /// Makes `owner` the exclusive holder of a free lock without a token, or changes a holder's hold count.
    fn set_holds(&mut self, owner: &[u8], holds: i64);
    /// Sets when the lock frees itself. The lock is held.
    fn set_lease_end(&mut self, at: Wall);
    /// Frees the lock from all its holders.
    fn free(&mut self);
    /// The lock is about to be freed by a script, which counts down to 0 first: clients may listen for that
    /// event.
    fn count_down(&mut self) {}
    /// The exclusive holder's fencing token; none if it took the lock by a script.
    fn token(&mut self) -> Option<i64>;
    /// Gives a holder that has none a fencing token.
    fn set_token(&mut self, owner: &[u8], token: i64);
    /// The greatest token that this lock may have had: given by this server run to any lock, or kept for
    /// this one; 0 if there is none. It keeps tokens growing where the clock has stepped back.
    fn last_token(&mut self) -> i64;

    /// The shared holders. `None` if the lock is free or has an exclusive holder.
    fn shared(&mut self) -> Option<&mut SharedHolders>;
    /// Makes `owner` a holder, with one hold: the exclusive one, or one of the shared holders. The lock is free, or its
    /// holders tolerate it.
    fn admit(&mut self, owner: &[u8], holder: Holder);
    /// Sets the end of a shared holder's lease.
    fn set_lease_of(&mut self, owner: &[u8], at: Wall);
    /// Takes a shared holder out; others remain.
    fn dismiss(&mut self, owner: &[u8]);

    /// Number of waiters.
    fn waiting(&mut self) -> usize;
    /// 0-based position of a waiter.
    fn position(&mut self, owner: &[u8]) -> Option<usize>;
    /// A waiter as this server sees it.
    fn waiter(&mut self, owner: &[u8]) -> Option<Waiter>;
    /// Owner and waiter at a 0-based position.
    fn waiter_at(&mut self, index: usize) -> Option<(Owner, Waiter)>;
    /// Changes how this server sees a waiter, and its score; no effect on others.
    fn set_waiter(&mut self, owner: &[u8], waiter: Waiter);
    /// Adds `owner` at the end of the queue, with its score.
    fn push(&mut self, owner: &[u8], waiter: Waiter);
    /// Takes `owner` out of the queue, score and all.
    fn remove(&mut self, owner: &[u8]);
    /// Takes `owner` out of the queue, which it leaves by a script.
    fn withdraw(&mut self, owner: &[u8]) {
        self.remove(owner);
    }

    /// Whose turn it is, if a polling head can have the lock and was woken.
    fn turn(&mut self) -> Option<Turn>;
    /// Sets or ends the turn.
    fn set_turn(&mut self, turn: Option<Turn>);
    /// The connections that the exclusive holder's lock is bound to.
    fn session(&mut self) -> &mut Option<Session>;
    /// Whether leases of sessions may be renewed now.
    fn may_renew(&mut self) -> bool;
    /// Records what happened, for the caller of the step.
    fn emit(&mut self, event: Event);
}
