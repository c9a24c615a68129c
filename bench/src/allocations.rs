//! Counting allocations, and only while asked to.
//!
//! This is the one file of the repository with `unsafe` in it: there is no other way to be a global
//! allocator, and the crates that do it for us bend what is measured beside them. `stats_alloc` pays
//! two locked additions for each allocation and each release, even when nobody counts, which would
//! slow the peers and not us; `allocation-counter` turns each `realloc` into a copy; divan's
//! profiler shows its numbers to divan only. Here an allocation that is not counted costs one plain
//! load more.

#![allow(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// How often memory was asked for while this ran: `alloc`, and `realloc` as well. There is one
/// thread, so nobody else's are among them.
pub(crate) fn during(run: impl FnOnce()) -> u64 {
    COUNT.store(0, Relaxed);
    COUNTING.store(true, Relaxed);
    run();
    COUNTING.store(false, Relaxed);
    COUNT.load(Relaxed)
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    if COUNTING.load(Relaxed) {
        COUNT.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call goes to `System` as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}
