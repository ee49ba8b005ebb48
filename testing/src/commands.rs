//! The module's commands: what a server must say of each, and how tests call it.
//!
//! A new command gets its row here, and is tried by every test that goes over all commands.

use std::sync::LazyLock;

/// The commands that clients send, in the order of HELP: a name without the module's prefix, arguments for lock `K`
/// (the fewest, then other ways), what COMMAND INFO shows (arity, flags, ACL categories), the use of the lock's key.
const TABLE: &str = "
    ACQUIRE | K o, K o NOWAIT, K o ENQUEUE, K o ONCE NOWAIT | -3 | blocking denyoom fast write | @blocking @fast @write | RW access update
    RELEASE | K o, K o ALL | -3 | fast write | @fast @write | RW access update
    RENEW | K o, K o LEASE 1 | -3 | fast write | @fast @write | RW access update
    CANCEL | K o | 3 | fast write | @fast @write | RW access update
    BREAK | K | -2 | admin write | @admin @dangerous @slow @write | RM delete
    QUEUE | K | -2 | readonly | @read @slow | RO access
    HOLDERS | K | 2 | readonly | @read @slow | RO access
    INFO | K | 2 | fast readonly | @fast @read | RO access
    LOCKS | -, COUNT 1 | -1 | noscript readonly | @read @slow | -
    HELP | - | 1 | fast loading stale | @connection @fast | -";

/// A command that clients send; see [`COMMANDS`].
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Without the module's prefix.
    pub name: &'static str,
    arguments: &'static str,
    /// How many words it has; negative: at least.
    pub arity: i64,
    /// In alphabetical order.
    pub flags: &'static str,
    /// ACL categories, in alphabetical order.
    pub categories: &'static str,
    /// How it uses the lock's key; empty if it has none.
    pub key: &'static str,
}

/// In the order of HELP.
pub static COMMANDS: LazyLock<Vec<Command>> =
    LazyLock::new(|| TABLE.trim().lines().map(Command::read).collect());

/// What intercepted scripts become: on lock `K`, without the module's prefix.
pub const SCRIPTS: [&str; 2] = [
    "EVAL return 1 K o",
    "EVALSHA 8e19a1ddbdee9138df9f32a480c57addab4353d1 1 K 1 o",
];

impl Command {
    /// Whether it only shows something of a lock.
    pub fn only_reads(&self) -> bool {
        self.key.starts_with("RO")
    }

    fn read(line: &'static str) -> Self {
        let parts: Vec<_> = line.split('|').map(str::trim).collect();
        let [name, arguments, arity, flags, categories, key] = parts[..] else {
            panic!("{line}");
        };
        Self {
            name,
            arguments,
            arity: arity.parse().expect("a number"),
            flags,
            categories,
            key: key.trim_matches('-'),
        }
    }

    /// Its calls, on lock `K`.
    pub fn calls(&self) -> impl Iterator<Item = String> + use<> {
        let name = self.name;
        let calls = self.arguments.split(", ");
        calls.map(move |words| {
            format!("{name} {}", words.trim_matches('-'))
                .trim_end()
                .to_owned()
        })
    }
}

/// All commands that use a lock's key.
pub fn of_a_lock() -> impl Iterator<Item = Command> {
    let all = COMMANDS.iter().copied();
    all.filter(|command| !command.key.is_empty())
}

/// Their calls, on lock `K`.
pub fn calls_of_a_lock() -> Vec<String> {
    of_a_lock().flat_map(|command| command.calls()).collect()
}

/// A call on another lock, with the module's prefix.
pub fn on(call: &str, lock: &str) -> String {
    format!("FAIRLOCK.{}", call.replacen(" K", &format!(" {lock}"), 1))
}
