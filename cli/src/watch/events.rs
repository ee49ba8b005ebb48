//! Whether a server announces events, and how to make it.

use redis::Value;

use crate::failure::{Failure, NO_EVENTS};
use crate::server::{Link, Trouble};

const OPTION: &str = "notify-keyspace-events";
/// Classes of events: by the key's channel, modules' own, ends of leases.
const WANTED: &str = "Kdx";

/// The channel of a key's events.
#[must_use]
pub fn channel(db: i64, key: &[u8]) -> Vec<u8> {
    let mut channel = format!("__keyspace@{db}__:").into_bytes();
    channel.extend_from_slice(key);
    channel
}

/// Whether an event is the module's own.
#[must_use]
pub fn is_own(event: &str) -> bool {
    event.starts_with("fairlock.")
}

/// Whether the lock may have changed hands with an event: not with events of waiters.
#[must_use]
pub fn may_change_holder(event: &str) -> bool {
    !matches!(
        event,
        "fairlock.enqueue" | "fairlock.cancel" | "fairlock.reap"
    )
}

/// Makes sure that the server announces the module's events. Returns a notice if it cannot tell.
pub async fn ensure(link: &Link, enable: bool) -> Result<Option<String>, Trouble> {
    let address = link.target.address();
    let reply = link.ask(redis::cmd("CONFIG").arg("GET").arg(OPTION)).await;
    let flags = match reply {
        Ok(reply) => flags(&reply).ok_or_else(|| Trouble::odd("CONFIG GET", &link.target))?,
        // Managed servers have no CONFIG, and users may lack it.
        Err(Trouble::Lasting(_, failure)) if !enable => {
            return Ok(Some(format!(
                "cannot see whether events are announced; if nothing is shown, ask an administrator to run `CONFIG SET {OPTION} {WANTED}` at {address} ({failure})"
            )));
        }
        Err(trouble) => return Err(trouble),
    };
    if announces(&flags) {
        return Ok(None);
    }
    let all = with_wanted(&flags);
    if !enable {
        let text = format!(
            "the server at {address} does not announce events ({OPTION} is \"{flags}\"): run `redis-cli -u redis://{address} CONFIG SET {OPTION} {all}`, or give --enable-events"
        );
        let failure = Failure::new(NO_EVENTS, text);
        return Err(Trouble::Lasting(None, failure));
    }
    link.ask(redis::cmd("CONFIG").arg("SET").arg(OPTION).arg(&all))
        .await?;
    Ok(Some(format!(
        "{OPTION} at {address} was \"{flags}\" and is \"{all}\" now; CONFIG REWRITE keeps it"
    )))
}

/// The value of CONFIG GET's reply.
fn flags(reply: &Value) -> Option<String> {
    let (_, value) = reply.as_map_iter()?.next()?;
    match value {
        Value::BulkString(flags) => Some(String::from_utf8_lossy(flags).into_owned()),
        _ => None,
    }
}

/// `A` is short for all classes.
fn announces(flags: &str) -> bool {
    flags.contains('K') && flags.contains(['d', 'A'])
}

/// What is set now, and what is missing.
fn with_wanted(flags: &str) -> String {
    let missing = |class: &char| !flags.contains(*class) && (*class == 'K' || !flags.contains('A'));
    flags
        .chars()
        .chain(WANTED.chars().filter(missing))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_need_their_channel_and_their_class() {
        for (flags, enough) in [
            ("", false),
            ("K", false),
            ("Ed", false),
            ("EA", false),
            ("Kd", true),
            ("KEA", true),
        ] {
            assert_eq!(announces(flags), enough, "{flags}");
            assert!(announces(&with_wanted(flags)), "{flags}");
        }
    }

    #[test]
    fn what_is_set_stays_set() {
        assert_eq!(with_wanted(""), "Kdx");
        assert_eq!(with_wanted("Eg"), "EgKdx");
        assert_eq!(with_wanted("AE"), "AEK");
    }

    #[test]
    fn the_channel_has_the_key_as_it_is() {
        assert_eq!(channel(3, b"a\xff"), b"__keyspace@3__:a\xff");
    }
}
