//! A lock's holders and waiters.

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value, from_redis_value_ref};

/// A lock as the server has it now. If several hold it, `owner`, `holds`, `lease`, `token` and `session` are those of the
/// first that got it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The holder; `None`: it is free.
    pub owner: Option<String>,
    /// The hold count.
    pub holds: u32,
    /// The remaining lease; `None`: it is free, or held without one.
    pub lease: Option<Duration>,
    /// The fencing token; `None`: it is free, or a script took it.
    pub token: Option<i64>,
    /// Whether it is bound to a connection of its owner's.
    pub session: bool,
    /// How many wait for it.
    pub waiting: u32,
    /// The number of holders.
    pub holders: u32,
    /// How many holders the present ones tolerate; `None`: it is free, or any number.
    pub limit: Option<u32>,
}

impl Info {
    /// The reply to FAIRLOCK.INFO, or to the script that takes its place.
    pub(crate) fn of(reply: &Value) -> Self {
        let fields: HashMap<String, Value> = from_redis_value_ref(reply).unwrap_or_default();
        let owner: Option<String> = field(&fields, "owner");
        let lease = field(&fields, "lease").and_then(|ms: i64| ms.try_into().ok());
        Self {
            holds: field(&fields, "holds").unwrap_or_default(),
            lease: lease.filter(|_| owner.is_some()).map(Duration::from_millis),
            token: field(&fields, "token"),
            session: field(&fields, "session").unwrap_or_default(),
            waiting: field(&fields, "waiting").unwrap_or_default(),
            holders: field(&fields, "holders").unwrap_or_default(),
            limit: field(&fields, "limit").filter(|limit| *limit > 0),
            owner,
        }
    }
}

fn field<T: FromRedisValue>(fields: &HashMap<String, Value>, name: &str) -> Option<T> {
    let value = fields.get(name).filter(|value| **value != Value::Nil)?;
    from_redis_value_ref(value).ok()
}
