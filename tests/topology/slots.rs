//! A slot on its way as a whole, by CLUSTER MIGRATESLOTS of Valkey 9.0 and newer or CLUSTER MIGRATION of Redis 8.4 and
//! newer, held open where a test wants it.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use fairlock_testing::cluster::{Cluster, Node};
use fairlock_testing::{Server, wait_until};

pub use crate::moving::{AWAY, HOME};

/// Two masters; `None` where the server has no such migrations.
pub fn two_masters(options: &[&str]) -> Option<Cluster> {
    if !is_known() {
        return None;
    }
    let options = [&["--enable-debug-command", "yes"], options].concat();
    let cluster = Cluster::start(2, 0, &options);
    assert_eq!(cluster.home("k"), HOME);
    Some(cluster)
}

/// As [`two_masters`], without the module.
pub fn two_plain_masters() -> Option<Cluster> {
    let may_load = [
        "--enable-debug-command",
        "yes",
        "--enable-module-command",
        "yes",
    ];
    is_known().then(|| Cluster::without_module(2, &may_load))
}

/// By which command slots move as a whole.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    MigrateSlots,
    Migration,
}

fn command() -> Option<Command> {
    static COMMAND: OnceLock<Option<Command>> = OnceLock::new();
    *COMMAND.get_or_init(|| {
        let server = Server::without_module(&[]);
        let mut client = server.connect();
        let mut has = |name: &str| {
            let info = client.run(&format!("COMMAND INFO CLUSTER|{name}"));
            info.contains(&name.to_lowercase())
        };
        if has("MIGRATESLOTS") {
            Some(Command::MigrateSlots)
        } else {
            has("MIGRATION").then_some(Command::Migration)
        }
    })
}

pub fn is_known() -> bool {
    let known = command().is_some();
    if !known {
        eprintln!("skipped: this server does not move slots as a whole");
    }
    known
}

/// Keeps a source from pausing its writes, or lets it go on.
pub fn hold(source: &Node, on: bool) {
    if command() == Some(Command::MigrateSlots) {
        prevent(source, "PAUSE", on);
    } else {
        // Two empty words are for none.
        let what = if on {
            "migrate-main-channel handoff-prep"
        } else {
            " "
        };
        source.run(&format!("DEBUG ASM-FAILPOINT {what}"));
    }
}

fn prevent(node: &Node, what: &str, on: bool) {
    let on = u8::from(on);
    node.run(&format!("DEBUG SLOTMIGRATION PREVENT-{what} {on}"));
}

/// Keys of a slot at a node that does not have it: Redis counts them among all of its keys only.
pub fn keys_at(node: &Node, slot: usize) -> usize {
    let count = match command() {
        Some(Command::MigrateSlots) => node.run(&format!("CLUSTER COUNTKEYSINSLOT {slot}")),
        _ => node.info("keyspace", "db0"),
    };
    let count = count.trim_start_matches("keys=").split(',').next();
    count.map_or(0, |count| count.parse().unwrap_or(0))
}

/// Slots on their way from one node to another, by default that of `k`.
pub struct Migration<'c> {
    pub from: &'c Node,
    pub to: &'c Node,
    /// The first of them.
    pub slot: usize,
    /// By which both nodes know it, where they say.
    id: Option<String>,
}

impl<'c> Migration<'c> {
    pub fn begin(cluster: &'c Cluster, from: usize, to: usize) -> Self {
        let slot = cluster.slot("k");
        Self::of_slots(cluster, &(slot..=slot), from, to)
    }

    pub fn of_slots(
        cluster: &'c Cluster,
        slots: &RangeInclusive<usize>,
        from: usize,
        to: usize,
    ) -> Self {
        let (from, to) = (&cluster.masters[from], &cluster.masters[to]);
        let (first, last) = (slots.start(), slots.end());
        let id = if command() == Some(Command::MigrateSlots) {
            let to = &to.id;
            from.run(&format!(
                "CLUSTER MIGRATESLOTS SLOTSRANGE {first} {last} NODE {to}"
            ));
            None
        } else {
            Some(to.run(&format!("CLUSTER MIGRATION IMPORT {first} {last}")))
        };
        let slot = *first;
        Self { from, to, slot, id }
    }

    /// Waits until it is in this state at a node, by Valkey's name for it.
    pub fn wait_for(&self, node: &Node, state: &str) {
        let theirs: &[&str] = match (command(), state) {
            (Some(Command::MigrateSlots), state) => &[state],
            (_, "waiting-to-pause") => &["send-stream"],
            (_, "success") => &["completed"],
            _ => &["canceled", "failed"],
        };
        wait_until(state, || theirs.contains(&self.state(node).as_str()));
    }

    fn state(&self, node: &Node) -> String {
        let all = node.run(&match &self.id {
            Some(id) => format!("CLUSTER MIGRATION STATUS ID {id}"),
            // The newest comes first.
            None => "CLUSTER GETSLOTMIGRATIONS".to_owned(),
        });
        let state = all.split(" state, ").nth(1).unwrap_or_default();
        state.split(',').next().unwrap_or_default().to_owned()
    }

    /// All keys are there, and changes at the source follow.
    pub fn held_open(cluster: &'c Cluster, from: usize, to: usize) -> Self {
        hold(&cluster.masters[from], true);
        let migration = Self::begin(cluster, from, to);
        migration.is_held();
        migration
    }

    /// Waits until it has come as far as it is held.
    pub fn is_held(&self) {
        self.wait_for(self.from, "waiting-to-pause");
    }

    /// Writes are paused at the source. `None` where the server cannot be held there.
    pub fn held_paused(cluster: &'c Cluster, from: usize, to: usize) -> Option<Self> {
        if command() != Some(Command::MigrateSlots) {
            eprintln!("skipped: this server cannot be kept from handing slots over");
            return None;
        }
        prevent(&cluster.masters[to], "FAILOVER", true);
        let migration = Self::begin(cluster, from, to);
        migration.wait_for(migration.to, "failover-granted");
        Some(migration)
    }

    /// It is given up; the target drops the keys.
    pub fn cancel(&self) {
        if command() == Some(Command::MigrateSlots) {
            self.from.run("CLUSTER CANCELSLOTMIGRATIONS");
        } else {
            self.to.run("CLUSTER MIGRATION CANCEL ALL");
        }
        self.wait_for(self.from, "cancelled");
        self.wait_for(self.to, "failed");
    }

    /// It goes on, and succeeds.
    pub fn finish(&self) {
        hold(self.from, false);
        if command() == Some(Command::MigrateSlots) {
            prevent(self.to, "FAILOVER", false);
        }
        self.wait_for(self.from, "success");
        self.wait_for(self.to, "success");
    }

    /// Keys of the slot at the target.
    pub fn keys_there(&self) -> usize {
        keys_at(self.to, self.slot)
    }

    /// Waits until the target has heard of all that was done at the source.
    pub fn is_up_to_date(&self) {
        self.from.run("SET {k}:mark 1");
        let marked = |there: usize| there == self.keys_there();
        let all = self
            .from
            .run(&format!("CLUSTER COUNTKEYSINSLOT {}", self.slot));
        let all = all.parse().expect("a number");
        wait_until("all keys are there", || marked(all));
        self.from.run("DEL {k}:mark");
        wait_until("and no other", || marked(all - 1));
    }

    /// The target has done nothing with what is there, and shows nothing of it.
    #[track_caller]
    pub fn nothing_happens_there(&self) {
        self.to.assert_reply("FAIRLOCK.LOCKS", "[]");
        let info = self.to.connect().run("INFO fairlock");
        for line in info.lines().filter(|line| line.starts_with("fairlock_")) {
            assert!(line.ends_with(":0"), "{line}");
        }
        self.to.assert_reply("DBSIZE", "0");
    }

    /// Nothing of the slot is left at the target.
    pub fn is_forgotten_there(&self) {
        wait_until("the keys are gone", || self.keys_there() == 0);
        self.nothing_happens_there();
    }
}
