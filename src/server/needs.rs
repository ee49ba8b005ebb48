//! The server's commands that the module needs, beside the module API.

use super::api::api;
use super::{Ctx, string};

/// The commands that carry the module's changes to replicas and the append-only file, those that publish
/// wake-ups, and EXISTS, which tells where the keys of a slot are.
const COMMANDS: [&str; 15] = [
    "DEL",
    "EXISTS",
    "HDEL",
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

    /// Whether the server has a command of this name. rename-command cannot change that while it runs.
    #[must_use]
    pub fn has_command(&self, name: &str) -> bool {
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
