//! The packages' own scripts (`clients/lua`), where they run natively: each is a command, and becomes it.
//!
//! The key is the script's first, and what follows its keys are the other arguments. What a script cannot do or does
//! not understand is left to it, so that it replies its own error.

use crate::error::Error;
use crate::lock::Refusal;
use crate::redisson::table::Own;
use crate::redisson::{WORDS_OF_COMMAND, has_keys_of_command};
use crate::server::{Args, Command, Ctx};

use super::acquire::Acquire;
use super::args::{Call, Wait};
use super::cancel::Cancel;
use super::release::Release;
use super::renew::Renew;

/// Runs the command that a script stands for. `None` if the script itself must run; nothing has changed then.
pub(super) fn run(ctx: &Ctx, own: Own, words: &Args<'_>) -> Option<Result<(), Error>> {
    if !has_keys_of_command(ctx, *words) {
        return None;
    }
    let (key, rest) = WORDS_OF_COMMAND;
    words.with(key, rest, |arguments| {
        let owner = arguments.get(1);
        let is_own_command = owner != Some(b"*") && can_do(ctx, own, arguments);
        is_own_command.then(|| match own {
            // As the script's first write would be refused; the other scripts only delete, or renew.
            Own::Acquire if ctx.flags().out_of_memory() => Err(Refusal::MemoryFull.into()),
            Own::Acquire => Acquire::run(ctx, arguments),
            Own::Release => Release::run(ctx, arguments),
            Own::Renew => Renew::run(ctx, arguments),
            Own::Cancel => Cancel::run(ctx, arguments),
        })
    })
}

/// Whether a script can do what its arguments say.
fn can_do(ctx: &Ctx, own: Own, arguments: &Args<'_>) -> bool {
    match own {
        Own::Acquire => Call::read::<Acquire>(ctx, *arguments).is_ok_and(|call| {
            let waits_here = matches!(call.wait, None | Some(Wait::Block(_)));
            !waits_here && call.shared.is_none() && call.session.is_none()
        }),
        Own::Release => Call::read::<Release>(ctx, *arguments).is_ok(),
        Own::Renew => Call::read::<Renew>(ctx, *arguments).is_ok(),
        Own::Cancel => Call::read::<Cancel>(ctx, *arguments).is_ok(),
    }
}
