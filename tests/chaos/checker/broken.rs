//! Histories that are broken, each in one way, beside others that are well: `broken.txt` here and in `tests/porcupine`.
//!
//! Lines of a case begin with two spaces: what is expected, a colon, and events of one lock, each with its time in
//! milliseconds (one number: it takes one). The title of the cases stands above them.

use super::{Kind, Violation, check};
use crate::history::{
    ANY, Answer, Call, EXCLUSIVE, Fault, Harm, History, Micros, Part, Request, Sight, Stall, Way,
};

const MS: Micros = 1000;

pub struct Case {
    /// `well`, or what is found: the kind of the violation and whom it names.
    pub expected: String,
    pub history: History,
    pub text: &'static str,
}

/// All cases of a table.
pub fn cases(table: &'static str) -> Vec<Case> {
    let lines = table.lines().filter_map(|line| line.strip_prefix("  "));
    let case = |text: &'static str| {
        let (expected, events) = text.split_once(": ").expect("a case");
        let mut history = History {
            turn: 3000 * MS,
            ..History::default()
        };
        for event in events.split(", ") {
            add(&mut history, event);
        }
        history.calls.sort_by_key(|call| call.answered);
        Case {
            expected: expected.to_owned(),
            history,
            text,
        }
    };
    lines.map(case).collect()
}

fn ms(text: &str) -> Micros {
    text.parse::<Micros>().expect("milliseconds") * MS
}

fn numbers(text: &str) -> Vec<usize> {
    let words = text.split_whitespace();
    words.map(|one| one.parse().expect("a client")).collect()
}

fn add(history: &mut History, event: &str) {
    let (time, what) = event.split_once(' ').expect("a time");
    let (from, to) = match time.split_once('-') {
        Some((from, to)) => (ms(from), ms(to)),
        None => (ms(time), ms(time) + MS),
    };
    if let Some(owners) = what.strip_prefix("keys") {
        let (holders, queue) = owners.split_once(';').unwrap_or((owners, ""));
        history.sights.push(Sight {
            lock: 0,
            from,
            to: from + 1,
            holders: numbers(holders),
            queue: numbers(queue),
        });
    } else if what == "stall" {
        history.stalls.push(Stall { from, to });
    } else if what == "scripted" {
        history.scripted = vec![0];
    } else if what == "resumed" {
        history.resumed = true;
    } else if let Some((asked, answer)) = what.split_once(": ") {
        history.calls.push(call(asked, answer, from, to));
    } else {
        let harm = harm(what);
        history.faults.push(Fault { harm, from, to });
    }
}

fn call(asked: &str, answer: &str, invoked: Micros, answered: Micros) -> Call {
    let words: Vec<&str> = asked.split(' ').collect();
    let is = |word: &str| words.contains(&word);
    let valued = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    let lease = ms(valued("lease=").unwrap_or("4000"));
    let limit = valued("shared=").map(|limit| limit.parse().expect("a limit"));
    let way = [
        ("asks", Way::Blocked),
        ("polls", Way::Polling),
        ("tries", Way::Trying),
        ("script", Way::Script),
    ];
    let request = if let Some((_, way)) = way.iter().find(|(word, _)| is(word)) {
        Request::Acquire {
            way: *way,
            lease,
            session: is("session"),
            once: is("once") || *way == Way::Polling,
            wait: valued("wait=").map(ms),
            limit: limit.unwrap_or(if is("shared") { ANY } else { EXCLUSIVE }),
        }
    } else if is("releases") {
        let token = valued("token=").map(|token| token.parse().expect("a token"));
        Request::Release { token }
    } else if is("renews") {
        Request::Renew { lease }
    } else if let Some(owner) = valued("cancels=") {
        let owner = owner.parse().expect("a client");
        Request::Cancel { owner }
    } else {
        assert!(is("closes"), "{asked}");
        Request::Close
    };
    let answer = match (answer, answer.parse()) {
        (_, Ok(holds)) if is("releases") => Answer::Left(holds),
        (_, Ok(token)) => Answer::Granted(Some(token)),
        ("granted", _) => Answer::Granted(None),
        ("not-now", _) => Answer::NotNow,
        ("not-held", _) => Answer::NotHeld,
        ("done", _) => Answer::Done,
        ("lost", _) => Answer::Lost,
        ("never", _) => Answer::Never,
        (error, _) => Answer::Refused(
            error
                .strip_prefix('!')
                .expect("an answer")
                .replace('-', " "),
        ),
    };
    Call {
        client: client(words[0]),
        lock: 0,
        attempt: valued("attempt=").map_or(1, |of| of.parse().expect("a number")),
        request,
        invoked,
        answered,
        answer,
    }
}

fn client(name: &str) -> usize {
    crate::world::client_of(name).expect("a client")
}

fn harm(what: &str) -> Harm {
    let lock = 0;
    match what.split_once([' ', '=']).unwrap_or((what, "")) {
        ("kill", "") => Harm::Kill { lost_since: None },
        ("kill", since) => Harm::Kill {
            lost_since: since.strip_prefix("since=").map(ms),
        },
        ("pause", _) => Harm::Pause,
        ("client-kill", of) => Harm::ClientKill { client: client(of) },
        ("half-open", of) => Harm::HalfOpen { client: client(of) },
        ("clock", seconds) => Harm::ClockStep {
            seconds: seconds.parse().expect("seconds"),
        },
        ("flush-all", _) => Harm::FlushAll,
        ("delete", key) => Harm::Delete {
            lock,
            key: match key {
                "lock" => Part::Lock,
                "queue" => Part::Queue,
                _ => Part::Shared,
            },
        },
        ("break", "") => Harm::Break { lock, client: None },
        ("break", of) => Harm::Break {
            lock,
            client: Some(client(of)),
        },
        ("out-of-memory", _) => Harm::OutOfMemory,
        ("failover", _) => Harm::Failover,
        _ => panic!("{what}"),
    }
}

/// The kind of a violation, and whom it names.
fn name(found: &Violation) -> String {
    let clients = found.clients.iter().map(|client| format!(" {client}"));
    format!("{:?}{}", found.kind, clients.collect::<Vec<_>>().concat())
}

#[test]
fn each_violation_is_found_and_nothing_else() {
    for case in cases(include_str!("broken.txt")) {
        let names: Vec<String> = check(&case.history).iter().map(name).collect();
        let found = if names.is_empty() {
            "well".to_owned()
        } else {
            names.join("; ")
        };
        assert_eq!(found, case.expected, "{}", case.text);
    }
}

#[test]
fn keys_that_are_left_behind_are_found() {
    let history = History {
        left_behind: vec!["redisson_lock_timeout:{lock0}".to_owned()],
        ..History::default()
    };
    let found = check(&history);
    assert_eq!(found[0].kind, Kind::LeftBehind, "{found:?}");
}
