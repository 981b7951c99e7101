//! A carrier over a network that a simulation provides.

mod network;

pub use network::{Network, SimulatedNode, TooLong};

use super::Datagram;
use super::carrier::{Anonymous, Carrier, Dead, Narrow, Nobody, Paths, Report, Who};
use super::open::{Numbers, Setup};
use super::sealed::{MEMORY_SHARE, Sealed};
use super::udp::report::bonded_paths;
use super::udp_uri;
use crate::device::DeviceInfo;
use crate::engine::poller::Poller;
use crate::error::CreateError;
use crate::limits;
use crate::options::Options;
use crate::sealing::Sealing;
use crate::transport::Transport;
use cci_proto::{Address, Transmit};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::ControlFlow;

/// The most datagrams that one receive call takes.
const RECV_MAX: usize = 16;

/// Opens an endpoint's transport on a simulated network.
pub(crate) fn open(
    node: &SimulatedNode,
    network: Box<dyn Network>,
    device: &DeviceInfo,
    options: &Options,
) -> Result<Box<dyn Transport>, CreateError> {
    let sealing = Sealing::of(device, options)?;
    let setup = Setup {
        uri: match node.second_address {
            None => udp_uri::format(node.address, None),
            Some(second) => udp_uri::format_both([(node.address, None), (second, None)]),
        },
        secret: node.secret,
        datagram_bytes_max: node.datagram_bytes_max,
        receive_buffer_bytes: node.receive_buffer_bytes,
        reserved_bytes: sealing.as_ref().map_or(0, |_| options.memory_bytes_max / MEMORY_SHARE),
        numbers: Numbers {
            first_seq: node.first_seq,
            connections_max: node.connections_max.unwrap_or(limits::CONNECTIONS_MAX),
            requests_max: node.requests_max.unwrap_or(limits::REQUESTS_MAX),
        },
    };
    let carrier = Sim {
        network,
        address: node.address,
        second_address: node.second_address,
        batch: node.batch.max(1),
        input: VecDeque::new(),
        out: VecDeque::new(),
        buffer: Vec::new(),
        begun: None,
    };
    let Some(sealing) = sealing else {
        return Ok(Box::new(Datagram::open(carrier, setup, device, options)?));
    };
    let own = Some(Address::from(node.address));
    let carrier = Sealed::new(carrier, sealing, own, &setup, options.memory_bytes_max)?;
    Ok(Box::new(Datagram::open(carrier, setup, device, options)?))
}

/// A datagram that waits for space in the network.
struct Outgoing {
    by: u8,
    to: SocketAddr,
    fragment: bool,
    bytes: Box<[u8]>,
}

/// The last datagram that was begun: where it goes, and where in the buffer it begins.
struct Begun {
    by: u8,
    to: SocketAddr,
    fragment: bool,
    start: usize,
}

struct Sim {
    network: Box<dyn Network>,
    address: SocketAddr,
    second_address: Option<SocketAddr>,
    /// How many datagrams `out` takes.
    batch: usize,
    input: VecDeque<(u8, SocketAddr, Box<[u8]>)>,
    out: VecDeque<Outgoing>,
    buffer: Vec<u8>,
    begun: Option<Begun>,
}

impl Carrier for Sim {
    type Identities = Anonymous;

    fn receive(&mut self) -> Result<usize, Dead> {
        if !self.input.is_empty() {
            return Ok(self.input.len());
        }
        self.input.extend(std::iter::from_fn(|| self.network.receive()).take(RECV_MAX));
        Ok(self.input.len())
    }

    fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    fn arrived(
        &mut self,
        mut datagram: impl FnMut(Address, &[u8], &dyn Who) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        while let Some((by, from, bytes)) = self.input.pop_front() {
            datagram(Address::from(from).with_via(by), &bytes, &Nobody)?;
        }
        ControlFlow::Continue(())
    }

    fn flush(&mut self, mut narrowed: impl FnMut(Narrow)) -> Result<(), Dead> {
        while self.network.has_space()
            && let Some(Outgoing { by, to, fragment, bytes }) = self.out.pop_front()
        {
            if let Err(narrow) = self.network.send(by, to, &bytes, fragment) {
                let datagram_bytes_max = narrow.datagram_bytes_max;
                narrowed(Narrow { to: Address::from(to).with_via(by), datagram_bytes_max });
            }
        }
        Ok(())
    }

    fn has_pending(&self) -> bool {
        !self.out.is_empty()
    }

    fn arm(&mut self, _: &Poller, watch: bool) -> Result<bool, Dead> {
        Ok(watch)
    }

    fn parse(&self, uri: &str) -> Result<Paths, String> {
        Ok(match udp_uri::parse_peer(uri)? {
            (first, Some(second)) if self.second_address.is_some() => {
                Paths::Bonded([first.into(), Address::from(second).with_via(1)])
            }
            (first, _) => Paths::One(first.into()),
        })
    }

    fn reaches(&self, peer: Address) -> bool {
        peer.socket_addr().is_some_and(|peer| peer.is_ipv6() == self.address.is_ipv6())
    }

    fn report(&self, report: Report<'_>) {
        if let Report::Explanation { connection, paths, into } = report {
            into.peer = udp_uri::of(connection.peer);
            if let (Some(paths), Some(second)) = (paths, self.second_address) {
                into.paths = bonded_paths(paths, [self.address, second]);
            }
        }
    }
}

impl Transmit for Sim {
    fn has_space(&self) -> bool {
        self.out.len() < self.batch
    }

    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]> {
        if !self.has_space() {
            return None;
        }
        let (by, to) = (to.via(), to.socket_addr()?);
        if self.buffer.len() < len_max + 8 {
            self.buffer.resize(len_max + 8, 0);
        }
        let start = self.buffer.as_ptr().align_offset(8);
        self.begun = Some(Begun { by, to, fragment, start });
        self.buffer.get_mut(start..start + len_max)
    }

    fn commit(&mut self, len: usize) {
        if let Some(Begun { by, to, fragment, start }) = self.begun.take()
            && let Some(bytes) = self.buffer.get(start..start + len)
        {
            self.out.push_back(Outgoing { by, to, fragment, bytes: bytes.into() });
        }
    }
}
