//! Memory from the server's allocator, so that it counts in `used_memory`.

use std::alloc::{GlobalAlloc, Layout, System};

use redis_module::raw;

/// The server's allocator once the module is loaded, the system's in any other program (tests and
/// tools that link the pure core), where the server's never appears.
pub struct ServerAlloc;

// SAFETY: all memory comes from one allocator: the server sets its function table before the
// module's first allocation and never takes it back, and where there is no server it is never set.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // jemalloc and malloc align to 16 bytes, and larger sizes of a multiple of the alignment
        // to that multiple up to a page; nothing here asks for more.
        let size = layout.size().next_multiple_of(layout.align());
        // SAFETY: a plain call of the server's allocation function, or the system's.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(alloc) => alloc(size).cast(),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` above, which used the same function table.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(memory.cast()),
                None => System.dealloc(memory, layout),
            }
        }
    }
}
