//! TCP, for networks that let only streams through.
//!
//! An endpoint listens on one port. A connection has one stream for messages and control ([`wire`] describes its records). It
//! gets a second stream when remote memory is first used ([`transfers`]), so that no short message waits behind a long transfer.
//! [`dial`] and [`handshakes`] make connections; they keep a [`handshake`] for each stream that belongs to no connection yet, and
//! [`preamble`] describes the records that such a stream carries. [`links`] ends connections.
//!
//! TCP delivers to a socket, not to a program. So a send completes when the peer's library has put the message into a receive
//! buffer and acknowledged it. Until then the sender keeps the message ([`out`], [`sends`], and
//! [`chunks`](crate::engine::chunks)). A receiver without a buffer drops the message and those behind it, reports that, and gets
//! them again when it has a buffer ([`receive`]). [`reactor`] describes a poll. `docs/adr/0008-tcp.md` has the reasons.

mod base;
mod conn;
mod conns;
mod counts;
mod deadlines;
mod dial;
mod established;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod handshake;
mod handshakes;
mod input;
mod lend;
mod lent;
mod links;
mod local;
mod open;
mod out;
mod pace;
mod pipe;
mod preamble;
mod reactor;
mod receive;
mod report;
mod requests;
mod second_stream;
mod sends;
mod shared;
mod streams;
mod transfers;
mod watched;
mod wire;

#[cfg(test)]
mod tests;

pub(crate) use open::open;

use self::conn::Conn;
use self::conns::Defaults;
use self::reactor::Reactor;
use super::{
    About, Action, Activity, Armed, AtomicRequest, Dial, LinkState, Operation, RegionChange, Report, Setting,
    Started, Taken, Transport,
};
use crate::connection::Connection;
use crate::engine::core::{Core, SendOp};
use crate::engine::lent::Lender;
use crate::engine::requests::{Decision, RequestBody};
use crate::error::{AcceptError, ConnectError, SendError};
use crate::limits;
use crate::transport::ordered_rma::{Start, What};
use cci_memory::slab::Key;
use cci_sys::clock;

/// Longest message.
pub(crate) const MESSAGE_BYTES_MAX: u32 = limits::MESSAGE_BYTES_MAX;
/// The start of every URI.
const SCHEME: &str = "tcp://";

/// One endpoint's transport.
pub(super) struct Tcp {
    uri: String,
    reactor: Reactor,
}

impl Transport for Tcp {
    fn about(&self) -> About<'_> {
        About { uri: &self.uri, offers_multicast: false }
    }

    fn connect(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: Dial<'_>,
    ) -> Result<u64, ConnectError> {
        self.reactor.dialler(core).dial(connection, &to).map(Key::to_bits)
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        self.reactor
            .handshakes
            .accept_request(core, &mut self.reactor.links, connection, request)
            .map(Key::to_bits)
    }

    fn decided(&mut self, _: &mut Core, decision: Decision) {
        match decision {
            Decision::Refused { ticket, inner, .. } => self.reactor.handshakes.refuse(ticket, inner),
            Decision::AcceptedElsewhere { ticket, .. } => self.reactor.handshakes.request_decided(ticket),
        }
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        self.reactor.links.shared.now_ns = clock::now_ns();
        let key = Key::from_bits(link);
        if self.reactor.links.conns.get(key).is_some_and(|conn| conn.base().connection == connection) {
            self.reactor.links.disconnect(core, key);
        } else {
            core.closed(connection);
        }
    }

    #[inline]
    fn send(
        &mut self,
        core: &mut Core,
        _: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        self.reactor.links.send(core, Key::from_bits(link), segments, op)
    }

    fn send_burst(
        &mut self,
        core: &mut Core,
        _: Connection,
        link: u64,
        messages: &[&[u8]],
        mss: u32,
        op: SendOp,
    ) -> Taken {
        self.reactor.links.send_burst(core, Key::from_bits(link), (messages, mss), op)
    }

    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError> {
        let key = Key::from_bits(link);
        let sends = || self.reactor.links.conns.established(key).map_or(0, |conn| conn.unreported);
        let id = core.begin_operation(connection, operation.op, sends)?;
        let (what, segments, message, fence) = match &operation.action {
            Action::Transfer(request) => {
                (What::Move(request.kind), request.segments, request.message, request.fence)
            }
            Action::Atomic(request) => {
                let AtomicRequest { atomic, target, result, fence } = *request;
                (What::Atomic { atomic, target, result }, &[][..], None, fence)
            }
        };
        let (name, position, now_ns, is_alone) = (id, 0, 0, false);
        let start = Start { name, what, segments, message, fence, position, now_ns, is_alone };
        let started = self.reactor.links.start(core, key, start);
        self.reactor.handshakes.dial_seconds(core, &mut self.reactor.links);
        match started {
            Ok(()) => Ok(Started::Pending),
            Err(error) => {
                core.withdraw_operation(id);
                Err(error)
            }
        }
    }

    fn region(&mut self, _: &mut Core, change: &RegionChange<'_>) {
        let RegionChange::Removed { region, .. } = *change;
        self.reactor.links.transfers.region_removed(&mut self.reactor.links.conns, region);
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        self.reactor.poll(core, None);
    }

    fn progress_lending(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        self.reactor.poll(core, Some(lender));
    }

    fn arm(&mut self, core: &mut Core) -> Armed {
        self.reactor.arm(core)
    }

    fn activity(&self) -> Activity {
        if self.reactor.links.conns.is_empty() && self.reactor.handshakes.is_empty() {
            Activity::Idle
        } else if self.reactor.links.shared.sends.in_use() > 0
            || self.reactor.links.transfers.operations() > 0
        {
            Activity::Active
        } else if self.reactor.links.conns.iter().any(|(_, conn)| !matches!(conn, Conn::Gone(_))) {
            Activity::Delivered
        } else {
            Activity::Drained
        }
    }

    fn link_state(&self, link: u64) -> Option<LinkState> {
        let conn = self.reactor.links.conns.get(Key::from_bits(link))?;
        let held = conn.established().map_or(0, |conn| conn.out.sends());
        let (send_timeout_ns, keepalive_ns) = (conn.base().send_timeout_ns, conn.base().keepalive_ns);
        Some(LinkState { held, drains_by_itself: false, send_timeout_ns, keepalive_ns })
    }

    fn unreported(&self, link: u64) -> Option<u32> {
        let conn = self.reactor.links.conns.get(Key::from_bits(link))?;
        Some(conn.established().map_or(0, |conn| conn.unreported))
    }

    fn configure(&mut self, _: &mut Core, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, timeout_ns } => {
                self.reactor.links.change_send_timeout(Key::from_bits(link), timeout_ns);
            }
            Setting::Keepalive { link, timeout_ns } => {
                self.reactor.links.change_keepalive(Key::from_bits(link), timeout_ns)
            }
            Setting::Defaults { send_timeout_ns, keepalive_ns } => {
                self.reactor.links.conns.defaults = Defaults { send_timeout_ns, keepalive_ns };
            }
            Setting::Lent { bytes } => {
                self.reactor.links.shared.lent.lend(&mut self.reactor.links.shared.chunks, bytes)
            }
            Setting::SetApart { .. } | Setting::Loans { .. } => {}
        }
    }

    fn report(&self, _: &Core, report: Report<'_>) {
        let Reactor { handshakes, links, .. } = &self.reactor;
        match report {
            Report::Counters { into, drops } => report::counters(links, into, drops),
            Report::Memory(into) => report::memory(handshakes, links, into),
            Report::SpareBytes(into) => *into += links.shared.lent.spare_bytes(&links.shared.chunks),
            Report::SendsHeld(into) => *into += links.shared.sends.in_use(),
            Report::Connection { link, into } => {
                *into = links.conns.get(Key::from_bits(link)).map(report::connection).unwrap_or_default();
            }
            Report::Explanation { link, into } => {
                if let Some(conn) = links.conns.get(Key::from_bits(link)) {
                    report::explain(conn, &handshakes.local, into);
                }
            }
            Report::Peer { link, into } => match links.conns.get(Key::from_bits(link)) {
                Some(Conn::Established(conn)) => {
                    (into.refuses, into.has_answered) = (conn.out.is_refused(), true);
                }
                Some(Conn::Dialling(dialling)) => into.has_answered = dialling.is_heard,
                Some(Conn::Gone(_)) | None => {}
            },
        }
    }
}
