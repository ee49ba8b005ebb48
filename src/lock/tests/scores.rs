//! What the waiters' scores are to be after a step, computed a second time from what the pages promise.

use super::action::Action;
use super::life::heard_after;
use super::memory::Memory;
use super::oracle::{Checked, ensure};
use super::world::{NAMES, World};
use crate::lock::scripts::Sleep;
use crate::lock::{Event, Owner, Presence, SharedHolders, Waiter, Wall};

impl World {
    /// Scripts drop heads whose scores are over, up to the first whose score is not. A head that is surely alive stops
    /// them.
    pub(super) fn check_scores(&self) -> Checked {
        let head = self.state.queue.first();
        let dropped = head.filter(|(_, head)| head.score <= self.now.wall());
        let lives = dropped.is_some_and(|(_, head)| head.lives(self.now));
        ensure!(!lives, "scripts would drop {head:?}");
        Ok(())
    }

    /// Scores are set when a waiter asks, and of a head that lives. All others stay as they are.
    pub(super) fn check_changed_scores(&self, before: &Memory, action: Action) -> Checked {
        if matches!(action, Action::SetScore(..) | Action::Silence(2..)) {
            return Ok(());
        }
        let (left, now) = (self.lease_left(), self.now.wall());
        // A lease may have begun or ended in this step, after a score was set.
        let shared = before.shared.iter().flat_map(SharedHolders::iter);
        let ends = shared.map(|(_, holder)| holder.lease_end);
        let ends = ends.chain(before.lease_end);
        let lefts = ends.map(|end| end.since(now)).chain([left]);
        let served = before.queue.iter().map(|entry| entry.1.terms.lease);
        let longest = lefts.chain(served).max().unwrap_or(0);
        // Whether a score was far off was judged when there was a lease, and who had joined, or not yet.
        let left_before = before.lease_end.map_or(0, |end| end.since(now));
        let shortest = left.min(left_before);
        let fewest = self.state.queue.len().min(before.queue.len()) as u64;
        for (position, (owner, waiter)) in (1..).zip(&self.state.queue) {
            let mut queue = before.queue.iter();
            let was = queue.find(|entry| entry.0 == *owner).map(|entry| entry.1);
            let known = was.map(|was| was.score);
            // Found in the keys, and woken: it has no longer than the turn that it is woken in.
            let is_found = was.is_some_and(|was| was.presence == Presence::Found);
            let is_cut = is_found && self.rules.intercepts;
            let turn = self.state.turn.as_ref();
            let turn = turn.filter(|_| is_cut && self.is_woken(owner));
            let until = turn.map(|turn| now.after(turn.until.since(heard_after(self.now, 0))));
            let cut = known.map(|known| known.min(until.unwrap_or(known)));
            let asking = |known| self.score_of_asking(action, known, owner, waiter, position);
            let scores = [known, cut].map(|known| asking(known).or(known));
            let score = scores[0].ok_or("a waiter that has not asked")?;
            // Useless to scripts: over, or far off. It is set anew, a head's perhaps before the waiter asked.
            let was = was.unwrap_or(*waiter);
            let patience = waiter.patience.max(was.patience).max(1_000);
            let usual = shortest + waiter.patience.max(self.rules.patience) * (fewest + 1);
            let far = 100 * usual;
            let mut useless = [score, known.unwrap_or(score)].into_iter();
            let is_useless = useless.any(|score| score <= now || score > now.after(far));
            let latest = now.after(longest + patience * position);
            let is_renewed = waiter.score > now && waiter.score <= latest;
            let lives = waiter.lives(self.now) || was.lives(self.now);
            // One that asks without patience is over at once.
            let is_over = waiter.patience == 0 && waiter.score == now;
            ensure!(
                scores.contains(&Some(waiter.score))
                    || is_useless && (is_renewed && lives || is_over),
                "{score:?} is to be the score of {owner:?}: {waiter:?}"
            );
        }
        Ok(())
    }

    fn is_woken(&self, owner: &Owner) -> bool {
        let woken = |event: &Event| matches!(event, Event::WakeUp { owner: of } if of == owner);
        self.state.events.iter().any(woken)
    }

    /// The score of the waiter that asks in this step: the time, plus what is left of the lease, plus its patience
    /// times its position. One that asks again keeps a score that is less than half of its patience below that.
    fn score_of_asking(
        &self,
        action: Action,
        known: Option<Wall>,
        owner: &Owner,
        waiter: &Waiter,
        position: u64,
    ) -> Option<Wall> {
        let (left, now) = (self.lease_left(), self.now.wall());
        let (asking, mut clock, mut patience) = match action {
            _ if !self.waits => return None,
            Action::Acquire(request) => (request.owner, now, request.patience),
            Action::LockByScript(_) if waiter.presence != Presence::Asked => return None,
            Action::LockByScript(script) => (script.owner, self.client, script.wait?.0),
            _ => return None,
        };
        if **owner != *NAMES[asking] {
            return None;
        }
        if let Some(known) = known {
            let sets = matches!(action, Action::LockByScript(script)
                if script.wait.is_some_and(|(_, sleep)| sleep == Sleep::BehindHead));
            if !sets {
                (clock, patience) = (now, waiter.patience);
                let least = now.after((patience * position - patience / 2).max(1));
                if known >= least {
                    return Some(known);
                }
            }
        }
        Some(clock.after(left + patience * position))
    }
}
