//! What clients were told: the model that the rules are compared with. It never asks them.

use super::holders::{Holder, Leaving};
use super::life::{Life, heard_after, is_over};
use crate::lock::{Connection, Event, Heard, Millis, Now, Rules, Ticket};

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
    pub owner: usize,
    /// How many holders it tolerates; 0 for any number.
    pub limit: u32,
    /// The life that its place has if it joins.
    pub life: Life,
    pub lease: Millis,
    pub patience: Millis,
    /// The connection that the lock shall be bound to.
    pub session: Option<Connection>,
    /// The token in the reply.
    pub token: Option<i64>,
    /// It asks by a script of Redisson's, which gets no token.
    pub by_script: bool,
}

/// What the step does in which something is heard.
#[derive(Clone, Copy, Debug)]
pub struct Cause {
    pub asking: Option<Asking>,
    /// The owner that is taken out of the queue.
    pub cancelled: Option<usize>,
    pub leaving: Leaving,
}

impl Asking {
    /// The place that it has if it waits, since then.
    pub fn place(self, since: u64) -> Queued {
        let Self {
            owner,
            life,
            limit,
            lease,
            patience,
            ..
        } = self;
        Queued {
            owner,
            life,
            limit,
            lease,
            patience,
            since,
        }
    }
}

impl Cause {
    /// No request: time has passed, or a request was refused.
    pub const NONE: Self = Self {
        asking: None,
        cancelled: None,
        leaving: Leaving::None,
    };

    pub fn asked(asking: Asking) -> Self {
        Self {
            asking: Some(asking),
            ..Self::NONE
        }
    }

    pub fn cancelled(owner: usize) -> Self {
        Self {
            cancelled: Some(owner),
            ..Self::NONE
        }
    }

    pub fn leaving(leaving: Leaving) -> Self {
        Self {
            leaving,
            ..Self::NONE
        }
    }
}

/// When and why something is heard.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub now: Now,
    /// A waiter that was found lives until its score is over by this clock: the server's, or that of a script's client.
    pub clock: Millis,
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
        if let Some(place) = queue.find(|place| place.owner == asking.owner) {
            *place = asking.place(place.since);
        }
        let has_room = self.has_room(asking.limit, now);
        let stays = |(of, _): &(usize, _)| *of != asking.owner || has_room;
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
                let session = slot.session.then_some(slot.connection);
                let place = self.queued(receiver).ok_or("served, and did not wait")?;
                self.check_wait(receiver, Some(*waited), scene)?;
                let got = (place.limit, place.lease, Some(*token), session);
                self.acquired(receiver, got, scene)?;
                self.check_kind(receiver, *shared)?;
                if let Some(holder) = self.holder_mut(receiver) {
                    holder.untold = scene.undelivered;
                }
            }
            Event::Acquired { shared, waited } => {
                let asking = scene.cause.asking.ok_or("no request")?;
                let owner = asking.owner;
                self.check_wait(owner, *waited, scene)?;
                let token = if asking.by_script {
                    None
                } else {
                    Some(asking.token.ok_or("acquired, and told nil")?)
                };
                let got = (asking.limit, asking.lease, token, asking.session);
                self.acquired(owner, got, scene)?;
                self.check_kind(owner, *shared)?;
            }
            Event::Released { since } => {
                self.released(scene.cause.leaving, *since)?;
                return Ok(true);
            }
            Event::LeaseEnded { since } => self.lease_ended(*since, scene.now)?,
            Event::Enqueued => {
                let asking = scene.cause.asking.ok_or("no request")?;
                let known = self.queued(asking.owner);
                ensure!(known.is_none(), "joins twice: {known:?}");
                self.queue.push(asking.place(scene.now.steady));
            }
            Event::TakenOver { ticket } => {
                let (owner, _) = self.answer(*ticket)?;
                let by = scene.cause.asking.map(|asking| asking.owner);
                ensure!(by == Some(owner), "taken over by another owner");
            }
            Event::Cancelled { ticket } => {
                let owner = scene.cause.cancelled.ok_or("no waiter is cancelled")?;
                if let Some(ticket) = ticket {
                    let (told, _) = self.answer(*ticket)?;
                    ensure!(told == owner, "another owner is told");
                }
                self.remove(owner);
            }
            Event::Left => self.has_left(scene.cause.cancelled)?,
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

    /// An owner becomes a holder: its token is greater than all before, and all waiters before it were reaped.
    fn acquired(
        &mut self,
        owner: usize,
        (limit, lease, token, session): (u32, Millis, Option<i64>, Option<Connection>),
        scene: &Scene,
    ) -> Checked {
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
            lease_end: scene.now.after(lease),
            since: (limit != 1).then_some(scene.now.steady),
            bound: session.into_iter().map(|bound| (bound, 1)).collect(),
            lost: false,
        };
        self.admit(holder, scene.now)
    }

    /// Counters are told whether a holder may share the lock.
    fn check_kind(&self, owner: usize, shared: bool) -> Checked {
        let mut holders = self.holders.iter();
        let told = holders.any(|of| of.owner == owner && of.is_exclusive() != shared);
        ensure!(told, "{owner} is told as shared: {shared}");
        Ok(())
    }

    /// Counters are told for how long an owner has waited, if it has.
    fn check_wait(&self, owner: usize, waited: Option<u64>, scene: &Scene) -> Checked {
        let place = self.queued(owner);
        let expected = place.map(|place| scene.now.steady - place.since);
        ensure!(waited == expected, "{place:?} has waited {waited:?}");
        Ok(())
    }

    /// A cancelled waiter leaves first; then those that had left by themselves, in their order.
    fn has_left(&mut self, cancelled: Option<usize>) -> Checked {
        let left = |owner: &usize| self.queued(*owner).is_some_and(|of| of.life == Life::Left);
        let mut queue = self.queue.iter().map(|place| place.owner);
        let leaves = cancelled.filter(left).or_else(|| queue.find(left));
        self.remove(leaves.ok_or("no waiter has left")?);
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
        let asking = scene.cause.asking.filter(|of| of.owner == owner);
        let is_over = asking.is_some_and(|asking| asking.patience == 0);
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
