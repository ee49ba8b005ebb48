//! Arguments of commands: the parsers and a plain reading of the syntax must accept the same.

use fairlock::command::acquire::Acquire;
use fairlock::command::args::{Call, Wait};
use fairlock::command::caller::Caller;
use fairlock::command::queue::Queue;
use fairlock::command::release::Release;
use fairlock::command::renew::Renew;
use fairlock::error::Error;
use fastrand::Rng;

use crate::grammar::{FAIRLOCK, fill, form, spoil};
use crate::words::once_in;

/// Longest duration, as the documentation has it.
const LONGEST: u64 = 4_503_599_627_370_496;

/// A caller of any kind.
struct Anybody {
    in_script: bool,
    in_cluster: bool,
}

impl Caller for Anybody {
    fn in_script(&self) -> bool {
        self.in_script
    }

    fn in_cluster(&self) -> bool {
        self.in_cluster
    }

    fn connection(&self) -> u64 {
        7
    }
}

/// Right ones and nearly right ones, by the grammar of what is sent to a server.
#[test]
fn arguments_are_taken_that_are_right_and_no_others() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..200_000 {
        let form = form(&mut rng, FAIRLOCK);
        let mut words = fill(&mut rng, form, &Vec::new());
        if once_in(&mut rng, 4) {
            spoil(&mut rng, &mut words);
        }
        let caller = Anybody {
            in_script: rng.bool(),
            in_cluster: rng.bool(),
        };
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        check(&caller, words[0], &words[1..]);
    }
}

fn check(caller: &Anybody, command: &[u8], words: &[&[u8]]) {
    match command {
        b"FAIRLOCK.ACQUIRE" => check_acquire(caller, words),
        b"FAIRLOCK.RELEASE" => {
            let parsed = Call::read::<Release>(caller, words);
            let token = parsed.as_ref().ok().and_then(|request| request.token);
            assert!(token.is_none_or(|token| token > 0));
            judge(
                parsed,
                caller,
                words,
                true,
                &[("TOKEN", &[TOKEN]), ("ALL", &[])],
            );
        }
        b"FAIRLOCK.RENEW" => {
            let parsed = Call::read::<Renew>(caller, words);
            judge(parsed, caller, words, true, &[("LEASE", &[DURATION])]);
        }
        b"FAIRLOCK.QUEUE" => {
            let parsed = Call::read::<Queue>(caller, words);
            let options: &[Rule] = &[("LIMIT", &[OFFSET, COUNT])];
            judge(parsed, caller, words, false, options);
        }
        _ => (),
    }
}

fn check_acquire(caller: &Anybody, words: &[&[u8]]) {
    let parsed = Call::read::<Acquire>(caller, words);
    if let Ok(request) = &parsed {
        assert!((1..=256).contains(&request.owner.len()));
        for duration in [request.lease, request.patience].into_iter().flatten() {
            assert!((1..=LONGEST).contains(&duration));
        }
        assert!(
            request
                .shared
                .is_none_or(|limit| limit.shown() <= 1_000_000)
        );
        let given = |option: &str| {
            let mut options = words[2..].iter();
            options.any(|word| word.eq_ignore_ascii_case(option.as_bytes()))
        };
        assert_eq!(request.session.is_some(), given("SESSION"));
        assert_eq!(request.once, given("ONCE"));
        assert_eq!(request.shared.is_some(), given("SHARED"));
        match request.wait {
            None => assert!(!given("WAIT")),
            Some(Wait::Block(time)) => assert!(given("WAIT") && (1..=LONGEST).contains(&time)),
            Some(Wait::Never) => assert!(given("NOWAIT")),
            Some(Wait::Enqueue) => assert!(given("ENQUEUE")),
        }
    }
    let options: &[Rule] = &[
        ("SHARED", &[]),
        ("LEASE", &[DURATION]),
        ("WAIT", &[DURATION]),
        ("NOWAIT", &[]),
        ("ENQUEUE", &[]),
        ("PATIENCE", &[DURATION]),
        ("SESSION", &[]),
        ("ONCE", &[]),
    ];
    judge(parsed, caller, words, true, options);
}

/// An option, and which numbers it takes.
type Rule = (&'static str, &'static [std::ops::RangeInclusive<i128>]);

const DURATION: std::ops::RangeInclusive<i128> = 1..=1 << 52;
const TOKEN: std::ops::RangeInclusive<i128> = 1..=i64::MAX as i128;
const OFFSET: std::ops::RangeInclusive<i128> = 0..=i64::MAX as i128;
const COUNT: std::ops::RangeInclusive<i128> = -1..=i64::MAX as i128;

/// Compares a parser's result with the expected one.
fn judge<T>(
    parsed: Result<T, Error>,
    caller: &Anybody,
    words: &[&[u8]],
    has_owner: bool,
    options: &[Rule],
) {
    let right = is_right(caller, words, has_owner, options);
    assert_eq!(parsed.is_ok(), right, "{:?}", parsed.err());
    if let Err(error) = parsed {
        let text = error.to_string();
        let code = text.split(' ').next().unwrap_or_default();
        assert!(code.bytes().all(|byte| byte.is_ascii_uppercase()), "{text}");
        assert!(!text.contains(['\r', '\n']), "{text}");
    }
}

fn is_right(caller: &Anybody, words: &[&[u8]], has_owner: bool, options: &[Rule]) -> bool {
    let Some((lock, mut rest)) = words.split_first() else {
        return false;
    };
    if caller.in_cluster && !keeps_its_slot(lock) {
        return false;
    }
    if has_owner {
        let Some((owner, others)) = rest.split_first() else {
            return false;
        };
        let refused = owner == b"*" && caller.in_script;
        if refused || !(1..=256).contains(&owner.len()) {
            return false;
        }
        rest = others;
    }
    let mut seen: Vec<&str> = Vec::new();
    while let Some((word, others)) = rest.split_first() {
        let is_it = |rule: &&Rule| word.eq_ignore_ascii_case(rule.0.as_bytes());
        let Some((name, ranges)) = options.iter().find(is_it) else {
            return false;
        };
        if others.len() < ranges.len() || (*name == "SESSION" && caller.in_script) {
            return false;
        }
        let (values, mut others) = others.split_at(ranges.len());
        let fit = |(value, range): (&&[u8], &std::ops::RangeInclusive<i128>)| {
            plain(value).is_some_and(|value| range.contains(&value))
        };
        if !values.iter().zip(*ranges).all(fit) {
            return false;
        }
        if *name == "SHARED"
            && let Some((limit, behind)) = others.split_first()
            && limit
                .first()
                .is_some_and(|first| b"0123456789+-.".contains(first))
        {
            // The limit may be left out.
            if !plain(limit).is_some_and(|limit| (1..=1_000_000).contains(&limit)) {
                return false;
            }
            others = behind;
        }
        seen.push(if ["WAIT", "NOWAIT", "ENQUEUE"].contains(name) {
            "how to wait"
        } else {
            name
        });
        rest = others;
    }
    let given = seen.len();
    seen.sort_unstable();
    seen.dedup();
    seen.len() == given
}

/// A whole number in decimal digits, however many, as the server writes it.
fn plain(text: &[u8]) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if digits.starts_with(b"0") && text != b"0" {
        return None;
    }
    let add = |sum: i128, digit: &u8| {
        sum.saturating_mul(10)
            .saturating_add(i128::from(digit - b'0'))
    };
    Some(sign * digits.iter().fold(0, add))
}

/// Whether a lock and the keys derived from it are hashed by the same bytes, as a cluster does.
fn keeps_its_slot(lock: &[u8]) -> bool {
    let derived = if lock.contains(&b'{') {
        [b"queue:", lock].concat()
    } else {
        [b"queue:{", lock, b"}"].concat()
    };
    hashed(lock) == hashed(&derived)
}

/// The part of a key by which its slot is chosen.
fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else {
        return key;
    };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(close) => &rest[..close],
    }
}
