//! The server's commands that the module needs, beside the module API.

use super::api::api;
use super::{Ctx, string};

/// The commands as which the module's changes reach replicas and the append-only file, and by which it wakes
/// waiters.
const COMMANDS: [&str; 14] = [
    "DEL",
    "EXISTS",
    "HSET",
    "LPOP",
    "LREM",
    "PERSIST",
    "PEXPIREAT",
    "PUBLISH",
    "RPOP",
    "RPUSH",
    "SET",
    "SPUBLISH",
    "ZADD",
    "ZREM",
];

impl Ctx {
    /// The first command that the module needs and that rename-command has removed. Without it the module's
    /// changes would be lost at replicas and after a restart, without an error.
    #[must_use]
    pub fn missing_command(&self) -> Option<&'static str> {
        let mut commands = COMMANDS.into_iter();
        commands.find(|command| !self.has_command(command))
    }

    /// Whether a command is there under this name. What rename-command does holds until the server ends.
    #[must_use]
    pub fn has_command(&self, name: &str) -> bool {
        let name = string(name.as_bytes());
        let (mut words, mut keys) = ([name.inner], 0);
        // SAFETY: one word, which lives until the call returns, and a place for the number of keys. The
        // list of keys is null or ours to free.
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
        // Of a command that is there the server says that one word is not enough, or that it has no keys.
        std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT)
    }
}
