//! Byte buffers that are owned only while bytes are in them.
//!
//! A worker keeps a [`BufferPool`]; a session's [`Buffer`] takes memory from it when bytes arrive and gives it back
//! when it is drained, so an idle session owns no buffer. INVARIANT: `start <= end <= memory.len()`.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size of a pooled buffer, bytes. One read of a busy socket fits; commands longer than this grow their buffer.
pub(crate) const CHUNK: usize = 16 * 1024;
/// Size a buffer grows to while large replies stream through it, bytes: the window of one direction of one session.
pub(crate) const WINDOW: usize = 64 * 1024;
/// Free buffers kept by a worker, at most.
const MAX_FREE: usize = 1024;
/// Up to here a buffer grows by doubling, beyond it by a quarter, bytes: many clients may be in the middle of a long command.
const DOUBLES: usize = 1024 * 1024;

/// Bytes of the process's buffers that are longer than a chunk.
static GROWN: AtomicUsize = AtomicUsize::new(0);

/// Bytes of buffers that are longer than a chunk, in use.
pub(crate) fn grown_bytes() -> usize {
    GROWN.load(Ordering::Relaxed)
}

/// Free chunks of one worker.
#[derive(Default)]
pub(crate) struct BufferPool {
    free: RefCell<Vec<Vec<u8>>>,
    /// The fewest that were free since the last trim: so many were not needed.
    spare: Cell<usize>,
}

impl BufferPool {
    fn take(&self) -> Vec<u8> {
        let mut free = self.free.borrow_mut();
        let taken = free.pop();
        self.spare.set(self.spare.get().min(free.len()));
        taken.unwrap_or_else(|| vec![0; CHUNK])
    }

    /// Frees half of what was not needed since the last call.
    pub(crate) fn trim(&self) {
        let mut free = self.free.borrow_mut();
        let keep = free.len() - (self.spare.get() / 2).min(free.len());
        free.truncate(keep);
        self.spare.set(free.len());
    }

    /// Bytes that wait for use.
    pub(crate) fn free_bytes(&self) -> usize {
        self.free.borrow().len() * CHUNK
    }

    fn give(&self, memory: Vec<u8>) {
        let mut free = self.free.borrow_mut();
        if memory.len() == CHUNK && free.len() < MAX_FREE {
            free.push(memory);
        }
    }
}

/// One growing vector of a worker, for whoever needs one for a moment.
#[derive(Default)]
pub(crate) struct Scratch(Cell<Vec<u8>>);

impl Scratch {
    /// The vector, empty; another one while it is in use.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.take()
    }

    /// Gives it back; one that has become large is freed.
    pub(crate) fn put(&self, mut memory: Vec<u8>) {
        if memory.capacity() <= WINDOW {
            memory.clear();
            self.0.set(memory);
        }
    }
}

/// Bytes read but not yet consumed, with room behind them.
#[derive(Default)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// The bytes that wait to be consumed.
    pub(crate) fn filled(&self) -> &[u8] {
        self.memory.get(self.start..self.end).unwrap_or_default()
    }

    /// As [`Buffer::filled`], to change bytes in place.
    pub(crate) fn filled_mut(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.end).unwrap_or_default()
    }

    /// Number of bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// True when nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Forgets the first `n` bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Forgets `n` bytes that come after the first `skip`.
    pub(crate) fn consume_behind(&mut self, skip: usize, n: usize) {
        let from = (self.start + skip).min(self.end);
        let to = (from + n).min(self.end);
        self.memory.copy_within(to..self.end, from);
        self.end -= to - from;
    }

    /// Room to read into; takes a chunk from `pool` when the buffer owns none, moves bytes to the front when
    /// less than a quarter is free behind them.
    pub(crate) fn space(&mut self, pool: &BufferPool) -> &mut [u8] {
        if self.memory.is_empty() {
            self.memory = pool.take();
        }
        if self.start > 0 && self.memory.len() - self.end < self.memory.len() / 4 {
            self.compact();
        }
        self.memory.get_mut(self.end..).unwrap_or_default()
    }

    /// Marks `n` bytes of [`Buffer::space`] as filled.
    pub(crate) fn advance(&mut self, n: usize) {
        self.end = (self.end + n).min(self.memory.len());
    }

    /// True when no byte fits without growing.
    pub(crate) fn is_full(&self) -> bool {
        !self.memory.is_empty() && self.len() == self.memory.len()
    }

    /// Makes room so that `n` bytes in all (waiting ones included) fit.
    pub(crate) fn reserve(&mut self, n: usize, pool: &BufferPool) {
        if self.memory.is_empty() && n <= CHUNK {
            self.memory = pool.take();
        }
        if n <= self.memory.len() - self.start {
            return;
        }
        self.compact();
        if n > self.memory.len() {
            // Growing by a part of what is there keeps the cost of a long command linear; the pool only ever sees whole chunks.
            let size = n.max(grown(self.memory.len())).max(CHUNK);
            self.uncount();
            self.memory.reserve_exact(size - self.memory.len());
            self.memory.resize(size, 0);
            if size > CHUNK {
                GROWN.fetch_add(size, Ordering::Relaxed);
            }
        }
    }

    /// Gives the memory back when nothing waits in it.
    pub(crate) fn release(&mut self, pool: &BufferPool) {
        if self.is_empty() && !self.memory.is_empty() {
            self.uncount();
            pool.give(std::mem::take(&mut self.memory));
            self.start = 0;
            self.end = 0;
        }
    }

    /// The memory goes. What all workers share is only written for a buffer that has grown.
    fn uncount(&self) {
        if self.memory.len() > CHUNK {
            GROWN.fetch_sub(self.memory.len(), Ordering::Relaxed);
        }
    }

    fn compact(&mut self) {
        self.memory.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.uncount();
    }
}

/// The next size of a buffer that has this one, bytes.
pub(crate) fn grown(len: usize) -> usize {
    len.saturating_add(if len < DOUBLES { len } else { len / 4 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(b: &mut Buffer, pool: &BufferPool, bytes: &[u8]) {
        b.reserve(b.len() + bytes.len(), pool);
        b.space(pool)[..bytes.len()].copy_from_slice(bytes);
        b.advance(bytes.len());
    }

    #[test]
    fn keeps_bytes_through_growth_and_compaction() {
        let pool = BufferPool::default();
        let mut b = Buffer::default();
        put(&mut b, &pool, &[1; CHUNK]);
        assert!(b.is_full());
        b.consume(CHUNK - 2);
        put(&mut b, &pool, &[2; 100]);
        assert_eq!(&b.filled()[..3], &[1, 1, 2]);
        put(&mut b, &pool, &[3; WINDOW]);
        assert_eq!(b.len(), 102 + WINDOW);
        assert_eq!(b.filled()[102], 3);
    }

    /// A client that stops in the middle of a long command owns little more than it has sent.
    #[test]
    fn a_long_command_costs_little_more_than_its_bytes() {
        let pool = BufferPool::default();
        let mut b = Buffer::default();
        for sent in (1..=160).map(|part| part * 100_000) {
            put(&mut b, &pool, &[1; 100_000]);
            let limit = (2 * sent).min(2 * DOUBLES).max(sent / 4 * 5);
            assert!(b.memory.capacity() <= limit + CHUNK, "{sent}: {}", b.memory.capacity());
            assert!(grown_bytes() >= b.memory.len());
        }
        let before = grown_bytes();
        assert!(before >= 16_000_000);
        drop(b);
        assert!(grown_bytes() <= before - 8_000_000, "others grow theirs meanwhile");
    }

    #[test]
    fn a_drained_buffer_goes_back_to_the_pool() {
        let pool = BufferPool::default();
        let mut b = Buffer::default();
        put(&mut b, &pool, b"abc");
        b.release(&pool);
        assert_eq!(b.filled(), b"abc");
        b.consume(3);
        b.release(&pool);
        assert_eq!(pool.free.borrow().len(), 1);
        assert!(b.filled().is_empty());
    }
}
