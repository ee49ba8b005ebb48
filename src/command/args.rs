//! Reading arguments: a cursor over what the client sent, and the checks all commands share.
//!
//! Nothing here needs a server: the fuzzer of the arguments (`fuzz/`) brings plain bytes and a
//! caller of its own.

use std::borrow::Cow;

use crate::config::LONGEST_DURATION;
use crate::error::{Error, LONGEST_OWNER, MOST_HOLDERS};
use crate::keyspace::names::one_slot;
use crate::keyspace::number::number;
use crate::lock::{Connection, Limit, Millis};
use crate::server::{Args, Ctx, Str, in_cluster, string};
use crate::waiting;

/// A UUID of this server run. Its version is not that of Redisson's UUIDs, so that after a restart owners
/// named by `*` can be told from Redisson's clients.
fn run_id() -> String {
    let random = uuid::Uuid::new_v4().into_bytes();
    let id = uuid::Builder::from_custom_bytes(random).into_uuid();
    id.to_string()
}

thread_local! {
    static RUN: String = run_id();
}

/// A command's arguments, in whatever form they are stored.
pub trait Words<'a>: Copy {
    /// The bytes of an argument.
    fn get(self, index: usize) -> Option<&'a [u8]>;
}

impl<'a> Words<'a> for Args<'a> {
    fn get(self, index: usize) -> Option<&'a [u8]> {
        Args::get(&self, index)
    }
}

impl<'a> Words<'a> for &[&'a [u8]] {
    fn get(self, index: usize) -> Option<&'a [u8]> {
        <[_]>::get(self, index).copied()
    }
}

/// The caller of a command. The meaning of some arguments depends on it.
pub trait Caller {
    /// It is a script or a function.
    fn in_script(&self) -> bool;
    /// It is a connection, or a script that one has sent; not another module.
    fn is_of_connection(&self) -> bool {
        true
    }
    /// Its server is part of a cluster.
    fn in_cluster(&self) -> bool;
    /// Its connection.
    fn connection(&self) -> Connection;
}

impl Caller for Ctx {
    fn in_script(&self) -> bool {
        self.flags().in_script()
    }

    fn is_of_connection(&self) -> bool {
        // Only a connection has a user of its own.
        self.in_script() || self.user_name().is_some()
    }

    fn in_cluster(&self) -> bool {
        in_cluster()
    }

    fn connection(&self) -> Connection {
        self.client_id()
    }
}

/// Checks the permission that the server does not check. The server has checked the lock's key; if the lock
/// shares its queue with another lock, the user must be allowed to run the same command on that lock, too.
///
/// # Errors
/// [`Error::NoPermissionForTwin`].
#[inline]
pub(super) fn permit(
    ctx: &Ctx,
    command: &'static str,
    lock: &[u8],
    arguments: Args<'_>,
) -> Result<(), Error> {
    if waiting::may_share_queue(ctx, lock) {
        permit_twin(ctx, command, lock, arguments)
    } else {
        Ok(())
    }
}

#[cold]
fn permit_twin(
    ctx: &Ctx,
    command: &'static str,
    lock: &[u8],
    arguments: Args<'_>,
) -> Result<(), Error> {
    let Some(twin) = waiting::shares_queue_with(ctx, lock) else {
        return Ok(());
    };
    let others = (1..).map_while(|index| arguments.get(index));
    let words: Vec<Str> = std::iter::once(string(&twin))
        .chain(others.map(string))
        .collect();
    let may = ctx.may_run(command, &words);
    may.then_some(()).ok_or(Error::NoPermissionForTwin)
}

/// A position in a command's arguments.
#[derive(Debug)]
pub(super) struct Cursor<'c, C, W> {
    caller: &'c C,
    arguments: W,
    next: usize,
    command: &'static str,
}

impl<'c, 'a, C: Caller, W: Words<'a>> Cursor<'c, C, W> {
    /// Before the first argument of a command of this name.
    pub fn new(caller: &'c C, arguments: W, command: &'static str) -> Self {
        Self {
            caller,
            arguments,
            next: 0,
            command,
        }
    }

    /// The next argument, if there is one.
    pub fn next(&mut self) -> Option<&'a [u8]> {
        let argument = self.arguments.get(self.next)?;
        self.next += 1;
        Some(argument)
    }

    fn require(&mut self) -> Result<&'a [u8], Error> {
        self.next().ok_or(Error::Arity(self.command))
    }

    /// The lock's key. In a cluster all keys of the lock must be in its slot.
    pub fn lock(&mut self) -> Result<&'a [u8], Error> {
        let key = self.require()?;
        let unbraced = || !key.is_empty() && !key.contains(&b'{') && !key.contains(&b'}');
        if self.caller.in_cluster() && !unbraced() && !one_slot(key) {
            return Err(Error::CrossSlot);
        }
        Ok(key)
    }

    /// The owner; `*` is the calling connection's own identity.
    pub fn owner(&mut self) -> Result<Cow<'a, [u8]>, Error> {
        let owner = self.require()?;
        if owner == b"*" {
            return if self.caller.in_script() {
                Err(Error::OwnerInScript)
            } else if !self.caller.is_of_connection() {
                Err(Error::OwnerOfModule)
            } else {
                Ok(Cow::Owned(identity(self.caller).into_bytes()))
            };
        }
        if owner.is_empty() || owner.len() > LONGEST_OWNER {
            return Err(Error::Owner);
        }
        Ok(Cow::Borrowed(owner))
    }

    /// The value of an option that is an owner.
    pub fn owner_after(&mut self, option: &'static str) -> Result<Cow<'a, [u8]>, Error> {
        if self.peek().is_none() {
            return Err(Error::NoValue(option));
        }
        self.owner()
    }

    /// The connection that a session is to be bound to: the calling one.
    pub fn session(&self) -> Result<Connection, Error> {
        if self.caller.in_script() {
            return Err(Error::SessionInScript);
        }
        if !self.caller.is_of_connection() {
            return Err(Error::SessionOfModule);
        }
        Ok(self.caller.connection())
    }

    /// The value of an option that is a duration.
    pub fn duration(&mut self, option: &'static str) -> Result<Millis, Error> {
        let value = self.next().ok_or(Error::NoValue(option))?;
        let value = number(value).filter(|value| (1..=LONGEST_DURATION).contains(value));
        value
            .and_then(|value| Millis::try_from(value).ok())
            .ok_or(Error::Duration(option))
    }

    /// The value of WAIT: a duration. 0 is refused with a hint at NOWAIT.
    pub fn wait(&mut self) -> Result<Millis, Error> {
        let value = self.peek().and_then(number);
        if value == Some(0) {
            return Err(Error::WaitForNothing);
        }
        self.duration("WAIT")
    }

    /// The limit of SHARED, if a number follows.
    pub fn limit_of_holders(&mut self) -> Result<Limit, Error> {
        let Some(value) = self.peek().filter(|word| looks_like_a_number(word)) else {
            return Ok(Limit::NONE);
        };
        let _ = self.next();
        let limit = number(value).filter(|limit| (1..=MOST_HOLDERS).contains(limit));
        let limit = limit.and_then(|limit| u32::try_from(limit).ok());
        limit.map(Limit::of).ok_or(Error::HolderLimit)
    }

    /// The next argument, which stays the next.
    fn peek(&self) -> Option<&'a [u8]> {
        self.arguments.get(self.next)
    }

    /// The value of TOKEN.
    pub fn token(&mut self) -> Result<i64, Error> {
        let value = self.next().ok_or(Error::NoValue("TOKEN"))?;
        number(value).filter(|token| *token > 0).ok_or(Error::Token)
    }

    /// Offset and count of LIMIT; a count of -1 means all.
    pub fn limit(&mut self) -> Result<(usize, usize), Error> {
        let offset = self.next().ok_or(Error::NoValue("LIMIT"))?;
        let offset = number(offset).and_then(|offset| usize::try_from(offset).ok());
        let offset = offset.ok_or(Error::Limit("offset"))?;
        let count = self.next().ok_or(Error::NoValue("LIMIT"))?;
        Ok((offset, how_many(count).ok_or(Error::Limit("count"))?))
    }

    /// The value of COUNT; -1 means all.
    pub fn count(&mut self) -> Result<usize, Error> {
        let count = self.next().ok_or(Error::NoValue("COUNT"))?;
        how_many(count).ok_or(Error::Count)
    }

    /// No argument may be left.
    pub fn finish(&mut self) -> Result<(), Error> {
        match self.next() {
            Some(_) => Err(Error::Arity(self.command)),
            None => Ok(()),
        }
    }
}

/// This connection's own identity: unique over all runs of all servers.
fn identity(caller: &impl Caller) -> String {
    RUN.with(|run| format!("{run}:{}", caller.connection()))
}

/// Sets an option that may be given once.
pub(super) fn once<T>(place: &mut Option<T>, option: &'static str, value: T) -> Result<(), Error> {
    match place.replace(value) {
        Some(_) => Err(Error::Twice(option)),
        None => Ok(()),
    }
}

/// Whether an argument is this keyword, in any case.
pub(super) fn is(argument: &[u8], keyword: &str) -> bool {
    argument.eq_ignore_ascii_case(keyword.as_bytes())
}

/// Whether a word is meant as a number: no keyword begins like one.
fn looks_like_a_number(word: &[u8]) -> bool {
    let first = word.first();
    first.is_some_and(|first| first.is_ascii_digit() || matches!(first, b'-' | b'+' | b'.'))
}

/// A number of things, -1 for all.
fn how_many(bytes: &[u8]) -> Option<usize> {
    match number(bytes)? {
        -1 => Some(usize::MAX),
        count => usize::try_from(count).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_come_in_any_case() {
        assert!(is(b"nOwAiT", "NOWAIT"));
        assert!(!is(b"NOWAITS", "NOWAIT"));
    }
}
