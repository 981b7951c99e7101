//! The shortest path of a message out of a ring: a message of one line, after which nothing has to be done, is copied once, to
//! where the program wants it.

use super::connections::{Connections, EstablishedConn, Phase};
use super::link::{Life, Link};
use super::receive::has_come;
use super::wire::kind;
use crate::connection::Connection;
use crate::engine::core::Core;
use cci_memory::ring::Line;

/// Takes the next message on a link, and returns its connection. Returns `None` if there is none, or something else must be done
/// first, which [`lend`](super::lend::lend) and [`drain`](super::receive::drain) do. A call from here changes nothing for them.
#[inline(always)]
pub(super) fn take(
    link: &mut Link,
    connections: &mut Connections,
    core: &mut Core,
    line: &mut Line,
) -> Option<Connection> {
    // A link that is not busy must become busy when something comes.
    if link.life != Life::Up || !link.is_busy || link.transfers.has_work() {
        return None;
    }
    let (header, len_bytes) = link.consumer.peek_line(kind::MESSAGE)?;
    // In a stream it costs less to lend many records at once. After a pause the line behind the record is not read: it would have
    // to come from the peer's cache, and somebody may be waiting for the answer.
    if link.idle_polls == 0 && link.consumer.may_have_two() {
        return None;
    }
    link.out.flush();
    link.out.acknowledged(header.ack, connections, core).ok()?;
    if core.has_events() {
        // They come first.
        return None;
    }
    // The program may answer the message, so the line for our next record is fetched now.
    link.out.producer.prefetch();
    let (_, EstablishedConn { base, on }) =
        connections.conns.named_on(link.key, header.conn, header.flags)?;
    if on.phase == Phase::Closing || len_bytes > connections.mss {
        return None;
    }
    let connection = base.connection;
    link.consumer.take_to_line(len_bytes, line);
    base.messages_received += 1;
    base.bytes_received += u64::from(len_bytes);
    core.counters.messages_received += 1;
    core.counters.bytes_received += u64::from(len_bytes);
    has_come(link, connections.now_ns);
    link.publish();
    Some(connection)
}
