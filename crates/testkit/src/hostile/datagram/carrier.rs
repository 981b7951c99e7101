//! What carries a hostile peer's datagrams: a UDP socket, or frames of Ethernet.

use cci_sys::ethernet::{FrameHeader, FrameSocket, Link, Mac};
use cci_sys::packet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;

/// The interface of hostile peers, in a namespace of the scene's own.
const INTERFACE: &str = "b0";
/// Endpoint numbers of hostile peers begin here.
const ENDPOINT: u32 = 7_000;
/// Where the ethertype stands in a frame.
const ETHERTYPE_AT: usize = 12;
/// The ethertype of a VLAN tag.
const VLAN_PROTOCOL: u16 = 0x8100;

/// Carries datagrams to the victim and back.
pub enum Carrier {
    /// From a socket of its own.
    Udp {
        /// That socket.
        socket: UdpSocket,
        /// The victim.
        to: SocketAddr,
    },
    /// In frames.
    Eth {
        /// What sends and receives them.
        socket: Box<packet::Socket>,
        /// What sends them instead, if it is another interface.
        vlan: Option<Box<packet::Socket>>,
        /// From whom, and to whom.
        header: FrameHeader,
        /// A VLAN tag that is written into each frame: the tag's two words.
        tag: Option<[u8; 4]>,
    },
}

fn bind(from: IpAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((from, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// A socket for frames on an interface, and that interface.
fn frames(interface: &str, endpoint: u32) -> io::Result<(Link, Box<packet::Socket>)> {
    let link = Link::of(interface).map_err(io::Error::from)?;
    let options = packet::Options {
        interface_index: link.index,
        endpoint,
        frame_bytes_max: 1514,
        recv_frames: 64,
        send_frames: 64,
    };
    Ok((link, Box::new(packet::Socket::open(&options).map_err(io::Error::from)?)))
}

impl Carrier {
    /// Towards a victim; `number` is the peer's.
    pub(super) fn open(victim: &str, number: u64) -> io::Result<Carrier> {
        let strange = || io::Error::other(format!("no datagrams go to {victim}"));
        if let Some(at) = victim.strip_prefix("udp://") {
            let to: SocketAddr = at.parse().map_err(|_| strange())?;
            return Ok(Carrier::Udp { socket: bind(Ipv4Addr::LOCALHOST.into())?, to });
        }
        let place = victim.strip_prefix("eth://").ok_or_else(strange)?;
        let [_, mac, endpoint] = place.split('/').collect::<Vec<_>>()[..] else { return Err(strange()) };
        let mut bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap_or(0));
        let to: Mac = std::array::from_fn(|_| bytes.next().unwrap_or(0));
        let own = ENDPOINT + number as u32;
        let (link, socket) = frames(INTERFACE, own)?;
        let to_endpoint = endpoint.parse().map_err(|_| strange())?;
        let header = FrameHeader { to, from: link.mac, to_endpoint, from_endpoint: own };
        Ok(Carrier::Eth { socket, vlan: None, header, tag: None })
    }

    /// From another address from now on.
    pub(super) fn rebind(&mut self, from: IpAddr) {
        if let Carrier::Udp { socket, .. } = self {
            *socket = bind(from).expect("an address of this machine");
        }
    }

    /// In frames of another VLAN from now on, sent by an interface for that: the kernel passes the tag on beside the frame.
    pub(super) fn enter_vlan(&mut self, number: u16) {
        let Carrier::Eth { vlan, header, .. } = self else { return };
        let name = format!("{INTERFACE}.{number}");
        let run = |words: &str| Command::new("ip").args(words.split(' ')).status();
        // Another peer may have made it.
        let _ = run(&format!("link add link {INTERFACE} name {name} type vlan id {number}"));
        run(&format!("link set {name} up")).expect("ip");
        *vlan = Some(frames(&name, header.from_endpoint).expect("an interface").1);
    }

    /// With a VLAN tag written into each frame from now on.
    pub(super) fn write_tag(&mut self, number: u16) {
        if let Carrier::Eth { tag, .. } = self {
            let ([n0, n1], [p0, p1]) = (number.to_be_bytes(), VLAN_PROTOCOL.to_be_bytes());
            *tag = Some([p0, p1, n0, n1]);
        }
    }

    /// In the name of another interface from now on.
    pub(super) fn spoof(&mut self, mac: Mac) {
        if let Carrier::Eth { header, .. } = self {
            header.from = mac;
        }
    }

    /// Where the victim can reach this peer.
    pub(super) fn uri(&self) -> Option<String> {
        match self {
            Carrier::Udp { socket, .. } => Some(format!("udp://{}", socket.local_addr().ok()?)),
            Carrier::Eth { header, .. } => {
                let mac = header.from.map(|byte| format!("{byte:02x}")).join(":");
                Some(format!("eth://{INTERFACE}/{mac}/{}", header.from_endpoint))
            }
        }
    }

    pub(super) fn send(&mut self, datagram: &[u8]) {
        match self {
            // What does not go is lost, as datagrams may be.
            Carrier::Udp { socket, to } => drop(socket.send_to(datagram, *to)),
            Carrier::Eth { socket, vlan, header, tag } => {
                let socket = vlan.as_mut().unwrap_or(socket);
                let mut frame = header.emit(datagram.len() as u16).to_vec();
                frame.extend_from_slice(datagram);
                let tag = tag.iter().flatten().copied();
                frame.splice(ETHERTYPE_AT..ETHERTYPE_AT, tag);
                if socket.space() == 0 {
                    let _ = socket.flush();
                }
                if let Some(place) = socket.begin(frame.len()) {
                    place.copy_from_slice(&frame);
                    socket.commit(frame.len());
                    let _ = socket.flush();
                }
            }
        }
    }

    pub(super) fn recv(&mut self, buffer: &mut [u8]) -> Option<usize> {
        match self {
            Carrier::Udp { socket, .. } => socket.recv_from(buffer).ok().map(|(len, _)| len),
            Carrier::Eth { socket, .. } => {
                let len = socket.receive().and_then(|frame| {
                    let (_, datagram) = FrameHeader::parse(frame).ok()?;
                    buffer.get_mut(..datagram.len())?.copy_from_slice(datagram);
                    Some(datagram.len())
                });
                socket.release();
                len
            }
        }
    }
}
