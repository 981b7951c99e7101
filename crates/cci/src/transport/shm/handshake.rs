//! How connections are made: the life of a UNIX socket from the first knock to a link or a refusal.
//!
//! Nothing is mapped before the server's program has accepted. Each side makes the ring that it reads: its size is
//! that side's to choose, and its memory is charged there. Both look at the other's credentials first.

use super::common::Common;
use super::connections::State;
use super::hand::{Half, Hand, Peer, Side, Stage};
use super::link::{Ends, Link};
use super::out::Control;
use super::rma::channel::RECORD_BYTES_MAX;
use super::wire::{self, NotUnderstood, PeerConn, Said, kind};
use super::{RING_BYTES_PEER_MAX, Shm};
use crate::ConnectFailure;
use crate::engine::core::Core;
use cci_memory::ring::{Corrupt, region_bytes};
use cci_memory::slab::Key;
use cci_sys::SysError;
use cci_sys::event::EventFd;
use cci_sys::shared_memory::SharedMemory as Segment;
use cci_sys::unix::{ReceivedFds, Stream};
use std::io;
use std::os::fd::AsFd;

/// EMFILE, without a dependency for one number.
pub(super) const ERRNO_DESCRIPTORS: i32 = 24;
/// Answers to late confirmations that wait for room in the ring.
const CONTROL_MAX: usize = 256;

/// A client has joined the link: CONFIRM came through its ring.
pub(super) fn confirm_came(
    link: &mut Link,
    common: &mut Common,
    core: &mut Core,
    conn: u32,
    generation: u8,
    from: PeerConn,
) -> Result<(), Corrupt> {
    if let Some((key, conn)) = common.connections.named(conn, generation)
        && conn.state == State::Making
        && let hand_key = conn.at
        && let Some(hand) = common.hands.get(hand_key)
        && let Stage::Joining { guest, link: joined } = hand.stage
        && joined == link.key
        && guest.theirs == from
    {
        if let Some(hand) = common.hands.remove(hand_key)
            && let Some(stream) = hand.stream
        {
            core.poller.unwatch(stream.as_fd());
        }
        common.connections.counts.links_joined += 1;
        common.open(core, key, link.key, guest.theirs, guest.mss);
        return Ok(());
    }
    // It came too late: we have given up. The client thinks that it is connected; tell it.
    common.connections.counts.unknown_connection += 1;
    if link.out.control.len() >= CONTROL_MAX {
        // Nobody confirms so often and reads nothing.
        return Ok(());
    }
    let own = PeerConn { index: u32::MAX, generation: 0 };
    link.send_control(Control::about(kind::CLOSE, from, own))
}

/// Why a client is not offered a link.
pub(super) enum NotOffered {
    /// As it is told.
    Why(ConnectFailure),
    /// The system refused; the client hears that there is no room.
    System(SysError),
}

impl NotOffered {
    pub(super) fn why(&self) -> ConnectFailure {
        match self {
            NotOffered::Why(why) => *why,
            NotOffered::System(_) => ConnectFailure::NoMemory,
        }
    }
}

impl From<ConnectFailure> for NotOffered {
    fn from(why: ConnectFailure) -> NotOffered {
        NotOffered::Why(why)
    }
}

impl From<SysError> for NotOffered {
    fn from(error: SysError) -> NotOffered {
        NotOffered::System(error)
    }
}

impl Shm {
    /// Something is to be read on a handshake's socket.
    pub(super) fn hand_ready(&mut self, core: &mut Core, key: Key) {
        // More than one message comes only with a hang-up behind it.
        for _ in 0..3 {
            let Some(Hand { stream: Some(stream), .. }) = self.common.hands.get(key) else { return };
            let mut buffer = [0; wire::BYTES_MAX];
            match stream.recv(&mut buffer, 2) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.raw_os_error() == Some(ERRNO_DESCRIPTORS) => {
                    // The peer's were closed with that: it has to hear of it, and its program may try again.
                    self.common.connections.counts.system_errors += 1;
                    self.say_on(key, &Said::Refuse(ConnectFailure::NoMemory));
                    return self.end_hand(core, key, ConnectFailure::NoMemory);
                }
                Err(_) => {
                    self.common.connections.counts.bad_handshake += 1;
                    return self.end_hand(core, key, ConnectFailure::Disconnected);
                }
                Ok(got) if got.len == 0 => return self.hand_hung_up(core, key),
                Ok(got) => {
                    let said = wire::parse(buffer.get(..got.len).unwrap_or_default());
                    self.heard(core, key, said, got.fds);
                }
            }
        }
    }

    fn hand_hung_up(&mut self, core: &mut Core, key: Key) {
        let Some(hand) = self.common.hands.get_mut(key) else { return };
        match hand.stage {
            // The client needs its socket no more: it confirms through the ring, perhaps behind much else.
            Stage::Joining { link, .. } if self.links.get(link).is_some() => {
                if let Some(stream) = hand.stream.take() {
                    core.poller.unwatch(stream.as_fd());
                }
            }
            Stage::Silent { .. } => self.end_hand(core, key, ConnectFailure::Disconnected),
            _ => self.end_hand(core, key, ConnectFailure::Disconnected),
        }
    }

    fn heard(&mut self, core: &mut Core, key: Key, said: Result<Said<'_>, NotUnderstood>, fds: ReceivedFds) {
        let Some(hand) = self.common.hands.get(key) else { return };
        match (&hand.stage, said) {
            (Stage::Silent { .. }, Ok(Said::Request(request, payload))) => {
                self.request_came(core, key, request, payload);
            }
            // Once: each answer gives the client more time.
            (Stage::Silent { has_asked: false, .. }, Ok(Said::Who)) => self.show_proof(core, key),
            (Stage::Proving { .. }, Ok(Said::Shown)) => self.proof_came(core, key, fds),
            (Stage::Asked { .. }, Ok(Said::Accept(accept))) => self.accepted(core, key, accept, fds),
            (Stage::Offered { .. }, Ok(Said::Confirm { ring_bytes })) => {
                self.confirmed(core, key, ring_bytes, fds);
            }
            (Stage::Joining { .. }, Ok(Said::NoLink)) => self.offer_anew(core, key),
            (Stage::Silent { .. }, Err(NotUnderstood::Version(_))) => {
                // The head of our answer says which version we speak.
                self.common.connections.counts.bad_handshake += 1;
                self.say_on(key, &Said::Refuse(ConnectFailure::Version { theirs: wire::VERSION }));
                self.end_hand(core, key, ConnectFailure::Refused);
            }
            // Whoever has nothing to show is not the one.
            (Stage::Proving { .. }, Ok(Said::Refuse(ConnectFailure::Refused))) => {
                self.proof_came(core, key, ReceivedFds::default());
            }
            (_, Err(NotUnderstood::Version(theirs))) => {
                self.end_hand(core, key, ConnectFailure::Version { theirs });
            }
            (Stage::Silent { .. }, Ok(Said::Refuse(_))) => {
                self.end_hand(core, key, ConnectFailure::Disconnected);
            }
            (_, Ok(Said::Refuse(why))) => self.end_hand(core, key, why),
            _ => {
                self.common.connections.counts.bad_handshake += 1;
                self.say_on(key, &Said::Refuse(ConnectFailure::Refused));
                self.end_hand(core, key, ConnectFailure::Disconnected);
            }
        }
    }

    /// Says something on a handshake's socket, without descriptors. False: the peer is gone.
    pub(super) fn say_on(&self, key: Key, said: &Said<'_>) -> bool {
        match self.common.hands.get(key) {
            Some(Hand { stream: Some(stream), .. }) => stream.send(said.bytes().as_slice(), &[]).is_ok(),
            _ => false,
        }
    }

    /// The attempt is over without a connection.
    pub(super) fn end_hand(&mut self, core: &mut Core, key: Key, why: ConnectFailure) {
        let Some(hand) = self.common.hands.remove(key) else { return };
        if let Some(stream) = &hand.stream {
            core.poller.unwatch(stream.as_fd());
        }
        if let Some(conn) = hand.stage.conn() {
            self.common.connections.fail(core, conn, why);
        }
        match hand.stage {
            Stage::Silent { .. } => self.silent = self.silent.saturating_sub(1),
            Stage::Offered { guest, half } => {
                self.links.discharge_ring(half.ring_bytes);
                drop(half);
                self.offer_ended(core, guest.peer);
            }
            Stage::Joining { link, .. } => {
                self.links.leave(link);
            }
            Stage::Asked { .. } => {
                // A server that has just accepted takes our silence for a confirmation on its way through the ring.
                if let Some(stream) = &hand.stream {
                    let _ = stream.send(Said::Refuse(why).bytes().as_slice(), &[]);
                }
            }
            Stage::Knocking { .. } | Stage::Proving { .. } | Stage::Waiting { .. } => {}
        }
    }

    /// Ends attempts whose time is up, and tries again to reach servers whose queue was full.
    pub(super) fn time_out_hands(&mut self, core: &mut Core) {
        let now_ns = self.common.connections.now_ns;
        let (mut over, mut again) = (Vec::new(), Vec::new());
        for (key, hand) in self.common.hands.iter() {
            if now_ns >= hand.deadline_ns {
                over.push(key);
            } else if matches!(&hand.stage, Stage::Knocking { knock, .. } if now_ns >= knock.again_ns) {
                again.push(key);
            }
        }
        for key in over {
            // The answer may have come in this very moment.
            self.hand_ready(core, key);
            if self.common.hands.get(key).is_some_and(|hand| now_ns >= hand.deadline_ns) {
                self.common.connections.counts.handshake_timed_out += 1;
                self.end_hand(core, key, ConnectFailure::TimedOut);
            }
        }
        for key in again {
            if self.knock(core, key).is_err() {
                self.common.connections.counts.system_errors += 1;
                self.end_hand(core, key, ConnectFailure::NoMemory);
            }
        }
    }

    /// Makes the ring that we will read, under the endpoint's cap.
    pub(super) fn make_half(&mut self, core: &Core, peer: &Peer) -> Result<Half, NotOffered> {
        let ring_bytes = self.affordable_ring_bytes(core, peer.process()).ok_or(ConnectFailure::NoMemory)?;
        let made = || -> Result<Half, SysError> {
            let segment = Segment::create("cci-ring", region_bytes(ring_bytes as usize))?;
            let (bell, link_id) = (EventFd::new()?, cci_sys::random::u64()?);
            Ok(Half { segment, bell, ring_bytes, link_id })
        };
        let half = made().inspect_err(|_| self.common.connections.counts.system_errors += 1)?;
        self.links.charge_ring(ring_bytes);
        Ok(half)
    }

    /// Our half and what the peer sent of its own make the ends of a link. The peer's descriptors are checked here.
    pub(super) fn join_halves(
        &mut self,
        half: Half,
        ring_bytes: u32,
        mut fds: ReceivedFds,
    ) -> Result<Ends, ConnectFailure> {
        let own_ring_bytes = half.ring_bytes;
        let made = (|| {
            if ring_bytes > RING_BYTES_PEER_MAX {
                return None;
            }
            let (segment, bell) = (fds.take(0)?, fds.take(1)?);
            let theirs = Segment::open(segment, region_bytes(ring_bytes as usize)).ok()?;
            let peer_bell = EventFd::from_peer(bell).ok()?;
            let mut ours = half.segment;
            ours.drop_fd();
            let mut theirs = theirs;
            theirs.drop_fd();
            Some(Ends {
                consumer: ours.into_consumer(RECORD_BYTES_MAX).ok()?,
                producer: theirs.into_producer(RECORD_BYTES_MAX).ok()?,
                bell: half.bell,
                peer_bell,
                ring_bytes: half.ring_bytes,
                peer_ring_bytes: ring_bytes,
            })
        })();
        if made.is_none() {
            self.common.connections.counts.bad_handshake += 1;
            self.links.discharge_ring(own_ring_bytes);
        }
        made.ok_or(ConnectFailure::Disconnected)
    }

    /// Enters a link. The handshake's socket, taken out of its hand before, becomes the lifeline.
    pub(super) fn insert_link(
        &mut self,
        core: &mut Core,
        ends: Ends,
        lifeline: Stream,
        id: u64,
        side: Side,
        peer: Peer,
    ) -> Result<Key, ConnectFailure> {
        core.poller.unwatch(lifeline.as_fd());
        let ring_bytes = ends.ring_bytes;
        let now_ns = self.common.connections.now_ns;
        let link = Link::new(ends, lifeline, id, side, peer, now_ns);
        let Some(key) = self.links.insert(&core.poller, link) else {
            self.common.connections.counts.system_errors += 1;
            self.links.discharge_ring(ring_bytes);
            return Err(ConnectFailure::NoMemory);
        };
        self.common.connections.counts.links_made += 1;
        self.links.make_active(key, now_ns);
        Ok(key)
    }
}
