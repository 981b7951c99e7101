//! Somebody who sends any IPv4 packet, from any source: datagrams in others' names, ICMP, and datagrams of multicast groups.
//!
//! Takes root. What the kernel concludes of a forged packet holds for all of a network namespace, so that a scene with such a peer
//! plays in one of its own: [`Stage::apart`](super::Stage::apart).

use super::datagram::VERSION;
use super::script::{Act, Site, Wire, act};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Type 13 of datagrams.
const GROUP: u8 = 13;
const IP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const DATAGRAM_BYTES_MAX: usize = 1 << 16;
/// ICMP: destination unreachable, fragmentation needed.
const ICMP_TOO_BIG: [u8; 2] = [3, 4];

/// What comes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A datagram of the group that is watched.
    Group,
}

/// A datagram to a multicast group.
#[derive(Clone, Debug)]
pub struct Group {
    /// From where it comes.
    pub source: SocketAddrV4,
    /// The group that it is sent to.
    pub to: SocketAddrV4,
    /// The group that it names.
    pub names: SocketAddrV4,
    /// The sender's field.
    pub sender: u64,
    /// Its number.
    pub number: u64,
    /// Records.
    pub body: Vec<u8>,
}

impl Group {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION << 4 | GROUP, 0];
        bytes.extend((self.body.len() as u16 / 8).to_le_bytes());
        bytes.extend(self.names.port().to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(self.sender.to_le_bytes());
        bytes.extend(self.number.to_le_bytes());
        bytes.extend(self.names.ip().to_ipv6_mapped().octets());
        bytes.extend(&self.body);
        bytes
    }
}

/// The state of such a peer.
pub struct Raw {
    socket: OwnedFd,
    watched: Option<(UdpSocket, SocketAddrV4)>,
    /// The datagram of the group that came last.
    pub group: Option<Group>,
}

impl Wire for Raw {
    type Kind = Kind;

    fn open(_: &Site) -> io::Result<Raw> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let raw = Some(ipproto::RAW);
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, flags, raw)?;
        sockopt::set_ip_multicast_if(&socket, &LOOPBACK)?;
        Ok(Raw { socket, watched: None, group: None })
    }

    fn take(&mut self) -> Option<Kind> {
        let (socket, to) = self.watched.as_ref()?;
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let (len, SocketAddr::V4(source)) = socket.recv_from(&mut buffer).ok()? else { return None };
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| buffer[at + byte]));
        let body = buffer.get(40..len).unwrap_or_default().to_vec();
        self.group = Some(Group { source, to: *to, names: *to, sender: word(8), number: word(16), body });
        Some(Kind::Group)
    }
}

impl Raw {
    /// Sends a packet without a header; the kernel adds what is zero in ours.
    fn packet(&self, from: Ipv4Addr, to: Ipv4Addr, protocol: u8, payload: &[u8]) {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet.extend(payload);
        let to = SocketAddrV4::new(to, 0);
        // What does not go is lost, as packets may be.
        let _ = rustix::net::sendto(&self.socket, &packet, SendFlags::empty(), &to);
    }

    /// Sends a datagram from any address.
    pub fn udp(&self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) {
        self.packet(*from.ip(), *to.ip(), 17, &udp_packet(from, to, payload));
    }
}

fn udp_packet(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let len = (UDP_BYTES + payload.len()) as u16;
    let words = [from.port(), to.port(), len, 0];
    words.iter().flat_map(|word| word.to_be_bytes()).chain(payload.iter().copied()).collect()
}

fn internet_checksum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// ICMP's word of a router to `from`: a datagram of 1,400 bytes to `to` was longer than `mtu_bytes`.
pub fn fragmentation_needed(from: SocketAddrV4, to: SocketAddrV4, mtu_bytes: u16) -> Vec<u8> {
    // It shows the beginning of what it is about.
    let len = (IP_BYTES + UDP_BYTES + 1_400) as u16;
    let mut about = vec![0x45, 0];
    about.extend(len.to_be_bytes());
    about.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    about.extend(from.ip().octets());
    about.extend(to.ip().octets());
    let sum = internet_checksum(&about);
    about[10..12].copy_from_slice(&sum.to_be_bytes());
    about.extend(&udp_packet(from, to, &[0; 1_400])[..UDP_BYTES]);
    let mut icmp = ICMP_TOO_BIG.to_vec();
    icmp.extend([0; 4]);
    icmp.extend(mtu_bytes.to_be_bytes());
    icmp.extend(&about);
    let sum = internet_checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    icmp
}

/// Forges that word, on the way of the victim's datagrams to `to`.
pub fn too_big(from: SocketAddrV4, to: SocketAddrV4, mtu_bytes: u16) -> Act<Raw> {
    act(move |raw: &mut Raw| {
        raw.packet(*to.ip(), *from.ip(), 1, &fragmentation_needed(from, to, mtu_bytes));
    })
}

/// Joins a group, to see what others send.
pub fn watch(group: SocketAddrV4) -> Act<Raw> {
    act(move |raw: &mut Raw| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("an option");
        rustix::net::bind(&socket, &group).expect("the group's address");
        sockopt::set_ip_add_membership(&socket, group.ip(), &LOOPBACK).expect("a member");
        raw.watched = Some((UdpSocket::from(socket), group));
    })
}

/// Sends a datagram to the group in the name of whoever sent the last one that came.
pub fn spoof(falsify: impl Fn(&mut Group) + 'static) -> Act<Raw> {
    act(move |raw: &mut Raw| {
        let Some(mut group) = raw.group.clone() else { return };
        falsify(&mut group);
        raw.udp(group.source, group.to, &group.bytes());
    })
}
