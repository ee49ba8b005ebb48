//! What a server replies about a lock.

use std::collections::HashMap;

use redis::{FromRedisValue, Value};

/// A lock as FAIRLOCK.INFO and FAIRLOCK.LOCKS describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock {
    /// Its key; FAIRLOCK.INFO does not say it.
    pub name: Vec<u8>,
    /// The holder, if there is one.
    pub owner: Option<Vec<u8>>,
    /// The hold count.
    pub holds: i64,
    /// Milliseconds until it frees itself; -1 if never.
    pub lease: i64,
    /// The last fencing token, if one is known.
    pub token: Option<i64>,
    /// Whether it is bound to a connection.
    pub session: bool,
    /// Number of waiters.
    pub waiting: i64,
    /// The head of the queue.
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
    #[must_use]
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
    #[must_use]
    pub fn read_holder(holder: &Value) -> Option<Self> {
        let Value::Array(holder) = holder else {
            return None;
        };
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

    /// Whether it is held SHARED, by several or by one that others may join.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.holders > 0 && self.limit != 1
    }
}

/// What FAIRLOCK.LOCKS or FAIRLOCK.HOLDERS replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The locks, or one lock as it is for each of its holders.
    pub locks: Vec<Lock>,
    /// If there are more: the cursor behind these.
    pub more: Option<Vec<u8>>,
}

impl Page {
    /// Reads the reply, each element by `read`.
    #[must_use]
    pub fn read(reply: &Value, read: fn(&Value) -> Option<Lock>) -> Option<Self> {
        let Value::Array(all) = reply else {
            return None;
        };
        let (locks, more) = match all.split_last() {
            Some((last, others)) if let Some(cursor) = cursor(last) => (others, Some(cursor)),
            _ => (all.as_slice(), None),
        };
        let locks = locks.iter().map(read).collect::<Option<_>>()?;
        Some(Self { locks, more })
    }
}

/// The cursor, if this is what follows a listing that was cut short.
fn cursor(reply: &Value) -> Option<Vec<u8>> {
    let (field, cursor) = reply.as_map_iter()?.next()?;
    let is_more = value::<String>(field)? == "more";
    is_more.then(|| value(cursor))?
}

/// The owners that FAIRLOCK.QUEUE replies, in order.
#[must_use]
pub fn waiters(reply: &Value) -> Option<Vec<Vec<u8>>> {
    let Value::Array(waiters) = reply else {
        return None;
    };
    let owner = |waiter: &Value| match waiter {
        Value::Array(waiter) => value(waiter.first()?),
        _ => None,
    };
    waiters.iter().map(owner).collect()
}

/// A field of a map; its default if the server does not say it.
fn field<T: FromRedisValue + Default>(fields: &HashMap<String, Value>, name: &str) -> Option<T> {
    fields.get(name).map_or_else(|| Some(T::default()), value)
}

fn value<T: FromRedisValue>(value: &Value) -> Option<T> {
    redis::from_redis_value_ref(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn both_protocols_say_the_same() {
        let fields = [
            (text("name"), text("k")),
            (text("owner"), text("a")),
            (text("lease"), Value::Int(900)),
            (text("token"), Value::Nil),
            (text("next"), text("b")),
            (text("holders"), Value::Int(3)),
            (text("limit"), Value::Int(5)),
            (text("of a later release"), Value::Int(1)),
        ];
        let session = text("session");
        let mut map = fields.to_vec();
        map.push((session.clone(), Value::Boolean(true)));
        let mut flat: Vec<Value> = fields.into_iter().flat_map(|(k, v)| [k, v]).collect();
        flat.extend([session, Value::Int(1)]);
        let expected = Lock {
            name: b"k".to_vec(),
            owner: Some(b"a".to_vec()),
            lease: 900,
            session: true,
            next: Some(b"b".to_vec()),
            holders: 3,
            limit: 5,
            ..Lock::default()
        };
        assert!(expected.is_shared());
        let map = Value::Map(map);
        assert_eq!(Lock::read(&map).as_ref(), Some(&expected));
        assert_eq!(Lock::read(&Value::Array(flat)), Some(expected.clone()));
        for rest in [
            Value::Map(vec![(text("more"), text("17"))]),
            Value::Array(vec![text("more"), text("17")]),
        ] {
            let cut = Page::read(&Value::Array(vec![map.clone(), rest]), Lock::read);
            let more = Some(b"17".to_vec());
            let locks = vec![expected.clone()];
            assert_eq!(cut, Some(Page { locks, more }));
        }
        let whole = Page::read(&Value::Array(vec![map]), Lock::read);
        assert_eq!(whole.map(|page| page.more), Some(None));
    }

    #[test]
    fn what_is_no_lock_is_not_read() {
        let odd = Value::Array(vec![text("holds"), text("x")]);
        assert_eq!(Lock::read(&odd), None);
        assert_eq!(Lock::read_holder(&odd), None);
        assert_eq!(
            Page::read(&Value::Array(vec![odd.clone()]), Lock::read),
            None
        );
        assert_eq!(waiters(&odd), None);
    }
}
