//! What commands are made of: names, owners, numbers, plausible and not.

use fairlock_testing::Dice;

/// A command with its arguments.
pub type Words = Vec<Vec<u8>>;

const LOCKS: &[&[u8]] = &[
    b"k",
    b"k",
    b"k",
    b"k",
    b"l",
    b"l",
    b"m",
    b"a{b}c",
    b"{x",
    b"a b",
    b"",
    b"\x00\xff\r\n",
];

const OWNERS: &[&[u8]] = &[
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"u:1",
    b"u:2",
    b"v:1",
    b"*",
    b"",
    b"\x00\xff\r\n",
    &[b'o'; 256],
    &[b'o'; 257],
];

const WILD: &[&str] = &[
    "0",
    "-1",
    "-0",
    "+1",
    "01",
    "1.5",
    "1e3",
    "0x10",
    " 1",
    "1 ",
    "",
    "nan",
    "inf",
    "-inf",
    "x",
    "4503599627370496",
    "4503599627370497",
    "1000000",
    "1000001",
    "9007199254740993",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "99999999999999999999999999999999999999999999999999",
];

/// The name of a lock: one of a few, and now and then one that was never seen.
pub fn lock(dice: &mut Dice) -> Vec<u8> {
    match dice.usize(..100) {
        0 => vec![b'n'; 300],
        1 => format!("new{}", dice.u32(..)).into_bytes(),
        _ => dice.pick(LOCKS).to_vec(),
    }
}

/// The name of one of a lock's other keys.
pub fn derived(prefix: &str, lock: &[u8]) -> Vec<u8> {
    let braces: [&[u8]; 2] = if lock.contains(&b'{') {
        [b":", b""]
    } else {
        [b":{", b"}"]
    };
    [prefix.as_bytes(), braces[0], lock, braces[1]].concat()
}

/// One of the lock's keys.
pub fn any_key(dice: &mut Dice, lock: &[u8]) -> Vec<u8> {
    match dice.usize(..5) {
        0 => lock.to_vec(),
        1 => derived("redisson_lock_queue", lock),
        2 => derived("redisson_lock_timeout", lock),
        3 => derived("redisson_lock_shared", lock),
        _ => derived("fairlock_token", lock),
    }
}

/// An owner, and at times what can be none.
pub fn owner(dice: &mut Dice) -> Vec<u8> {
    if dice.one_in(50) {
        return bytes(dice);
    }
    // The first ones more often.
    let most = dice.usize(1..=OWNERS.len());
    OWNERS[dice.usize(..most)].to_vec()
}

/// Any bytes.
pub fn bytes(dice: &mut Dice) -> Vec<u8> {
    let length = if dice.one_in(100) {
        dice.usize(..5000)
    } else {
        dice.usize(..20)
    };
    (0..length).map(|_| dice.u8(..)).collect()
}

/// Implausible numbers.
pub fn wild(dice: &mut Dice) -> Vec<u8> {
    dice.pick(WILD).as_bytes().to_vec()
}

/// A duration in milliseconds: mostly so short that it ends within the round.
pub fn duration(dice: &mut Dice) -> Vec<u8> {
    match dice.usize(..20) {
        0 => wild(dice),
        1 => b"30000".to_vec(),
        2..=5 => number(dice.u64(100..2_000)),
        _ => number(dice.u64(1..50)),
    }
}

/// A point in time, in milliseconds, around now.
pub fn moment(dice: &mut Dice) -> Vec<u8> {
    if dice.one_in(10) {
        return wild(dice);
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = i64::try_from(now.expect("after 1970").as_millis()).expect("a time");
    let around = if dice.one_in(2) { 50 } else { 300_000 };
    (now + dice.i64(-around..=around)).to_string().into_bytes()
}

/// A small number, and at times a wild one.
pub fn count(dice: &mut Dice) -> Vec<u8> {
    if dice.one_in(8) {
        wild(dice)
    } else {
        dice.i64(-3..6).to_string().into_bytes()
    }
}

/// A number's digits.
pub fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}
