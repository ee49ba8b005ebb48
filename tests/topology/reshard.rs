//! Slots move by redis-cli's own `--cluster reshard`, under clients of a real cluster library.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use fairlock_testing::cluster::Cluster;
use fairlock_testing::{give_up, wait_until};
use redis::cluster::ClusterClient;

use crate::slots::{Migration, hold, two_masters};

/// Locks in the first slots of the first node, which are those that move.
const LOCKS: [&str; 6] = [
    "lock-43",
    "lock-306",
    "lock-747",
    "lock-801",
    "lock-1068",
    "lock-1099",
];
/// How many slots move.
const SLOTS: usize = 100;
const WORKERS: usize = 12;

/// What all workers see.
#[derive(Default)]
struct Load {
    taken: [AtomicBool; LOCKS.len()],
    rounds: AtomicUsize,
    stop: AtomicBool,
}

/// Takes one lock after the other, and checks that no other client has it.
fn work(load: &Load, cluster: &ClusterClient, worker: usize) {
    let mut connection = cluster.get_connection().expect("a connection");
    let mut number = worker;
    while !load.stop.load(Ordering::Relaxed) {
        number += 1;
        let lock = LOCKS[number % LOCKS.len()];
        let is_taken = &load.taken[number % LOCKS.len()];
        // With ONCE a request is safe to send again, as the library does.
        let mut ask = redis::cmd("FAIRLOCK.ACQUIRE");
        ask.arg(lock)
            .arg(worker)
            .arg("ONCE")
            .arg("LEASE")
            .arg(600_000);
        let token: i64 = ask.query(&mut connection).expect("a token");
        assert!(token > 0);
        assert!(
            !is_taken.swap(true, Ordering::SeqCst),
            "{lock} has two holders"
        );
        is_taken.store(false, Ordering::SeqCst);
        let mut release = redis::cmd("FAIRLOCK.RELEASE");
        release.arg(lock).arg(worker);
        let left: i64 = release.query(&mut connection).expect("released");
        assert_eq!(left, 0);
        load.rounds.fetch_add(1, Ordering::Relaxed);
    }
}

/// Ends the load however the test ends.
struct Ending<'l>(&'l Load);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

fn reshard(cluster: &Cluster, from: usize, to: usize) {
    let [from, to] = [from, to].map(|node| &cluster.masters[node]);
    let output = Command::new("redis-cli")
        .args(["--cluster", "reshard", &from.address(), "--cluster-yes"])
        .args(["--cluster-from", &from.id, "--cluster-to", &to.id])
        .args(["--cluster-slots", &SLOTS.to_string()])
        .stdin(Stdio::null())
        .output()
        .expect("redis-cli is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !text.contains("[ERR]"),
        "{text}{errors}"
    );
}

/// Runs `body` on a cluster whose locks are in use. `body` gets a function that waits until they have been used some
/// more.
fn under_load(cluster: &Cluster, body: impl FnOnce(&dyn Fn(&str))) {
    let nodes = cluster
        .masters
        .iter()
        .map(|node| format!("redis://{}/", node.address()));
    let client = ClusterClient::builder(nodes)
        .retries(1000)
        .response_timeout(give_up())
        .min_retry_wait(1)
        .max_retry_wait(20);
    let client = client.build().expect("valid addresses");
    let load = Load::default();
    for lock in LOCKS {
        assert!(cluster.slot(lock) < SLOTS, "{lock}");
    }
    thread::scope(|scope| {
        let _ending = Ending(&load);
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                let (load, client) = (&load, &client);
                scope.spawn(move || work(load, client, worker))
            })
            .collect();
        body(&|what| {
            let before = load.rounds.load(Ordering::Relaxed);
            wait_until(what, || {
                load.rounds.load(Ordering::Relaxed) > before + 20 * WORKERS
                    || workers.iter().any(thread::ScopedJoinHandle::is_finished)
            });
        });
    });
    let blocked = cluster.masters.iter().map(|node| node.blocked());
    assert_eq!(blocked.sum::<usize>(), 0);
}

#[test]
fn locks_that_are_used_move_with_their_slots() {
    let cluster = Cluster::start(2, 0, &[]);
    under_load(&cluster, |more| {
        more("they work");
        reshard(&cluster, 0, 1);
        more("they work at the other node");
        reshard(&cluster, 1, 0);
        more("they work again");
    });
}

#[test]
fn locks_that_are_used_move_with_slots_that_move_as_a_whole() {
    let Some(cluster) = two_masters(&[]) else {
        return;
    };
    let slots = 0..=SLOTS - 1;
    under_load(&cluster, |more| {
        more("they work");
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            hold(&cluster.masters[from], true);
            let migration = Migration::of_slots(&cluster, &slots, from, to);
            migration.is_held();
            more("they work while the slots are on their way");
            migration.cancel();
            more("they work where they were");
            Migration::of_slots(&cluster, &slots, from, to).finish();
            more("they work at the other node");
        }
    });
    assert_eq!(cluster.masters[0].run("DBSIZE"), "0");
}
