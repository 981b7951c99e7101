//! The boundary: no panic crosses it, and a failure leaves its number with the caller and its story with the thread.

use crate::types::{CCI_EAGAIN, CCI_ENOBUFS, CCI_ERROR, CCI_SUCCESS, cci_status_t};
use libc::{c_char, c_int};
use std::cell::RefCell;
use std::ffi::CString;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed. Small, and with a gap for success: what a call says comes back in registers.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Never `CCI_SUCCESS`.
    status: NonZero<cci_status_t>,
    /// What failed, where, and what to do. `None` where failing is normal (`CCI_EAGAIN`): no text, no allocation.
    text: Option<Box<Text>>,
}

#[derive(Debug)]
struct Text(String);

const _: () = assert!(size_of::<Result<(), Failure>>() == 16, "it comes back in registers");

impl Failure {
    /// A failure without a text.
    #[inline]
    pub const fn code(status: cci_status_t) -> Failure {
        Failure { status: failing(status), text: None }
    }

    /// Whether it is that nothing is there now.
    pub fn is_temporary(&self) -> bool {
        matches!(self.status.get(), CCI_EAGAIN | CCI_ENOBUFS)
    }

    #[cold]
    pub fn with_text(status: cci_status_t, text: impl Into<String>) -> Failure {
        Failure { status: failing(status), text: Some(Box::new(Text(text.into()))) }
    }
}

/// The status of a failure, which is never that of success.
#[inline]
const fn failing(status: cci_status_t) -> NonZero<cci_status_t> {
    const ERROR: NonZero<cci_status_t> = NonZero::new(CCI_ERROR).unwrap();
    match NonZero::new(status) {
        Some(status) => status,
        None => ERROR,
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs the body of a call of the C interface.
///
/// `AssertUnwindSafe`: a panic is a defect of ours; the handles it touched stay valid memory, and destroying them
/// is all that is promised afterwards.
#[inline]
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CCI_SUCCESS,
        Ok(Err(failure)) => {
            if let Some(text) = failure.text {
                remember(text.0);
            }
            failure.status.get()
        }
        Err(_) => {
            remember_panic();
            CCI_ERROR
        }
    }
}

/// Keeps for [`last`] that a panic was caught.
#[cold]
pub(crate) fn remember_panic() {
    remember("an internal error of the CCI library (a panic was caught); please report it".to_owned());
}

/// Keeps what [`last`] answers from now on.
#[cold]
pub(crate) fn remember(text: String) {
    // A text with a NUL in it quotes something of the caller's; cut it there.
    let text = CString::new(text).unwrap_or_else(|error| {
        let end = error.nul_position();
        let mut bytes = error.into_vec();
        bytes.truncate(end);
        CString::new(bytes).unwrap_or_default()
    });
    // A thread that is ending has no storage for it any more, and nobody to read it.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = text;
        }
    });
}

/// What the last failing call of this thread had to say. Never NULL; valid until this thread's next failing call.
pub(crate) fn last() -> *const c_char {
    LAST.try_with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.as_ptr())).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CCI_EINVAL;
    use std::ffi::CStr;

    fn last_text() -> String {
        // SAFETY: `last` gives a C string that lives until this thread's next failure.
        unsafe { CStr::from_ptr(last()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guard(|| panic!("on purpose: this test wants it caught")), CCI_ERROR);
        assert!(last_text().contains("internal error"));
    }

    #[test]
    fn the_last_story_stays_until_the_next_one() {
        assert_eq!(guard(|| Err(Failure::with_text(CCI_EINVAL, "first"))), CCI_EINVAL);
        assert_eq!(guard(|| Err(Failure::code(CCI_EAGAIN))), CCI_EAGAIN);
        assert_eq!(guard(|| Ok(())), CCI_SUCCESS);
        assert_eq!(last_text(), "first");
        guard(|| Err(Failure::with_text(CCI_EINVAL, "cut\0here")));
        assert_eq!(last_text(), "cut");
    }
}
