//! Counts allocations, only while a closure runs.
//!
//! This is the only file of the repository with `unsafe`: a global allocator needs it, and the crates
//! that offer one change what we measure. `stats_alloc` does two locked additions for each allocation
//! and each release, even when it does not count, which would slow down the other readers and not
//! ours; `allocation-counter` turns each `realloc` into a copy; divan's profiler gives its numbers
//! only to divan. Here an allocation that is not counted costs one more plain load.

#![allow(unsafe_code, reason = "`GlobalAlloc` is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

static COUNTING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Counts calls of `alloc` and `realloc` while the closure runs. There is one thread, so all of them
/// are its own.
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

// SAFETY: every call is passed to `System` unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
