//! Codes: what a call returns, and in words.

use super::types::*;
use crate::guard::{remember, remember_panic};
use cci_am::AmError;
use cci_am::description::{DescriptionError, PackError};
use libc::{c_char, c_int};
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// Why a call failed, as the program sees it: never `CCS_SUCCESS`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Code(NonZero<c_int>);

pub(super) type Result<T, E = Code> = std::result::Result<T, E>;

macro_rules! codes {
    ($($name:ident = $code:ident;)+) => {
        impl Code {
            $(pub const $name: Code = Code(NonZero::new($code).unwrap());)+
        }
    };
}

codes! {
    ARG = CCS_ERR_ARG;
    STATE = CCS_ERR_STATE;
    AGAIN = CCS_ERR_AGAIN;
    NOMEM = CCS_ERR_NOMEM;
    TOO_LONG = CCS_ERR_TOO_LONG;
    EXISTS = CCS_ERR_EXISTS;
    NOT_REGISTERED = CCS_ERR_NOT_REGISTERED;
    PEER = CCS_ERR_PEER;
    RANGE = CCS_ERR_RANGE;
    SYSTEM = CCS_ERR_SYSTEM;
    UNSUPPORTED = CCS_ERR_UNSUPPORTED;
    ABORTED = CCS_ERR_ABORTED;
}

impl Code {
    pub fn number(self) -> c_int {
        self.0.get()
    }

    /// None: it is success.
    pub fn from_number(number: c_int) -> Option<Code> {
        NonZero::new(number).map(Code)
    }
}

impl From<AmError> for Code {
    fn from(error: AmError) -> Code {
        let code = match &error {
            AmError::Argument(_) => Code::ARG,
            AmError::State(_) => Code::STATE,
            AmError::WouldBlock => return Code::AGAIN,
            AmError::Full(_) => Code::NOMEM,
            AmError::TooLong { .. } | AmError::Differs { .. } => Code::TOO_LONG,
            AmError::Aborted => Code::ABORTED,
            AmError::Described(error) => Code::from(*error),
            AmError::Exists => Code::EXISTS,
            AmError::Range(_) => Code::RANGE,
            AmError::NotRegistered { .. } => Code::NOT_REGISTERED,
            AmError::Register(cci::RegisterError::System(_)) => Code::SYSTEM,
            AmError::Register(_) => Code::NOMEM,
            AmError::Gone { .. } => Code::PEER,
            _ => Code::SYSTEM,
        };
        // The words are for `cci_last_error`: this interface has codes only.
        remember(error.to_string());
        code
    }
}

impl From<DescriptionError> for Code {
    fn from(_: DescriptionError) -> Code {
        Code::ARG
    }
}

impl From<PackError> for Code {
    fn from(error: PackError) -> Code {
        match error {
            PackError::BehindEnd => Code::RANGE,
            _ => Code::ARG,
        }
    }
}

/// Runs the body of a call: no panic crosses the boundary.
#[inline]
pub(super) fn call(body: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => CCS_SUCCESS,
        Ok(Err(code)) => code.number(),
        Err(_) => {
            remember_panic();
            CCS_ERR_SYSTEM
        }
    }
}

/// A count or a rank, for C.
pub(super) fn as_int(count: u32) -> c_int {
    c_int::try_from(count).unwrap_or(c_int::MAX)
}

/// A place for an answer.
pub(super) fn place<T>(at: *mut T) -> Result<NonNull<T>> {
    NonNull::new(at).ok_or(Code::ARG)
}

/// A code in words. It never fails, and the text stays.
#[unsafe(no_mangle)]
pub extern "C" fn CCS_strerror(code: c_int) -> *const c_char {
    let text = match code {
        CCS_SUCCESS => c"success",
        CCS_ERR_ARG => c"an argument that can never be right: nothing was done",
        CCS_ERR_STATE => c"not possible in this state: before CCS_init, after CCS_finalize, in a handler, or once too often",
        CCS_ERR_AGAIN => c"not now: there is no space, or nothing ran; try again after CCS_poll or CCS_wait",
        CCS_ERR_NOMEM => c"memory or a limit is exhausted",
        CCS_ERR_TOO_LONG => c"the data are longer than they may be, or not as long as the space for them; CCS_am_max says how long an active message may be",
        CCS_ERR_EXISTS => c"this context has a handler of that number already",
        CCS_ERR_NOT_REGISTERED => c"the memory there is not registered by its process: nothing of it was touched",
        CCS_ERR_PEER => c"the process there is gone",
        CCS_ERR_RANGE => c"there is no such rank, handler number or byte",
        CCS_ERR_SYSTEM => c"the system or the launcher refuses",
        CCS_ERR_UNSUPPORTED => c"this is not possible here",
        CCS_ERR_ABORTED => c"the receiver has ended it",
        _ => c"this is no code of CCS",
    };
    text.as_ptr()
}
