//! Who takes part: the start and the end.

use super::ends::Ends;
use super::failure::{Result, Wrong, guarded, wrong};
use super::live::{Chunks, Live, begin, call, end};
use cci_acp::GlobalMemory;
use cci_job::Job;
use libc::{c_char, c_int};
use std::ffi::CStr;

/// Bytes of starter memory and of the heap where no option says otherwise. Only what is used of a heap takes memory.
const SIZES: Sizes = Sizes { starter_bytes: 10_240, heap_bytes: 64 << 20 };
/// Exit code of a job that was aborted.
const ABORTED: u8 = 134;
/// Options of the published launcher, behind `--acp-`. The job says what most of them are for.
const OPTIONS: [&str; 10] = [
    "myrank",
    "nprocs",
    "taskid",
    "port-local",
    "port-remote",
    "host-remote",
    "size-smem",
    "size-smem-cl",
    "size-smem-dl",
    "ethernet-speed",
];

/// Joins the job.
///
/// # Safety
/// Both are NULL, or the arguments of `main`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_init(argc: *mut c_int, argv: *mut *mut *mut c_char) -> c_int {
    guarded(-1, || {
        begin(|| {
            // SAFETY: as the caller promises.
            let Sizes { starter_bytes, heap_bytes } = unsafe { take_options(argc, argv) }?;
            let failed = |what: &str, error: &dyn std::fmt::Display| Wrong(format!("{what}: {error}"));
            let mut job = Job::join().map_err(|error| failed("joining the job", &error))?;
            let context = cci::Context::new().map_err(|error| failed("looking for devices", &error))?;
            let device = context.device("any").ok_or_else(|| {
                Wrong("there is no device `any`: name one in the configuration file".into())
            })?;
            let options = cci::Options::default();
            let global = GlobalMemory::open_with_heap(&mut job, device, options, starter_bytes, heap_bytes)?;
            Ok(Box::new(Live { global, job, ends: Ends::default(), chunks: Chunks::default() }))
        })?;
        Ok(0)
    })
}

/// How much memory each rank has.
struct Sizes {
    starter_bytes: usize,
    heap_bytes: usize,
}

/// Removes the options of ACP from the arguments. Returns what they say of memory.
///
/// # Safety
/// Both are NULL, or the arguments of `main`.
unsafe fn take_options(argc: *mut c_int, argv: *mut *mut *mut c_char) -> Result<Sizes> {
    let mut sizes = SIZES;
    if argc.is_null() || argv.is_null() {
        return Ok(sizes);
    }
    // SAFETY: as the caller promises, there are so many pointers.
    let arguments = unsafe {
        let (count, first) = (usize::try_from(*argc).unwrap_or(0), *argv);
        if first.is_null() { &mut [][..] } else { std::slice::from_raw_parts_mut(first, count) }
    };
    let mut kept: Vec<*mut c_char> = Vec::new();
    let mut rest = arguments.iter().copied();
    while let Some(argument) = rest.next() {
        // SAFETY: arguments are strings, or NULL.
        let text = if argument.is_null() { c"" } else { unsafe { CStr::from_ptr(argument) } };
        let Some(name) = text.to_str().ok().and_then(|text| text.strip_prefix("--acp-")) else {
            kept.push(argument);
            continue;
        };
        if !OPTIONS.contains(&name) {
            return Err(Wrong(format!("there is no option --acp-{name}")));
        }
        let value = rest.next().filter(|value| !value.is_null());
        // SAFETY: as above.
        let value = value.and_then(|value| unsafe { CStr::from_ptr(value) }.to_str().ok());
        let value = value.filter(|value| !value.starts_with('-'));
        let value = value.ok_or_else(|| Wrong(format!("--acp-{name} needs a value")))?;
        let size = match name {
            "size-smem" => &mut sizes.starter_bytes,
            "size-smem-dl" => &mut sizes.heap_bytes,
            _ => continue,
        };
        let number = value.parse().ok().filter(|&bytes| bytes > 0);
        *size = number.ok_or_else(|| Wrong(format!("--acp-{name} is a number of bytes")))?;
    }
    for (place, argument) in
        arguments.iter_mut().zip(kept.iter().copied().chain(std::iter::repeat(std::ptr::null_mut())))
    {
        *place = argument;
    }
    // SAFETY: the caller's to be written.
    unsafe { *argc = c_int::try_from(kept.len()).unwrap_or(c_int::MAX) };
    Ok(sizes)
}

/// Leaves the job.
#[unsafe(no_mangle)]
pub extern "C" fn acp_finalize() -> c_int {
    guarded(-1, || {
        let Live { global, .. } = *end()?;
        global.close()?;
        Ok(0)
    })
}

/// Begins anew under another number.
#[unsafe(no_mangle)]
pub extern "C" fn acp_reset(rank: c_int) -> c_int {
    call(-1, |live| {
        let Ok(rank) = u32::try_from(rank) else {
            // The others wait for this process to say which rank it wants: one that there is not.
            live.global.reset(u32::MAX)?;
            return wrong("a rank is not negative");
        };
        live.global.reset(rank)?;
        live.ends = Ends::default();
        Ok(0)
    })
}

/// Ends the job.
///
/// # Safety
/// `str` is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn acp_abort(str: *const c_char) {
    // SAFETY: `perror` takes NULL, too, and else a string, as the caller promises.
    unsafe { libc::perror(str) };
    let _ = call(0, |live| {
        // SAFETY: as the caller promises.
        let why = if str.is_null() { c"acp_abort" } else { unsafe { CStr::from_ptr(str) } };
        let why: String = why.to_string_lossy().chars().take(100).collect();
        live.job.abort(ABORTED, &why).map_err(|error| Wrong(error.to_string()))?;
        Ok(0)
    });
    std::process::abort();
}

/// Waits for all processes.
#[unsafe(no_mangle)]
pub extern "C" fn acp_sync() -> c_int {
    call(-1, |live| {
        live.global.sync()?;
        Ok(0)
    })
}

/// The number of this process.
#[unsafe(no_mangle)]
pub extern "C" fn acp_rank() -> c_int {
    call(-1, |live| Ok(live.global.rank().cast_signed()))
}

/// How many processes there are.
#[unsafe(no_mangle)]
pub extern "C" fn acp_procs() -> c_int {
    call(-1, |live| Ok(live.global.size().cast_signed()))
}
