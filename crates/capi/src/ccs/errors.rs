//! Broken promises of other processes: reported to the program's error handler, or the end of the job.

use super::here::{Here, called};
use super::live::lock;
use super::operations::Pointer;
use super::status::{Code, as_int, call, place};
use super::types::*;
use libc::{c_int, c_void};
use std::ffi::CString;
use std::time::Duration;

/// The launcher ends this process within so long, once it was asked to.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Has lost processes and broken promises reported to a function, or NULL for what happens by default: they are printed, and end the job.
/// With one, this process goes on when others die.
///
/// # Safety
/// The function takes these arguments, and can be called as long as this process takes part in the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_set_error_handler(handler: Option<ErrorHandler>, arg: *mut c_void) -> c_int {
    call(|| {
        let mut live = lock()?;
        live.error_handler = handler.map(|handler| (handler, Pointer(arg)));
        if handler.is_some() && live.process.size() > 1 {
            // Launchers other than `cci run` can't be asked: they decide themselves what a death ends.
            match live.job.survive() {
                Ok(()) | Err(cci_job::JobError::Refused(_)) => {}
                Err(error) => return Err(cci_am::AmError::from(error).into()),
            }
        }
        Ok(())
    })
}

/// How the operation has ended whose callback runs.
///
/// # Safety
/// `status` is NULL or a place for an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn CCS_callback_status(status: *mut c_int) -> c_int {
    call(|| {
        let status = place(status)?;
        let ended = Here::get().status.ok_or(Code::STATE)?;
        // SAFETY: the caller's to be written.
        unsafe { status.write(ended) };
        Ok(())
    })
}

/// Tells the program, or ends the job.
pub(super) fn raise(code: Code, rank: u32, what: &str) {
    let handler = lock().ok().and_then(|live| live.error_handler);
    let Some((handler, arg)) = handler else { end_job(code, rank, what) };
    let text = CString::new(what.replace('\0', " ")).unwrap_or_default();
    // SAFETY: the program gave both for such calls; the text lives until it returns.
    called(|| unsafe { handler(code.number(), as_int(rank), text.as_ptr(), arg.0) });
}

/// What happens without an error handler: who, what and why are printed, and the job ends.
fn end_job(code: Code, rank: u32, what: &str) -> ! {
    let mine = lock().map_or(0, |live| live.process.rank());
    let what = format!("rank {mine}: {what} (rank {rank}, code {})", code.number());
    #[expect(clippy::print_stderr, reason = "the interface says that this is printed")]
    {
        eprintln!("CCS: {what}; the job ends: no error handler is set");
    }
    end(1, &what)
}

/// Asks the launcher to end the job, and ends this process.
pub(super) fn end(code: u8, why: &str) -> ! {
    let is_asked = lock().is_ok_and(|mut live| {
        let why: String = why.chars().take(120).collect();
        live.process.size() > 1 && live.job.abort(code, &why).is_ok()
    });
    if is_asked {
        std::thread::sleep(END_LIMIT);
    }
    std::process::exit(code.into())
}
