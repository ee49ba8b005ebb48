//! What the server refuses at the moment. It is asked by a command that changes nothing, run as a script would run it.

use std::cell::Cell;

use redis_module::{CallOptionsBuilder, CallResult, Context};

use super::clock::steady_micros;
use super::context::{Ctx, Flags};
use super::memory::{Str, decimal, string};
use super::user::without_call;

/// Microseconds for which a reply is believed: a small part of the times after which these things change.
const BELIEVED: u64 = 10_000;

thread_local! {
    /// What [`refuses_writes`] was last told, and until when that is believed.
    static REFUSES_WRITES: Cell<(bool, u64)> = const { Cell::new((false, 0)) };
}

/// Whether the server refuses all writes: too few replicas follow it, or it cannot save its data. For a moment this is
/// not asked again.
pub fn refuses_writes() -> bool {
    let now = steady_micros();
    let (refuses, until) = REFUSES_WRITES.get();
    if now < until {
        return refuses;
    }
    let no_key = string(b"");
    let refuses =
        without_call(|ctx| Ctx::new(ctx).is_write_refused(&no_key, &[b"NOREPLICAS", b"MISCONF"]));
    let refuses = refuses == Some(true);
    REFUSES_WRITES.set((refuses, now.saturating_add(BELIEVED)));
    refuses
}

impl Ctx {
    /// Whether the server refuses writes because too few replicas follow it (`min-replicas-to-write`). `scores` is a
    /// sorted set or no key.
    pub fn lacks_replicas(&self, scores: &Str) -> bool {
        self.is_write_refused(scores, &[b"NOREPLICAS"])
    }

    /// Whether the server refuses commands that need memory. While it evicts keys it does not, although it uses more
    /// than `maxmemory`. It is asked to raise the score of a member of `scores` to less than any score.
    pub fn memory_is_full(&self, scores: &Str) -> bool {
        if !self.flags().contains(Flags::OOM) {
            return false;
        }
        let [if_there, if_greater, least, member] = [&b"XX"[..], b"GT", b"-inf", b""].map(string);
        let change = [scores, &if_there, &if_greater, &least, &member];
        let options = CallOptionsBuilder::new().verify_oom();
        self.is_refused(options, "ZADD", &change, &[b"OOM"])
    }

    /// Whether the server refuses with one of these codes to remove a range that has no members from a sorted set. It
    /// looks at the key last.
    fn is_write_refused(&self, scores: &Str, codes: &[&[u8]]) -> bool {
        // The first rank is behind the last.
        let range = [scores, &decimal(1), &decimal(0)];
        let options = CallOptionsBuilder::new().script_mode();
        self.is_refused(options, "ZREMRANGEBYRANK", &range, codes)
    }

    /// Whether the server refuses a command with one of these codes.
    fn is_refused(
        &self,
        options: CallOptionsBuilder,
        command: &str,
        words: &[&Str],
        codes: &[&[u8]],
    ) -> bool {
        let options = options.errors_as_replies().build();
        let reply: CallResult<'_> = Context::new(self.raw).call_ext(command, &options, words);
        reply.is_err_and(|error| codes.iter().any(|code| error.as_bytes().starts_with(code)))
    }
}
