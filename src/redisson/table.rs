//! The table of scripts, and what each script does. The table is made by running Redisson's releases (see
//! `tests/redisson`).

use std::sync::LazyLock;

use crate::lock::scripts::Sleep;

use super::forms::{Form, TryLockForm};
use super::stats::ROLES;

/// The table: SHA-1 of the text, its length in bytes, role, number of keys and of arguments, first
/// and last release. A script that renews many locks has any number of keys, and one argument more.
const TABLE: &str = include_str!("scripts.tsv");

/// One known script.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// SHA-1 of its text, in hexadecimal digits.
    pub hex: &'static str,
    /// Length of its text in bytes.
    pub length: usize,
    /// Its role: a place in [`ROLES`].
    pub role: usize,
    /// Number of keys; `None`: any.
    pub keys: Option<usize>,
    /// Number of arguments; meaningless if there is any number of keys.
    pub arguments: usize,
    /// What it does.
    pub(super) form: Form,
}

/// All scripts that have a native form.
pub fn scripts() -> &'static [Script] {
    static SCRIPTS: LazyLock<Vec<Script>> =
        LazyLock::new(|| TABLE.lines().skip(1).filter_map(script).collect());
    &SCRIPTS
}

/// One line of the table. `None` if its script has no native form yet.
fn script(line: &'static str) -> Option<Script> {
    let mut words = line.split('\t');
    let mut word = || words.next();
    let hex = word()?;
    let length = word()?.parse().ok()?;
    let role = word()?;
    let keys = word()?.parse().ok();
    let arguments = word()?.parse().unwrap_or(0);
    let first = word()?;
    let form = form(role, first)?;
    let name = role.trim_end_matches("-non-reentrant").replace('-', "_");
    let role = ROLES.iter().position(|role| *role == name)?;
    Some(Script {
        hex,
        length,
        role,
        keys,
        arguments,
        form,
    })
}

/// What the script of a role does, by the first release that has it.
fn form(role: &str, first: &str) -> Option<Form> {
    let try_lock = |sleep| {
        let refuses_holder = role.ends_with("-non-reentrant");
        Form::TryLock(TryLockForm {
            refuses_holder,
            sleep,
        })
    };
    Some(match (role, first) {
        ("try-lock", "3.2.0" | "3.11.1" | "3.31.0") | ("try-lock-non-reentrant", "4.6.1") => {
            try_lock(None)
        }
        ("lock", "3.2.0") => try_lock(Some(Sleep::BehindHead)),
        ("lock", "3.11.1" | "3.31.0") => try_lock(Some(Sleep::BehindPrevious)),
        ("lock", "3.32.0" | "3.45.0") | ("lock-non-reentrant", "4.6.1") => {
            try_lock(Some(Sleep::Lease))
        }
        ("unlock", "3.2.0" | "3.3.2" | "3.22.0" | "3.24.0" | "3.31.0") => {
            Form::Unlock { forced: false }
        }
        ("force-unlock", "3.2.0" | "3.22.0" | "3.31.0") => Form::Unlock { forced: true },
        ("leave", "3.2.4" | "3.5.5" | "3.11.1") => Form::Leave,
        ("renew", "3.2.0" | "3.44.0") => Form::Renew,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_has_a_native_form() {
        assert_eq!(scripts().len(), TABLE.lines().count() - 1);
    }
}
