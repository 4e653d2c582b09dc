//! Keeps the C library's allocator from spreading freed memory over many arenas.
//!
//! It must run before the program has threads.

/// Lets the program have one arena for each processor. The library's default is eight; each keeps what its threads have
/// freed, which costs a world of 20,000 agents some 25 MB (`cargo bench -- many`).
#[cfg(target_env = "gnu")]
pub fn bound_arenas() {
    use std::ffi::c_int;

    /// `M_ARENA_MAX` of glibc's `malloc.h`.
    const ARENA_MAX: c_int = -8;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let arenas = c_int::try_from(processors).unwrap_or(c_int::MAX);
    #[allow(unsafe_code, reason = "the standard library has no way to set this")]
    {
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        // SAFETY: `mallopt` takes two integers, has no requirement but that no other thread allocates meanwhile, and is
        // called first thing in `main`. If it refuses, the defaults stay.
        let _ = unsafe { mallopt(ARENA_MAX, arenas) };
    }
}

/// Other C libraries have no arenas.
#[cfg(not(target_env = "gnu"))]
pub fn bound_arenas() {}
