//! Descriptions of data, by numbers that the program compares and that are checked at each use.

use super::presence::check_live;
use super::status::{Code, Result, call, place};
use super::types::*;
use cci_am::Elements;
use cci_am::description::{Description, Readable, Writable};
use cci_memory::bytes::Bytes;
use libc::{c_int, c_void, iovec};
use std::ptr::NonNull;
use std::sync::{LazyLock, RwLock};

/// Numbers of those that exist from the start: `CCS_DATA_NULL`, and words of 1, 2, 4 and 8 bytes.
const PREDEFINED: std::ops::RangeInclusive<usize> = 1..=5;
/// Numbers of others have their index above this bit, and how often the place was used before below it.
const INDEX_SHIFT: u32 = 32;

/// What a number stands for.
#[derive(Clone, Debug)]
pub(super) struct Described {
    pub description: Description,
    /// Its displacements are addresses: it is used with a null buffer.
    pub is_absolute: bool,
}

#[derive(Default)]
struct Table {
    entries: Vec<Entry>,
    free: Vec<usize>,
}

#[derive(Default)]
struct Entry {
    /// From 1 on, so that no number of a description is one of those that exist from the start.
    generation: u32,
    described: Option<Described>,
}

static TABLE: RwLock<Table> = RwLock::new(Table { entries: Vec::new(), free: Vec::new() });

static WORDS: LazyLock<[Description; 5]> = LazyLock::new(|| {
    let bytes = |len| Description::bytes(len).unwrap_or(Description::null());
    [Description::null(), bytes(1), bytes(2), bytes(4), bytes(8)]
});

impl Table {
    fn find(&self, number: usize) -> Option<&Described> {
        let entry = self.entries.get(number >> INDEX_SHIFT)?;
        entry.described.as_ref().filter(|_| entry.generation == number as u32)
    }

    fn insert(&mut self, described: Described) -> Result<usize> {
        let at = match self.free.pop() {
            Some(at) => at,
            None if self.entries.len() < 1 << 31 => {
                self.entries.push(Entry::default());
                self.entries.len() - 1
            }
            None => return Err(Code::NOMEM),
        };
        let entry = self.entries.get_mut(at).ok_or(Code::NOMEM)?;
        entry.generation = entry.generation.wrapping_add(1).max(*PREDEFINED.end() as u32 + 1);
        entry.described = Some(described);
        Ok(at << INDEX_SHIFT | entry.generation as usize)
    }

    fn remove(&mut self, number: usize) -> Option<Described> {
        self.find(number)?;
        let at = number >> INDEX_SHIFT;
        self.free.push(at);
        self.entries.get_mut(at)?.described.take()
    }
}

/// What the program means by a description.
///
/// # Errors
/// It is null or was freed. There is no job.
pub(super) fn find(number: CCS_datadesc_t) -> Result<Described> {
    check_live()?;
    let number = number.addr();
    if let Some(description) = number.checked_sub(*PREDEFINED.start()).and_then(|at| WORDS.get(at)) {
        return Ok(Described { description: description.clone(), is_absolute: false });
    }
    let table = TABLE.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    table.find(number).cloned().ok_or(Code::ARG)
}

/// The memory that described data use.
pub(super) struct Place {
    /// Its first byte that is used.
    pub start: NonNull<u8>,
    pub len_bytes: usize,
    /// From there to the origin of the first element.
    pub origin: isize,
}

impl Place {
    /// None: no byte is used, or there are no such addresses.
    pub fn of(buffer: *const c_void, count: usize, description: &Description) -> Option<Place> {
        let span = description.span(count).filter(|span| !span.is_empty())?;
        let start = buffer.addr().checked_add_signed(span.start)?;
        start.checked_add(span.len())?;
        let start = NonNull::new(buffer.cast::<u8>().wrapping_offset(span.start).cast_mut())?;
        Some(Place { start, len_bytes: span.len(), origin: span.start.checked_neg()? })
    }
}

/// Data of the program's.
pub(super) struct Data {
    pub buffer: *const c_void,
    pub count: usize,
    pub described: Described,
    /// Packed.
    pub len_bytes: usize,
    /// None: there are no bytes.
    pub place: Option<Place>,
}

impl Data {
    /// Checks what the program says of its data.
    pub fn new(buffer: *const c_void, count: usize, number: CCS_datadesc_t) -> Result<Data> {
        let described = find(number)?;
        let len_bytes = described.description.size().checked_mul(count).ok_or(Code::ARG)?;
        if len_bytes == 0 {
            return Ok(Data { buffer, count, described, len_bytes, place: None });
        }
        if buffer.is_null() != described.is_absolute {
            return Err(Code::ARG);
        }
        let place = Place::of(buffer, count, &described.description).ok_or(Code::ARG)?;
        Ok(Data { buffer, count, described, len_bytes, place: Some(place) })
    }

    /// Elements, as they are described.
    pub fn elements(&self) -> Elements {
        Elements { count: self.count, description: self.described.description.clone() }
    }

    /// The bytes, if they lie in a row.
    ///
    /// # Safety
    /// The memory is readable, and nobody writes to it as long as the slice is used.
    pub unsafe fn in_a_row<'a>(&self) -> Option<&'a [u8]> {
        let Some(place) = &self.place else { return Some(&[]) };
        if !self.described.description.is_contiguous(self.count) {
            return None;
        }
        // SAFETY: as the caller promises.
        Some(unsafe { std::slice::from_raw_parts(place.start.as_ptr(), place.len_bytes) })
    }

    /// The memory, and where the origin of the first element is in it.
    ///
    /// # Safety
    /// What is described of the memory is mapped, and stays so as long as the value is used.
    pub unsafe fn bytes(&self) -> Option<(Bytes, isize)> {
        let place = self.place.as_ref()?;
        // SAFETY: as the caller promises; the other bytes between those that are described are not looked at.
        Some((unsafe { Bytes::new(place.start, place.len_bytes) }, place.origin))
    }
}

/// Keeps a description, and gives its number to the program.
fn make(out: *mut CCS_datadesc_t, make: impl FnOnce() -> Result<(Description, bool)>) -> c_int {
    call(|| {
        check_live()?;
        let out = place(out)?;
        let (description, is_absolute) = make()?;
        let mut table = TABLE.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let number = table.insert(Described { description, is_absolute })?;
        // SAFETY: not NULL, and the caller's to be written.
        unsafe { out.write(std::ptr::without_provenance_mut(number)) };
        Ok(())
    })
}

/// Of one other description.
fn derive(
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
    derive: impl FnOnce(&Description) -> Result<Description>,
) -> c_int {
    make(out, || {
        let base = find(base)?;
        Ok((derive(&base.description)?, base.is_absolute))
    })
}

/// A list of the program's.
///
/// # Safety
/// It is NULL, or has so many entries.
unsafe fn list<'a, T>(list: *const T, count: usize) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Code::ARG);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(list, count) })
}

/// `count` elements, one behind the other.
///
/// # Safety
/// `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_contiguous(
    count: usize,
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| Ok(Description::contiguous(count, base)?))
}

/// Blocks at distances that are counted in elements.
///
/// # Safety
/// `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_vector(
    count: usize,
    blocklen: usize,
    stride: isize,
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| Ok(Description::vector(count, blocklen, stride, base)?))
}

/// Blocks at distances in bytes.
///
/// # Safety
/// `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_hvector(
    count: usize,
    blocklen: usize,
    stride_bytes: isize,
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| Ok(Description::hvector(count, blocklen, stride_bytes, base)?))
}

/// Blocks with lengths and displacements of their own, counted in elements.
///
/// # Safety
/// The lists have `count` entries; `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_indexed(
    count: usize,
    blocklens: *const usize,
    displs: *const isize,
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| {
        // SAFETY: as the caller promises.
        let (lens, displs) = unsafe { (list(blocklens, count)?, list(displs, count)?) };
        Ok(Description::indexed(lens, displs, base)?)
    })
}

/// Blocks with lengths of their own, and displacements in bytes.
///
/// # Safety
/// The lists have `count` entries; `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_hindexed(
    count: usize,
    blocklens: *const usize,
    displs_bytes: *const isize,
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| {
        // SAFETY: as the caller promises.
        let (lens, displs) = unsafe { (list(blocklens, count)?, list(displs_bytes, count)?) };
        Ok(Description::hindexed(lens, displs, base)?)
    })
}

/// Blocks of the same length, with displacements that are counted in elements.
///
/// # Safety
/// The list has `count` entries; `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_blockindexed(
    count: usize,
    blocklen: usize,
    displs: *const isize,
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| {
        // SAFETY: as the caller promises.
        Ok(Description::block_indexed(blocklen, unsafe { list(displs, count)? }, base)?)
    })
}

/// Blocks of the same length, with displacements in bytes.
///
/// # Safety
/// The list has `count` entries; `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_hblockindexed(
    count: usize,
    blocklen: usize,
    displs_bytes: *const isize,
    base: CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| {
        // SAFETY: as the caller promises.
        Ok(Description::hblock_indexed(blocklen, unsafe { list(displs_bytes, count)? }, base)?)
    })
}

/// Blocks of different elements.
///
/// # Safety
/// The lists have `count` entries; `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_struct(
    count: usize,
    blocklens: *const usize,
    displs_bytes: *const isize,
    bases: *const CCS_datadesc_t,
    out: *mut CCS_datadesc_t,
) -> c_int {
    make(out, || {
        // SAFETY: as the caller promises.
        let (lens, displs, bases) =
            unsafe { (list(blocklens, count)?, list(displs_bytes, count)?, list(bases, count)?) };
        let bases = bases.iter().map(|&base| find(base)).collect::<Result<Vec<_>>>()?;
        let is_absolute = bases.iter().any(|base| base.is_absolute);
        let bases: Vec<_> = bases.iter().map(|base| &base.description).collect();
        Ok((Description::structure(lens, displs, &bases)?, is_absolute))
    })
}

/// The same bytes with other bounds.
///
/// # Safety
/// `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_resized(
    base: CCS_datadesc_t,
    lower_bound: isize,
    extent: usize,
    out: *mut CCS_datadesc_t,
) -> c_int {
    derive(base, out, |base| Ok(Description::resized(base, lower_bound, extent)?))
}

/// ARMCI's strided data.
///
/// # Safety
/// `counts` has `levels` + 1 entries, `strides_bytes` has `levels`; `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_strided(
    levels: c_int,
    counts: *const usize,
    strides_bytes: *const isize,
    out: *mut CCS_datadesc_t,
) -> c_int {
    make(out, || {
        let levels = usize::try_from(levels).map_err(|_| Code::ARG)?;
        // SAFETY: as the caller promises.
        let (counts, strides) = unsafe { (list(counts, levels + 1)?, list(strides_bytes, levels)?) };
        Ok((Description::strided(counts, strides)?, false))
    })
}

/// Pieces of memory by their addresses.
///
/// # Safety
/// `iov` has `count` entries; `out` is NULL or a place for a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_iov(
    count: usize,
    iov: *const iovec,
    out: *mut CCS_datadesc_t,
) -> c_int {
    make(out, || {
        // SAFETY: as the caller promises.
        let pieces = unsafe { list(iov, count)? };
        if pieces.iter().any(|piece| piece.iov_base.is_null() && piece.iov_len > 0) {
            return Err(Code::ARG);
        }
        let pieces = pieces.iter().map(|piece| (piece.iov_base.addr(), piece.iov_len));
        Ok((Description::from_addresses(pieces)?, true))
    })
}

/// Frees a description. What was made of it, and what is under way with it, is not concerned.
///
/// # Safety
/// `desc` is NULL or the place of a description.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_free(desc: *mut CCS_datadesc_t) -> c_int {
    call(|| {
        check_live()?;
        let desc = place(desc)?;
        // SAFETY: the caller's, to be read and written.
        let number = unsafe { desc.read() };
        TABLE
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .remove(number.addr())
            .ok_or(Code::ARG)?;
        // SAFETY: as above.
        unsafe { desc.write(std::ptr::null_mut()) };
        Ok(())
    })
}

/// How many bytes an element has, packed.
///
/// # Safety
/// `bytes` is NULL or a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_size(desc: CCS_datadesc_t, bytes: *mut usize) -> c_int {
    call(|| {
        let (bytes, described) = (place(bytes)?, find(desc)?);
        // SAFETY: the caller's to be written.
        unsafe { bytes.write(described.description.size()) };
        Ok(())
    })
}

/// Where an element begins, and how far the next one is.
///
/// # Safety
/// The places are NULL or there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_datadesc_extent(
    desc: CCS_datadesc_t,
    lower_bound: *mut isize,
    extent: *mut usize,
) -> c_int {
    call(|| {
        let (lower_bound, extent, described) = (place(lower_bound)?, place(extent)?, find(desc)?);
        // SAFETY: the caller's to be written. An extent that a negative stride made negative is told as MPI does: modulo 2^64.
        unsafe {
            lower_bound.write(described.description.lower_bound());
            extent.write(described.description.extent().cast_unsigned());
        }
        Ok(())
    })
}

/// Packs a part of the row.
///
/// # Safety
/// What is described at `buf` is readable; `packed` has `max_bytes`; `done` is NULL or a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_pack(
    buf: *const c_void,
    count: usize,
    desc: CCS_datadesc_t,
    first_byte: usize,
    packed: *mut c_void,
    max_bytes: usize,
    done: *mut usize,
) -> c_int {
    call(|| {
        let (data, done) = (Data::new(buf, count, desc)?, place(done)?);
        let left = data.len_bytes.checked_sub(first_byte).ok_or(Code::RANGE)?.min(max_bytes);
        let mut copied = 0;
        // SAFETY: as the caller promises.
        if let (1.., Some((bytes, origin))) = (left, unsafe { data.bytes() }) {
            let packed = place(packed)?;
            // SAFETY: as the caller promises: nobody else uses the place for the packed row meanwhile.
            let out = unsafe { std::slice::from_raw_parts_mut(packed.as_ptr().cast(), left) };
            copied =
                data.described.description.pack(Readable::from(bytes), origin, count, first_byte, out)?;
        }
        // SAFETY: the caller's to be written.
        unsafe { done.write(copied) };
        Ok(())
    })
}

/// Unpacks a part of the row.
///
/// # Safety
/// What is described at `buf` is writable; `packed` has `bytes`; `done` is NULL or a place for a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_unpack(
    buf: *mut c_void,
    count: usize,
    desc: CCS_datadesc_t,
    first_byte: usize,
    packed: *const c_void,
    bytes: usize,
    done: *mut usize,
) -> c_int {
    call(|| {
        let (data, done) = (Data::new(buf, count, desc)?, place(done)?);
        let left = data.len_bytes.checked_sub(first_byte).ok_or(Code::RANGE)?.min(bytes);
        let mut copied = 0;
        // SAFETY: as the caller promises.
        if let (1.., Some((to, origin))) = (left, unsafe { data.bytes() }) {
            let packed = place(packed.cast_mut())?;
            // SAFETY: as the caller promises.
            let row = unsafe { std::slice::from_raw_parts(packed.as_ptr().cast(), left) };
            copied = data.described.description.unpack(Writable::from(to), origin, count, first_byte, row)?;
        }
        // SAFETY: the caller's to be written.
        unsafe { done.write(copied) };
        Ok(())
    })
}
