//! A network given from outside, for simulations.

mod network;

pub use network::{Network, SimulatedNode, TooLong};

use super::Datagram;
use super::carrier::{Carrier, Narrow, Nobody, Received, Who};
use super::open::Sizes;
use super::sealed::{MEMORY_SHARE, Sealed};
use super::udp_uri;
use crate::counters::DropReason;
use crate::device::DeviceInfo;
use crate::engine::poller::Poller;
use crate::error::CreateError;
use crate::explain::Explanation;
use crate::options::Options;
use crate::sealing::Sealing;
use crate::transport::Transport;
use cci_proto::{Address, ConnectionInfo, Transmit};
use cci_sys::SysError;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Datagrams taken by one receive call at most.
const RECV_MAX: usize = 16;

/// Opens an endpoint's transport on such a network.
pub(crate) fn open(
    node: &SimulatedNode,
    network: Box<dyn Network>,
    device: &DeviceInfo,
    options: &Options,
) -> Result<Box<dyn Transport>, CreateError> {
    let sealing = Sealing::of(device, options)?;
    let sizes = Sizes {
        datagram_bytes_max: node.datagram_bytes_max,
        receive_buffer_bytes: node.receive_buffer_bytes,
        reserved_bytes: sealing.as_ref().map_or(0, |_| options.memory_bytes_max / MEMORY_SHARE),
    };
    let carrier = Sim {
        network,
        address: node.address,
        secret: node.secret,
        batch: node.batch.max(1),
        input: Vec::new(),
        out: VecDeque::new(),
        buffer: Vec::new(),
        begun: None,
        too_big: None,
    };
    let uri = udp_uri::format(node.address, None);
    let Some(sealing) = sealing else {
        return Ok(Box::new(Datagram::open(carrier, uri, sizes, device, options)?));
    };
    let own = Some(Address::from(node.address));
    let carrier = Sealed::new(carrier, sealing, own, node.datagram_bytes_max, options.memory_bytes_max)?;
    Ok(Box::new(Datagram::open(carrier, uri, sizes, device, options)?))
}

struct Outgoing {
    to: SocketAddr,
    fragment: bool,
    bytes: Box<[u8]>,
}

/// Where the datagram begun goes, and where in the buffer it is.
struct Begun {
    to: SocketAddr,
    fragment: bool,
    start: usize,
}

struct Sim {
    network: Box<dyn Network>,
    address: SocketAddr,
    secret: [u8; 32],
    /// Datagrams that `out` takes.
    batch: usize,
    input: Vec<(SocketAddr, Box<[u8]>)>,
    out: VecDeque<Outgoing>,
    buffer: Vec<u8>,
    begun: Option<Begun>,
    too_big: Option<Narrow>,
}

impl Carrier for Sim {
    fn receive(&mut self) -> Received {
        self.input.clear();
        self.input.extend(std::iter::from_fn(|| self.network.receive()).take(RECV_MAX));
        Received::Datagrams(self.input.len())
    }

    fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    fn secret(&self) -> Result<[u8; 32], SysError> {
        Ok(self.secret)
    }

    fn arrived(&mut self, mut datagram: impl FnMut(Address, &[u8], &dyn Who)) {
        self.input.drain(..).for_each(|(from, bytes)| datagram(Address::from(from), &bytes, &Nobody));
    }

    fn flush(&mut self) -> bool {
        while self.network.has_space()
            && let Some(Outgoing { to, fragment, bytes }) = self.out.pop_front()
        {
            if let Err(narrow) = self.network.send(to, &bytes, fragment) {
                let datagram_bytes_max = narrow.datagram_bytes_max;
                self.too_big = Some(Narrow { to: Address::from(to), datagram_bytes_max });
            }
        }
        false
    }

    fn pending(&self) -> usize {
        self.out.len()
    }

    fn take_too_big(&mut self) -> Option<Narrow> {
        self.too_big.take()
    }

    fn parse(&self, uri: &str) -> Result<Address, String> {
        udp_uri::parse(uri).map(Address::from)
    }

    fn uri_of(&self, peer: Address) -> String {
        peer.socket_addr().map_or_else(String::new, |peer| udp_uri::format(peer, None))
    }

    fn reaches(&self, peer: Address) -> bool {
        peer.socket_addr().is_some_and(|peer| peer.is_ipv6() == self.address.is_ipv6())
    }

    fn watch(&mut self, _: &Poller, watch: bool) -> bool {
        watch
    }

    fn memory(&self, _: &mut Vec<(&'static str, u64)>) {}

    fn counters(&self, _: &mut Vec<(&'static str, u64)>, _: &mut Vec<DropReason>) {}

    fn explain(&self, _: &ConnectionInfo, _: &mut Explanation) {}
}

impl Transmit for Sim {
    fn has_space(&self) -> bool {
        self.out.len() < self.batch
    }

    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]> {
        if !self.has_space() {
            return None;
        }
        let to = to.socket_addr()?;
        if self.buffer.len() < len_max + 8 {
            self.buffer.resize(len_max + 8, 0);
        }
        let start = self.buffer.as_ptr().align_offset(8);
        self.begun = Some(Begun { to, fragment, start });
        self.buffer.get_mut(start..start + len_max)
    }

    fn commit(&mut self, len: usize) {
        if let Some(Begun { to, fragment, start }) = self.begun.take()
            && let Some(bytes) = self.buffer.get(start..start + len)
        {
            self.out.push_back(Outgoing { to, fragment, bytes: bytes.into() });
        }
    }
}
