//! Why calls fail.

use cci_acp::AcpError;

pub(super) use crate::wrong::{Result, Wrong, guarded, wrong};

impl From<AcpError> for Wrong {
    fn from(error: AcpError) -> Wrong {
        Wrong(error.to_string())
    }
}
