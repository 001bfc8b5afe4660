//! The write buffer of one connection: a ring whose capacity is a power of two.
//!
//! Rules: `head` and `tail` count bytes since the ring was empty and never wrap themselves; the
//! index into the storage is `count & (capacity - 1)`. `tail - head` is what waits. Storage is
//! taken from a [`BufferPool`] at the first byte and given back when the last byte has left, so an
//! idle connection holds none.

use std::io::IoSlice;

use crate::limits::{POOLED_BUFFER_BYTES_MAX, POOLED_BUFFERS_MAX, RING_BYTES_MIN};

/// Write buffers waiting for reuse; one pool per shard, never shared.
#[derive(Debug, Default)]
pub struct BufferPool {
    // Only buffers of the minimum size are kept hot; larger ones are rare and kept apart.
    small: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
}

impl BufferPool {
    fn take(&mut self, bytes: usize) -> Box<[u8]> {
        if bytes == RING_BYTES_MIN
            && let Some(buffer) = self.small.pop()
        {
            return buffer;
        }
        if let Some(at) = self.large.iter().position(|buffer| buffer.len() == bytes) {
            return self.large.swap_remove(at);
        }
        vec![0; bytes].into_boxed_slice()
    }

    fn give(&mut self, buffer: Box<[u8]>) {
        let pool = match buffer.len() {
            0 => return,
            RING_BYTES_MIN => &mut self.small,
            bytes if bytes <= POOLED_BUFFER_BYTES_MAX => &mut self.large,
            _ => return,
        };
        if pool.len() < POOLED_BUFFERS_MAX {
            pool.push(buffer);
        }
    }
}

/// Bytes on their way to one socket.
#[derive(Debug, Default)]
pub struct Ring {
    storage: Box<[u8]>,
    head: usize,
    tail: usize,
}

impl Ring {
    /// Bytes waiting.
    #[inline]
    pub fn len(&self) -> usize {
        self.tail - self.head
    }

    /// Whether nothing waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    /// Bytes of storage held right now; 0 when idle.
    pub fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Append `bytes`, growing by doubling. The caller has checked its limits.
    #[inline]
    pub fn push(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        if bytes.is_empty() {
            return;
        }
        if self.storage.len() - self.len() < bytes.len() {
            self.grow(bytes.len(), pool);
        }
        let mask = self.storage.len() - 1;
        let at = self.tail & mask;
        let first = bytes.len().min(self.storage.len() - at);
        self.storage[at..at + first].copy_from_slice(&bytes[..first]);
        self.storage[..bytes.len() - first].copy_from_slice(&bytes[first..]);
        self.tail += bytes.len();
    }

    #[cold]
    fn grow(&mut self, more: usize, pool: &mut BufferPool) {
        let wanted = (self.len() + more).next_power_of_two().max(RING_BYTES_MIN);
        let mut larger = pool.take(wanted);
        let waiting = self.len();
        let (front, back) = self.halves();
        larger[..front.len()].copy_from_slice(front);
        larger[front.len()..waiting].copy_from_slice(back);
        pool.give(std::mem::replace(&mut self.storage, larger));
        self.head = 0;
        self.tail = waiting;
    }

    /// What waits, in order: the part up to the end of the storage, then the wrapped part.
    pub fn halves(&self) -> (&[u8], &[u8]) {
        if self.is_empty() {
            return (&[], &[]);
        }
        let mask = self.storage.len() - 1;
        let at = self.head & mask;
        let first = self.len().min(self.storage.len() - at);
        (&self.storage[at..at + first], &self.storage[..self.len() - first])
    }

    /// Both halves as one vectored write.
    pub fn io_slices(&self) -> [IoSlice<'_>; 2] {
        let (front, back) = self.halves();
        [IoSlice::new(front), IoSlice::new(back)]
    }

    /// Forget `bytes` from the front: the socket has taken them.
    pub fn consume(&mut self, bytes: usize, pool: &mut BufferPool) {
        assert!(bytes <= self.len(), "a socket cannot take more than it was given");
        self.head += bytes;
        if self.is_empty() {
            self.clear(pool);
        }
    }

    /// Forget everything and give the storage back.
    pub fn clear(&mut self, pool: &mut BufferPool) {
        pool.give(std::mem::take(&mut self.storage));
        self.head = 0;
        self.tail = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    enum Step {
        Push(Vec<u8>),
        Consume(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let push = proptest::collection::vec(any::<u8>(), 0..6000).prop_map(Step::Push);
        let consume = (0usize..9000).prop_map(Step::Consume);
        proptest::collection::vec(prop_oneof![push, consume], 1..40)
    }

    proptest! {
        // req: DP-09
        #[test]
        fn ring_equals_a_plain_byte_queue(steps in steps()) {
            let mut pool = BufferPool::default();
            let mut ring = Ring::default();
            let mut model: VecDeque<u8> = VecDeque::new();
            for step in steps {
                match step {
                    Step::Push(bytes) => {
                        ring.push(&bytes, &mut pool);
                        model.extend(&bytes);
                    }
                    Step::Consume(bytes) => {
                        let bytes = bytes.min(model.len());
                        ring.consume(bytes, &mut pool);
                        model.drain(..bytes);
                    }
                }
                let (front, back) = ring.halves();
                let seen: Vec<u8> = front.iter().chain(back).copied().collect();
                prop_assert!(model.iter().eq(seen.iter()));
                prop_assert!(ring.capacity() == 0 || ring.capacity().is_power_of_two());
                prop_assert!(ring.capacity() == 0 || ring.capacity() >= RING_BYTES_MIN);
                prop_assert!(!ring.is_empty() || ring.capacity() == 0);
            }
        }
    }

    // req: DP-12
    #[test]
    fn wrapped_bytes_are_two_halves_of_one_write() {
        let mut pool = BufferPool::default();
        let mut ring = Ring::default();
        ring.push(&[1; 4000], &mut pool);
        ring.consume(3999, &mut pool);
        ring.push(&[2; 200], &mut pool);
        assert_eq!(ring.capacity(), 4096);
        let (front, back) = ring.halves();
        assert_eq!((front.len(), back.len()), (97, 104), "the tail wraps to 104");
    }

    #[test]
    fn buffers_come_back_to_the_pool() {
        let mut pool = BufferPool::default();
        let mut ring = Ring::default();
        ring.push(&[0; 10], &mut pool);
        ring.consume(10, &mut pool);
        assert_eq!((pool.small.len(), ring.capacity()), (1, 0));
        ring.push(&[0; 10], &mut pool);
        assert_eq!(pool.small.len(), 0);
    }
}
