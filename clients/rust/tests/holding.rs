//! Rows 01 to 30, 37 to 46, 50 and 51: one server.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fairlock::{Cause, Error, Event, Hook, Hooks, Module, Options};

use crate::support::*;

fn one() -> Servers {
    Servers::new(&["one"])
}

fn lasting(lease: Duration) -> Options {
    Options {
        lease,
        ..Options::default()
    }
}

#[test]
fn r01_a_free_lock_is_acquired_and_released() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        assert!(held.token() > 0);
        assert_eq!(view.number(&name, "token"), held.token());
        held.release().unwrap();
        assert!(view.is_free(&name));
        let second = locks.get(&name).unwrap();
        assert!(second.token() > held.token());
    });
}

#[test]
fn r02_a_guard_that_is_dropped_releases() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        assert_eq!(view.owner(&name), Some(held.owner()));
        drop(held);
        if kind == Kind::Threads {
            assert!(view.is_free(&name)); // For tasks another task releases.
        }
        until("it is free", || view.is_free(&name));
        let body = || -> Result<(), String> {
            let _held = locks.get(&name).unwrap();
            Err("the body's own".to_owned())
        };
        assert_eq!(body(), Err("the body's own".to_owned()));
        until("it is free", || view.is_free(&name));
    });
}

#[test]
fn r03_the_owner_names_the_machine_and_is_new_each_time() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        let owner = view.owner(&name).unwrap();
        let parts: Vec<_> = owner.split(':').collect();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(parts[0], host.trim());
        assert_eq!(parts[1], std::process::id().to_string());
        assert_eq!(
            parts[2].split('-').map(str::len).collect::<Vec<_>>(),
            [8, 4, 4, 4, 12]
        );
        assert!(
            parts[2]
                .chars()
                .all(|each| each == '-' || "0123456789abcdef".contains(each))
        );
        let again = locks.acquire(&name, |all| all.wait = Some(ms(50)));
        assert!(matches!(again, Err(Error::NotInTime(..))));
        held.release().unwrap();
        let mine = locks
            .acquire(&name, |all| all.owner = Some("the nightly job".to_owned()))
            .unwrap();
        assert_eq!(view.owner(&name).unwrap(), "the nightly job");
        mine.release().unwrap();
    });
}

#[test]
fn r04_no_time_to_wait() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        let other = locks.acquire(&name, |all| all.wait = Some(Duration::ZERO));
        assert!(matches!(other, Err(Error::NotInTime(..))));
        assert!(locks.try_acquire(&name).unwrap().is_none());
        assert!(view.queue(&name).is_empty());
        held.release().unwrap();
        assert!(locks.try_acquire(&name).unwrap().unwrap().token() > 0);
    });
}

#[test]
fn r05_the_wait_runs_out() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let _held = locks.get(&name).unwrap();
        let start = Instant::now();
        let late = locks.acquire(&name, |all| all.wait = Some(ms(300)));
        assert!(matches!(late, Err(Error::NotInTime(..))));
        assert!(start.elapsed() >= ms(300));
        assert!(view.queue(&name).is_empty());
    });
}

#[test]
fn r06_first_come_first_served() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let first = locks.get(&name).unwrap();
        let mut waiting = Vec::new();
        for count in 1..=3 {
            waiting.push(locks.begin(&name, |_| ()));
            view.waits(&name, count);
        }
        first.release().unwrap();
        let mut last = first.token();
        for each in waiting {
            let held = each.held();
            assert!(held.token() > last);
            last = held.token();
            held.release().unwrap();
        }
    });
}

#[test]
fn r07_the_next_one_has_it_at_once() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.with(&one, "a", lasting(LONG)), name());
        let first = locks.get(&name).unwrap();
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        let start = Instant::now();
        first.release().unwrap();
        let _second = waiting.held();
        assert!(start.elapsed() < AT_ONCE);
    });
}

/// The client has no read timeout but the library's own for answers, half a second.
#[test]
fn r08_a_wait_outlives_timeouts() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        for wait in [None, Some(LONGEST)] {
            let options = Options {
                wait,
                command_timeout: ms(500),
                ..Options::default()
            };
            let (locks, name) = (kind.with(&one, "a", options), name());
            let held = locks.get(&name).unwrap();
            let mut waiting = locks.begin(&name, |_| ());
            view.waits(&name, 1);
            pause(1000);
            assert!(!waiting.is_done());
            held.release().unwrap();
            waiting.held().release().unwrap();
        }
    });
}

/// Only `close` cancels a thread's wait.
#[test]
fn r09_cancelling_leaves_the_queue() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (holder, locks, name) = (kind.locks(&one, "a"), kind.locks(&one, "a"), name());
        let held = holder.get(&name).unwrap();
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        if kind == Kind::Tasks {
            waiting.cancel();
            view.waits(&name, 0); // By a task.
        } else {
            locks.close();
            assert_eq!(waiting.result().err(), Some(Error::Closed));
            assert!(view.queue(&name).is_empty());
        }
        held.release().unwrap();
        assert!(view.is_free(&name));
    });
}

#[test]
fn r10_a_grant_on_its_way_to_one_that_was_cancelled_is_given_back() {
    let one = one();
    let view = one.view("a");
    let options = Options {
        command_timeout: ms(500),
        ..lasting(LONG)
    };
    let (locks, name) = (Kind::Tasks.with(&one, "proxy", options), name());
    let first = locks.get(&name).unwrap();
    let waiting = locks.begin(&name, |_| ());
    view.waits(&name, 1);
    if by_scripts() {
        // It listens, and has asked once more: its next request is the one that is granted.
        until("it sleeps", || view.calls("acquire") > 2);
        pause(200);
    }
    one.tell("freeze");
    let _: i64 = view.run(&[&"FAIRLOCK.RELEASE", &name, &first.owner()]);
    until("granted", || {
        view.owner(&name)
            .is_some_and(|owner| owner != first.owner())
    });
    waiting.cancel();
    one.tell("thaw");
    within(AT_ONCE, "it is free", || view.is_free(&name));
}

#[test]
fn r11_the_lease_is_renewed() {
    both_at_once(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let held = locks.acquire(&name, |all| all.lease = ms(9000)).unwrap();
        pause(19_000);
        assert_eq!(view.number(&name, "token"), held.token());
        assert!(!held.is_lost());
    });
}

#[test]
fn r12_without_renewal_the_lease_ends() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name, start) = (kind.locks(&one, "a"), name(), Instant::now());
        let held = locks
            .acquire(&name, |all| (all.lease, all.renew) = (ms(400), false))
            .unwrap();
        assert_eq!(held.lost(), Cause::Lease);
        assert!(start.elapsed() >= ms(300));
        until("it is free", || view.is_free(&name));
    });
}

#[test]
fn r13_renew_sets_the_lease() {
    both_at_once(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        assert_eq!(
            held.renew_for(Duration::from_secs(90)),
            Ok(Duration::from_secs(90))
        );
        assert!((80_001..=90_000).contains(&view.number(&name, "lease")));
        assert_eq!(held.renew_for(ms(3000)), Ok(ms(3000)));
        pause(7000); // It is renewed by the new lease.
        assert!(!held.is_lost());
        held.release().unwrap();
        let held = locks.acquire(&name, |all| all.renew = false).unwrap();
        assert_eq!(held.renew(), Ok(Duration::from_secs(30)));
        assert!((20_001..=30_000).contains(&view.number(&name, "lease")));
    });
}

#[test]
fn r14_nothing_is_left_after_the_release() {
    both_at_once(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let held = locks.acquire(&name, |all| all.lease = ms(9000)).unwrap();
        until("renewed", || view.calls("renew") > 1);
        held.release().unwrap();
        let renewals = view.calls("renew");
        pause(6300); // Two more would have been due.
        assert_eq!(view.calls("renew"), renewals);
        drop((held, locks));
        until("no connection is left", || view.clients().is_empty());
    });
}

/// The guard is dropped, and its release does not arrive; and a task is aborted.
#[test]
fn r15_renewal_does_not_outlive_the_holder() {
    both(|kind| {
        let one = one();
        let options = Options {
            release_timeout: ms(100),
            command_timeout: ms(100),
            ..lasting(ms(1500))
        };
        let (view, locks, name) = (one.view("a"), kind.with(&one, "proxy", options), name());
        let held = locks.get(&name).unwrap();
        one.tell("cut");
        drop(held);
        one.tell("mend");
        until("its lease has ended", || view.is_free(&name));
    });
}

#[test]
fn r16_a_lock_that_is_broken_is_lost() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.acquire(&name, |all| all.lease = ms(3000)).unwrap();
        let _: i64 = view.run(&[&"FAIRLOCK.BREAK", &name]);
        assert_eq!(held.lost(), Cause::NotHeld);
        let error = held.release().unwrap_err();
        assert_eq!(error.cause(), Some(Cause::NotHeld));
        assert_eq!(error.code(), Some("NOTHELD"));
    });
}

#[test]
fn r17_the_lock_of_another_is_left_alone() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.acquire(&name, |all| all.lease = ms(3000)).unwrap();
        let _: i64 = view.run(&[&"DEL", &name]);
        let token: i64 = view.run(&[&"FAIRLOCK.ACQUIRE", &name, &"another"]);
        assert_eq!(held.lost(), Cause::NotHeld);
        assert_eq!(held.release().unwrap_err().cause(), Some(Cause::NotHeld));
        assert_eq!(view.number(&name, "token"), token);
    });
}

#[test]
fn r18_a_server_that_is_silent() {
    both(|kind| {
        let one = one();
        let (locks, name) = (kind.locks(&one, "proxy"), name());
        let held = locks.acquire(&name, |all| all.lease = ms(1500)).unwrap();
        let start = Instant::now();
        one.tell("freeze");
        assert_eq!(held.lost(), Cause::Lease);
        // The last renewal may have been answered just before.
        assert!(start.elapsed() < ms(1500) + AT_ONCE);
        one.tell("thaw");
    });
}

#[test]
fn a_grant_that_arrives_when_its_lease_is_over_is_none() {
    for renew in [true, false] {
        both(|kind| {
            let one = one();
            let (view, locks, name) = (one.view("a"), kind.locks(&one, "proxy"), name());
            let lease = LONG.as_millis().to_string();
            let _: i64 = view.run(&[&"FAIRLOCK.ACQUIRE", &name, &"first", &"LEASE", &lease]);
            let mut waiting = locks.begin(&name, |all| (all.lease, all.renew) = (ms(1000), renew));
            view.waits(&name, 1);
            one.tell("freeze");
            let _: i64 = view.run(&[&"FAIRLOCK.RELEASE", &name, &"first"]);
            // Another gets the lock after that lease.
            let token: i64 = view.run(&[&"FAIRLOCK.ACQUIRE", &name, &"second", &"LEASE", &lease]);
            one.tell("thaw");
            until("it waits again, or takes itself for the holder", || {
                waiting.is_done() || !view.queue(&name).is_empty()
            });
            assert!(!waiting.is_done());
            let _: i64 = view.run(&[&"FAIRLOCK.RELEASE", &name, &"second"]);
            assert!(waiting.held().token() > token);
        });
    }
}

#[test]
fn r19_a_lost_lock_is_not_renewed() {
    let one = one();
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks
            .acquire(&name, |all| (all.lease, all.renew) = (ms(200), false))
            .unwrap();
        assert_eq!(held.lost(), Cause::Lease);
        assert_eq!(held.renew().unwrap_err().cause(), Some(Cause::Lease));
    });
}

fn session(all: &mut Options) {
    (all.session, all.lease) = (true, LONGEST);
}

#[test]
fn r20_the_server_renews_a_session() {
    both_at_once(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let held = locks
            .acquire(&name, |all| (all.session, all.lease) = (true, ms(3000)))
            .unwrap();
        assert_eq!(view.number(&name, "session"), 1);
        pause(7000);
        assert_eq!(view.number(&name, "token"), held.token());
        assert!(!held.is_lost());
        held.release().unwrap();
        assert!(view.is_free(&name));
    });
}

#[test]
fn r21_a_session_ends_with_its_connection() {
    both(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let held = locks
            .acquire(&name, |all| {
                session(all);
                all.sync_timeout = Duration::ZERO;
            })
            .unwrap();
        let clients = view.clients();
        let own = clients
            .iter()
            .find(|line| line.contains(" cmd=fairlock.acquire"))
            .unwrap();
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        let start = Instant::now();
        let _: i64 = view.run(&[&"CLIENT", &"KILL", &"ID", &client_id(own)]);
        assert_eq!(held.lost(), Cause::Connection);
        let _second = waiting.held();
        assert!(start.elapsed() < AT_ONCE);
        assert_eq!(held.release().unwrap_err().cause(), Some(Cause::Connection));
    });
}

#[test]
fn r22_a_session_that_is_broken_is_lost() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks
            .acquire(&name, |all| (all.session, all.lease) = (true, ms(3000)))
            .unwrap();
        let _: i64 = view.run(&[&"FAIRLOCK.BREAK", &name]);
        assert_eq!(held.lost(), Cause::NotHeld);
    });
}

#[test]
fn r23_a_session_waits_and_is_released_at_once() {
    both(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let first = locks.get(&name).unwrap();
        if kind == Kind::Tasks {
            let cancelled = locks.begin(&name, session);
            view.waits(&name, 1);
            cancelled.cancel();
            view.waits(&name, 0);
        }
        let waiting = locks.begin(&name, session);
        view.waits(&name, 1);
        first.release().unwrap();
        let held = waiting.held();
        assert_eq!(view.number(&name, "session"), 1);
        let before = view.clients().len();
        held.release().unwrap();
        assert!(view.is_free(&name));
        until("its connection is closed", || {
            view.clients().len() == before - 1
        });
    });
}

/// The user's client has one connection at most, which the package does not use.
#[test]
fn r24_waiters_do_not_keep_the_holder_from_releasing() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.with(&one, "a", lasting(LONG)), name());
        let held = locks.get(&name).unwrap();
        let mut waiting: Vec<_> = (0..10).map(|_| locks.begin(&name, |_| ())).collect();
        view.waits(&name, 10);
        held.release().unwrap();
        while !waiting.is_empty() {
            until("the next one has it", || {
                waiting.iter_mut().any(Begun::is_done)
            });
            let next = waiting.iter_mut().position(|each| each.is_done()).unwrap();
            waiting.remove(next).held().release().unwrap();
        }
        assert!(view.is_free(&name));
    });
}

#[test]
fn r25_a_failing_release_does_not_hide_the_bodys_error() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let body = || -> Result<(), String> {
            let _held = locks.get(&name).unwrap();
            let _: i64 = view.run(&[&"FAIRLOCK.BREAK", &name]);
            Err("the body's own".to_owned())
        };
        assert_eq!(body(), Err("the body's own".to_owned()));
    });
}

#[test]
fn r26_a_lost_lock_is_told_at_the_end() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        let _: i64 = view.run(&[&"FAIRLOCK.BREAK", &name]);
        assert_eq!(held.release().unwrap_err().cause(), Some(Cause::NotHeld));
        let held = locks.get(&name).unwrap();
        held.release().unwrap();
        let other = locks.get(&name).unwrap();
        held.release().unwrap();
        assert_eq!(view.owner(&name), Some(other.owner()));
    });
}

#[test]
fn r27_the_reply_to_release_is_lost() {
    both(|kind| {
        let one = one();
        let (locks, name) = (kind.locks(&one, "proxy"), name());
        let held = locks.get(&name).unwrap();
        one.tell(&format!("lose {}", request("FAIRLOCK.RELEASE")));
        held.release().unwrap();
        assert_eq!(one.tell("lost"), "1");
        assert!(one.view("a").is_free(&name));
    });
}

#[test]
fn r28_the_reply_to_acquire_is_lost() {
    both(|kind| {
        for is_taken in [false, true] {
            let one = one();
            let (view, locks, name) = (one.view("a"), kind.locks(&one, "proxy"), name());
            let waiting = if is_taken {
                let first = locks.get(&name).unwrap();
                let waiting = locks.begin(&name, |_| ());
                view.waits(&name, 1);
                one.tell("cut");
                let _: i64 = view.run(&[&"FAIRLOCK.RELEASE", &name, &first.owner()]);
                one.tell("mend");
                std::mem::forget(first); // Its release would only be NOTHELD.
                waiting
            } else {
                one.tell(&format!("lose {}", request("FAIRLOCK.ACQUIRE")));
                locks.begin(&name, |_| ())
            };
            let held = waiting.held();
            assert!(is_taken || one.tell("lost") == "1");
            assert_eq!(view.number(&name, "holds"), 1);
            assert_eq!(view.owner(&name), Some(held.owner()));
            assert_eq!(view.number(&name, "token"), held.token());
            held.release().unwrap();
            assert!(view.is_free(&name));
        }
    });
}

#[test]
fn r28_the_reply_is_lost_and_the_next_ask_refused() {
    both(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "proxy"), name());
        locks.get(&name).unwrap().release().unwrap();
        one.tell("freeze");
        let waiting = locks.begin(&name, |all| all.lease = LONG);
        until("the server has granted it", || !view.is_free(&name));
        let _: String = view.run(&[&"CONFIG", &"SET", &"maxmemory", &1]);
        for command in ["cut", "thaw", "mend"] {
            one.tell(command);
        }
        assert_eq!(waiting.result().err().unwrap().code(), Some("OOM"));
        until("it is free", || view.is_free(&name));
    });
}

#[test]
fn r29_connections_are_cut_while_a_caller_waits() {
    both(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "proxy"), name());
        let _: i64 = view.run(&[&"FAIRLOCK.ACQUIRE", &name, &"another"]);
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        one.tell("cut");
        view.waits(&name, if by_scripts() { 1 } else { 0 });
        one.tell("mend");
        view.waits(&name, 1);
        let _: i64 = view.run(&[&"FAIRLOCK.RELEASE", &name, &"another"]);
        waiting.held().release().unwrap();
    });
}

#[test]
fn r30_unblocked_it_asks_again() {
    both(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let _: i64 = view.run(&[&"FAIRLOCK.ACQUIRE", &name, &"another"]);
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        let queue = view.queue(&name);
        let asked = if by_scripts() {
            one.tell("kill a");
            one.tell("start a");
            0
        } else {
            let clients = view.clients();
            let mut blocked = clients.iter().filter(|line| line.contains(" flags=b "));
            let blocked = client_id(blocked.next().unwrap());
            let asked = view.calls("acquire");
            let _: i64 = view.run(&[&"CLIENT", &"UNBLOCK", &blocked, &"ERROR"]);
            asked
        };
        until("it asks again", || {
            view.calls("acquire") > asked && view.queue(&name) == queue
        });
        let _: i64 = view.run(&[&"FAIRLOCK.RELEASE", &name, &"another"]);
        let held = waiting.held();
        assert_eq!(vec![held.owner()], queue);
    });
}

#[test]
fn r37_the_same_caller_holds_it_again() {
    let one = Arc::new(one());
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let (servers, other, lock) = (one.clone(), locks.clone(), name.clone());
        let (outer, inner) = locks
            .nested(&name, move || {
                assert!(!servers.view("a").is_free(&lock));
                let none = other.begin(&lock, |all| {
                    (all.reentrant, all.wait) = (true, Some(Duration::ZERO))
                });
                assert!(matches!(none.result(), Err(Error::NotInTime(..))));
            })
            .unwrap();
        assert_eq!(outer, inner);
        assert!(one.view("a").is_free(&name));
    });
}

#[test]
fn r38_not_reentrant_unless_asked() {
    let one = one();
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let _held = locks.get(&name).unwrap();
        let again = locks.acquire(&name, |all| all.wait = Some(ms(50)));
        assert!(matches!(again, Err(Error::NotInTime(..))));
    });
}

type Told = Arc<Mutex<Vec<(&'static str, Event)>>>;

fn telling(told: &Told) -> Hooks {
    let hook = |which| -> Option<Hook> {
        let told = told.clone();
        Some(Arc::new(move |event: &Event| {
            told.lock().unwrap().push((which, event.clone()))
        }))
    };
    Hooks {
        on_wait: hook("wait"),
        on_acquired: hook("acquired"),
        on_lost: hook("lost"),
        on_released: hook("released"),
    }
}

#[test]
fn r39_hooks() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (told, name) = (Told::default(), name());
        let locks = kind.with(
            &one,
            "a",
            Options {
                hooks: telling(&told),
                ..Options::default()
            },
        );
        let first = locks.get(&name).unwrap();
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        first.release().unwrap();
        let second = waiting.held();
        until("all told", || told.lock().unwrap().len() == 4);
        let all = told.lock().unwrap().drain(..).collect::<Vec<_>>();
        assert!(all.iter().all(|(_, event)| event.name == name));
        let of = |owner: String| {
            all.iter()
                .filter(|(_, event)| event.owner == owner)
                .cloned()
                .collect::<Vec<_>>()
        };
        let (of_first, of_second) = (of(first.owner()), of(second.owner()));
        assert_eq!(
            of_first.iter().map(|each| each.0).collect::<Vec<_>>(),
            ["acquired", "released"]
        );
        assert_eq!(
            of_second.iter().map(|each| each.0).collect::<Vec<_>>(),
            ["wait", "acquired"]
        );
        assert_eq!(of_second[1].1.token, Some(second.token()));
        assert!(of_second[1].1.waited.unwrap() > Duration::ZERO);
        assert_eq!(of_first[1].1.token, Some(first.token()));
        assert!(of_first[1].1.held.unwrap() > Duration::ZERO);
        let _: i64 = view.run(&[&"FAIRLOCK.BREAK", &name]);
        assert_eq!(second.renew().unwrap_err().cause(), Some(Cause::NotHeld));
        assert_eq!(second.release().unwrap_err().cause(), Some(Cause::NotHeld));
        let all = told.lock().unwrap().drain(..).collect::<Vec<_>>();
        assert_eq!(all.iter().map(|each| each.0).collect::<Vec<_>>(), ["lost"]);
        assert_eq!(
            (all[0].1.cause, all[0].1.token),
            (Some(Cause::NotHeld), Some(second.token()))
        );
    });
}

#[test]
fn r40_a_hook_that_fails_disturbs_nothing() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (count, name) = (Arc::new(Mutex::new(0)), name());
        let counted = count.clone();
        let fail: Hook = Arc::new(move |_: &Event| {
            *counted.lock().unwrap() += 1;
            std::panic::resume_unwind(Box::new("a hook"));
        });
        let (on_wait, on_acquired, on_released) =
            (Some(fail.clone()), Some(fail.clone()), Some(fail));
        let hooks = Hooks {
            on_wait,
            on_acquired,
            on_released,
            ..Hooks::default()
        };
        let locks = kind.with(
            &one,
            "a",
            Options {
                hooks,
                ..Options::default()
            },
        );
        let first = locks.get(&name).unwrap();
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        first.release().unwrap();
        waiting.held().release().unwrap();
        assert!(view.is_free(&name));
        assert_eq!(*count.lock().unwrap(), 5);
    });
}

#[test]
fn r41_a_server_without_the_module() {
    let plain = Servers::new(&["plain"]);
    both(|kind| {
        let start = Instant::now();
        let options = Options {
            module: Module::Required,
            ..Options::default()
        };
        let error = kind.with(&plain, "a", options).get("any").err().unwrap();
        assert!(start.elapsed() < AT_ONCE);
        let said = error.to_string();
        let begin = format!(
            "127.0.0.1:{}: the server does not have the fairlock module",
            plain.ports["a"]
        );
        assert!(
            matches!(error, Error::NoModule(_)) && said.starts_with(&begin),
            "{said}"
        );
        assert!(
            said.contains("loadmodule /path/to/libfairlock.so")
                && said.contains("docs/operations.md")
        );
        assert!(!said.contains('\n'));
        assert_eq!(error.code(), Some("ERR"));
    });
}

#[test]
fn r42_refusals_are_typed() {
    let one = if by_scripts() {
        one()
    } else {
        Servers::new(&["one", "--fairlock.max-waiters", "1"])
    };
    let view = one.view("a");
    let _: () = view.run(&[&"SET", &"text", &"hello"]);
    let _: i64 = view.run(&[&"HSET", &"person", &"name", &"Ann"]);
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        if !by_scripts() {
            let held = locks.get(&name).unwrap();
            let waiting = locks.begin(&name, |_| ());
            view.waits(&name, 1);
            let full = locks.get(&name).err().unwrap();
            assert!(matches!(full, Error::QueueFull(_)) && full.code() == Some("QUEUEFULL"));
            assert!(full.to_string().starts_with("QUEUEFULL "));
            held.release().unwrap();
            waiting.held().release().unwrap();
        }
        let wrong = locks.get("text").err().unwrap();
        assert!(matches!(wrong, Error::WrongType(_)) && wrong.code() == Some("WRONGTYPE"));
        assert!(wrong.to_string().contains("wrong kind of value"));
        let none = locks.get("person").err().unwrap();
        assert!(matches!(none, Error::NotALock(_)) && none.code() == Some("NOTALOCK"));
    });
}

#[test]
fn r43_one_owner_has_one_place() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        let me = |all: &mut Options| all.owner = Some("me".to_owned());
        let first = locks.begin(&name, me);
        view.waits(&name, 1);
        let second = locks.begin(&name, me);
        let error = first.result().err().unwrap();
        assert!(matches!(error, Error::TakenOver(_)) && error.code() == Some("TAKENOVER"));
        assert_eq!(view.queue(&name), ["me"]);
        held.release().unwrap();
        second.held().release().unwrap();
    });
}

#[test]
fn r44_a_server_that_is_not_there() {
    both(|kind| {
        let (one, name) = (one(), name());
        one.tell("kill a");
        let soon = kind.with(
            &one,
            "a",
            Options {
                retry_timeout: ms(300),
                ..Options::default()
            },
        );
        let error = soon.get(&name).err().unwrap();
        assert!(matches!(error, Error::Unavailable(..)));
        assert!(std::error::Error::source(&error).is_some());
        let locks = kind.locks(&one, "a");
        let mut waiting = locks.begin(&name, |_| ());
        pause(200);
        assert!(!waiting.is_done());
        one.tell("start a");
        waiting.held().release().unwrap();
    });
}

#[test]
fn r45_arguments_are_checked_before_anything_is_sent() {
    let one = one();
    let view = one.view("a");
    type Change = fn(&mut Options);
    let wrong: [Change; 7] = [
        |all| all.lease = Duration::ZERO,
        |all| all.lease = Duration::MAX,
        |all| all.patience = Duration::ZERO,
        |all| all.limit = Some(0),
        |all| all.limit = Some(1_000_001),
        |all| all.owner = Some(String::new()),
        |all| all.owner = Some("x".repeat(257)),
    ];
    both(|kind| {
        let locks = kind.locks(&one, "a");
        for change in wrong {
            assert!(matches!(
                locks.acquire("any", change),
                Err(Error::Argument(_))
            ));
        }
        assert!(view.clients().is_empty());
    });
}

#[test]
fn r46_closing() {
    both(|kind| {
        let one = one();
        let (view, locks, name) = (one.view("a"), kind.locks(&one, "a"), name());
        let held = locks.get(&name).unwrap();
        let waiting = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        locks.close();
        assert_eq!(waiting.result().err(), Some(Error::Closed));
        assert!(view.queue(&name).is_empty());
        assert_eq!(held.lost(), Cause::Closed);
        until("all connections are closed", || view.clients().is_empty());
        assert_eq!(locks.get(&name).err(), Some(Error::Closed));
    });
}

#[test]
fn r50_shared_holders_hold_together() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let readers: Vec<_> = (0..3)
            .map(|_| locks.acquire(&name, |all| all.shared = true).unwrap())
            .collect();
        let mut writer = locks.begin(&name, |_| ());
        view.waits(&name, 1);
        let mut late = locks.begin(&name, |all| all.shared = true);
        view.waits(&name, 2);
        for reader in readers {
            assert!(!writer.is_done());
            reader.release().unwrap();
        }
        let held = writer.held();
        assert!(!late.is_done());
        held.release().unwrap();
        late.held().release().unwrap();
        assert!(view.is_free(&name));
    });
}

#[test]
fn r51_at_most_so_many_hold() {
    let one = one();
    let view = one.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&one, "a"), name());
        let two = |all: &mut Options| all.limit = Some(2);
        let (_first, second) = (
            locks.acquire(&name, two).unwrap(),
            locks.acquire(&name, two).unwrap(),
        );
        let third = locks.acquire(&name, |all| {
            (all.limit, all.wait) = (Some(2), Some(Duration::ZERO))
        });
        assert!(matches!(third, Err(Error::NotInTime(..))));
        let waiting = locks.begin(&name, two);
        view.waits(&name, 1);
        second.release().unwrap();
        waiting.held().release().unwrap();
    });
}
