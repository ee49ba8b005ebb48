//! What this node of a cluster knows of itself: whether keys are here, and whether the cluster is up.

use super::api::api;
use super::context::{Ctx, in_cluster, text};
use super::strings::Str;

/// Where keys of one slot are, as far as this node knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Here, all of them that there are.
    Here,
    /// Some may be at another node: the slot is being moved, or has left.
    Moving,
    /// The cluster is down for this node: it must not decide anything.
    Down,
}

impl Ctx {
    /// Where these keys are, and whether their slot is known to be this node's and not on its way. The server is asked
    /// whether it would serve a command on all of them now: it does so in a slot of its own, and where a slot is being
    /// moved only if each of them is here.
    pub fn slot_state(&self, [a, b, c, d]: [&Str; 4]) -> (SlotState, bool) {
        // SAFETY: the format says: four strings; they live until the call returns. The reply is
        // freed, and is null, with the reason in errno, where the command was not run.
        unsafe {
            let (name, format) = (c"EXISTS".as_ptr(), c"ssss".as_ptr());
            let reply = api!(Call(
                self.raw, name, format, a.inner, b.inner, c.inner, d.inner
            ));
            if !reply.is_null() {
                let are_all_there = api!(CallReplyInteger(reply)) == 4;
                api!(FreeCallReply(reply));
                return (SlotState::Here, !are_all_there);
            }
        }
        let state = match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::ENETDOWN | libc::EROFS) => SlotState::Down,
            _ => SlotState::Moving,
        };
        (state, false)
    }

    /// Whether the cluster is down for this node. Unlike [`Ctx::slot_state`], this touches no key.
    pub fn cluster_is_down(&self) -> bool {
        if !in_cluster() {
            return false;
        }
        let info = redis_module::Context::new(self.raw).call("CLUSTER", &["INFO"]);
        let info = info.ok();
        let info = info.as_ref().and_then(text);
        info.is_some_and(|info| info.starts_with(b"cluster_state:fail"))
    }
}
