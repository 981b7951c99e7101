//! PMIx, by which ranks ask a resource manager who they are: the little of `libpmix.so.2` that a job needs.
//!
//! The library is opened when it is asked for, so that programs without a resource manager do not need it. Its interface is
//! that of the PMIx standard 4 (sections 3.2, 5 to 7); the layouts are the same in its releases 4 and 5. It starts a thread
//! of its own.

use crate::error::{Result, SysError};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::ptr;

const LIBRARY: &CStr = c"libpmix.so.2";
const NAMESPACE_BYTES: usize = 256;
const KEY_BYTES: usize = 512;
/// A key of the library itself is never longer, nor is one of ours.
const KEY_LEN_MAX: usize = KEY_BYTES - 1;
const SUCCESS: c_int = 0;
const NOT_FOUND: c_int = -46;
const TYPE_BOOL: u16 = 1;
const TYPE_UINT32: u16 = 14;
const TYPE_BYTES: u16 = 27;
/// Visible to every rank.
const SCOPE_GLOBAL: u8 = 3;
/// Stands for the job where a rank is expected.
const RANK_WILDCARD: u32 = u32::MAX - 1;
const JOB_SIZE: &CStr = c"pmix.job.size";
/// With it a fence brings what was put to every host.
const COLLECT_DATA: &[u8] = b"pmix.collect";

/// With it the server says at once that a value is not there, instead of waiting for it.
const IMMEDIATE: &[u8] = b"pmix.immediate";

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    namespace: [c_char; NAMESPACE_BYTES],
    rank: u32,
}

/// `pmix_byte_object_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    bytes: *mut c_char,
    size: usize,
}

/// The union in `pmix_value_t`, of 24 bytes.
#[repr(C)]
union Data {
    flag: bool,
    uint32: u32,
    bytes: Bytes,
    words: [u64; 3],
}

/// `pmix_value_t`.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
}

/// `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [u8; KEY_BYTES],
    flags: u32,
    value: Value,
}

impl Info {
    /// An option that is on.
    fn on(key: &[u8]) -> Info {
        let mut data = Data { words: [0; 3] };
        data.flag = true;
        let mut info = Info { key: [0; KEY_BYTES], flags: 0, value: Value { kind: TYPE_BOOL, data } };
        // Ours are shorter, and what follows is the zero at their end.
        for (to, from) in info.key.iter_mut().zip(key) {
            *to = *from;
        }
        info
    }
}

const _: () = assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32 && size_of::<Info>() == 552);

type Init = unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> c_int;
type Get = unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Abort = unsafe extern "C" fn(c_int, *const c_char, *mut Proc, usize) -> c_int;

/// The calls, found by their names.
struct Calls {
    init: Init,
    get: Get,
    put: Put,
    commit: Commit,
    fence: Fence,
    finalize: Finalize,
    abort: Abort,
}

/// This process as a rank of a PMIx server's job, until it is dropped.
pub struct Pmix {
    calls: Calls,
    own: Proc,
    size: u32,
}

impl Pmix {
    /// Opens the library and asks the server that started this process. It may block until that answers.
    ///
    /// # Errors
    /// There is no such library, it lacks a call, or no server answers.
    pub fn init() -> Result<Pmix> {
        let calls = Calls::load()?;
        let mut own = Proc { namespace: [0; NAMESPACE_BYTES], rank: 0 };
        // SAFETY: `own` outlives the call, which fills it; there are no infos.
        let status = unsafe { (calls.init)(&mut own, ptr::null_mut(), 0) };
        check("join the job (PMIx_Init)", status)?;
        let mut pmix = Pmix { calls, own, size: 0 };
        let size = pmix.fetch(RANK_WILDCARD, JOB_SIZE, |value| match value.kind {
            // SAFETY: the kind says which member of the union is there.
            TYPE_UINT32 => Some(unsafe { value.data.uint32 }),
            _ => None,
        })?;
        pmix.size = size.ok_or_else(|| nonsense("the size of the job is no number"))?;
        if own.rank >= pmix.size {
            return Err(nonsense("the rank is none of the job"));
        }
        Ok(pmix)
    }

    /// The number of this rank.
    pub fn rank(&self) -> u32 {
        self.own.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Keeps a value for ranks that [`Pmix::get`] it after the next [`Pmix::fence`].
    ///
    /// # Errors
    /// The key has a zero byte or is too long, or the server refuses.
    pub fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        let key = checked(key)?;
        let bytes = Bytes { bytes: value.as_ptr().cast_mut().cast(), size: value.len() };
        let mut value = Value { kind: TYPE_BYTES, data: Data { bytes } };
        // SAFETY: key and value outlive the call, which copies both and writes to neither.
        check("put a value (PMIx_Put)", unsafe { (self.calls.put)(SCOPE_GLOBAL, key.as_ptr(), &mut value) })
    }

    /// Blocks until all ranks have called it; then what each has put is everywhere.
    ///
    /// # Errors
    /// A rank is gone, or the server is.
    pub fn fence(&mut self) -> Result<()> {
        // SAFETY: it takes nothing.
        check("send what was put (PMIx_Commit)", unsafe { (self.calls.commit)() })?;
        let collect = Info::on(COLLECT_DATA);
        // SAFETY: the one info outlives the call; no list of processes stands for all of the job.
        let status = unsafe { (self.calls.fence)(ptr::null(), 0, &collect, 1) };
        check("wait for the other ranks (PMIx_Fence)", status)
    }

    /// What a rank has put, or none; of no more than `len_max` bytes.
    ///
    /// # Errors
    /// The key has a zero byte or is too long; the server has something else there, or is gone.
    pub fn get(&mut self, rank: u32, key: &str, len_max: usize) -> Result<Option<Vec<u8>>> {
        let key = checked(key)?;
        self.fetch(rank, &key, |value| {
            if value.kind != TYPE_BYTES {
                return None;
            }
            // SAFETY: the kind says which member of the union is there.
            let Bytes { bytes, size } = unsafe { value.data.bytes };
            if size == 0 {
                return Some(Vec::new());
            }
            if bytes.is_null() || size > len_max {
                return None;
            }
            // SAFETY: the library has `size` bytes there, until the value is freed.
            Some(unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) }.to_vec())
        })
    }

    /// Asks the server to end the whole job with this code.
    ///
    /// # Errors
    /// The server is gone.
    pub fn abort(&mut self, code: u8, reason: &str) -> Result<()> {
        let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the text outlives the call; no list of processes stands for all of the job.
        let status = unsafe { (self.calls.abort)(c_int::from(code), reason.as_ptr(), ptr::null_mut(), 0) };
        check("end the job (PMIx_Abort)", status)
    }

    fn fetch<T>(&self, rank: u32, key: &CStr, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>> {
        let of = Proc { rank, ..self.own };
        let mut value: *mut Value = ptr::null_mut();
        let immediate = Info::on(IMMEDIATE);
        // SAFETY: all outlive the call, which stores a value that is ours to free.
        let status = unsafe { (self.calls.get)(&of, key.as_ptr(), &immediate, 1, &mut value) };
        if status == NOT_FOUND {
            return Ok(None);
        }
        check("get a value (PMIx_Get)", status)?;
        if value.is_null() {
            return Err(nonsense("a value is nowhere"));
        }
        // SAFETY: the library has stored a value, which nobody else knows.
        let found = unsafe { &*value };
        let read = read(found);
        // SAFETY: the library has allocated both by `malloc`, and nothing points there any more.
        unsafe {
            if found.kind == TYPE_BYTES {
                libc::free(found.data.bytes.bytes.cast());
            }
            libc::free(value.cast());
        }
        read.map(Some).ok_or_else(|| nonsense("a value is of another kind, or too long"))
    }
}

impl Drop for Pmix {
    fn drop(&mut self) {
        // SAFETY: there are no infos. Where the server is gone, nobody is left to hear of it.
        let _ = unsafe { (self.calls.finalize)(ptr::null(), 0) };
    }
}

impl Calls {
    fn load() -> Result<Calls> {
        // SAFETY: opens a library of the system, whose initialisers do nothing to this process. It stays open.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            let missing = io::Error::new(
                io::ErrorKind::NotFound,
                "there is no libpmix.so.2, which the launcher should have brought along",
            );
            return Err(SysError::new("open the library of PMIx (dlopen)", missing));
        }
        // SAFETY: each name has the type that the standard gives it.
        unsafe {
            Ok(Calls {
                init: call(library, c"PMIx_Init")?,
                get: call(library, c"PMIx_Get")?,
                put: call(library, c"PMIx_Put")?,
                commit: call(library, c"PMIx_Commit")?,
                fence: call(library, c"PMIx_Fence")?,
                finalize: call(library, c"PMIx_Finalize")?,
                abort: call(library, c"PMIx_Abort")?,
            })
        }
    }
}

/// A call of the library.
///
/// # Safety
/// `F` is the type of a function pointer, and that of what has the name.
unsafe fn call<F: Copy>(library: *mut c_void, name: &CStr) -> Result<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the library is open, and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(nonsense(&format!("the library lacks {}", name.to_string_lossy())));
    }
    // SAFETY: the caller says that the address is that of such a function; both have the size of a pointer.
    Ok(unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

fn checked(key: &str) -> Result<CString> {
    let wrong = || SysError::new("name a value", io::Error::from(io::ErrorKind::InvalidInput));
    CString::new(key).ok().filter(|key| key.as_bytes().len() <= KEY_LEN_MAX).ok_or_else(wrong)
}

fn check(what: &'static str, status: c_int) -> Result<()> {
    match status {
        SUCCESS => Ok(()),
        _ => Err(SysError::new(what, io::Error::other(format!("PMIx says {status}")))),
    }
}

fn nonsense(why: &str) -> SysError {
    SysError::new("ask the server of PMIx", io::Error::new(io::ErrorKind::InvalidData, why))
}
