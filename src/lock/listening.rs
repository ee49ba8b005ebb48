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
//!
//! With I/O threads, another thread reads what has come, soon after an iteration begins, and the commands run an
//! iteration or two later. The server does not tell when. So after each delay, also one that is too short for a stall,
//! what was sent meanwhile counts as read only when as much time has passed again ([`CATCH_UP`] at the most), in more
//! than one iteration.

use super::clock::{Heard, Millis, Tick};

/// Milliseconds that the server may work, or sleep too long, and still counts as listening.
const USUAL: Millis = 100;
/// Milliseconds that are a delay. Two readings of the clock can differ by one without any.
const DELAY: Millis = 2;
/// Milliseconds after a delay in which I/O threads have read all that was sent before, also on a busy machine.
const CATCH_UP: Millis = 200;
/// Iterations after a delay in which the commands have run.
const CATCHES_UP_IN: u8 = 2;

/// What was sent during a delay is being read.
#[derive(Clone, Copy, Debug)]
struct CatchUp {
    /// Since then: by the steady clock, and by the listening clock.
    from: (Tick, Heard),
    until: Tick,
    iterations: u8,
}

/// What is known of the server's listening. Instants are of the steady clock unless they are `Heard`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Listening {
    /// Milliseconds of stalls and pauses until `since`.
    behind: Millis,
    /// When an iteration began or ended last. `None` while there are no waiters.
    since: Option<Tick>,
    /// Whether writes were paused then.
    paused: bool,
    /// Until when the server sleeps at the longest.
    sleeps_until: Tick,
    /// Whether this iteration began late. A process that was stopped may then be woken without being told what has come
    /// in between, so its sockets are only read in the next one.
    late: bool,
    /// For how long requests could lie unread before the iteration that begins.
    delay: Millis,
    catch_up: Option<CatchUp>,
    /// All that was sent before has been read. `None` while there are no waiters.
    heard: Option<(Tick, Heard)>,
    /// When an iteration began last while there were no waiters: all that was sent before has been read.
    read: Tick,
}

impl Listening {
    /// How far the listening clock is behind the steady clock.
    pub fn behind(&self, now: Tick) -> Millis {
        self.behind.saturating_add(self.work_beyond_usual(now))
    }

    /// All that was sent before this instant has been read.
    pub fn heard(&self, now: Tick) -> Heard {
        let listening = Heard::at(now, self.behind(now));
        self.heard.map_or(listening, |(_, heard)| heard)
    }

    /// As [`heard`](Self::heard), by the steady clock.
    pub fn read_until(&self) -> Tick {
        self.heard.map_or(self.read, |(tick, _)| tick)
    }

    /// Whether requests of a delay that is over may be unread.
    pub fn catches_up(&self) -> bool {
        self.late || self.catch_up.is_some()
    }

    /// An iteration begins, the first after `alarm` if that is set. Its sockets have not been read yet.
    ///
    /// The alarm can be earlier than when the last iteration ended: with I/O threads, commands run after that, too.
    pub fn begins(&mut self, now: Tick, paused: bool, alarm: Option<Tick>) {
        let (since, sleeps_until) = match self.since {
            Some(since) => (since, self.sleeps_until),
            None => (Tick::default(), Tick::NEVER),
        };
        let woken = sleeps_until.min(alarm.unwrap_or(Tick::NEVER)).max(since);
        let delay = now.since(woken);
        self.delay = self.delay.max(delay);
        self.late = delay > USUAL;
        let stall = match self.since.or(alarm) {
            Some(since) if self.late || self.paused => now.since(since),
            _ => 0,
        };
        self.go_on(now, paused, stall);
    }

    /// The sockets are read from now on, in an iteration that began at `began`.
    pub fn reads(&mut self, began: Tick) {
        if self.since.is_none() {
            self.read = began;
        }
        if self.late || self.since.is_none() {
            return;
        }
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.iterations = catch_up.iterations.saturating_sub(1);
            if catch_up.iterations > 0 || began < catch_up.until {
                return;
            }
            self.heard = Some(catch_up.from);
            self.catch_up = None;
        }
        let read = (began, Heard::at(began, self.behind));
        let delay = std::mem::take(&mut self.delay);
        if delay < DELAY {
            self.heard = Some(read);
        } else {
            let before = (self.read, Heard::at(self.read, self.behind));
            self.heard.get_or_insert(before);
            self.catch_up = Some(CatchUp {
                from: read,
                until: began.after(delay.min(CATCH_UP)),
                iterations: CATCHES_UP_IN,
            });
        }
    }

    /// An iteration ends. The server sleeps until `sleeps_until` at the longest.
    pub fn ends(&mut self, now: Tick, paused: bool, sleeps_until: Tick) {
        let stall = self.work_beyond_usual(now);
        let work = self.since.map_or(0, |since| now.since(since));
        self.delay = self.delay.max(work);
        self.sleeps_until = sleeps_until;
        self.go_on(now, paused, stall);
    }

    /// There are no waiters: a stall costs no client anything.
    pub fn rests(&mut self) {
        self.since = None;
        self.heard = None;
        self.late = false;
        self.delay = 0;
        self.catch_up = None;
    }

    fn work_beyond_usual(&self, now: Tick) -> Millis {
        let usual = if self.paused { 0 } else { USUAL };
        let since = self.since.unwrap_or(now);
        now.since(since).saturating_sub(usual)
    }

    fn go_on(&mut self, now: Tick, paused: bool, stall: Millis) {
        self.behind = self.behind.saturating_add(stall);
        self.since = Some(now);
        self.paused = paused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::default().after(millis)
    }

    /// An iteration from `began` to `ended`, after which the server sleeps for up to a second.
    fn iteration(listening: &mut Listening, began: u64, ended: u64, paused: bool) {
        let (began, ended) = (at(began), at(ended));
        listening.begins(began, paused, None);
        listening.reads(began);
        listening.ends(ended, paused, ended.after(1000));
    }

    #[test]
    fn a_server_that_works_and_sleeps_as_usual_has_listened_all_the_time() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1050, false);
        iteration(&mut listening, 2000, 2099, false);
        iteration(&mut listening, 3150, 3151, false);
        assert_eq!(listening.behind(at(3200)), 0);
        for began in [3152, 3251, 3252] {
            iteration(&mut listening, began, began, false);
        }
        assert_eq!(listening.heard(at(3252)), Heard::at(at(3252), 0));
    }

    #[test]
    fn long_work_is_a_stall_while_it_goes_on_and_afterwards() {
        let mut listening = Listening::default();
        listening.begins(at(1000), false, None);
        listening.reads(at(1000));
        assert_eq!(listening.behind(at(7000)), 5900);
        listening.ends(at(7000), false, at(8000));
        assert_eq!(listening.behind(at(7000)), 5900);
        // What was sent during the stall is unread.
        assert_eq!(listening.heard(at(7000)), Heard::at(at(1000), 0));
    }

    #[test]
    fn a_late_beginning_is_a_stall_and_nothing_is_read_before_the_sockets_are() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1001, false);
        listening.begins(at(8001), false, None);
        assert_eq!(
            (listening.behind(at(8001)), listening.heard(at(8001))),
            (7000, Heard::at(at(1000), 0))
        );
        listening.reads(at(8001));
        assert_eq!(listening.heard(at(8001)), Heard::at(at(1000), 0));
        assert_eq!(listening.read_until(), at(1000));
        listening.ends(at(8002), false, at(9002));
        // An I/O thread may still be reading.
        iteration(&mut listening, 8003, 8003, false);
        assert_eq!(listening.heard(at(8003)), Heard::at(at(1000), 0));
        iteration(&mut listening, 8004, 8004, false);
        iteration(&mut listening, 8202, 8202, false);
        assert!(listening.catches_up());
        iteration(&mut listening, 8203, 8203, false);
        assert!(!listening.catches_up());
        assert_eq!(listening.heard(at(8203)), Heard::at(at(1203), 0));
        assert_eq!(listening.read_until(), at(8203));
    }

    #[test]
    fn a_server_that_is_always_at_work_catches_up_all_the_same() {
        let mut listening = Listening::default();
        (0..40).for_each(|n| iteration(&mut listening, n * 30, n * 30 + 30, false));
        assert_eq!(listening.read_until(), at(1110));
    }

    #[test]
    fn the_clock_stands_still_while_writes_are_paused() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1001, false);
        iteration(&mut listening, 1101, 1102, true);
        iteration(&mut listening, 1202, 1203, true);
        iteration(&mut listening, 1303, 1304, false);
        assert_eq!(listening.behind(at(1304)), 202);
    }

    #[test]
    fn a_server_may_sleep_a_little_longer_than_it_meant_to() {
        for (begins, missed) in [(2101, 0), (2102, 1101)] {
            let mut listening = Listening::default();
            iteration(&mut listening, 1000, 1001, false);
            listening.begins(at(begins), false, None);
            assert_eq!(listening.behind(at(begins)), missed);
        }
    }

    #[test]
    fn while_nobody_waits_no_time_runs() {
        let mut listening = Listening::default();
        iteration(&mut listening, 1000, 1001, false);
        listening.rests();
        iteration(&mut listening, 9000, 9001, false);
        assert_eq!(listening.behind(at(9001)), 0);
    }
}
