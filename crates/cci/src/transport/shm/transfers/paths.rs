//! The paths around the ring by which memory of a peer is reached directly: it is mapped, or read by a system call. The records
//! that two endpoints exchange about these paths are handled here.

use super::target::Target;
use crate::device::Cma;
use crate::engine::core::Core;
use crate::engine::mapped_pairs::MappedPairs;
use crate::rma::Access;
use crate::transport::ordered_rma::What;
use crate::transport::shm::connections::{Connections, Phase};
use crate::transport::shm::link::{Life, Link};
use crate::transport::shm::out::Control;
use crate::transport::shm::rma::grant::NotMapped;
use crate::transport::shm::rma::initiator::Initiator;
use crate::transport::shm::rma::mapped::MappedBytes;
use crate::transport::shm::rma::mappings::Keep;
use crate::transport::shm::rma::pull::{Pull, TRY_BYTES, Word};
use crate::transport::shm::wire::{PeerConn, kind};
use cci_memory::slab::Key;
use cci_proto::{RemoteAddress, RmaKind, RmaSegment};

/// The most regions that one operation causes to be asked for.
const ASKS_PER_OPERATION_MAX: usize = 8;
/// The most records about mappings that may wait for space in the ring of one link.
const CONTROL_MAX: usize = 64;
/// Stands for no connection, in records about the link as a whole.
const LINK: PeerConn = PeerConn { index: 0, generation: 0 };

/// The paths around the ring that an endpoint takes and grants.
pub(in crate::transport::shm) struct Paths {
    /// The device's `direct`: whether memory is mapped.
    pub direct: bool,
    /// The device's `cma`: whether other processes' memory is read.
    pub cma: Cma,
    /// How much memory of peers is mapped.
    pub mapped: MappedBytes,
    /// The word that peers try to read, created when it is first needed.
    word: Option<Word>,
}

/// A record about mappings or reads: its kind, the connection that it names, and three words.
#[derive(Copy, Clone)]
pub(in crate::transport::shm) struct About {
    pub kind: u8,
    pub conn: u32,
    pub generation: u8,
    pub words: [u64; 3],
}

impl Paths {
    pub fn new(direct: bool, cma: Cma) -> Paths {
        Paths { direct, cma, mapped: MappedBytes::default(), word: None }
    }

    /// The word that peers try to read, created when it is first needed.
    fn word(&mut self) -> Option<&Word> {
        if self.word.is_none() {
            self.word = Word::new().ok();
        }
        self.word.as_ref()
    }

    /// Asks the peer for what an operation could use, so that the next operation finds it.
    pub fn prepare(
        &mut self,
        pairs: &mut MappedPairs,
        link: &mut Link,
        conn: Key,
        peer: PeerConn,
        what: &What,
        segments: &[RmaSegment],
    ) {
        match *what {
            What::Move(kind) => {
                for segment in segments.iter().take(ASKS_PER_OPERATION_MAX) {
                    self.want(pairs, link, conn, peer, segment.remote, Some((kind, segment.len_bytes)));
                }
            }
            What::Atomic { target, .. } => self.want(pairs, link, conn, peer, target, None),
        }
    }

    /// Asks the peer for a better path to an address of its memory than the ring. `moved` is the direction and length of a
    /// transfer, or `None` for an atomic.
    fn want(
        &mut self,
        pairs: &mut MappedPairs,
        link: &mut Link,
        conn: Key,
        peer: PeerConn,
        at: RemoteAddress,
        moved: Option<(RmaKind, u64)>,
    ) {
        if link.life != Life::Up || link.out.control.len() >= CONTROL_MAX {
            return;
        }
        if self.direct {
            let (process, mapped) = (link.peer.process(), &mut self.mapped);
            let initiator = link
                .transfers
                .initiator
                .get_or_insert_with(|| Box::new(Initiator::new(&mapped.account(process))));
            if initiator.should_ask(pairs, at.region, at.key, conn) {
                let words = [at.region, at.key, u64::from(!initiator.has_control())];
                // If the ring is corrupt, the next push finds that as well.
                let _ = link.send_control(Control::words(kind::MAP, peer, words));
            }
        }
        if self.cma != Cma::Off && moved.is_some_and(|(_, len_bytes)| len_bytes >= TRY_BYTES) {
            let pull = link.transfers.pull.get_or_insert_with(|| Box::new(Pull::new()));
            if !std::mem::replace(&mut pull.asked, true)
                && let Some(word) = self.word()
            {
                let words = [0, word.address(), word.value];
                let _ = link.send_control(Control::words(kind::TRY, peer, words));
            }
        }
    }

    /// Takes a record about these paths.
    pub fn take(
        &mut self,
        link: &mut Link,
        target: &mut Target,
        connections: &mut Connections,
        core: &mut Core,
        about: About,
    ) {
        let [first, second, third] = about.words;
        match about.kind {
            kind::MAP => self.map_wanted(link, target, connections, core, about),
            kind::NO_MAP => {
                if let (Some(initiator), Some(why)) =
                    (&mut link.transfers.initiator, NotMapped::from_code(second))
                {
                    initiator.refused(&mut core.regions.pairs, first, why);
                }
            }
            kind::UNMAP => {
                if let Some(initiator) = &mut link.transfers.initiator {
                    let keep = Keep { now_ns: connections.now_ns, cap_bytes: core.options.memory_bytes_max };
                    initiator.unmapped(&mut core.regions.pairs, first, keep);
                }
            }
            kind::FREED => {
                if let Some(initiator) = &mut link.transfers.initiator {
                    initiator.freed(&mut core.regions.pairs, first);
                }
            }
            kind::TRY => {
                let pull = link.transfers.pull.get_or_insert_with(|| Box::new(Pull::new()));
                pull.try_it(self.cma, &link.peer, second, third);
                let cost = pull.to_word();
                let (address, value) = self.word().map_or((0, 0), |word| (word.address(), word.value));
                if link.out.control.len() < CONTROL_MAX {
                    let _ = link.send_control(Control::words(kind::TRIED, LINK, [cost, address, value]));
                }
            }
            kind::TRIED => {
                if let Some(pull) = link.transfers.pull.as_mut().filter(|pull| pull.asked) {
                    pull.peer_reports(first);
                    pull.try_it(self.cma, &link.peer, second, third);
                }
            }
            _ => connections.counts.bad_record += 1,
        }
    }

    /// Answers a peer that wants to map one of our regions.
    fn map_wanted(
        &mut self,
        link: &mut Link,
        target: &mut Target,
        connections: &mut Connections,
        core: &mut Core,
        about: About,
    ) {
        let [region_id, region_key, wants_control] = about.words;
        let Some((_, conn)) = connections.conns.named_on(link.key, about.conn, about.generation) else {
            connections.counts.unknown_connection += 1;
            return;
        };
        let (connection, peer) = (conn.base.connection, conn.on.peer());
        let is_up = conn.on.phase == Phase::Open && link.life == Life::Up;
        let result = match core.regions.granted(connection, region_id, region_key, Access::LOCAL) {
            _ if !self.direct => Err(NotMapped::TargetOff),
            _ if target.is_barred(&link.peer) => Err(NotMapped::Barred),
            // The peer gets an answer even then, since other connections of the link wait for it.
            _ if !is_up => Err(NotMapped::Handle),
            Some(region) if region.access != Access::LOCAL => {
                let only = region.only.is_some().then_some((peer.index, peer.generation));
                target.grant(link, region_id, region, only, wants_control != 0)
            }
            _ => Err(NotMapped::Handle),
        };
        if result.is_ok() {
            core.regions.set_mapped(region_id);
        }
        if let Err(why) = result
            && link.out.control.len() < CONTROL_MAX
        {
            let _ = link.send_control(Control::words(kind::NO_MAP, peer, [region_id, why.code(), 0]));
        }
    }
}
