//! Whether the master is still the master, looked at while anything is held or waited for where it may change.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::core::Core;
use crate::node::Node;

const EVERY: Duration = Duration::from_secs(1);
/// The shortest pause, whatever ends meanwhile.
const SOON: Duration = Duration::from_millis(50);

/// Ended by whoever began it, and begun again soon where locks are held for less than a second.
pub(crate) async fn watch(core: Weak<Core>) {
    while let Some(core) = core.upgrade() {
        let due = core.looked() + EVERY;
        // A connection that ends is a reason to look at once.
        drop(tokio::time::timeout_at(due.into(), core.route.broken.notified()).await);
        // Nothing is known of what does not answer.
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
