//! How a message gets into a ring.

use super::connections::Connections;
use super::link::Link;
use super::pending::Sends;
use super::wire::kind;
use crate::connection::Status;
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use cci_memory::ring::{PushError, RecordHeader};
use cci_memory::slab::Key;

/// Why a message is not in the ring.
pub(super) enum NotSent {
    /// The ring has no space for the message. The link remembers that space is wanted.
    Full,
    /// The peer wrote something impossible, and the link is to be given up.
    Corrupt,
    Error(SendError),
}

/// Copies a message of an open connection into the ring of its link. A reliable message completes when the peer has taken it, an
/// unreliable one at once. Both wait in the engine while the ring is full, as nothing is gained by losing a message on one host.
///
/// `key` is the connection's; `is_alone`: there is no other link.
#[inline(always)]
pub(super) fn send(
    link: &mut Link,
    connections: &mut Connections,
    core: &mut Core,
    (key, is_alone): (Key, bool),
    segments: &[&[u8]],
    op: SendOp,
) -> Result<(), NotSent> {
    const GONE: NotSent = NotSent::Error(SendError::Disconnected);
    let Some(mut conn) = connections.conns.open(key) else { return Err(GONE) };
    let is_reliable = conn.on.is_reliable;
    let has_space = |sends: &Sends, link: &Link| {
        (!is_reliable || sends.has_space_for(&link.out.fifo, is_alone)) && link.out.control.is_empty()
    };
    if !has_space(&connections.sends, link) {
        // The peer may have taken something since we last looked.
        let looked = link.complete_taken(connections, core).and_then(|_| link.push_control());
        if looked.is_err() || !has_space(&connections.sends, link) {
            return Err(NotSent::Error(SendError::WouldBlock));
        }
        let Some(again) = connections.conns.open(key) else { return Err(GONE) };
        conn = again;
    }
    let was_flushed = link.out.flushed == link.out.producer.tail();
    let header = RecordHeader {
        kind: kind::MESSAGE,
        flags: conn.on.peer_generation,
        conn: conn.on.peer_index,
        ack: link.ack(),
    };
    let span = match link.out.producer.push(header, segments) {
        Ok(span) => span,
        Err(PushError::Full) => {
            is_full(link, connections, core);
            return Err(NotSent::Full);
        }
        Err(PushError::TooLong) => {
            let len_bytes = segments.iter().map(|segment| segment.len()).sum();
            let max_bytes = link.out.producer.payload_bytes_max();
            return Err(NotSent::Error(SendError::TooLong { len_bytes, max_bytes }));
        }
        Err(PushError::Corrupt(_)) => return Err(NotSent::Corrupt),
    };
    conn.base.messages_sent += 1;
    conn.base.bytes_sent += segments.iter().map(|segment| segment.len() as u64).sum::<u64>();
    if is_reliable {
        conn.on.in_progress += 1;
        conn.on.not_silent += u32::from(!op.silent);
        connections.sends.push(&mut link.out.fifo, span, key.index, op);
    }
    if link.out.flush_after_send(was_flushed) {
        // The same look finds a peer that waits for our read position.
        link.publish_due = false;
    }
    if !is_reliable {
        core.complete(conn.base.connection, op, Status::Success);
    }
    Ok(())
}

/// Notes that a message found no space in the ring of its link.
#[cold]
fn is_full(link: &mut Link, connections: &mut Connections, core: &mut Core) {
    // Sends that the peer has taken meanwhile complete now: the program may be waiting for them.
    let _ = link.complete_taken(connections, core);
    link.out.full_at = link.out.producer.tail();
    link.out.flush();
}
