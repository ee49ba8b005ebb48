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
use crate::harm::Harmer;
use crate::history::{Harm, History, Recorder};
use crate::plan::{Disk, Plan, plan};
use crate::round::{self, BUSY, LAST_WAIT};
use crate::witness;
use crate::world::World;

/// The length of a turn in the scripts, in milliseconds.
const TURN: u64 = 5000;

#[test]
fn a_fleet_of_scripts_keeps_order_exclusion_and_tokens_under_faults() {
    run(None);
}

#[test]
#[ignore = "takes long: make test-all"]
fn a_fleet_of_scripts_goes_over_to_commands_with_interception_off() {
    run(Some("no"));
}

#[test]
fn a_fleet_of_scripts_goes_over_to_commands() {
    run(Some("yes"));
}

/// In the middle of a round the module is loaded, with this setting of `intercept-eval`; or it is not.
fn run(intercepts: Option<&str>) {
    let _alone = alone();
    let milliseconds = setting("CHAOS_SECONDS").unwrap_or(60) * 1000 / 8;
    let seed = setting("CHAOS_SEED").unwrap_or(1);
    println!("{intercepts:?}: twice {milliseconds} ms, CHAOS_SEED={seed}");
    nothing(&round(intercepts, seed, milliseconds), intercepts, seed);
}

fn round(intercepts: Option<&str>, seed: u64, milliseconds: u64) -> Vec<Violation> {
    let options = [Disk::Always.options(), &["--enable-module-command", "yes"]].concat();
    let master = Server::without_module(&options);
    let recorder = Recorder::new(History {
        turn: TURN * 1000,
        ..History::default()
    });
    let world = Arc::new(World::new(recorder, BUSY));
    world.set_module(false);
    let witness = witness::start(&world);
    let mut harmer = Harmer::new(Arc::clone(&world), Disk::Always, master, None);
    let threads = start(&GOING_OVER, &world, seed);
    harmer.carry_out(&faults(seed, milliseconds, true));
    if let Some(setting) = intercepts {
        let module = server::module();
        let load = format!("MODULE LOAD {} intercept-eval {setting}", module.display());
        harmer.master().connect().assert_reply(&load, "OK");
        world.set_module(true);
    }
    // A server that is killed begins without the module again.
    let kills = intercepts.is_none();
    harmer.carry_out(&faults(seed + 1000, milliseconds, kills));
    round::finish(&world, threads, LAST_WAIT);
    witness.join().expect("no panic in the witness");
    let run = format!("scripts-{}-{seed}", intercepts.unwrap_or("only"));
    round::verdict(&world, harmer.master(), &run, |history| {
        let granted = history.calls.iter().filter(|call| call.is_granted());
        assert!(granted.count() > 100);
        let mut found = checker::check(history);
        found.retain(|found| found.kind != Kind::Stalled);
        found
    })
}

fn faults(seed: u64, milliseconds: u64, kills: bool) -> Plan {
    let mut plan = plan(seed, Disk::Always, milliseconds);
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
