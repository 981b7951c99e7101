//! Gives records to the core.

use crate::limits::HEADER_BYTES;
use crate::wire::Header;
use cci::{Connection, Endpoint, SendError, SendFlags};

/// The longest record that is copied together before it is sent. For such records this costs less than to let the core gather
/// them.
const SHORT_BYTES: usize = 64;

/// Sends a record.
#[inline]
pub(super) fn send_record(
    endpoint: &mut Endpoint,
    connection: Connection,
    head: &[u8],
    data: &[u8],
) -> Result<(), SendError> {
    let mut short = [0; SHORT_BYTES];
    match short.get_mut(..head.len() + data.len()).and_then(|record| record.split_at_mut_checked(head.len()))
    {
        Some((to_head, to_data)) => {
            to_head.copy_from_slice(head);
            to_data.copy_from_slice(data);
            let len = head.len() + data.len();
            endpoint.send(connection, short.get(..len).unwrap_or_default(), 0, SendFlags::SILENT)
        }
        None => endpoint.send_vectored(connection, &[head, data], 0, SendFlags::SILENT),
    }
}

/// Sends a message without arguments, if it is short. `None` if it is not.
#[inline(always)]
pub(super) fn send_short(
    endpoint: &mut Endpoint,
    connection: Connection,
    header: Header,
    data: &[u8],
) -> Option<Result<(), SendError>> {
    let mut short = [0; SHORT_BYTES];
    short[HEADER_BYTES..].get_mut(..data.len())?.copy_from_slice(data);
    short[..HEADER_BYTES].copy_from_slice(&header.encode());
    let record = short.get(..HEADER_BYTES + data.len()).unwrap_or_default();
    Some(endpoint.send(connection, record, 0, SendFlags::SILENT))
}
