//! The packet buffers: one allocation, shared by all connections for what they send and what they hold.

/// A packet buffer's place in the pool.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Buf(u32);

impl Buf {
    /// No buffer.
    pub const NONE: Buf = Buf(u32::MAX);

    pub fn is_some(self) -> bool {
        self != Buf::NONE
    }
}

/// How much of a buffer is used.
#[derive(Copy, Clone, Default)]
struct Extent {
    len: u16,
    /// Where the part not yet delivered begins.
    at: u16,
}

/// All packet buffers of an endpoint.
pub(crate) struct Pool {
    /// The bytes of all buffers up to the last that was ever used; the capacity is enough for all of them.
    bytes: Vec<u8>,
    extents: Vec<Extent>,
    free: Vec<Buf>,
    buffer_bytes: usize,
    /// Buffers kept for bundles of which the program has taken a part: what remains of those cannot be refused any more.
    reserve: usize,
}

impl Pool {
    /// Bytes that one buffer costs in all.
    pub fn cost_bytes(buffer_bytes: usize) -> u64 {
        (buffer_bytes + size_of::<Extent>() + size_of::<Buf>()) as u64
    }

    /// `None`: there is no memory.
    pub fn new(buffers: u32, buffer_bytes: usize) -> Option<Pool> {
        let count = buffers as usize;
        let (mut bytes, mut extents, mut free) = (Vec::new(), Vec::new(), Vec::new());
        bytes.try_reserve_exact(count.checked_mul(buffer_bytes)?).ok()?;
        extents.try_reserve_exact(count).ok()?;
        free.try_reserve_exact(count).ok()?;
        extents.resize(count, Extent::default());
        free.extend((0..buffers).rev().map(Buf));
        Some(Pool { bytes, extents, free, buffer_bytes, reserve: (count / 16).max(2) })
    }

    pub fn buffers(&self) -> usize {
        self.extents.len()
    }

    pub fn used(&self) -> usize {
        self.extents.len() - self.free.len()
    }

    /// True if a connection that has `held` buffers may have one more: nobody may hold more than what is left for
    /// all others (Choudhury and Hahne's dynamic threshold), so that none is ever locked out.
    #[inline]
    pub fn fair(&self, held: u32) -> bool {
        self.free.len() > self.reserve && (held as usize) < self.free.len() - self.reserve
    }

    /// One more buffer for a connection that has `held`, if that is fair.
    #[inline]
    pub fn take(&mut self, held: u32) -> Option<Buf> {
        if self.fair(held) { self.take_reserved() } else { None }
    }

    /// True if [`Pool::take_reserved`] would give one.
    #[inline]
    pub fn any(&self) -> bool {
        !self.free.is_empty()
    }

    /// A buffer, fair or not.
    #[inline]
    pub fn take_reserved(&mut self) -> Option<Buf> {
        let buf = self.free.pop()?;
        self.extents[buf.0 as usize] = Extent::default();
        if (buf.0 as usize + 1) * self.buffer_bytes > self.bytes.len() {
            self.first_use(buf);
        }
        Some(buf)
    }

    /// Pages are taken from the system when a buffer on them is first used, and no sooner.
    #[cold]
    fn first_use(&mut self, buf: Buf) {
        let end = (buf.0 as usize + 1) * self.buffer_bytes;
        debug_assert!(end <= self.bytes.capacity(), "there is room for all");
        self.bytes.resize(end, 0);
    }

    #[inline]
    pub fn give_back(&mut self, buf: Buf) {
        debug_assert!(self.free.len() < self.extents.len(), "given back twice");
        self.free.push(buf);
    }

    /// The whole buffer.
    #[inline]
    pub fn get_mut(&mut self, buf: Buf) -> &mut [u8] {
        let start = buf.0 as usize * self.buffer_bytes;
        &mut self.bytes[start..start + self.buffer_bytes]
    }

    /// The first `len` bytes.
    #[inline]
    pub fn get(&self, buf: Buf, len: usize) -> &[u8] {
        let start = buf.0 as usize * self.buffer_bytes;
        &self.bytes[start..start + len]
    }

    /// Stores a body, of which the first `at` bytes have been delivered.
    pub fn store(&mut self, buf: Buf, body: &[u8], at: usize) {
        self.get_mut(buf)[..body.len()].copy_from_slice(body);
        self.extents[buf.0 as usize] = Extent { len: body.len() as u16, at: at as u16 };
    }

    /// A stored body, and where its undelivered part begins.
    pub fn stored(&self, buf: Buf) -> (&[u8], usize) {
        let extent = self.extents[buf.0 as usize];
        (self.get(buf, usize::from(extent.len)), usize::from(extent.at))
    }

    /// A stored body that may be changed, and where its undelivered part begins.
    pub fn stored_mut(&mut self, buf: Buf) -> (&mut [u8], usize) {
        let Extent { len, at } = self.extents[buf.0 as usize];
        (&mut self.get_mut(buf)[..usize::from(len)], usize::from(at))
    }

    /// The program has taken the stored body up to byte `at`.
    pub fn delivered_to(&mut self, buf: Buf, at: usize) {
        self.extents[buf.0 as usize].at = at as u16;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_gets_more_than_is_left_for_the_others() {
        let mut pool = Pool::new(64, 64).unwrap();
        let mut held = 0;
        while pool.take(held).is_some() {
            held += 1;
        }
        assert_eq!(held, 30, "half of what is not reserved");
        assert!(pool.take(0).is_some(), "another connection still finds room");
    }
}
