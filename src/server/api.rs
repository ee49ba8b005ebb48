//! Calling the server's functions, which it hands over as a table of pointers when it loads us.

use std::ffi::c_int;

use redis_module::raw;

/// What the server's functions return when all is well.
#[allow(clippy::cast_possible_truncation)] // 0, which the bindings give a wider type.
pub(super) const OK: c_int = raw::REDISMODULE_OK as c_int;

/// Calls a function of the module API, or gives the default where the server lacks it. To be used
/// inside `unsafe`, whose SAFETY line speaks for the call.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?) or $default:expr) => {
        match redis_module::raw::$function {
            Some(function) => function($($argument),*),
            None => $default,
        }
    };
}
pub(super) use api;

macro_rules! first_missing {
    ($($function:ident),* $(,)?) => {{
        // SAFETY: the table is written once, before this is called, and only read afterwards.
        unsafe {
            $({
                let function = raw::$function;
                if function.is_none() {
                    return Some(stringify!($function));
                }
            })*
        }
        None
    }};
}

/// The first function that fairlock cannot do without and this server does not have. All are in
/// Redis 7.0.
#[must_use]
pub fn missing_function() -> Option<&'static str> {
    first_missing!(
        RedisModule_Alloc,
        RedisModule_BlockClient,
        RedisModule_CloseKey,
        RedisModule_CreateCommand,
        RedisModule_CreateStringFromLongLong,
        RedisModule_CreateTimer,
        RedisModule_DeleteKey,
        RedisModule_Free,
        RedisModule_GetAbsExpire,
        RedisModule_GetBlockedClientHandle,
        RedisModule_GetBlockedClientPrivateData,
        RedisModule_GetClientId,
        RedisModule_GetContextFlags,
        RedisModule_GetSelectedDb,
        RedisModule_HashGet,
        RedisModule_HashSet,
        RedisModule_KeyType,
        RedisModule_ListDelete,
        RedisModule_ListGet,
        RedisModule_ListPush,
        RedisModule_NotifyKeyspaceEvent,
        RedisModule_OpenKey,
        RedisModule_PublishMessage,
        RedisModule_Replicate,
        RedisModule_ReplyWithArray,
        RedisModule_ReplyWithBool,
        RedisModule_ReplyWithError,
        RedisModule_ReplyWithLongLong,
        RedisModule_ReplyWithMap,
        RedisModule_ReplyWithNull,
        RedisModule_ReplyWithStringBuffer,
        RedisModule_ScanKey,
        RedisModule_SelectDb,
        RedisModule_SetAbsExpire,
        RedisModule_SetDisconnectCallback,
        RedisModule_SetModuleOptions,
        RedisModule_SignalModifiedKey,
        RedisModule_StopTimer,
        RedisModule_StringDMA,
        RedisModule_StringPtrLen,
        RedisModule_StringSet,
        RedisModule_SubscribeToServerEvent,
        RedisModule_UnblockClient,
        RedisModule_ValueLength,
        RedisModule_ZsetAdd,
        RedisModule_ZsetRem,
        RedisModule_ZsetScore,
    )
}
