//! Walking over all keys, a few at a time, by the server's own SCAN.

use redis_module::{Context, RedisValue};

use super::context::{Ctx, text};

/// The keys that a walk has found, and the cursor to go on with: 0 if it is through.
type Found = (Vec<Vec<u8>>, u64);

impl Ctx {
    /// Some keys of the selected database: of the next `count` or a few more, those with names of this pattern. `None`
    /// if the server does not run SCAN, because its configuration has renamed the command.
    pub fn scan(&self, cursor: u64, count: usize, pattern: &str) -> Option<Found> {
        let (cursor, count) = (cursor.to_string(), count.to_string());
        let words = [cursor.as_str(), "COUNT", &count, "MATCH", pattern];
        found(Context::new(self.raw).call("SCAN", &words[..]).ok()?)
    }
}

/// The reply of SCAN: the next cursor, and what was found.
fn found(reply: RedisValue) -> Option<Found> {
    let RedisValue::Array(parts) = reply else {
        return None;
    };
    let [next, RedisValue::Array(items)] = parts.as_slice() else {
        return None;
    };
    let next = std::str::from_utf8(text(next)?).ok()?.parse().ok()?;
    let items = items.iter().filter_map(text).map(<[u8]>::to_vec);
    Some((items.collect(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_of_scan_is_a_cursor_and_what_was_found() {
        let bulk = |text: &str| RedisValue::BulkString(text.to_owned());
        let items = RedisValue::Array(vec![bulk("a"), RedisValue::StringBuffer(vec![0xff])]);
        let reply = |next: &str| RedisValue::Array(vec![bulk(next), items.clone()]);
        // A cursor uses all 64 bits.
        for next in [0, 17, u64::MAX] {
            let items = vec![b"a".to_vec(), vec![0xff]];
            assert_eq!(found(reply(&next.to_string())), Some((items, next)));
        }
        for odd in [reply("x"), reply("-1"), bulk("0"), RedisValue::Null] {
            assert_eq!(found(odd), None);
        }
    }
}
