//! Memory from the server's allocator, so that it counts in `used_memory`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr::null_mut;

use redis_module::raw;

use super::api::api;

/// The server's allocator where a server has loaded the module; the system's allocator in any other program,
/// such as tests and tools.
pub struct ServerAlloc;

/// The alignment of all memory from the server. jemalloc and malloc align for any C type,
/// which is 16 bytes where a pointer has 8. [`is_aligned`] checks it.
const ALIGNED: usize = 2 * size_of::<*mut u8>();

/// Uses the functions that redis-module has looked up: redis-module allocates memory before
/// [`super::find_functions`] is called.
// SAFETY: all memory comes from one allocator: the server sets its functions before the module's first
// allocation and never takes them back, and where there is no server they are never set.
unsafe impl GlobalAlloc for ServerAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the server's allocation function has no demands; the caller keeps to the system's.
        unsafe {
            match raw::RedisModule_Alloc {
                Some(alloc) => alloc_with(|size| alloc(size), layout),
                None => System.alloc(layout),
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from `alloc` above, which used the same functions.
        unsafe {
            match raw::RedisModule_Free {
                Some(free) => free(start_of(memory, layout)),
                None => System.dealloc(memory, layout),
            }
        }
    }
}

/// Allocates with a function that knows sizes only.
///
/// # Safety
/// What the function gives has the size that it is asked for, and is aligned to [`ALIGNED`], or null.
#[inline]
unsafe fn alloc_with(alloc: impl Fn(usize) -> *mut c_void, layout: Layout) -> *mut u8 {
    if layout.align() <= ALIGNED {
        // jemalloc aligns what is smaller than the alignment to its size only.
        return alloc(layout.size().next_multiple_of(layout.align())).cast();
    }
    // SAFETY: as the caller's.
    unsafe { alloc_far(alloc, layout) }
}

/// Alignments beyond [`ALIGNED`]: allocates enough more memory to align within it, and notes where
/// the memory starts right before the aligned part.
#[cold]
unsafe fn alloc_far(alloc: impl Fn(usize) -> *mut c_void, layout: Layout) -> *mut u8 {
    // A layout's size and alignment are small enough for their sum.
    let start: *mut u8 = alloc(layout.size() + layout.align()).cast();
    if start.is_null() {
        return null_mut();
    }
    // At least `ALIGNED`, so there is room for a pointer, and at most the alignment.
    let ahead = layout.align() - start.addr() % layout.align();
    // SAFETY: that far ahead, `layout.size()` bytes are left; the note is between start and memory, and
    // aligned since the memory is.
    unsafe {
        let memory = start.add(ahead);
        note_before(memory).write(start);
        memory
    }
}

/// Where the note is: right before memory that is aligned to more than a pointer needs.
#[allow(clippy::cast_ptr_alignment)]
unsafe fn note_before(memory: *mut u8) -> *mut *mut u8 {
    // SAFETY: as the caller's: there is room for it.
    unsafe { memory.cast::<*mut u8>().sub(1) }
}

/// Where memory starts that [`alloc_with`] has given for this layout.
#[inline]
unsafe fn start_of(memory: *mut u8, layout: Layout) -> *mut c_void {
    if layout.align() <= ALIGNED {
        return memory.cast();
    }
    // SAFETY: `alloc_far` has left a note before this memory.
    unsafe { note_before(memory).read().cast() }
}

/// Whether the server's memory is aligned to `ALIGNED`. It is not if the server was built to store
/// sizes in front of what it allocates.
#[must_use]
pub fn is_aligned() -> bool {
    // SAFETY: the memory is given back at once, and not used.
    unsafe {
        let memory = api!(Alloc(ALIGNED));
        let is_aligned = memory.addr() % ALIGNED == 0;
        api!(Free(memory));
        is_aligned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_as_it_is_asked_for_and_all_of_it_can_be_used() {
        for align in (0..=14).map(|power| 1 << power) {
            for size in [1, 7, 8, 24, 100, 4096, 5000] {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                // SAFETY: malloc and free of C, with which the memory is given back once.
                unsafe {
                    let memory = alloc_with(|size| libc::malloc(size), layout);
                    assert_eq!(memory.addr() % align, 0, "{layout:?}");
                    memory.write_bytes(0xff, size);
                    libc::free(start_of(memory, layout));
                }
            }
        }
    }

    #[test]
    fn where_there_is_no_memory_there_is_none_for_any_alignment() {
        for align in [8, 16, 64] {
            let layout = Layout::from_size_align(8, align).expect("a layout");
            // SAFETY: there is nothing to be given back.
            let memory = unsafe { alloc_with(|_| null_mut(), layout) };
            assert!(memory.is_null());
        }
    }
}
