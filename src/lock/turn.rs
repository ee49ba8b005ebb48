//! What happens when the lock is available: the head's turn.
//!
//! - A blocked head is made a holder in the same step (direct hand-off).
//! - A polling head is woken, and no other waiter. It has a turn to come: `fairlock.turn`, or its own
//!   patience if that is shorter. Then it is dropped and the next turn starts.
//! - A head that has been silent for a tenth of its turn may be dead, and others behind it as well.
//!   Then the polling waiters right behind it are woken too, and have until the end of the same
//!   turn: the living ask again, and the dead run out together. So a hand-off to a living waiter costs one
//!   message, and a row of dead waiters one turn.
//!
//! With several holders the lock is available as long as they tolerate the head (see [`super::sharing`]): a row of
//! blocked readers is served in one step. A head that they do not tolerate is waited for; if it is dead, it is dropped
//! at once, since those behind it may be able to join the holders.

use super::clock::{Heard, Wall};
use super::event::Event;
use super::holders::Holder;
use super::parts::{Owner, Presence, Terms, Ticket, Turn, Waiter};
use super::state::State;
use super::step::Step;
use super::token;

/// How many waiters behind a silent head are woken.
const WOKEN_BEHIND: usize = 16;

/// This many dead waiters are dropped in one step. The next step, which is due at once, goes on.
pub const REAP_BATCH: usize = 500;

impl<S: State> Step<'_, S> {
    /// Serves waiters until there is nothing more to do: the queue is empty, or the head cannot have the lock, or
    /// a polling head has its turn. Then the head's score is true.
    ///
    /// `asking` is the owner whose request is being decided. It is alive even if its deadline has passed,
    /// and serves itself if it is the head, so settling stops there.
    pub(super) fn settle(&mut self, asking: Option<&[u8]>) {
        self.serve(asking);
        self.refresh_head_score();
    }

    /// Serves one head after the other while it can have the lock. A head that the holders do not tolerate keeps
    /// those behind it waiting, but only while it lives.
    fn serve(&mut self, asking: Option<&[u8]>) {
        let mut reaped = 0;
        while (!self.state.is_held() || self.state.shared().is_some())
            && let Some((head, waiter)) = self.state.waiter_at(0)
        {
            let asks = asking == Some(head.as_ref());
            match waiter.presence {
                Presence::Gone if !asks => {
                    self.state.remove(&head);
                    self.state.emit(Event::Left { owner: head });
                }
                _ if !asks && self.is_dead(&head, &waiter, self.now.wall()) => {
                    if reaped == REAP_BATCH {
                        break;
                    }
                    reaped += 1;
                    self.state.remove(&head);
                    self.state.emit(Event::Reaped { owner: head });
                }
                _ if !self.fits(waiter.terms.limit) => break,
                // It serves itself.
                _ if asks => return,
                Presence::Blocked(ticket) => self.hand_over(&head, waiter, ticket),
                _ => return self.wait_for(&head, waiter),
            }
        }
        self.state.set_turn(None);
    }

    /// Makes a blocked head a holder.
    fn hand_over(&mut self, head: &Owner, waiter: Waiter, ticket: Ticket) {
        let token = self.grant(head, &waiter.terms);
        self.state.remove(head);
        self.state.emit(Event::Granted {
            ticket,
            owner: Owner::clone(head),
            token,
            session: waiter.terms.session,
            waited: self.now.steady.saturating_sub(waiter.since),
            shared: !waiter.terms.limit.is_exclusive(),
        });
    }

    /// A waiter is dead once its turn is over; before its turn, once its deadline is over. For a waiter that was found
    /// in the keys the score decides, by the clock of whoever asks: a script's client, or this server. A waiter that
    /// is blocked, or that has left, is never dead.
    pub(super) fn is_dead(&mut self, owner: &Owner, waiter: &Waiter, clock: Wall) -> bool {
        let now = self.now;
        if matches!(waiter.presence, Presence::Blocked(_) | Presence::Gone) {
            return false;
        }
        if let Some(turn) = self.state.turn().filter(|turn| turn.owner == *owner) {
            return now.is_over(turn.until);
        }
        match waiter.presence {
            Presence::Found => now.is_over(self.rules.grace) && waiter.score <= clock,
            _ => !waiter.lives(now),
        }
    }

    /// Starts the turn of a polling head, or continues it.
    fn wait_for(&mut self, head: &Owner, waiter: Waiter) {
        let running = self.state.turn().filter(|turn| turn.owner == *head);
        let Some(mut turn) = running else {
            self.start_turn(head, waiter);
            return;
        };
        if turn.wakes_next.is_some_and(|at| self.now.is_over(at)) {
            turn.wakes_next = None;
            self.wake_behind(turn.until);
            self.state.set_turn(Some(turn));
        }
    }

    fn start_turn(&mut self, head: &Owner, mut waiter: Waiter) {
        let now = self.now;
        let own = match waiter.presence {
            Presence::Polling => waiter.patience,
            // Redisson passes the 5 s of a `tryLock(5, SECONDS)` as 5 ms, in which no message and no answer go.
            Presence::Asked => {
                let patience = waiter.patience.max(self.rules.turn / 5);
                now.left_until(waiter.deadline).min(patience)
            }
            _ if !now.is_over(self.rules.grace) => self.rules.turn,
            _ => waiter.score.since(now.wall()),
        };
        let length = self.rules.turn.min(own).max(1);
        let until = now.listening_after(length);
        self.state.set_turn(Some(Turn {
            owner: Owner::clone(head),
            wakes_next: Some(now.listening_after((length / 10).max(1))),
            until,
        }));
        // The score stays: scripts lessen it, and a shortened one would drop a live waiter.
        waiter.deadline = until;
        self.state.set_waiter(head, waiter);
        self.wake(head);
    }

    /// Wakes the polling waiters right behind a silent head. They have until the end of its turn to
    /// ask again. A waiter that was found in the keys and need not answer keeps its own deadline.
    fn wake_behind(&mut self, until: Heard) {
        for index in 1..=WOKEN_BEHIND {
            let Some((owner, mut waiter)) = self.state.waiter_at(index) else {
                break;
            };
            match waiter.presence {
                Presence::Polling | Presence::Asked => {
                    waiter.deadline = waiter.deadline.min(until);
                    self.state.set_waiter(&owner, waiter);
                }
                Presence::Found if self.rules.intercepts => {
                    // If it lives, it is seen asking, or asks by a script that sets its score anew.
                    let at = self.now.after(self.now.left_until(until));
                    waiter.score = waiter.score.min(at);
                    self.state.set_waiter(&owner, waiter);
                }
                Presence::Found => (),
                // Behind a waiter that the server serves itself, no waiter needs to hurry.
                Presence::Blocked(_) | Presence::Gone => break,
            }
            self.wake(&owner);
        }
    }

    pub(super) fn wake(&mut self, owner: &Owner) {
        self.state.emit(Event::WakeUp {
            owner: Owner::clone(owner),
        });
    }

    /// Makes `owner` a holder of a lock that it can have, and returns its fencing token.
    pub(super) fn grant(&mut self, owner: &[u8], terms: &Terms) -> i64 {
        let token = self.next_token();
        let lease_end = self.now.after(terms.lease);
        // A session that is still known here was lost without an event.
        self.end_session();
        let since = Some(self.now.steady);
        self.state
            .admit(owner, Holder::new(*terms, lease_end, token, since));
        if terms.limit.is_exclusive() {
            self.state.set_lease_end(lease_end);
        } else {
            self.refresh_expiry();
        }
        self.state.set_turn(None);
        if let Some(connection) = terms.session {
            self.bind(owner, connection, terms.lease, false);
        }
        token
    }

    pub(super) fn next_token(&mut self) -> i64 {
        token::next(self.state.last_token(), self.now)
    }
}
