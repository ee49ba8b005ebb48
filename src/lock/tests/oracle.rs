//! What clients were told: the model that the rules are compared with. It never asks them.

use super::holders::Holder;
use super::life::{Life, heard_after, is_over};
use crate::lock::{Connection, Event, Heard, Millis, Now, Rules, Ticket, Wall};

/// An error says which promise is broken.
pub type Checked<T = ()> = Result<T, String>;

/// Fails with a formatted message unless a condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(super) use ensure;

/// A place in the queue, in the order of joining.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    pub owner: usize,
    pub life: Life,
    /// How many holders it tolerates; 0 for any number. Of one that was found no key tells: 1.
    pub limit: u32,
    /// The lease that it has asked for.
    pub lease: Millis,
    /// How long it may be silent.
    pub patience: Millis,
    /// When it joined, by the steady clock in microseconds.
    pub since: u64,
}

/// A connection of an owner.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    pub connection: Connection,
    /// The request that it is blocked in.
    pub blocked: Option<Ticket>,
    /// That request said SESSION.
    pub session: bool,
}

/// What clients know.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub holders: Vec<Holder>,
    pub queue: Vec<Queued>,
    pub slots: Vec<[Slot; 2]>,
    pub last_token: i64,
    /// The owner that has a turn, and until when.
    pub turn: Option<(usize, Heard)>,
}

/// A request that is being decided.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    /// The place that it has if it waits.
    pub place: Queued,
    /// The connection that the lock shall be bound to.
    pub session: Option<Connection>,
    /// The token in the reply; a script gets none.
    pub token: Option<i64>,
}

/// What the step does in which something is heard.
#[derive(Clone, Copy, Debug)]
pub enum Cause {
    /// Time has passed, or a request changes nothing.
    None,
    Asks(Asking),
    /// This owner is taken out of the queue.
    Cancels(usize),
    /// This holder gives the lock up.
    Releases(usize),
    /// So does this one, if it has no hold beyond what this connection brought.
    Closes(usize, Connection),
    /// So do all.
    Breaks,
}

impl Cause {
    /// Whether a holder gives the lock up.
    fn ends(self, holder: &Holder) -> bool {
        match self {
            Self::None | Self::Asks(_) | Self::Cancels(_) => false,
            Self::Releases(owner) => holder.owner == owner,
            Self::Closes(owner, by) => holder.owner == owner && holder.ends_with(by),
            Self::Breaks => true,
        }
    }

    fn asking(self) -> Option<Asking> {
        match self {
            Self::Asks(asking) => Some(asking),
            _ => None,
        }
    }
}

/// When and why something is heard.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub now: Now,
    /// A waiter that was found lives until its score is over by this clock: the server's, or that of a script's client.
    pub clock: Wall,
    pub rules: Rules,
    pub cause: Cause,
    /// The receiver of the lock is gone.
    pub undelivered: bool,
}

impl Oracle {
    pub fn queued(&self, owner: usize) -> Option<Queued> {
        let mut queue = self.queue.iter().copied();
        queue.find(|place| place.owner == owner)
    }

    /// A waiter has asked again. If it has a turn, and cannot have the lock any more, that is over.
    pub fn asked_again(&mut self, asking: Asking, now: Now) {
        let mut queue = self.queue.iter_mut();
        let asks = asking.place;
        if let Some(place) = queue.find(|place| place.owner == asks.owner) {
            let since = place.since;
            *place = Queued { since, ..asks };
        }
        let has_room = self.has_room(asks.limit, now);
        let stays = |(of, _): &(usize, _)| *of != asks.owner || has_room;
        self.turn = self.turn.filter(stays);
    }

    /// An owner leaves the queue. If it was its turn, that is over.
    pub fn remove(&mut self, owner: usize) {
        self.queue.retain(|place| place.owner != owner);
        self.turn = self.turn.filter(|(of, _)| *of != owner);
    }

    /// Takes in an event. Returns whether a holder gave the lock up in it.
    pub fn receive(&mut self, event: &Event, scene: &Scene) -> Checked<bool> {
        match event {
            Event::Granted {
                ticket,
                owner,
                token,
                shared,
                waited,
                ..
            } => {
                let (receiver, slot) = self.answer(*ticket)?;
                ensure!(receiver == index(owner), "another owner is told");
                let got = Asking {
                    place: self.queued(receiver).ok_or("served, and did not wait")?,
                    session: slot.session.then_some(slot.connection),
                    token: Some(*token),
                };
                self.acquired(got, (Some(*waited), *shared), scene)?;
                if let Some(holder) = self.holder_mut(receiver) {
                    holder.untold = scene.undelivered;
                }
            }
            Event::Acquired { shared, waited } => {
                let asking = scene.cause.asking().ok_or("no request")?;
                let by_script = matches!(asking.place.life, Life::Asked(_));
                ensure!(asking.token.is_none() == by_script, "told {asking:?}");
                self.acquired(asking, (*waited, *shared), scene)?;
            }
            Event::Released { since } => {
                self.dismiss(*since, |holder| scene.cause.ends(holder))?;
                return Ok(true);
            }
            Event::LeaseEnded { since } => self.dismiss(*since, |of| of.is_over(scene.now))?,
            Event::Enqueued => {
                let asking = scene.cause.asking().ok_or("no request")?;
                let known = self.queued(asking.place.owner);
                ensure!(known.is_none(), "joins twice: {known:?}");
                self.queue.push(asking.place);
            }
            Event::TakenOver { ticket } => {
                let (owner, _) = self.answer(*ticket)?;
                let by = scene.cause.asking().map(|asking| asking.place.owner);
                ensure!(by == Some(owner), "taken over by another owner");
            }
            Event::Cancelled { ticket } => {
                let Cause::Cancels(owner) = scene.cause else {
                    return Err("no waiter is cancelled".into());
                };
                if let Some(ticket) = ticket {
                    let (told, _) = self.answer(*ticket)?;
                    ensure!(told == owner, "another owner is told");
                }
                self.remove(owner);
            }
            Event::Left { owner } => self.has_left(index(owner))?,
            Event::WakeUp { owner } => self.woken(index(owner), scene)?,
            Event::Reaped { owner } => self.reaped(index(owner), scene)?,
            Event::HeldAgain { .. } | Event::Bound { .. } | Event::Unbound { .. } => (),
        }
        Ok(false)
    }

    /// A blocked request gets its one answer.
    fn answer(&mut self, ticket: Ticket) -> Checked<(usize, Slot)> {
        for (owner, slots) in self.slots.iter_mut().enumerate() {
            for slot in slots {
                if slot.blocked == Some(ticket) {
                    let asked = *slot;
                    slot.blocked = None;
                    slot.session = false;
                    return Ok((owner, asked));
                }
            }
        }
        Err(format!(
            "request {ticket} is answered, and no waiter has it"
        ))
    }

    /// An owner becomes a holder: its token is greater than all before, and all waiters before it were reaped. Counters
    /// are told for how long it has waited, if it has, and whether it may share the lock.
    fn acquired(
        &mut self,
        Asking {
            place,
            session,
            token,
        }: Asking,
        (waited, shared): (Option<u64>, bool),
        scene: &Scene,
    ) -> Checked {
        let Queued { owner, limit, .. } = place;
        let since = self
            .queued(owner)
            .map(|place| scene.now.steady - place.since);
        ensure!(waited == since, "{place:?} has waited {waited:?}");
        ensure!(
            shared == (limit != 1),
            "{owner} is told as shared: {shared}"
        );
        let last = self.last_token;
        ensure!(
            token.is_none_or(|token| token > last),
            "{token:?} after {last}"
        );
        let first = self.queue.first().map_or(owner, |place| place.owner);
        ensure!(first == owner, "{owner} is served before {first}");
        self.remove(owner);
        self.turn = None;
        self.last_token = token.unwrap_or(last);
        let holder = Holder {
            owner,
            limit,
            holds: 1,
            token,
            untold: false,
            lease_end: scene.now.after(place.lease),
            since: shared.then_some(scene.now.steady),
            bound: session.into_iter().map(|bound| (bound, 1)).collect(),
            lost: false,
        };
        self.admit(holder, scene.now)
    }

    fn has_left(&mut self, owner: usize) -> Checked {
        let left = self.queued(owner).is_some_and(|of| of.life == Life::Left);
        ensure!(left, "{owner} has not left");
        self.remove(owner);
        Ok(())
    }

    /// The head is woken as its turn begins; those behind it once it has been silent, and they
    /// have no longer than that turn.
    fn woken(&mut self, owner: usize, scene: &Scene) -> Checked {
        let now = scene.now;
        let is_head = self.queue.first().is_some_and(|head| head.owner == owner);
        let running = self.turn.filter(|(_, until)| !is_over(*until, now));
        let mut queue = self.queue.iter_mut();
        let place = queue.find(|place| place.owner == owner);
        let place = place.ok_or("an owner is woken that does not wait")?;
        if is_head && running.is_some_and(|(of, _)| of == owner) {
            // By a script that found the lock free.
            return Ok(());
        }
        let until = match running.filter(|_| !is_head) {
            Some((_, until)) => until,
            None if is_head => heard_after(now, place.turn(scene)),
            None => return Err(format!("{owner} is woken, and it is not its turn")),
        };
        match &mut place.life {
            Life::Polling(end) | Life::Asked(end) => {
                *end = if is_head { until } else { until.min(*end) };
            }
            Life::Found(_, end) if is_head => *end = Some(until),
            Life::Found(score, _) if scene.rules.intercepts => {
                *score = now.after(until.since(heard_after(now, 0))).min(*score);
            }
            Life::Found(..) => (),
            Life::Blocked(_) | Life::Left => return Err("a blocked waiter is woken".into()),
        }
        if is_head {
            self.turn = Some((owner, until));
        }
        Ok(())
    }

    fn reaped(&mut self, owner: usize, scene: &Scene) -> Checked {
        let place = self.queued(owner).ok_or("a waiter is reaped twice")?;
        let lives = place.life.lasts(scene.now, scene.rules.grace, scene.clock);
        // One that asks without patience is over at once.
        let asking = scene.cause.asking().map(|asking| asking.place);
        let is_over = asking.is_some_and(|asks| asks.owner == owner && asks.patience == 0);
        ensure!(!lives || is_over, "{owner} is reaped alive");
        ensure!(place.life != Life::Left, "{owner} had left by itself");
        self.remove(owner);
        Ok(())
    }
}

/// The number of an owner.
pub fn index(name: &[u8]) -> usize {
    usize::from(name[0] - b'A')
}
