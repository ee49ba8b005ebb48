//! Interception is switched off and on while real clients take turns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use fairlock_testing::redisson::{Driver, each_release};
use fairlock_testing::{Dice, Server};

use crate::conformance::nothing_is_left;

const SWITCHES: usize = 101;
const THREADS: usize = 8;

/// Takes the lock again and again until all switches are done. Nobody else is in the critical section.
fn take_turns(server: &Server, jvms: &[Driver; 2], number: usize, is_over: &AtomicBool) {
    let (jvm, thread) = (&jvms[number % 2], number.to_string());
    let mut client = server.connect();
    let mut dice = Dice::new(1, number);
    while !is_over.load(Ordering::Relaxed) {
        assert_eq!(jvm.run(&thread, "lock k"), "true");
        client.assert_reply("INCR inside", "1");
        thread::sleep(Duration::from_millis(dice.u64(..30)));
        client.assert_reply("DECR inside", "0");
        assert_eq!(jvm.run(&thread, "unlock k"), "done");
    }
}

/// Waiters may lose their places at a switch, as on a plain server, where the next unlock does not wake them: they
/// would sleep for the rest of the lease that they were told. So each is woken when the lock is free, and asks again.
fn wake_who_sleeps(server: &Server, owners: &[String], is_done: &AtomicBool) {
    let mut client = server.connect();
    while !is_done.load(Ordering::Relaxed) {
        if client.run("EXISTS k") == "0" {
            for owner in owners {
                client.run(&format!("PUBLISH redisson_lock__channel:{{k}}:{owner} 0"));
            }
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn switch(server: &Server) {
    let mut client = server.connect();
    let mut dice = Dice::new(1, THREADS);
    for setting in ["no", "yes"].into_iter().cycle().take(SWITCHES) {
        let set = format!("CONFIG SET fairlock.intercept-eval {setting}");
        client.assert_reply(&set, "OK");
        thread::sleep(Duration::from_millis(dice.u64(..60)));
    }
}

#[test]
fn over_a_hundred_switches_of_interception_one_owner_holds_the_lock_and_no_waiter_hangs() {
    each_release(|release| {
        let server = Server::start();
        let jvms = Driver::several([release; 2], &server, &[]);
        let owner = |number: usize| jvms[number % 2].run(&number.to_string(), "owner k");
        let owners: Vec<_> = (0..THREADS).map(owner).collect();
        let (is_over, is_done) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let take_turns = |number| take_turns(&server, &jvms, number, &is_over);
            let threads: Vec<_> = (0..THREADS)
                .map(|number| scope.spawn(move || take_turns(number)))
                .collect();
            scope.spawn(|| wake_who_sleeps(&server, &owners, &is_done));
            switch(&server);
            is_over.store(true, Ordering::Relaxed);
            let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(ended.iter().all(Result::is_ok), "see above");
        });
        let mut client = server.connect();
        client.run("DEL inside");
        nothing_is_left(&mut client);
    });
}
