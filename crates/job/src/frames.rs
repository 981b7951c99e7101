//! How frames are written and read.
//!
//! A frame is its length (u32, little-endian), a byte that says what it is, and fields: numbers as u32, bytes and texts
//! after their length.

use std::io::{self, Read};

/// Fields of a frame that is read. Each call takes the next one, or none where the frame has no such field.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Those of a frame, without its length and its kind.
    pub const fn new(fields: &'a [u8]) -> Fields<'a> {
        Fields(fields)
    }

    /// Whether all fields were taken.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number.
    pub fn number(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    /// Up to `len_max` bytes.
    pub fn bytes(&mut self, len_max: usize) -> Option<Vec<u8>> {
        let len = usize::try_from(self.number()?).ok()?;
        if len > len_max { None } else { self.take(len).map(<[u8]>::to_vec) }
    }

    /// A text of up to `len_max` bytes.
    pub fn text(&mut self, len_max: usize) -> Option<String> {
        String::from_utf8(self.bytes(len_max)?).ok()
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(len)?;
        self.0 = left;
        Some(taken)
    }
}

/// A frame that is written.
pub struct Frame(Vec<u8>);

impl Frame {
    /// One of a kind, so far without fields.
    pub fn new(kind: u8) -> Frame {
        Frame(vec![0, 0, 0, 0, kind])
    }

    /// Adds a number.
    #[must_use]
    pub fn number(mut self, number: u32) -> Frame {
        self.0.extend(number.to_le_bytes());
        self
    }

    /// Adds bytes after their length. Who writes has checked it against a limit far below 4 GiB.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Frame {
        self.0.extend((bytes.len() as u32).to_le_bytes());
        self.0.extend(bytes);
        self
    }

    /// The whole frame, with its length.
    pub fn finish(mut self) -> Vec<u8> {
        let len = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&len.to_le_bytes());
        self.0
    }
}

/// Reads one frame of up to `len_max` bytes, and returns it without its length.
///
/// # Errors
/// `InvalidData` where it is longer; `UnexpectedEof` where the other side has closed; what reading gives.
pub fn read_frame(from: &mut impl Read, len_max: usize) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > len_max {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut frame = vec![0; len];
    from.read_exact(&mut frame)?;
    Ok(frame)
}
