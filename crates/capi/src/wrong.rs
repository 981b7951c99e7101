//! Failures of the interfaces whose calls return values of their own and no status: `acp.h` and `ripc.h`. The text is for
//! `cci_last_error`.

use crate::guard::{remember, remember_panic};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call has failed.
pub(crate) struct Wrong(pub String);

/// What a call returns before it is given to C.
pub(crate) type Result<T> = std::result::Result<T, Wrong>;

/// Fails with a reason.
pub(crate) fn wrong<T>(why: impl Into<String>) -> Result<T> {
    Err(Wrong(why.into()))
}

/// Runs a body, no panic of which reaches the program. If it fails, `failed` is returned.
pub(crate) fn guarded<T>(failed: T, body: impl FnOnce() -> Result<T>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(Wrong(why))) => remember(why),
        Err(_) => remember_panic(),
    }
    failed
}
