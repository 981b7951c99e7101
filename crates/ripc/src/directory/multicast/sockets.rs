//! The sockets of a multicast directory: on each interface one that receives what is sent to the group, and one that sends and
//! gets answers.

use super::limits::{BURST_MAX, DATAGRAM_BYTES_MAX};
use super::outbox::{Source, To};
use super::settings::{Place, Settings};
use cci_sys::event::{Epoll, Interest, Trigger};
use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

/// The kernel's buffer for datagrams that have come, bytes.
const RECEIVE_BYTES: usize = 1 << 20;

struct Interface {
    place: Place,
    /// Bound to the group's address. It receives only what is sent there.
    group: UdpSocket,
    /// Bound to an address of the interface. It sends questions and receives their answers.
    own: UdpSocket,
}

/// The sockets of all interfaces.
pub(super) struct Sockets {
    group: SocketAddr,
    interfaces: Vec<Interface>,
}

impl Sockets {
    /// Opens them.
    ///
    /// # Errors
    /// What was tried on which interface, and what the system says.
    pub fn open(settings: &Settings) -> Result<Sockets, String> {
        let group = settings.group;
        let open = |place: &Place| {
            let refused = |error: io::Error| format!("multicast group {group} on {}: {error}", place.name);
            let heard = hear(group, place).map_err(refused)?;
            let own = speak(group, place, settings.hops).map_err(refused)?;
            Ok(Interface { place: place.clone(), group: heard, own })
        };
        let interfaces: Result<Vec<Interface>, String> = settings.interfaces.iter().map(open).collect();
        Ok(Sockets { group, interfaces: interfaces? })
    }

    /// Watches all of them, with this token.
    pub fn watch(&self, epoll: &Epoll, token: u64) -> Result<(), cci_sys::SysError> {
        for interface in &self.interfaces {
            epoll.add(&interface.group, token, Interest::Read, Trigger::Level)?;
            epoll.add(&interface.own, token, Interest::Read, Trigger::Level)?;
        }
        Ok(())
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// It could not be sent on any interface. The text gives the reason for the last one.
    pub fn send(&self, to: To, bytes: &[u8]) -> Result<(), String> {
        let send = |interface: &Interface, address: SocketAddr| match interface.own.send_to(bytes, address) {
            Ok(_) => Ok(()),
            // The queue is full. The datagram is lost, as any may be.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(format!("multicast on {}: {error}", interface.place.name)),
        };
        match to {
            To::One(source) => self
                .interfaces
                .get(source.interface)
                .map_or(Ok(()), |interface| send(interface, source.address)),
            To::Group => {
                let sent: Vec<Result<(), String>> = self
                    .interfaces
                    .iter()
                    .map(|interface| send(interface, scoped(self.group, &interface.place)))
                    .collect();
                if sent.iter().any(Result::is_ok) { Ok(()) } else { sent.into_iter().collect() }
            }
        }
    }

    /// Receives the datagrams that have come.
    pub fn receive(&self, mut take: impl FnMut(Source, &[u8])) {
        for (index, interface) in self.interfaces.iter().enumerate() {
            receive_from(&interface.group, index, &mut take);
            receive_from(&interface.own, index, &mut take);
        }
    }

    /// Receives the datagrams that have come to the sockets that send questions.
    pub fn receive_answers(&self, mut take: impl FnMut(Source, &[u8])) {
        for (index, interface) in self.interfaces.iter().enumerate() {
            receive_from(&interface.own, index, &mut take);
        }
    }
}

fn receive_from(socket: &UdpSocket, interface: usize, take: &mut impl FnMut(Source, &[u8])) {
    // One byte more, so that a datagram that is too long can be recognised.
    let mut bytes = [0; DATAGRAM_BYTES_MAX + 1];
    for _ in 0..BURST_MAX {
        match socket.recv_from(&mut bytes) {
            Ok((len_bytes, address)) => {
                take(Source { interface, address }, bytes.get(..len_bytes).unwrap_or_default());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
}

/// The group's address on one interface.
fn scoped(group: SocketAddr, place: &Place) -> SocketAddr {
    match group {
        SocketAddr::V4(_) => group,
        SocketAddr::V6(v6) => SocketAddrV6::new(*v6.ip(), v6.port(), 0, place.index).into(),
    }
}

fn socket(group: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM.cloexec(), Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BYTES)?;
    if group.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn hear(group: SocketAddr, place: &Place) -> io::Result<UdpSocket> {
    let socket = socket(group)?;
    // All directories of a host must receive what is sent to the group.
    socket.set_reuse_address(true)?;
    match group.ip() {
        IpAddr::V4(ip) => {
            // Refuse what other sockets of this host have joined on other interfaces.
            socket.set_multicast_all_v4(false)?;
            socket.join_multicast_v4_n(&ip, &InterfaceIndexOrAddress::Index(place.index))?;
        }
        IpAddr::V6(ip) => {
            socket.set_multicast_all_v6(false)?;
            socket.join_multicast_v6(&ip, place.index)?;
        }
    }
    socket.bind(&scoped(group, place).into())?;
    Ok(socket.into())
}

fn speak(group: SocketAddr, place: &Place, hops: u8) -> io::Result<UdpSocket> {
    let socket = socket(group)?;
    match place.address.ip() {
        IpAddr::V4(ip) => {
            socket.set_multicast_if_v4(&ip)?;
            socket.set_multicast_ttl_v4(hops.into())?;
            socket.set_multicast_loop_v4(true)?;
        }
        IpAddr::V6(_) => {
            socket.set_multicast_if_v6(place.index)?;
            socket.set_multicast_hops_v6(hops.into())?;
            socket.set_multicast_loop_v6(true)?;
        }
    }
    socket.bind(&place.address.into())?;
    Ok(socket.into())
}
