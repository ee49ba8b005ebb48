//! Changes one key at a time, in all four places where a change shows: the key itself; replicas and the
//! append-only file (as the plain command with that effect); WATCH and client-side caches; keyspace
//! events.

use std::ffi::CStr;

use redis_module::NotifyEvent;

use crate::lock::Wall;
use crate::server::announce::record_event;
use crate::server::{Key, Str, decimal, string};

/// Owners in one replicated RPUSH or ZREM: enough to be cheap, and no giant command.
const CHUNK: usize = 1000;

thread_local! {
    /// The hold count of a new holder.
    static ONE: Str = string(b"1");
}

fn announce(key: &Key<'_>, class: NotifyEvent, event: &'static CStr) {
    key.tell_of_change();
    record_event(class, event, key.name());
}

/// If the key has lost its last element, it was deleted.
fn announce_if_ended(key: &Key<'_>) {
    if key.is_empty() {
        record_event(NotifyEvent::GENERIC, c"del", key.name());
    }
}

/// Milliseconds as a score. Exact below 2^53.
#[allow(clippy::cast_precision_loss)]
fn score(at: Wall) -> f64 {
    // Replicas are sent an integer.
    at.millis().min(i64::MAX.cast_unsigned()) as f64
}

fn millis(at: Wall) -> Str {
    decimal(i64::try_from(at.millis()).unwrap_or(i64::MAX))
}

/// HSET of a new lock's fields: its owner, once, and its token.
pub fn take_lock(key: &mut Key<'_>, owner: &Str, token_field: &Str, token: &Str) {
    ONE.with(|one| {
        key.hash_set_two([(owner, one), (token_field, token)]);
        let arguments = [key.name(), owner, one, token_field, token];
        key.ctx().replicate(c"HSET", &arguments);
    });
    announce_field(key, c"hset");
}

/// Sets one field of a hash. `event` names the command that it is announced as, such as HSET.
pub fn set_field(key: &mut Key<'_>, field: &Str, value: &Str, event: &'static CStr) {
    key.hash_set(field, value);
    key.ctx().replicate(c"HSET", &[key.name(), field, value]);
    announce_field(key, event);
}

/// HDEL of one field that may be there.
pub fn remove_field(key: &mut Key<'_>, field: &Str) {
    if key.hash_remove(field) {
        key.ctx().replicate(c"HDEL", &[key.name(), field]);
        announce_field(key, c"hdel");
        announce_if_ended(key);
    }
}

/// Announces a change of a field that is deleted in the same step; only its event remains.
pub fn announce_field(key: &Key<'_>, event: &'static CStr) {
    announce(key, NotifyEvent::HASH, event);
}

pub fn expiry(key: &Key<'_>) -> Option<Wall> {
    key.expires_at().map(Wall::of)
}

pub fn set_expiry(key: &mut Key<'_>, at: Wall) {
    key.set_expires_at(Some(at.millis()));
    key.ctx()
        .replicate(c"PEXPIREAT", &[key.name(), &millis(at)]);
    announce(key, NotifyEvent::GENERIC, c"expire");
}

pub fn persist(key: &mut Key<'_>) {
    key.set_expires_at(None);
    key.ctx().replicate(c"PERSIST", &[key.name()]);
    announce(key, NotifyEvent::GENERIC, c"persist");
}

pub fn delete(key: &mut Key<'_>) {
    key.delete();
    key.ctx().replicate(c"DEL", &[key.name()]);
    announce(key, NotifyEvent::GENERIC, c"del");
}

/// SET with PXAT.
pub fn set_number(key: &mut Key<'_>, value: i64, expires: Wall) {
    let value = decimal(value);
    key.set_string(&value);
    key.set_expires_at(Some(expires.millis()));
    let arguments = [key.name(), &value, &string(b"PXAT"), &millis(expires)];
    key.ctx().replicate(c"SET", &arguments);
    announce(key, NotifyEvent::STRING, c"set");
    record_event(NotifyEvent::GENERIC, c"expire", key.name());
}

pub fn push(key: &mut Key<'_>, element: &Str) {
    key.list_push(element);
    key.ctx().replicate(c"RPUSH", &[key.name(), element]);
    announce(key, NotifyEvent::LIST, c"rpush");
}

/// Removes the element of a list whose index is known: LPOP, RPOP, or LREM from the nearer end.
/// Replicas have no index, so only they walk the list, and half of it at most. `event`, if it is not to be that of the
/// replicated command.
pub fn remove_at(key: &mut Key<'_>, index: usize, element: &Str, event: Option<&'static CStr>) {
    let length = key.len();
    key.list_delete(index);
    let (ctx, name) = (key.ctx(), key.name());
    let replicated = if index == 0 {
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
    announce(key, NotifyEvent::LIST, event.unwrap_or(replicated));
    announce_if_ended(key);
}

/// Writes a list anew: DEL and RPUSH.
pub fn rewrite_list(key: &mut Key<'_>, elements: &[Str]) {
    delete(key);
    for element in elements {
        key.list_push(element);
    }
    for chunk in elements.chunks(CHUNK) {
        let arguments: Vec<&Str> = std::iter::once(key.name()).chain(chunk).collect();
        key.ctx().replicate(c"RPUSH", &arguments);
        announce(key, NotifyEvent::LIST, c"rpush");
    }
}

pub fn set_score(key: &mut Key<'_>, member: &Str, at: Wall) {
    key.set_score(member, score(at));
    let arguments = [key.name(), &millis(at), member];
    key.ctx().replicate(c"ZADD", &arguments);
    announce(key, NotifyEvent::ZSET, c"zadd");
}

/// ZREM of one member that may be there.
pub fn remove_member(key: &mut Key<'_>, member: &Str) {
    if key.remove_member(member) {
        announce_removal(key, &[key.name(), member]);
        announce_if_ended(key);
    }
}

/// ZREM of members that may be there.
pub fn remove_members(key: &mut Key<'_>, members: &[Str]) {
    let mut removed = Vec::with_capacity(members.len());
    removed.extend(members.iter().filter(|member| key.remove_member(member)));
    for chunk in removed.chunks(CHUNK) {
        let chunk = chunk.iter().copied();
        let arguments: Vec<&Str> = std::iter::once(key.name()).chain(chunk).collect();
        announce_removal(key, &arguments);
    }
    if !removed.is_empty() {
        announce_if_ended(key);
    }
}

/// `arguments`: the key and the members that were removed.
fn announce_removal(key: &Key<'_>, arguments: &[&Str]) {
    key.ctx().replicate(c"ZREM", arguments);
    announce(key, NotifyEvent::ZSET, c"zrem");
}
