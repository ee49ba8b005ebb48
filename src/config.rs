//! Every option: its name, default, range and unit. `redis.conf.example` says the same in prose,
//! and a test compares the two.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};

use redis_module::configuration::{ConfigurationFlags, register_i64_configuration};
use redis_module::{Context, RedisString};

/// Longest duration that an option or an argument may have, in milliseconds: with the time added
/// it is still exact in a sorted set's score (a double), and far beyond any use.
pub const LONGEST: i64 = 1 << 52;

/// A whole number that CONFIG SET can change.
#[derive(Debug)]
pub struct Number {
    /// Its name after `fairlock.`.
    pub name: &'static str,
    /// Its value until something else is set.
    pub default: i64,
    /// Smallest value accepted.
    pub min: i64,
    /// Largest value accepted.
    pub max: i64,
    /// The value now.
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

    /// The value now.
    #[must_use]
    pub fn get(&self) -> u64 {
        u64::try_from(self.value.load(Ordering::Relaxed)).unwrap_or(0)
    }
}

/// Milliseconds a lock is held when LEASE is not given.
pub static LEASE: Number = Number::new("lease", 30_000, 1, LONGEST);
/// Milliseconds a polling waiter may stay silent when PATIENCE is not given.
pub static PATIENCE: Number = Number::new("patience", 300_000, 1, LONGEST);
/// Milliseconds a polling waiter has to take the lock once it is its turn.
pub static TURN: Number = Number::new("turn", 5_000, 1, LONGEST);
/// Milliseconds a lock's token outlives its last use.
pub static TOKEN_TTL: Number = Number::new("token-ttl", 86_400_000, 1, LONGEST);
/// Most waiters that a lock may have.
pub static MAX_WAITERS: Number = Number::new("max-waiters", 100_000, 1, 10_000_000);

/// All numbers, in the order of the documentation.
pub static NUMBERS: [&Number; 5] = [&LEASE, &PATIENCE, &TURN, &TOKEN_TTL, &MAX_WAITERS];

/// Makes the options known to the server, with values from the module's arguments
/// (`loadmodule libfairlock.so lease 10000`), the configuration file or the defaults. False, with
/// a line in the log, if an argument or value is unusable.
#[must_use]
pub fn load(context: &Context, arguments: &[RedisString]) -> bool {
    let Ok(given) = pairs(arguments).inspect_err(|problem| context.log_warning(problem)) else {
        return false;
    };
    for number in NUMBERS {
        let value = given.get(number.name).copied().unwrap_or(number.default);
        register_i64_configuration(
            context,
            number.name,
            &number.value,
            value,
            number.min,
            number.max,
            ConfigurationFlags::DEFAULT,
            None,
        );
    }
    crate::server::load_configuration(context)
}

/// The module's arguments, as pairs of a name and a number in its range.
fn pairs(arguments: &[RedisString]) -> Result<HashMap<&'static str, i64>, String> {
    let mut given = HashMap::new();
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            return Err("fairlock: the last module argument has no value".to_owned());
        };
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let short = name.strip_prefix("fairlock.").unwrap_or(&name);
        let number = NUMBERS
            .into_iter()
            .find(|number| number.name.eq_ignore_ascii_case(short))
            .ok_or_else(|| format!("fairlock: there is no option '{name}'"))?;
        let (min, max) = (number.min, number.max);
        let value = value
            .parse()
            .ok()
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| format!("fairlock: {name} must be a number from {min} to {max}"))?;
        given.insert(number.name, value);
    }
    Ok(given)
}
