//! Calls the server's functions, as redis-module declares them.

use std::ffi::c_int;

pub(super) use redis_module::raw;

/// What the server's functions return when all is well.
pub(super) const OK: c_int = raw::Status::Ok as c_int;

/// Calls a function of the server by its name without `RedisModule_`. One that came after Redis 7.0.5 has a default for
/// servers that lack it: `api!(GetModuleUserACLString(user) or null_mut())`. To be used inside `unsafe`, whose SAFETY
/// line speaks for the call.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::server::api::api!($function($($argument),*) or $crate::server::api::not_loaded())
    };
    ($function:ident($($argument:expr),* $(,)?) or $default:expr) => {
        pastey::paste! {
            match $crate::server::api::raw::[<RedisModule_ $function>] {
                Some(function) => function($($argument),*),
                None => $default,
            }
        }
    };
}
pub(super) use api;

/// Outside of a server there is no function to call. In a server this is never reached: the module does not load where
/// [`is_new_enough`] is false.
#[cold]
pub(super) fn not_loaded() -> ! {
    eprintln!("fairlock: a function of the server's was called outside of a server");
    std::process::abort()
}

/// Whether the server has the functions of Redis 7.0.5, as every Valkey has: to be asked first when the module is
/// loaded. redis-module has looked all of them up, but says nothing of those that are missing.
pub fn is_new_enough() -> bool {
    // Of those that the module calls without a default it came last.
    // SAFETY: redis-module sets it when the server loads the module, before it calls this module's code.
    unsafe { raw::RedisModule_GetAbsExpire }.is_some()
}
