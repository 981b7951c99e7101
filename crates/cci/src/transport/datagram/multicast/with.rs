//! A transport of connections and groups side by side.

use super::Groups;
use super::link::is_group;
use crate::connection::Connection;
use crate::engine::core::{Core, SendOp};
use crate::engine::lent::Lender;
use crate::engine::requests::{Decision, RequestBody};
use crate::error::{AcceptError, ConnectError, SendError};
use crate::security::NOBODY;
use crate::transport::{
    About, Activity, Armed, Dial, LinkState, Operation, RegionChange, Report, Setting, Started, Taken,
    Transport,
};

/// A transport, and groups beside it. The link of a connection shows which of the two it belongs to.
pub(in super::super) struct WithGroups<T> {
    pub connections: T,
    pub groups: Groups,
    /// Whether the endpoint requires a seal. It then refuses to connect to groups, whose datagrams are plain.
    pub sealed_only: bool,
}

impl<T: Transport> Transport for WithGroups<T> {
    fn about(&self) -> About<'_> {
        About { offers_multicast: self.groups.are_offered(), ..self.connections.about() }
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

    fn decided(&mut self, core: &mut Core, decision: Decision) {
        self.connections.decided(core, decision);
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

    fn send_burst(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        messages: &[&[u8]],
        mss: u32,
        op: SendOp,
    ) -> Taken {
        if is_group(link) {
            return Taken::default();
        }
        self.connections.send_burst(core, connection, link, messages, mss, op)
    }

    // No operation for a group gets here: the engine refuses remote memory on unreliable connections.

    #[inline]
    fn start(
        &mut self,
        core: &mut Core,
        connection: Connection,
        link: u64,
        operation: &Operation<'_>,
    ) -> Result<Started, SendError> {
        self.connections.start(core, connection, link, operation)
    }

    fn region(&mut self, core: &mut Core, change: &RegionChange<'_>) {
        self.connections.region(core, change);
    }

    #[inline]
    fn progress(&mut self, core: &mut Core) {
        self.connections.progress(core);
        if !self.groups.is_idle() {
            self.groups.progress(core);
        }
    }

    fn progress_lending(&mut self, core: &mut Core, lender: &mut Lender<'_>) {
        let is_alone = self.groups.is_idle();
        if !is_alone {
            lender.leave_nothing();
        }
        self.connections.progress_lending(core, lender);
        if !is_alone {
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

    fn activity(&self) -> Activity {
        self.connections.activity().min(self.groups.activity())
    }

    fn link_state(&self, link: u64) -> Option<LinkState> {
        if is_group(link) { self.groups.link_state(link) } else { self.connections.link_state(link) }
    }

    fn unreported(&self, link: u64) -> Option<u32> {
        if is_group(link) { self.groups.unreported(link) } else { self.connections.unreported(link) }
    }

    fn configure(&mut self, core: &mut Core, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, .. } | Setting::Keepalive { link, .. } if is_group(link) => {
                self.groups.configure(setting);
            }
            _ => {
                self.groups.configure(setting);
                self.connections.configure(core, setting);
            }
        }
    }

    fn report(&self, core: &Core, report: Report<'_>) {
        match report {
            Report::Connection { link, into } if is_group(link) => {
                *into = self.groups.connection_counters(link);
            }
            Report::Explanation { link, into } if is_group(link) => self.groups.explain(link, into),
            Report::Peer { link, .. } if is_group(link) => {}
            Report::Counters { into, drops } => {
                self.connections.report(core, Report::Counters { into: &mut *into, drops: &mut *drops });
                self.groups.counters(into, drops);
            }
            Report::Memory(into) => {
                self.connections.report(core, Report::Memory(&mut *into));
                into.push(("multicast groups", self.groups.memory_bytes()));
            }
            other => self.connections.report(core, other),
        }
    }
}
