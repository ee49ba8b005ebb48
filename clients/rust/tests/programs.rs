//! Rows 54 to 59, 61 and 66: many callers, child processes, messages.

use std::collections::HashSet;
use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use fairlock::{Error, Options, aio};

use crate::scripts;
use crate::support::*;

fn one() -> Servers {
    Servers::new(&["one"])
}

#[test]
fn r54_threads_hold_it_in_the_order_of_their_calls() {
    let one = one();
    let view = one.view("a");
    for count in [10, 100] {
        let (locks, name) = (Kind::Threads.locks(&one, "a"), name());
        let first = locks.get(&name).unwrap();
        let mut waiting = Vec::new();
        for before in 1..=count {
            waiting.push(locks.begin(&name, |_| ()));
            until("it is in the queue", || view.queue(&name).len() == before);
        }
        first.release().unwrap();
        for each in waiting {
            each.held().release().unwrap();
        }
    }
}

#[test]
fn r54_tasks_hold_it_in_the_order_of_their_calls() {
    let one = one();
    for count in [10, 1000] {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (url, order) = (one.url("a"), Arc::new(Mutex::new(Vec::new())));
        runtime.block_on(async {
            let client = redis::Client::open(url).unwrap();
            let locks = Arc::new(aio::Locks::new(&client).unwrap());
            let mut tasks = tokio::task::JoinSet::new();
            for each in 0..count {
                let (locks, order) = (locks.clone(), order.clone());
                tasks.spawn(async move {
                    let held = locks.lock("orders").acquire().await.unwrap();
                    order.lock().unwrap().push(each);
                    held.release().await.unwrap();
                });
            }
            tasks.join_all().await;
            locks.close().await;
        });
        let order = order.lock().unwrap();
        assert!(order.iter().copied().eq(0..count), "{order:?}");
    }
}

/// The tasks of the children of these tests.
#[test]
#[ignore = "begun by other tests"]
fn child() {
    let told = std::env::var("CHILD").unwrap();
    let [what, kind, url, name] = told.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{told}");
    };
    let kind = if kind == "Tasks" {
        Kind::Tasks
    } else {
        Kind::Threads
    };
    match what {
        "hold" => hold_in_a_child(kind, url, name),
        "end" => end_before_the_release(url, name),
        "twice" => scripts::hold_twice(kind, url, name),
        "wait" => scripts::wait_for_ever(kind, url, name),
        "descriptors" => run_out_of_descriptors(kind, url, name),
        _ => hold_one_after_another(kind, url, name),
    }
}

fn hold_in_a_child(kind: Kind, url: &str, name: &str) {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = open.filter_map(|each| std::fs::read_link(each.unwrap().path()).ok());
    let sockets = links.filter(|link| link.to_string_lossy().starts_with("socket:"));
    println!("\nchild: {} sockets", sockets.count());
    let locks = kind.at(url, Options::default());
    assert!(
        locks
            .try_acquire(&format!("{name}:parent"))
            .unwrap()
            .is_none()
    );
    let held = locks.get(name).unwrap();
    println!("child: token {}", held.token());
    held.release().unwrap();
}

#[test]
fn r55_children_have_connections_of_their_own() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        locks.get(&name).unwrap().release().unwrap();
        let mine = locks.get(&format!("{name}:parent")).unwrap();
        let children: Vec<_> = (0..4)
            .map(|_| child_of("", "hold", kind, &one, &name))
            .collect();
        let mut tokens = HashSet::new();
        for child in children {
            let (lines, _) = said(child);
            assert_eq!(lines[0], "0 sockets");
            assert!(tokens.insert(lines[1].clone()), "{lines:?}");
        }
        mine.renew().unwrap();
        assert_eq!(
            view.number(&format!("{name}:parent"), "token"),
            mine.token()
        );
        mine.release().unwrap();
    });
}

const WAITERS: usize = 80;

fn run_out_of_descriptors(kind: Kind, url: &str, name: &str) {
    let view = View::at(url);
    let locks = kind.at(url, Options::default());
    let held = locks.acquire(name, |all| all.lease = ms(6000)).unwrap();
    let mut waiting = Vec::new();
    for before in 1..=WAITERS {
        waiting.push(locks.begin(name, |_| ()));
        until("it is in the queue", || view.queue(name).len() == before);
    }
    assert!(
        std::fs::File::open("/dev/null").is_err(),
        "descriptors are left"
    );
    let renewed = view.calls("renew");
    until("it is renewed", || view.calls("renew") > renewed + 1);
    held.release().unwrap();
    for each in waiting {
        each.held().release().unwrap();
    }
    println!("\nchild: all had it");
}

#[test]
fn r56_a_process_without_descriptors() {
    let one = one();
    both(|kind| {
        let child = child_of("ulimit -n 60;", "descriptors", kind, &one, &name());
        assert_eq!(said(child).0, ["all had it"]);
    });
}

#[test]
fn r57_what_is_no_address_is_refused() {
    for wrong in [
        vec!["not an address"],
        vec!["redis+unix:///tmp/socket"],
        vec![],
    ] {
        let errors = [
            fairlock::Locks::sentinel(wrong.clone(), "locks", None).err(),
            aio::Locks::sentinel(wrong.clone(), "locks", None).err(),
            fairlock::Locks::cluster(wrong.clone()).err(),
            aio::Locks::cluster(wrong).err(),
        ];
        for error in errors {
            let error = error.unwrap();
            assert!(matches!(error, Error::Argument(_)));
            assert!(error.to_string().contains("such as redis://host:6379"));
        }
    }
}

#[test]
fn r58_an_empty_name_is_refused() {
    let one = one();
    both(|kind| {
        let locks = kind.locks(&one, "a");
        let errors = [
            locks.get("").err(),
            locks.try_acquire("").err(),
            locks.info("").err(),
        ];
        for error in errors {
            assert!(matches!(error, Some(Error::Argument(_))));
        }
        assert!(one.view("a").clients().is_empty());
    });
}

#[test]
fn r59_errors_say_what_happened() {
    let one = one();
    let (view, address) = (one.view("a"), format!("127.0.0.1:{}", one.ports["a"]));
    let _: String = view.run(&[&"CONFIG", &"SET", &"requirepass", &"right"]);
    let hints = [
        ("", "NOAUTH", "password"),
        (":wrong@", "WRONGPASS", "password"),
    ];
    both(|kind| {
        for (user, code, hint) in hints {
            let url = format!("redis://{user}{address}");
            let start = Instant::now();
            let error = kind.at(&url, Options::default()).get("orders").err();
            let error = error.unwrap();
            assert!(start.elapsed() < AT_ONCE);
            assert!(matches!(error, Error::Refused(_)) && error.code() == Some(code));
            let text = error.to_string();
            assert!(text.starts_with(code) && text.contains(hint), "{text}");
            assert!(text.contains("orders") && text.contains(&address), "{text}");
        }
    });
    one.tell("kill a");
    both(|kind| {
        let locks = kind.locks(&one, "a");
        let error = locks.acquire("orders", |all| all.wait = Some(ms(1500)));
        let error = error.err().unwrap();
        assert!(matches!(error, Error::NotInTime(..)));
        let cause = error.source().unwrap().to_string();
        assert!(
            cause.starts_with(&format!("{address}: Connection refused")),
            "{cause}"
        );
        let text = error.to_string();
        assert_eq!(text, format!("orders not acquired within 1.5 s: {cause}"));
    });
}

#[test]
fn r61_who_holds_it_and_who_waits() {
    let one = one();
    let view = one.view("a");
    let limit = (!by_scripts()).then_some(3);
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let free = locks.info(&name).unwrap();
        assert_eq!((free.owner, free.lease, free.token), (None, None, None));
        assert_eq!((free.holders, free.waiting, free.limit), (0, 0, None));
        let held = locks.get(&name).unwrap();
        let waiting = locks.begin(&name, |all| all.limit = limit);
        view.waits(&name, 1);
        let info = locks.info(&name).unwrap();
        assert_eq!(info.owner, Some(held.owner()));
        assert_eq!(info.token, Some(held.token()));
        assert!((20..=30).contains(&info.lease.unwrap().as_secs()));
        assert_eq!((info.holds, info.holders, info.waiting), (1, 1, 1));
        assert_eq!((info.session, info.limit), (false, Some(1)));
        held.release().unwrap();
        let second = waiting.held();
        if by_scripts() {
            return;
        }
        let more = |all: &mut Options| (all.limit, all.session) = (limit, true);
        let third = locks.acquire(&name, more).unwrap();
        let info = locks.info(&name).unwrap();
        assert_eq!((info.holders, info.limit), (2, Some(3)));
        second.release().unwrap();
        let info = locks.info(&name).unwrap();
        assert_eq!((info.session, info.owner), (true, Some(third.owner())));
    });
}

fn hold_one_after_another(kind: Kind, url: &str, name: &str) {
    // Renewals are due all the time, also while locks are released.
    let options = Options {
        lease: ms(9000),
        ..Options::default()
    };
    let locks = kind.at(url, options);
    let waiting: Vec<_> = (0..20).map(|_| locks.begin(name, |_| ())).collect();
    std::thread::scope(|scope| {
        for each in waiting {
            scope.spawn(|| {
                let held = each.held();
                held.renew().unwrap();
                pause(50);
                held.release().unwrap();
            });
        }
    });
}

#[test]
fn r66_nothing_is_left_on_standard_error() {
    let one = one();
    both(|kind| {
        let child = child_of("", "many", kind, &one, &name());
        let errors = said(child).1;
        let warned = errors.ends_with("to refuse\n") && errors.lines().count() == 1;
        assert!(
            if by_scripts() {
                warned
            } else {
                errors.is_empty()
            },
            "{errors}"
        );
    });
}

fn end_before_the_release(url: &str, name: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().unwrap();
    runtime.block_on(async {
        let client = redis::Client::open(url).unwrap();
        let locks = aio::Locks::new(&client).unwrap();
        let _held = locks.lock(name).acquire().await.unwrap();
    });
}

#[test]
fn a_release_that_its_runtime_does_not_do_is_told() {
    let (one, name) = (one(), name());
    let (_, errors) = said(child_of("", "end", Kind::Tasks, &one, &name));
    assert!(
        errors.contains(&name) && errors.contains("release()"),
        "{errors}"
    );
    assert!(!one.view("a").is_free(&name));
}
