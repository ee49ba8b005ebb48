//! Fleets of nothing but Redisson's clients, with waits that are given up, and without kills: an owner that has a place
//! in the queue keeps it until it is served or gives up.
//!
//! Redisson's scripts promise that almost, and where Lua runs them nothing tells the module from a plain server (see
//! [`crate::off`]). Where they run natively no place is lost.

use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fairlock_testing::redisson::{Driver, OLD, each_release, releases};
use fairlock_testing::{Dice, Server};

use crate::conformance::nothing_is_left;
use crate::interception::Interception;
use crate::stream::{Left, Seen, Stream};

const SEEDS: std::ops::Range<u64> = 1..5;
/// The threads of a fleet, half of them in each JVM.
const THREADS: usize = 8;
/// How often each thread asks for the lock.
const ROUNDS: usize = 25;
/// Far longer than a woken client takes to come.
const TURN: Duration = Duration::from_secs(20);
/// Clients count whole milliseconds, and may be early by this many.
const ROUNDED: u64 = 2;

/// Two JVMs on a server.
struct Fleet {
    server: Server,
    jvms: [Driver; 2],
}

/// The events of a fleet's run.
#[derive(Default)]
struct Course {
    is_over: AtomicBool,
    owners: Mutex<HashSet<String>>,
    /// Owners whose waits have ended, and when a wait was over at the earliest.
    gave_up: Mutex<HashMap<String, Vec<Instant>>>,
    problems: Mutex<Vec<String>>,
}

impl Course {
    fn expect(&self, owner: &str, found: &str, expected: &str) {
        if found != expected {
            let mut problems = self.problems.lock().expect("no panic elsewhere");
            problems.push(format!("{owner}: {found}, not {expected}"));
        }
    }
}

impl Fleet {
    fn new(releases: [&str; 2]) -> Self {
        let turn = TURN.as_millis().to_string();
        let server = Interception::On.server(&["--fairlock.turn", &turn]);
        let jvms = Driver::several(releases, &server, &[]);
        Self { server, jvms }
    }

    /// Runs it once. Returns how owners that lost their places have left.
    fn run(&self, seed: u64, meanwhile: impl Fn(&Self, &Course) + Sync) -> Vec<String> {
        let stream = Stream::watch(&self.server, "k", TURN);
        let course = Course::default();
        // In every second fleet all ask at the same time, again and again: then the queue runs
        // empty, and some join while it is the turn of the only one that has waited before.
        let together = seed.is_multiple_of(2).then(|| Barrier::new(THREADS));
        thread::scope(|scope| {
            let course = &course;
            let together = &together;
            let threads: Vec<_> = (0..THREADS)
                .map(|number| {
                    let mut dice = Dice::new(seed, number);
                    scope.spawn(move || {
                        for _ in 0..ROUNDS {
                            together.as_ref().map(Barrier::wait);
                            self.take_part(course, number, &mut dice);
                        }
                    })
                })
                .collect();
            scope.spawn(|| meanwhile(self, course));
            let ended: Vec<_> = threads.into_iter().map(ScopedJoinHandle::join).collect();
            course.is_over.store(true, Ordering::Relaxed);
            for result in ended {
                result.unwrap_or_else(|problem| resume_unwind(problem));
            }
        });
        let mut client = self.server.connect();
        client.run("DEL witness");
        nothing_is_left(&mut client);
        lost(stream.finish(), course)
    }

    /// A thread takes the lock, or gives up.
    fn take_part(&self, course: &Course, number: usize, dice: &mut Dice) {
        let driver = &self.jvms[number % 2];
        let thread = number.to_string();
        let owner = driver.run(&thread, "owner k");
        let mut owners = course.owners.lock().expect("no panic elsewhere");
        owners.insert(owner.clone());
        drop(owners);
        let wait = 200 + dice.below(2800);
        let operation = match dice.below(2) {
            0 => "lock k".to_owned(),
            _ => format!("tryLock k {wait} -1"),
        };
        let asked = Instant::now();
        match driver.run(&thread, &operation).as_str() {
            "true" => {
                self.inside(course, &owner, dice);
                let unlocked = driver.run(&thread, "unlock k");
                course.expect(&owner, &unlocked, "done");
            }
            "false" => {
                let mut gave_up = course.gave_up.lock().expect("no panic elsewhere");
                let waits = gave_up.entry(owner).or_default();
                waits.push(asked + Duration::from_millis(wait - ROUNDED));
            }
            other => course.expect(&owner, other, "true or false"),
        }
    }

    /// The critical section: no other client is in it. It is short or takes a moment, and now and then it outlasts a
    /// wait.
    fn inside(&self, course: &Course, owner: &str, dice: &mut Dice) {
        let mut client = self.server.connect();
        course.expect(owner, &client.run("INCR witness"), "1");
        let hold = match dice.below(20) {
            0 => 300,
            1..8 => 0,
            _ => dice.below(30),
        };
        thread::sleep(Duration::from_millis(hold));
        client.run("DECR witness");
    }
}

/// The owners that left the queue without the lock before their waits were over.
fn lost(seen: Seen, course: Course) -> Vec<String> {
    let problems = course.problems.into_inner().expect("no panic elsewhere");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(seen.violations.is_empty(), "{}", seen.violations.join("\n"));
    assert!(seen.served.len() >= ROUNDS, "{}", seen.served.len());
    let mut gave_up = course.gave_up.into_inner().expect("no panic elsewhere");
    let mut lost = Vec::new();
    for (owner, times) in seen.left {
        let mut waits = gave_up.remove(&owner).unwrap_or_default();
        lost.extend(times.into_iter().filter_map(|left| {
            let is_lost = !excused(&mut waits, &left);
            is_lost.then(|| format!("{owner}: {}", left.how))
        }));
    }
    lost
}

/// Each wait that is over excuses one way out of the queue.
fn excused(waits: &mut Vec<Instant>, left: &Left) -> bool {
    let over = waits.iter().position(|over| *over <= left.at);
    over.is_some_and(|over| {
        waits.remove(over);
        true
    })
}

/// A head that gives up in its turn does not wake the next one. Where scripts run as Lua, that one would sleep for as
/// long as a lease, so the test wakes it; and where the queue is empty, all: one that lost its place would sleep for
/// minutes.
fn wake_who_sleeps(fleet: &Fleet, course: &Course) {
    let mut client = fleet.server.connect();
    let mut before = String::new();
    while !course.is_over.load(Ordering::Relaxed) {
        let head = match client.run("EXISTS k").as_str() {
            "0" => client.run("LINDEX redisson_lock_queue:{k} 0"),
            _ => String::new(),
        };
        let sleeps = |owner: &&String| head == "(nil)" || **owner == head;
        if !head.is_empty() && head == before {
            let owners = course.owners.lock().expect("no panic elsewhere");
            for owner in owners.iter().filter(sleeps) {
                client.run(&format!("PUBLISH redisson_lock__channel:{{k}}:{owner} 0"));
            }
        }
        before = head;
        thread::sleep(Duration::from_millis(50));
    }
}

/// Each release meets the next one, or the newest an old one; and the first meets itself.
#[test]
#[ignore = "takes minutes: make test-all"]
fn where_scripts_run_natively_no_client_loses_its_place() {
    let mut releases = releases();
    if releases.len() < 2 {
        releases.push(OLD.to_owned());
    }
    let mixed = releases.windows(2).map(|pair| [&*pair[0], &*pair[1]]);
    for pair in mixed.chain([[&*releases[0]; 2]]) {
        println!("Redisson {pair:?}");
        let fleet = Fleet::new(pair);
        for seed in SEEDS {
            assert_eq!(fleet.run(seed, |_, _| ()), [""; 0], "seed {seed}");
        }
    }
}

/// Waiters may lose their places at a switch, as on a plain server; then they ask again.
#[test]
fn over_a_hundred_switches_of_interception_one_owner_holds_the_lock_and_no_waiter_hangs() {
    each_release(|release| {
        let fleet = Fleet::new([release; 2]);
        let switches = AtomicUsize::new(0);
        for seed in 1.. {
            fleet.run(seed, |fleet, course| {
                thread::scope(|scope| {
                    scope.spawn(|| wake_who_sleeps(fleet, course));
                    let times = switch(fleet, course, Dice::new(seed, 100));
                    switches.fetch_add(times, Ordering::Relaxed);
                });
            });
            if switches.load(Ordering::Relaxed) > 100 {
                break;
            }
        }
    });
}

/// Switches interception off and on; how often.
fn switch(fleet: &Fleet, course: &Course, mut dice: Dice) -> usize {
    let mut client = fleet.server.connect();
    let mut settings = ["no", "yes"].into_iter().cycle();
    let mut times = 0;
    while !course.is_over.load(Ordering::Relaxed) {
        let setting = settings.next().expect("another");
        let set = format!("CONFIG SET fairlock.intercept-eval {setting}");
        client.assert_reply(&set, "OK");
        times += 1;
        thread::sleep(Duration::from_millis(dice.below(60)));
    }
    times
}
