//! A workspace: memory over all ranks that is read and written like a file.
//!
//! Layout, in words: its kind, its length, the length of a chunk, the number of chunks, and the address of each. Chunks are on
//! one rank after another.

use crate::address::GlobalAddress;
use crate::data::heap;
use crate::error::{AcpError, Result};
use crate::space::{Space, WORD_BYTES, address_in, behind};

const KIND: u64 = u64::from_le_bytes(*b"acpspace");
const HEAD_WORDS: u64 = 4;
/// Zeros, which are written this many at a time.
const ZEROS: [u8; 16 << 10] = [0; 16 << 10];

/// Bytes in chunks over the heaps of all ranks, read and written by their offsets (`acp_create_ws`). Any rank that has its handle
/// reads and writes at any time. If two ranks write the same bytes at the same time, the result is a mixture.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    control: GlobalAddress,
}

/// The description of a workspace.
#[derive(Copy, Clone)]
struct Shape {
    len: u64,
    chunk: u64,
    chunks: u64,
}

impl Workspace {
    /// Makes a workspace of zeros. The first of its chunks is on `first_rank`, the following ones on the ranks after it, in turn.
    /// One rank makes it, and gives the others its handle.
    ///
    /// # Errors
    /// A length is 0. A heap is full. There is no such rank, or one is gone.
    pub fn create(
        space: &mut impl Space,
        len_bytes: u64,
        chunk_bytes: u64,
        first_rank: u32,
    ) -> Result<Workspace> {
        let size = space.size();
        if first_rank >= size {
            return Err(AcpError::Rank { rank: first_rank, size });
        }
        if len_bytes == 0 || chunk_bytes == 0 {
            return Err(AcpError::Argument(
                "a workspace or a chunk of 0 bytes: each must have one byte at least",
            ));
        }
        let shape = Shape { len: len_bytes, chunk: chunk_bytes, chunks: len_bytes.div_ceil(chunk_bytes) };
        if shape.chunks > space.heap_bytes() / WORD_BYTES {
            return Err(AcpError::Full("no heap has space for the addresses of so many chunks"));
        }
        let mut made = Vec::new();
        let control = Workspace::fill(space, shape, first_rank, &mut made);
        if control.is_err() {
            made.into_iter().try_for_each(|at| heap::free(space, at))?;
        }
        Ok(Workspace { control: control? })
    }

    /// Allocates and writes the workspace. `made` has what was allocated.
    fn fill(
        space: &mut impl Space,
        shape: Shape,
        first_rank: u32,
        made: &mut Vec<GlobalAddress>,
    ) -> Result<GlobalAddress> {
        let size = u64::from(space.size());
        for number in 0..shape.chunks {
            let rank = (u64::from(first_rank) + number) % size;
            let len = shape.chunk_len(number);
            let chunk = heap::allocate(space, rank as u32, len)?;
            made.push(chunk);
            for offset in (0..len).step_by(ZEROS.len()) {
                let zeros = ZEROS.get(..(len - offset).min(ZEROS.len() as u64) as usize).unwrap_or_default();
                space.write(behind(chunk, offset)?, zeros)?;
            }
        }
        let addresses: Vec<u8> = made.iter().flat_map(|chunk| chunk.to_bits().to_ne_bytes()).collect();
        let control = heap::allocate(space, first_rank, (HEAD_WORDS + shape.chunks) * WORD_BYTES)?;
        made.push(control);
        space.write(behind(control, HEAD_WORDS * WORD_BYTES)?, &addresses)?;
        space.write_words(control, [KIND, shape.len, shape.chunk, shape.chunks])?;
        Ok(control)
    }

    /// Opens the workspace of a handle that another rank has given.
    pub fn open(handle: GlobalAddress) -> Workspace {
        Workspace { control: handle }
    }

    /// The handle by which other ranks open it.
    pub fn handle(self) -> GlobalAddress {
        self.control
    }

    /// How many bytes it has.
    ///
    /// # Errors
    /// It was destroyed before. The rank is gone.
    pub fn len(self, space: &mut impl Space) -> Result<u64> {
        Ok(self.shape(space)?.len)
    }

    /// Reads bytes from an offset on, up to the end (`acp_read_ws`). Returns how many there were.
    ///
    /// # Errors
    /// The workspace was destroyed. A rank is gone.
    pub fn read(self, space: &mut impl Space, offset: u64, bytes: &mut [u8]) -> Result<u64> {
        let mut done = 0;
        for (at, len) in self.pieces(space, offset, bytes.len() as u64)? {
            let piece = bytes.get_mut(done as usize..(done + len) as usize).unwrap_or_default();
            space.read(at, piece)?;
            done += len;
        }
        Ok(done)
    }

    /// Writes bytes from an offset on, up to the end (`acp_write_ws`). Returns for how many there was space.
    ///
    /// # Errors
    /// The workspace was destroyed. A rank is gone: some bytes may have been written.
    pub fn write(self, space: &mut impl Space, offset: u64, bytes: &[u8]) -> Result<u64> {
        let mut done = 0;
        for (at, len) in self.pieces(space, offset, bytes.len() as u64)? {
            let piece = bytes.get(done as usize..(done + len) as usize).unwrap_or_default();
            space.write(at, piece)?;
            done += len;
        }
        Ok(done)
    }

    /// Frees all of it (`acp_destroy_ws`). No rank may use it afterwards.
    ///
    /// # Errors
    /// It was destroyed before. A rank is gone.
    pub fn destroy(self, space: &mut impl Space) -> Result<()> {
        let shape = self.shape(space)?;
        let chunks = self.chunks(space, 0, shape.chunks)?;
        space.write_words(self.control, [0])?;
        chunks.into_iter().try_for_each(|chunk| heap::free(space, chunk))?;
        heap::free(space, self.control)
    }

    /// The addresses of bytes, chunk by chunk, up to the end.
    fn pieces(
        self,
        space: &mut impl Space,
        offset: u64,
        len_bytes: u64,
    ) -> Result<Vec<(GlobalAddress, u64)>> {
        let shape = self.shape(space)?;
        let end = offset.saturating_add(len_bytes).min(shape.len);
        if offset >= end {
            return Ok(Vec::new());
        }
        let (first, last) = (offset / shape.chunk, (end - 1) / shape.chunk);
        let chunks = self.chunks(space, first, last - first + 1)?;
        let pieces = (first..).zip(chunks).map(|(number, chunk)| {
            let start = number * shape.chunk;
            let from = offset.max(start);
            let to = end.min(start.saturating_add(shape.chunk));
            Ok((behind(chunk, from - start)?, to - from))
        });
        pieces.collect()
    }

    /// The addresses of chunks.
    fn chunks(self, space: &mut impl Space, first: u64, count: u64) -> Result<Vec<GlobalAddress>> {
        const WRONG: AcpError = AcpError::Corrupt("a workspace has a chunk that is nowhere");
        let mut addresses = vec![0; (count * WORD_BYTES) as usize];
        space.read(behind(self.control, (HEAD_WORDS + first) * WORD_BYTES)?, &mut addresses)?;
        let words = addresses.as_chunks::<{ WORD_BYTES as usize }>().0;
        words.iter().map(|word| address_in(u64::from_ne_bytes(*word))?.ok_or(WRONG)).collect()
    }

    fn shape(self, space: &mut impl Space) -> Result<Shape> {
        let [kind, len, chunk, chunks] = space.read_words(self.control)?;
        let is_right = kind == KIND
            && chunk > 0
            && chunks == len.div_ceil(chunk)
            && chunks <= space.heap_bytes() / WORD_BYTES;
        is_right
            .then_some(Shape { len, chunk, chunks })
            .ok_or(AcpError::Corrupt("there is no workspace at this address, or not any more"))
    }
}

impl Shape {
    fn chunk_len(self, number: u64) -> u64 {
        self.chunk.min(self.len - number * self.chunk)
    }
}
