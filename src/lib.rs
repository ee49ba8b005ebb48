//! fairlock: native fair locks for Redis and Valkey.
//!
//! A server module that does what Redisson's fair lock does in Lua, natively and on the same keys:
//! a hash for the lock, a list for its queue, a sorted set for the waiters' deadlines.
//!
//! The map, in reading order:
//!
//! - [`lock`]: the rules of the lock as a pure state machine; knows nothing of Redis.
//! - [`keyspace`]: the lock's state in Redis's keys.
//! - [`waiting`]: blocked clients, hand-offs, timers, connections that close.
//! - [`stats`]: what INFO shows of all that.
//! - [`redisson`]: recognises Redisson's scripts, translates them, and takes the step.
//! - [`command`]: one file a command.
//! - [`server`]: safe wrappers of the module API; the only module with `unsafe`.
//! - [`config`], [`error`]: every option; the text of every error reply.
//! - `fault`: panics that tests provoke, in debug builds only.
//!
//! Imports point one way: command → redisson → waiting → keyspace, stats, lock, server; keyspace, stats → lock, server;
//! lock → std. Within a folder they follow the map in its `mod.rs`. `make check` holds them to both.

mod command;
mod config;
mod error;
mod fault;
mod keyspace;
mod lock;
mod redisson;
mod server;
mod stats;
mod waiting;

// For tests: all else is for the server alone.
pub use redisson::{stats::ROLES, table};

use redis_module::{Context, RedisString, Status};

use command::{COMMANDS, SCRIPTS};
use server::info::Section;
use server::{Ctx, ServerAlloc};

fn write_info(section: &mut Section) {
    waiting::write_info(section);
    redisson::stats::write(section);
}

/// The release as MODULE LIST shows it, by the custom of modules: 10203 is 1.2.3.
const VERSION: i32 = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// A part of the version, which is a number: Cargo takes no other.
const fn number(part: &str) -> i32 {
    match i32::from_str_radix(part, 10) {
        Ok(number) => number,
        Err(_) => 0,
    }
}

fn load(context: &Context, arguments: &[RedisString]) -> Status {
    let loaded = Ctx::of(context, |ctx| {
        let begun = require_server(ctx).and_then(|()| begin(ctx, context, arguments));
        begun.map_err(|problem| ctx.log_warning(&problem))
    });
    if loaded == Some(Ok(())) {
        return Status::Ok;
    }
    // The server does not say that it unloads what could not be loaded.
    server::user::forget_module();
    Status::Err
}

/// What the module cannot do without must be there; if not, says what the server lacks.
fn require_server(ctx: &Ctx) -> Result<(), String> {
    if !server::is_new_enough() {
        return Err("fairlock needs Redis 7.0.5 or newer, or Valkey".to_owned());
    }
    server::remember_server(ctx);
    if let Some(command) = server::needs::missing_command() {
        return Err(format!(
            "fairlock needs the command {command}, which this server's configuration has renamed \
             (rename-command): without it replicas and files would not learn of locks"
        ));
    }
    if server::is_aligned() {
        return Ok(());
    }
    let problem =
        "fairlock needs memory that is aligned for any type: this server's allocator gives less";
    Err(problem.to_owned())
}

fn begin(ctx: &Ctx, context: &Context, arguments: &[RedisString]) -> Result<(), String> {
    server::log_panics();
    ctx.declare_options();
    server::user::remember_module(ctx);
    config::register(context, arguments)?;
    let mut commands = COMMANDS.iter().chain(&SCRIPTS);
    let is_accepted = server::load_configuration(context)
        && commands.all(|command| (command.register)(ctx))
        && server::events::subscribe(ctx, waiting::EVENTS)
        && server::filter::register::<redisson::filter::Scripts>(ctx)
        && server::info::register(ctx, write_info);
    if !is_accepted {
        return Err(
            "fairlock: the server refuses an option's value, a command or a callback".to_owned(),
        );
    }
    server::events::follow_migrations(ctx);
    // Last: what is begun here goes on in the event loop, and must find the module loaded.
    waiting::look_for_queues(ctx);
    Ok(())
}

/// MODULE UNLOAD is refused: servers keep pointers to the commands of a module, and clients rely on it. Not so in the
/// iteration in which the module is loaded, because the server itself may take the load back: MODULE LOADEX with an
/// option that there is not.
fn unload(context: &Context) -> Status {
    if waiting::has_begun() {
        Ctx::of(context, |ctx| {
            ctx.log_warning(
                "fairlock is never unloaded: restart the server without it, or fail over to one without it",
            );
        });
        return Status::Err;
    }
    server::user::forget_module();
    Status::Ok
}

/// What the server calls when it loads and unloads the module.
mod entry {
    use super::{ServerAlloc, VERSION, load, unload};

    redis_module::redis_module! {
        name: "fairlock",
        version: VERSION,
        allocator: (ServerAlloc, ServerAlloc),
        data_types: [],
        init: load,
        deinit: unload,
        commands: [],
    }
}
