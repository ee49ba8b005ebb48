//! What is idiom in Rust; the rows of the table are tested by clients/conformance.

#![allow(
    missing_docs,
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::indexing_slicing
)] // Names of tests are sentences.

use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use fairlock_client::{Cause, Event, Kind, Locks, Options};
use redis::{Client, FromRedisValue};

const FIRST: &str = "the body's own";

/// Of the server that scripts/clients/rust starts for all tests, which run one after another.
fn client() -> Client {
    let port = std::env::var("FAIRLOCK_PORT").unwrap();
    let user = std::env::var("RENEWS").unwrap_or("default".into());
    Client::open(format!("redis://{user}:any@127.0.0.1:{port}")).unwrap()
}

fn run<T: FromRedisValue>(words: &str) -> T {
    let mut command = redis::Cmd::new();
    command.arg(words.split(' ').collect::<Vec<_>>());
    command
        .query(&mut client().get_connection().unwrap())
        .unwrap()
}

fn locks() -> Locks {
    Locks::new(client()).unwrap()
}

fn is_free(locks: &Locks) -> bool {
    locks.info("orders").wait().unwrap().owner.is_none()
}

#[test]
fn a_guard_that_is_dropped_releases_also_by_an_early_return_and_a_panic() {
    let locks = locks();
    let body = || -> Result<(), &str> {
        let _held = locks.acquire("orders", None).wait().unwrap();
        assert!(!is_free(&locks));
        Err(FIRST)
    };
    assert_eq!(body(), Err(FIRST));
    assert!(is_free(&locks));
    let panicking = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _held = locks.acquire("orders", None).wait().unwrap();
        std::panic::resume_unwind(Box::new(FIRST));
    }));
    assert!(panicking.is_err() && is_free(&locks));
}

#[tokio::test]
async fn a_guard_of_tokio_that_is_dropped_is_released_by_a_task() {
    let locks = locks();
    drop(locks.acquire("orders", None).await.unwrap());
    let wait = Some(Duration::from_secs(60));
    let held = locks.acquire(
        "orders",
        Options {
            wait,
            ..Default::default()
        },
    );
    held.await.unwrap().release().await.unwrap();
}

/// Nothing of the package runs meanwhile in the runtime's only thread.
#[tokio::test]
async fn a_task_that_does_not_yield_can_tell_that_its_lease_is_over() {
    let locks = locks();
    let lease = Duration::from_millis(300);
    let options = Options {
        lease,
        ..Default::default()
    };
    let held = locks.acquire("orders", options).await.unwrap();
    std::thread::sleep(lease);
    assert!(held.is_lost());
    let error = held.release().await.unwrap_err();
    assert_eq!(error.kind, Kind::LockLost(Cause::Lease));
}

#[tokio::test]
async fn a_thousand_tasks_hold_it_in_the_order_of_their_calls() {
    let locks = Arc::new(locks());
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for each in 0..1000 {
        let (locks, order) = (locks.clone(), order.clone());
        tasks.spawn(async move {
            let held = locks.acquire("orders", None).await.unwrap();
            order.lock().unwrap().push(each);
            held.release().await.unwrap();
        });
    }
    tasks.join_all().await;
    let order = order.lock().unwrap();
    assert!(order.iter().copied().eq(0..1000), "{order:?}");
}

#[test]
#[allow(unsafe_code)]
fn in_a_forked_child_nothing_waits_and_the_lock_is_the_parents() {
    unsafe extern "C" {
        safe fn fork() -> i32;
        safe fn alarm(seconds: u32) -> u32;
        safe fn waitpid(child: i32, status: &mut i32, options: i32) -> i32;
    }
    let locks = locks();
    let held = locks.acquire("orders", None).wait().unwrap();
    let child = fork();
    if child == 0 {
        alarm(10); // It ends a child that waits.
        drop(held);
        let error = locks.acquire("orders", None).wait().err().unwrap();
        std::process::exit(i32::from(error.kind != Kind::Argument));
    }
    let mut status = -1;
    assert_eq!(waitpid(child, &mut status, 0), child);
    assert_eq!(status, 0);
    held.release().wait().unwrap();
}

#[test]
fn a_loss_is_told_also_where_nobody_reads_what_is_printed() {
    if std::env::var("RENEWS").is_ok() {
        let lease = Duration::from_millis(500);
        let options = Options {
            lease,
            ..Default::default()
        };
        let held = locks().acquire("orders", options).wait().unwrap();
        run::<()>("ACL SETUSER fading -@all");
        assert!(held.lost(Duration::from_secs(60)).wait().is_err());
        return;
    }
    run::<()>("ACL SETUSER fading on nopass ~* &* +@all");
    let (_, nobody) = std::io::pipe().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap()); // This test once more.
    let test = "a_loss_is_told_also_where_nobody_reads_what_is_printed";
    child.args([test, "--exact", "--nocapture"]).stderr(nobody);
    let output = child.env("RENEWS", "fading").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_caller_that_is_no_task_cannot_be_reentrant() {
    let client = Client::open("redis://localhost:1").unwrap();
    let locks = Locks::new(client).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reentrant = Options {
        reentrant: true,
        ..Default::default()
    };
    let refused = runtime.block_on(async { locks.acquire("orders", reentrant).await });
    assert_eq!(refused.err().unwrap().kind, Kind::Argument);
}

#[test]
fn renewing_by_hand_fails_when_the_lease_ends_also_behind_a_renewal_under_way() {
    let locks = locks();
    for renew in [true, false] {
        let options = Options {
            lease: Duration::from_secs(2),
            renew,
            ..Default::default()
        };
        let held = locks.acquire("orders", options).wait().unwrap();
        run::<()>("CLIENT PAUSE 600000 WRITE");
        while renew && !run::<String>("INFO clients").contains("blocked_clients:1") {}
        let failed = held.renew(None).wait().unwrap_err();
        assert_eq!(failed.kind, Kind::LockLost(Cause::Lease));
        run::<()>("CLIENT UNPAUSE");
    }
}

#[test]
fn a_hook_that_would_wait_for_its_own_locks_is_refused() {
    let own = Arc::<OnceLock<Locks>>::default();
    let (sender, refused) = std::sync::mpsc::channel();
    let its = own.clone();
    let hook = move |_: &Event| drop(sender.send(its.get().unwrap().info("orders").wait().err()));
    let options = Options {
        on_acquired: Some(Arc::new(hook)),
        ..Default::default()
    };
    let locks = own.get_or_init(|| Locks::with(client(), options).unwrap());
    let held = locks.acquire("orders", None).wait().unwrap();
    held.release().wait().unwrap();
    assert_eq!(refused.recv().unwrap().unwrap().kind, Kind::Argument);
}

#[test]
fn a_locks_of_tokio_goes_on_in_another_runtime_when_the_first_has_ended() {
    let locks = locks();
    for _ in 0..2 {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let held = locks.acquire("orders", None).await.unwrap();
            held.release().await.unwrap();
        });
    }
}

#[tokio::test]
async fn an_idle_subscription_ends_after_a_minute_in_which_nothing_happens() {
    let channels = || run::<Vec<String>>("PUBSUB CHANNELS *idle*");
    let locks = locks();
    let held = locks.acquire("idle", None).await.unwrap();
    let waiting = tokio::spawn(locks.acquire("idle", None));
    while locks.info("idle").await.unwrap().waiting == 0 {}
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(channels().len(), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    tokio::time::resume();
    let ended = async {
        while !channels().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ended)
        .await
        .unwrap();
}
