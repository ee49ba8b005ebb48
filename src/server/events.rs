//! The server's events: iterations of the event loop and its timer, connections that close, keys that change, databases
//! that are flushed or swapped, and changes of the server's role.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::NotifyEvent;

use super::announce;
use super::api::{OK, api, raw};
use super::cluster;
use super::context;
use super::context::Ctx;
use super::filter;
use super::guard::{guard, require_main_thread};
use super::memory::Str;
use super::user;

/// Functions that the server's events call.
#[derive(Clone, Copy, Debug)]
pub struct Events {
    /// The event loop has events to deal with: the first thing in each of its iterations. Called while the module
    /// listens to them ([`follow_iterations`]).
    pub after_sleep: fn(&Ctx),
    /// The event loop is about to wait: after the commands of an iteration, before the replies of
    /// clients that were unblocked in it.
    pub before_sleep: fn(&Ctx),
    /// The timer of [`start_timer`] rings: in database 0, outside any command.
    pub timer_rings: fn(&Ctx),
    /// The connection with this id closes. Called from [`follow_connections`] on.
    pub connection_closes: fn(&Ctx, u64),
    /// A key of the context's database was changed from outside the module: class, event and key. The call comes
    /// in the middle of the command that changed it, so nothing may be written.
    pub key_changes: fn(&Ctx, NotifyEvent, &[u8], &[u8]),
    /// A database was flushed, or with `None` all were.
    pub flushed: fn(&Ctx, Option<i32>),
    /// These two databases have changed places.
    pub swapped: fn(&Ctx, [i32; 2]),
    /// The server has become a replica (true) or the master.
    pub role_changes: fn(&Ctx, bool),
    /// Slots have moved as a whole ([`follow_migrations`]): this node, or its master, owns them now (true), or another.
    pub slots_move: fn(&Ctx, bool),
}

/// Whether the module is subscribed to iterations of the event loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Following {
    No,
    Yes,
    /// The subscription is about to be taken back.
    NotForLong,
}

thread_local! {
    static EVENTS: Cell<Option<Events>> = const { Cell::new(None) };
    static FOLLOWS_ITERATIONS: Cell<Following> = const { Cell::new(Following::No) };
}

/// Whether the module is subscribed to the events of sorted sets.
static FOLLOWS_SCORES: AtomicBool = AtomicBool::new(false);
/// Whether it is subscribed to connections.
static FOLLOWS_CONNECTIONS: AtomicBool = AtomicBool::new(false);

/// The classes of key events that can concern a lock: events that delete, replace or expire keys, and events
/// that change queues. The classes of strings and hashes are left out: they are most of a server's traffic, and
/// a field that is taken out of a lock's hash is found without them. [`follow_scores`] adds the class of sorted sets.
const CLASSES: NotifyEvent = NotifyEvent::GENERIC
    .union(NotifyEvent::EXPIRED)
    .union(NotifyEvent::EVICTED)
    .union(NotifyEvent::LOADED)
    .union(NotifyEvent::LIST);

/// Subscribes these functions to the server's events. False if the server refuses.
pub fn subscribe(ctx: &Ctx, events: Events) -> bool {
    EVENTS.set(Some(events));
    FOLLOWS_SCORES.store(false, Ordering::Relaxed);
    FOLLOWS_CONNECTIONS.store(false, Ordering::Relaxed);
    FOLLOWS_ITERATIONS.set(Following::No);
    if listen(ctx, raw::REDISMODULE_EVENT_MODULE_CHANGE) {
        announce::look_for_listeners(ctx);
    }
    listen(ctx, raw::REDISMODULE_EVENT_FLUSHDB)
        && listen(ctx, raw::REDISMODULE_EVENT_SWAPDB)
        && listen(ctx, raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED)
        && listen_to_keys(ctx, CLASSES)
}

/// Subscribes to the events of sorted sets as well. Redisson's scripts rewrite the score of every waiter, so
/// the module does without these events while only such scripts use locks.
pub fn follow_scores(ctx: &Ctx) {
    if !FOLLOWS_SCORES.swap(true, Ordering::Relaxed) {
        FOLLOWS_SCORES.store(listen_to_keys(ctx, NotifyEvent::ZSET), Ordering::Relaxed);
    }
}

/// Subscribes to connections as well. For a module that listens, the server asks the system for the address of each
/// connection that opens or closes, so the module does without until a lock depends on a connection.
pub fn follow_connections(ctx: &Ctx) {
    let event = raw::REDISMODULE_EVENT_CLIENT_CHANGE;
    if !FOLLOWS_CONNECTIONS.swap(true, Ordering::Relaxed) && !listen(ctx, event) {
        ctx.log_warning("fairlock: the server does not tell of connections that close, so sessions do not end with them");
    }
}

/// Subscribes to slot migrations, if the server has them: older servers refuse.
pub fn follow_migrations(ctx: &Ctx) {
    let _ = listen(ctx, cluster::migration_event());
}

/// Subscribes to iterations of the event loop. True if the module was not subscribed.
pub fn follow_iterations() -> bool {
    match FOLLOWS_ITERATIONS.replace(Following::Yes) {
        Following::Yes | Following::NotForLong => return false,
        Following::No => (),
    }
    subscribe_to_iterations(true);
    true
}

/// Takes the subscription to iterations back, so that other commands cost the server less: in a moment, because the
/// server does not expect that from a callback for such an event.
pub fn rest() {
    extern "C" fn unsubscribe(_data: *mut c_void) {
        if FOLLOWS_ITERATIONS.get() == Following::NotForLong {
            FOLLOWS_ITERATIONS.set(Following::No);
            subscribe_to_iterations(false);
        }
    }
    FOLLOWS_ITERATIONS.set(Following::NotForLong);
    // SAFETY: the callback needs no data, and its code stays.
    unsafe { api!(EventLoopAddOneShot(Some(unsubscribe), null_mut())) };
}

fn subscribe_to_iterations(shall: bool) {
    // Without a callback the server forgets the last one.
    let callback: raw::RedisModuleEventCallback = if shall { Some(server_event) } else { None };
    user::without_call(|ctx| subscribe_to(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, callback));
}

fn listen_to_keys(ctx: &Ctx, classes: NotifyEvent) -> bool {
    let classes = classes.bits();
    // SAFETY: the callback has the signature that the server expects and its code stays.
    let status = unsafe { api!(SubscribeToKeyspaceEvents(ctx.raw, classes, Some(key_event))) };
    status == OK
}

/// Makes the next iteration of the event loop begin at once, even if there is nothing else to do.
pub fn hurry() {
    extern "C" fn nothing(_data: *mut c_void) {}
    // SAFETY: the callback does nothing; that the event loop wakes up for it is all.
    unsafe { api!(EventLoopAddOneShot(Some(nothing), null_mut())) };
}

/// A timer that has not fired yet.
pub struct Timer(raw::RedisModuleTimerID);

/// Starts a timer that rings once, after `delay` milliseconds.
pub fn start_timer(ctx: &Ctx, delay: u64) -> Timer {
    extern "C" fn ring(ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
        if let Some(events) = EVENTS.get() {
            guard("a timer", || (events.timer_rings)(&Ctx::new(ctx)));
        }
    }
    let delay = i64::try_from(delay).unwrap_or(i64::MAX);
    // SAFETY: the callback has the signature that the server expects; no data is passed.
    Timer(unsafe { api!(CreateTimer(ctx.raw, delay, Some(ring), null_mut())) })
}

pub fn stop_timer(ctx: &Ctx, timer: &Timer) {
    // SAFETY: an id that is not known any more is refused by the server.
    unsafe { api!(StopTimer(ctx.raw, timer.0, null_mut())) };
}

/// Subscribes to one kind of server event. False if the server refuses.
fn listen(ctx: &Ctx, id: u64) -> bool {
    subscribe_to(ctx.raw, id, Some(server_event))
}

fn subscribe_to(
    ctx: *mut raw::RedisModuleCtx,
    id: u64,
    callback: raw::RedisModuleEventCallback,
) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    raw::subscribe_to_server_event(ctx, event, callback) == raw::Status::Ok
}

/// All events of the server that the module is told of.
extern "C" fn server_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    require_main_thread();
    let Some(events) = EVENTS.get() else { return };
    let ctx = Ctx::new(ctx);
    guard("an event of the server", || match (event.id, subevent) {
        (raw::REDISMODULE_EVENT_EVENTLOOP, raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP) => {
            (events.before_sleep)(&ctx);
        }
        (raw::REDISMODULE_EVENT_EVENTLOOP, raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP) => {
            (events.after_sleep)(&ctx);
        }
        (
            raw::REDISMODULE_EVENT_CLIENT_CHANGE,
            raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED,
        ) => {
            // SAFETY: the info of this event has this form.
            if let Some(client) = unsafe { info::<raw::RedisModuleClientInfo>(data) } {
                (events.connection_closes)(&ctx, client.id);
            }
        }
        (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
            // SAFETY: as above.
            if let Some(flush) = unsafe { info::<raw::RedisModuleFlushInfo>(data) } {
                let db = (flush.dbnum >= 0).then(|| context::db_at(flush.dbnum));
                (events.flushed)(&ctx, db);
            }
        }
        (raw::REDISMODULE_EVENT_SWAPDB, _) => {
            // SAFETY: as above.
            if let Some(swap) = unsafe { info::<raw::RedisModuleSwapDbInfo>(data) } {
                let numbers = [swap.dbnum_first, swap.dbnum_second];
                context::swapped(numbers);
                (events.swapped)(&ctx, numbers.map(context::db_at));
            }
        }
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, role) => {
            let replica = role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA;
            context::role_changes(replica);
            (events.role_changes)(&ctx, replica);
        }
        (raw::REDISMODULE_EVENT_MODULE_CHANGE, _) => announce::look_for_listeners(&ctx),
        (event, what) => {
            if let Some(have_come) = cluster::have_come(event, what) {
                (events.slots_move)(&ctx, have_come);
            }
        }
    });
}

/// What comes with an event.
///
/// # Safety
/// It is null, or of this form, in the version that [`listen`] asks for.
unsafe fn info<'e, T>(data: *mut c_void) -> Option<&'e T> {
    // SAFETY: as the caller's.
    unsafe { data.cast::<T>().as_ref() }
}

extern "C" fn key_event(
    ctx: *mut raw::RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    require_main_thread();
    let Some(events) = EVENTS.get() else {
        return OK;
    };
    if announce::is_own(event) {
        return OK;
    }
    // SAFETY: the server passes the event's name as a C string that outlives this call.
    let event = unsafe { CStr::from_ptr(event) };
    guard("a key event", || {
        let class = NotifyEvent::from_bits_truncate(class);
        let key = Str::string_as_slice(key);
        let ctx = Ctx::new(ctx);
        (events.key_changes)(&ctx, class, event.to_bytes(), key);
        filter::restore_db(&ctx, event.to_bytes());
    });
    OK
}
