//! Two UDP sockets, on two interfaces, under one protocol endpoint: the `via` of an address is the number of its socket
//! (CCI-032).

use super::{Udp, report};
use crate::engine::poller::Poller;
use crate::transport::datagram::carrier::{Anonymous, Carrier, Dead, Narrow, Paths, Report, Who};
use crate::transport::datagram::udp_uri;
use cci_memory::fallible;
use cci_proto::{Address, Transmit};
use cci_sys::{clock, udp::DATAGRAM_BYTES_MAX};
use std::net::SocketAddr;
use std::ops::ControlFlow;

/// The longest time in which a socket may take nothing before its waiting datagrams are given up. Its interface may never take
/// anything again, and the protocol sends them by the other one.
const CLOGGED_NS_MAX: u64 = 20_000_000;
/// The names of each socket's counters.
const NAMES: [[&str; 4]; 2] = [
    ["path1_datagrams_sent", "path1_datagram_bytes_sent", "path1_datagrams_received", "path1_given_up"],
    ["path2_datagrams_sent", "path2_datagram_bytes_sent", "path2_datagrams_received", "path2_given_up"],
];

/// One socket, and whether it takes anything.
struct Side {
    udp: Udp,
    /// Since when the socket has not taken all that it was given, and how many datagrams it had taken by then.
    clogged: Option<(u64, u64)>,
    /// Datagrams given up because the socket took nothing.
    given_up: u64,
}

impl Side {
    fn flush(&mut self, narrowed: impl FnMut(Narrow)) -> Result<(), Dead> {
        let flushed = self.udp.flush(narrowed);
        if !self.udp.has_pending() {
            self.clogged = None;
            return flushed;
        }
        let taken = self.udp.out.stats().datagrams;
        match self.clogged {
            Some((since_ns, before)) if before == taken => {
                if clock::now_ns().saturating_sub(since_ns) > CLOGGED_NS_MAX {
                    self.given_up += self.udp.out.pending() as u64;
                    self.udp.out.clear();
                    self.clogged = None;
                }
            }
            _ => self.clogged = Some((clock::now_ns(), taken)),
        }
        flushed
    }
}

/// A carrier of two sockets, which is dead when both are. Datagrams for a socket that takes nothing are lost, so that those for
/// the other socket need not wait.
pub(super) struct Bonded {
    sides: [Side; 2],
    /// The buffer for datagrams that are lost.
    scrap: Box<[u8]>,
    /// The socket whose buffer was handed out last; `None` if it was `scrap`.
    open: Option<usize>,
}

impl Bonded {
    /// Returns `None` if there is no memory.
    pub fn new(sides: [Udp; 2]) -> Option<Bonded> {
        Some(Bonded {
            sides: sides.map(|udp| Side { udp, clogged: None, given_up: 0 }),
            scrap: fallible::zeroed(DATAGRAM_BYTES_MAX + 8)?,
            open: None,
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

    /// The addresses of a peer with two interfaces, each by the socket that is nearest to it.
    fn pair_up(&self, [first, second]: [SocketAddr; 2]) -> Result<[Address; 2], String> {
        let locals = self.locals();
        let straight = udp_uri::nearness(first, locals[0]) + udp_uri::nearness(second, locals[1]);
        let crossed = udp_uri::nearness(first, locals[1]) + udp_uri::nearness(second, locals[0]);
        let by = if crossed > straight { [1, 0] } else { [0, 1] };
        Ok([by_socket(first, locals, by[0])?, by_socket(second, locals, by[1])?])
    }
}

/// The address of a peer by one of the sockets, whose own addresses are `locals`.
fn by_socket(peer: SocketAddr, locals: [SocketAddr; 2], by: usize) -> Result<Address, String> {
    udp_uri::with_local_zone(peer, locals[by]).map(|peer| Address::from(peer).with_via(by as u8))
}

impl Carrier for Bonded {
    type Identities = Anonymous;

    fn receive(&mut self) -> Result<usize, Dead> {
        let [first, second] = &mut self.sides;
        match (first.udp.receive(), second.udp.receive()) {
            (Err(Dead), Err(Dead)) => Err(Dead),
            (first, second) => Ok(first.unwrap_or(0) + second.unwrap_or(0)),
        }
    }

    fn arrived(
        &mut self,
        mut datagram: impl FnMut(Address, &[u8], &dyn Who) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        for (via, side) in (0..).zip(&mut self.sides) {
            side.udp.arrived(|from, bytes, who| datagram(from.with_via(via), bytes, who))?;
        }
        ControlFlow::Continue(())
    }

    fn flush(&mut self, mut narrowed: impl FnMut(Narrow)) -> Result<(), Dead> {
        let [first, second] = &mut self.sides;
        let first = first.flush(&mut narrowed);
        let second = second.flush(|narrow| narrowed(Narrow { to: narrow.to.with_via(1), ..narrow }));
        first.or(second)
    }

    fn has_pending(&self) -> bool {
        self.sides.iter().any(|side| side.udp.has_pending())
    }

    fn arm(&mut self, poller: &Poller, watch: bool) -> Result<bool, Dead> {
        let [first, second] = &mut self.sides;
        let (first, second) = (first.udp.arm(poller, watch)?, second.udp.arm(poller, watch)?);
        Ok(first && second)
    }

    fn parse(&self, uri: &str) -> Result<Paths, String> {
        match udp_uri::parse_peer(uri)? {
            (first, Some(second)) => self.pair_up([first, second]).map(Paths::Bonded),
            (peer, None) => {
                let locals = self.locals();
                let by = usize::from(udp_uri::nearness(peer, locals[1]) > udp_uri::nearness(peer, locals[0]));
                by_socket(peer, locals, by).map(Paths::One)
            }
        }
    }

    fn reaches(&self, peer: Address) -> bool {
        self.side(peer).udp.reaches(peer)
    }

    fn report(&self, report: Report<'_>) {
        let [first, second] = &self.sides;
        match report {
            Report::Memory(into) => {
                first.udp.report(Report::Memory(&mut *into));
                second.udp.report(Report::Memory(&mut *into));
                into.push(("room for what is given up", self.scrap.len() as u64));
            }
            Report::Counters { into, drops } => {
                report::counters([&first.udp, &second.udp], into, drops);
                for (names, side) in NAMES.into_iter().zip(&self.sides) {
                    let (sent, received) = (side.udp.out.stats(), side.udp.input.stats());
                    let counts = [sent.datagrams, sent.bytes, received.datagrams, side.given_up];
                    into.extend(names.into_iter().zip(counts));
                }
            }
            Report::Explanation { connection, paths, into } => {
                report::explain(&self.side(connection.peer).udp, connection, into);
                if let Some(paths) = paths {
                    into.paths.splice(..0, report::bonded_paths(paths, self.locals()));
                }
            }
        }
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
        // Space comes with the next flush, unless the socket takes nothing at present.
        side.clogged?;
        side.given_up += 1;
        self.open = None;
        let start = self.scrap.as_ptr().align_offset(8).min(8);
        self.scrap.get_mut(start..start + len_max)
    }

    fn commit(&mut self, len: usize) {
        if let Some(by) = self.open {
            self.sides[by].udp.commit(len);
        }
    }
}
