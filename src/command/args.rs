//! Reading arguments: what the client sent, the options of all commands, and the checks that they share.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use crate::config::LONGEST_DURATION;
use crate::error::Error;
use crate::keyspace::names::one_slot;
use crate::keyspace::number::number;
use crate::lock::{Connection, Limit, Millis};
use crate::server::{Args, Command, Ctx, Flags, in_cluster};
use crate::waiting;

/// What to do when the lock cannot be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Block, for milliseconds or (0) without limit.
    Block(Millis),
    /// NOWAIT.
    Never,
    Enqueue,
}

/// What a command is called with. What its syntax does not have stays empty.
#[derive(Default)]
pub struct Call<'a> {
    pub lock: &'a [u8],
    pub owner: Cow<'a, [u8]>,
    pub after: Option<u64>,
    pub all: bool,
    pub count: Option<usize>,
    pub force: bool,
    pub lease: Option<Millis>,
    /// LIMIT: offset and count.
    pub limit: Option<(usize, usize)>,
    pub once: bool,
    /// OWNER.
    pub only: Option<Cow<'a, [u8]>>,
    pub patience: Option<Millis>,
    pub session: Option<Connection>,
    pub shared: Option<Limit>,
    pub token: Option<i64>,
    pub wait: Option<Wait>,
}

thread_local! {
    /// A UUID of this server run. Its version is not that of Redisson's UUIDs, so that after a restart owners named by
    /// `*` can be told from Redisson's clients.
    static RUN: String = {
        let random = uuid::Uuid::new_v4().into_bytes();
        uuid::Builder::from_custom_bytes(random).into_uuid().to_string()
    };
}

const LONGEST_OWNER: usize = 256;
/// Greatest limit of SHARED.
const MOST_HOLDERS: i64 = 1_000_000;

impl<'a> Call<'a> {
    /// Reads the arguments. Nothing has changed yet.
    pub(super) fn of<C: Command>(ctx: &Ctx, arguments: Args<'a>) -> Result<Self, Error> {
        waiting::require_rest()?;
        let call = Self::read::<C>(ctx, arguments)?;
        if C::DOCS.keys.is_some() {
            waiting::require_own_queue(ctx, call.lock)?;
        }
        Ok(call)
    }

    /// Reads the arguments: the key and the owner, if the command's syntax begins with them, and options. The server
    /// has checked that there are as many as the command takes.
    pub fn read<C: Command>(ctx: &Ctx, arguments: Args<'a>) -> Result<Self, Error> {
        let mut cursor = Cursor {
            ctx,
            arguments,
            next: 0,
            option: "",
        };
        let mut call = Self::default();
        let syntax = C::DOCS.syntax;
        if syntax.starts_with("key") {
            call.lock = cursor.lock()?;
        }
        if syntax.starts_with("key owner") {
            let owner = cursor.next().unwrap_or_default();
            call.owner = cursor.owner(owner)?;
        }
        let mut given = 0_u32;
        while let Some(word) = cursor.next() {
            let mut options = C::OPTIONS.iter().zip(0..);
            let Some((option, number)) = options.find(|(option, _)| is(word, option)) else {
                return Err(Error::unknown_option(C::OPTIONS));
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
    option: &'static str,
}

impl<'a> Cursor<'a, '_> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let argument = self.arguments.get(self.next)?;
        self.next += 1;
        Some(argument)
    }

    fn read_option(&mut self, call: &mut Call<'a>) -> Result<(), Error> {
        match self.option {
            "AFTER" => call.after = Some(self.number(0..=i64::MAX)?),
            "ALL" => call.all = true,
            "COUNT" => call.count = Some(self.how_many()?),
            "ENQUEUE" => call.wait_by(Wait::Enqueue)?,
            "FORCE" => call.force = true,
            "LEASE" => call.lease = Some(self.millis()?),
            "LIMIT" => {
                self.option = "LIMIT offset";
                let offset = self.number(0..=i64::MAX)?;
                self.option = "LIMIT count";
                call.limit = Some((offset, self.how_many()?));
            }
            "NOWAIT" => call.wait_by(Wait::Never)?,
            "ONCE" => call.once = true,
            "OWNER" => {
                let owner = self.value()?;
                call.only = Some(self.owner(owner)?);
            }
            "PATIENCE" => call.patience = Some(self.millis()?),
            "SESSION" => {
                self.require_connection("SESSION binds the lock to a connection")?;
                call.session = Some(self.ctx.client_id());
            }
            "SHARED" => call.shared = Some(self.limit_of_holders()?),
            "TOKEN" => call.token = Some(self.number(1..=i64::MAX)?),
            "WAIT" => {
                let time = self.millis()?;
                call.wait_by(Wait::Block(time))?;
            }
            _ => return Err(Error::unknown_option(&[])),
        }
        Ok(())
    }

    /// The lock's key. In a cluster all keys of the lock must be in its slot.
    fn lock(&mut self) -> Result<&'a [u8], Error> {
        let key = self.next().unwrap_or_default();
        let unbraced = || !key.is_empty() && !key.contains(&b'{') && !key.contains(&b'}');
        if in_cluster() && !unbraced() && !one_slot(key) {
            return Err(Error::CROSS_SLOT);
        }
        Ok(key)
    }

    /// An owner; `*` is the calling connection's own identity, unique over all runs of all servers.
    fn owner(&self, owner: &'a [u8]) -> Result<Cow<'a, [u8]>, Error> {
        if owner == b"*" {
            self.require_connection("owner '*' is the identity of a connection")?;
            let identity = RUN.with(|run| format!("{run}:{}", self.ctx.client_id()));
            return Ok(Cow::Owned(identity.into_bytes()));
        }
        if owner.is_empty() || owner.len() > LONGEST_OWNER {
            return Err(Error::length("owner", LONGEST_OWNER));
        }
        Ok(Cow::Borrowed(owner))
    }

    fn require_connection(&self, argument: &str) -> Result<(), Error> {
        if self.ctx.flags().contains(Flags::LUA) {
            Err(Error::no_connection(argument, "in a script"))
        } else if self.ctx.user_name().is_none() {
            Err(Error::no_connection(argument, "by another module"))
        } else {
            Ok(())
        }
    }

    fn value(&mut self) -> Result<&'a [u8], Error> {
        self.next().ok_or_else(|| Error::no_value(self.option))
    }

    fn number<T: TryFrom<i64>>(&mut self, range: RangeInclusive<i64>) -> Result<T, Error> {
        self.number_of("", range)
    }

    fn number_of<T: TryFrom<i64>>(
        &mut self,
        unit: &str,
        range: RangeInclusive<i64>,
    ) -> Result<T, Error> {
        let value = number(self.value()?).filter(|value| range.contains(value));
        let value = value.and_then(|value| T::try_from(value).ok());
        value.ok_or_else(|| Error::number(self.option, unit, &range))
    }

    fn millis(&mut self) -> Result<Millis, Error> {
        self.number_of(" of milliseconds", 1..=LONGEST_DURATION)
    }

    /// A number of things, -1 for all.
    fn how_many(&mut self) -> Result<usize, Error> {
        let count: i64 = self.number(-1..=i64::MAX)?;
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// The limit of SHARED, if a number follows.
    fn limit_of_holders(&mut self) -> Result<Limit, Error> {
        let next = self.arguments.get(self.next);
        if next.is_some_and(looks_like_a_number) {
            self.option = "SHARED limit";
            self.number(1..=MOST_HOLDERS).map(Limit::read)
        } else {
            Ok(Limit::NONE)
        }
    }
}

fn is(argument: &[u8], keyword: &str) -> bool {
    argument.eq_ignore_ascii_case(keyword.as_bytes())
}

/// Whether a word is meant as a number: no keyword begins like one.
fn looks_like_a_number(word: &[u8]) -> bool {
    let first = word.first();
    first.is_some_and(|first| first.is_ascii_digit() || matches!(first, b'-' | b'+' | b'.'))
}
