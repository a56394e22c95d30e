//! Memory that is about to be used is asked for ahead of time.
//!
//! With hundreds of busy sessions each one finds its memory pushed out of the core's own caches by the others, and waits for it
//! line by line. Asked for all at once, it comes while the kernel still copies the bytes that were waited for.

/// Bytes that a processor fetches at a time.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Where a value lies, and how far.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    #[cfg(target_arch = "x86_64")]
    start: *const i8,
    #[cfg(target_arch = "x86_64")]
    lines: usize,
}

impl Extent {
    /// That of `value`.
    #[cfg(target_arch = "x86_64")]
    pub fn of<T: ?Sized>(value: &T) -> Self {
        let start = std::ptr::from_ref(value).cast::<i8>();
        Self { start, lines: size_of_val(value).div_ceil(LINE) }
    }

    /// That of `value`.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn of<T: ?Sized>(_: &T) -> Self {
        Self {}
    }

    /// Asks for what lies there, and goes on.
    #[inline]
    pub fn fetch(self) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..self.lines {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.start.wrapping_add(line * LINE);
            // SAFETY: a hint: it reads and writes nothing, and takes any address, one that is no memory any more too.
            #[allow(unsafe_code)]
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(address);
            }
        }
    }
}
