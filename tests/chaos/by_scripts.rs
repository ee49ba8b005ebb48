//! Clients that send the commands as scripts (`clients/lua`) to a server without the module: what is promised holds
//! under faults, and while the module is loaded in their middle.
//!
//! Left out are faults that the scripts promise nothing about: they go by the wall clock, and learn of keys that are
//! deleted at the next ask. Until then a lock may stand free, and that is not looked for.

use std::sync::Arc;

use fairlock_testing::{Server, server, setting};

use crate::actor::{GOING_OVER, start};
use crate::checker::{self, Kind, Violation};
use crate::guarantees::{alone, nothing};
use crate::harm::{Disk, Harmer};
use crate::history::{Harm, History, Recorder};
use crate::plan::{Plan, Scene, plan};
use crate::round::{self, BUSY, CLIENTS, LAST_WAIT, LOCKS};
use crate::witness;
use crate::world::World;
use crate::written::Title;

/// The length of a turn in the scripts, in milliseconds.
const TURN: u64 = 5000;
/// What happens in the middle of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Middle {
    /// The server stays without the module.
    Nothing,
    /// The module is loaded, with interception off.
    LoadBeside,
    /// The module is loaded, with interception on.
    LoadIntercepting,
}

#[test]
fn a_fleet_of_scripts_keeps_order_exclusion_and_tokens_under_faults() {
    run(Middle::Nothing);
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_fleet_of_scripts_goes_over_to_commands_with_interception_off() {
    run(Middle::LoadBeside);
}

#[test]
fn a_fleet_of_scripts_goes_over_to_commands() {
    run(Middle::LoadIntercepting);
}

fn run(middle: Middle) {
    let _alone = alone();
    let milliseconds = setting("CHAOS_SECONDS").unwrap_or(60) * 1000 / 8;
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    println!("{middle:?}: twice {milliseconds} ms, CHAOS_SEED={seed}");
    nothing(&round(middle, seed, milliseconds), middle, seed);
}

fn round(middle: Middle, seed: u64, milliseconds: u64) -> Vec<Violation> {
    let options = [Disk::Always.options(), &["--enable-module-command", "yes"]].concat();
    let master = Server::without_module(&options);
    let recorder = Recorder::new(History {
        turn: TURN * 1000,
        ..History::default()
    });
    let world = Arc::new(World::new(recorder, BUSY, CLIENTS, LOCKS));
    world.set_module(false);
    let witness = witness::start(&world);
    let mut harmer = Harmer::new(Arc::clone(&world), Disk::Always, master, None);
    let threads = start(&GOING_OVER, &world, seed);
    harmer.carry_out(&faults(seed, milliseconds, true));
    if middle != Middle::Nothing {
        load(harmer.master(), middle);
        world.set_module(true);
    }
    // A server that is killed begins without the module again.
    let kills = middle == Middle::Nothing;
    harmer.carry_out(&faults(seed + 1000, milliseconds, kills));
    round::finish(&world, threads, LAST_WAIT);
    witness.join().expect("no panic in the witness");
    let title = Title::new(
        harmer.master(),
        &format!("scripts-{middle:?}"),
        seed,
        2 * milliseconds,
    );
    round::verdict(&world, harmer.master(), &title, |history| {
        let granted = history.calls.iter().filter(|call| call.is_granted());
        assert!(granted.count() > 100);
        let mut found = checker::check(history);
        found.retain(|found| found.kind != Kind::Stalled);
        found
    })
}

fn faults(seed: u64, milliseconds: u64, kills: bool) -> Plan {
    let scene = Scene {
        clients: CLIENTS,
        locks: LOCKS,
        pair: false,
        aof: true,
    };
    let mut plan = plan(seed, scene, milliseconds);
    plan.retain(|(_, (harm, _))| match harm {
        Harm::Kill { .. } => kills,
        Harm::ClockStep { .. }
        | Harm::FlushAll
        | Harm::Delete { .. }
        | Harm::Break { .. }
        | Harm::Config { .. }
        | Harm::Failover => false,
        _ => true,
    });
    plan
}

fn load(server: &Server, middle: Middle) {
    let setting = if middle == Middle::LoadIntercepting {
        "yes"
    } else {
        "no"
    };
    let module = server::module();
    let words = format!("MODULE LOAD {} intercept-eval {setting}", module.display());
    assert_eq!(server.connect().run(&words), "OK");
}
