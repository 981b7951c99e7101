//! Why calls fail.

use cci_acp::AcpError;

/// Why a call has failed.
pub(super) struct Wrong(pub String);

/// What a call comes to.
pub(super) type Result<T> = std::result::Result<T, Wrong>;

impl From<AcpError> for Wrong {
    fn from(error: AcpError) -> Wrong {
        Wrong(error.to_string())
    }
}

/// Fails with a reason.
pub(super) fn wrong<T>(why: &str) -> Result<T> {
    Err(Wrong(why.to_owned()))
}
