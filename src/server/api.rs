//! Calls the server's functions, which `api.h` lists. Without a required function the module does not
//! load. For an optional one the caller gives a default.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// What `build.rs` has made of `api.h`: types and constants, and the two tables of functions.
#[allow(missing_docs, nonstandard_style, clippy::all, clippy::pedantic)]
#[allow(dead_code)] // Some functions are called by redis-module only.
pub(super) mod raw {
    include!(concat!(env!("OUT_DIR"), "/objects.rs"));
    include!(concat!(env!("OUT_DIR"), "/types.rs"));
    include!(concat!(env!("OUT_DIR"), "/tables.rs"));

    macro_rules! functions {
        ($table:ident: $($field:ident $name:ident)*) => {
            impl $table {
                /// The names that the server knows the functions by, each with a null at its end.
                pub const NAMES: &[&str] = &[$(concat!(stringify!($name), "\0")),*];
            }
        };
    }
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

/// Compares `api.h` with the bindings of redis-module. The tests compile only if both agree on the value of each
/// constant, the size of each structure, the offset of each field, and the signature of each function.
#[cfg(test)]
#[allow(
    missing_docs,
    nonstandard_style,
    clippy::all,
    clippy::pedantic,
    dead_code
)]
mod same {
    use std::mem::offset_of;

    use redis_module::raw as theirs;
    use redis_module::raw::*;

    use crate::server::api::raw as own;

    macro_rules! constant {
        ($name:ident) => {
            const _: () = assert!(own::$name as i128 == theirs::$name as i128);
        };
    }
    macro_rules! structure {
        ($name:ident) => {
            const _: () = assert!(size_of::<own::$name>() == size_of::<theirs::$name>());
            const _: () = assert!(align_of::<own::$name>() == align_of::<theirs::$name>());
        };
    }
    macro_rules! field {
        ($of:ident $name:ident) => {
            const _: () = assert!(offset_of!(own::$of, $name) == offset_of!(theirs::$of, $name));
        };
    }
    include!(concat!(env!("OUT_DIR"), "/same.rs"));

    /// redis-module does not name this one.
    type RedisModuleFreeFunc = own::RedisModuleFreeFunc;
    include!(concat!(env!("OUT_DIR"), "/tables.rs"));

    macro_rules! functions {
        ($table:ident: $($field:ident $name:ident)*) => {
            // SAFETY: it is never called, only compiled.
            const _: fn() -> $table = || unsafe { $table { $($field: theirs::$name),* } };
        };
    }
    include!(concat!(env!("OUT_DIR"), "/functions.rs"));
}

/// What the server's functions return when all is well.
pub(super) const OK: c_int = raw::REDISMODULE_OK;

/// The server's functions: null until [`find_functions`] has asked for them.
// SAFETY: of these structures, which hold nothing but optional functions, all zeros is a value.
pub(super) static mut REQUIRED: raw::Required = unsafe { MaybeUninit::zeroed().assume_init() };
/// As [`REQUIRED`], and null where the server has no such function.
// SAFETY: as above.
pub(super) static mut OPTIONAL: raw::Optional = unsafe { MaybeUninit::zeroed().assume_init() };

/// Calls a function of the server. An optional one has a default for servers that lack it:
/// `api!(GetModuleUserACLString(user) or null_mut())`. To be used inside `unsafe`, whose SAFETY line
/// speaks for the call.
macro_rules! api {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::server::api::api!($function)($($argument),*)
    };
    ($function:ident($($argument:expr),* $(,)?) or $default:expr) => {
        match $crate::server::api::OPTIONAL.$function {
            Some(function) => function($($argument),*),
            None => $default,
        }
    };
    ($function:ident) => {
        match $crate::server::api::REQUIRED.$function {
            Some(function) => function,
            None => $crate::server::api::not_loaded(),
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

/// Asks the server for its functions: to be called first when the module is loaded.
///
/// # Errors
/// The name of a required function that the server does not have.
pub fn find_functions() -> Result<(), &'static str> {
    let (required, optional) = (&raw mut REQUIRED, &raw mut OPTIONAL);
    // SAFETY: each table has as many entries as there are names, which the assertions below make sure of.
    // Nothing else uses them during this call: it is on the main thread, and calls no code of the module.
    unsafe {
        find(raw::Optional::NAMES, optional.cast());
        match find(raw::Required::NAMES, required.cast()) {
            Some(missing) => Err(missing.trim_end_matches('\0')),
            None => Ok(()),
        }
    }
}

const POINTER: usize = size_of::<*mut c_void>();
const _: () = assert!(size_of::<raw::Required>() == raw::Required::NAMES.len() * POINTER);
const _: () = assert!(size_of::<raw::Optional>() == raw::Optional::NAMES.len() * POINTER);

/// Fills a table; the first name that the server does not know.
///
/// # Safety
/// The table has an entry for each of the names; each name ends with a null; nothing else uses the table
/// during this call.
unsafe fn find(names: &[&'static str], table: *mut *mut c_void) -> Option<&'static str> {
    // SAFETY: redis-module sets it each time the server loads the module, before it calls this module's
    // code.
    let get = unsafe { redis_module::raw::RedisModule_GetApi };
    let mut missing = None;
    for (index, name) in names.iter().enumerate() {
        let mut function: *mut c_void = null_mut();
        // SAFETY: the name ends with a null, and the server writes the function's address to the pointer
        // that it is given, or nothing.
        let status =
            get.map(|get| unsafe { get(name.as_ptr().cast(), (&raw mut function).cast()) });
        if status != Some(OK) || function.is_null() {
            function = null_mut();
            missing = missing.or(Some(*name));
        }
        // SAFETY: the entry is in the table, and holds the address of a function, or null.
        unsafe { table.add(index).write(function) };
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_function_is_listed_once_under_the_name_that_the_server_knows() {
        let mut names = [raw::Required::NAMES, raw::Optional::NAMES].concat();
        assert!(names.len() > 80);
        for name in &names {
            let name = name
                .strip_suffix('\0')
                .and_then(|name| name.strip_prefix("RedisModule_"));
            let is_word = |name: &str| name.bytes().all(|letter| letter.is_ascii_alphanumeric());
            assert!(
                name.is_some_and(|name| !name.is_empty() && is_word(name)),
                "{name:?}"
            );
        }
        names.sort_unstable();
        assert!(names.is_sorted_by(|name, next| name != next));
    }

    #[test]
    fn without_a_server_the_first_required_function_is_missing() {
        assert_eq!(find_functions(), Err("RedisModule_Alloc"));
    }
}
