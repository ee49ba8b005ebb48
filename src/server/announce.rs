//! What others are told of the module's own changes: replicas, WATCH, subscribers, and listeners to key events.
//!
//! Other modules receive an event at once, and can run any command in their callback. A command that deletes
//! a key while this module has it open would leave a dangling handle. So events are only recorded while keys
//! are open, and raised in their order once the keys are closed.
//!
//! Events without a listener are not even recorded: a hand-off has ten, and is cheaper without them. Listeners are
//! clients, if the option `notify-keyspace-events` says so, and other modules. For each event the server makes a client
//! for every module that listens, even for the one that has raised it.
//!
//! This module receives its own events, too. It recognises them by the address of the string that names the
//! event: commands that another module runs in its callback raise the same events with other strings.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use redis_module::{NotifyEvent, RedisValue};

use super::api::api;
use super::context::{Ctx, text};
use super::memory::{Str, share};

/// A key event that is still to be raised.
struct Announcement {
    class: NotifyEvent,
    event: &'static CStr,
    key: Str,
}

thread_local! {
    static ANNOUNCEMENTS: RefCell<Vec<Announcement>> = const { RefCell::new(Vec::new()) };
}

/// The name of the event that is being raised now.
static RAISING: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// The current step's events have no listener, so none is recorded. An atomic, because reading a thread-local costs a
/// function call.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

const ANNOUNCEMENTS_KEPT: usize = 1024;

/// A step begins. This module ignores the events of its own steps.
pub fn step_begins() {
    // SAFETY: the function takes nothing and only reads an option.
    let has_clients = || unsafe { api!(GetNotifyKeyspaceEvents()) } != 0;
    let has_listeners = OTHERS.load(Ordering::Relaxed) || has_clients();
    IS_SILENT.store(!has_listeners, Ordering::Relaxed);
}

/// A step has ended, or was cut short by a panic.
pub fn step_ends() {
    IS_SILENT.store(false, Ordering::Relaxed);
}

impl Ctx {
    /// Sends a command to the replicas and the append-only file, with the others of this step in
    /// one transaction.
    pub fn replicate(&self, command: &CStr, arguments: &[&Str]) {
        let (ctx, name) = (self.raw, command.as_ptr());
        let at = |index: usize| {
            arguments
                .get(index)
                .map_or(null_mut(), |string| string.inner)
        };
        // The server makes room for a vector twice, which is a twelfth of a pair: up to five arguments go without.
        let format = [c"s", c"ss", c"sss", c"ssss", c"sssss"].get(arguments.len().wrapping_sub(1));
        // SAFETY: the format has a letter for each string, of which it may be given more than it has letters; or it is
        // "v" for a vector of strings and its length. The strings live until the call returns; the server takes its
        // own references.
        unsafe {
            if let Some(format) = format {
                let format = format.as_ptr();
                let [one, two, three, four, five] = std::array::from_fn(at);
                api!(Replicate(ctx, name, format, one, two, three, four, five));
            } else {
                let mut argv: Vec<_> = arguments.iter().map(|string| string.inner).collect();
                api!(Replicate(
                    ctx,
                    name,
                    c"v".as_ptr(),
                    argv.as_mut_ptr(),
                    argv.len()
                ));
            }
        }
    }

    /// Reports that a key has changed, to WATCH and client-side caches.
    pub fn changed(&self, key: &Str) {
        // SAFETY: context and string are valid for this call.
        unsafe { api!(SignalModifiedKey(self.raw, key.inner)) };
    }

    /// Publishes a message with PUBLISH or SPUBLISH, to subscribers at this server, at the cluster's other
    /// servers and, as a replicated command, at replicas. The command is not written to the
    /// append-only file.
    pub fn publish(&self, command: &CStr, channel: &Str, message: &Str) {
        // SAFETY: the format says: replicate, but not to the append-only file; two strings, which live until
        // the call returns. The reply is freed, and may be null.
        unsafe {
            let (name, format) = (command.as_ptr(), c"!Ass".as_ptr());
            let reply = api!(Call(self.raw, name, format, channel.inner, message.inner));
            if !reply.is_null() {
                api!(FreeCallReply(reply));
            }
        }
    }

    /// Raises the recorded events. The database must be the one in which they happened, and
    /// no key may be open.
    pub fn raise_events(&self) {
        if IS_SILENT.load(Ordering::Relaxed) {
            return;
        }
        let mut all = ANNOUNCEMENTS.take();
        for Announcement { class, event, key } in all.drain(..) {
            RAISING.store(event.as_ptr().cast_mut(), Ordering::Relaxed);
            // SAFETY: context, event name and string are valid for this call.
            unsafe {
                api!(NotifyKeyspaceEvent(
                    self.raw,
                    class.bits(),
                    event.as_ptr(),
                    key.inner,
                ))
            };
            RAISING.store(null_mut(), Ordering::Relaxed);
        }
        if all.capacity() <= ANNOUNCEMENTS_KEPT {
            ANNOUNCEMENTS.set(all);
        }
    }
}

/// Records a keyspace event of a class, to be raised by [`Ctx::raise_events`].
#[inline]
pub fn record_event(class: NotifyEvent, event: &'static CStr, key: &Str) {
    if !IS_SILENT.load(Ordering::Relaxed) {
        record(class, event, key);
    }
}

fn record(class: NotifyEvent, event: &'static CStr, key: &Str) {
    let key = share(key);
    ANNOUNCEMENTS.with_borrow_mut(|all| all.push(Announcement { class, event, key }));
}

/// Whether an event from the server is the one that is being raised here.
pub(super) fn is_own(event: *const c_char) -> bool {
    RAISING.load(Ordering::Relaxed).cast_const() == event
}

/// Whether other modules are loaded beside this one. Which events they listen to is not known.
static OTHERS: AtomicBool = AtomicBool::new(true);

/// Looks for other modules that may listen to key events: when the module is loaded, and when others come and go.
pub(super) fn look_for_listeners(ctx: &Ctx) {
    let others = match redis_module::Context::new(ctx.raw).call("MODULE", &["LIST"]) {
        Ok(RedisValue::Array(modules)) => modules.iter().any(may_listen),
        // The server does not say.
        _ => true,
    };
    OTHERS.store(others, Ordering::Relaxed);
}

/// Whether a module in the server's list is another one, and was loaded from a file: what comes with the server is not.
fn may_listen(module: &RedisValue) -> bool {
    let RedisValue::Array(fields) = module else {
        return true;
    };
    let value = |name: &[u8]| {
        let at = fields.iter().position(|field| text(field) == Some(name))?;
        text(fields.get(at + 1)?)
    };
    let is_of_a_file = value(b"path").is_none_or(|path| path.contains(&b'/'));
    is_of_a_file && value(b"name") != Some(b"fairlock")
}
