//! Rows 31, 35, 36, 60 and 62 to 65: replicas, Sentinels, permissions.

use std::time::{Duration, Instant};

use fairlock::{Cause, Error, Options};
use redis::IntoConnectionInfo;

use crate::elsewhere::name_on;
use crate::support::*;

#[test]
fn r31_sentinel_fails_over() {
    both(|kind| {
        let group = Servers::new(&["sentinel"]);
        let (view, locks, name) = (group.view("a"), kind.sentinel(&group), name());
        let held = locks.get(&name).unwrap();
        let mut waiting = Vec::new();
        for count in 1..=2 {
            // The new master has none.
            waiting.push(locks.begin(&name, |all| all.min_replicas = Some(0)));
            view.waits(&name, count);
        }
        let owners = view.queue(&name);
        group.tell("failover");
        let view = group.view("b");
        assert_eq!(view.owner(&name), Some(held.owner()));
        assert_eq!(view.number(&name, "token"), held.token());
        until("renewed at the new master", || {
            matches!(held.renew(), Err(Error::NotReplicated(..)))
        });
        view.waits(&name, 2);
        held.release().unwrap();
        for (each, owner) in waiting.into_iter().zip(owners) {
            let next = each.held();
            assert_eq!(next.owner(), owner);
            assert_eq!(view.owner(&name), Some(owner));
            next.release().unwrap();
        }
    });
}

#[test]
fn r35_an_acquisition_is_on_the_replica() {
    let group = Servers::new(&["replica"]);
    let (view, replica) = (group.view("a"), group.view("b"));
    both(|kind| {
        let (locks, name) = (kind.locks(&group, "a"), name());
        for _ in 0..50 {
            let held = locks.get(&name).unwrap();
            assert!(replica.run::<bool>(&[&"HEXISTS", &name, &held.owner()]));
            held.release().unwrap();
        }
        for _ in 0..20 {
            let first = locks.get(&name).unwrap();
            let waiting = locks.begin(&name, |_| ());
            view.waits(&name, 1);
            first.release().unwrap();
            let second = waiting.held();
            assert!(replica.run::<bool>(&[&"HEXISTS", &name, &second.owner()]));
            second.release().unwrap();
        }
    });
}

#[test]
fn r36_no_replica_confirms() {
    both(|kind| {
        let group = Servers::new(&["replica"]);
        let options = Options {
            sync_timeout: ms(100),
            ..Options::default()
        };
        let (view, locks, name) = (group.view("a"), kind.with(&group, "a", options), name());
        group.tell("stop b");
        let none = locks
            .acquire(&name, |all| all.wait = Some(ms(500)))
            .err()
            .unwrap();
        assert!(matches!(none, Error::NotReplicated(..)) && none.is_not_in_time());
        assert!(view.is_free(&name));
        // The lease is over before the wait for replicas.
        let brief = locks.acquire(&name, |all| {
            (all.wait, all.lease, all.renew) = (Some(ms(500)), ms(20), false);
        });
        assert!(matches!(brief, Err(Error::NotReplicated(..))));
        let start = Instant::now();
        let held = locks.acquire(&name, |all| {
            (all.sync_timeout, all.wait) = (Duration::ZERO, Some(Duration::ZERO))
        });
        held.unwrap().release().unwrap();
        assert!(start.elapsed() < AT_ONCE);
        let before = view.calls("release");
        let waiting = locks.begin(&name, |all| all.wait = Some(LONGEST));
        until("it was released again", || {
            view.calls("release") > before + 1
        });
        group.tell("cont b");
        let held = waiting.held();
        assert_eq!(view.owner(&name), Some(held.owner()));
    });
}

fn user() -> &'static str {
    if by_scripts() { "scripts" } else { "packages" }
}

fn allow(servers: &Servers, nodes: &[&str]) {
    let rule = rule(user());
    for node in nodes {
        let words: Vec<&dyn Word> = rule.iter().map(|word| word as &dyn Word).collect();
        let _: String = servers.view(node).run(&words);
    }
}

fn as_packages(servers: &Servers, at: &str) -> String {
    let user = if by_scripts() {
        "scripts:secret4"
    } else {
        "packages:secret"
    };
    servers.url(at).replace("//", &format!("//{user}@"))
}

fn does_everything(kind: Kind, locks: &Locks, view: &View, name: &str) {
    let held = locks.get(name).unwrap();
    let info = locks.info(name).unwrap();
    assert_eq!(info.owner, Some(held.owner()));
    held.renew().unwrap();
    let late = locks.acquire(name, |all| all.wait = Some(ms(50)));
    assert!(matches!(late, Err(Error::NotInTime(..))));
    if kind == Kind::Tasks {
        let cancelled = locks.begin(name, |_| ());
        view.waits(name, 1);
        cancelled.cancel();
        view.waits(name, 0);
    }
    if by_scripts() {
        held.release().unwrap();
        assert!(locks.try_acquire(name).unwrap().is_some());
        return;
    }
    let session = locks.begin(name, |all| all.session = true);
    view.waits(name, 1);
    let limited = locks.begin(name, |all| all.limit = Some(2));
    view.waits(name, 2);
    held.release().unwrap();
    session.held().release().unwrap();
    let limited = limited.held();
    let other = locks.acquire(name, |all| all.limit = Some(2)).unwrap();
    other.release().unwrap();
    limited.release().unwrap();
    assert!(locks.try_acquire(name).unwrap().is_some());
}

#[test]
fn r60_the_user_for_packages_may_do_it() {
    let group = Servers::new(&["sentinel"]);
    allow(&group, &["a", "b"]);
    let view = group.view("a");
    both(|kind| {
        let url = as_packages(&group, "a");
        let node = url.as_str().into_connection_info().unwrap();
        let node = node.redis_settings().clone();
        let locks = kind.at(&url, Options::default());
        does_everything(kind, &locks, &view, &format!("app:{}", name()));
        let locks = kind.sentinel_as(&group, Some(node), Options::default());
        does_everything(kind, &locks, &view, &format!("app:{}", name()));
        let forbidden = locks.get("another's").err().unwrap();
        assert_eq!(forbidden.code(), Some("NOPERM"));
        assert!(forbidden.to_string().contains("SECURITY.md"));
    });
}

#[test]
fn r60_the_user_for_packages_may_do_it_in_a_cluster() {
    let cluster = Servers::new(&["cluster"]);
    allow(&cluster, &["a", "b", "c", "d"]);
    both(|kind| {
        let locks = kind.cluster_at(&as_packages(&cluster, "b"), Options::default());
        for node in ["a", "b", "c"] {
            let view = cluster.view(node);
            does_everything(kind, &locks, &view, &name_on(&view, "app:", node));
        }
    });
}

#[test]
fn r60_who_may_not_ask_replicas_is_told_so() {
    let one = Servers::new(&["one"]);
    allow(&one, &["a"]);
    let view = one.view("a");
    let _: String = view.run(&[&"ACL", &"SETUSER", &user(), &"-role"]);
    both(|kind| {
        let (locks, name) = (
            kind.at(&as_packages(&one, "a"), Options::default()),
            format!("app:{}", name()),
        );
        let error = locks.get(&name).err().unwrap();
        assert_eq!(error.code(), Some("NOPERM"));
        assert!(error.to_string().contains("sync_timeout"));
        assert!(view.is_free(&name)); // It was granted before that.
        let held = locks.acquire(&name, |all| all.sync_timeout = Duration::ZERO);
        held.unwrap().release().unwrap();
    });
}

fn replicas(view: &View) -> usize {
    let role: Vec<redis::Value> = view.run(&[&"ROLE"]);
    redis::from_redis_value_ref::<Vec<redis::Value>>(&role[2])
        .unwrap()
        .len()
}

#[test]
fn r62_the_only_replica_is_down() {
    let group = Servers::new(&["sentinel"]);
    let view = group.view("a");
    group.tell("kill b");
    until("none is connected", || replicas(&view) == 0);
    both(|kind| {
        let (locks, name) = (kind.sentinel(&group), name());
        let none = locks.acquire(&name, |all| all.wait = Some(ms(500)));
        assert!(matches!(none, Err(Error::NotReplicated(..))));
        assert!(view.is_free(&name));
        let start = Instant::now();
        let held = locks.acquire(&name, |all| {
            (all.min_replicas, all.wait) = (Some(0), Some(Duration::ZERO))
        });
        held.unwrap().release().unwrap();
        kind.locks(&group, "a").get(&name).unwrap();
        assert!(start.elapsed() < AT_ONCE);
    });
}

#[test]
fn r63_a_master_of_the_past_is_asked_for_nothing() {
    both(|kind| {
        let group = Servers::new(&["sentinel"]);
        let options = Options {
            min_replicas: Some(0),
            ..Options::default()
        };
        let (locks, name) = (kind.sentinel_as(&group, None, options), name());
        locks.get(&name).unwrap().release().unwrap();
        group.tell("failover");
        group.tell("start a");
        let (past, now) = (group.view("a"), group.view("b"));
        let is_master = |view: &View| {
            let role: Vec<redis::Value> = view.run(&[&"ROLE"]);
            redis::from_redis_value_ref::<String>(&role[0]).unwrap() == "master"
        };
        assert!(is_master(&past), "until the sentinel says otherwise");
        while is_master(&past) {
            drop(locks.get(&name).unwrap());
            assert_eq!(past.calls("acquire"), 0);
            pause(100);
        }
        assert!(now.calls("acquire") > 0);
    });
}

#[test]
fn r63_a_replica_is_asked_for_nothing() {
    let group = Servers::new(&["replica"]);
    both(|kind| {
        let error = kind
            .locks(&group, "b")
            .acquire(&name(), |all| all.wait = Some(ms(300)));
        assert_eq!(error.err().unwrap().code(), Some("READONLY"));
        assert_eq!(group.view("b").calls("acquire"), 0);
    });
}

#[test]
fn r64_after_a_change_of_master_each_holder_checks_at_once() {
    both_at_once(|kind| {
        let group = Servers::new(&["sentinel"]);
        let locks = kind.sentinel(&group);
        // A third of the lease is later than at once.
        let lasting = |all: &mut Options| all.lease = LONG;
        let fixed = |all: &mut Options| (all.lease, all.renew) = (LONG, false);
        let shared = |all: &mut Options| (all.lease, all.renew, all.shared) = (LONG, false, true);
        let hold = |change: &dyn Fn(&mut Options)| {
            let name = name();
            (locks.acquire(&name, |all| change(all)).unwrap(), name)
        };
        let mut kept = vec![hold(&lasting), hold(&fixed)];
        let mut lost = vec![hold(&lasting), hold(&fixed)];
        if !by_scripts() {
            lost.push(hold(&shared));
            let (first, name) = hold(&shared);
            let second = locks.acquire(&name, shared).unwrap();
            kept.extend([(first, name.clone()), (second, name)]);
        }
        let new = group.view("b");
        let _: String = new.run(&[&"CONFIG", &"SET", &"replica-read-only", &"no"]);
        for (_, name) in &lost {
            assert_eq!(new.run::<i64>(&[&"DEL", name]), 1);
        }
        group.tell("failover");
        let start = Instant::now();
        for (held, _) in &lost {
            assert_eq!(held.lost(), Cause::NotHeld);
        }
        assert!(start.elapsed() < AT_ONCE);
        until("all were looked at", || {
            new.calls("info") >= kept.len() as u64 && new.calls("renew") > 1
        });
        assert!(kept.iter().all(|(held, _)| !held.is_lost()));
    });
}

#[test]
fn r65_a_renewal_that_is_not_confirmed_does_not_count() {
    both_at_once(|kind| {
        let group = Servers::new(&["replica"]);
        let (view, locks) = (group.view("a"), kind.locks(&group, "a"));
        let lost = locks.acquire(&name(), |all| all.lease = ms(3000)).unwrap();
        let kept = locks
            .acquire(&name(), |all| all.lease = ms(15_000))
            .unwrap();
        group.tell("stop b");
        let tried = view.calls("renew");
        assert_eq!(lost.lost(), Cause::Lease);
        assert!(view.calls("renew") > tried);
        assert!(!kept.is_lost());
        assert!(matches!(kept.renew(), Err(Error::NotReplicated(..))));
        group.tell("cont b");
        pause(15_000);
        assert!(!kept.is_lost());
    });
}
