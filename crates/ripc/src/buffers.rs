//! The library's own memory, into which long items are fetched if the program has given no window. It is reused: fresh memory
//! would have to be mapped and zeroed for each item, which takes longer than to fetch the item.

use crate::limits::{KEPT_BUFFER_BYTES_MIN, KEPT_BUFFERS_MAX, KEPT_BYTES_MAX};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Buffers that the program has given back.
#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Box<[u8]>>,
    bytes: usize,
}

/// Lends buffers and takes them back.
#[derive(Debug, Default)]
pub struct Buffers {
    free: Arc<Mutex<Free>>,
}

/// A buffer. When it is dropped, on any thread, it goes back, or is freed if its [`Buffers`] are gone or keep enough. Beyond what
/// was fetched it holds bytes of earlier items, which nobody else may see.
#[derive(Debug)]
pub struct Buffer {
    bytes: Box<[u8]>,
    home: Weak<Mutex<Free>>,
}

impl Buffers {
    /// Lends a buffer of at least `len` bytes and at most `max` (`len` or more), with undefined content. `None` if the system has
    /// no memory.
    pub fn take(&self, len: usize, max: usize) -> Option<Box<[u8]>> {
        let longest = max.min(len.saturating_mul(2));
        let mut free = lock(&self.free);
        let all = free.buffers.iter().enumerate();
        let fitting = all.filter(|(_, buffer)| (len..=longest).contains(&buffer.len()));
        if let Some((index, _)) = fitting.min_by_key(|(_, buffer)| buffer.len()) {
            let buffer = free.buffers.swap_remove(index);
            free.bytes -= buffer.len();
            return Some(buffer);
        }
        drop(free);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, 0);
        Some(bytes.into_boxed_slice())
    }

    /// Makes a buffer of bytes, which come back here when it is dropped.
    pub fn adopt(&self, bytes: Box<[u8]>) -> Buffer {
        Buffer { bytes, home: Arc::downgrade(&self.free) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        let Some(home) = self.home.upgrade().filter(|_| bytes.len() >= KEPT_BUFFER_BYTES_MIN) else { return };
        let mut free = lock(&home);
        if free.buffers.len() < KEPT_BUFFERS_MAX && bytes.len() <= KEPT_BYTES_MAX - free.bytes {
            free.bytes += bytes.len();
            free.buffers.push(bytes);
        }
    }
}

fn lock(free: &Mutex<Free>) -> MutexGuard<'_, Free> {
    free.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEN: usize = KEPT_BUFFER_BYTES_MIN;

    fn kept(buffers: &Buffers) -> (usize, usize) {
        let free = lock(&buffers.free);
        (free.buffers.len(), free.bytes)
    }

    #[test]
    fn what_comes_back_is_used_again_where_it_fits() {
        let buffers = Buffers::default();
        let first = buffers.take(2 * LEN, usize::MAX).unwrap();
        let at = first.as_ptr();
        drop(buffers.adopt(first));
        assert_eq!(kept(&buffers), (1, 2 * LEN));
        assert_eq!(buffers.take(2 * LEN + 1, usize::MAX).unwrap().len(), 2 * LEN + 1, "it is too short");
        assert_eq!(
            buffers.take(LEN - 1, usize::MAX).unwrap().len(),
            LEN - 1,
            "it is more than twice as long"
        );
        assert_eq!(buffers.take(LEN, LEN).unwrap().len(), LEN, "it is more than may be used");
        assert_eq!(kept(&buffers), (1, 2 * LEN));
        let again = buffers.take(LEN, usize::MAX).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (at, 2 * LEN));
        assert_eq!(kept(&buffers), (0, 0));
    }

    #[test]
    fn only_so_much_is_kept() {
        let buffers = Buffers::default();
        let take = |len| buffers.adopt(buffers.take(len, usize::MAX).unwrap());
        let many: Vec<Buffer> = (0..=KEPT_BUFFERS_MAX).map(|_| take(LEN)).collect();
        drop(many);
        assert_eq!(kept(&buffers), (KEPT_BUFFERS_MAX, KEPT_BUFFERS_MAX * LEN));
        let buffers = Buffers::default();
        let take = |len| buffers.adopt(buffers.take(len, usize::MAX).unwrap());
        drop([take(KEPT_BYTES_MAX / 2), take(KEPT_BYTES_MAX / 2), take(LEN), take(LEN - 1)]);
        assert_eq!(kept(&buffers), (2, KEPT_BYTES_MAX));
        let last = take(LEN);
        drop(buffers);
        assert_eq!(last.len(), LEN);
    }
}
