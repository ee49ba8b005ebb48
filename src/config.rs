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

use crate::server::Ctx;

/// Longest duration that an option or an argument may have, in milliseconds: with the time added
/// it is still exact in a sorted set's score (a double), and far beyond any use.
pub const LONGEST_DURATION: i64 = 1 << 52;

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

/// All numbers, in the order of the documentation.
pub static NUMBERS: [&Number; 5] = [&LEASE, &PATIENCE, &TURN, &CLOCK_SKEW, &MAX_WAITERS];

/// Whether Redisson's fair-lock scripts are run natively. By default they are where a command filter is told its
/// client: since Redis 7.2, and in Valkey.
static INTERCEPT_EVAL: AtomicBool = AtomicBool::new(false);

/// The name of the option after `fairlock.`.
const INTERCEPT_EVAL_NAME: &str = "intercept-eval";

/// Whether Redisson's fair-lock scripts are run natively now.
pub fn intercept_eval() -> bool {
    INTERCEPT_EVAL.load(Ordering::Relaxed)
}

enum_configuration! {
    /// The command by which wake-ups are sent. The names are those that CONFIG GET shows.
    #[derive(Copy, Debug, PartialEq, Eq)]
    #[allow(nonstandard_style, clippy::expl_impl_clone_on_copy)]
    pub enum Pubsub {
        /// SPUBLISH in a cluster, PUBLISH elsewhere.
        auto = 0,
        /// PUBLISH.
        publish = 1,
        /// SPUBLISH.
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

static PUBSUB: Mutex<Pubsub> = Mutex::new(Pubsub::auto);

/// The name of the option after `fairlock.`.
const PUBSUB_NAME: &str = "pubsub";

/// The command by which wake-ups are sent now.
pub fn pubsub() -> Pubsub {
    PUBSUB.lock().map_or(Pubsub::auto, |pubsub| *pubsub)
}

/// What the module's arguments say.
#[derive(Debug)]
struct Given {
    numbers: HashMap<&'static str, i64>,
    pubsub: Pubsub,
    intercept_eval: bool,
}

/// Registers the options at the server, with values from the module's arguments
/// (`loadmodule libfairlock.so lease 10000`), the configuration file or the defaults. False, with
/// a line in the log, if an argument or value is unusable.
pub fn load(ctx: &Ctx, context: &Context, arguments: &[RedisString]) -> bool {
    let Ok(given) = parse(arguments).inspect_err(|problem| ctx.log_warning(problem)) else {
        return false;
    };
    for number in NUMBERS {
        let value = given.numbers.get(number.name);
        register_i64_configuration(
            context,
            number.name,
            &number.value,
            value.copied().unwrap_or(number.default),
            number.min,
            number.max,
            ConfigurationFlags::DEFAULT,
            None,
        );
    }
    register_enum_configuration(
        context,
        PUBSUB_NAME,
        &PUBSUB,
        given.pubsub,
        ConfigurationFlags::DEFAULT,
        None,
    );
    register_bool_configuration(
        context,
        INTERCEPT_EVAL_NAME,
        &INTERCEPT_EVAL,
        given.intercept_eval,
        ConfigurationFlags::DEFAULT,
        None,
    );
    crate::server::load_configuration(context)
}

/// The module's arguments, as pairs of a name and a value in its range.
fn parse(arguments: &[RedisString]) -> Result<Given, String> {
    let mut given = Given {
        numbers: HashMap::new(),
        pubsub: Pubsub::auto,
        intercept_eval: crate::server::filter::knows_clients(),
    };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            return Err("fairlock: the last module argument has no value".to_owned());
        };
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        let short = name.strip_prefix("fairlock.").unwrap_or(&name);
        let must_be = |what: &str| format!("fairlock: {name} must be {what}");
        if short.eq_ignore_ascii_case(PUBSUB_NAME) {
            let pubsub = Pubsub::named(&value);
            given.pubsub = pubsub.ok_or_else(|| must_be("auto, publish, spublish or both"))?;
            continue;
        }
        if short.eq_ignore_ascii_case(INTERCEPT_EVAL_NAME) {
            given.intercept_eval = yes_or_no(&value).ok_or_else(|| must_be("yes or no"))?;
            continue;
        }
        let number = NUMBERS
            .into_iter()
            .find(|number| number.name.eq_ignore_ascii_case(short))
            .ok_or_else(|| format!("fairlock: there is no option '{name}'"))?;
        let (min, max) = (number.min, number.max);
        let value = value
            .parse()
            .ok()
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| must_be(&format!("a number from {min} to {max}")))?;
        given.numbers.insert(number.name, value);
    }
    Ok(given)
}

fn yes_or_no(value: &str) -> Option<bool> {
    let is = |word: &str| value.eq_ignore_ascii_case(word);
    (is("yes") || is("no")).then(|| is("yes"))
}
