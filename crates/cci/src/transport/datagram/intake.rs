//! What a turn of progress does with the datagrams that have come: as many receive calls as help, and the acknowledgements between them.

use super::Datagram;
use super::adapter::ToProgram;
use super::carrier::{Carrier, Dead, Identities};
use crate::engine::core::Core;
use crate::engine::lent::Lender;
use crate::limits;
use std::ops::ControlFlow;

/// The most receive calls in one progress. Each may bring hundreds of datagrams, and time-outs must have their turn.
pub(super) const RECV_CALLS_MAX: u32 = 4;
/// The most receive calls in one progress that bring mostly datagrams to be dropped. They cost little, and datagrams of honest
/// peers wait behind such a flood. More calls are made if the socket was not read for a while, since the flood has gathered in
/// it.
const USELESS_CALLS: u32 = 32;
/// The longest time for receive calls that bring mostly datagrams to be dropped: enough to read all that a socket holds.
const USELESS_NS_MAX: u64 = 10_000_000;
/// The most receive calls in one progress that bring mostly datagrams to be dropped, whatever the clock says.
const USELESS_CALLS_MAX: u32 = 4_096;
/// If one call brings fewer datagrams than this, the socket is taken to be empty.
const RECV_MORE: usize = 16;
/// Datagrams with data of remote operations that are handled before they are acknowledged, although more have come: a sixth of a
/// window. The sender would otherwise have sent its window long before it may send more, and both sides would wait in turn.
const ACK_DATAGRAMS: u32 = 40;
/// So many bytes of such data show that those datagrams are full of them.
const ACK_BYTES_MIN: u64 = 512 * ACK_DATAGRAMS as u64;

/// How many of the datagrams of a receive call the protocol has got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handed {
    All,
    /// The others wait until what was received is acknowledged.
    Paused,
    /// The others wait, since the program has enough for now.
    Some,
}

impl<C: Carrier> Datagram<C> {
    /// Makes one receive call. Returns how many datagrams it brought.
    #[inline]
    pub(super) fn receive_once(&mut self, core: &mut Core) -> usize {
        match self.carrier.receive() {
            Ok(count) => count,
            Err(Dead) => {
                self.fail(core);
                0
            }
        }
    }

    /// Handles the `count` datagrams of the last receive call, and more after them, up to a limit. Not inlined, so that a poll
    /// that finds nothing is short.
    #[inline(never)]
    pub(super) fn take_in(&mut self, core: &mut Core, mut count: usize, mut lender: Option<&mut Lender<'_>>) {
        self.adapter.lending.is_open = lender.is_some() && !core.has_events();
        let (mut calls, mut useless) = (0, 0);
        let mut until = None;
        let events_max = core.events_queued().saturating_add(core.records_left as usize);
        let events_max = events_max.max(limits::EVENTS_MANY);
        while count != 0 {
            let useful = self.proto.counters().useful();
            // Bounded, as datagrams may come while those before them are handled.
            let mut pauses = count as u32 / ACK_DATAGRAMS;
            // One call, so that it is compiled in here.
            let handed = loop {
                let handed = self.hand_over(core, &mut lender, events_max, pauses != 0);
                if handed != Handed::Paused {
                    break handed;
                }
                self.acknowledge(core, lender.is_some());
                pauses -= 1;
            };
            if count < RECV_MORE || handed == Handed::Some {
                break;
            }
            if self.proto.counters().useful() - useful > count as u64 / 2 {
                calls += 1;
                if self.adapter.starved {
                    break;
                }
            } else {
                useless += 1;
                let now = self.now;
                let away_ns = now.since(self.received_at).min(USELESS_NS_MAX);
                let until = *until.get_or_insert_with(|| now.plus(away_ns));
                if useless >= USELESS_CALLS && now >= until {
                    break;
                }
            }
            if calls == RECV_CALLS_MAX || useless == USELESS_CALLS_MAX {
                break;
            }
            count = self.receive_once(core);
        }
        self.has_left_many = core.events_queued() > limits::EVENTS_MANY;
    }

    /// Sends acknowledgements in a pause.
    #[inline(never)]
    fn acknowledge(&mut self, core: &mut Core, lends: bool) {
        self.transmit(core);
        self.adapter.lending.is_open = lends && !core.has_events();
    }

    /// Hands the datagrams of the last receive call to the protocol, from the first one on that it has not got. If it `may_pause`, it
    /// does so where data of remote operations are to be acknowledged.
    #[inline(always)]
    fn hand_over(
        &mut self,
        core: &mut Core,
        lender: &mut Option<&mut Lender<'_>>,
        events_max: usize,
        may_pause: bool,
    ) -> Handed {
        let now = self.read_clock();
        let Datagram { carrier, proto, adapter, rest, .. } = self;
        if let Some(identities) = carrier.identities() {
            identities.at(now);
        }
        let bulk_bytes = proto.counters().rma_bytes_received;
        let (mut datagrams, mut is_pause) = (0, false);
        let flow = carrier.arrived(|from, datagram, who| {
            let messages = proto.handle_datagram(now, from, datagram, &mut ToProgram { core, adapter, who });
            adapter.settle(proto, core, now);
            // This comes last, since the handler may panic.
            if let Some((connection, summary)) = adapter.lending.bundle.take()
                && let Some(lender) = lender.as_deref_mut()
            {
                core.counters.messages_received += u64::from(summary.messages);
                core.counters.bytes_received += u64::from(summary.bytes);
                rest.lend_first(core, lender, connection, messages, now);
                adapter.lending.is_open = !core.has_events();
                if lender.left() == 0 || !rest.is_empty() {
                    return ControlFlow::Break(());
                }
            }
            if core.events_queued() > events_max {
                return ControlFlow::Break(());
            }
            datagrams += 1;
            if datagrams == ACK_DATAGRAMS && may_pause {
                is_pause = proto.counters().rma_bytes_received - bulk_bytes >= ACK_BYTES_MIN;
                if is_pause {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
        if let Some(identities) = carrier.identities() {
            for (key, at, identity) in adapter.met.drain(..) {
                identities.hold(key, at, &identity);
            }
        }
        match flow {
            ControlFlow::Continue(()) => Handed::All,
            ControlFlow::Break(()) if is_pause => Handed::Paused,
            ControlFlow::Break(()) => Handed::Some,
        }
    }
}
