//! Times in which the server wants no writes: pauses, and what for; and the lack of replicas.

use super::api::api;
use super::context::{Ctx, bytes_of_reply, in_cluster};
use super::strings::{Str, string};

impl Ctx {
    /// Whether the server wants no new writes now: CLIENT PAUSE WRITE, or a failover under way.
    pub fn writes_paused(&self) -> bool {
        // SAFETY: the function takes nothing and only reads the server's state.
        unsafe { api!(AvoidReplicaTraffic()) != 0 }
    }

    /// Whether writes are paused so that another server can take over: by FAILOVER, CLUSTER FAILOVER or
    /// CLUSTER MIGRATESLOTS. Valkey reports the purpose of a pause since 8.1. Redis reports FAILOVER only, and in a
    /// cluster nothing, so any pause there may be for a failover. Not free.
    pub fn is_handing_over(&self) -> bool {
        if !self.writes_paused() {
            return false;
        }
        match self.info(c"clients", c"paused_reason").as_deref() {
            Some("failover_in_progress" | "slot_migration_in_progress") => true,
            Some(_) => self.is_failing_over(),
            None => in_cluster() || self.is_failing_over(),
        }
    }

    /// Whether FAILOVER is under way. `paused_reason` shows one reason only, and so may hide this one.
    fn is_failing_over(&self) -> bool {
        let state = self.info(c"replication", c"master_failover_state");
        state.is_some_and(|state| state != "no-failover")
    }

    /// Whether the server refuses writes because too few replicas follow it (`min-replicas-to-write`). It is asked to
    /// take a member that there never is out of `scores`, a sorted set or no key, as a script would.
    pub fn lacks_replicas(&self, scores: &Str) -> bool {
        let nobody = string(b"");
        // SAFETY: the format says: as in a script, with errors as replies; two strings, which live until the call
        // returns. The reply is freed once, after its last use, and may be null.
        unsafe {
            let (name, format) = (c"ZREM".as_ptr(), c"SEss".as_ptr());
            let reply = api!(Call(self.raw, name, format, scores.inner, nobody.inner));
            if reply.is_null() {
                return false;
            }
            let lacks = bytes_of_reply(reply).is_some_and(|text| text.starts_with(b"NOREPLICAS"));
            api!(FreeCallReply(reply));
            lacks
        }
    }
}
