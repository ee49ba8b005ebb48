//! The fuzz targets without a fuzzer: what it has found, and random bytes.

#![allow(missing_docs)]
#![allow(clippy::expect_used, reason = "that is a test's way of failing")]

use std::fs;
use std::path::Path;

use fairlock_fuzz::{arguments, rules, scripts};
use fastrand::Rng;

/// Runs all inputs that are kept for a target; how many there are.
fn replay(target: &str, check: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let kept = fs::read_dir(folder.join(target)).expect("the target's inputs");
    kept.map(|entry| {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        check(&fs::read(path).expect("an input"));
    })
    .count()
}

/// Runs random inputs made of these pieces and of any bytes.
fn random(pieces: &[&[u8]], check: fn(&[u8])) {
    let mut rng = Rng::with_seed(1);
    for _ in 0..20_000 {
        let mut data = vec![rng.u8(..)];
        for _ in 0..rng.usize(..24) {
            if pieces.is_empty() || rng.u8(..8) == 0 {
                data.extend((0..rng.usize(..20)).map(|_| rng.u8(..)));
            } else {
                data.extend_from_slice(rng.choice(pieces).expect("a piece"));
            }
        }
        check(&data);
    }
}

#[test]
fn arguments_are_taken_that_are_right_and_no_others() {
    assert!(replay("arguments", arguments::check) > 0);
    let pieces: &[&[u8]] = &[
        b"\nLEASE\n5",
        b"\nwait\n5",
        b"\nNOWAIT",
        b"\nENQUEUE",
        b"\nPATIENCE\n",
        b"4503599627370496",
        b"\nSESSION",
        b"\nonce",
        b"\nTOKEN\n1",
        b"\nALL",
        b"\nLIMIT\n0\n-1",
        b"\n",
        b"k\na",
        b"*",
        b"{",
        b"}",
        b"-",
        b"0",
        b"9223372036854775808",
    ];
    random(pieces, arguments::check);
}

#[test]
fn scripts_are_recognised_whatever_was_asked_before() {
    assert!(replay("scripts", scripts::check) > 0);
    random(
        &[
            b"\n\x00",
            b"\n\x01\x05\x00",
            b"\n\x03\x05abc",
            b"\n\x03\x05",
        ],
        scripts::check,
    );
}

#[test]
fn the_lock_keeps_its_promises_over_what_was_found() {
    assert!(replay("rules", rules::check) > 0);
    random(&[], rules::check);
}
