//! The shortest path of a message from a ring to a handler: one copy, into the buffer that is lent to the handler.

use super::common::Common;
use super::connections::{EstablishedConn, Phase};
use super::link::{Life, Link};
use super::receive::{RECORDS_PER_POLL_MAX, has_come};
use super::wire::kind;
use crate::engine::core::Core;
use crate::engine::lent::Lender;
use cci_memory::ring::{Corrupt, LINE_PAYLOAD_BYTES};

/// Lends the messages that have come on a link, up to the first record that is no message of an open connection, and until an
/// event must come first. [`drain`](super::receive::drain) handles the rest. Returns how many messages were lent.
///
/// # Errors
/// The peer wrote something impossible, and the link must be given up.
#[inline]
pub(super) fn lend(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    lender: &mut Lender<'_>,
) -> Result<u32, Corrupt> {
    if !link.consumer.may_have_more() || link.consumer.is_stalled() || link.life != Life::Up {
        return Ok(0);
    }
    // After a pause only one record is taken, as on the path of events.
    let records_max = if link.idle_polls > 0 { 1 } else { RECORDS_PER_POLL_MAX };
    let max = lender.may_lend(core).min(records_max);
    if max == 0 {
        return Ok(0);
    }
    // If a handler panics, the next poll publishes the read position.
    let was_due = std::mem::replace(&mut link.publish_due, true);
    let mut lent = 0;
    let end = loop {
        match lend_some(link, common, core, lender, max - lent) {
            Ok(0) => break Ok(()),
            Ok(messages) => lent += messages,
            Err(corrupt) => break Err(corrupt),
        }
        if lent >= max {
            break Ok(());
        }
    };
    lender.lent(lent);
    end?;
    link.publish_due = was_due;
    if lent > 0 {
        has_come(link, common.connections.now_ns);
    }
    link.publish();
    Ok(lent)
}

/// Lends up to `max` messages: one, or all short ones in a row on one connection with one acknowledgement, so that everything is
/// looked up once. Returns how many; 0 if something else must handle the next record.
#[inline(always)]
fn lend_some(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    lender: &mut Lender<'_>,
    max: u32,
) -> Result<u32, Corrupt> {
    let Some(record) = link.consumer.peek()? else { return Ok(0) };
    let header = record.header();
    if header.kind != kind::MESSAGE {
        return Ok(0);
    }
    link.out.acknowledged(header.ack, &mut common.connections, core)?;
    if core.has_events() {
        return Ok(0);
    }
    let like = record.like(common.connections.mss);
    let len_bytes = record.len_bytes();
    if len_bytes > common.connections.mss {
        return Err(Corrupt::Length);
    }
    let at = link.key;
    let named = common.connections.conns.named_on(at, header.conn, header.flags);
    let Some((_, EstablishedConn { base, on })) = named else { return Ok(0) };
    if on.phase == Phase::Closing {
        return Ok(0);
    }
    let connection = base.connection;
    if len_bytes as usize > LINE_PAYLOAD_BYTES {
        let Some(buffer) = lender.buffer(len_bytes as usize) else { return Err(Corrupt::Length) };
        record.copy_to(buffer);
        base.messages_received += 1;
        base.bytes_received += u64::from(len_bytes);
        link.consumer.consume();
        lender.lend(core, connection, len_bytes as usize);
        return Ok(1);
    }
    let mut lent = 0;
    loop {
        let lines = lender.lines(max - lent);
        let wanted = lines.len();
        let (messages, bytes) = link.consumer.take_lines(like, lines);
        if messages == 0 {
            return Ok(lent);
        }
        base.messages_received += messages as u64;
        base.bytes_received += bytes;
        lender.lend_lines(core, connection, messages, bytes);
        lent += messages as u32;
        if messages < wanted || lent == max {
            return Ok(lent);
        }
    }
}
