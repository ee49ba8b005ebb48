//! The table of scripts, and what each script does. The table is made by running Redisson's releases
//! (see `tests/redisson`).

use std::sync::LazyLock;

use crate::lock::scripts::Told;

use super::leave::Leave;
use super::renew::Renew;
use super::try_lock::TryLock;
use super::unlock::{Latch, Unlock};

/// The table: SHA-1 of the text, its length in bytes, role, number of keys and of arguments, first
/// and last release. A script that renews many locks has any number of keys, and one argument more.
const TABLE: &str = include_str!("scripts.tsv");

/// SHA-1 of a script's text.
pub type Digest = [u8; 20];

/// Roles, as INFO counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes the lock if it can be had now.
    TryLock,
    /// Takes the lock, or joins the queue.
    Lock,
    /// Gives up one hold.
    Unlock,
    /// Frees the lock from its holders.
    ForceUnlock,
    /// Leaves the queue.
    Leave,
    /// Renews the lease of one lock, or of many.
    Renew,
}

/// One known script.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    /// SHA-1 of its text.
    pub digest: Digest,
    /// The digest in hexadecimal digits.
    pub hex: &'static str,
    /// Its first digits, see [`start`].
    pub start: u64,
    /// Length of its text in bytes.
    pub length: usize,
    /// Its role.
    pub role: Role,
    /// Number of keys; `None`: any.
    pub keys: Option<usize>,
    /// Number of arguments; meaningless if there is any number of keys.
    pub arguments: usize,
    /// What it does.
    pub(super) form: Form,
}

/// What a script does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    TryLock(TryLock),
    Unlock(Unlock),
    Leave(Leave),
    Renew(Renew),
}

impl Form {
    /// Which argument is the owner, if one is.
    pub(super) fn owner(&self) -> Option<usize> {
        match self {
            Self::TryLock(_) => Some(TryLock::OWNER),
            Self::Unlock(form) => form.owner(),
            Self::Leave(Leave) => Some(Leave::OWNER),
            Self::Renew(_) => None,
        }
    }
}

/// All scripts that have a native form.
static SCRIPTS: LazyLock<Vec<Script>> =
    LazyLock::new(|| TABLE.lines().skip(1).filter_map(script).collect());

/// All scripts that have a native form.
#[must_use]
pub fn scripts() -> &'static [Script] {
    &SCRIPTS
}

/// One line of the table. `None` if its script has no native form yet.
fn script(line: &'static str) -> Option<Script> {
    let mut words = line.split('\t');
    let mut word = || words.next();
    let hex = word()?;
    let (digest, start) = (
        digest(hex.as_bytes())?,
        start(*hex.as_bytes().first_chunk()?),
    );
    let length = word()?.parse().ok()?;
    let role = word()?;
    let keys = word()?.parse().ok();
    let arguments = word()?.parse().unwrap_or(0);
    let first = word()?;
    let (role, form) = form(role, first)?;
    Some(Script {
        digest,
        hex,
        start,
        length,
        role,
        keys,
        arguments,
        form,
    })
}

/// The first eight hexadecimal digits of a digest, in either case, as one number to compare.
#[must_use]
pub fn start(digits: [u8; 8]) -> u64 {
    // The bit that makes letters lower-case is set in digits.
    u64::from_ne_bytes(digits) | 0x2020_2020_2020_2020
}

/// A digest from its 40 hexadecimal digits.
#[must_use]
pub fn digest(hex: &[u8]) -> Option<Digest> {
    if hex.len() != 40 {
        return None;
    }
    let mut digest = [0; 20];
    for (byte, pair) in digest.iter_mut().zip(hex.chunks_exact(2)) {
        for digit in pair {
            *byte = *byte << 4 | value(*digit)?;
        }
    }
    Some(digest)
}

/// The value of a hexadecimal digit.
fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// What the script of a role does, by the first release that has it.
fn form(role: &str, first: &str) -> Option<(Role, Form)> {
    let try_lock = TryLock::WITHOUT_QUEUE;
    let unlock = Unlock::OLDEST;
    let form = match (role, first) {
        ("try-lock", "3.2.0" | "3.11.1" | "3.31.0") => Form::TryLock(try_lock),
        ("try-lock-non-reentrant", "4.6.1") => Form::TryLock(try_lock.non_reentrant()),
        ("lock", "3.2.0") => Form::TryLock(try_lock.queueing(Told::BehindHead)),
        ("lock", "3.11.1" | "3.31.0") => Form::TryLock(try_lock.queueing(Told::BehindPrevious)),
        ("lock", "3.32.0" | "3.45.0") => Form::TryLock(try_lock.queueing(Told::Lease)),
        ("lock-non-reentrant", "4.6.1") => {
            Form::TryLock(try_lock.non_reentrant().queueing(Told::Lease))
        }
        ("unlock", "3.2.0" | "3.3.2") => Form::Unlock(unlock),
        ("unlock", "3.22.0") => Form::Unlock(unlock.publishing(4)),
        ("unlock", "3.24.0" | "3.31.0") => {
            Form::Unlock(unlock.publishing(4).latched(Latch::OF_UNLOCK))
        }
        ("force-unlock", "3.2.0") => Form::Unlock(unlock.forced()),
        ("force-unlock", "3.22.0" | "3.31.0") => Form::Unlock(unlock.forced().publishing(2)),
        ("leave", "3.2.4" | "3.5.5" | "3.11.1") => Form::Leave(Leave),
        ("renew", "3.2.0") => Form::Renew(Renew::One),
        ("renew", "3.44.0") => Form::Renew(Renew::Many),
        _ => return None,
    };
    let role = match role {
        "lock" | "lock-non-reentrant" => Role::Lock,
        "unlock" => Role::Unlock,
        "force-unlock" => Role::ForceUnlock,
        "leave" => Role::Leave,
        "renew" => Role::Renew,
        _ => Role::TryLock,
    };
    Some((role, form))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_has_a_native_form() {
        assert_eq!(scripts().len(), TABLE.lines().count() - 1);
    }

    #[test]
    fn digests_are_read_from_hexadecimal_digits_of_either_case() {
        let lower = digest(b"8f6ed299ffd259f0539c20f89253998c0777ea75");
        assert_eq!(lower.map(|digest| digest[0]), Some(0x8f));
        assert_eq!(digest(b"8F6ED299FFD259F0539C20F89253998C0777EA75"), lower);
        for wrong in [&b""[..], b"8f6ed2", &[b'g'; 40], &[b'0'; 41]] {
            assert_eq!(digest(wrong), None);
        }
    }
}
