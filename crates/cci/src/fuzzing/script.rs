//! Bytes as a list of decisions: what is missing at the end is zeros, so that any bytes are a script.

/// What is left of the bytes.
pub(crate) struct Script<'a>(pub &'a [u8]);

impl<'a> Script<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most so many bytes.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, tail) = self.0.split_at(len.min(self.0.len()));
        self.0 = tail;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        for (to, from) in out.iter_mut().zip(self.take(N)) {
            *to = *from;
        }
        out
    }

    pub fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number with many small ones and all the edges among them.
    pub fn odd_u64(&mut self) -> u64 {
        match self.byte() {
            0..=99 => u64::from(self.byte()),
            100..=149 => u64::from(self.u16()),
            150..=179 => u64::from(self.u32()),
            180..=199 => u64::MAX - u64::from(self.byte()),
            200..=219 => (1 << 63) | u64::from(self.u16()),
            _ => self.u64(),
        }
    }
}
