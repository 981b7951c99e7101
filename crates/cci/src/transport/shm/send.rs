//! Writes messages to a ring.

use super::connections::{Connections, EstablishedConn};
use super::link::Link;
use super::out::Out;
use super::pending::Sends;
use super::wire::kind;
use crate::connection::Status;
use crate::engine::core::{Core, SendOp};
use crate::error::SendError;
use crate::transport::Taken;
use cci_memory::ring::{Corrupt, LINE_PAYLOAD_BYTES, Producer, PushError, RecordHeader, Span, payload_bytes};
use cci_memory::slab::Key;

/// Why a message was not written to the ring.
pub(super) enum NotSent {
    /// The ring has no space for the message. The link remembers that it needs space.
    Full,
    /// The peer wrote something impossible, and the link is to be given up.
    Corrupt,
    Error(SendError),
}

/// Copies a message of an open connection into the ring of its link. A reliable message completes when the peer has taken it, an
/// unreliable one at once. Both wait in the engine while the ring is full, since nothing is gained by losing a message on one
/// host.
///
/// The caller has looked up `conn`, which is at `index` in the table, and has checked that it [has space](has_space).
#[inline(always)]
pub(super) fn send(
    link: &mut Link,
    conn: EstablishedConn<'_>,
    sends: &mut Sends,
    core: &mut Core,
    index: u32,
    segments: &[&[u8]],
    op: SendOp,
) -> Result<(), NotSent> {
    let was_flushed = link.out.is_flushed();
    let header = RecordHeader {
        kind: kind::MESSAGE,
        flags: conn.on.peer_generation,
        conn: conn.on.peer_index,
        ack: link.ack(),
    };
    let span = match link.out.producer.push(header, segments) {
        Ok(span) => span,
        Err(PushError::Full) => return Err(NotSent::Full),
        Err(PushError::TooLong) => {
            let len_bytes = payload_bytes(segments);
            let max_bytes = link.out.producer.payload_bytes_max();
            return Err(NotSent::Error(SendError::TooLong { len_bytes, max_bytes }));
        }
        Err(PushError::Corrupt(_)) => return Err(NotSent::Corrupt),
    };
    link.out.hasten(span);
    conn.base.messages_sent += 1;
    conn.base.bytes_sent += payload_bytes(segments) as u64;
    if conn.on.is_reliable {
        conn.on.in_progress += 1;
        conn.on.not_silent += u32::from(!op.silent);
        sends.push(&mut link.out.fifo, span, index, op);
    } else {
        core.complete(conn.base.connection, op, Status::Success);
    }
    if link.out.flush_after_send(was_flushed) {
        // This also checked whether the peer sleeps, so it found a peer that waits for our read position, too.
        link.publish_due = false;
    }
    Ok(())
}

/// The rest of a burst.
pub(super) struct Burst<'a> {
    pub messages: &'a [&'a [u8]],
    /// The longest message, bytes.
    pub mss: u32,
}

/// Copies messages of a burst into the ring, from the first on, as far as there is space in the ring, and `space` for sends in
/// progress. Runs of records of one size are entered together.
///
/// # Errors
/// The peer wrote something impossible, and the link must be given up. What was taken before ends with it.
pub(super) fn send_some(
    link: &mut Link,
    conn: EstablishedConn<'_>,
    sends: &mut Sends,
    core: &mut Core,
    (index, space): (u32, u32),
    burst: &Burst<'_>,
    op: SendOp,
) -> (Taken, Result<(), Corrupt>) {
    let was_flushed = link.out.is_flushed();
    let EstablishedConn { base, on } = conn;
    let header =
        RecordHeader { kind: kind::MESSAGE, flags: on.peer_generation, conn: on.peer_index, ack: link.ack() };
    let Out { producer, fifo, .. } = &mut link.out;
    let (mut taken, mut sent) = (Taken::default(), Ok(()));
    let mut run: Option<Span> = None;
    while let Some(rest @ [_, ..]) = burst.messages.get(taken.messages as usize..)
        && taken.messages < space
    {
        let (pushed, bytes) = match push_run(producer, header, rest, burst.mss, space - taken.messages) {
            Ok(Some(pushed)) => pushed,
            Ok(None) => break,
            Err(corrupt) => {
                sent = Err(corrupt);
                break;
            }
        };
        taken.messages += pushed.records();
        taken.bytes += bytes;
        if !run.as_mut().is_some_and(|run| run.append(pushed))
            && let Some(run) = run.replace(pushed)
            && on.is_reliable
        {
            sends.push(fifo, run, index, op);
        }
    }
    let Some(run) = run else { return (taken, sent) };
    base.messages_sent += u64::from(taken.messages);
    base.bytes_sent += taken.bytes;
    if on.is_reliable {
        on.in_progress += taken.messages;
        on.not_silent += if op.silent { 0 } else { taken.messages };
        sends.push(fifo, run, index, op);
    } else {
        core.complete_run(base.connection, op, Status::Success, taken.messages);
    }
    link.out.hasten(run);
    if link.out.flush_after_send(was_flushed) {
        // This also checked whether the peer sleeps, so it found a peer that waits for our read position, too.
        link.publish_due = false;
    }
    (taken, sent)
}

/// Copies the first of `messages` into the ring, and those behind it that become visible with it. Returns `None` if there is no
/// space for it, or it has more than `mss` bytes.
#[inline]
fn push_run<M>(
    producer: &mut Producer<M>,
    header: RecordHeader,
    messages: &[&[u8]],
    mss: u32,
    space: u32,
) -> Result<Option<(Span, u64)>, Corrupt> {
    match messages.first() {
        Some(message) if message.len() > LINE_PAYLOAD_BYTES => {
            producer.push_alike(header, messages, mss, space)
        }
        _ => producer.push_lines(header, messages, mss, space),
    }
}

/// Whether one more message of a connection may be entered. `is_alone` says whether there is no other link.
#[inline(always)]
pub(super) fn has_space(conn: &EstablishedConn<'_>, sends: &Sends, link: &Link, is_alone: bool) -> bool {
    (!conn.on.is_reliable || sends.has_space_for(&link.out.fifo, is_alone)) && link.out.control.is_empty()
}

/// Sends as [`send`] does, after there was no space: the peer may have taken something since the last check.
#[cold]
#[inline(never)]
pub(super) fn send_after_look(
    link: &mut Link,
    connections: &mut Connections,
    core: &mut Core,
    (key, is_alone): (Key, bool),
    segments: &[&[u8]],
    op: SendOp,
) -> Result<(), NotSent> {
    let looked = link.complete_taken(connections, core).and_then(|_| link.push_control());
    let Connections { conns, sends, .. } = connections;
    let Some(conn) = conns.open(key) else { return Err(NotSent::Error(SendError::Disconnected)) };
    if looked.is_err() || !has_space(&conn, sends, link, is_alone) {
        return Err(NotSent::Error(SendError::WouldBlock));
    }
    send(link, conn, sends, core, key.index, segments, op)
}

/// Notes that a message found no space in the ring of its link.
#[cold]
pub(super) fn is_full(link: &mut Link, connections: &mut Connections, core: &mut Core) {
    // Sends that the peer has taken meanwhile complete now, since the program may be waiting for them.
    let _ = link.complete_taken(connections, core);
    link.out.full_at = link.out.producer.tail();
    link.out.flush();
}
