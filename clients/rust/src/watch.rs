//! Checks that the master is still the master, while a lock is held or waited for and masters can change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::core::Core;
use crate::node::Node;

const EVERY: Duration = Duration::from_secs(1);
/// The shortest pause, even if connections end.
const SOON: Duration = Duration::from_millis(50);

/// The caller that began it ends it; where locks are held for less than a second, it begins again soon.
pub(crate) async fn watch(core: Weak<Core>) {
    while let Some(core) = core.upgrade() {
        let due = core.looked() + EVERY;
        // A connection that ends is a reason to look at once.
        drop(tokio::time::timeout_at(due.into(), core.route.broken.notified()).await);
        // A server that does not answer tells nothing.
        drop(core.route.look(EVERY).await);
        let mut has_broken = false;
        for node in core.nodes() {
            if core.route.is_past(&node.address) || is_no_master(&node).await {
                core.leave_node(&node);
            } else if node.control.current().is_some_and(|line| !line.is_open()) {
                node.control.clear();
                has_broken = true;
            }
        }
        if has_broken {
            core.doubt();
        }
        core.set_looked();
        tokio::time::sleep(SOON).await;
    }
}

async fn is_no_master(node: &Arc<Node>) -> bool {
    let Some(mut line) = node.control.open_line() else {
        return false;
    };
    matches!(line.is_master(EVERY).await, Ok(false))
}
