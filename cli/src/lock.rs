//! What a server replies about a lock.

use redis::Value;

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
        let mut lock = Self::default();
        for (field, value) in reply.as_map_iter()? {
            let Value::BulkString(field) = field else {
                return None;
            };
            match field.as_slice() {
                b"name" => lock.name = bytes(value)?,
                b"owner" => lock.owner = bytes(value),
                b"holds" => lock.holds = number(value)?,
                b"lease" => lock.lease = number(value)?,
                b"token" => lock.token = number(value),
                b"session" => lock.session = truth(value)?,
                b"waiting" => lock.waiting = number(value)?,
                b"next" => lock.next = bytes(value),
                b"holders" => lock.holders = number(value)?,
                b"limit" => lock.limit = number(value)?,
                b"held" => lock.held = number(value)?,
                _ => (),
            }
        }
        Some(lock)
    }

    /// Whether it is held SHARED, by several or by one that others may join.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.holders > 0 && self.limit != 1
    }

    /// One element of what FAIRLOCK.HOLDERS replies: the lock as it is for this holder.
    fn read_holder(holder: &Value) -> Option<Self> {
        let Value::Array(holder) = holder else {
            return None;
        };
        let [owner, holds, lease, token, session, limit, ..] = holder.as_slice() else {
            return None;
        };
        Some(Self {
            owner: Some(bytes(owner)?),
            holds: number(holds)?,
            lease: number(lease)?,
            token: number(token),
            session: truth(session)?,
            limit: number(limit)?,
            ..Self::default()
        })
    }
}

/// What FAIRLOCK.HOLDERS replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// The holders: the lock as it is for each of them.
    pub holders: Vec<Lock>,
    /// If there are more: the cursor behind these.
    pub more: Option<Vec<u8>>,
}

impl Holders {
    /// Reads the reply.
    #[must_use]
    pub fn read(reply: &Value) -> Option<Self> {
        let (holders, more) = split(reply)?;
        let holders = holders
            .iter()
            .map(Lock::read_holder)
            .collect::<Option<_>>()?;
        Some(Self { holders, more })
    }

    /// Takes one of them out.
    #[must_use]
    pub fn take(self, owner: &[u8]) -> Option<Lock> {
        let mut holders = self.holders.into_iter();
        holders.find(|holder| holder.owner.as_deref() == Some(owner))
    }
}

/// A waiter as FAIRLOCK.QUEUE describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Its name.
    pub owner: Vec<u8>,
    /// Whether its connection is blocked. If not, it asks again and again.
    pub blocked: bool,
    /// Milliseconds until it counts as dead, unless it asks before; -1 if it is blocked.
    pub deadline: i64,
    /// How many holders it tolerates: 1 if it wants the lock for itself; 0 if any number.
    pub limit: i64,
}

impl Waiter {
    /// Reads the reply.
    #[must_use]
    pub fn read_all(reply: &Value) -> Option<Vec<Self>> {
        let Value::Array(waiters) = reply else {
            return None;
        };
        waiters.iter().map(Self::read).collect()
    }

    fn read(waiter: &Value) -> Option<Self> {
        let Value::Array(waiter) = waiter else {
            return None;
        };
        let [owner, state, deadline, limit, ..] = waiter.as_slice() else {
            return None;
        };
        Some(Self {
            owner: bytes(owner)?,
            blocked: bytes(state)? == b"blocked",
            deadline: number(deadline)?,
            limit: number(limit)?,
        })
    }
}

/// What FAIRLOCK.LOCKS replies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The locks.
    pub locks: Vec<Lock>,
    /// If there are more: the cursor behind these.
    pub more: Option<Vec<u8>>,
}

impl Listing {
    /// Reads the reply.
    #[must_use]
    pub fn read(reply: &Value) -> Option<Self> {
        let (locks, more) = split(reply)?;
        let locks = locks.iter().map(Lock::read).collect::<Option<_>>()?;
        Some(Self { locks, more })
    }
}

/// A listing, and the cursor behind it if it was cut short.
fn split(reply: &Value) -> Option<(&[Value], Option<Vec<u8>>)> {
    let Value::Array(all) = reply else {
        return None;
    };
    if let Some((last, others)) = all.split_last()
        && let Some(cursor) = cursor(last)
    {
        return Some((others, Some(cursor)));
    }
    Some((all, None))
}

/// The cursor, if this is what follows a listing that was cut short.
fn cursor(reply: &Value) -> Option<Vec<u8>> {
    let (field, cursor) = reply.as_map_iter()?.next()?;
    (bytes(field)? == b"more").then(|| bytes(cursor))?
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Boolean(truth) => Some(*truth),
        Value::Int(number) => Some(*number != 0),
        _ => None,
    }
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
            (text("holds"), Value::Int(2)),
            (text("lease"), Value::Int(900)),
            (text("token"), Value::Nil),
            (text("waiting"), Value::Int(1)),
            (text("next"), text("b")),
            (text("holders"), Value::Int(3)),
            (text("limit"), Value::Int(5)),
            (text("held"), Value::Int(-1)),
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
            holds: 2,
            lease: 900,
            token: None,
            session: true,
            waiting: 1,
            next: Some(b"b".to_vec()),
            holders: 3,
            limit: 5,
            held: -1,
        };
        assert!(expected.is_shared());
        let map = Value::Map(map);
        assert_eq!(Lock::read(&map).as_ref(), Some(&expected));
        assert_eq!(Lock::read(&Value::Array(flat)), Some(expected.clone()));
        let all = Listing::read(&Value::Array(vec![map.clone()]));
        let locks = vec![expected];
        let (more, listing) = (None, all.expect("a listing"));
        assert_eq!(listing, Listing { locks, more });
        for rest in [
            Value::Map(vec![(text("more"), text("17"))]),
            Value::Array(vec![text("more"), text("17")]),
        ] {
            let cut = Listing::read(&Value::Array(vec![map.clone(), rest]));
            let more = Some(b"17".to_vec());
            let locks = listing.locks.clone();
            assert_eq!(cut, Some(Listing { locks, more }));
        }
    }

    #[test]
    fn a_holder_is_found_among_others() {
        let holder = |owner, token, session| {
            let numbers = [Value::Int(2), Value::Int(900), token, session];
            let words = std::iter::once(text(owner)).chain(numbers);
            Value::Array(words.chain([Value::Int(5)]).collect())
        };
        let holders = Value::Array(vec![
            holder("a", Value::Nil, Value::Int(0)),
            holder("b", Value::Int(7), Value::Boolean(true)),
        ]);
        let expected = Lock {
            owner: Some(b"b".to_vec()),
            holds: 2,
            lease: 900,
            token: Some(7),
            session: true,
            limit: 5,
            ..Lock::default()
        };
        let all = Holders::read(&holders).expect("holders");
        assert_eq!(all.more, None);
        assert_eq!(all.clone().take(b"b"), Some(expected));
        assert_eq!(all.take(b"c"), None);
        assert_eq!(Holders::read(&Value::Int(1)), None);
        let odd = Value::Array(vec![Value::Array(vec![text("c"), Value::Int(1)])]);
        assert_eq!(Holders::read(&odd), None);
        let rest = Value::Array(vec![text("more"), text("17")]);
        let cut = Value::Array(vec![holder("a", Value::Nil, Value::Int(0)), rest]);
        let cut = Holders::read(&cut).expect("holders");
        assert_eq!((cut.holders.len(), cut.more), (1, Some(b"17".to_vec())));
    }

    #[test]
    fn waiters_are_read_in_order() {
        let waiter = |owner, state, deadline, limit| {
            let numbers = [Value::Int(deadline), Value::Int(limit)];
            Value::Array(
                [text(owner), text(state)]
                    .into_iter()
                    .chain(numbers)
                    .collect(),
            )
        };
        let reply = Value::Array(vec![
            waiter("a", "blocked", -1, 1),
            waiter("b", "polling", 900, 0),
        ]);
        let waiters = Waiter::read_all(&reply).expect("waiters");
        assert!(waiters[0].blocked && !waiters[1].blocked);
        assert_eq!(
            (waiters[1].owner.as_slice(), waiters[1].deadline),
            (&b"b"[..], 900)
        );
        assert_eq!(Waiter::read_all(&Value::Nil), None);
        assert_eq!(Waiter::read_all(&Value::Array(vec![text("a")])), None);
    }

    #[test]
    fn an_exclusive_holder_is_alone() {
        for (holders, limit, shared) in [(0, 0, false), (1, 1, false), (1, 0, true), (2, 5, true)] {
            let lock = Lock {
                holders,
                limit,
                ..Lock::default()
            };
            assert_eq!(lock.is_shared(), shared, "{holders} {limit}");
        }
    }

    #[test]
    fn what_is_no_lock_is_not_read() {
        assert_eq!(Lock::read(&Value::Int(1)), None);
        assert_eq!(
            Lock::read(&Value::Array(vec![text("holds"), text("x")])),
            None
        );
        assert_eq!(Listing::read(&Value::Nil), None);
    }
}
