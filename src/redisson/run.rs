//! Runs a script natively: reads the call, and takes the step.

use std::ffi::CStr;

use crate::keyspace::{Names, OpenLock};
use crate::lock::Step;
use crate::server::{Args, Ctx, Reply, Str};
use crate::waiting::{self, Cause};

use super::call::ScriptCall;
use super::forms::{self, Form, Unlocking};
use super::table::Script;

/// Runs the native form of a script that a user may run natively. `None` if the script itself must run; nothing has
/// changed then that it would not do again.
pub fn run(ctx: &Ctx, script: &Script, words: Args<'_>) -> Option<Reply> {
    let call = ScriptCall::read(ctx, words)?;
    let fits = match script.keys {
        Some(keys) => call.keys.len() == keys && call.arguments.len() == script.arguments,
        None => call.keys.len() > 0 && call.arguments.len() == call.keys.len() + 1,
    };
    if !fits {
        return None;
    }
    match script.form {
        Form::TryLock(form) => {
            let names = call.lock(call.keys.get(0)?, 1, 2)?;
            let request = form.read(&call)?;
            let owner = call.arguments.string(1);
            take(ctx, &names, owner, None, |step| form.decide(&request, step))
        }
        Form::Unlock { forced } => {
            let names = call.lock(call.keys.get(0)?, 1, 2)?;
            let unlocking = Unlocking::read(&call, &names, forced)?;
            if let Some(reply) = unlocking.kept_reply() {
                return Some(Reply::Integer(reply));
            }
            let owner = call.arguments.string(2).filter(|_| !forced);
            let wake_by = Some(unlocking.wake_by);
            take(ctx, &names, owner, wake_by, |step| unlocking.decide(step))
        }
        Form::Leave => {
            let names = forms::left_lock(&call)?;
            let owner = call.arguments.get(0)?;
            take(ctx, &names, call.arguments.string(0), None, |step| {
                step.leave_by_script(owner);
                Some(Reply::Nil)
            })
        }
        Form::Renew => {
            let renewed = forms::renew(&call)?;
            Some(match renewed.as_slice() {
                [one] if script.keys.is_some() => Reply::Integer(*one),
                _ => Reply::Array(renewed.into_iter().map(Reply::Integer).collect()),
            })
        }
    }
}

/// Takes the step for an owner, if it is for one. Its wake-ups go out by this command, if not as configured.
fn take(
    ctx: &Ctx,
    names: &Names,
    owner: Option<Str>,
    wake_by: Option<&'static CStr>,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Option<Reply>,
) -> Option<Reply> {
    waiting::require_own_queue(ctx, names.name()).ok()?;
    let decided = waiting::step_on(ctx, names, Cause::Command(wake_by), |step| {
        // Without its queue a lock is left to the script.
        step.state.require_queue()?;
        step.state.learn_name(owner);
        Ok(decide(step))
    });
    // A key of another type: the script has its own error for that.
    decided.ok()?
}
