//! The shortest path of an event out of a ring. An event that comes alone, after a pause, is given to the program without the
//! queue of events.
//!
//! Such an event is a short message of an open connection, or the end of the oldest send, which the message's header
//! acknowledges. The message stays in the ring until everything that it acknowledges was given out. Everything else is left to
//! [`drain`](super::receive::drain). Nothing is changed before it is certain that there is an event, or that a send has ended
//! whose end the program does not want. So `drain` finds all the rest as it was.

use super::connections::{Connections, EstablishedConn, Phase};
use super::link::{Life, Link};
use super::receive::has_come;
use super::wire::kind;
use crate::connection::{Connection, Status};
use crate::engine::core::Core;
use crate::engine::event::{Event, Message};
use cci_memory::pool::SlotMut;

/// An event that comes alone.
pub(super) enum Alone {
    Completion {
        connection: Connection,
        context: u64,
    },
    /// The message is in the buffer.
    Message {
        connection: Connection,
        buffer: SlotMut,
        len_bytes: u32,
    },
}

impl Alone {
    #[inline(always)]
    pub fn event(self) -> Event {
        match self {
            Alone::Completion { connection, context } => {
                Event::Send { connection, context, status: Status::Success }
            }
            Alone::Message { connection, buffer, len_bytes } => {
                Event::Recv(Message::new(buffer.freeze(len_bytes as usize), connection))
            }
        }
    }
}

/// Takes the next event of a link. Returns `None` if there is none, or something else must be done first.
#[inline(always)]
pub(super) fn take(link: &mut Link, connections: &mut Connections, core: &mut Core) -> Option<Alone> {
    // Only after a pause: in a stream it costs less to take many records at once. A link that is not busy must become busy when
    // something comes.
    let is_plain = link.idle_polls > 0
        && link.is_busy
        && link.life == Life::Up
        && link.out.is_flushed()
        && !link.transfers.has_work();
    if !is_plain {
        return None;
    }
    let (header, len_bytes) = link.consumer.peek_line(kind::MESSAGE)?;
    while let Some(consumed) = link.out.acknowledged_position(header.ack).ok()? {
        let (connection, context) = complete_oldest(link, connections, core, consumed)?;
        if core.is_signaled(context) {
            return Some(Alone::Completion { connection, context });
        }
    }
    // The program may answer the message, so the line for our next record is fetched now.
    link.out.producer.prefetch();
    let (_, conn) = connections.conns.named(header.conn, header.flags)?;
    let EstablishedConn { base, on } = conn.established().filter(|conn| conn.on.link == link.key)?;
    if on.phase == Phase::Closing || len_bytes > connections.mss {
        return None;
    }
    let connection = base.connection;
    let mut buffer = core.take_buffer(connection, len_bytes)?;
    link.consumer.take_line(len_bytes, buffer.fill().first_chunk_mut()?);
    base.messages_received += 1;
    base.bytes_received += u64::from(len_bytes);
    has_come(link, connections.now_ns);
    link.publish();
    Some(Alone::Message { connection, buffer, len_bytes })
}

/// Completes the oldest send of a link if the peer has taken it, and returns its connection.
#[inline(always)]
fn complete_oldest(
    link: &mut Link,
    connections: &mut Connections,
    core: &mut Core,
    consumed: u64,
) -> Option<(Connection, u64)> {
    let Connections { conns, sends, .. } = connections;
    if !core.completes_at_once() {
        return None;
    }
    let send = sends.oldest_alone(&link.out.fifo, consumed)?;
    let EstablishedConn { base, on } = conns.at(send.conn).and_then(|(_, conn)| conn.established())?;
    let (connection, context) = (base.connection, send.op().context);
    on.in_progress = on.in_progress.saturating_sub(1);
    on.not_silent = on.not_silent.saturating_sub(1);
    // The peer may have taken more. The same record will show that again.
    link.out.consumed = send.end_position();
    sends.pop_alone(&mut link.out.fifo);
    Some((connection, context))
}
