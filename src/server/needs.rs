//! What the module needs of the server beside the module API: its commands.

use super::context::{Ctx, Flags, in_cluster};
use super::memory::string;
use super::user::User;

/// The commands that publish wake-ups; EXISTS, which tells where the keys of a slot are; and those that the command
/// filter has to see: they change permissions, move slots, and on some servers a client's database.
const NEEDED: [&str; 6] = [
    "ACL SETUSER user",
    "CLUSTER SETSLOT 1 STABLE",
    "COPY key other",
    "EXISTS key",
    "PUBLISH channel message",
    "SPUBLISH channel message",
];

/// The module's changes as the append-only file has them, for the queue of some lock.
const CHANGES: [&str; 12] = [
    "DEL redisson_lock_queue:{any}",
    "HDEL redisson_lock_queue:{any} field",
    "HSET redisson_lock_queue:{any} field value",
    "LPOP redisson_lock_queue:{any}",
    "LREM redisson_lock_queue:{any} 1 owner",
    "PERSIST redisson_lock_queue:{any}",
    "PEXPIREAT redisson_lock_queue:{any} 1",
    "RPOP redisson_lock_queue:{any}",
    "RPUSH redisson_lock_queue:{any} owner",
    "SET redisson_lock_queue:{any} value",
    "ZADD redisson_lock_queue:{any} 1 owner",
    "ZREM redisson_lock_queue:{any} owner",
];

impl Ctx {
    /// Warns if the next start may lose locks: most servers check each transaction of the append-only file against the
    /// permissions of the user `default`, and skip what it may not do. To be called when users are loaded.
    pub fn warn_of_default_user(&self) {
        if !self.flags().contains(Flags::AOF) {
            return;
        }
        if let Some(command) = first(CHANGES, Some(false)) {
            self.log_warning(&format!(
                "fairlock: the user default may not run {command} on all keys of locks. When this server loads its \
                 append-only file, it may skip the changes of locks for that, so that a restart loses locks and queues: \
                 give the user ~* and +@all; it can be off"
            ));
        }
    }
}

/// The first command that the module needs and that rename-command has removed. Without it the module's changes would
/// be lost at replicas and after a restart, without an error.
pub fn missing_command() -> Option<&'static str> {
    // Slots move in a cluster only.
    let is_needed = |command: &&str| in_cluster() || !command.starts_with("CLUSTER ");
    let commands = NEEDED.into_iter().filter(is_needed);
    first(commands.chain(CHANGES), None)
}

/// The name of the first of these commands of which the server says this: whether the user `default` may run it, `None`
/// if there is no such command.
fn first(
    commands: impl IntoIterator<Item = &'static str>,
    said: Option<bool>,
) -> Option<&'static str> {
    let user = User::named(&string(b"default"))?;
    let mut commands = commands.into_iter();
    let command = commands.find(|command| user.may_run_words(command) == said)?;
    command.split(' ').next()
}
