//! The work on one link: when it is polled, maintained, or prepared for sleep.
//!
//! Every function here fails if the peer wrote something impossible. The link must be given up then.

use super::common::Common;
use super::link::{Life, Link};
use super::{overdue, receive};
use crate::engine::core::Core;
use cci_memory::ring::Corrupt;

/// How the turn of a link has ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    Well,
    /// The link has ended, or may have.
    Ended,
    /// The peer wrote something impossible, and the link must be given up.
    Corrupt,
}

/// Empty polls before it is checked how far the peer of an active link has read. Each check takes a cache line away from the
/// peer, and an answer, which carries the same position, may be on its way.
const POLLS_PER_LOOK: u32 = 64;

/// Whether an active link has nothing to do in this turn: nothing has come, and nothing waits. The turn is counted then.
#[inline(always)]
pub(super) fn has_nothing(link: &mut Link) -> bool {
    let has_nothing = !link.consumer.may_have_more()
        && !link.consumer.is_stalled()
        && link.out.is_flushed()
        && !link.publish_due
        && link.life == Life::Up
        && link.conns != 0
        && !link.out.bell_failed
        && !link.transfers.has_work()
        && (link.is_busy || !link.needs_maintenance())
        && !link.idle_polls.wrapping_add(1).is_multiple_of(POLLS_PER_LOOK);
    if has_nothing {
        link.idle_polls = link.idle_polls.wrapping_add(1);
    }
    has_nothing
}

/// Takes what has come on an active link, and continues remote operations.
// Always inlined: where there is one link, as is the rule, its poll is no call more.
#[inline(always)]
pub(super) fn poll_active(link: &mut Link, common: &mut Common, core: &mut Core) -> Turned {
    match try_poll_active(link, common, core) {
        Err(_) => Turned::Corrupt,
        Ok(()) if link.conns == 0 || link.life != Life::Up || link.out.bell_failed => Turned::Ended,
        Ok(()) => Turned::Well,
    }
}

#[inline(always)]
fn try_poll_active(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<(), Corrupt> {
    link.out.flush();
    let records = receive::drain(link, common, core)?;
    if records == 0 {
        link.idle_polls = link.idle_polls.wrapping_add(1);
        if link.publish_due {
            link.announce();
        }
        if link.idle_polls.is_multiple_of(POLLS_PER_LOOK)
            && (!link.out.fifo.is_empty() || link.out.wants_space())
        {
            link.complete_taken(&mut common.connections, core)?;
        }
    }
    turn_transfers(link, common, core)
}

/// Takes what has come on any link, and continues remote operations. Returns whether something had come.
pub(super) fn poll(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<bool, Corrupt> {
    link.out.flush();
    let records = receive::drain(link, common, core)?;
    turn_transfers(link, common, core)?;
    Ok(records > 0)
}

/// Continues the remote operations that have something to push or fetch.
#[inline(always)]
fn turn_transfers(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<(), Corrupt> {
    if link.transfers.has_work() {
        let turned = common.transfers.turn(link, &mut common.connections, core);
        link.out.flush();
        turned?;
    }
    Ok(())
}

/// Maintains a busy link: wakes its peer, completes and times out sends and operations.
// Always inlined: it has one caller, and a share in the cost of each message.
#[inline(always)]
pub(super) fn maintain(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<(), Corrupt> {
    link.return_loans()?;
    link.out.flush();
    if link.publish_due {
        link.announce();
    }
    if !link.is_active && (!link.out.fifo.is_empty() || link.out.wants_space()) {
        link.complete_taken(&mut common.connections, core)?;
    }
    if !link.out.control.is_empty() {
        link.push_control()?;
        link.out.flush();
    }
    link.out.end_light_fences_if_quiet(common.connections.now_ns);
    overdue::stamp(link, &mut common.connections);
    overdue::end_sends(link, common, core)?;
    turn_transfers(link, common, core)?;
    maintain_transfers(link, common, core, false)
}

/// Gives the sends and operations of a busy link their deadlines, since the endpoint is about to sleep.
pub(super) fn before_sleep(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<(), Corrupt> {
    overdue::stamp(link, &mut common.connections);
    maintain_transfers(link, common, core, true)
}

/// Maintains the flows of a link from time to time, or `now`, because the endpoint is about to sleep.
#[inline(always)]
fn maintain_transfers(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    now: bool,
) -> Result<(), Corrupt> {
    link.transfers.release_due(common.connections.now_ns);
    if !link.transfers.is_in_use() {
        return Ok(());
    }
    common.transfers.maintain(link, &mut common.connections, core, now)
}

/// Makes the peer of a link ring from now on. Returns whether something must be done first.
pub(super) fn arm(link: &mut Link, common: &mut Common, core: &mut Core) -> Result<bool, Corrupt> {
    if link.transfers.has_work()
        && (common.transfers.turn(link, &mut common.connections, core)? || link.transfers.at_once)
    {
        return Ok(true);
    }
    link.return_loans()?;
    link.out.flush();
    if link.publish_due {
        link.announce();
    }
    // The peer may go to sleep as well. Then it needs no heavy fence for a side that sends nothing.
    link.out.end_light_fences();
    if link.life != Life::Up || link.out.bell_failed {
        // A link that drains and is not stalled has work to do.
        return Ok(!link.consumer.is_stalled());
    }
    if link.rung {
        link.rung = false;
        link.out.bell_failed |= link.bell.drain().is_err();
    }
    if link.borrowing.as_ref().is_some_and(|borrowing| borrowing.arm()) {
        return Ok(true);
    }
    let progress = link.waits_for_progress();
    if (!link.armed || progress && !link.armed_for_progress) && link.arm() {
        link.disarm();
        return Ok(true);
    }
    // The last check must come after the attention word was raised: see `cci_memory::ring`, "Sleeping".
    Ok(progress && link.complete_taken(&mut common.connections, core)?)
}
