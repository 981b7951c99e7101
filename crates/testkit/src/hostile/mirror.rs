//! Somebody on the path who has no key, and gives an endpoint back what it sends to another, from another address.
//!
//! It listens; the victim takes it for its peer. What the victim sends it comes to the victim's own listener, and the answers to
//! that go back. Over UDP and TCP.

use super::script::{Act, Site, Wire, act};
use super::tcp::Stream;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

const DATAGRAM_BYTES_MAX: usize = 1 << 16;

/// What comes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something was given back.
    Reflected,
}

enum Glass {
    /// Where the victim sends to, and where the same comes from.
    Udp([UdpSocket; 2]),
    Tcp {
        listener: TcpListener,
        /// The victim's stream, and the one to the victim.
        streams: Vec<[Stream; 2]>,
    },
}

/// The state of such a peer.
pub struct Mirror {
    victim: SocketAddr,
    glass: Option<Glass>,
    is_tcp: bool,
    buffer: Vec<u8>,
    /// Where the victim's dialling socket is, once it has sent something.
    dials_from: Option<SocketAddr>,
}

impl Wire for Mirror {
    type Kind = Kind;

    fn open(site: &Site) -> io::Result<Mirror> {
        let (scheme, place) = site.uri.split_once("://").unwrap_or_default();
        let victim = place.parse().map_err(|_| io::Error::other(format!("no address in {}", site.uri)))?;
        let (buffer, is_tcp) = (vec![0; DATAGRAM_BYTES_MAX], scheme == "tcp");
        Ok(Mirror { victim, glass: None, is_tcp, buffer, dials_from: None })
    }

    fn take(&mut self) -> Option<Kind> {
        match self.glass.as_mut()? {
            Glass::Udp([front, back]) => {
                if let Ok((len, from)) = front.recv_from(&mut self.buffer) {
                    self.dials_from = Some(from);
                    let _ = back.send_to(&self.buffer[..len], self.victim);
                    return Some(Kind::Reflected);
                }
                let len = back.recv(&mut self.buffer).ok()?;
                let _ = front.send_to(&self.buffer[..len], self.dials_from?);
                Some(Kind::Reflected)
            }
            Glass::Tcp { listener, streams } => {
                if let Ok((stream, _)) = listener.accept() {
                    streams.push([Stream::of(stream), Stream::dial(self.victim)]);
                }
                let moved = streams.iter_mut().map(|[front, back]| front.pass_to(back) | back.pass_to(front));
                (moved.filter(|moved| *moved).count() > 0).then_some(Kind::Reflected)
            }
        }
    }

    fn uri(&self) -> Option<String> {
        match self.glass.as_ref()? {
            Glass::Udp([front, _]) => Some(format!("udp://{}", front.local_addr().ok()?)),
            Glass::Tcp { listener, .. } => Some(format!("tcp://{}", listener.local_addr().ok()?)),
        }
    }
}

/// Listens, and reflects from then on.
pub fn reflect() -> Act<Mirror> {
    act(|mirror: &mut Mirror| {
        let at = (Ipv4Addr::LOCALHOST, 0);
        let glass = if mirror.is_tcp {
            let listener = TcpListener::bind(at).expect("a port");
            listener.set_nonblocking(true).expect("a socket");
            Glass::Tcp { listener, streams: Vec::new() }
        } else {
            Glass::Udp([(); 2].map(|()| {
                let socket = UdpSocket::bind(at).expect("a port");
                socket.set_nonblocking(true).expect("a socket");
                socket
            }))
        };
        mirror.glass = Some(glass);
    })
}
