//! The shortest path of a message from a stream to a handler: one copy, from the read buffer to the buffer that is lent to the
//! handler.
//!
//! Messages that a handler does not get in one call stay in the read buffer as a [`Rest`], with which the next poll begins. So
//! the state stays consistent if a handler panics.

use super::conns::Conns;
use super::established::Rest;
use super::input::Take;
use super::links::Links;
use super::receive::Receiver;
use super::shared::Shared;
use super::wire::{HEADER_BYTES, Header, Kind};
use crate::connection::Connection;
use crate::engine::core::Core;
use crate::engine::lent::Lender;
use cci_memory::ring::{LINE_PAYLOAD_BYTES, Line};
use cci_memory::slab::Key;

/// What is next in a rest.
enum Next {
    /// Short messages, copied to the lender's lines: how many, and their bytes.
    Lines(Connection, usize, u64),
    /// One message of this length, copied to the lender's buffer.
    Long(Connection, usize),
    /// A record that only acknowledges.
    Acknowledgement,
    /// A message that the lender does not take any more.
    TooMany,
    /// Anything else. It is handled in the ordinary way, with everything behind it.
    Other,
}

/// Reads a connection once, lends the messages that came, and handles everything else. Returns whether something came.
#[inline]
pub(super) fn read(links: &mut Links, core: &mut Core, key: Key, lender: &mut Lender<'_>) -> bool {
    let conn = links.conns.established_mut(key).filter(|conn| conn.takes_messages());
    let Some(conn) = conn.filter(|_| !core.has_events() && links.rest.is_none()) else {
        return links.read_apart(core, key);
    };
    if conn.input.is_holding() {
        return false;
    }
    match conn.read(&mut links.shared, &mut links.scratch) {
        Ok(None) => return false,
        Ok(Some(batch)) => {
            links.rest = Some(Rest { key, batch, used: 0 });
            if !batch.keeps {
                return links.finish_rest(core);
            }
            lend(links, core, lender);
        }
        Err(error) => links.read_failed(core, key, error),
    }
    true
}

/// Lends messages of the rest until the lender takes no more. What can't be lent is handled in the ordinary way.
pub(super) fn lend(links: &mut Links, core: &mut Core, lender: &mut Lender<'_>) {
    while let Some(rest) = &mut links.rest {
        let Links { conns, shared, scratch, .. } = links;
        match next_in(rest, conns, shared, scratch, core, lender) {
            Next::Lines(connection, count, bytes) => lender.lend_lines(core, connection, count, bytes),
            Next::Long(connection, len) => lender.lend(core, connection, len),
            Next::Acknowledgement => {}
            Next::TooMany => return,
            Next::Other => {
                links.finish_rest(core);
            }
        }
    }
}

/// Takes the next part of a rest, and copies it if it is to be lent.
#[inline]
fn next_in(
    rest: &mut Rest,
    conns: &mut Conns,
    shared: &mut Shared,
    scratch: &[u8],
    core: &mut Core,
    lender: &mut Lender<'_>,
) -> Next {
    let Some(conn) = conns.established_mut(rest.key) else { return Next::Other };
    if !conn.takes_messages() || conn.input.take != Take::All {
        return Next::Other;
    }
    let records = scratch.get(rest.used..rest.batch.filled).unwrap_or_default();
    let Some((header, behind)) = records.split_first_chunk() else { return Next::Other };
    let Ok(header) = Header::parse(*header, conn.base.mss) else { return Next::Other };
    let len = usize::from(header.len);
    let Some(payload) = behind.get(..len) else { return Next::Other };
    let mut receiver = Receiver { conn: &mut *conn, shared: &mut *shared, core: &mut *core, may_hold: true };
    // The ordinary path finds the fault again and handles it.
    if receiver.note_acknowledged(header.ack).is_err() || header.ack != conn.input.acked {
        return Next::Other;
    }
    match header.kind {
        Kind::Message => {}
        Kind::Ack => {
            rest.used += HEADER_BYTES;
            return Next::Acknowledgement;
        }
        _ => return Next::Other,
    }
    if lender.left() == 0 {
        return Next::TooMany;
    }
    let max = lender.left().min(core.keepable_before_events());
    if max == 0 {
        return Next::Other;
    }
    let (count, bytes, next) = if len <= LINE_PAYLOAD_BYTES {
        let like = Header { len: 0, ..header };
        let (count, bytes) = copy_alike(records, like, conn.base.mss, lender.lines(max));
        (count, bytes, Next::Lines(conn.base.connection, count, bytes as u64))
    } else {
        let Some(buffer) = lender.buffer(len) else { return Next::Other };
        buffer.copy_from_slice(payload);
        (1, len, Next::Long(conn.base.connection, len))
    };
    rest.used += count * HEADER_BYTES + bytes;
    lender.lent(count as u32);
    conn.base.messages_received += count as u64;
    conn.base.bytes_received += bytes as u64;
    if conn.base.is_reliable {
        conn.input.took(count as u32, shared.pace.polls);
        shared.streams.acknowledge_later(&mut conn.base.listed);
    }
    next
}

/// Copies the payloads of the first records to `lines`, as far as their headers are `like` this one but for the length, which is that of a
/// line and `mss` at most. Returns how many these were, and the bytes of the payloads.
// Apart from its caller, so that what the loop needs stays in registers.
#[inline(never)]
fn copy_alike(records: &[u8], like: Header, mss: u32, lines: &mut [Line]) -> (usize, usize) {
    let like = u64::from_le_bytes(like.bytes());
    let len_max = u64::from(mss).min(LINE_PAYLOAD_BYTES as u64);
    let (mut left, mut count) = (records, 0);
    for line in lines {
        let Some((header, behind)) = left.split_first_chunk::<HEADER_BYTES>() else { break };
        // If everything else is as expected, this is the length.
        let len = u64::from_le_bytes(*header) ^ like;
        if len > len_max || !line.fill(behind, len as usize) {
            break;
        }
        left = behind.get(len as usize..).unwrap_or_default();
        count += 1;
    }
    (count, records.len() - left.len() - count * HEADER_BYTES)
}
