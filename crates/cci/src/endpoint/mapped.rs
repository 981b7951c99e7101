//! Small operations on memory that is mapped: plain copies, without the transport, between two regions that were used before.

use super::Endpoint;
use super::rma::{is_beyond, remote_address};
use crate::connection::{Connection, Status};
use crate::engine::core::{ConnState, SendOp};
use crate::options::Attribute;
use crate::rma::{RegionAddress, RmaFlags};
use crate::transport::{Action, AtomicRequest, RmaRequest};
use cci_proto::RmaKind;

impl Endpoint {
    /// Does an operation by a plain copy, if both regions were used before and nothing has to come first. False: nothing was
    /// started.
    #[inline(always)]
    pub(super) fn copy_mapped(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        local: &RegionAddress,
        remote: &RegionAddress,
        len_bytes: u64,
        flags: RmaFlags,
    ) -> bool {
        let copied = self.may_be_mapped(connection, flags)
            && !is_beyond(*remote, len_bytes)
            && self.core.regions.pairs.copy(
                kind,
                connection,
                remote_address(*local),
                remote_address(*remote),
                len_bytes,
            );
        if copied {
            self.core.counters.count_rma(kind, len_bytes);
        }
        copied
    }

    /// Whether an operation may be done without the transport, as far as it is for the connection to say: nothing has to come
    /// before its completion, if it has one, or before the operation itself.
    #[inline(always)]
    pub(super) fn may_be_mapped(&self, connection: Connection, flags: RmaFlags) -> bool {
        if !self.is_ours() || flags.contains(RmaFlags::FENCE) || !self.core.order.is_empty() {
            return false;
        }
        let Some(conn) = self.core.conn(connection) else { return false };
        conn.state == ConnState::Open
            && (flags.contains(RmaFlags::SILENT)
                || self.would_complete(connection, conn.link, conn.attribute))
    }

    /// Whether the completion of an operation that is done at once would be the next one of its connection, and has space.
    #[inline(never)]
    fn would_complete(&self, connection: Connection, link: u64, attribute: Attribute) -> bool {
        let follows = || {
            self.core.waiting.is_empty()
                && self.transport.link_state(link).is_some_and(|state| state.unreported == 0)
        };
        self.core.has_operation_quota(connection, false)
            && (attribute != Attribute::ReliableOrdered || follows())
    }

    /// Raises the completion of an operation that was done without the transport.
    #[inline(never)]
    pub(super) fn ended_mapped(&mut self, connection: Connection, op: SendOp, status: Status) {
        self.core.raise_completion(connection, op, status);
        self.touched();
    }

    /// Remembers the two regions of an operation that was done at once, so that the next one between them is a plain copy.
    pub(super) fn learn(&mut self, connection: Connection, link: u64, action: &Action<'_>) {
        let (local, remote) = match *action {
            Action::Transfer(RmaRequest { segments: &[segment], message: None, .. }) => {
                (Some(segment.local), segment.remote)
            }
            Action::Atomic(AtomicRequest { target, result, .. }) => (result, target),
            Action::Transfer(_) => return,
        };
        let Endpoint { core, transport, .. } = self;
        if !core.regions.pairs.wants(connection, local, remote) {
            return;
        }
        let Some(mapped) = transport.mapped(link, remote.region, remote.key) else { return };
        let regions = &mut core.regions;
        let local = local.and_then(|at| regions.whole(at).map(|(bytes, is_target)| (at, bytes, is_target)));
        regions.pairs.insert(connection, local, remote, mapped);
    }
}
