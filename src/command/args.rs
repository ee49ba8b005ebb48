//! Reading arguments: what the client sent, the options of all commands, and the checks that they share.

use std::borrow::Cow;

use crate::error::{Error, MOST_HOLDERS, Range};
use crate::keyspace::names::one_slot;
use crate::keyspace::number::number;
use crate::lock::{Connection, Limit, Millis};
use crate::server::{Args, Command, Ctx, Flags, in_cluster};
use crate::waiting;

use super::caller::{identity, is_connection};

/// What to do when the lock cannot be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Block, for milliseconds or (0) without limit.
    Block(Millis),
    /// NOWAIT.
    Never,
    /// ENQUEUE.
    Enqueue,
}

/// What a command is called with. What its syntax does not have stays empty.
#[derive(Debug, Default)]
pub struct Call<'a> {
    /// The lock's key.
    pub lock: &'a [u8],
    /// The owner.
    pub owner: Cow<'a, [u8]>,
    /// AFTER: a cursor.
    pub after: Option<u64>,
    /// ALL.
    pub all: bool,
    /// COUNT.
    pub count: Option<usize>,
    /// FORCE.
    pub force: bool,
    /// LEASE.
    pub lease: Option<Millis>,
    /// LIMIT: offset and count.
    pub limit: Option<(usize, usize)>,
    /// ONCE.
    pub once: bool,
    /// OWNER.
    pub only: Option<Cow<'a, [u8]>>,
    /// PATIENCE.
    pub patience: Option<Millis>,
    /// SESSION: the calling connection.
    pub session: Option<Connection>,
    /// SHARED, and its limit.
    pub shared: Option<Limit>,
    /// TOKEN.
    pub token: Option<i64>,
    /// WAIT, NOWAIT or ENQUEUE.
    pub wait: Option<Wait>,
}

/// Longest owner, in bytes.
const LONGEST_OWNER: usize = 256;

static AFTER: Range = Range::of("AFTER", 0, i64::MAX);
static COUNT: Range = Range::of("COUNT", 0, i64::MAX).hint(", or -1 for all");
static LEASE: Range = Range::millis("LEASE");
static LIMIT_COUNT: Range = Range::of("LIMIT count", 0, i64::MAX).hint(", or -1 for all");
static LIMIT_OFFSET: Range = Range::of("LIMIT offset", 0, i64::MAX);
static PATIENCE: Range = Range::millis("PATIENCE");
static SHARED: Range = Range::of("SHARED limit", 1, MOST_HOLDERS);
static TOKEN: Range = Range::of("TOKEN", 1, i64::MAX);
static WAIT: Range = Range::millis("WAIT");
static WAIT_FOR_NOTHING: Range = Range::millis("WAIT").hint(": to try once say NOWAIT");

impl<'a> Call<'a> {
    /// Reads the arguments. Nothing has changed yet.
    ///
    /// # Errors
    /// The error for the first argument that is refused; [`Error::INSIDE_STEP`]; [`Error::twin_in_use`].
    pub(super) fn of<C: Command>(ctx: &Ctx, arguments: Args<'a>) -> Result<Self, Error> {
        waiting::require_rest()?;
        let call = Self::read::<C>(ctx, arguments)?;
        if C::DOCS.keys.is_some() {
            waiting::require_own_queue(ctx, call.lock)?;
        }
        Ok(call)
    }

    /// Reads the arguments: the key and the owner, if the command's syntax begins with them, and options.
    ///
    /// # Errors
    /// The error for the first argument that is refused.
    pub fn read<C: Command>(ctx: &Ctx, arguments: Args<'a>) -> Result<Self, Error> {
        let mut cursor = Cursor {
            ctx,
            arguments,
            next: 0,
            command: C::NAME,
            option: "",
        };
        let mut call = Self::default();
        let syntax = C::DOCS.syntax;
        if syntax.starts_with("key") {
            call.lock = cursor.lock()?;
        }
        if syntax.starts_with("key owner") {
            let owner = cursor.next().ok_or_else(|| Error::arity(C::NAME))?;
            call.owner = cursor.owner(owner)?;
        }
        let mut given = 0_u32;
        while let Some(word) = cursor.next() {
            let mut options = C::OPTIONS.iter().zip(0..);
            let Some((option, number)) = options.find(|(option, _)| is(word, option)) else {
                return Err(if C::OPTIONS.is_empty() {
                    Error::arity(C::NAME)
                } else {
                    Error::unknown_option(C::OPTIONS)
                });
            };
            if given & (1 << number) > 0 {
                return Err(Error::twice(option));
            }
            given |= 1 << number;
            cursor.option = option;
            cursor.read_option(&mut call)?;
        }
        Ok(call)
    }

    /// Only one of WAIT, NOWAIT and ENQUEUE may be given.
    fn wait_by(&mut self, wait: Wait) -> Result<(), Error> {
        let before = self.wait.replace(wait);
        before.map_or(Ok(()), |_| Err(Error::CONTRADICTION))
    }
}

/// A position in a command's arguments.
struct Cursor<'a, 'c> {
    ctx: &'c Ctx,
    arguments: Args<'a>,
    next: usize,
    command: &'static str,
    /// The option that is being read.
    option: &'static str,
}

impl<'a> Cursor<'a, '_> {
    /// The next argument, if there is one.
    fn next(&mut self) -> Option<&'a [u8]> {
        let argument = self.arguments.get(self.next)?;
        self.next += 1;
        Some(argument)
    }

    /// The next argument, which stays the next.
    fn peek(&self) -> Option<&'a [u8]> {
        self.arguments.get(self.next)
    }

    fn read_option(&mut self, call: &mut Call<'a>) -> Result<(), Error> {
        match self.option {
            "AFTER" => call.after = Some(self.number(&AFTER)?),
            "ALL" => call.all = true,
            "COUNT" => call.count = Some(self.how_many(&COUNT)?),
            "ENQUEUE" => call.wait_by(Wait::Enqueue)?,
            "FORCE" => call.force = true,
            "LEASE" => call.lease = Some(self.number(&LEASE)?),
            "LIMIT" => {
                let offset = self.number(&LIMIT_OFFSET)?;
                call.limit = Some((offset, self.how_many(&LIMIT_COUNT)?));
            }
            "NOWAIT" => call.wait_by(Wait::Never)?,
            "ONCE" => call.once = true,
            "OWNER" => {
                let owner = self.value()?;
                call.only = Some(self.owner(owner)?);
            }
            "PATIENCE" => call.patience = Some(self.number(&PATIENCE)?),
            "SESSION" => call.session = Some(self.session()?),
            "SHARED" => call.shared = Some(self.limit_of_holders()?),
            "TOKEN" => call.token = Some(self.number(&TOKEN)?),
            "WAIT" => {
                let time = self.wait()?;
                call.wait_by(Wait::Block(time))?;
            }
            _ => return Err(Error::unknown_option(&[])),
        }
        Ok(())
    }

    /// The lock's key. In a cluster all keys of the lock must be in its slot.
    fn lock(&mut self) -> Result<&'a [u8], Error> {
        let key = self.next().ok_or_else(|| Error::arity(self.command))?;
        let unbraced = || !key.is_empty() && !key.contains(&b'{') && !key.contains(&b'}');
        if in_cluster() && !unbraced() && !one_slot(key) {
            return Err(Error::CROSS_SLOT);
        }
        Ok(key)
    }

    /// An owner; `*` is the calling connection's own identity.
    fn owner(&self, owner: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
        if owner == b"*" {
            self.require_connection(Error::owner_of)?;
            return Ok(Cow::Owned(identity(self.ctx).into_bytes()));
        }
        if owner.is_empty() || owner.len() > LONGEST_OWNER {
            return Err(Error::length("owner", LONGEST_OWNER));
        }
        Ok(Cow::Borrowed(owner))
    }

    /// The connection that a session is to be bound to: the calling one.
    fn session(&self) -> Result<Connection, Error> {
        self.require_connection(Error::session_of)?;
        Ok(self.ctx.client_id())
    }

    fn require_connection(&self, refused: fn(&'static str) -> Error) -> Result<(), Error> {
        if self.ctx.flags().contains(Flags::LUA) {
            Err(refused("in a script"))
        } else if !is_connection(self.ctx) {
            Err(refused("by another module"))
        } else {
            Ok(())
        }
    }

    /// The option's value.
    fn value(&mut self) -> Result<&'a [u8], Error> {
        self.next().ok_or_else(|| Error::no_value(self.option))
    }

    /// A value that is a whole number in this range.
    fn number<T: TryFrom<i64>>(&mut self, range: &'static Range) -> Result<T, Error> {
        let value = number(self.value()?).filter(|value| range.contains(*value));
        let value = value.and_then(|value| T::try_from(value).ok());
        value.ok_or_else(|| Error::number(range))
    }

    /// A number of things, -1 for all.
    fn how_many(&mut self, range: &'static Range) -> Result<usize, Error> {
        if self.peek() == Some(b"-1") {
            self.next += 1;
            return Ok(usize::MAX);
        }
        self.number(range)
    }

    /// The value of WAIT: a duration. 0 is refused with a hint at NOWAIT.
    fn wait(&mut self) -> Result<Millis, Error> {
        let is_nothing = self.peek() == Some(b"0");
        self.number(if is_nothing { &WAIT_FOR_NOTHING } else { &WAIT })
    }

    /// The limit of SHARED, if a number follows.
    fn limit_of_holders(&mut self) -> Result<Limit, Error> {
        if self.peek().is_some_and(looks_like_a_number) {
            self.number(&SHARED).map(Limit::of)
        } else {
            Ok(Limit::NONE)
        }
    }
}

/// Whether an argument is this keyword, in any case.
fn is(argument: &[u8], keyword: &str) -> bool {
    argument.eq_ignore_ascii_case(keyword.as_bytes())
}

/// Whether a word is meant as a number: no keyword begins like one.
fn looks_like_a_number(word: &[u8]) -> bool {
    let first = word.first();
    first.is_some_and(|first| first.is_ascii_digit() || matches!(first, b'-' | b'+' | b'.'))
}

#[cfg(test)]
mod tests;
