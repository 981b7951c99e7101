//! The memory that programs send from and receive into: the library's buffers, which are pooled, and the program's own that it has registered.

use cci::{Foreign, Memory};
use cci_ripc::{Node, Part};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{self, NonNull};

/// Longer buffers have memory of their own; those up to this length share some.
const SHARED_BYTES_MAX: usize = 32 << 10;
/// The shortest of those.
const SHARED_BYTES_MIN: usize = 64;
/// Memory that is shared is for so many buffers, or so long, whichever is more.
const SHARED_COUNT_MIN: usize = 16;
const SHARED_LEN_BYTES: usize = 64 << 10;
/// Pooled buffers of one length that are looked at for one that is lent to nobody.
const LOOKS_MAX: usize = 16;
/// Ranges of the program's memory that are remembered.
const REGISTERED_MAX: usize = 65_536;
/// Registered ranges that are looked at for one that holds a buffer.
const RANGES_LOOKED_AT: usize = 64;

/// Memory of the library's own, for one buffer or for several of one length.
struct Block {
    memory: Memory,
    /// Bytes of each buffer.
    each_bytes: usize,
    buffers: Vec<Buffer>,
    /// Where the bytes of a file are mapped, if it is one: it goes when it is freed.
    _file: Option<MappedFile>,
}

#[derive(Copy, Clone, Default)]
struct Buffer {
    /// As the program asked for; 0: it is in the pool.
    len_bytes: usize,
    /// It may be lent to a partner, or be a window.
    is_lent: bool,
}

/// The bytes of a file at addresses of their own, for the program to read.
struct MappedFile {
    base: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: an address range that is unmapped once, on any thread.
unsafe impl Send for MappedFile {}

impl MappedFile {
    fn new(file: &File, len_bytes: usize) -> std::io::Result<MappedFile> {
        // SAFETY: a new mapping, at no address of anybody's.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), len_bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        let mapped =
            (base != libc::MAP_FAILED).then_some(base).and_then(|base| NonNull::new(base.cast::<u8>()));
        let base = mapped.ok_or_else(std::io::Error::last_os_error)?;
        base.as_ptr().expose_provenance();
        Ok(MappedFile { base, len_bytes })
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`. The library never reads there; that the program does not any more is what its call to free it says.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len_bytes) };
        debug_assert_eq!(unmapped, 0, "it was mapped");
    }
}

/// Why memory can't be lent.
pub(super) enum Problem {
    /// It is a buffer that was freed.
    Freed,
    /// It is shorter.
    TooShort,
    /// There is no such memory: it begins at NULL, is empty, or goes beyond any address.
    NoMemory,
}

/// All of it.
#[derive(Default)]
pub(super) struct Buffers {
    blocks: BTreeMap<usize, Block>,
    /// Addresses of pooled buffers that share memory, by their length.
    shared: BTreeMap<usize, VecDeque<usize>>,
    /// Addresses of the other pooled buffers, in the order in which they were freed.
    unshared: VecDeque<usize>,
    /// Ranges of the program's own memory: length by address.
    registered: BTreeMap<usize, usize>,
}

/// Where a buffer of the library's is.
struct Place {
    block: usize,
    index: usize,
    start: usize,
}

impl Buffers {
    fn place(&self, address: usize) -> Option<Place> {
        let (&block, found) = self.blocks.range(..=address).next_back()?;
        let index = (address - block) / found.each_bytes;
        (index < found.buffers.len()).then(|| Place { block, index, start: block + index * found.each_bytes })
    }

    fn buffer(&mut self, place: &Place) -> Option<&mut Buffer> {
        self.blocks.get_mut(&place.block)?.buffers.get_mut(place.index)
    }

    fn whole(&self, place: &Place) -> Option<Part> {
        let block = self.blocks.get(&place.block)?;
        let start = place.index * block.each_bytes;
        Some(Part::new(&block.memory, start..start + block.each_bytes))
    }

    /// Whether a pooled buffer can be used again: partners may have been lent it before it was freed.
    fn is_free(&mut self, node: &Node, address: usize) -> bool {
        let Some(place) = self.place(address) else { return false };
        let Some(whole) = self.whole(&place) else { return false };
        let Some(buffer) = self.buffer(&place) else { return false };
        if buffer.is_lent && node.is_lent(&whole) {
            return false;
        }
        buffer.is_lent = false;
        true
    }

    /// A buffer of this length, with whatever it holds. `None`: there is no memory.
    pub fn take(&mut self, node: &mut Node, len_bytes: usize) -> Option<NonNull<u8>> {
        if len_bytes == 0 || isize::try_from(len_bytes).is_err() {
            return None;
        }
        let address = if len_bytes <= SHARED_BYTES_MAX {
            self.take_shared(node, len_bytes.next_power_of_two().max(SHARED_BYTES_MIN))?
        } else {
            self.take_unshared(node, len_bytes)?
        };
        let place = self.place(address)?;
        self.buffer(&place)?.len_bytes = len_bytes;
        let block = self.blocks.get(&place.block)?;
        NonNull::new(block.memory.as_ptr().wrapping_add(address - place.block))
    }

    fn take_shared(&mut self, node: &mut Node, each_bytes: usize) -> Option<usize> {
        for _ in 0..LOOKS_MAX {
            let Some(address) = self.shared.get_mut(&each_bytes).and_then(VecDeque::pop_front) else { break };
            if self.is_free(node, address) {
                return Some(address);
            }
            self.shared.entry(each_bytes).or_default().push_back(address);
        }
        let count = SHARED_COUNT_MIN.max(SHARED_LEN_BYTES / each_bytes);
        let first = self.add(node, each_bytes, count)?;
        let others = (1..count).map(|index| first + index * each_bytes);
        self.shared.entry(each_bytes).or_default().extend(others);
        Some(first)
    }

    fn take_unshared(&mut self, node: &mut Node, len_bytes: usize) -> Option<usize> {
        for index in 0..self.unshared.len() {
            let address = self.unshared[index];
            let fits = self.blocks.get(&address).is_some_and(|block| {
                block.each_bytes >= len_bytes && block.each_bytes <= len_bytes.saturating_mul(2)
            });
            if fits && self.is_free(node, address) {
                self.unshared.remove(index);
                return Some(address);
            }
        }
        self.add(node, len_bytes, 1)
    }

    fn add(&mut self, node: &mut Node, each_bytes: usize, count: usize) -> Option<usize> {
        let memory = node.allocate(each_bytes.checked_mul(count)?).ok()?;
        let address = memory.as_ptr().addr();
        self.blocks.insert(
            address,
            Block { memory, each_bytes, buffers: vec![Buffer::default(); count], _file: None },
        );
        Some(address)
    }

    /// A buffer of zeros.
    pub fn take_zeroed(&mut self, node: &mut Node, len_bytes: usize) -> Option<NonNull<u8>> {
        let buffer = self.take(node, len_bytes)?;
        // SAFETY: so long is it, and it is nobody's but the caller's.
        unsafe { ptr::write_bytes(buffer.as_ptr(), 0, len_bytes) };
        Some(buffer)
    }

    /// Adds a file as a buffer that is not empty. Returns where it is, and how long it is, bytes.
    pub fn add_file(&mut self, path: &Path) -> Result<(NonNull<u8>, usize), String> {
        let cannot = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        // If it is no file, opening it shall not wait.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let file = file.map_err(|error| cannot(&error))?;
        let (other, memory) = (file.try_clone(), Memory::file(file).map_err(|error| cannot(&error))?);
        let len_bytes = memory.len();
        let mapped =
            other.and_then(|file| MappedFile::new(&file, len_bytes)).map_err(|error| cannot(&error))?;
        let base = mapped.base;
        let buffers = vec![Buffer { len_bytes, is_lent: false }];
        let block = Block { memory, each_bytes: len_bytes, buffers, _file: Some(mapped) };
        self.blocks.insert(base.addr().get(), block);
        Ok((base, len_bytes))
    }

    /// Puts the buffer that has this byte back into the pool. Nothing will be put there by partners, and nothing happens if there is none.
    pub fn free(&mut self, node: &mut Node, address: usize) {
        let Some(place) = self.place(address) else { return };
        if self.blocks.get(&place.block).is_some_and(|block| block.memory.is_file()) {
            // Who was lent bytes of it has the file.
            self.blocks.remove(&place.block);
            return;
        }
        let Some(buffer) = self.buffer(&place).filter(|buffer| buffer.len_bytes != 0) else { return };
        buffer.len_bytes = 0;
        if buffer.is_lent
            && let Some(whole) = self.whole(&place)
        {
            node.withdraw_buffers(&whole);
        }
        self.put_into_pool(&place);
    }

    fn put_into_pool(&mut self, place: &Place) {
        match self.blocks.get(&place.block) {
            Some(block) if block.buffers.len() > 1 => {
                self.shared.entry(block.each_bytes).or_default().push_back(place.start);
            }
            _ => self.unshared.push_back(place.start),
        }
    }

    /// A buffer that partners will fill, if they do. Until then it is in the pool, and not used again.
    pub fn take_for_partners(&mut self, node: &mut Node, len_bytes: usize) -> Option<Part> {
        let address = self.take(node, len_bytes)?.as_ptr().addr();
        let place = self.place(address)?;
        let part = self.part(address, len_bytes).ok();
        self.buffer(&place)?.len_bytes = 0;
        self.put_into_pool(&place);
        part
    }

    /// A buffer has been filled: it is the program's now, unless it was before.
    pub fn filled(&mut self, address: usize, len_bytes: usize) {
        let Some(place) = self.place(address) else { return };
        let Some(buffer) = self.buffer(&place).filter(|buffer| buffer.len_bytes == 0) else { return };
        buffer.len_bytes = len_bytes;
        self.unshared.retain(|&pooled| pooled != place.start);
        if let Some(shared) =
            self.blocks.get(&place.block).and_then(|block| self.shared.get_mut(&block.each_bytes))
        {
            shared.retain(|&pooled| pooled != place.start);
        }
    }

    /// How long the buffer that begins here is. `None`: there is none.
    pub fn len_of(&self, address: usize) -> Option<usize> {
        let place = self.place(address).filter(|place| place.start == address)?;
        let buffer = self.blocks.get(&place.block)?.buffers.get(place.index)?;
        (buffer.len_bytes != 0).then_some(buffer.len_bytes)
    }

    /// Memory to lend. What is not the library's is registered by that.
    pub fn part(&mut self, address: usize, len_bytes: usize) -> Result<Part, Problem> {
        let end = address.checked_add(len_bytes).filter(|_| isize::try_from(len_bytes).is_ok());
        let end = end.filter(|_| address != 0 && len_bytes != 0).ok_or(Problem::NoMemory)?;
        if let Some(place) = self.place(address) {
            let buffer = self.buffer(&place).filter(|buffer| buffer.len_bytes != 0).ok_or(Problem::Freed)?;
            if end > place.start + buffer.len_bytes {
                return Err(Problem::TooShort);
            }
            buffer.is_lent = true;
            let block = self.blocks.get(&place.block).ok_or(Problem::Freed)?;
            let start = address - place.block;
            return Ok(Part::new(&block.memory, start..start + len_bytes));
        }
        if self.is_registered(address, len_bytes) != Some(true) {
            self.register(address, len_bytes);
        }
        let base = NonNull::new(ptr::with_exposed_provenance_mut(address)).ok_or(Problem::NoMemory)?;
        // SAFETY: the program promises it, by the header: what it lends stays mapped.
        let memory = Memory::foreign(unsafe { Foreign::new(base, len_bytes) });
        Ok(Part::all(&memory))
    }

    /// Whether memory is registered: not at all, not all of it, or all of it.
    pub fn is_registered(&self, address: usize, len_bytes: usize) -> Option<bool> {
        let mut found = None;
        for (&start, &len) in self.registered.range(..=address).rev().take(RANGES_LOOKED_AT) {
            if start + len >= address + len_bytes {
                return Some(true);
            }
            found = found.or((start + len > address).then_some(false));
        }
        found
    }

    /// Remembers memory of the program's.
    pub fn register(&mut self, address: usize, len_bytes: usize) {
        if self.registered.len() < REGISTERED_MAX || self.registered.contains_key(&address) {
            let len = self.registered.entry(address).or_default();
            *len = len_bytes.max(*len);
        }
    }

    /// Forgets memory of the program's, or takes back what partners may write to of a buffer. False: it is neither.
    pub fn unregister(&mut self, node: &mut Node, address: usize) -> bool {
        if let Some(place) = self.place(address) {
            let is_taken = self.buffer(&place).is_some_and(|buffer| buffer.len_bytes != 0);
            if is_taken && let Some(whole) = self.whole(&place) {
                node.withdraw_buffers(&whole);
            }
            return is_taken;
        }
        let (start, len) = match self.registered.range(..=address).next_back() {
            Some((&start, &len)) if address < start + len => (start, len),
            _ => return false,
        };
        self.registered.remove(&start);
        if let Some(base) = NonNull::new(ptr::with_exposed_provenance_mut(start)) {
            // SAFETY: nothing accesses memory through it.
            node.withdraw_buffers(&Part::all(&Memory::foreign(unsafe { Foreign::new(base, len) })));
        }
        true
    }
}
