//! The content of a message: arguments and data.

use crate::description::{Description, Readable};
use crate::error::{AmError, Result};
use crate::limits::{ARGS_MAX, DATA_BYTES_MAX};

/// Packs described data into a buffer, which is allocated when it is first needed.
pub(super) fn pack<'a>(
    packed: &'a mut Vec<u8>,
    memory: Readable<'_>,
    origin: isize,
    count: usize,
    description: &Description,
) -> Result<&'a [u8]> {
    let len_bytes = description.size().saturating_mul(count);
    if len_bytes > DATA_BYTES_MAX {
        return Err(AmError::TooLong { len_bytes });
    }
    packed.resize(DATA_BYTES_MAX, 0);
    let out = packed.get_mut(..len_bytes).unwrap_or_default();
    description.pack(memory, origin, count, 0, out)?;
    Ok(out)
}

/// Checks the limits of every message.
pub(super) fn check(args: &[i64], data: &[u8]) -> Result<()> {
    if args.len() > ARGS_MAX {
        return Err(AmError::Argument("more than 16 arguments: send the others as data"));
    }
    if data.len() > DATA_BYTES_MAX {
        return Err(AmError::TooLong { len_bytes: data.len() });
    }
    Ok(())
}
