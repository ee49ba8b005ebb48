//! Fencing tokens: how they grow although the clock steps back, and although servers follow each other whose clocks
//! differ.
//!
//! A token is the time in microseconds, or one more than the greatest that the server knows, whichever is more. So a
//! free lock needs no stored token: the clock has advanced since. Only a token that is ahead of the clock is kept, in a
//! key of its own.

use super::clock::{Millis, Now, Wall};
use super::parts::Rules;

/// Ten years: no clock steps back by more.
const FARTHEST_STEP_BACK: Millis = 10 * 365 * 86_400_000;

/// A token that is ahead of the clock by this many microseconds at most is not kept: no server restarts as fast.
const AS_GOOD_AS_NOW: u64 = 1000;

/// The token after `last`.
pub fn next(last: i64, now: Now) -> i64 {
    ahead(now, 0).max(last.saturating_add(1))
}

/// The token that a lock's key keeps; 0 if it is farther ahead than any clock steps back: no server has given it.
pub fn kept(token: i64, now: Now) -> i64 {
    if token < ahead(now, FARTHEST_STEP_BACK) {
        token
    } else {
        0
    }
}

/// A token that is this far ahead of the clock.
///
/// A server that starts goes on behind the token of now: an earlier run may have given all until then, and the clock
/// may be set back before the next one. One that takes over goes on the clock skew ahead: another server has given the
/// tokens until now, and its clock may have been ahead.
pub fn ahead(now: Now, by: Millis) -> i64 {
    let micros = now.micros.saturating_add(by.saturating_mul(1000));
    i64::try_from(micros).unwrap_or(0)
}

/// The greatest token that a server knows, once it has seen this one in the keys of a lock: it gave it itself, or an
/// earlier run of it, or its master. A token that a client has set far ahead for one lock does not count for other
/// locks.
pub fn greatest_after(greatest: i64, token: i64, rules: &Rules, now: Now) -> i64 {
    let next = greatest.saturating_add(1);
    // A server whose clock is ahead of this one's by the clock skew may have gone on another skew ahead of its own.
    let farthest = ahead(now, rules.clock_skew.saturating_mul(2));
    if token <= next.max(farthest) {
        greatest.max(token)
    } else {
        greatest
    }
}

/// Until when a token is kept in its key: until the clock has passed it. After a restart the clock alone would give
/// the lock a smaller one. `None` if the token is not ahead of the clock.
pub fn kept_until(token: i64, now: Now) -> Option<Wall> {
    let micros = token.max(0).cast_unsigned();
    let is_ahead = micros > now.micros.saturating_add(AS_GOOD_AS_NOW);
    is_ahead.then(|| Wall::of(micros / 1000 + 1))
}

#[cfg(test)]
mod tests {
    use super::super::clock::{Heard, Tick};
    use super::*;

    /// An instant, in microseconds.
    fn now() -> (Now, i64) {
        let now = Now::from_millis(1_700_000_000_000);
        (now, now.micros.cast_signed())
    }

    #[test]
    fn a_token_is_the_time_or_one_more_than_the_last() {
        let (now, time) = now();
        assert_eq!(next(time - 1, now), time);
        assert_eq!(next(time, now), time + 1);
        // A server that restarts may do so with a clock that was set back.
        assert_eq!(
            next(ahead(now, 0), Now::from_millis(1_600_000_000_000)),
            time + 1
        );
    }

    #[test]
    fn a_token_that_is_ten_years_ahead_is_not_kept() {
        let (now, time) = now();
        let farthest = time + 10 * 365 * 86_400 * 1_000_000;
        assert_eq!(
            [farthest - 1, farthest].map(|token| kept(token, now)),
            [farthest - 1, 0]
        );
    }

    /// Servers whose clocks may differ by two seconds.
    const RULES: Rules = Rules {
        turn: 1,
        patience: 1,
        clock_skew: 2_000,
        max_waiters: 1,
        grace: Heard::at(Tick::of(0), 0),
        intercepts: true,
    };

    /// The clocks of two servers, of which the second is behind by so many milliseconds.
    fn clocks(apart: u64) -> [Now; 2] {
        [0, apart].map(|behind| Now::from_millis(1_700_000_000_000 - behind))
    }

    #[test]
    fn a_token_of_a_lost_master_is_less_if_the_clocks_differ_by_no_more_than_the_skew() {
        for apart in [0, 500, 2_000, 2_001] {
            let [master, replica] = clocks(apart);
            let lost = next(0, master);
            let token = next(ahead(replica, RULES.clock_skew), replica);
            assert_eq!(token > lost, apart <= RULES.clock_skew, "{apart}");
        }
    }

    #[test]
    fn tokens_grow_there_and_back_where_the_replica_has_heard_of_the_holder() {
        for clocks in [0, 500, 1_999].map(clocks) {
            let mut last = next(0, clocks[0]);
            let mut known = [last, 0];
            for server in [1, 0, 1, 0] {
                let now = clocks[server];
                let ahead = ahead(now, RULES.clock_skew).max(known[server]);
                let token = next(greatest_after(ahead, last, &RULES, now), now);
                assert!(token > last, "{token} after {last}");
                (known[server], last) = (token, token);
            }
        }
    }

    #[test]
    fn a_token_that_no_server_can_have_given_counts_for_its_lock_only() {
        let (now, time) = now();
        let farthest = time + 4_000_000;
        let of_holder = |token| greatest_after(time, token, &RULES, now);
        assert_eq!([farthest, farthest + 1].map(of_holder), [farthest, time]);
        let next = greatest_after(farthest, farthest + 1, &RULES, now);
        assert_eq!(next, farthest + 1);
    }

    #[test]
    fn a_token_is_kept_until_the_clock_has_passed_it() {
        let (now, time) = now();
        assert_eq!(kept_until(time + 1_000, now), None);
        assert_eq!(
            kept_until(time + 1_001, now),
            Some(Wall::of(1_700_000_000_002))
        );
        assert_eq!(kept_until(-1, now), None);
    }
}
