//! The module's commands: what a server must say of each, and how tests call it.
//!
//! A new command gets its row here, and is tried by every test that goes over all commands.

/// A command that clients send.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Without the module's prefix.
    pub name: &'static str,
    /// Arguments for lock `K`: the fewest, then other ways.
    pub arguments: &'static [&'static str],
    /// What COMMAND INFO shows.
    pub arity: i64,
    /// In alphabetical order.
    pub flags: &'static str,
    /// ACL categories, in alphabetical order.
    pub categories: &'static str,
    /// How it uses the lock's key; empty if it has none.
    pub key: &'static str,
}

/// In the order of HELP.
pub const COMMANDS: [Command; 10] = [
    Command {
        name: "ACQUIRE",
        arguments: &["K o", "K o NOWAIT", "K o ENQUEUE", "K o ONCE NOWAIT"],
        arity: -3,
        flags: "blocking denyoom fast write",
        categories: "@blocking @fast @write",
        key: "RW access update",
    },
    Command {
        name: "RELEASE",
        arguments: &["K o", "K o ALL"],
        arity: -3,
        flags: "fast write",
        categories: "@fast @write",
        key: "RW access update",
    },
    Command {
        name: "RENEW",
        arguments: &["K o", "K o LEASE 1"],
        arity: -3,
        flags: "fast write",
        categories: "@fast @write",
        key: "RW access update",
    },
    Command {
        name: "CANCEL",
        arguments: &["K o"],
        arity: 3,
        flags: "fast write",
        categories: "@fast @write",
        key: "RW access update",
    },
    Command {
        name: "BREAK",
        arguments: &["K"],
        arity: -2,
        flags: "admin write",
        categories: "@admin @dangerous @slow @write",
        key: "RM delete",
    },
    Command {
        name: "QUEUE",
        arguments: &["K"],
        arity: -2,
        flags: "readonly",
        categories: "@read @slow",
        key: "RO access",
    },
    Command {
        name: "HOLDERS",
        arguments: &["K"],
        arity: 2,
        flags: "readonly",
        categories: "@read @slow",
        key: "RO access",
    },
    Command {
        name: "INFO",
        arguments: &["K"],
        arity: 2,
        flags: "fast readonly",
        categories: "@fast @read",
        key: "RO access",
    },
    Command {
        name: "LOCKS",
        arguments: &["", "COUNT 1"],
        arity: -1,
        flags: "noscript readonly",
        categories: "@read @slow",
        key: "",
    },
    Command {
        name: "HELP",
        arguments: &[""],
        arity: 1,
        flags: "fast loading stale",
        categories: "@connection @fast",
        key: "",
    },
];

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

    /// Its calls, on lock `K`.
    pub fn calls(&self) -> impl Iterator<Item = String> + use<> {
        let Self {
            name, arguments, ..
        } = *self;
        let calls = arguments.iter();
        calls.map(move |arguments| format!("{name} {arguments}").trim_end().to_owned())
    }
}

/// All commands that use a lock's key.
pub fn of_a_lock() -> impl Iterator<Item = Command> {
    let all = COMMANDS.into_iter();
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
