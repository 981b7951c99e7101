//! The shortest way of a message out of a ring: it is copied once, to where it is lent to a handler from.

use super::common::Common;
use super::connections::{EstablishedConn, Phase};
use super::link::{Life, Link};
use super::receive::{RECORDS_PER_POLL_MAX, has_come};
use super::wire::kind;
use crate::engine::core::Core;
use crate::engine::lent::Lender;
use cci_memory::ring::Corrupt;

/// Lends the messages that have come on a link, up to what is not a message of an open connection, and as long as no event has to come
/// first. What is left is for [`drain`](super::receive::drain). Answers how many it lent.
///
/// # Errors
/// The peer wrote something impossible, and the link is to be given up.
pub(super) fn lend(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    lender: &mut Lender<'_>,
) -> Result<u32, Corrupt> {
    if !link.consumer.may_have_more() || link.consumer.is_stalled() || link.life != Life::Up {
        return Ok(0);
    }
    // After a pause one record only, as where messages are delivered.
    let records_max = if link.idle_polls > 0 { 1 } else { RECORDS_PER_POLL_MAX };
    let max = lender.may_lend(core).min(records_max);
    // If a handler panics, the next poll publishes what was read.
    let was_due = std::mem::replace(&mut link.publish_due, true);
    let mut left = max;
    while left > 0 && lend_one(link, common, core, lender)? {
        left -= 1;
    }
    link.publish_due = was_due;
    if left < max {
        has_come(link, common.connections.now_ns);
    }
    link.publish();
    Ok(max - left)
}

/// Lends one message. False: what comes next is for others to handle.
#[inline(always)]
fn lend_one(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    lender: &mut Lender<'_>,
) -> Result<bool, Corrupt> {
    let Some(record) = link.consumer.peek()? else { return Ok(false) };
    let header = record.header();
    if header.kind != kind::MESSAGE {
        return Ok(false);
    }
    link.out.acknowledged(header.ack, &mut common.connections, core)?;
    if core.has_events() {
        return Ok(false);
    }
    let len_bytes = record.len_bytes();
    if len_bytes > common.connections.mss {
        return Err(Corrupt::Length);
    }
    let at = link.key;
    let named = common.connections.conns.named_on(at, header.conn, header.flags);
    let Some((_, EstablishedConn { base, on })) = named else { return Ok(false) };
    if on.phase == Phase::Closing {
        return Ok(false);
    }
    let Some(buffer) = lender.buffer(len_bytes as usize) else { return Err(Corrupt::Length) };
    record.copy_to(buffer);
    base.messages_received += 1;
    base.bytes_received += u64::from(len_bytes);
    let connection = base.connection;
    link.consumer.consume();
    lender.lend(core, connection, len_bytes as usize);
    Ok(true)
}
