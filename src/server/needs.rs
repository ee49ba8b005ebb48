//! What the module needs of the server beside the module API: its commands.

use super::api::api;
use super::context::{Ctx, in_cluster};
use super::memory::string;
use super::user::User;

/// The commands that publish wake-ups; EXISTS, which tells where the keys of a slot are; and those that the command
/// filter has to see: they change permissions, move slots, and on some servers a client's database.
const NEEDED: [&str; 6] = ["ACL", "CLUSTER", "COPY", "EXISTS", "PUBLISH", "SPUBLISH"];

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
        if !self.flags().append_only_file() {
            return;
        }
        if let Some(command) = denied_to_default() {
            self.log_warning(&format!(
                "fairlock: the user default may not run {command} on all keys of locks. When this server loads its \
                 append-only file, it may skip the changes of locks for that, so that a restart loses locks and queues: \
                 give the user ~* and +@all; it can be off"
            ));
        }
    }

    /// The first command that the module needs and that rename-command has removed. Without it the module's
    /// changes would be lost at replicas and after a restart, without an error.
    pub fn missing_command(&self) -> Option<&'static str> {
        let changes = CHANGES.iter().filter_map(|change| change.split(' ').next());
        // Slots move in a cluster only.
        let is_needed = |name: &&str| in_cluster() || *name != "CLUSTER";
        let mut commands = NEEDED.into_iter().filter(is_needed).chain(changes);
        commands.find(|command| !self.has_command(command))
    }

    /// Whether the server has a command of this name. rename-command cannot change that while it runs.
    fn has_command(&self, name: &str) -> bool {
        let name = string(name.as_bytes());
        let (mut words, mut keys) = ([name.inner], 0);
        // SAFETY: one word, which lives until the call returns, and a pointer for the number of keys. The
        // caller frees the list of keys, if it is not null.
        unsafe {
            let list = api!(GetCommandKeys(
                self.raw,
                words.as_mut_ptr(),
                1,
                &raw mut keys
            ));
            if !list.is_null() {
                api!(Free(list.cast()));
                return true;
            }
        }
        // For a command that exists, the error is another: too few arguments, or no keys.
        std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT)
    }
}

/// The first of the module's changes that the user `default` may not make.
fn denied_to_default() -> Option<&'static str> {
    let user = User::named(&string(b"default"))?;
    let is_denied = |change: &&&str| user.may_run_words(change) == Some(false);
    let denied = CHANGES.iter().find(is_denied)?;
    denied.split(' ').next()
}
