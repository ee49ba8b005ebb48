//! Unblocks clients that this server cannot serve any more, because it has become a replica or the
//! cluster is down for it.
//!
//! Redis unblocks them itself, as with BLPOP. Valkey leaves clients that a module has blocked to the
//! module: since 8 while the cluster is down, since 9 in a cluster also when it becomes a
//! replica. So clients that are still blocked get the reply that the server would give.

use crate::error::Error;
use crate::keyspace::names;
use crate::lock::Ticket;
use crate::server::{Ctx, in_cluster};

use super::blocked::Outcome;
use super::effects::give_outcome;
use super::id::LockId;
use super::state::{blocked, frozen, stats, table};
use super::stats::Stats;

/// The server has become a replica: blocked clients go to its master.
pub fn to_the_master(ctx: &Ctx) {
    let waiting = blocked(|blocked| blocked.waiting());
    if waiting.is_empty() {
        return;
    }
    let master = if in_cluster() { ctx.master() } else { None };
    for (ticket, lock, _) in waiting {
        let outcome = match master.clone() {
            Some(node) => Outcome::Moved {
                slot: names::slot(&lock.name),
                node,
            },
            None => Outcome::Refused(Error::Unblocked),
        };
        send_away(ticket, outcome);
    }
}

/// The cluster is down for this node: blocked clients keep their places and ask again.
pub fn while_down(ctx: &Ctx) {
    for (ticket, lock, owner) in blocked(|blocked| blocked.waiting()) {
        keep_place(ctx, lock, &owner, ticket);
        send_away(ticket, Outcome::Refused(Error::ClusterDown));
    }
}

/// Counts the client as disconnected, as if the server had unblocked it.
fn send_away(ticket: Ticket, outcome: Outcome) {
    stats(Stats::disconnected);
    give_outcome(ticket, outcome);
}

/// Keeps the place as one that was found; the client is expected to reconnect.
pub fn keep_place(ctx: &Ctx, lock: LockId, owner: &[u8], ticket: Ticket) {
    table(|table| table.mark_sent_away(&lock, owner, ticket));
    frozen(|frozen| frozen.freeze(ctx, lock));
}
