//! Many clients of all kinds on one lock, with waits that are given up, clients that are killed
//! and connections that break; and witnesses of what the rules promise them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::thread;
use std::time::Duration;

use fairlock_testing::redisson::{Driver, is_long_run, releases};
use fairlock_testing::{Client, Dice, Server, wait_until};

use crate::conformance::nothing_is_left;
use crate::interception::{INTERCEPTIONS, Interception};
use crate::participants::{blocking, polling, redisson};
use crate::stream::{Seen, Stream};

/// How long a polling waiter has to come for the lock; enough on a busy machine.
const TURN: Duration = Duration::from_secs(4);
/// The lease of every hold, in ms; far longer than any hold takes. A killed holder costs as much.
pub const LEASE: u64 = 5000;
/// Threads of each JVM that use the lock.
const THREADS: usize = 3;

/// What all participants share.
pub struct Fleet {
    pub server: Server,
    /// Whether even clients of Redisson keep their places.
    pub protected: bool,
    pub jvms: [RwLock<Arc<Driver>>; 2],
    /// Connections that only the test itself may break.
    ours: Mutex<Vec<i64>>,
    acquired: AtomicUsize,
    wanted: usize,
    /// How often an owner may have left the queue without the lock.
    excuses: Mutex<HashMap<String, usize>>,
    /// Connections that were broken. A Redisson thread that was asking on one asks again after 1.5 s. That may be most
    /// of its turn, so the thread may have lost it.
    broken: AtomicUsize,
    problems: Mutex<Vec<String>>,
}

impl Fleet {
    /// Whether there is more to do.
    pub fn goes_on(&self) -> bool {
        self.acquired.load(Ordering::Relaxed) < self.wanted
    }

    /// A connection that the test itself does not break by chance.
    pub fn connect(&self) -> Client {
        let client = self.server.connect();
        self.ours
            .lock()
            .expect("no panic elsewhere")
            .push(client.id);
        client
    }

    /// An owner gave up, or was killed.
    pub fn excuse(&self, owner: &str) {
        let mut excuses = self.excuses.lock().expect("no panic elsewhere");
        *excuses.entry(owner.to_owned()).or_default() += 1;
    }

    pub fn complain(&self, problem: String) {
        self.problems
            .lock()
            .expect("no panic elsewhere")
            .push(problem);
    }

    /// The critical section: no other client is in it.
    pub fn inside(&self, who: &str, client: &mut Client, dice: &mut Dice) {
        let inside = client.run("INCR witness");
        if inside != "1" {
            self.complain(format!("{who} was inside with others: {inside}"));
        }
        thread::sleep(Duration::from_millis(dice.below(6)));
        client.run("DECR witness");
        self.acquired.fetch_add(1, Ordering::Relaxed);
    }

    fn wait_for(&self, acquisitions: usize) {
        while self.acquired.load(Ordering::Relaxed) < acquisitions.min(self.wanted) {
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills one of the JVMs, and starts another in its place.
    fn replace(&self, jvm: usize, release: &str) {
        let old = Arc::clone(&self.jvms[jvm].read().expect("no panic elsewhere"));
        old.kill();
        *self.jvms[jvm].write().expect("no panic elsewhere") = start(release, &self.server);
    }

    /// Breaks a connection of one of the JVMs.
    fn break_a_connection(&self, dice: &mut Dice) {
        let mut client = self.connect();
        let ours = self.ours.lock().expect("no panic elsewhere").clone();
        let list = client.text("CLIENT LIST TYPE normal");
        let ids = list.lines().filter_map(|line| {
            let id = line.strip_prefix("id=")?.split(' ').next()?;
            id.parse::<i64>().ok()
        });
        let theirs: Vec<i64> = ids.filter(|id| !ours.contains(id)).collect();
        if let Some(last) = theirs.len().checked_sub(1) {
            let chosen = dice.below(last as u64 + 1);
            let id = theirs[usize::try_from(chosen).expect("an index")];
            client.run(&format!("CLIENT KILL ID {id}"));
            self.broken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn start(release: &str, server: &Server) -> Arc<Driver> {
    let watchdog = format!("lockWatchdogTimeout={LEASE}");
    let [driver] = Driver::several([release], server, &[&watchdog]);
    Arc::new(driver)
}

/// Runs a fleet until the lock was acquired a number of times.
fn run(interception: Interception, releases: [&str; 2], wanted: usize, seed: u64) {
    println!("interception {interception:?}, Redisson {releases:?}, seed {seed}");
    let turn = TURN.as_millis().to_string();
    let server = interception.server(&["--fairlock.turn", &turn]);
    let stream = Stream::watch(&server, "k", TURN);
    let jvms = releases.map(|release| RwLock::new(start(release, &server)));
    let protected = interception.protects("uuid:1");
    let fleet = Fleet {
        server,
        protected,
        jvms,
        ours: Mutex::default(),
        acquired: AtomicUsize::new(0),
        wanted,
        excuses: Mutex::default(),
        broken: AtomicUsize::new(0),
        problems: Mutex::default(),
    };
    thread::scope(|scope| {
        let fleet = &fleet;
        for number in 0..2 * THREADS {
            let dice = Dice::new(seed, number);
            scope.spawn(move || redisson(fleet, number % 2, &number.to_string(), dice));
        }
        for number in 10..13 {
            scope.spawn(move || blocking(fleet, number, Dice::new(seed, number)));
        }
        for number in 20..22 {
            scope.spawn(move || polling(fleet, number, Dice::new(seed, number)));
        }
        disturb(fleet, releases, Dice::new(seed, 30));
    });
    let mut client = fleet.server.connect();
    client.run("DEL witness");
    nothing_is_left(&mut client);
    judge(&fleet, &stream.finish());
}

/// Kills clients and connections now and then.
fn disturb(fleet: &Fleet, releases: [&str; 2], mut dice: Dice) {
    let every = fleet.wanted / 6;
    for round in 1..6 {
        fleet.wait_for(round * every + usize::try_from(dice.below(20)).expect("small"));
        match round {
            2 | 4 => fleet.replace(round / 2 - 1, releases[round / 2 - 1]),
            _ => fleet.break_a_connection(&mut dice),
        }
    }
}

fn judge(fleet: &Fleet, seen: &Seen) {
    let problems = fleet.problems.lock().expect("no panic elsewhere");
    let excuses = fleet.excuses.lock().expect("no panic elsewhere");
    let broken = fleet.broken.load(Ordering::Relaxed);
    let allowed = |owner: &str| {
        let delayed = if owner.contains(':') { broken } else { 0 };
        excuses.get(owner).copied().unwrap_or(0) + delayed
    };
    let left = seen.left.iter();
    let (lost, lost_by_scripts): (Vec<_>, Vec<_>) = left
        .filter(|(owner, times)| times.len() > allowed(owner))
        .partition(|(owner, _)| fleet.protected || !owner.contains(':'));
    let (served, by_scripts) = (seen.served.len(), lost_by_scripts.len());
    println!("served {served}, places lost to scripts by {by_scripts} owners");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(seen.violations.is_empty(), "{}", seen.violations.join("\n"));
    assert!(lost.is_empty(), "lost their places: {lost:#?}");
    assert!(seen.served.len() >= fleet.wanted);
}

#[test]
#[ignore = "takes minutes: make test-all"]
fn a_mixed_fleet_shares_a_lock_fairly() {
    let releases = releases();
    let releases: Vec<&str> = releases.iter().map(String::as_str).collect();
    let wanted = if is_long_run() { 500 } else { 400 };
    // Each release meets the next one; of two there is one meeting.
    let meetings = if releases.len() == 2 {
        1
    } else {
        releases.len()
    };
    for interception in INTERCEPTIONS {
        let mut next = releases.iter().cycle().skip(1);
        for (number, release) in releases.iter().take(meetings).enumerate() {
            let other = next.next().expect("a release");
            run(
                *interception,
                [release, other],
                wanted,
                seed() + number as u64,
            );
        }
    }
}

/// `FLEET_SEED`, to repeat a failed run.
fn seed() -> u64 {
    let seed = std::env::var("FLEET_SEED").ok();
    seed.and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Waits until a killed JVM has been replaced, or the fleet is done.
pub fn wait_for_replacement(fleet: &Fleet, jvm: usize, old: &Arc<Driver>) {
    wait_until("another JVM is there", || {
        let now = fleet.jvms[jvm].read().expect("no panic elsewhere");
        !Arc::ptr_eq(&now, old) || !fleet.goes_on()
    });
}
