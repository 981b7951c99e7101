//! Records on their way to the core.

use crate::limits::{ARGS_MAX, HEADER_BYTES};
use crate::wire::{Head, Header};
use cci::{Connection, Endpoint, SendError, SendFlags};

/// Longest record that is put together before it is sent, which costs less than to have the core gather it.
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

/// Sends a message, whose header says how many arguments there are.
#[inline(always)]
pub(super) fn send_message(
    endpoint: &mut Endpoint,
    connection: Connection,
    header: &Header,
    args: &[i64],
    data: &[u8],
) -> Result<(), SendError> {
    const { assert!(SHORT_BYTES < HEADER_BYTES + 8 * ARGS_MAX, "some arguments are not short") };
    let mut short = [0; SHORT_BYTES];
    let (head, rest) = short.split_at_mut(HEADER_BYTES);
    let data_at = header.data_at() - HEADER_BYTES;
    match rest.get_mut(data_at..data_at + data.len()) {
        Some(to_data) => {
            to_data.copy_from_slice(data);
            head.copy_from_slice(&header.encode());
            if !args.is_empty() {
                for (to, arg) in rest.as_chunks_mut().0.iter_mut().zip(args) {
                    *to = arg.to_le_bytes();
                }
            }
            let len = HEADER_BYTES + data_at + data.len();
            endpoint.send(connection, short.get(..len).unwrap_or_default(), 0, SendFlags::SILENT)
        }
        None => send_long(endpoint, connection, header, args, data),
    }
}

#[inline(never)]
fn send_long(
    endpoint: &mut Endpoint,
    connection: Connection,
    header: &Header,
    args: &[i64],
    data: &[u8],
) -> Result<(), SendError> {
    if args.is_empty() {
        return endpoint.send_vectored(connection, &[&header.encode(), data], 0, SendFlags::SILENT);
    }
    endpoint.send_vectored(connection, &[Head::new(header, args).bytes(), data], 0, SendFlags::SILENT)
}
