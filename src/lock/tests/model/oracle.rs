//! What everybody was told: the model that the rules are compared with. It never asks them.

use super::life::Life;
use crate::lock::{Connection, Event, Millis, Now, Tick, Ticket};

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
}

/// A connection of an owner.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub connection: Connection,
    /// The request that it is blocked in.
    pub blocked: Option<Ticket>,
    /// That request said SESSION.
    pub session: bool,
}

/// Who holds the lock.
#[derive(Clone, Copy, Debug)]
pub struct Holder {
    pub owner: usize,
    pub holds: i64,
    /// The token of its acquisition; none if it came by a script.
    pub token: Option<i64>,
    /// Nobody was told of the first hold: whoever was to be told is gone.
    pub untold: bool,
}

/// What clients know.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub holder: Option<Holder>,
    /// The connections that the holder relies on and the holds they brought, in that order.
    pub bound: Vec<(Connection, i64)>,
    pub queue: Vec<Queued>,
    pub slots: Vec<[Slot; 2]>,
    pub last_token: i64,
    /// Who has been given a turn, and until when.
    pub turn: Option<(usize, Tick)>,
}

/// A request that is being decided.
#[derive(Clone, Copy, Debug)]
pub struct Asking {
    pub owner: usize,
    /// The life that its place has if it joins.
    pub life: Life,
    /// The connection that the lock shall be bound to.
    pub session: Option<Connection>,
    /// It asks by a script of Redisson's, which gets no token.
    pub by_script: bool,
}

/// When and why something is heard.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub now: Now,
    pub grace: Tick,
    pub turn: Millis,
    /// Whether whoever was found asks again when it is woken.
    pub found_answer: bool,
    /// The patience of those who poll, and of those who use scripts.
    pub patience: Millis,
    pub wait: Millis,
    pub asking: Option<Asking>,
    /// Who is taken out of the queue.
    pub cancelled: Option<usize>,
    /// Whoever is handed the lock is gone.
    pub undelivered: bool,
}

impl Oracle {
    pub fn is_holder(&self, owner: usize) -> bool {
        self.holder.is_some_and(|holder| holder.owner == owner)
    }

    /// How often an owner holds the lock.
    pub fn holds(&self, owner: usize) -> i64 {
        let holder = self.holder.filter(|holder| holder.owner == owner);
        holder.map_or(0, |holder| holder.holds)
    }

    /// The holds that a connection brought.
    pub fn holds_of(&self, connection: Connection) -> i64 {
        let mut bound = self.bound.iter();
        let found = bound.find(|(other, _)| *other == connection);
        found.map_or(0, |(_, holds)| *holds)
    }

    pub fn queued(&self, owner: usize) -> Option<Queued> {
        let mut queue = self.queue.iter().copied();
        queue.find(|place| place.owner == owner)
    }

    pub fn remove(&mut self, owner: usize) {
        self.queue.retain(|place| place.owner != owner);
    }

    pub fn freed(&mut self) {
        self.holder = None;
        self.bound.clear();
    }

    /// One hold is given up, or more; the connections that came last give way if there are fewer
    /// holds than they brought.
    pub fn give_up(&mut self, holds: i64, connection: Option<Connection>) {
        let Some(holder) = &mut self.holder else {
            return;
        };
        holder.holds -= holds;
        let mut room = holder.holds;
        if room <= 0 {
            self.freed();
            return;
        }
        for (bound, brought) in &mut self.bound {
            if Some(*bound) == connection {
                *brought -= holds;
            }
            *brought = room.min(*brought);
            room -= *brought;
        }
        self.bound.retain(|(_, brought)| *brought > 0);
    }

    /// A request for a free lock is answered at once exactly if nobody alive is ahead.
    pub fn is_next(&self, owner: usize, now: Now, grace: Tick) -> bool {
        let mut ahead = self.queue.iter().take_while(|place| place.owner != owner);
        self.holder.is_none() && !ahead.any(|place| place.life.lasts(now, grace))
    }

    /// Somebody hears of something. Returns whether the lock was given up in it.
    pub fn hear(&mut self, event: &Event, scene: &Scene) -> Checked<bool> {
        match event {
            Event::Granted {
                ticket,
                owner,
                token,
                ..
            } => {
                let (receiver, slot) = self.answer(*ticket)?;
                ensure!(receiver == index(owner), "another owner is told");
                let session = slot.session.then_some(slot.connection);
                self.acquired(receiver, *token, session)?;
                if let Some(holder) = &mut self.holder {
                    holder.untold = scene.undelivered;
                }
            }
            Event::Acquired { .. } => {
                let asking = scene.asking.ok_or("nobody asks")?;
                // The token is in the reply, or there is none.
                let token = self.last_token;
                self.acquired(asking.owner, token + 1, asking.session)?;
                if asking.by_script {
                    self.last_token = token;
                    if let Some(holder) = &mut self.holder {
                        holder.token = None;
                    }
                }
            }
            Event::Released { .. } | Event::LeaseEnded { .. } => {
                ensure!(self.holder.is_some(), "released, and nobody holds it");
                self.freed();
                return Ok(true);
            }
            Event::Enqueued => {
                let Asking { owner, life, .. } = scene.asking.ok_or("nobody asks")?;
                ensure!(self.queued(owner).is_none(), "{owner} joins twice");
                self.queue.push(Queued { owner, life });
            }
            Event::TakenOver { ticket } => {
                let (owner, _) = self.answer(*ticket)?;
                let by = scene.asking.map(|asking| asking.owner);
                ensure!(by == Some(owner), "taken over by somebody else");
            }
            Event::Cancelled { ticket } => {
                let owner = scene.cancelled.ok_or("nobody is cancelled")?;
                if let Some(ticket) = ticket {
                    let (told, _) = self.answer(*ticket)?;
                    ensure!(told == owner, "another owner is told");
                }
                self.remove(owner);
            }
            Event::Left => self.has_left(scene.cancelled)?,
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
        Err(format!("request {ticket} is answered, and nobody waits"))
    }

    /// An owner becomes the holder: nobody else is, its token is greater than all before, and
    /// whoever stood before it was reaped before.
    fn acquired(&mut self, owner: usize, token: i64, session: Option<Connection>) -> Checked {
        ensure!(self.holder.is_none(), "a second holder: {owner}");
        ensure!(
            token > self.last_token,
            "token {token} after {}",
            self.last_token
        );
        let first = self.queue.first().map_or(owner, |place| place.owner);
        ensure!(first == owner, "{owner} is served before {first}");
        self.remove(owner);
        self.turn = None;
        self.last_token = token;
        self.holder = Some(Holder {
            owner,
            holds: 1,
            token: Some(token),
            untold: false,
        });
        self.bound = session.into_iter().map(|bound| (bound, 1)).collect();
        Ok(())
    }

    /// Whoever is cancelled leaves first; else those who had left by themselves, the first first.
    fn has_left(&mut self, cancelled: Option<usize>) -> Checked {
        let left = |owner: &usize| self.queued(*owner).is_some_and(|of| of.life == Life::Left);
        let mut queue = self.queue.iter().map(|place| place.owner);
        let leaves = cancelled.filter(left).or_else(|| queue.find(left));
        self.remove(leaves.ok_or("nobody has left")?);
        Ok(())
    }

    /// The head is woken as its turn begins; those behind it once it has been silent, and they
    /// have no longer than that turn.
    fn woken(&mut self, owner: usize, scene: &Scene) -> Checked {
        let now = scene.now;
        let is_head = self.queue.first().is_some_and(|head| head.owner == owner);
        let running = self.turn.filter(|(_, until)| *until > now.tick());
        let mut queue = self.queue.iter_mut();
        let place = queue.find(|place| place.owner == owner);
        let place = place.ok_or("somebody is woken who does not wait")?;
        if is_head && running.is_some_and(|(of, _)| of == owner) {
            // By a script that found the lock free.
            return Ok(());
        }
        let until = match running.filter(|_| !is_head) {
            Some((_, until)) => until,
            None if is_head => now.tick_after(place.life.turn(scene)),
            None => return Err(format!("{owner} is woken at nobody's turn")),
        };
        match &mut place.life {
            Life::Polling(end) | Life::Asked(end) => {
                *end = if is_head { until } else { until.min(*end) };
            }
            Life::Found(_, end) if is_head => *end = Some(until),
            life @ Life::Found(..) if scene.found_answer => *life = Life::Polling(until),
            Life::Found(..) => (),
            Life::Blocked(_) | Life::Left => return Err("a blocked waiter is woken".into()),
        }
        if is_head {
            self.turn = Some((owner, until));
        }
        Ok(())
    }

    fn reaped(&mut self, owner: usize, scene: &Scene) -> Checked {
        let place = self.queued(owner).ok_or("somebody is reaped twice")?;
        ensure!(
            !place.life.lasts(scene.now, scene.grace),
            "{owner} is reaped alive"
        );
        ensure!(place.life != Life::Left, "{owner} had left by itself");
        self.remove(owner);
        Ok(())
    }
}

/// The number of an owner.
pub fn index(name: &[u8]) -> usize {
    usize::from(name[0] - b'A')
}
