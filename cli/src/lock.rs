//! What a server replies about a lock.

use std::collections::HashMap;

use redis::{FromRedisValue, Value};
use uuid::Uuid;

/// A lock as FAIRLOCK.INFO and FAIRLOCK.LOCKS describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Its key; FAIRLOCK.INFO does not say it.
    pub name: Vec<u8>,
    pub owner: Option<Vec<u8>>,
    pub holds: i64,
    /// Milliseconds until it frees itself; -1 if never.
    pub lease: i64,
    /// The last fencing token, if one is known.
    pub token: Option<i64>,
    /// Whether it is bound to a connection.
    pub session: bool,
    pub waiting: i64,
    pub next: Option<Vec<u8>>,
    /// Number of holders. Where there are several, `owner` is the first, and lease, token and session are its.
    pub holders: i64,
    /// How many holders all of them tolerate: 1 if the lock is held exclusively; 0 if any number, or none holds it.
    pub limit: i64,
    /// Milliseconds since the holder got it; -1 if the server does not know. FAIRLOCK.INFO does
    /// not say it.
    pub held: i64,
}

impl Lock {
    /// Reads a map, or the flat array that it is in RESP2. Unknown fields are skipped.
    pub fn read(reply: &Value) -> Option<Self> {
        let fields: HashMap<String, Value> = redis::from_redis_value_ref(reply).ok()?;
        Some(Self {
            name: field(&fields, "name")?,
            owner: field(&fields, "owner")?,
            holds: field(&fields, "holds")?,
            lease: field(&fields, "lease")?,
            token: field(&fields, "token")?,
            session: field(&fields, "session")?,
            waiting: field(&fields, "waiting")?,
            next: field(&fields, "next")?,
            holders: field(&fields, "holders")?,
            limit: field(&fields, "limit")?,
            held: field(&fields, "held")?,
        })
    }

    /// Reads one element of what FAIRLOCK.HOLDERS replies: the lock as it is for this holder.
    pub fn read_holder(holder: &Value) -> Option<Self> {
        let holder: Vec<Value> = value(holder)?;
        let [owner, holds, lease, token, session, limit, ..] = holder.as_slice() else {
            return None;
        };
        Some(Self {
            owner: Some(value(owner)?),
            holds: value(holds)?,
            lease: value(lease)?,
            token: value(token)?,
            session: value(session)?,
            limit: value(limit)?,
            ..Self::default()
        })
    }

    /// Whether a hash that was found among other keys is a lock, and held. One with a number in a single field can be
    /// anybody's counter: a lock has a token, or a holder that is named as Redisson names its own.
    pub fn is_held(&self) -> bool {
        let is_named = |owner: &Vec<u8>| {
            let owner = String::from_utf8_lossy(owner);
            let parts = owner.split_once(':');
            parts.is_some_and(|(id, thread)| {
                Uuid::try_parse(id).is_ok() && thread.parse::<u64>().is_ok()
            })
        };
        self.holds > 0 && (self.token.is_some() || self.owner.as_ref().is_some_and(is_named))
    }

    /// Whether it is held SHARED, by several or by one that others may join.
    pub fn is_shared(&self) -> bool {
        self.holders > 0 && self.limit != 1
    }
}

/// The locks that FAIRLOCK.LOCKS replies and, if there are more, the cursor behind them.
pub fn page(reply: &Value) -> Option<(Vec<Lock>, Option<u64>)> {
    let mut all: Vec<Value> = value(reply)?;
    let more = all.last().and_then(|last| {
        let (field, cursor) = last.as_map_iter()?.next()?;
        (value::<String>(field)? == "more").then(|| value(cursor))?
    });
    all.truncate(all.len() - usize::from(more.is_some()));
    let locks = all.iter().map(Lock::read).collect::<Option<_>>()?;
    Some((locks, more))
}

/// The owners that FAIRLOCK.QUEUE replies, in order.
pub fn waiters(reply: &Value) -> Option<Vec<Vec<u8>>> {
    let waiters: Vec<Vec<Value>> = value(reply)?;
    let owner = |waiter: &Vec<Value>| value(waiter.first()?);
    waiters.iter().map(owner).collect()
}

/// A field of a map; its default if the server does not say it.
fn field<T: FromRedisValue + Default>(fields: &HashMap<String, Value>, name: &str) -> Option<T> {
    fields.get(name).map_or_else(|| Some(T::default()), value)
}

pub fn value<T: FromRedisValue>(value: &Value) -> Option<T> {
    redis::from_redis_value_ref(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_lock_is_not_read() {
        let text = |text: &str| Value::BulkString(text.into());
        let odd = Value::Array(vec![text("holds"), text("x")]);
        assert_eq!(Lock::read(&odd), None);
        assert_eq!(Lock::read_holder(&odd), None);
        assert_eq!(page(&Value::Array(vec![odd.clone()])), None);
    }
}
