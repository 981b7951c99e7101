//! Two UDP sockets, on two interfaces, under one protocol endpoint: an address's `via` says by which (CCI-032).

use super::{Udp, report};
use crate::counters::DropReason;
use crate::engine::poller::Poller;
use crate::explain::Explanation;
use crate::transport::datagram::carrier::{Carrier, Narrow, Received, Who};
use crate::transport::datagram::udp_uri;
use cci_memory::fallible;
use cci_proto::{Address, ConnectionInfo, Transmit};
use cci_sys::{clock, udp::DATAGRAM_BYTES_MAX};
use std::net::SocketAddr;

/// For how long a socket may take nothing before what waits for it is given up: its interface may never take anything
/// again, and the protocol sends it by the other.
const CLOGGED_NS_MAX: u64 = 20_000_000;
/// Names of counters by socket.
const NAMES: [[&str; 4]; 2] = [
    ["path1_datagrams_sent", "path1_datagram_bytes_sent", "path1_datagrams_received", "path1_given_up"],
    ["path2_datagrams_sent", "path2_datagram_bytes_sent", "path2_datagrams_received", "path2_given_up"],
];

/// One socket, and whether it takes anything.
struct Side {
    udp: Udp,
    /// Since when it has not taken all that it was given, and what it had taken then.
    clogged: Option<(u64, u64)>,
    /// Datagrams given up because it took nothing.
    given_up: u64,
}

impl Side {
    /// True: the socket has just died.
    fn flush(&mut self) -> bool {
        let died = self.udp.flush();
        if self.udp.pending() == 0 {
            self.clogged = None;
            return died;
        }
        let taken = self.udp.out.stats().datagrams;
        match self.clogged {
            Some((since_ns, before)) if before == taken => {
                if clock::now_ns().saturating_sub(since_ns) > CLOGGED_NS_MAX {
                    self.given_up += self.udp.pending() as u64;
                    self.udp.out.clear();
                    self.clogged = None;
                }
            }
            _ => self.clogged = Some((clock::now_ns(), taken)),
        }
        died
    }
}

/// Two sockets. Datagrams for one that takes nothing are lost rather than keep those for the other waiting.
pub(super) struct Bonded {
    sides: [Side; 2],
    /// Where datagrams are written that will be lost.
    nowhere: Box<[u8]>,
    /// Whose buffer was handed out last; None: `nowhere`.
    open: Option<usize>,
    /// The one that has died, if one has.
    dead: usize,
}

impl Bonded {
    /// None: there is no memory.
    pub fn new(sides: [Udp; 2]) -> Option<Bonded> {
        Some(Bonded {
            sides: sides.map(|udp| Side { udp, clogged: None, given_up: 0 }),
            nowhere: fallible::zeroed(DATAGRAM_BYTES_MAX + 8)?,
            open: None,
            dead: 0,
        })
    }

    fn locals(&self) -> [SocketAddr; 2] {
        let [first, second] = &self.sides;
        [first.udp.local(), second.udp.local()]
    }

    fn side(&self, address: Address) -> &Side {
        let [first, second] = &self.sides;
        if address.via() == 0 { first } else { second }
    }

    /// Where to send to reach these from here, each by the socket that is nearest to it.
    fn pair_up(&self, [first, second]: [SocketAddr; 2]) -> Result<[Address; 2], String> {
        let locals = self.locals();
        let straight = udp_uri::nearness(first, locals[0]) + udp_uri::nearness(second, locals[1]);
        let crossed = udp_uri::nearness(first, locals[1]) + udp_uri::nearness(second, locals[0]);
        let by = if crossed > straight { [1, 0] } else { [0, 1] };
        let address = |to: SocketAddr, by: usize| {
            udp_uri::with_local_zone(to, locals[by]).map(|to| Address::from(to).with_via(by as u8))
        };
        Ok([address(first, by[0])?, address(second, by[1])?])
    }
}

impl Carrier for Bonded {
    fn receive(&mut self) -> Received {
        let mut count = 0;
        for side in &mut self.sides {
            match side.udp.receive() {
                Received::Datagrams(more) => count += more,
                // The program learns it when no socket is left.
                Received::Failed { first } => self.dead += usize::from(first),
            }
        }
        if self.dead == self.sides.len() {
            self.dead += 1;
            return Received::Failed { first: true };
        }
        Received::Datagrams(count)
    }

    fn arrived(&mut self, mut datagram: impl FnMut(Address, &[u8], &dyn Who)) {
        for (via, side) in (0..).zip(&mut self.sides) {
            side.udp.arrived(|from, bytes, who| datagram(from.with_via(via), bytes, who));
        }
    }

    fn flush(&mut self) -> bool {
        for side in &mut self.sides {
            self.dead += usize::from(side.flush());
        }
        let died = self.dead == self.sides.len();
        self.dead += usize::from(died);
        died
    }

    fn pending(&self) -> usize {
        self.sides.iter().map(|side| side.udp.pending()).sum()
    }

    fn take_too_big(&mut self) -> Option<Narrow> {
        let narrow = |(via, side): (u8, &mut Side)| {
            let narrow = side.udp.take_too_big()?;
            Some(Narrow { to: narrow.to.with_via(via), ..narrow })
        };
        (0..).zip(&mut self.sides).find_map(narrow)
    }

    fn parse(&self, uri: &str) -> Result<Address, String> {
        self.parse_paths(uri).map(|(to, _)| to)
    }

    fn parse_paths(&self, uri: &str) -> Result<(Address, Option<Address>), String> {
        match udp_uri::parse_peer(uri)? {
            (first, Some(second)) => {
                self.pair_up([first, second]).map(|[first, second]| (first, Some(second)))
            }
            (peer, None) => {
                let locals = self.locals();
                let by = usize::from(udp_uri::nearness(peer, locals[1]) > udp_uri::nearness(peer, locals[0]));
                let to = udp_uri::with_local_zone(peer, locals[by])?;
                Ok((Address::from(to).with_via(by as u8), None))
            }
        }
    }

    fn uri_of(&self, peer: Address) -> String {
        self.side(peer).udp.uri_of(peer)
    }

    fn reaches(&self, peer: Address) -> bool {
        self.side(peer).udp.reaches(peer)
    }

    fn watch(&mut self, poller: &Poller, watch: bool) -> bool {
        // Both, also where the first is refused.
        let [first, second] = &mut self.sides;
        let both = [first.udp.watch(poller, watch), second.udp.watch(poller, watch)];
        both == [true; 2]
    }

    fn memory(&self, into: &mut Vec<(&'static str, u64)>) {
        self.sides.iter().for_each(|side| side.udp.memory(into));
        into.push(("room for what is given up", self.nowhere.len() as u64));
    }

    fn counters(&self, into: &mut Vec<(&'static str, u64)>, drops: &mut Vec<DropReason>) {
        let [first, second] = &self.sides;
        report::counters_of([&first.udp, &second.udp], into, drops);
        for (names, side) in NAMES.into_iter().zip(&self.sides) {
            let (sent, received) = (side.udp.out.stats(), side.udp.input.stats());
            into.extend(names.into_iter().zip([
                sent.datagrams,
                sent.bytes,
                received.datagrams,
                side.given_up,
            ]));
        }
    }

    fn explain(&self, info: &ConnectionInfo, into: &mut Explanation) {
        self.side(info.peer).udp.explain(info, into);
    }

    fn local_name(&self, via: u8) -> Option<String> {
        self.sides.get(usize::from(via)).map(|side| side.udp.local().ip().to_string())
    }
}

impl Transmit for Bonded {
    #[inline]
    fn has_space(&self) -> bool {
        self.sides.iter().any(|side| side.udp.has_space())
    }

    fn begin(&mut self, to: Address, len_max: usize, fragment: bool) -> Option<&mut [u8]> {
        let by = usize::from(to.via().min(1));
        let side = &mut self.sides[by];
        if side.udp.has_space() {
            self.open = Some(by);
            return side.udp.begin(to, len_max, fragment);
        }
        // Room comes with the next flush, unless the socket takes nothing just now.
        side.clogged?;
        side.given_up += 1;
        self.open = None;
        let start = self.nowhere.as_ptr().align_offset(8).min(8);
        self.nowhere.get_mut(start..start + len_max)
    }

    fn commit(&mut self, len: usize) {
        if let Some(by) = self.open {
            self.sides[by].udp.commit(len);
        }
    }
}
