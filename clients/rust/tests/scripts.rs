//! Rows 49 and 67 to 71: servers without the module.

use std::time::{Duration, Instant};

use fairlock::{Cause, Error, Options};

use crate::support::*;

#[test]
fn r49_a_lock_that_is_deleted_is_lost() {
    let plain = Servers::new(&["plain"]);
    let view = plain.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&plain, "a"), name());
        let held = locks.acquire(&name, |all| all.lease = ms(3000)).unwrap();
        let waiting = locks.begin(&name, |_| ());
        until("it waits", || view.length(&name) == 1);
        let _: i64 = view.run(&[&"DEL", &name]);
        assert_eq!(held.lost(), Cause::NotHeld);
        waiting.held().release().unwrap();
    });
}

pub fn hold_twice(kind: Kind, url: &str, name: &str) {
    let locks = kind.at(url, Options::default());
    assert_eq!(locks.native(), None);
    for _ in 0..2 {
        locks.get(name).unwrap().release().unwrap();
    }
    println!("\nchild: native {:?}", locks.native().unwrap());
}

#[test]
fn r67_one_warning_where_there_is_no_module() {
    let (plain, one) = (
        Servers::new(&["plain"]),
        Servers::new(&["one", "--with-module"]),
    );
    both(|kind| {
        let (lines, errors) = said(child_of("", "twice", kind, &plain, &name()));
        assert_eq!(lines, ["native false"]);
        let begin = format!(
            "fairlock: 127.0.0.1:{}: the server does not have the fairlock module: locks are taken by scripts. ",
            plain.ports["a"]
        );
        assert!(
            errors.starts_with(&begin) && errors.lines().count() == 1,
            "{errors}"
        );
        let (lines, errors) = said(child_of("", "twice", kind, &one, &name()));
        assert_eq!(
            (lines, errors),
            (vec!["native true".to_owned()], String::new())
        );
    });
}

type Change = fn(&mut Options);

#[test]
fn r68_what_needs_the_module_is_refused() {
    let plain = Servers::new(&["plain"]);
    let view = plain.view("a");
    both(|kind| {
        let (locks, name) = (kind.locks(&plain, "a"), name());
        let start = Instant::now();
        let changes: [(&str, Change); 3] = [
            ("session", |all| all.session = true),
            ("shared", |all| all.shared = true),
            ("limit", |all| all.limit = Some(2)),
        ];
        for (option, change) in changes {
            let error = locks.acquire(&name, change).err().unwrap();
            let said = error.to_string();
            assert!(matches!(error, Error::NoModule(_)), "{said}");
            assert!(
                said.contains(option) && said.contains("needs the fairlock module"),
                "{said}"
            );
            assert!(!said.contains('\n'));
        }
        assert!(start.elapsed() < AT_ONCE);
        let keys: Vec<String> = view.run(&[&"KEYS", &format!("*{name}*")]);
        assert!(keys.is_empty(), "{keys:?}");
    });
}

#[test]
fn r69_the_module_is_loaded_in_the_middle() {
    both(|kind| {
        let plain = Servers::new(&["plain"]);
        let (locks, name) = (kind.locks(&plain, "a"), name());
        let held = locks.get(&name).unwrap();
        let view = plain.view("a");
        let mut waiting = Vec::new();
        for count in 1..=2 {
            waiting.push(locks.begin(&name, |_| ()));
            until("it waits", || view.length(&name) == count);
        }
        plain.tell("load a");
        held.renew().unwrap();
        held.release().unwrap();
        let mut last = held.token();
        for each in waiting {
            let held = each.held();
            assert!(held.token() > last);
            last = held.token();
            held.release().unwrap();
        }
        let others = kind.locks(&plain, "a");
        others.get(&name).unwrap().release().unwrap();
        assert_eq!(others.native(), Some(true));
        // A session has a connection of its own, by which all others learn of the module.
        locks
            .acquire(&name, |all| all.session = true)
            .unwrap()
            .release()
            .unwrap();
        let shared = locks.acquire(&name, |all| all.shared = true).unwrap();
        shared.renew().unwrap();
        shared.release().unwrap();
    });
}

pub fn wait_for_ever(kind: Kind, url: &str, name: &str) {
    drop(kind.at(url, Options::default()).get(name));
}

#[test]
fn r70_a_waiter_that_has_died_is_passed_over() {
    both_at_once(|kind| {
        let plain = Servers::new(&["plain"]);
        let (locks, name) = (kind.locks(&plain, "a"), name());
        let held = locks.acquire(&name, |all| all.lease = ms(6000)).unwrap();
        let view = plain.view("a");
        let mut child = child_of("", "wait", kind, &plain, &name);
        until("the child waits", || view.length(&name) == 1);
        let waiting = locks.begin(&name, |_| ());
        until("another waits", || view.length(&name) == 2);
        child.kill().unwrap();
        child.wait().unwrap();
        held.release().unwrap();
        waiting.held().release().unwrap();
    });
}

#[test]
fn r71_a_user_who_may_not_use_the_module_goes_on_by_scripts() {
    both(|kind| {
        let plain = Servers::new(&["plain"]);
        let view = plain.view("a");
        let rule = rule("scripts");
        let words: Vec<&dyn Word> = rule.iter().map(|word| word as &dyn Word).collect();
        let _: String = view.run(&words);
        let url = plain.url("a").replace("//", "//scripts:secret4@");
        let (locks, name) = (kind.at(&url, Options::default()), format!("app:{}", name()));
        let held = locks.acquire(&name, |all| all.lease = ms(9000)).unwrap();
        let mut waiting = Vec::new();
        for count in 1..=2 {
            waiting.push(locks.begin(&name, |_| ()));
            until("it waits", || view.length(&name) == count);
        }
        plain.tell("load a");
        // What opens a connection: it must not lead the others to the module.
        let refused = locks.acquire(&name, |all| all.session = true);
        assert_eq!(refused.err().unwrap().code(), Some("NOPERM"));
        let others = kind.at(&url, Options::default());
        assert!(matches!(
            others.acquire(&name, |all| all.wait = Some(Duration::ZERO)),
            Err(Error::NotInTime(..))
        ));
        assert_eq!(
            (locks.native(), others.native()),
            (Some(false), Some(false))
        );
        held.renew().unwrap();
        held.release().unwrap();
        for each in waiting {
            let held = each.held();
            held.renew().unwrap();
            assert_eq!(locks.info(&name).unwrap().owner, Some(held.owner()));
            held.release().unwrap();
        }
    });
}

#[test]
fn a_server_that_does_not_know_role_is_a_master() {
    let plain = Servers::new(&["plain", "--rename-command", "ROLE", "HIDDEN"]);
    both(|kind| {
        let locks = kind.locks(&plain, "a");
        let held = locks.get(&name()).unwrap();
        held.renew().unwrap();
        held.release().unwrap();
    });
}
