//! How a polling client waits, as Redisson's does: until a message comes, or until the time in the
//! last reply is over, whichever is first.

use std::time::{Duration, Instant};

/// One client's waiting.
#[derive(Debug, Default)]
pub struct Wait {
    /// Messages that came while a question was on its way. Each is good for one more question.
    permits: u32,
    waiting: bool,
    until: Option<Instant>,
}

impl Wait {
    /// The reply to a question: the milliseconds until the client asks again; a negative number means that only a
    /// message ends the wait. True if the client asks again at once.
    pub fn replied(&mut self, milliseconds: i64) -> bool {
        if self.permits > 0 {
            self.permits -= 1;
            return true;
        }
        if milliseconds == 0 {
            return true;
        }
        self.waiting = true;
        let time = u64::try_from(milliseconds).ok();
        self.until = time.map(|time| Instant::now() + Duration::from_millis(time));
        false
    }

    /// A message has come. True if the client asks now.
    pub fn message(&mut self) -> bool {
        if !self.waiting {
            self.permits += 1;
        }
        self.end()
    }

    /// The client has the lock: messages of the past no longer count.
    pub fn acquired(&mut self) {
        *self = Self::default();
    }

    /// When the wait ends by itself.
    pub fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Ends the wait. True if there was one.
    pub fn end(&mut self) -> bool {
        self.until = None;
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_the_wait_once() {
        let mut wait = Wait::default();
        assert!(!wait.replied(1000));
        assert!(wait.until().is_some());
        assert!(wait.message());
        assert!(wait.until().is_none());
        assert!(!wait.message(), "the question is on its way already");
        assert!(wait.replied(1000), "the second message came meanwhile");
        assert!(!wait.replied(1000));
    }

    #[test]
    fn no_time_left_means_to_ask_at_once() {
        assert!(Wait::default().replied(0));
    }

    #[test]
    fn a_negative_time_is_no_time_to_wait_for() {
        let mut wait = Wait::default();
        assert!(!wait.replied(-1));
        assert!(wait.until().is_none());
        assert!(wait.message());
    }

    #[test]
    fn an_acquisition_forgets_messages() {
        let mut wait = Wait::default();
        wait.message();
        wait.acquired();
        assert!(!wait.replied(1000));
    }
}
