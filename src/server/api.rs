//! Calls the server's functions, as redis-module declares them. Without a required function the module does not load.
//! For an optional one the caller gives a default. To use one more function: add it to its list.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

pub(super) use redis_module::raw;

/// What the server's functions return when all is well.
pub(super) const OK: c_int = raw::Status::Ok as c_int;

/// The functions of one list, and the names that the server knows them by, each with a null at its end.
macro_rules! functions {
    ($list:ident: $($name:ident = $declared:ident,)*) => {
        #[allow(unused_imports, dead_code, reason = "some are called by redis-module only, others may be missing")]
        pub(super) mod $list {
            pub use redis_module::raw::{$($declared as $name),*};

            pub const NAMES: &[&str] = &[$(concat!(stringify!($declared), "\0")),*];
        }
    };
}

// All are in Redis 7.0.0 and in every Valkey.
functions! { required:
    Alloc = RedisModule_Alloc, Free = RedisModule_Free, Log = RedisModule_Log,
    SetModuleOptions = RedisModule_SetModuleOptions, LoadConfigs = RedisModule_LoadConfigs,
    RegisterInfoFunc = RedisModule_RegisterInfoFunc, InfoAddSection = RedisModule_InfoAddSection,
    InfoAddFieldULongLong = RedisModule_InfoAddFieldULongLong, CreateCommand = RedisModule_CreateCommand,
    GetCommand = RedisModule_GetCommand, SetCommandInfo = RedisModule_SetCommandInfo,
    RegisterCommandFilter = RedisModule_RegisterCommandFilter,
    CommandFilterArgGet = RedisModule_CommandFilterArgGet,
    CommandFilterArgReplace = RedisModule_CommandFilterArgReplace, GetContextFlags = RedisModule_GetContextFlags,
    GetClientId = RedisModule_GetClientId, GetSelectedDb = RedisModule_GetSelectedDb,
    SelectDb = RedisModule_SelectDb, DbSize = RedisModule_DbSize,
    AvoidReplicaTraffic = RedisModule_AvoidReplicaTraffic, GetServerInfo = RedisModule_GetServerInfo,
    ServerInfoGetFieldC = RedisModule_ServerInfoGetFieldC, FreeServerInfo = RedisModule_FreeServerInfo,
    ReplyWithArray = RedisModule_ReplyWithArray, ReplyWithBool = RedisModule_ReplyWithBool,
    ReplyWithCallReply = RedisModule_ReplyWithCallReply, ReplyWithError = RedisModule_ReplyWithError,
    ReplyWithLongLong = RedisModule_ReplyWithLongLong, ReplyWithMap = RedisModule_ReplyWithMap,
    ReplyWithNull = RedisModule_ReplyWithNull, ReplyWithStringBuffer = RedisModule_ReplyWithStringBuffer,
    CreateString = RedisModule_CreateString, RetainString = RedisModule_RetainString,
    FreeString = RedisModule_FreeString, StringPtrLen = RedisModule_StringPtrLen, OpenKey = RedisModule_OpenKey,
    CloseKey = RedisModule_CloseKey, GetDbIdFromModuleKey = RedisModule_GetDbIdFromModuleKey,
    KeyType = RedisModule_KeyType, ValueLength = RedisModule_ValueLength, DeleteKey = RedisModule_DeleteKey,
    GetAbsExpire = RedisModule_GetAbsExpire, SetAbsExpire = RedisModule_SetAbsExpire,
    StringSet = RedisModule_StringSet, StringDMA = RedisModule_StringDMA, HashGet = RedisModule_HashGet,
    HashSet = RedisModule_HashSet, ListGet = RedisModule_ListGet, ListPush = RedisModule_ListPush,
    ListDelete = RedisModule_ListDelete, ZsetAdd = RedisModule_ZsetAdd, ZsetRem = RedisModule_ZsetRem,
    ZsetScore = RedisModule_ZsetScore, ZsetFirstInScoreRange = RedisModule_ZsetFirstInScoreRange,
    ZsetRangeEndReached = RedisModule_ZsetRangeEndReached,
    ZsetRangeCurrentElement = RedisModule_ZsetRangeCurrentElement, ZsetRangeNext = RedisModule_ZsetRangeNext,
    ZsetRangeStop = RedisModule_ZsetRangeStop, ScanCursorCreate = RedisModule_ScanCursorCreate,
    ScanCursorDestroy = RedisModule_ScanCursorDestroy, ScanKey = RedisModule_ScanKey,
    Replicate = RedisModule_Replicate, SignalModifiedKey = RedisModule_SignalModifiedKey,
    GetNotifyKeyspaceEvents = RedisModule_GetNotifyKeyspaceEvents,
    NotifyKeyspaceEvent = RedisModule_NotifyKeyspaceEvent, Call = RedisModule_Call,
    CallReplyType = RedisModule_CallReplyType, CallReplyLength = RedisModule_CallReplyLength,
    CallReplyInteger = RedisModule_CallReplyInteger, CallReplyStringPtr = RedisModule_CallReplyStringPtr,
    CallReplyArrayElement = RedisModule_CallReplyArrayElement, FreeCallReply = RedisModule_FreeCallReply,
    BlockClient = RedisModule_BlockClient,
    SetDisconnectCallback = RedisModule_SetDisconnectCallback, UnblockClient = RedisModule_UnblockClient,
    GetBlockedClientPrivateData = RedisModule_GetBlockedClientPrivateData, CreateTimer = RedisModule_CreateTimer,
    StopTimer = RedisModule_StopTimer, EventLoopAddOneShot = RedisModule_EventLoopAddOneShot,
    SubscribeToServerEvent = RedisModule_SubscribeToServerEvent,
    SubscribeToKeyspaceEvents = RedisModule_SubscribeToKeyspaceEvents,
    GetClientInfoById = RedisModule_GetClientInfoById, GetClientUserNameById = RedisModule_GetClientUserNameById,
    GetModuleUserFromUserName = RedisModule_GetModuleUserFromUserName, FreeModuleUser = RedisModule_FreeModuleUser,
    ACLCheckCommandPermissions = RedisModule_ACLCheckCommandPermissions,
    ACLCheckKeyPermissions = RedisModule_ACLCheckKeyPermissions,
    GetDetachedThreadSafeContext = RedisModule_GetDetachedThreadSafeContext,
    FreeThreadSafeContext = RedisModule_FreeThreadSafeContext, RegisterBoolConfig = RedisModule_RegisterBoolConfig,
    RegisterEnumConfig = RedisModule_RegisterEnumConfig, RegisterNumericConfig = RedisModule_RegisterNumericConfig,
}

// Since Redis 7.0.6 the first, since 7.2.0 the others.
functions! { optional:
    GetModuleUserACLString = RedisModule_GetModuleUserACLString,
    GetModuleOptionsAll = RedisModule_GetModuleOptionsAll,
    SetCommandACLCategories = RedisModule_SetCommandACLCategories,
    CommandFilterGetClientId = RedisModule_CommandFilterGetClientId,
}

/// Calls a function of the server that is in one of the lists. An optional one has a default for servers that lack it:
/// `api!(GetModuleUserACLString(user) or null_mut())`. To be used inside `unsafe`, whose SAFETY line speaks
/// for the call.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {
        match $crate::server::api::required::$function {
            Some(function) => function($($argument),*),
            None => $crate::server::api::not_loaded(),
        }
    };
    ($function:ident($($argument:expr),* $(,)?) or $default:expr) => {
        match $crate::server::api::optional::$function {
            Some(function) => function($($argument),*),
            None => $default,
        }
    };
}
pub(super) use api;

/// Outside of a server there is no function to call. In a server this is never reached: the module does not
/// load where a required function is missing.
#[cold]
pub(super) fn not_loaded() -> ! {
    eprintln!("fairlock: a function of the server's was called outside of a server");
    std::process::abort()
}

/// A required function that the server does not have: to be asked first when the module is loaded. redis-module has
/// looked up all that there are, but says nothing of those that are missing.
pub fn missing_function() -> Option<&'static str> {
    let is_missing = |name: &&&str| {
        let mut function: *mut c_void = null_mut();
        // SAFETY: redis-module sets it each time the server loads the module, before it calls this module's code.
        let get = unsafe { raw::RedisModule_GetApi };
        // SAFETY: the name ends with a null, and the server writes the function's address to the pointer that it is
        // given, or nothing.
        let status =
            get.map(|get| unsafe { get(name.as_ptr().cast(), (&raw mut function).cast()) });
        status != Some(OK) || function.is_null()
    };
    let missing = required::NAMES.iter().find(is_missing)?;
    Some(missing.trim_end_matches('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_the_first_required_function_is_missing() {
        assert_eq!(missing_function(), Some("RedisModule_Alloc"));
    }
}
