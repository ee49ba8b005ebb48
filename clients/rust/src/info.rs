//! A lock's holders and waiters.

use std::collections::HashMap;
use std::time::Duration;

use redis::{FromRedisValue, Value};

use crate::line::items;

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
    /// The reply to FAIRLOCK.INFO, or the state from the keys without the module.
    pub(crate) fn of(reply: &Value) -> Self {
        if let [hash, lease, waiting] = items(reply) {
            return Self::of_keys(hash, lease, waiting);
        }
        let fields: HashMap<String, Value> = redis::from_redis_value_ref(reply).unwrap_or_default();
        let owner: Option<String> = field(&fields, "owner");
        let lease: Option<u64> = field::<i64>(&fields, "lease").and_then(|ms| ms.try_into().ok());
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

impl Info {
    /// The hash of a lock has its owner's holds, and the token in a field without a name.
    fn of_keys(hash: &Value, lease: &Value, waiting: &Value) -> Self {
        let fields: HashMap<String, i64> = redis::from_redis_value_ref(hash).unwrap_or_default();
        let owner = fields.keys().find(|owner| !owner.is_empty()).cloned();
        let lease: i64 = redis::from_redis_value_ref(lease).unwrap_or_default();
        let holds = owner.as_ref().and_then(|owner| fields.get(owner));
        let is_held = u32::from(owner.is_some());
        Self {
            holds: holds
                .and_then(|holds| (*holds).try_into().ok())
                .unwrap_or_default(),
            lease: lease
                .try_into()
                .ok()
                .filter(|_| owner.is_some())
                .map(Duration::from_millis),
            token: fields.get("").copied(),
            session: false,
            waiting: redis::from_redis_value_ref(waiting).unwrap_or_default(),
            holders: is_held,
            limit: owner.as_ref().map(|_| 1),
            owner,
        }
    }
}

fn field<T: FromRedisValue>(fields: &HashMap<String, Value>, name: &str) -> Option<T> {
    let value = fields.get(name).filter(|value| **value != Value::Nil)?;
    redis::from_redis_value_ref(value).ok()
}
