//! Connections and groups side by side: one transport to the engine.

use super::Groups;
use super::link::is_group;
use crate::counters::{ConnectionCounters, DropReason};
use crate::device::TransportKind;
use crate::engine::core::{Core, SendOp};
use crate::engine::origin::{RequestBody, RequestInner};
use crate::engine::regions::Region;
use crate::error::{AcceptError, ConnectError, SendError};
use crate::event::Connection;
use crate::explain::Explanation;
use crate::security::NOBODY;
use crate::transport::{Armed, AtomicRequest, Dial, RmaRequest, Transport};

/// A transport, and groups beside it. Which of the two a connection belongs to, its link tells.
pub(in super::super) struct WithGroups<T> {
    pub connections: T,
    pub groups: Groups,
    /// Everything else is sealed, and what comes plain is refused: groups, which are plain, do not go with that.
    pub sealed_only: bool,
}

impl<T: Transport> Transport for WithGroups<T> {
    fn uri(&self) -> &str {
        self.connections.uri()
    }

    fn offers_multicast(&self) -> bool {
        self.groups.are_offered()
    }

    fn connect(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: Dial<'_>,
    ) -> Result<u64, ConnectError> {
        if to.attribute.is_multicast() {
            if self.sealed_only {
                return Err(ConnectError::Insecure);
            }
            if let Some(name) = to.expected {
                return Err(ConnectError::CannotExpect { name: name.to_owned(), reason: NOBODY.to_owned() });
            }
            return self.groups.connect(core, connection, &to);
        }
        self.connections.connect(core, connection, to)
    }

    fn accept(
        &mut self,
        core: &mut Core,
        connection: Connection,
        request: RequestBody,
    ) -> Result<u64, AcceptError> {
        self.connections.accept(core, connection, request)
    }

    fn refused(&mut self, core: &mut Core, via: TransportKind, ticket: u64, inner: RequestInner) {
        self.connections.refused(core, via, ticket, inner);
    }

    fn taken(&mut self, core: &mut Core, via: TransportKind, ticket: u64) {
        self.connections.taken(core, via, ticket);
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, link: u64) {
        if is_group(link) {
            self.groups.disconnect(core, link);
        } else {
            self.connections.disconnect(core, connection, link);
        }
    }

    #[inline]
    fn send(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        if is_group(link) {
            return self.groups.send(core, link, segments, op);
        }
        self.connections.send(core, connection, link, segments, op)
    }

    // The engine refuses remote memory on unreliable connections, which those of groups are.

    fn rma(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &RmaRequest<'_>,
        operation: u64,
    ) -> Result<(), SendError> {
        self.connections.rma(core, connection, link, request, operation)
    }

    fn atomic(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        request: &AtomicRequest,
        operation: u64,
    ) -> Result<(), SendError> {
        self.connections.atomic(core, connection, link, request, operation)
    }

    fn region_removed(&mut self, core: &mut Core, id: u64, region: &Region) {
        self.connections.region_removed(core, id, region);
    }

    fn sends_in_progress(&self, link: u64) -> u32 {
        if is_group(link) {
            return u32::try_from(self.groups.connection_counters(link).sends_in_progress)
                .unwrap_or(u32::MAX);
        }
        self.connections.sends_in_progress(link)
    }

    fn sends_held(&self) -> u32 {
        self.connections.sends_held()
    }

    fn sends_held_by(&self, link: u64) -> u32 {
        if is_group(link) { 0 } else { self.connections.sends_held_by(link) }
    }

    fn is_refused(&self, link: u64) -> bool {
        !is_group(link) && self.connections.is_refused(link)
    }

    fn spare_bytes(&mut self, core: &mut Core) -> u64 {
        self.connections.spare_bytes(core)
    }

    fn lend(&mut self, bytes: u64) {
        self.connections.lend(bytes);
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        self.connections.progress(core);
        if !self.groups.is_idle() {
            self.groups.progress(core);
        }
    }

    fn arm(&mut self, core: &mut Core) -> Armed {
        let armed = self.connections.arm(core);
        let look_again_ns = self.groups.arm(core);
        match armed {
            Armed::Pending => Armed::Pending,
            Armed::Sleep { deadline_ns } => {
                Armed::Sleep { deadline_ns: [deadline_ns, look_again_ns].into_iter().flatten().min() }
            }
        }
    }

    fn heard(&self, link: u64) -> bool {
        self.connections.heard(link)
    }

    fn is_idle(&self) -> bool {
        self.connections.is_idle() && self.groups.is_idle()
    }

    fn is_drained(&self) -> bool {
        self.connections.is_drained() && self.groups.has_sent_all()
    }

    fn has_delivered_all(&self) -> bool {
        self.connections.has_delivered_all() && self.groups.has_sent_all()
    }

    fn set_send_timeout(&mut self, link: u64, timeout_ns: u64) {
        match self.groups.link_mut(link) {
            Some(link) => link.send_timeout_ns = timeout_ns,
            None => self.connections.set_send_timeout(link, timeout_ns),
        }
    }

    fn set_keepalive(&mut self, core: &mut Core, link: u64, timeout_ns: u64) {
        match self.groups.link_mut(link) {
            Some(link) => link.keepalive_ns = timeout_ns,
            None => self.connections.set_keepalive(core, link, timeout_ns),
        }
    }

    fn set_defaults(&mut self, send_timeout_ns: u64, keepalive_ns: u64) {
        self.groups.set_defaults(send_timeout_ns, keepalive_ns);
        self.connections.set_defaults(send_timeout_ns, keepalive_ns);
    }

    fn timeouts_ns(&self, link: u64) -> Option<(u64, u64)> {
        match self.groups.link(link) {
            Some(link) => Some((link.send_timeout_ns, link.keepalive_ns)),
            None => self.connections.timeouts_ns(link),
        }
    }

    fn connection_counters(&self, link: u64) -> ConnectionCounters {
        if is_group(link) {
            return self.groups.connection_counters(link);
        }
        self.connections.connection_counters(link)
    }

    fn counters(&self, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>) {
        self.connections.counters(into, drops);
        self.groups.counters(into, drops);
    }

    fn memory(&self, into: &mut Vec<(&'static str, u64)>) {
        self.connections.memory(into);
        into.push(("multicast groups", self.groups.memory_bytes()));
    }

    fn explain(&self, link: u64, into: &mut Explanation) {
        if is_group(link) {
            self.groups.explain(link, into);
        } else {
            self.connections.explain(link, into);
        }
    }
}
