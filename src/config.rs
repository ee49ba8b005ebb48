//! Every option: its name, default, range and unit. `redis.conf.example` says the same in prose,
//! and a test compares the two.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use redis_module::configuration::{
    ConfigurationFlags, register_bool_configuration, register_enum_configuration,
    register_i64_configuration,
};
use redis_module::{Context, RedisString, enum_configuration};

/// Longest duration that an option or an argument may have, in milliseconds: with the time added
/// it is still exact in a sorted set's score (a double), and far beyond any use.
pub const LONGEST_DURATION: i64 = 1 << 52;

/// A whole number that CONFIG SET can change.
pub struct Number {
    /// Its name after `fairlock.`.
    pub name: &'static str,
    pub default: i64,
    pub min: i64,
    pub max: i64,
    pub value: AtomicI64,
}

impl Number {
    const fn new(name: &'static str, default: i64, min: i64, max: i64) -> Self {
        Self {
            name,
            default,
            min,
            max,
            value: AtomicI64::new(default),
        }
    }

    pub fn get(&self) -> u64 {
        u64::try_from(self.value.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// Milliseconds a lock is held when LEASE is not given.
pub static LEASE: Number = Number::new("lease", 30_000, 1, LONGEST_DURATION);
/// Milliseconds a polling waiter may stay silent when PATIENCE is not given.
pub static PATIENCE: Number = Number::new("patience", 300_000, 1, LONGEST_DURATION);
/// Milliseconds a polling waiter has to take the lock once it is its turn.
pub static TURN: Number = Number::new("turn", 5_000, 1, LONGEST_DURATION);
/// Milliseconds by which the clocks of servers that follow each other may differ; a day at most.
pub static CLOCK_SKEW: Number = Number::new("clock-skew", 10_000, 0, 86_400_000);
/// Most waiters that a lock may have.
pub static MAX_WAITERS: Number = Number::new("max-waiters", 100_000, 1, 10_000_000);

/// Whether Redisson's fair-lock scripts are run natively. By default they are where a command filter is told its
/// client: since Redis 7.2, and in Valkey.
static INTERCEPTS: AtomicBool = AtomicBool::new(false);

const INTERCEPT_EVAL: &str = "intercept-eval";

pub fn intercept_eval() -> bool {
    INTERCEPTS.load(Ordering::Relaxed)
}

enum_configuration! {
    /// The command by which wake-ups are sent. The names are those that CONFIG GET shows.
    #[derive(Copy, Debug, PartialEq, Eq)]
    #[allow(nonstandard_style, clippy::expl_impl_clone_on_copy)]
    pub enum Pubsub {
        /// SPUBLISH in a cluster, PUBLISH elsewhere.
        auto = 0,
        publish = 1,
        spublish = 2,
        /// Both: for a cluster in which some clients use SUBSCRIBE, and some SSUBSCRIBE.
        both = 3,
    }
}

impl Pubsub {
    fn named(name: &str) -> Option<Self> {
        let (names, values) = Self::auto.get_options();
        let mut all = names.iter().zip(values);
        let (_, value) = all.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Self::try_from(value).ok()
    }
}

static PUBLISHES: Mutex<Pubsub> = Mutex::new(Pubsub::auto);

const PUBSUB: &str = "pubsub";

pub fn pubsub() -> Pubsub {
    PUBLISHES.lock().map_or(Pubsub::auto, |pubsub| *pubsub)
}

/// What the module's arguments say: by each option's name, that name as it was written, and the value.
type Given = HashMap<String, (String, String)>;

/// Reads the module's arguments, pairs of a name and a value.
fn given(arguments: &[RedisString]) -> Result<Given, String> {
    let pairs = arguments.chunks(2).map(|pair| {
        let [name, value] = pair else {
            return Err("fairlock: the last module argument has no value".to_owned());
        };
        let (written, value) = (name.to_string_lossy(), value.to_string_lossy());
        let name = written.strip_prefix("fairlock.").unwrap_or(&written);
        Ok((name.to_ascii_lowercase(), (written, value)))
    });
    pairs.collect()
}

/// Registers the options at the server, with values from the module's arguments
/// (`loadmodule libfairlock.so lease 10000`) or the defaults; the configuration file is applied later.
pub fn register(context: &Context, arguments: &[RedisString]) -> Result<(), String> {
    let mut given = given(arguments)?;
    let flags = || ConfigurationFlags::DEFAULT;
    for number in [&LEASE, &PATIENCE, &TURN, &CLOCK_SKEW, &MAX_WAITERS] {
        let Number { name, min, max, .. } = *number;
        let what = format!("a number from {min} to {max}");
        let in_range = |value: &i64| (min..=max).contains(value);
        let read = |value: &str| value.parse().ok().filter(in_range);
        let value = take(&mut given, name, number.default, read, &what)?;
        register_i64_configuration(context, name, &number.value, value, min, max, flags(), None);
    }
    let what = "auto, publish, spublish or both";
    let pubsub = take(&mut given, PUBSUB, Pubsub::auto, Pubsub::named, what)?;
    register_enum_configuration(context, PUBSUB, &PUBLISHES, pubsub, flags(), None);
    let knows_clients = crate::server::filter::knows_clients();
    let intercepts = take(
        &mut given,
        INTERCEPT_EVAL,
        knows_clients,
        yes_or_no,
        "yes or no",
    )?;
    register_bool_configuration(
        context,
        INTERCEPT_EVAL,
        &INTERCEPTS,
        intercepts,
        flags(),
        None,
    );
    match given.into_values().next() {
        Some((unknown, _)) => Err(format!("fairlock: there is no option '{unknown}'")),
        None => Ok(()),
    }
}

/// What was given for the option of this name, or its default.
fn take<T>(
    given: &mut Given,
    name: &str,
    default: T,
    read: impl FnOnce(&str) -> Option<T>,
    what: &str,
) -> Result<T, String> {
    let Some((written, value)) = given.remove(name) else {
        return Ok(default);
    };
    read(&value).ok_or_else(|| format!("fairlock: {written} must be {what}"))
}

fn yes_or_no(value: &str) -> Option<bool> {
    let is = |word: &str| value.eq_ignore_ascii_case(word);
    (is("yes") || is("no")).then(|| is("yes"))
}
