//! Blocking a client until the lock is handed to it.
//!
//! A client's wait ends in exactly one of three ways, and each of them calls the handler once:
//!
//! - the module unblocks the client with an outcome: [`Blocking::reply`] runs before the event loop
//!   sleeps. If the client has gone by then, [`Blocking::not_received`] runs instead;
//! - CLIENT UNBLOCK ... TIMEOUT ends the wait as a time-out: [`Blocking::timed_out`];
//! - the connection closes, or CLIENT UNBLOCK ... ERROR ends the wait: [`Blocking::disconnected`].
//!
//! The server keeps its record of a blocked client until the module unblocks it, even if the client has
//! gone. So each [`Handle`] must be unblocked or discarded.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use super::api::{OK, api, raw};
use super::context::Ctx;
use super::guard::{guard, require_main_thread};

/// The handler of one kind of blocked clients.
pub trait Blocking: Sized {
    /// What a client is told when it is unblocked.
    type Outcome;

    /// Replies the outcome to the client that was unblocked.
    fn reply(ctx: &Ctx, outcome: &Self::Outcome);
    /// The client was unblocked with this outcome, and has not received it: it had gone before the reply was
    /// made, or the reply panicked. The context belongs to no client: it can start timers, and keys cannot be
    /// opened in it.
    fn not_received(ctx: &Ctx, outcome: Self::Outcome);
    /// CLIENT UNBLOCK ... TIMEOUT has ended the wait: reply to the client and discard the handle of this id.
    fn timed_out(ctx: &Ctx, id: Id);
    /// The client's connection has closed, or CLIENT UNBLOCK ... ERROR has ended the wait: discard the handle
    /// of this id. This can happen in the middle of another client's command: keys should not be opened,
    /// timers can be started.
    fn disconnected(ctx: &Ctx, id: Id);
}

/// Identifies a blocked client among those blocked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(usize);

/// A blocked client that has not been unblocked yet.
#[derive(Debug)]
pub struct Handle<B: Blocking> {
    raw: NonNull<raw::RedisModuleBlockedClient>,
    handler: PhantomData<B>,
}

struct Delivery<B: Blocking> {
    outcome: B::Outcome,
    replied: bool,
}

impl Ctx {
    /// Blocks the calling client, without limit of time. To be called only where
    /// [`super::Flags::deny_blocking`] is false.
    pub fn block<B: Blocking>(&self) -> Option<Handle<B>> {
        // SAFETY: the callbacks have the signatures that the server expects, and their code stays.
        unsafe {
            let client = api!(BlockClient(
                self.raw,
                Some(reply::<B>),
                Some(timed_out::<B>),
                Some(free::<B>),
                0,
            ));
            let client = NonNull::new(client)?;
            self.will_be_replied();
            api!(SetDisconnectCallback(
                client.as_ptr(),
                Some(disconnected::<B>)
            ));
            Some(Handle {
                raw: client,
                handler: PhantomData,
            })
        }
    }
}

impl<B: Blocking> Handle<B> {
    /// Identifies this client until the handle is used up.
    pub fn id(&self) -> Id {
        Id(self.raw.as_ptr().addr())
    }

    /// Unblocks the client with an outcome.
    pub fn unblock(self, outcome: B::Outcome) {
        let delivery = Box::new(Delivery::<B> {
            outcome,
            replied: false,
        });
        self.end(Box::into_raw(delivery).cast());
    }

    /// Gives up the record of a client whose wait the server has ended.
    pub fn discard(self) {
        self.end(null_mut());
    }

    fn end(self, delivery: *mut c_void) {
        // SAFETY: the handle is used up, so this happens once for each blocked client.
        unsafe { api!(UnblockClient(self.raw.as_ptr(), delivery)) };
    }
}

extern "C" fn reply<B: Blocking>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the context belongs to a client that `Handle::end` unblocked: its private data is a
    // `Delivery` or null, and nothing else refers to it during this call.
    unsafe {
        let delivery = api!(GetBlockedClientPrivateData(ctx));
        if let Some(delivery) = delivery.cast::<Delivery<B>>().as_mut() {
            let ctx = Ctx::new(ctx);
            guard("a reply", || B::reply(&ctx, &delivery.outcome));
            // After a panic the reply may be incomplete. The client then counts as gone.
            delivery.replied = ctx.is_replied();
            ctx.make_up();
        }
    }
    OK
}

extern "C" fn timed_out<B: Blocking>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    // SAFETY: the context belongs to a blocked client.
    let client = unsafe { api!(GetBlockedClientHandle(ctx)) };
    let ctx = Ctx::new(ctx);
    guard("a time-out", || B::timed_out(&ctx, Id(client.addr())));
    ctx.make_up();
    OK
}

extern "C" fn disconnected<B: Blocking>(
    ctx: *mut raw::RedisModuleCtx,
    client: *mut raw::RedisModuleBlockedClient,
) {
    guard("a disconnect", || {
        B::disconnected(&Ctx::new(ctx), Id(client.addr()));
    });
}

extern "C" fn free<B: Blocking>(ctx: *mut raw::RedisModuleCtx, delivery: *mut c_void) {
    require_main_thread();
    // SAFETY: `Handle::end` made the box, and the server frees it once.
    let delivery = unsafe { Box::from_raw(delivery.cast::<Delivery<B>>()) };
    if !delivery.replied {
        guard("an undelivered reply", || {
            B::not_received(&Ctx::new(ctx), delivery.outcome);
        });
    }
}
