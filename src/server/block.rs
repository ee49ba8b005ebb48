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
//!
//! When a connection closes, the server and the system are asked whether the reply went out ([`Ctx::is_unsent`]).

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::{size_of, zeroed};
use std::ptr::{NonNull, null_mut};

use redis_module::RedisValue;

use super::api::{OK, api, raw};
use super::context::{Ctx, Reply, text};
use super::guard::{guard, guard_reply, require_main_thread};

/// The handler of one kind of blocked clients.
pub trait Blocking: Sized {
    /// What a client is told when it is unblocked.
    type Outcome;

    /// What the outcome is to the client that was unblocked.
    fn reply(ctx: &Ctx, outcome: &Self::Outcome) -> Reply;
    /// The client was unblocked with this outcome, and has not received it: it had gone before the reply was
    /// made, or the reply panicked. The context belongs to no client: it can start timers, and keys cannot be
    /// opened in it.
    fn not_received(ctx: &Ctx, outcome: Self::Outcome);
    /// CLIENT UNBLOCK ... TIMEOUT has ended the wait: discard the client's handle, and return its reply.
    fn timed_out(ctx: &Ctx) -> Reply;
    /// The client's connection has closed, or CLIENT UNBLOCK ... ERROR has ended the wait: discard its handle.
    /// This can happen in the middle of another client's command: keys should not be opened, timers can be started.
    fn disconnected(ctx: &Ctx);
}

/// A blocked client that has not been unblocked yet.
pub struct Handle<B: Blocking> {
    raw: NonNull<raw::RedisModuleBlockedClient>,
    handler: PhantomData<B>,
}

/// The outcome until the client has its reply.
type Delivery<B> = Option<<B as Blocking>::Outcome>;

impl Ctx {
    /// Blocks the calling client, without limit of time. To be called only where
    /// [`Ctx::denies_blocking`] is false.
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
    pub fn unblock(self, outcome: B::Outcome) {
        let delivery: Box<Delivery<B>> = Box::new(Some(outcome));
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
            let make = || {
                let reply = Reply::or_nil(delivery.as_ref(), |outcome| B::reply(&ctx, outcome));
                // After a panic the client counts as gone.
                *delivery = None;
                reply
            };
            ctx.reply(&guard_reply("a reply", make));
        }
    }
    OK
}

extern "C" fn timed_out<B: Blocking>(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    let ctx = Ctx::new(ctx);
    ctx.reply(&guard_reply("a time-out", || B::timed_out(&ctx)));
    OK
}

extern "C" fn disconnected<B: Blocking>(
    ctx: *mut raw::RedisModuleCtx,
    _client: *mut raw::RedisModuleBlockedClient,
) {
    guard("a disconnect", || B::disconnected(&Ctx::new(ctx)));
}

extern "C" fn free<B: Blocking>(ctx: *mut raw::RedisModuleCtx, delivery: *mut c_void) {
    require_main_thread();
    // SAFETY: `Handle::end` made the box, and the server frees it once.
    let delivery = unsafe { Box::from_raw(delivery.cast::<Delivery<B>>()) };
    if let Some(outcome) = *delivery {
        guard("an undelivered reply", || {
            B::not_received(&Ctx::new(ctx), outcome);
        });
    }
}

impl Ctx {
    /// A connection's socket, which it keeps until it closes. Not free: it reads the connection's line of CLIENT LIST.
    pub fn socket(&self, client: u64) -> Option<Socket> {
        Line::of(self, client)?.socket()
    }

    /// Whether the reply to a client's last command surely was not sent, if that was this command, and the reply has
    /// this length. To be asked when the connection closes. Not free, as above.
    ///
    /// The server empties its buffer when it has sent all of it, so `obl` is what the buffer holds: more than the one
    /// reply would leave open how much of it was sent. Valkey's I/O threads send, and its main thread takes note of it
    /// later, or never if the connection is to be closed by then. So there the system is asked how much it was given.
    pub fn is_unsent(&self, client: u64, command: &[u8], reply: usize) -> bool {
        let Some(line) = Line::of(self, client) else {
            return false;
        };
        let in_multi = line
            .field(b"flags")
            .is_none_or(|flags| flags.contains(&b'x'));
        let is_last = line.field(b"cmd") == Some(command) && !in_multi;
        let is_alone = line.number(b"obl") == i64::try_from(reply).ok();
        if !is_last || !is_alone || line.number(b"oll") != Some(0) {
            return false;
        }
        let noted = line.number(b"tot-net-out");
        // Redis keeps its connections' figures true.
        if noted.is_none() || line.number(b"io-thread").is_some() || !self.has_io_threads() {
            return true;
        }
        line.socket()
            .and_then(Socket::given)
            .is_some_and(|given| Some(given) <= noted)
    }

    /// Whether the server may send replies on other threads.
    fn has_io_threads(&self) -> bool {
        let reply = redis_module::Context::new(self.raw).call("CONFIG", &["GET", "io-threads"]);
        let Ok(RedisValue::Array(pair)) = reply else {
            return true;
        };
        pair.last().and_then(text) != Some(b"1")
    }
}

/// A connection's line of CLIENT LIST.
struct Line(RedisValue);

impl Line {
    fn of(ctx: &Ctx, client: u64) -> Option<Self> {
        let id = client.to_string();
        let list = redis_module::Context::new(ctx.raw).call("CLIENT", &["LIST", "ID", &id]);
        list.ok().map(Self)
    }

    fn field(&self, name: &[u8]) -> Option<&[u8]> {
        let mut fields = text(&self.0)?.split(|byte| *byte == b' ');
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix(b"="))
    }

    fn number(&self, name: &[u8]) -> Option<i64> {
        std::str::from_utf8(self.field(name)?).ok()?.parse().ok()
    }

    fn socket(&self) -> Option<Socket> {
        let socket = libc::c_int::try_from(self.number(b"fd")?).ok();
        socket.filter(|socket| *socket >= 0).map(Socket)
    }
}

/// The socket of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Socket(libc::c_int);

impl Socket {
    /// Whether the other end has closed the connection, or has reset it: the server may not have read that yet.
    pub fn has_hung_up(self) -> bool {
        let mut asked = libc::pollfd {
            fd: self.0,
            events: libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: one place for the result; without a time it does not wait.
        let count = unsafe { libc::poll(&raw mut asked, 1, 0) };
        count == 1 && asked.revents & (libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR) != 0
    }

    /// How many bytes the system was given to send on a TCP connection.
    fn given(self) -> Option<i64> {
        // SAFETY: all of it are numbers.
        let mut info: libc::tcp_info = unsafe { zeroed() };
        let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
        let place = (&raw mut info).cast();
        // SAFETY: a place for the result, and its length.
        let status = unsafe {
            libc::getsockopt(
                self.0,
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                place,
                &raw mut length,
            )
        };
        let told = std::mem::offset_of!(libc::tcp_info, tcpi_dsack_dups);
        if status != 0 || usize::try_from(length).ok()? < told {
            return None;
        }
        let sent = info.tcpi_bytes_sent.saturating_sub(info.tcpi_bytes_retrans);
        i64::try_from(sent.saturating_add(info.tcpi_notsent_bytes.into())).ok()
    }
}
