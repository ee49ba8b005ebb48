//! The holders, as clients know them. The one rule is written down here a second time, as the contract has it: every
//! holder has a limit of holders in all, itself included.

use super::life::Life;
use super::oracle::{Checked, Oracle, ensure};
use crate::lock::{Connection, Heard, Now, Wall};

/// A holder of the lock.
#[derive(Clone, Debug)]
pub struct Holder {
    pub owner: usize,
    /// How many holders it tolerates; 0 for any number.
    pub limit: u32,
    pub holds: i64,
    /// The token of its acquisition; none if it came by a script.
    pub token: Option<i64>,
    /// The first hold was not reported: its receiver is gone.
    pub untold: bool,
    /// The last millisecond of its lease.
    pub lease_end: Wall,
    /// When it became one of several holders, by the steady clock in microseconds, if the server has not restarted
    /// since.
    pub since: Option<u64>,
    /// The connections that it relies on and the holds they brought, in that order.
    pub bound: Vec<(Connection, i64)>,
    /// A client has deleted the lock's key, and the server has not seen it yet.
    pub lost: bool,
}

impl Holder {
    pub fn is_exclusive(&self) -> bool {
        self.limit == 1
    }

    /// Whether its hold has ended, even if the server has not dropped it yet.
    pub fn is_over(&self, now: Now) -> bool {
        self.lost || self.lease_end < now.wall()
    }

    /// Whether it has no hold beyond what this connection brought.
    pub fn ends_with(&self, connection: Connection) -> bool {
        self.bound.contains(&(connection, self.holds))
    }

    /// Another hold, by a connection that says SESSION, or by none.
    pub fn hold_again(&mut self, once: bool, session: Option<Connection>) {
        self.holds += i64::from(!once);
        self.untold &= !once;
        let Some(connection) = session else { return };
        if once {
            self.bound = vec![(connection, self.holds)];
        } else if let Some((_, brought)) = self.bound.iter_mut().find(|of| of.0 == connection) {
            *brought += 1;
        } else {
            self.bound.push((connection, 1));
        }
    }

    /// Removes holds; if fewer remain than the connections brought, the last connections give way.
    fn give_up(&mut self, holds: i64, connection: Option<Connection>) {
        self.holds -= holds;
        let mut room = self.holds;
        for (bound, brought) in &mut self.bound {
            if Some(*bound) == connection {
                *brought -= holds;
            }
            *brought = room.min(*brought);
            room -= *brought;
        }
        self.bound.retain(|(_, brought)| *brought > 0);
    }
}

/// Whether one more may hold the lock beside these.
pub fn have_room<'h>(holders: impl Iterator<Item = &'h Holder>, limit: u32) -> bool {
    let limits: Vec<u32> = holders.map(|holder| holder.limit).collect();
    fits(&limits, limit)
}

/// Whether one with this limit and those with the others tolerate each other; 0 tolerates any number.
pub fn fits(limits: &[u32], limit: u32) -> bool {
    let limited = limits.iter().chain([&limit]).filter(|limit| **limit > 0);
    limited
        .min()
        .is_none_or(|least| limits.len() < *least as usize)
}

impl Oracle {
    /// A holder whose lease has not ended.
    pub fn holder(&self, owner: usize, now: Now) -> Option<&Holder> {
        let mut holders = self.holders.iter().filter(|holder| !holder.is_over(now));
        holders.find(|holder| holder.owner == owner)
    }

    pub fn holder_mut(&mut self, owner: usize) -> Option<&mut Holder> {
        let mut holders = self.holders.iter_mut();
        holders.find(|holder| holder.owner == owner)
    }

    /// How often an owner holds the lock.
    pub fn holds(&self, owner: usize) -> i64 {
        let mut holders = self.holders.iter();
        let holder = holders.find(|holder| holder.owner == owner);
        holder.map_or(0, |holder| holder.holds)
    }

    /// The holders that rely on a connection, and the holds that it brought.
    pub fn bound_to(&self, connection: Connection) -> impl Iterator<Item = (&Holder, i64)> {
        let holders = self.holders.iter();
        holders.filter_map(move |holder| {
            let bound = holder.bound.iter().find(|of| of.0 == connection);
            bound.map(|(_, brought)| (holder, *brought))
        })
    }

    /// Whether another owner may hold the lock now, beside the holders.
    pub fn has_room(&self, limit: u32, now: Now) -> bool {
        let holders = self.holders.iter().filter(|holder| !holder.is_over(now));
        have_room(holders, limit)
    }

    /// A request is answered at once exactly if all holders tolerate it and no living waiter is ahead; waiters ahead
    /// that can be served are served before it in the same step.
    pub fn is_next(
        &self,
        owner: usize,
        limit: u32,
        now: Now,
        (grace, clock): (Heard, Wall),
    ) -> bool {
        let (limits, _, stopped) = self.serve_before(Some(owner), now, (grace, clock));
        !stopped && fits(&limits, limit)
    }

    /// The waiters that a step serves first when it finds that leases have ended.
    pub fn served_first(&self, now: Now, grace: Heard) -> Vec<usize> {
        if self.holders.iter().any(|holder| holder.is_over(now)) {
            self.serve_before(None, now, (grace, now.wall())).1
        } else {
            Vec::new()
        }
    }

    /// Serves the blocked waiters ahead of an owner. Returns what all holders tolerate then, which waiters were served,
    /// and whether another one ahead must be waited for.
    fn serve_before(
        &self,
        owner: Option<usize>,
        now: Now,
        (grace, clock): (Heard, Wall),
    ) -> (Vec<u32>, Vec<usize>, bool) {
        let holders = self.holders.iter().filter(|holder| !holder.is_over(now));
        let mut limits: Vec<u32> = holders.map(|holder| holder.limit).collect();
        let mut served = Vec::new();
        for place in &self.queue {
            if Some(place.owner) == owner {
                break;
            }
            let fits = fits(&limits, place.limit);
            if matches!(place.life, Life::Blocked(_)) && fits {
                limits.push(place.limit);
                served.push(place.owner);
            } else if place.life.lasts(now, grace, clock) {
                return (limits, served, true);
            }
        }
        (limits, served, false)
    }

    /// One hold is given up, or more, but not the last.
    pub fn give_up(&mut self, owner: usize, holds: i64, connection: Option<Connection>) {
        if let Some(holder) = self.holder_mut(owner) {
            holder.give_up(holds, connection);
        }
    }

    /// Adds a holder: the others tolerate it, and it them.
    pub(super) fn admit(&mut self, holder: Holder, now: Now) -> Checked {
        let over = self.holders.iter().find(|holder| holder.is_over(now));
        ensure!(over.is_none(), "served beside {over:?}");
        let fits = have_room(self.holders.iter(), holder.limit);
        ensure!(fits, "{holder:?} beside {:?}", self.holders);
        self.holders.push(holder);
        Ok(())
    }

    /// Removes a holder of which this is true.
    pub(super) fn dismiss(
        &mut self,
        since: Option<u64>,
        ends: impl Fn(&Holder) -> bool,
    ) -> Checked {
        let mut holders = self.holders.iter();
        let ends = holders.position(|holder| ends(holder) && holder.since == since);
        self.holders
            .remove(ends.ok_or("no holder has lost the lock so")?);
        Ok(())
    }
}
