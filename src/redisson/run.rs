//! Runs a script natively: reads the call, and takes the step.

use std::ffi::CStr;

use crate::keyspace::{Names, OpenLock};
use crate::lock::Step;
use crate::server::{Args, Ctx, Reply};
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
        None => !call.keys.is_empty() && call.arguments.len() == call.keys.len() + 1,
    };
    if !fits {
        return None;
    }
    match script.form {
        Form::TryLock(form) => {
            let names = call.lock(0, 1, 2)?;
            let request = form.read(&call)?;
            take(&call, script, &names, None, |step| {
                form.decide(&request, step)
            })
        }
        Form::Unlock { forced } => {
            let names = call.lock(0, 1, 2)?;
            let unlocking = Unlocking::read(&call, &names, forced)?;
            if let Some(reply) = unlocking.kept_reply() {
                return Some(Reply::Integer(reply));
            }
            let wake_by = Some(unlocking.wake_by);
            take(&call, script, &names, wake_by, move |step| {
                unlocking.decide(step)
            })
        }
        Form::Leave => {
            let names = Names::of(forms::lock_of_leaver(&call)?);
            let names = call.fits(names, 0, 1)?;
            let owner = forms::leaver(&call)?;
            if !ctx.may_update(&names.lock) {
                return None;
            }
            take(&call, script, &names, None, |step| {
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

/// Takes the step. Its wake-ups go out by this command, if not as configured.
fn take(
    call: &ScriptCall<'_>,
    script: &Script,
    names: &Names,
    wake_by: Option<&'static CStr>,
    decide: impl FnOnce(&mut Step<'_, OpenLock<'_>>) -> Option<Reply>,
) -> Option<Reply> {
    let owner = script.form.owner();
    let owner = owner.and_then(|index| call.arguments.string(index));
    waiting::require_own_queue(call.ctx, names.name()).ok()?;
    let decided = waiting::step_on(call.ctx, names, Cause::Command(wake_by), |step| {
        // Without its queue a lock is left to the script.
        step.state.require_queue()?;
        step.state.learn_name(owner);
        Ok(decide(step))
    });
    // A key of another type: the script has its own error for that.
    decided.ok()?
}
