//! What the server tells the module about: turns of the event loop, connections that close.

use std::cell::Cell;
use std::ffi::c_void;

use redis_module::raw;

use super::api::{OK, api};
use super::{Ctx, guard};

/// Functions that the server's events call.
#[derive(Clone, Copy, Debug)]
pub struct Events {
    /// The event loop has events to deal with: the first thing in each of its turns.
    pub turn_begins: fn(&Ctx),
    /// The event loop is about to wait: after the commands of a turn, before the replies of
    /// clients that were unblocked in it.
    pub turn_ends: fn(&Ctx),
    /// The connection with this id closes.
    pub connection_closes: fn(&Ctx, u64),
}

thread_local! {
    static EVENTS: Cell<Option<Events>> = const { Cell::new(None) };
}

/// Has the server call these functions from now on. False if it refuses.
#[must_use]
pub fn subscribe(ctx: &Ctx, events: Events) -> bool {
    EVENTS.set(Some(events));
    listen(ctx, raw::REDISMODULE_EVENT_EVENTLOOP, event_loop)
        && listen(ctx, raw::REDISMODULE_EVENT_CLIENT_CHANGE, client_change)
}

type Callback = extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

fn listen(ctx: &Ctx, id: u64, callback: Callback) -> bool {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the callback has the signature that the server expects and lives as long as the
    // module; the server forgets it when the module is unloaded.
    let status =
        unsafe { api!(RedisModule_SubscribeToServerEvent(ctx.raw, event, Some(callback)) or 1) };
    status == OK
}

extern "C" fn event_loop(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    let Some(events) = EVENTS.get() else { return };
    let handler = match subevent {
        raw::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP => events.turn_ends,
        raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP => events.turn_begins,
        _ => return,
    };
    guard("the event loop", || handler(&Ctx::new(ctx)));
}

extern "C" fn client_change(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    let Some(events) = EVENTS.get() else { return };
    if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    // SAFETY: this event comes with the client's info of version 1, as was asked for.
    let Some(client) = (unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() }) else {
        return;
    };
    let id = client.id;
    guard("a closing connection", || {
        (events.connection_closes)(&Ctx::new(ctx), id);
    });
}
