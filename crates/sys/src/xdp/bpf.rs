//! The system call bpf(), as far as it is needed: maps, programs, links, and finding those of others by number.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use aya_obj::generated::bpf_insn;

/// Commands (`enum bpf_cmd`).
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP: libc::c_long = 1;
const MAP_UPDATE: libc::c_long = 2;
const MAP_DELETE: libc::c_long = 3;
const MAP_NEXT_KEY: libc::c_long = 4;
const PROG_LOAD: libc::c_long = 5;
const PROG_FD_BY_ID: libc::c_long = 13;
const MAP_FD_BY_ID: libc::c_long = 14;
const INFO_BY_FD: libc::c_long = 15;
const LINK_CREATE: libc::c_long = 28;
const LINK_FD_BY_ID: libc::c_long = 30;
const LINK_NEXT_ID: libc::c_long = 31;

const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const LINK_TYPE_XDP: u32 = 6;
/// The program takes frames that lie in several areas.
const F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// It is for one interface, and may ask its driver about frames. Since 6.3.
const F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;

/// Flags of updates.
pub(super) const ANY: u64 = 0;
pub(super) const NO_EXIST: u64 = 1;

/// Flags of links.
pub(super) const GENERIC: u32 = 1 << 1;
pub(super) const NATIVE: u32 = 1 << 2;

/// An object's name in the kernel: 15 bytes and a zero at most.
type Name = [u8; 16];

fn name(text: &str) -> Name {
    let mut name = [0; 16];
    for (to, from) in name.iter_mut().take(15).zip(text.bytes()) {
        *to = from;
    }
    name
}

fn text(name: &Name) -> String {
    name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte)).collect()
}

/// # Safety
/// `attr` is the structure that the command reads (its rest counts as zeros), and what its addresses say is true.
unsafe fn bpf<T>(command: libc::c_long, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the caller's; `attr` outlives the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// # Safety
/// As for [`bpf`], and the command gives a new descriptor.
unsafe fn bpf_fd<T>(command: libc::c_long, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the kernel has just given us this descriptor (close-on-exec, as all of this call's).
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

fn address<T: ?Sized>(of: *const T) -> u64 {
    of.cast::<u8>() as usize as u64
}

/// What a map is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MapShape {
    pub kind: u32,
    pub key_bytes: u32,
    pub value_bytes: u32,
    pub entries: u32,
    pub flags: u32,
}

pub(super) fn create_map(called: &str, shape: MapShape) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        shape: [u32; 5],
        inner_and_node: [u32; 2],
        name: Name,
    }
    let MapShape { kind, key_bytes, value_bytes, entries, flags } = shape;
    let mut attr = Attr {
        shape: [kind, key_bytes, value_bytes, entries, flags],
        inner_and_node: [0; 2],
        name: name(called),
    };
    // SAFETY: the structure of this command, without addresses; it gives a descriptor.
    unsafe { bpf_fd(MAP_CREATE, &mut attr) }
}

#[repr(C)]
struct Element {
    map: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// A map of which keys and values are known to be `K` and `V`.
#[derive(Debug)]
pub(super) struct Map<K, V> {
    fd: OwnedFd,
    _holds: std::marker::PhantomData<fn(K) -> V>,
}

/// Plain bytes without gaps, of which any are valid.
///
/// # Safety
/// That is so.
pub(super) unsafe trait Plain: Copy + Default {}
// SAFETY: numbers.
unsafe impl Plain for u32 {}
// SAFETY: numbers.
unsafe impl Plain for u64 {}
// SAFETY: numbers.
unsafe impl<const N: usize> Plain for [u32; N] where [u32; N]: Default {}

impl<K: Plain, V: Plain> Map<K, V> {
    /// Takes `fd` for such a map, after checking the sizes.
    pub fn of(fd: OwnedFd) -> io::Result<Map<K, V>> {
        let info = map_info(&fd)?;
        if (info.key_bytes as usize, info.value_bytes as usize) != (size_of::<K>(), size_of::<V>()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a map of another shape"));
        }
        Ok(Map { fd, _holds: std::marker::PhantomData })
    }

    fn element(&self, key: &K, value: u64, flags: u64) -> Element {
        Element { map: self.fd.as_raw_fd() as u32, key: address(key), value, flags }
    }

    /// `EEXIST` with [`NO_EXIST`]; `E2BIG`: full.
    pub fn set(&self, key: &K, value: &V, flags: u64) -> io::Result<()> {
        // SAFETY: key and value are as long as the map's, which `of` has checked.
        unsafe { bpf(MAP_UPDATE, &mut self.element(key, address(value), flags)) }.map(drop)
    }

    /// `NotFound`.
    pub fn remove(&self, key: &K) -> io::Result<()> {
        // SAFETY: as in `set`.
        unsafe { bpf(MAP_DELETE, &mut self.element(key, 0, 0)) }.map(drop)
    }

    /// The value of a key. `NotFound`.
    pub fn get(&self, key: &K) -> io::Result<V> {
        let mut value = V::default();
        // SAFETY: as in `set`; the kernel writes a value.
        unsafe { bpf(MAP_LOOKUP, &mut self.element(key, address(&raw mut value), 0)) }?;
        Ok(value)
    }

    /// The key after `key`, or the first; `NotFound` after the last.
    pub fn next_key(&self, key: Option<&K>) -> io::Result<K> {
        let mut next = K::default();
        let mut attr = Element {
            map: self.fd.as_raw_fd() as u32,
            key: key.map_or(0, |key| address(key)),
            value: address(&raw mut next),
            flags: 0,
        };
        // SAFETY: as in `set`; the kernel writes a key where a value would be.
        unsafe { bpf(MAP_NEXT_KEY, &mut attr) }?;
        Ok(next)
    }

    /// All keys, at most `count_max`.
    pub fn keys(&self, count_max: usize) -> Vec<K> {
        let mut keys: Vec<K> = Vec::new();
        while keys.len() < count_max
            && let Ok(key) = self.next_key(keys.last())
        {
            keys.push(key);
        }
        keys
    }
}

impl<V: Plain> Map<u32, V> {
    /// The values of all processors in `values`, which has one for each possible one.
    pub fn get_each(&self, key: u32, values: &mut [V]) -> io::Result<()> {
        if values.len() < possible_processors() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: as in `set`; the kernel writes a value (of 8 bytes) for each possible processor.
        unsafe { bpf(MAP_LOOKUP, &mut self.element(&key, address(values.as_mut_ptr()), 0)) }.map(drop)
    }
}

/// How many processors the kernel is prepared for: what maps with a value for each are sized by.
pub(super) fn possible_processors() -> usize {
    let read = || {
        let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
        text.trim().rsplit([',', '-']).next()?.parse::<usize>().ok()
    };
    // Far more than are made, where it cannot be read.
    read().map_or(8_192, |last| last.saturating_add(1))
}

/// How often a program is loaded at most. The verifier gives up with `EAGAIN` when a signal comes to the thread, whatever that is for.
const LOAD_TRIES: u32 = 10;

/// Loads an XDP program, for one interface in the driver only if that is given. The kernel's verifier refuses with `EACCES` or
/// `EINVAL`, and the reason is in `log` if that has space.
pub(super) fn load_program(
    called: &str,
    license: &CStr,
    code: &[bpf_insn],
    interface_index: Option<u32>,
    log: &mut [u8],
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        kind: u32,
        count: u32,
        code: u64,
        license: u64,
        log_level_and_bytes: [u32; 2],
        log: u64,
        kernel: u32,
        flags: u32,
        name: Name,
        interface: u32,
        attach: u32,
    }
    let mut attr = Attr {
        kind: PROG_TYPE_XDP,
        count: code.len() as u32,
        code: address(code.as_ptr()),
        license: address(license.as_ptr()),
        // A level above 0 without a buffer is a fault, and so is a buffer without a level.
        log_level_and_bytes: [u32::from(!log.is_empty()), log.len() as u32],
        log: if log.is_empty() { 0 } else { address(log.as_mut_ptr()) },
        kernel: 0,
        flags: F_XDP_HAS_FRAGS | interface_index.map_or(0, |_| F_XDP_DEV_BOUND_ONLY),
        name: name(called),
        interface: interface_index.unwrap_or(0),
        attach: ATTACH_XDP,
    };
    let mut tries = 1;
    loop {
        // SAFETY: the structure of this command; code, license and log outlive the call.
        match unsafe { bpf_fd(PROG_LOAD, &mut attr) } {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && tries < LOAD_TRIES => tries += 1,
            ended => return ended,
        }
    }
}

/// Attaches a program to an interface for as long as the link lives.
pub(super) fn create_link(program: &OwnedFd, interface_index: u32, mode: u32) -> io::Result<OwnedFd> {
    let mut attr = [program.as_raw_fd() as u32, interface_index, ATTACH_XDP, mode];
    // SAFETY: the structure of this command: four numbers.
    unsafe { bpf_fd(LINK_CREATE, &mut attr) }
}

fn by_id(command: libc::c_long, id: u32) -> io::Result<OwnedFd> {
    let mut attr = [id, 0, 0];
    // SAFETY: the structure of these commands: three numbers; they give a descriptor.
    unsafe { bpf_fd(command, &mut attr) }
}

pub(super) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    by_id(PROG_FD_BY_ID, id)
}

pub(super) fn map_by_id(id: u32) -> io::Result<OwnedFd> {
    by_id(MAP_FD_BY_ID, id)
}

/// The link by which the program with that number is attached to an interface with that number. `NotFound`.
pub(super) fn link_of(program_id: u32, interface_index: u32) -> io::Result<OwnedFd> {
    let mut attr = [0, 0, 0];
    loop {
        // SAFETY: the structure of this command: three numbers, of which it writes the second. `ENOENT` after the last.
        unsafe { bpf(LINK_NEXT_ID, &mut attr) }?;
        let [_, id, _] = attr;
        attr = [id, 0, 0];
        // It may be gone by now.
        let Ok(link) = by_id(LINK_FD_BY_ID, id) else { continue };
        let mut info = LinkInfo::default();
        if info_of(link.as_raw_fd(), &mut info).is_err() {
            continue;
        }
        if info.kind == LINK_TYPE_XDP
            && info.program_id == program_id
            && info.interface_index == interface_index
        {
            return Ok(link);
        }
    }
}

/// The beginning of `struct bpf_link_info`, for a link of XDP.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program_id: u32,
    gap: u32,
    interface_index: u32,
    remainder: [u32; 11],
}

/// The beginning of `struct bpf_map_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct MapInfo {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    name: Name,
}

/// The beginning of `struct bpf_prog_info`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    code_bytes: [u32; 2],
    code: [u64; 2],
    loaded_at: u64,
    made_by: u32,
    map_count: u32,
    map_ids: u64,
    name: Name,
    remainder: [u32; 2],
}

/// Asks for the beginning of what the kernel knows of an object; `T` is its structure or the beginning of it.
fn info_of<T>(fd: i32, info: &mut T) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        len: u32,
        info: u64,
    }
    let mut attr = Attr { fd: fd as u32, len: size_of::<T>() as u32, info: address(&raw const *info) };
    // SAFETY: the structure of this command; the kernel writes `len` bytes at most to `info`, all of them numbers.
    unsafe { bpf(INFO_BY_FD, &mut attr) }.map(drop)
}

fn map_info(fd: &OwnedFd) -> io::Result<MapInfo> {
    let mut info = MapInfo::default();
    info_of(fd.as_raw_fd(), &mut info)?;
    Ok(info)
}

/// A map's name.
pub(super) fn map_name(fd: &OwnedFd) -> io::Result<String> {
    Ok(text(&map_info(fd)?.name))
}

/// A program's number, name, and the numbers of its maps (the first 16).
pub(super) fn describe_program(fd: BorrowedFd<'_>) -> io::Result<(u32, String, Vec<u32>)> {
    let mut ids = [0u32; 16];
    let mut info =
        ProgramInfo { map_count: 16, map_ids: address(ids.as_mut_ptr()), ..ProgramInfo::default() };
    info_of(fd.as_raw_fd(), &mut info)?;
    let maps = ids.into_iter().take(info.map_count as usize).collect();
    Ok((info.id, text(&info.name), maps))
}
