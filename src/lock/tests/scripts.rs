//! Owners that use Redisson's scripts, where these are steps of the rules, and what their callers are told.

use super::action::Script;
use super::life::{Life, heard_after};
use super::oracle::{Asking, Cause, Checked, Queued, ensure, index};
use super::world::{NAMES, World};
use crate::lock::scripts::{ScriptWait, Sleep, Tried, TryLock, Unlocked};
use crate::lock::{Event, Millis, Presence, Refusal, Wall};

impl World {
    /// The time by a clock that is ahead.
    pub(super) fn clock_ahead(&self, skew: i64) -> Wall {
        let time = self.now.wall().millis();
        Wall::of(time.saturating_add_signed(skew))
    }

    /// The script that takes the lock or joins the queue.
    pub(super) fn lock_by_script(&mut self, script: Script) -> Checked {
        let (owner, now, client) = (script.owner, self.now, self.clock_ahead(script.skew));
        self.client = client;
        let holds = self.oracle.holder(owner, now).is_some();
        // Where holders have lost the lock, the head's turn begins before the script's client decides who is dead.
        let begins = self.oracle.holders.iter().any(|holder| holder.is_over(now));
        let clock = if begins {
            now.wall()
        } else {
            client.max(now.wall())
        };
        let is_next = self
            .oracle
            .is_next(owner, 1, now, (self.rules.grace, clock));
        let known = self.oracle.queued(owner).is_some();
        let call = TryLock {
            owner: NAMES[owner],
            lease: script.lease,
            client,
            wait: script
                .wait
                .map(|(patience, sleep)| ScriptWait { patience, sleep }),
            memory_is_full: script.memory_is_full,
        };
        let before = self.lease_left();
        let tried = self.step(|mut step| step.try_lock(&call));
        // What is left now: the lease of another may have begun in this step.
        let left = self.lease_left();
        let patience = script.wait.map_or(0, |(patience, _)| patience);
        // It lives at least until its score: that of a newcomer, or the one that it has then.
        let joins = script
            .wait
            .is_some_and(|(_, sleep)| !known || sleep == Sleep::BehindHead);
        let place = self.state.position_of(NAMES[owner]);
        let score = match place.filter(|_| !joins) {
            Some(place) => self.state.queue[place].1.score,
            None => client.after(left + patience * (place.unwrap_or(0) as u64 + 1)),
        };
        let asked = |silence: Millis| {
            let silence = silence.max(score.since(now.wall()));
            Life::Asked(heard_after(now, silence))
        };
        let place = Queued {
            owner,
            life: asked(left + patience),
            limit: 1,
            lease: script.lease,
            patience,
            since: now.steady,
        };
        let mut asking = Asking {
            place,
            session: None,
            token: None,
        };
        self.receive(Cause::Asks(asking))?;
        let grows = |sleep| sleep == Sleep::BehindHead || !known;
        let writes = holds || is_next || script.wait.is_some_and(|(_, sleep)| grows(sleep));
        if script.memory_is_full && writes {
            ensure!(tried == Err(Refusal::MemoryFull), "it wrote: {tried:?}");
            return Ok(());
        }
        let tried = tried.map_err(|refusal| format!("refused: {refusal:?}"))?;
        if holds {
            ensure!(tried == Tried::Acquired, "the holder is told {tried:?}");
            if let Some(holder) = self.oracle.holder_mut(owner) {
                holder.holds += 1;
            }
            return self.check_lease(owner, script.lease);
        }
        ensure!(
            (tried == Tried::Acquired) == is_next,
            "{tried:?}, next: {is_next}"
        );
        let is_holder = self.oracle.holds(owner) > 0;
        ensure!(is_holder || !is_next, "told that it holds the lock");
        let Some((patience, sleep)) = script.wait.filter(|_| !is_next) else {
            ensure!(is_next || tried == Tried::Refused, "it waits: {tried:?}");
            return Ok(());
        };
        self.waits = true;
        if is_holder {
            // A connection that was blocked for it has been served in this step.
            return Ok(());
        }
        let Some(place) = self.oracle.queued(owner) else {
            // Another may have been served since it was told.
            ensure!(before + patience == 0, "it waits without a place");
            return Ok(());
        };
        let is_blocked = matches!(place.life, Life::Blocked(_));
        let expected = self.sleep(owner, known, (patience, sleep));
        ensure!(tried == Tried::Waits(expected), "{tried:?}, not {expected}");
        if is_blocked {
            return Ok(());
        }
        // A newcomer asks again at once.
        if let Some(sleeps) = Millis::try_from(expected).ok().filter(|_| known) {
            asking.place.life = asked(left.max(sleeps) + patience);
        }
        self.oracle.asked_again(asking, now);
        Ok(())
    }

    /// What a script is told: PTTL of the lock, or the time until the one that it waits for would be over.
    fn sleep(&self, owner: usize, known: bool, (patience, sleep): (Millis, Sleep)) -> i64 {
        let left = self.lease_left();
        let lease = match (self.oracle.holders.is_empty(), self.state.lease_end) {
            (true, _) => -2,
            (false, None) => -1,
            (false, Some(_)) => left.cast_signed(),
        };
        let place = self.state.position_of(NAMES[owner]).unwrap_or(0);
        let behind = |index: usize| match &self.state.queue[index].1 {
            found if found.presence == Presence::Found => {
                found.score.since(self.client).cast_signed()
            }
            waiter => (left + waiter.patience * (index as u64 + 1)).cast_signed(),
        };
        let sleep = match sleep {
            Sleep::Lease if known => lease,
            _ if place == 0 && sleep == Sleep::BehindHead => lease,
            Sleep::BehindHead => behind(0),
            Sleep::BehindPrevious if known => (left + patience * place as u64).cast_signed(),
            _ if place == 0 => lease,
            _ => behind(place - 1),
        };
        let sleep = if known { sleep.max(0) } else { sleep };
        match self.oracle.turn {
            Some((_, until)) if sleep <= 0 => {
                let left = until.since(heard_after(self.now, 0));
                left.max(1).cast_signed()
            }
            _ => sleep,
        }
    }

    /// The script that gives up a hold.
    pub(super) fn unlock_by_script(&mut self, owner: usize, lease: Millis, skew: i64) -> Checked {
        self.client = self.clock_ahead(skew);
        let client = self.client;
        let holds = self.oracle.holder(owner, self.now).map(|of| of.holds);
        let served = self.is_served_first(owner);
        let holds = holds.or(served.then_some(1));
        let is_held = self.count_holders() > 0;
        let had_turn = self.oracle.turn;
        let unlocked = self.step(|mut step| step.unlock(NAMES[owner], lease, client));
        let (expected, cause) = match holds {
            Some(2..) => (Unlocked::HeldStill, Cause::None),
            Some(_) => (Unlocked::Freed, Cause::Releases(owner)),
            None if is_held => (Unlocked::NotHeld, Cause::None),
            None => (Unlocked::Freed, Cause::None),
        };
        ensure!(unlocked == Ok(expected), "{unlocked:?}, not {expected:?}");
        if expected == Unlocked::HeldStill {
            self.oracle.give_up(owner, 1, None);
        }
        self.freed_if(cause)?;
        if expected == Unlocked::HeldStill {
            return self.check_lease(owner, lease);
        }
        // It may be that the message was lost by which the head was woken.
        if !is_held && let Some((head, _)) = self.oracle.turn.filter(|turn| had_turn == Some(*turn))
        {
            let mut events = self.state.events.iter();
            let woken = events
                .any(|event| matches!(event, Event::WakeUp { owner } if index(owner) == head));
            ensure!(woken, "{head} is not woken again");
        }
        Ok(())
    }

    /// The script that frees the lock from all its holders.
    pub(super) fn force_unlock(&mut self, skew: i64) -> Checked {
        self.client = self.clock_ahead(skew);
        let (client, held) = (self.client, self.count_holders() > 0);
        let freed = self.step(|mut step| step.force_unlock(client));
        ensure!(freed == Ok(held), "freed: {freed:?}");
        self.freed_if(Cause::Breaks)
    }

    /// The script by which a waiter leaves the queue.
    pub(super) fn leave_by_script(&mut self, owner: usize) -> Checked {
        let place = self.oracle.queued(owner).map(|place| place.life);
        self.step(|mut step| step.leave_by_script(NAMES[owner]));
        self.receive(Cause::Cancels(owner))?;
        let stays = matches!(place, Some(Life::Blocked(_))) && self.oracle.holds(owner) == 0;
        let waits = self.oracle.queued(owner).is_some();
        ensure!(waits == stays, "in the queue: {waits}");
        Ok(())
    }
}
