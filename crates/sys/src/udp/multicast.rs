//! Multicast groups: joining one, and sending to them by a chosen interface.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

use rustix::net::sockopt;

use super::{Options, UdpSocket, set_int};
use crate::error::{Result, SysError, Tried};

/// How a socket sends to groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The interface that datagrams leave by, by its number.
    pub interface: NonZeroU32,
    /// Routers that may pass them on, this link counted: 0 = not beyond this host, 1 = not beyond this link.
    pub hops: u8,
    /// Whether sockets of this host that have joined the group get them, too.
    pub this_host: bool,
}

impl UdpSocket {
    /// Joins `group` at its port, on one interface: a socket bound to the group's address that gets what anybody sends to
    /// that group and port by that interface, and nothing else. Any number of them may join the same; each gets
    /// everything. Dropping the socket leaves the group.
    ///
    /// An IPv6 socket is bound to the interface as well, since the kernel would else hand over what came by others; where
    /// it does not allow that (before Linux 5.7 without `CAP_NET_RAW`), joining fails.
    pub fn join(group: SocketAddr, interface: NonZeroU32, options: Options) -> Result<UdpSocket> {
        let on = |error: SysError| error.on(group);
        let group_at_interface = match group {
            SocketAddr::V4(_) => group,
            SocketAddr::V6(mut v6) => {
                v6.set_scope_id(interface.get());
                v6.into()
            }
        };
        let socket = UdpSocket::bind_with(group_at_interface, Options { share: true, ..options })?;
        match group {
            SocketAddr::V4(v4) => {
                // A socket gets by default whatever group anyone on this host has joined.
                set_int(&socket.fd, libc::SOL_IP, libc::IP_MULTICAST_ALL, 0).map_err(on)?;
                sockopt::set_ip_add_membership_with_ifindex(
                    &socket.fd,
                    v4.ip(),
                    &Ipv4Addr::UNSPECIFIED,
                    interface.get(),
                )
                .tried("join a multicast group (IP_ADD_MEMBERSHIP)")
                .map_err(on)?;
            }
            SocketAddr::V6(v6) => {
                let index = libc::c_int::try_from(interface.get()).unwrap_or(libc::c_int::MAX);
                // Binding to a group of one link has done that already, and it can't be done twice without privilege.
                if !is_one_link(v6.ip()) {
                    set_int(&socket.fd, libc::SOL_SOCKET, libc::SO_BINDTOIFINDEX, index)
                        .map_err(|error| SysError::new("keep to an interface (SO_BINDTOIFINDEX)", error))
                        .map_err(on)?;
                }
                set_int(&socket.fd, libc::SOL_IPV6, libc::IPV6_MULTICAST_ALL, 0).map_err(on)?;
                sockopt::set_ipv6_add_membership(&socket.fd, v6.ip(), interface.get())
                    .tried("join a multicast group (IPV6_JOIN_GROUP)")
                    .map_err(on)?;
            }
        }
        Ok(socket)
    }

    /// Chooses how this socket sends to groups.
    pub fn set_outgoing(&self, outgoing: Outgoing) -> Result<()> {
        let Outgoing { interface, hops, this_host } = outgoing;
        if self.local.is_ipv4() {
            sockopt::set_ip_multicast_if_with_ifindex(
                &self.fd,
                &Ipv4Addr::UNSPECIFIED,
                &Ipv4Addr::UNSPECIFIED,
                interface.get(),
            )
            .tried("choose the interface for groups (IP_MULTICAST_IF)")?;
            sockopt::set_ip_multicast_ttl(&self.fd, hops.into())
                .tried("choose how far to send (IP_MULTICAST_TTL)")?;
            sockopt::set_ip_multicast_loop(&self.fd, this_host)
                .tried("choose whether this host hears us (IP_MULTICAST_LOOP)")
        } else {
            sockopt::set_ipv6_multicast_if(&self.fd, interface.get())
                .tried("choose the interface for groups (IPV6_MULTICAST_IF)")?;
            sockopt::set_ipv6_multicast_hops(&self.fd, hops.into())
                .tried("choose how far to send (IPV6_MULTICAST_HOPS)")?;
            sockopt::set_ipv6_multicast_loop(&self.fd, this_host)
                .tried("choose whether this host hears us (IPV6_MULTICAST_LOOP)")
        }
    }
}

/// Whether the kernel takes the group for one of a single link or host (`ff01::/16`, `ff02::/16`, any flags).
fn is_one_link(ip: &std::net::Ipv6Addr) -> bool {
    matches!(ip.segments()[0] & 0x000f, 1 | 2)
}
