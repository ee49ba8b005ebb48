//! The module does no harm: loaded, with interception off, it leaves a lock that only Redisson's
//! clients use exactly as it would be without it.
//!
//! The same steps are played by real clients on a plain server and on one with the module, and after each of them
//! everything is the same: keys, holder, holds, queue, deadlines, leases, every write, every message. Where a lock
//! becomes free and no message is published, the test wakes the head.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use fairlock_testing::Server;
use fairlock_testing::redisson::{NEWEST, OLD, is_long_run, releases};

use crate::interception::Interception;
use crate::stage::{Look, Stage, TURN};

/// Patience of five minutes with the script that knew five seconds: what is used most, for long.
const WIDESPREAD: &str = "3.16.8";
/// How long two servers may take until they agree. Only ever reached on failure.
const AGREE: Duration = Duration::from_secs(30);
const THREADS: [&str; 12] = [
    "a1", "a2", "a3", "a4", "a5", "b1", "b2", "b3", "b4", "b5", "b6", "b7",
];

/// A plain server and another one, and what has happened there in this step.
struct Sides([(&'static str, Stage, Look); 2]);

impl Sides {
    fn new(release: &str, other: Server) -> Self {
        let servers = [("plain", Server::without_module(&[])), ("other", other)];
        Self(thread::scope(|scope| {
            let started = servers.map(|(side, server)| {
                scope.spawn(move || (side, Stage::new(server, release, &THREADS), Look::default()))
            });
            started.map(|stage| {
                stage
                    .join()
                    .unwrap_or_else(|problem| resume_unwind(problem))
            })
        }))
    }

    /// Plays a step on both sides at the same time, and checks that they are equal afterwards.
    #[track_caller]
    fn step(&mut self, what: &str, act: impl Fn(&mut Stage) + Sync) {
        println!("{what}");
        let act = &act;
        let done = thread::scope(|scope| {
            let both = self.0.each_mut();
            let both = both.map(|(_, stage, _)| scope.spawn(move || act(stage)));
            both.map(thread::ScopedJoinHandle::join)
        });
        for ((side, ..), done) in self.0.iter().zip(done) {
            if let Err(problem) = done {
                println!("on the side {side}");
                resume_unwind(problem);
            }
        }
        self.agree(what);
    }

    /// Compares until both sides have come to rest.
    #[track_caller]
    fn agree(&mut self, what: &str) {
        let start = Instant::now();
        loop {
            for (_, stage, seen) in &mut self.0 {
                *seen = stage.look(std::mem::take(seen));
            }
            let [(.., plain), (.., other)] = &self.0;
            if plain.agrees_with(other) {
                break;
            }
            assert!(
                start.elapsed() < AGREE,
                "{what}\nplain server: {plain:#?}\nthe other one: {other:#?}"
            );
        }
        for (.., seen) in &mut self.0 {
            *seen = Look::default();
        }
    }
}

/// Three releases every day. Those before 3.11.1 write scores whenever they ask, not when
/// something happens.
fn compared() -> Vec<String> {
    let mut compared = releases();
    compared.retain(|release| release != "3.11.0");
    if !is_long_run() {
        compared = [NEWEST, OLD, WIDESPREAD].map(str::to_owned).to_vec();
    }
    compared
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn without_interception_nothing_tells_the_module_from_a_plain_server() {
    let turn = TURN.as_millis().to_string();
    for release in compared() {
        println!("Redisson {release}");
        let module = Interception::Off.server(&["--fairlock.turn", &turn]);
        play(&mut Sides::new(&release, module));
    }
}

/// The test above finds effects of the module, not chance.
#[test]
#[ignore = "takes minutes: make test-all"]
fn nothing_tells_two_plain_servers_apart() {
    for release in compared() {
        println!("Redisson {release}");
        let plain = Server::without_module(&[]);
        play(&mut Sides::new(&release, plain));
        if !is_long_run() {
            break;
        }
    }
}

fn play(sides: &mut Sides) {
    the_lock_goes_from_hand_to_hand(sides);
    waits_end(sides);
    an_interrupted_wait_leaves_its_entry(sides);
    the_lock_is_freed_by_force(sides);
    the_lock_is_freed_without_a_message(sides);
    an_expiry_is_set_on_all_keys(sides);
    a_client_dies(sides);
}

fn the_lock_goes_from_hand_to_hand(sides: &mut Sides) {
    sides.step("one takes the lock", |s| s.says("a1", "lock k", "true"));
    sides.step("a second waits", |s| s.joins("b1", "lock k"));
    sides.step("a third waits, not for ever", |s| {
        s.joins("a2", "tryLock k 60000 60000");
    });
    sides.step("a fourth waits", |s| s.joins("b2", "lock k"));
    sides.step("the holder takes it twice more", |s| {
        s.says("a1", "lock k", "true");
        s.says("a1", "tryLock k", "true");
    });
    sides.step("another does not wait", |s| {
        s.says("b3", "tryLock k", "false");
    });
    sides.step("two holds are given back", |s| {
        s.says("a1", "unlock k", "done");
        s.says("a1", "unlock k", "done");
    });
    sides.step("the last one is given back", |s| s.passes("a1", "b1"));
    sides.step("turns pass", Stage::turns_pass);
    sides.step("the first waits again", |s| s.joins("a1", "lock k"));
    sides.step("the second gives it back", |s| s.passes("b1", "a2"));
    sides.step("the third gives it back", |s| s.passes("a2", "b2"));
    sides.step("the fourth gives it back", |s| s.passes("b2", "a1"));
    sides.step("none is left", |s| s.says("a1", "unlock k", "done"));
}

fn waits_end(sides: &mut Sides) {
    sides.step("one takes the lock", |s| s.says("a1", "lock k", "true"));
    // Waits end only after all have joined, on a busy machine too.
    sides.step("the head waits for some seconds", |s| {
        s.joins("b1", "tryLock k 6000 60000");
    });
    sides.step("one waits behind it", |s| s.joins("a2", "lock k"));
    sides.step("one in the middle waits a little longer", |s| {
        s.joins("b2", "tryLock k 8000 60000");
    });
    sides.step("one waits behind it", |s| s.joins("a3", "lock k"));
    sides.step("one waits asynchronously", |s| {
        s.joins("b3", "tryLockAsync k 10000 60000");
    });
    sides.step("one waits behind it", |s| s.joins("a4", "lock k"));
    sides.step("the tail waits for a moment", |s| {
        s.joins("b4", "tryLock k 300 60000");
        s.receives("b4", "false");
    });
    for waiter in ["b1", "b2", "b3"] {
        sides.step("one gives up", |s| s.receives(waiter, "false"));
    }
    for (holder, next) in [("a1", "a2"), ("a2", "a3"), ("a3", "a4")] {
        sides.step("the next one's turn", |s| s.passes(holder, next));
    }
    sides.step("none is left", |s| s.says("a4", "unlock k", "done"));
}

fn an_interrupted_wait_leaves_its_entry(sides: &mut Sides) {
    sides.step("one takes the lock", |s| s.says("a1", "lock k", "true"));
    sides.step("one waits", |s| s.joins("b5", "tryLock k 600000 60000"));
    sides.step("it is interrupted", |s| s.interrupts("b5"));
    sides.step("one waits behind its entry", |s| {
        s.joins("a2", "tryLock k 600 60000");
    });
    sides.step("the lock is given back", |s| {
        s.says("a1", "unlock k", "done");
        s.receives("a2", "false");
    });
    sides.step("turns pass", Stage::turns_pass);
    sides.step("the entry is in the way", |s| {
        s.says("a1", "tryLock k", "false");
    });
    sides.step("there is nothing to free by force", |s| {
        s.says("b6", "forceUnlock k", "false");
    });
    sides.step("an operator deletes the queue", Stage::operator_clears_all);
    sides.step("the lock is to be had", |s| {
        s.says("a1", "tryLock k", "true");
        s.says("a1", "unlock k", "done");
    });
}

fn the_lock_is_freed_by_force(sides: &mut Sides) {
    sides.step("one takes the lock", |s| s.says("a1", "lock k", "true"));
    sides.step("one waits", |s| s.joins("b1", "lock k"));
    sides.step("another waits", |s| s.joins("b2", "lock k"));
    sides.step("another frees it", |s| {
        s.says("b6", "forceUnlock k", "true");
        s.receives("b1", "true");
    });
    sides.step("the holder of before is refused", |s| {
        s.fails("a1", "unlock k");
    });
    sides.step("the next one's turn", |s| s.passes("b1", "b2"));
    sides.step("none is left", |s| s.says("b2", "unlock k", "done"));
}

/// The head would sleep for a minute: here it is woken.
fn the_lock_is_freed_without_a_message(sides: &mut Sides) {
    let ways: [&[&str]; 4] = [
        &["DEL k"],
        &["UNLINK k"],
        &["SET k x", "DEL k"],
        &["RENAME k elsewhere", "DEL elsewhere"],
    ];
    for way in ways {
        sides.step("one takes the lock", |s| {
            s.says("a1", "lock k 60000", "true");
        });
        sides.step("one waits", |s| s.joins("b1", "lock k"));
        sides.step("another waits", |s| s.joins("a2", "lock k"));
        sides.step(&format!("an operator says {way:?}"), |s| {
            for command in way {
                s.operator(command);
            }
            s.is_woken("b1");
            s.receives("b1", "true");
        });
        sides.step("the next one's turn", |s| s.passes("b1", "a2"));
        sides.step("none is left", |s| s.says("a2", "unlock k", "done"));
    }
}

fn an_expiry_is_set_on_all_keys(sides: &mut Sides) {
    sides.step("one takes the lock", |s| {
        s.says("a1", "lock k 60000", "true");
    });
    sides.step("one waits", |s| s.joins("b1", "lock k"));
    sides.step("an expiry is set", |s| {
        s.says("a1", "expire k 30000", "true");
    });
    sides.step("another waits", |s| s.joins("b2", "lock k"));
    sides.step("the next one's turn", |s| s.passes("a1", "b1"));
    sides.step("the next one's turn", |s| s.passes("b1", "b2"));
    sides.step("none is left", |s| s.says("b2", "unlock k", "done"));
}

fn a_client_dies(sides: &mut Sides) {
    sides.step("one takes the lock for a while", |s| {
        s.says("a1", "lock k 60000", "true");
    });
    sides.step("one waits that will die", |s| s.joins("b1", "lock k"));
    sides.step("another waits that will die", |s| s.joins("b2", "lock k"));
    sides.step("they die", Stage::kills_b);
    sides.step("the lease ends", |s| {
        s.operator("PEXPIRE k 300");
        s.is_free();
        s.is_woken("b1");
    });
    sides.step("turns pass", Stage::turns_pass);
    sides.step("the dead are in the way", |s| {
        s.says("a2", "tryLock k", "false");
    });
    let remove = "return{redis.call('lpop',KEYS[1]),redis.call('zremrangebyrank',KEYS[2],0,0)}";
    sides.step("an operator removes the head", |s| {
        s.operator(&format!(
            "EVAL {remove} 2 redisson_lock_queue:{{k}} redisson_lock_timeout:{{k}}"
        ));
        s.is_woken("b2");
    });
    sides.step("turns pass", Stage::turns_pass);
    sides.step("one waits, and gives up", |s| {
        s.says("a2", "tryLock k 400 60000", "false");
    });
    sides.step("an operator deletes the queue", Stage::operator_clears_all);
    sides.step("the lock is to be had", |s| {
        s.says("a3", "tryLock k", "true");
        s.says("a3", "unlock k", "done");
    });
}
