//! The listening clock: for how long the server has not listened to its clients.
//!
//! A polling waiter shows that it lives by asking, and it can only ask a server that listens. While the server stands
//! still (a slow disk, a long script, DEBUG SLEEP) or writes are paused (CLIENT PAUSE, FAILOVER), requests lie unread
//! and wake-ups unwritten. So turns and deadlines do not run during that time, and none is over before all that was
//! sent in time has been read.
//!
//! The server does not tell for how long it was kept from listening. It shows in when the iterations of the
//! event loop begin and end:
//! - between beginning and end it executes commands. What that takes beyond [`USUAL`] is a stall;
//! - after the end it writes its file and its replies, and sleeps until a timer is due. If it begins the next
//!   iteration much later than that, it did not sleep but stood still.

use super::clock::{Heard, Millis, Tick};

/// Milliseconds that the server may work, or sleep too long, and still counts as listening.
const USUAL: Millis = 100;

/// What is known of the server's listening. Instants are of the steady clock unless they are `Heard`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listening {
    /// Milliseconds of stalls and pauses until `since`.
    deaf: Millis,
    /// Milliseconds of the stall or pause that has just been, or still is.
    missed: Millis,
    /// When an iteration began or ended last. `None` while there are no waiters.
    since: Option<Tick>,
    /// Whether writes were paused then.
    paused: bool,
    /// Until when the server sleeps at the longest.
    sleeps_until: Tick,
    /// Whether this iteration began late. A process that was stopped may then be woken without being told what has come
    /// in between, so its sockets are only read in the next one.
    late: bool,
    /// All that was sent before has been read. `None` while there are no waiters.
    heard: Option<(Tick, Heard)>,
}

impl Listening {
    /// How far the listening clock is behind the steady clock.
    pub fn deaf(&self, now: Tick) -> Millis {
        self.deaf.saturating_add(self.work_beyond_usual(now))
    }

    /// All that was sent before this instant has been read.
    pub fn heard(&self, now: Tick) -> Heard {
        let listening = now.saturating_sub(self.deaf(now));
        self.heard.map_or(listening, |(_, heard)| heard)
    }

    /// As [`heard`](Self::heard), by the steady clock.
    pub fn read_until(&self, now: Tick) -> Tick {
        self.heard.map_or(now, |(tick, _)| tick)
    }

    /// Milliseconds of the stall or pause that has just been, or still is.
    pub fn missed(&self) -> Millis {
        self.missed
    }

    /// An iteration begins. Its sockets have not been read yet.
    pub fn begins(&mut self, now: Tick, paused: bool) {
        self.late = self.since.is_some() && now > self.sleeps_until.saturating_add(USUAL);
        let stall = match self.since {
            Some(since) if self.late || self.paused => now.saturating_sub(since),
            _ => 0,
        };
        self.missed = if stall > 0 {
            self.missed.saturating_add(stall)
        } else {
            0
        };
        self.go_on(now, paused, stall);
    }

    /// The sockets are read from now on, in an iteration that began at `began`.
    pub fn reads(&mut self, began: Tick) {
        if !self.late {
            let heard = began.saturating_sub(self.deaf);
            self.heard = self.since.map(|_| (began, heard));
        }
    }

    /// An iteration ends. The server sleeps until `sleeps_until` at the longest.
    pub fn ends(&mut self, now: Tick, paused: bool, sleeps_until: Tick) {
        let stall = self.work_beyond_usual(now);
        self.missed = self.missed.saturating_add(stall);
        self.sleeps_until = sleeps_until;
        self.go_on(now, paused, stall);
    }

    /// There are no waiters: a stall costs no client anything.
    pub fn rests(&mut self) {
        self.since = None;
        self.heard = None;
        self.late = false;
        self.missed = 0;
    }

    fn work_beyond_usual(&self, now: Tick) -> Millis {
        let usual = if self.paused { 0 } else { USUAL };
        let since = self.since.unwrap_or(now);
        now.saturating_sub(since).saturating_sub(usual)
    }

    fn go_on(&mut self, now: Tick, paused: bool, stall: Millis) {
        self.deaf = self.deaf.saturating_add(stall);
        self.since = Some(now);
        self.paused = paused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An iteration from `began` to `ended`, after which the server sleeps for up to a second.
    fn iteration(listening: &mut Listening, began: Tick, ended: Tick, paused: bool) {
        listening.begins(began, paused);
        listening.reads(began);
        listening.ends(ended, paused, ended + 1000);
    }

    #[test]
    fn a_server_that_works_and_sleeps_as_usual_has_listened_all_the_time() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1050, false);
        iteration(&mut listening, 2000, 2099, false);
        iteration(&mut listening, 3150, 3151, false);
        assert_eq!((listening.deaf(3200), listening.missed()), (0, 0));
        assert_eq!(listening.heard(3200), 3150);
    }

    #[test]
    fn long_work_is_a_stall_while_it_goes_on_and_afterwards() {
        let mut listening = Listening::default();
        listening.begins(1000, false);
        listening.reads(1000);
        assert_eq!(listening.deaf(7000), 5900);
        listening.ends(7000, false, 8000);
        assert_eq!((listening.deaf(7000), listening.missed()), (5900, 5900));
        // What was sent during the stall is unread.
        assert_eq!(listening.heard(7000), 1000);
    }

    #[test]
    fn a_late_beginning_is_a_stall_and_nothing_is_read_before_the_sockets_are() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1001, false);
        listening.begins(8001, false);
        assert_eq!((listening.deaf(8001), listening.heard(8001)), (7000, 1000));
        listening.reads(8001);
        assert_eq!((listening.heard(8001), listening.missed()), (1000, 7000));
        assert_eq!(listening.read_until(8001), 1000);
        listening.ends(8002, false, 9002);
        listening.begins(8003, false);
        listening.reads(8003);
        assert_eq!((listening.heard(8003), listening.missed()), (1003, 0));
        assert_eq!(listening.read_until(8003), 8003);
    }

    #[test]
    fn the_clock_stands_still_while_writes_are_paused() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1001, false);
        iteration(&mut listening, 1101, 1102, true);
        iteration(&mut listening, 1202, 1203, true);
        iteration(&mut listening, 1303, 1304, false);
        assert_eq!(listening.deaf(1304), 202);
        assert_eq!(listening.missed(), 202);
    }

    #[test]
    fn a_server_may_sleep_a_little_longer_than_it_meant_to() {
        for (begins, missed) in [(2101, 0), (2102, 1101)] {
            let mut listening = Listening::default();
            iteration(&mut listening, 1000, 1001, false);
            listening.begins(begins, false);
            assert_eq!(
                (listening.deaf(begins), listening.missed()),
                (missed, missed)
            );
            listening.ends(begins, false, begins);
            // A stall that is over is told until the next iteration that is in time.
            listening.begins(begins, false);
            assert_eq!(listening.missed(), 0);
        }
    }

    #[test]
    fn while_nobody_waits_no_time_runs() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1001, false);
        listening.rests();
        iteration(&mut listening, 9000, 9001, false);
        assert_eq!((listening.deaf(9001), listening.missed()), (0, 0));
    }
}
