//! Which fault happens when, and to which client. A pure function of the seed.

use fairlock_testing::Dice;

use crate::history::Part;

/// A planned fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Kill,
    Pause {
        ms: u64,
    },
    ClientKill {
        client: usize,
    },
    HalfOpen {
        client: usize,
        ms: u64,
    },
    SlowReader {
        client: usize,
        ms: u64,
    },
    ClockStep {
        seconds: i64,
    },
    FlushAll,
    Delete {
        lock: usize,
        key: Part,
    },
    /// Of all holders, or of one.
    Break {
        lock: usize,
        client: Option<usize>,
    },
    Config {
        option: &'static str,
        value: &'static str,
    },
    OutOfMemory {
        ms: u64,
    },
    RewriteAof,
    Snapshot,
    Failover,
}

/// What faults can hit.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub clients: usize,
    pub locks: usize,
    /// There is a replica that can become the master.
    pub pair: bool,
    /// There is an append-only file.
    pub aof: bool,
}

/// Affects no promise: all must be kept during it.
const OPTIONS: [(&str, &str); 11] = [
    ("fairlock.intercept-eval", "yes"),
    ("fairlock.intercept-eval", "no"),
    ("fairlock.turn", "2000"),
    ("fairlock.turn", "4000"),
    ("fairlock.pubsub", "both"),
    ("fairlock.pubsub", "publish"),
    ("fairlock.lease", "1000"),
    ("fairlock.patience", "60000"),
    ("notify-keyspace-events", "KEAd"),
    ("notify-keyspace-events", ""),
    ("hz", "100"),
];

/// Milliseconds after the begin, and what is to happen then. One after the other, in order.
pub type Plan = Vec<(u64, Act)>;

/// The plan of a round of this length in milliseconds: every kind of fault there is for this scene once, in an order
/// that the seed decides, and then any of them.
pub fn plan(seed: u64, scene: Scene, length: u64) -> Plan {
    let mut dice = Dice::new(seed, usize::MAX);
    let mut plan = Plan::new();
    let mut first = shuffled(kinds(scene), &mut dice);
    let any = kinds(scene);
    // The load gets going first.
    let mut at = 300;
    while at < length {
        let kind = first.pop().unwrap_or_else(|| dice.pick(&any));
        plan.push((at, act(kind, scene, &mut dice)));
        // What takes long delays what comes after it.
        at += 50 + dice.below(450);
    }
    plan
}

/// Numbers of the kinds, see [`act`].
fn kinds(scene: Scene) -> Vec<u64> {
    let mut kinds: Vec<u64> = (0..12).collect();
    if scene.pair {
        kinds.push(12);
    } else {
        // A kill takes time, and is what most of this is about.
        kinds.extend([13, 13]);
    }
    if scene.aof {
        kinds.push(14);
    }
    kinds
}

fn act(kind: u64, scene: Scene, dice: &mut Dice) -> Act {
    let client = dice.index(scene.clients);
    let lock = dice.index(scene.locks);
    match kind {
        0 => Act::Pause {
            ms: 20 + dice.below(600),
        },
        1 | 2 => Act::ClientKill { client },
        3 | 4 => Act::HalfOpen {
            client,
            ms: 100 + dice.below(900),
        },
        5 => Act::SlowReader {
            client,
            ms: 50 + dice.below(700),
        },
        6 => Act::ClockStep {
            seconds: i64::try_from(dice.below(7)).expect("small") - 3,
        },
        7 => Act::FlushAll,
        8 => Act::Delete {
            lock,
            key: dice.pick(&[
                Part::Lock,
                Part::Lock,
                Part::Queue,
                Part::Deadlines,
                Part::Token,
                Part::Shared,
            ]),
        },
        9 => Act::Break {
            lock,
            client: dice.one_in(2).then_some(client),
        },
        10 => {
            let (option, value) = dice.pick(&OPTIONS);
            Act::Config { option, value }
        }
        11 if dice.one_in(2) => Act::OutOfMemory {
            ms: 50 + dice.below(200),
        },
        11 => Act::Snapshot,
        12 => Act::Failover,
        13 => Act::Kill,
        _ => Act::RewriteAof,
    }
}

fn shuffled(mut kinds: Vec<u64>, dice: &mut Dice) -> Vec<u64> {
    for last in (1..kinds.len()).rev() {
        kinds.swap(last, dice.index(last + 1));
    }
    kinds
}

const SCENE: Scene = Scene {
    clients: 10,
    locks: 3,
    pair: false,
    aof: true,
};

#[test]
fn a_plan_is_a_function_of_its_seed() {
    assert_eq!(plan(7, SCENE, 10_000), plan(7, SCENE, 10_000));
    assert_ne!(plan(7, SCENE, 10_000), plan(8, SCENE, 10_000));
}

#[test]
fn every_kind_of_fault_is_in_a_plan_that_is_long_enough() {
    let kinds = |pair| {
        let plan = plan(7, Scene { pair, ..SCENE }, 60_000);
        let kinds = plan.iter().map(|(_, act)| format!("{act:?}"));
        let kinds = kinds.map(|act| act.split(' ').next().unwrap_or_default().to_owned());
        kinds.collect::<std::collections::BTreeSet<_>>()
    };
    let (alone, pair) = (kinds(false), kinds(true));
    assert_eq!((alone.len(), pair.len()), (13, 13));
    assert!(alone.contains("Kill") && pair.contains("Failover"));
    for (act, part) in [
        ("Break", "client: None"),
        ("Break", "Some"),
        ("Delete", "Shared"),
    ] {
        let plan = plan(7, SCENE, 60_000);
        let mut acts = plan.iter().map(|(_, act)| format!("{act:?}"));
        assert!(
            acts.any(|text| text.starts_with(act) && text.contains(part)),
            "{part}"
        );
    }
}
