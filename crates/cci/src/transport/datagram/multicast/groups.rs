//! The group connections of one endpoint.

use super::link::{End, Link, is_group, pack, unpack};
use super::member::{Counts, Member};
use super::outlet::Outlets;
use super::own_sender::OwnSender;
use super::settings::Settings;
use crate::connection::Connection;
use crate::engine::core::{Core, SendOp};
use crate::error::{ConnectError, SendError, SysError};
use crate::options::Attribute;
use crate::transport::datagram::SPACE_RETRY_NS;
use crate::transport::datagram::udp_uri;
use crate::transport::{Activity, Dial, LinkState, Setting};
use cci_memory::slab::{Key, Slab};
use cci_sys::{clock, net};
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroU32;

/// The most group connections of one endpoint.
const LINKS_MAX: u32 = 1024;

/// The group connections of one endpoint, and their sockets.
pub(in super::super) struct Groups {
    pub(super) settings: Settings,
    own: OwnSender,
    pub(super) links: Slab<Link>,
    pub(super) out: Option<Outlets>,
    pub(super) members: Slab<Member>,
    /// Counts of the members that have left.
    pub(super) past: Counts,
    /// How many connections to groups the program has closed that still have something to send.
    closing: u32,
}

impl Groups {
    /// Prepares an endpoint to connect to groups. This takes nothing from the system but a random number.
    pub fn new(settings: Settings) -> Result<Groups, SysError> {
        let own = OwnSender::new(settings.keys.own)?;
        Ok(Groups {
            settings,
            own,
            links: Slab::new(LINKS_MAX),
            out: None,
            members: Slab::new(LINKS_MAX),
            past: Counts::default(),
            closing: 0,
        })
    }

    /// Whether the device offers groups. IPv6 loopback does not, as Linux carries none over it.
    pub fn are_offered(&self) -> bool {
        !(self.settings.local.is_ipv6() && self.settings.local.ip().is_loopback())
    }

    /// Whether there is nothing to do until somebody connects to a group.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.links.is_empty() && self.out.is_none()
    }

    /// Joins a group, or prepares to send to one. The connection is open at once. Returns its link.
    pub fn connect(
        &mut self,
        core: &mut Core,
        connection: Connection,
        to: &Dial<'_>,
    ) -> Result<u64, ConnectError> {
        if !to.request.is_empty() {
            return Err(ConnectError::RequestToGroup { len_bytes: to.request.len() });
        }
        let bad_uri = |reason| ConnectError::BadUri { uri: to.uri.to_owned(), reason };
        let group = udp_uri::parse(to.uri).and_then(|group| self.check(group)).map_err(bad_uri)?;
        let interface = self.interface()?;
        let group = at_interface(group, interface, &self.settings.interface_name).map_err(bad_uri)?;
        if !self.links.reserve(1) {
            return Err(ConnectError::NoMemory);
        }
        let end = if to.attribute == Attribute::MulticastSend {
            End::Send { outlet: self.outlet(group, interface)?, closing: false }
        } else {
            End::Receive { member: self.member(core, group, interface)? }
        };
        let Settings { send_timeout_ns, keepalive_ns, message_bytes_max, .. } = self.settings;
        let link = Link { connection, end, messages: 0, bytes: 0, send_timeout_ns, keepalive_ns };
        let Ok(key) = self.links.insert(link) else {
            self.release(core, end);
            return Err(ConnectError::NoMemory);
        };
        if let End::Receive { member } = end
            && let Some(member) = self.members.get_mut(member)
        {
            member.links.push(key);
        }
        core.opened(connection, message_bytes_max);
        Ok(pack(key))
    }

    /// Checks that the address is a group's, and of the device's version of IP.
    fn check(&self, group: SocketAddr) -> Result<SocketAddr, String> {
        if !group.ip().is_multicast() {
            let looks = "write one such as udp://239.1.2.3:5000 or udp://[ff15::1]:5000";
            return Err(format!("{} is no multicast group; {looks}", group.ip()));
        }
        udp_uri::with_local_zone(group, self.settings.local)
    }

    /// The number of the device's interface. It is asked for each time, since an interface may come back under another number.
    fn interface(&self) -> Result<NonZeroU32, ConnectError> {
        let name = &self.settings.interface_name;
        let all = net::interfaces()?;
        let found = all.iter().find(|interface| interface.name == *name);
        found.and_then(|interface| NonZeroU32::new(interface.index)).ok_or_else(|| {
            let gone = Error::new(ErrorKind::NotFound, "it is gone");
            ConnectError::System(SysError::new("find the interface", gone).on(name))
        })
    }

    /// The outlet to a group, which all connections that send to the group share.
    fn outlet(&mut self, group: SocketAddr, interface: NonZeroU32) -> Result<Key, ConnectError> {
        let known = self.out.as_ref().and_then(|out| out.find(group));
        let space_bytes = self.space_bytes();
        let out = match &mut self.out {
            Some(out) => out,
            none if Outlets::BYTES <= space_bytes => none.insert(Outlets::open(&self.settings, interface)?),
            _ => return Err(ConnectError::NoMemory),
        };
        if let Some(key) = known {
            out.share(key);
            return Ok(key);
        }
        if Outlets::outlet_bytes(&self.settings) > space_bytes {
            return Err(ConnectError::NoMemory);
        }
        out.add(group, self.own, &self.settings).ok_or(ConnectError::NoMemory)
    }

    /// The member that has joined a group, which all connections that receive from the group share.
    fn member(&mut self, core: &Core, group: SocketAddr, interface: NonZeroU32) -> Result<Key, ConnectError> {
        if let Some((key, _)) = self.members.iter().find(|(_, member)| member.group == group) {
            return Ok(key);
        }
        if Member::BYTES > self.space_bytes() {
            return Err(ConnectError::NoMemory);
        }
        let member = Member::join(group, interface)?;
        member.watch(&core.poller)?;
        self.members.insert(member).map_err(|_| ConnectError::NoMemory)
    }

    /// How many more bytes groups may hold.
    fn space_bytes(&self) -> u64 {
        self.settings.memory_bytes_max.saturating_sub(self.memory_bytes())
    }

    /// How many bytes groups hold.
    pub fn memory_bytes(&self) -> u64 {
        let out_bytes = self.out.as_ref().map_or(0, Outlets::memory_bytes);
        let members = self.members.iter().map(|(_, member)| member.memory_bytes()).sum::<u64>();
        out_bytes + members + (self.links.bytes() + self.members.bytes()) as u64
    }

    /// Takes one message, as [`Transport::send`](crate::transport::Transport::send) demands.
    #[inline]
    pub fn send(
        &mut self,
        core: &mut Core,
        link: u64,
        segments: &[&[u8]],
        op: SendOp,
    ) -> Result<(), SendError> {
        let Some(link) = self.links.get_mut(unpack(link)) else { return Err(SendError::UnknownConnection) };
        let End::Send { outlet, closing: false } = link.end else { return Err(SendError::Disconnected) };
        let Some(out) = &mut self.out else { return Err(SendError::UnknownConnection) };
        let len_bytes = segments.iter().map(|segment| segment.len()).sum();
        out.send(core, outlet, link.connection, segments, len_bytes, op)?;
        link.messages += 1;
        link.bytes += len_bytes as u64;
        Ok(())
    }

    /// Ends a connection: leaves the group at once, or sends what was taken first.
    pub fn disconnect(&mut self, core: &mut Core, link: u64) {
        let key = unpack(link);
        let Some(link) = self.links.get_mut(key) else { return };
        match &mut link.end {
            End::Send { closing, .. } => {
                *closing = true;
                self.closing += 1;
                self.flush(core);
            }
            End::Receive { member } => {
                let (connection, member) = (link.connection, *member);
                if let Some(member) = self.members.get_mut(member) {
                    member.links.retain(|other| *other != key);
                }
                self.links.remove(key);
                self.release(core, End::Receive { member });
                core.closed(connection);
            }
        }
    }

    /// Notes that one connection less uses an outlet or a member, and drops it after the last.
    fn release(&mut self, core: &Core, end: End) {
        match end {
            End::Send { outlet, .. } => {
                if let Some(out) = &mut self.out {
                    out.release(outlet);
                }
            }
            End::Receive { member: key } => {
                if self.members.get(key).is_some_and(|member| member.links.is_empty())
                    && let Some(member) = self.members.remove(key)
                {
                    member.unwatch(&core.poller);
                    self.past.add(&member.counts());
                }
            }
        }
    }

    /// Receives messages, and sends those that wait.
    pub fn progress(&mut self, core: &mut Core) {
        for (_, member) in self.members.iter_mut() {
            member.receive(core, &mut self.links, self.own, self.settings.message_bytes_max);
        }
        self.flush(core);
    }

    /// Sends what waits, as far as the socket has space, and ends the closed connections that only waited for that.
    fn flush(&mut self, core: &mut Core) {
        let Some(out) = &mut self.out else { return };
        out.progress(core);
        if self.closing > 0 {
            self.end_closing(core);
        }
    }

    /// Ends the closed connections that have nothing left to send.
    fn end_closing(&mut self, core: &mut Core) {
        let Some(out) = &self.out else { return };
        let done = |link: &Link| match link.end {
            End::Send { outlet, closing: true } => out.is_sent(outlet),
            _ => false,
        };
        let over: Vec<Key> = self.links.iter().filter(|(_, link)| done(link)).map(|(key, _)| key).collect();
        for key in over {
            if let Some(link) = self.links.remove(key) {
                self.closing -= 1;
                self.release(core, link.end);
                core.closed(link.connection);
            }
        }
    }

    /// Prepares for sleep. Returns when to look again at the latest, if something could not be sent.
    pub fn arm(&mut self, core: &mut Core) -> Option<u64> {
        self.flush(core);
        let waits = self.out.as_ref().is_some_and(Outlets::has_pending);
        waits.then(|| clock::now_ns().saturating_add(SPACE_RETRY_NS))
    }

    /// What is left to do. A message to a group is done when it has left, since nobody acknowledges it.
    pub fn activity(&self) -> Activity {
        if self.out.as_ref().is_some_and(Outlets::has_pending) {
            Activity::Active
        } else if self.is_idle() {
            Activity::Idle
        } else {
            Activity::Drained
        }
    }

    /// The state of the sends of a group connection; `None` if there is no such connection.
    pub fn link_state(&self, link: u64) -> Option<LinkState> {
        let own = self.link(link)?;
        Some(LinkState {
            held: 0,
            drains_by_itself: false,
            send_timeout_ns: own.send_timeout_ns,
            keepalive_ns: own.keepalive_ns,
        })
    }

    /// Sends of a group connection that have not completed; `None` if there is no such connection.
    pub fn unreported(&self, link: u64) -> Option<u32> {
        self.link(link)?;
        let in_progress = self.connection_counters(link).sends_in_progress;
        Some(u32::try_from(in_progress).unwrap_or(u32::MAX))
    }

    /// Changes a group connection, or the defaults for those made from now on.
    pub fn configure(&mut self, setting: Setting) {
        match setting {
            Setting::SendTimeout { link, timeout_ns } => {
                if let Some(link) = self.link_mut(link) {
                    link.send_timeout_ns = timeout_ns;
                }
            }
            Setting::Keepalive { link, timeout_ns } => {
                if let Some(link) = self.link_mut(link) {
                    link.keepalive_ns = timeout_ns;
                }
            }
            Setting::Defaults { send_timeout_ns, keepalive_ns } => {
                self.settings.send_timeout_ns = send_timeout_ns;
                self.settings.keepalive_ns = keepalive_ns;
            }
            Setting::Lent { .. } | Setting::SetApart { .. } | Setting::Loans { .. } => {}
        }
    }

    /// The connection of a link; `None` if it is not a group connection.
    pub(super) fn link(&self, link: u64) -> Option<&Link> {
        if is_group(link) { self.links.get(unpack(link)) } else { None }
    }

    fn link_mut(&mut self, link: u64) -> Option<&mut Link> {
        if is_group(link) { self.links.get_mut(unpack(link)) } else { None }
    }
}

/// The address of a group on the device's interface. A URI may name an interface, which then must be that one.
fn at_interface(group: SocketAddr, interface: NonZeroU32, name: &str) -> Result<SocketAddr, String> {
    let SocketAddr::V6(mut v6) = group else { return Ok(group) };
    if v6.scope_id() != 0 && v6.scope_id() != interface.get() {
        return Err(format!(
            "this endpoint is on interface {name}; write %{name} or nothing, or use the device of the other interface"
        ));
    }
    v6.set_scope_id(interface.get());
    Ok(v6.into())
}
