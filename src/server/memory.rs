//! Memory of the server: its allocator, so that all of the module counts in `used_memory`, and its strings.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;

use redis_module::raw;

pub use redis_module::RedisString as Str;

use super::api::api;

/// The server's allocator where a server has loaded the module; the system's allocator in any other program,
/// such as tests and tools.
pub struct ServerAlloc;

/// The alignment of all memory from the server. jemalloc and malloc align for any C type,
/// which is 16 bytes where a pointer has 8. [`is_aligned`] checks it.
const ALIGNED: usize = 2 * size_of::<*mut u8>();

/// Uses the functions as redis-module has looked them up: it allocates memory before this module's code runs.
// SAFETY: all memory comes from one allocator: the server sets its functions before the module's first
// allocation and never takes them back, and where there is no server they are never set.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the server's allocation function has no demands; the caller keeps to the system's.
        unsafe {
            match raw::RedisModule_Alloc {
                // jemalloc aligns what is smaller than the alignment to its size only.
                Some(alloc) if layout.align() <= ALIGNED => {
                    alloc(layout.size().next_multiple_of(layout.align())).cast()
                }
                // No type of the module asks for more.
                Some(_) => null_mut(),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` above, which used the same functions.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(memory.cast()),
                None => System.dealloc(memory, layout),
            }
        }
    }
}

/// Whether the server's memory is aligned to `ALIGNED`. It is not if the server was built to store
/// sizes in front of what it allocates.
pub fn is_aligned() -> bool {
    // SAFETY: the memory is given back at once, and not used.
    unsafe {
        let memory = api!(Alloc(ALIGNED));
        let is_aligned = memory.addr() % ALIGNED == 0;
        api!(Free(memory));
        is_aligned
    }
}

/// A server string with these bytes.
pub fn string(bytes: &[u8]) -> Str {
    Str::create_from_slice(null_mut(), bytes)
}

/// A server string with a number in decimal digits. The server's own conversion takes twice as long,
/// because it counts the digits first.
pub fn decimal(number: i64) -> Str {
    string(itoa::Buffer::new().format(number).as_bytes())
}

/// The same string of the server, not a copy.
pub fn share(string: &Str) -> Str {
    Str::new(None, string.inner)
}
