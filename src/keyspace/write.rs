//! Changing one key at a time, in all four places where a change shows: the key itself, the
//! replicas and the append-only file (as the plain command with that effect), WATCH and
//! client-side caches, and keyspace events.

use std::ffi::CStr;

use redis_module::NotifyEvent;

use crate::lock::Millis;
use crate::server::{Access, Ctx, Key, Str, string};

/// Owners in one replicated RPUSH or ZREM: enough to be cheap, and no giant command.
const CHUNK: usize = 1000;

fn announce(ctx: &Ctx, class: NotifyEvent, event: &CStr, key: &Str) {
    ctx.changed(key);
    ctx.notify(class, event, key);
}

/// Milliseconds as a score. Exact below 2^53.
#[allow(clippy::cast_precision_loss)]
fn score(at: Millis) -> f64 {
    at as f64
}

fn decimal(number: Millis) -> Str {
    string(number.to_string().as_bytes())
}

/// HSET of one field, or whatever else is announced by this event.
pub fn set_field(ctx: &Ctx, key: &mut Key<'_>, name: &Str, field: &Str, value: i64, event: &CStr) {
    let value = string(value.to_string().as_bytes());
    key.hash_set(field, &value);
    ctx.replicate(c"HSET", &[name, field, &value]);
    announce(ctx, NotifyEvent::HASH, event, name);
}

/// PEXPIREAT.
pub fn set_expiry(ctx: &Ctx, key: &mut Key<'_>, name: &Str, at: Millis) {
    key.set_expires_at(at);
    ctx.replicate(c"PEXPIREAT", &[name, &decimal(at)]);
    announce(ctx, NotifyEvent::GENERIC, c"expire", name);
}

/// PERSIST.
pub fn persist(ctx: &Ctx, key: &mut Key<'_>, name: &Str) {
    key.set_persistent();
    ctx.replicate(c"PERSIST", &[name]);
    announce(ctx, NotifyEvent::GENERIC, c"persist", name);
}

/// DEL.
pub fn delete(ctx: &Ctx, key: &mut Key<'_>, name: &Str) {
    key.delete();
    ctx.replicate(c"DEL", &[name]);
    announce(ctx, NotifyEvent::GENERIC, c"del", name);
}

/// SET with PXAT.
pub fn set_number(ctx: &Ctx, key: &mut Key<'_>, name: &Str, value: i64, expires: Millis) {
    let value = string(value.to_string().as_bytes());
    key.set_string(&value);
    key.set_expires_at(expires);
    ctx.replicate(c"SET", &[name, &value, &string(b"PXAT"), &decimal(expires)]);
    announce(ctx, NotifyEvent::STRING, c"set", name);
    ctx.notify(NotifyEvent::GENERIC, c"expire", name);
}

/// RPUSH of one element.
pub fn push(ctx: &Ctx, name: &Str, element: &Str) {
    ctx.open(name, Access::Write).list_push(element);
    ctx.replicate(c"RPUSH", &[name, element]);
    announce(ctx, NotifyEvent::LIST, c"rpush", name);
}

/// Removes the element of a list whose index is known: LPOP, RPOP, or LREM from the nearer end.
/// Replicas have no index, so theirs is the only walk, of half a queue at most.
pub fn remove_at(ctx: &Ctx, name: &Str, index: usize, length: usize, element: &Str) {
    // A fresh handle: the server jumps to the index then, rather than walk there.
    ctx.open(name, Access::Write).list_delete(index);
    let event = if index == 0 {
        ctx.replicate(c"LPOP", &[name]);
        c"lpop"
    } else if index + 1 == length {
        ctx.replicate(c"RPOP", &[name]);
        c"rpop"
    } else {
        let direction: &[u8] = if index < length / 2 { b"1" } else { b"-1" };
        ctx.replicate(c"LREM", &[name, &string(direction), element]);
        c"lrem"
    };
    announce(ctx, NotifyEvent::LIST, event, name);
    if length == 1 {
        ctx.notify(NotifyEvent::GENERIC, c"del", name);
    }
}

/// LREM of every such element.
pub fn remove_elements(ctx: &Ctx, name: &Str, element: &Str) {
    let list = ctx.open(name, Access::Read);
    let length = list.len();
    let is_it = |index: &usize| {
        let found = list.list_get(*index);
        found.is_some_and(|found| found.as_slice() == element.as_slice())
    };
    let places: Vec<usize> = (0..length).filter(is_it).collect();
    drop(list);
    if places.is_empty() {
        return;
    }
    // From the end, so that the places before stay what they are.
    for index in places.iter().rev() {
        ctx.open(name, Access::Write).list_delete(*index);
    }
    ctx.replicate(c"LREM", &[name, &string(b"0"), element]);
    announce(ctx, NotifyEvent::LIST, c"lrem", name);
    if places.len() == length {
        ctx.notify(NotifyEvent::GENERIC, c"del", name);
    }
}

/// Writes a list anew: DEL and RPUSH.
pub fn rewrite_list(ctx: &Ctx, name: &Str, elements: &[Str]) {
    let mut key = ctx.open(name, Access::Write);
    delete(ctx, &mut key, name);
    for element in elements {
        key.list_push(element);
    }
    drop(key);
    for chunk in elements.chunks(CHUNK) {
        let mut arguments = vec![name];
        arguments.extend(chunk);
        ctx.replicate(c"RPUSH", &arguments);
        announce(ctx, NotifyEvent::LIST, c"rpush", name);
    }
}

/// ZADD of one member.
pub fn set_score(ctx: &Ctx, name: &Str, member: &Str, at: Millis) {
    ctx.open(name, Access::Write).set_score(member, score(at));
    ctx.replicate(c"ZADD", &[name, &decimal(at), member]);
    announce(ctx, NotifyEvent::ZSET, c"zadd", name);
}

/// ZADD of members with any scores; each is announced by this event.
pub fn set_scores(ctx: &Ctx, name: &Str, scores: &[(Str, f64)], event: &CStr) {
    let mut key = ctx.open(name, Access::Write);
    for (member, score) in scores {
        key.set_score(member, *score);
    }
    drop(key);
    for chunk in scores.chunks(CHUNK) {
        let written = chunk.iter().map(|(_, score)| exact(*score));
        let written: Vec<Str> = written.collect();
        let pairs = written.iter().zip(chunk);
        let pairs = pairs.flat_map(|(score, (member, _))| [score, member]);
        let arguments: Vec<&Str> = std::iter::once(name).chain(pairs).collect();
        ctx.replicate(c"ZADD", &arguments);
    }
    for _ in scores {
        announce(ctx, NotifyEvent::ZSET, event, name);
    }
}

/// A score as text that is read as the same score.
fn exact(score: f64) -> Str {
    string(format!("{score:e}").as_bytes())
}

/// ZREM of members that may be there.
pub fn remove_members(ctx: &Ctx, name: &Str, members: &[Str]) {
    let mut key = ctx.open(name, Access::Write);
    let removed: Vec<&Str> = members
        .iter()
        .filter(|member| key.remove_member(member))
        .collect();
    let empty = key.is_empty();
    drop(key);
    for chunk in removed.chunks(CHUNK) {
        let mut arguments = vec![name];
        arguments.extend(chunk);
        ctx.replicate(c"ZREM", &arguments);
        announce(ctx, NotifyEvent::ZSET, c"zrem", name);
    }
    if empty && !removed.is_empty() {
        ctx.notify(NotifyEvent::GENERIC, c"del", name);
    }
}
