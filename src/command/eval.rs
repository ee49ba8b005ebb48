//! `FAIRLOCK.EVAL` and `FAIRLOCK.EVALSHA`: what an intercepted EVAL or EVALSHA of one of Redisson's fair-lock scripts
//! becomes. MONITOR, SLOWLOG and commandstats show it. Clients never send it.

use crate::config;
use crate::error::Error;
use crate::redisson::{filter, recognise, run, share_a_slot, stats};
use crate::server::docs::{Docs, Keys};
use crate::server::{Args, Command, Ctx, Reply, Str, in_cluster};
use crate::waiting;

/// Runs a script, by its text or by its SHA-1.
pub struct Eval<const BY_DIGEST: bool>;

impl<const BY_DIGEST: bool> Command for Eval<BY_DIGEST> {
    const NAME: &'static str = if BY_DIGEST {
        filter::EVALSHA
    } else {
        filter::EVAL
    };
    const DOCS: Docs = Docs {
        flags: c"write deny-script no-mandatory-keys",
        categories: c"scripting slow",
        syntax: if BY_DIGEST {
            "sha1 numkeys [key ...] [arg ...]"
        } else {
            "script numkeys [key ...] [arg ...]"
        },
        summary:
            c"Runs one of Redisson's fair-lock scripts natively. An intercepted EVAL becomes this.",
        complexity: c"O(log(N)) with N the number of waiters",
        keys: Some(Keys::Numbered),
        reply: &[],
    };

    /// Runs a script, natively if possible: the server has checked that the user may run this command with these keys.
    fn run(ctx: &Ctx, arguments: &Args<'_>) -> Result<Reply, Reply> {
        let script = arguments.get(0).and_then(|script| {
            if BY_DIGEST {
                recognise::by_digest(script)
            } else {
                recognise::by_text(script)
            }
        });
        let script = script.ok_or(Error::UNKNOWN_SCRIPT)?;
        waiting::require_rest()?;
        if in_cluster() && !share_a_slot(ctx, *arguments) {
            return Err(Error::KEYS_APART.into());
        }
        // A call that was queued for a transaction may run after interception was switched off.
        let may_run = config::intercept_eval();
        let done = may_run.then(|| run(ctx, script, *arguments)).flatten();
        if let Some(done) = done {
            stats::INTERCEPTED.count(script.role);
            return Ok(done);
        }
        stats::LEFT_TO_LUA.count(script.role);
        let words: Vec<Str> = (0..arguments.len())
            .filter_map(|index| arguments.string(index))
            .collect();
        let command = if BY_DIGEST { c"EVALSHA" } else { c"EVAL" };
        Ok(ctx.run_for_caller(command, &words))
    }
}
