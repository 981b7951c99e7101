//! The initiator's side of direct access: the mapped memory of a peer, and copies to and from it.

use super::grant::{Content, Grant, NotMapped};
use super::mappings::{Keep, Mappings, PeerMemory};
use crate::connection::Status;
use crate::engine::charge::{Charge, ChargedBytes};
use crate::engine::core::Core;
use crate::engine::mapped_pairs::{MappedPairs, MappedRegion};
use crate::limits::RMA_COPY_BYTES;
use crate::rma::{Access, REPLACED_WORD, atomic_op};
use crate::transport::ordered_rma::put_result;
use crate::transport::shm::out::Out;
use cci_memory::bytes::{AtomicRefusal, Bytes};
use cci_memory::slab::Key;
use cci_proto::{Atomic, AtomicWidth, RemoteAddress, RmaKind, RmaSegment};
use cci_sys::shared_memory::{SharedMemory, SharedMemoryReader};
use cci_sys::unix::ReceivedFds;
use cci_sys::{file, process};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The most regions of one peer that are remembered.
const KNOWN_MAX: usize = 4096;
/// Slots in the cache of recently used grants.
const FRONT: usize = 16;

/// What is known of a region of the peer.
#[derive(Copy, Clone)]
enum Known {
    /// The target was asked, and has not answered.
    Asked,
    /// The region can't be mapped.
    Not,
    /// There is no space for the region's memory under the cap until something else is unmapped.
    NoSpace,
    Granted(Usable),
}

/// A grant with its mapping.
#[derive(Copy, Clone)]
struct Usable {
    grant: Grant,
    /// The only connection that may use it; `None` if all may.
    only: Option<Key>,
    mapping: usize,
}

/// The place of an operation in a mapping, and the live word of its grant.
#[derive(Copy, Clone)]
struct Place {
    /// The offset in the mapping.
    at: usize,
    /// The index of the live word in the control page.
    word: u64,
    /// The value of the live word while the grant holds.
    token: u64,
}

impl Place {
    fn new(grant: &Grant, at: usize) -> Place {
        Place { at, word: grant.word, token: grant.token }
    }
}

/// The mapped memory of one peer, and what is known of its regions.
pub(in crate::transport::shm) struct Initiator {
    control: Option<(Arc<SharedMemoryReader>, Charge)>,
    /// The sum of what is mapped of the peer's process.
    sum: ChargedBytes,
    mappings: Mappings,
    /// What is known, by the region's number, with the region's key and the connection that asked.
    known: HashMap<u64, (u64, Key, Known)>,
    /// Recently used grants, by the low bits of the region's number.
    front: [Option<Usable>; FRONT],
    /// Whether the target grants this process nothing any more.
    is_barred: bool,
    /// Why the last region that could not be mapped was not.
    pub why_not: Option<NotMapped>,
    pub copied: u64,
    /// Grants that could not be mapped.
    pub grants_refused: u64,
}

impl Initiator {
    pub fn new(sum: &ChargedBytes) -> Initiator {
        Initiator {
            control: None,
            sum: sum.clone(),
            mappings: Mappings::new(sum),
            known: HashMap::new(),
            front: [None; FRONT],
            is_barred: false,
            why_not: None,
            copied: 0,
            grants_refused: 0,
        }
    }

    pub fn mapped(&self) -> usize {
        self.mappings.count()
    }

    /// How many bytes of the peer's memory are mapped. The control page is not counted.
    pub fn mapped_bytes(&self) -> u64 {
        self.mappings.mapped_bytes()
    }

    /// Whether this grant answers a request.
    pub fn awaits(&self, grant: &Grant) -> bool {
        matches!(self.known.get(&grant.region), Some((key, _, Known::Asked)) if *key == grant.key)
    }

    pub fn bytes(&self) -> u64 {
        let known = self.known.capacity() * size_of::<(u64, (u64, Key, Known))>();
        (size_of::<Initiator>() + known + self.mappings.table_bytes()) as u64
    }

    pub fn has_control(&self) -> bool {
        self.control.is_some()
    }

    /// Whether to ask the target for a region. If so, the region counts as asked for.
    #[inline]
    pub fn should_ask(&mut self, pairs: &mut MappedPairs, region: u64, key: u64, conn: Key) -> bool {
        if self.is_barred {
            return false;
        }
        if let Some((known_key, asked_by, known)) = self.known.get(&region) {
            // A region that one connection is refused may be granted to another.
            let same = *known_key == key && (*asked_by == conn || !matches!(known, Known::Not));
            if same {
                return false;
            }
        }
        if self.known.len() >= KNOWN_MAX {
            self.forget_all(pairs);
        }
        self.known.insert(region, (key, conn, Known::Asked));
        true
    }

    fn forget_all(&mut self, pairs: &mut MappedPairs) {
        self.known.clear();
        self.changed(pairs);
        self.mappings.clear();
    }

    /// Clears the table of mapped pairs, since what it found of mapped regions may be wrong now.
    fn changed(&mut self, pairs: &mut MappedPairs) {
        self.front = [None; FRONT];
        pairs.clear();
    }

    /// Notes that a region can't be mapped, and why.
    pub fn refused(&mut self, pairs: &mut MappedPairs, region: u64, why: NotMapped) {
        self.why_not = Some(why);
        if why == NotMapped::Barred {
            // All grants of this target have ended.
            self.forget_all(pairs);
            self.is_barred = true;
        } else if why == NotMapped::NoSpace {
            // There may be space when the region is used again.
            self.known.remove(&region);
        } else if let Some((_, _, known)) = self.known.get_mut(&region) {
            *known = if why == NotMapped::OverCap { Known::NoSpace } else { Known::Not };
        }
    }

    /// Notes that something was unmapped. Regions for which there was no space may be asked for again.
    fn has_space_again(&mut self) {
        self.known.retain(|_, (_, _, known)| !matches!(known, Known::NoSpace));
    }

    /// Notes that the target has taken a region back.
    pub fn unmapped(&mut self, pairs: &mut MappedPairs, region: u64, keep: Keep) {
        if matches!(self.known.get(&region), Some((_, _, Known::Asked))) {
            // The answer is still to come. It has a descriptor, by which later regions of the memory are mapped.
            return;
        }
        self.known.remove(&region);
        self.changed(pairs);
        self.keep_unused(keep);
    }

    /// Notes that a memory of the target has ended, or has other pages now.
    pub fn freed(&mut self, pairs: &mut MappedPairs, memory: u64) {
        if let Some(at) = self.mappings.of(memory) {
            self.drop_mapping(pairs, at);
        }
    }

    /// Keeps memory of which no region is granted any more for a while, and unmaps what was kept long enough.
    fn keep_unused(&mut self, keep: Keep) {
        let named = self.known.values().filter_map(|(_, _, known)| match known {
            Known::Granted(usable) => Some(usable.mapping),
            _ => None,
        });
        if self.mappings.keep(named, keep) {
            self.has_space_again();
        }
    }

    /// When memory without a granted region is unmapped; `u64::MAX` if there is none.
    #[inline]
    pub fn kept_until_ns(&self) -> u64 {
        self.mappings.kept_until_ns()
    }

    /// Unmaps memory without a granted region that was kept long enough. Returns whether there was any.
    #[cold]
    pub fn release_due(&mut self, now_ns: u64) -> bool {
        let has_released = self.mappings.release_due(now_ns);
        if has_released {
            self.has_space_again();
        }
        has_released
    }

    fn drop_mapping(&mut self, pairs: &mut MappedPairs, at: usize) {
        self.changed(pairs);
        self.known
            .retain(|_, (_, _, known)| !matches!(known, Known::Granted(usable) if usable.mapping == at));
        self.mappings.remove(at);
        self.has_space_again();
    }

    /// Takes a grant. `space_bytes` is the longest memory that may be mapped. Returns false if an honest target would not send
    /// this grant, or not with these descriptors.
    pub fn granted(
        &mut self,
        pairs: &mut MappedPairs,
        grant: Grant,
        mut fds: ReceivedFds,
        peer_uid: u32,
        mut space_bytes: u64,
        keep: Keep,
    ) -> bool {
        let asked_by = match self.known.get(&grant.region) {
            Some((key, asked_by, Known::Asked)) if *key == grant.key => *asked_by,
            // The region was forgotten meanwhile, or asked for twice.
            _ => return true,
        };
        let Some(memory) = fds.take(0) else { return false };
        if self.control.is_none() {
            let Some(page) = fds.take(1) else { return false };
            let Ok(mut page) = SharedMemory::open_read_only(page, grant.control_bytes as usize) else {
                return false;
            };
            page.drop_fd();
            space_bytes = space_bytes.saturating_sub(grant.control_bytes);
            self.control = Some((Arc::new(page), self.sum.charge(grant.control_bytes)));
        }
        if self.control.as_ref().is_none_or(|(page, _)| page.len() as u64 != grant.control_bytes) {
            return false;
        }
        let at = match self.mappings.of(grant.memory) {
            Some(at) => at,
            None if grant.charged_bytes() > space_bytes => {
                self.refused(pairs, grant.region, NotMapped::OverCap);
                return true;
            }
            None => match reach(memory, &grant, peer_uid) {
                Ok(granted) => self.insert(pairs, &grant, granted),
                Err(why) => {
                    self.grants_refused += 1;
                    self.refused(pairs, grant.region, why);
                    return true;
                }
            },
        };
        let is_what_it_says = match (self.mappings.granted(at), grant.content) {
            (Some(PeerMemory::Mapped(segment)), Content::Memory) => {
                segment.len() as u64 == grant.memory_bytes
            }
            (Some(PeerMemory::File(_, len_bytes)), Content::File) => *len_bytes == grant.memory_bytes,
            _ => false,
        };
        if !is_what_it_says {
            return false;
        }
        if !self.is_live(&Place::new(&grant, 0)) {
            // The region has ended meanwhile. Only its memory may still be used.
            self.known.remove(&grant.region);
            self.keep_unused(keep);
            return true;
        }
        let only = match grant.only {
            None => None,
            // A connection's generation has 8 bits in records.
            Some(named) if named == (asked_by.index, u32::from(asked_by.generation as u8)) => Some(asked_by),
            Some(_) => {
                self.refused(pairs, grant.region, NotMapped::Handle);
                return true;
            }
        };
        self.enter(asked_by, Usable { grant, only, mapping: at });
        true
    }

    fn enter(&mut self, conn: Key, usable: Usable) {
        let grant = &usable.grant;
        self.mappings.is_granted(usable.mapping);
        self.known.insert(grant.region, (grant.key, conn, Known::Granted(usable)));
    }

    /// Takes a grant for one connection that came without descriptors and without a request. If its memory is not mapped here any
    /// more, the region is asked for when it is used. Returns false if no honest target sends it.
    pub fn announced(&mut self, pairs: &mut MappedPairs, conn: Key, announced: Grant) -> bool {
        let Some(at) = self.mappings.of(announced.memory) else { return true };
        let (content, memory_bytes) = match self.mappings.granted(at) {
            Some(PeerMemory::Mapped(segment)) => (Content::Memory, segment.len() as u64),
            Some(PeerMemory::File(_, len_bytes)) => (Content::File, *len_bytes),
            None => return true,
        };
        let control_bytes = self.control.as_ref().map_or(0, |(page, _)| page.len() as u64);
        let grant = Grant { content, memory_bytes, control_bytes, ..announced };
        if !grant.is_consistent() {
            return false;
        }
        if self.is_barred || self.known.len() >= KNOWN_MAX {
            return true;
        }
        if self.known.contains_key(&grant.region) {
            self.changed(pairs);
        }
        self.enter(conn, Usable { grant, only: Some(conn), mapping: at });
        true
    }

    /// Puts a mapping or a file into a free slot, or in place of the one that was unused longest.
    fn insert(&mut self, pairs: &mut MappedPairs, grant: &Grant, granted: PeerMemory) -> usize {
        // Pairs in use must be found again. With that, their mappings count as used after this one.
        self.changed(pairs);
        let at = self.mappings.slot();
        if self.mappings.granted(at).is_some() {
            self.drop_mapping(pairs, at);
        }
        self.mappings.put(at, grant.memory, granted, grant.charged_bytes());
        at
    }

    /// The place of an address of the peer's memory in its mapping, and the mapping's bytes. An address that no grant covers is left to
    /// the target, which may refuse it. `None` for a file.
    #[inline]
    fn usable(
        &mut self,
        conn: Key,
        at: RemoteAddress,
        len_bytes: u64,
        need: Access,
    ) -> Option<(Place, Bytes)> {
        let (place, mapping) = self.covered(conn, at, len_bytes, need)?;
        Some((place, self.mappings.used(mapping)?))
    }

    /// The place of an address that a grant covers, in a mapping or a file.
    #[inline]
    fn covered(
        &mut self,
        conn: Key,
        at: RemoteAddress,
        len_bytes: u64,
        need: Access,
    ) -> Option<(Place, usize)> {
        let slot = at.region as usize % FRONT;
        if self.front[slot].as_ref().is_none_or(|usable| usable.grant.region != at.region) {
            self.front[slot] = Some(self.granted_region(at.region)?);
        }
        let usable = self.front[slot].as_ref()?;
        let grant = &usable.grant;
        let end = at.offset.checked_add(len_bytes)?;
        let is_covered = grant.key == at.key
            && end <= grant.len_bytes
            && grant.access & need.bits() == need.bits()
            && usable.only.is_none_or(|only| only == conn);
        if !is_covered {
            return None;
        }
        // If the sum were made before the check, it could wrap: the caller's offset may be any number.
        let place = Place::new(grant, (grant.start + at.offset) as usize);
        Some((place, usable.mapping))
    }

    /// A region that the connection may use, if it is mapped, for use without this table.
    pub fn resolve(&mut self, out: &Out, conn: Key, region: u64, key: u64) -> Option<MappedRegion> {
        let (place, _) = self.usable(conn, RemoteAddress { region, key, offset: 0 }, 0, Access::LOCAL)?;
        let Usable { grant, mapping, .. } = self.granted_region(region)?;
        let memory = self.mappings.segment(mapping)?.clone();
        let (control, _) = self.control.as_ref()?;
        let (part, access) = ((place.at, grant.len_bytes as usize), Access::from_bits(grant.access));
        let live = (place.word, place.token);
        MappedRegion::new(memory, part, access, control, live, out.producer.direct())
    }

    #[cold]
    fn granted_region(&self, region: u64) -> Option<Usable> {
        match self.known.get(&region) {
            Some((_, _, Known::Granted(usable))) => Some(*usable),
            _ => None,
        }
    }

    #[inline]
    fn is_live(&self, place: &Place) -> bool {
        let word = self.control.as_ref().and_then(|(page, _)| page.load(place.word as usize * 8).ok());
        word == Some(place.token)
    }

    /// The target's count of replaced pages; 0 if it does not count.
    #[inline]
    fn replaced(&self) -> u64 {
        let at = REPLACED_WORD as usize * 8;
        self.control.as_ref().and_then(|(page, _)| page.load(at).ok()).unwrap_or(0)
    }

    /// Does all of an operation at once. Returns `None` if that is not possible, or the grant has ended meanwhile. Then the
    /// operation goes to the target, which knows whether the region itself has ended.
    #[inline]
    pub fn copy(
        &mut self,
        core: &mut Core,
        out: &Out,
        conn: Key,
        kind: RmaKind,
        first: &RmaSegment,
        more: &[RmaSegment],
    ) -> Option<Status> {
        let need = match kind {
            RmaKind::Write => Access::WRITE,
            RmaKind::Read => Access::READ,
        };
        let status = if more.is_empty() {
            self.copy_segment(core, out, conn, kind, need, first)
        } else {
            self.copy_gathered(core, out, conn, kind, need, first, more)
        };
        let status = match status {
            None if kind == RmaKind::Read => self.read_files(core, conn, first, more)?,
            status => status?,
        };
        self.copied += 1;
        Some(status)
    }

    /// Reads from files of the peer. Nobody waits for the end of that, since a file's bytes stay where they are.
    #[cold]
    fn read_files(
        &mut self,
        core: &mut Core,
        conn: Key,
        first: &RmaSegment,
        more: &[RmaSegment],
    ) -> Option<Status> {
        let segments = || std::iter::once(first).chain(more);
        // All segments are checked before any is touched.
        for segment in segments() {
            let (_, mapping) = self.covered(conn, segment.remote, segment.len_bytes, Access::READ)?;
            self.mappings.used_file(mapping)?;
        }
        for segment in segments() {
            let (place, mapping) = self.covered(conn, segment.remote, segment.len_bytes, Access::READ)?;
            let Some((local, local_at)) = core.regions.local(segment.local, segment.len_bytes) else {
                return Some(Status::RmaHandle);
            };
            let len = segment.len_bytes as usize;
            let mut is_live = self.is_live(&place);
            let file = self.mappings.used_file(mapping).filter(|_| is_live);
            let is_whole = file.map(|file| file::read_at(file, place.at as u64, &local, local_at, len));
            is_live = is_live && self.is_live(&place);
            let Some(is_whole) = is_whole.filter(|_| is_live) else {
                self.dead(&mut core.regions.pairs, segment.remote.region);
                return None;
            };
            if !is_whole.is_ok_and(|is_whole| is_whole) {
                return Some(Status::RmaHandle);
            }
        }
        Some(Status::Success)
    }

    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "what `copy` was given, and the right that it takes")]
    fn copy_gathered(
        &mut self,
        core: &mut Core,
        out: &Out,
        conn: Key,
        kind: RmaKind,
        need: Access,
        first: &RmaSegment,
        more: &[RmaSegment],
    ) -> Option<Status> {
        // All segments are checked before any is touched.
        for segment in more {
            self.usable(conn, segment.remote, segment.len_bytes, need)?;
        }
        let mut status = self.copy_segment(core, out, conn, kind, need, first)?;
        for segment in more {
            if status != Status::Success {
                break;
            }
            status = self.copy_segment(core, out, conn, kind, need, segment)?;
        }
        Some(status)
    }

    #[inline(always)]
    fn copy_segment(
        &mut self,
        core: &mut Core,
        out: &Out,
        conn: Key,
        kind: RmaKind,
        need: Access,
        segment: &RmaSegment,
    ) -> Option<Status> {
        let (place, remote) = self.usable(conn, segment.remote, segment.len_bytes, need)?;
        let Some((local, local_at)) = core.regions.local(segment.local, segment.len_bytes) else {
            return Some(Status::RmaHandle);
        };
        let (len, mut done, mut live) = (segment.len_bytes as usize, 0, true);
        out.producer.begin_direct(place.word);
        while done < len {
            live = self.is_live(&place);
            if !live {
                break;
            }
            let now = (len - done).min(RMA_COPY_BYTES);
            let copied = match kind {
                RmaKind::Write => remote.copy_from(place.at + done, &local, local_at + done, now),
                RmaKind::Read => local.copy_from(local_at + done, &remote, place.at + done, now),
            };
            debug_assert!(copied, "both ranges were checked");
            done += now;
        }
        // If the grant was taken back meanwhile, what was read may not be the region's any more, and what was written may be in
        // pages that were replaced.
        live = live && self.is_live(&place);
        out.producer.end_direct();
        if live {
            return Some(Status::Success);
        }
        self.dead(&mut core.regions.pairs, segment.remote.region);
        None
    }

    /// Does an atomic operation at once. Returns `None` if that is not possible; then nothing was done.
    #[inline]
    pub fn atomic(
        &mut self,
        core: &mut Core,
        out: &Out,
        conn: Key,
        atomic: Atomic,
        target: RemoteAddress,
        result: Option<RemoteAddress>,
    ) -> Option<Status> {
        let width_bytes = match atomic.width {
            AtomicWidth::Four => 4,
            AtomicWidth::Eight => 8,
        };
        let (place, remote) = self.usable(conn, target, width_bytes, Access::ATOMIC)?;
        let replaced = self.replaced();
        out.producer.begin_direct(place.word);
        let before = self.is_live(&place).then(|| remote.atomic(place.at, atomic_op(atomic)));
        let has_ended = matches!(before, Some(Ok(_))) && !self.is_live(&place);
        // If the grant was taken back meanwhile, the pages may have been replaced before the word changed, or after. The
        // operation can't be repeated.
        let may_be_lost = has_ended && (replaced == 0 || self.replaced() != replaced);
        out.producer.end_direct();
        if has_ended {
            self.dead(&mut core.regions.pairs, target.region);
        }
        if may_be_lost {
            self.copied += 1;
            return Some(Status::TimedOut);
        }
        let status = match before {
            None => {
                self.dead(&mut core.regions.pairs, target.region);
                return None;
            }
            Some(Err(AtomicRefusal::OutOfRange)) => Status::RmaHandle,
            Some(Err(AtomicRefusal::Misaligned)) => Status::RmaOperation,
            Some(Ok(value)) => match result {
                Some(address) if !put_result(core, address, value) => Status::RmaHandle,
                _ => Status::Success,
            },
        };
        self.copied += 1;
        Some(status)
    }

    /// Forgets a grant that has ended. The target is asked again if the region is used again.
    #[cold]
    fn dead(&mut self, pairs: &mut MappedPairs, region: u64) {
        self.known.remove(&region);
        self.changed(pairs);
    }
}

/// Maps the memory, or takes the file, whose descriptor came with a grant.
fn reach(fd: OwnedFd, grant: &Grant, peer_uid: u32) -> Result<PeerMemory, NotMapped> {
    match grant.content {
        Content::Memory => {
            let segment = SharedMemory::open_rma(fd, grant.memory_bytes as usize);
            let mut segment = segment.map_err(|error| NotMapped::of(&error))?;
            // If the peer punches a hole in huge pages, this process may get a SIGBUS.
            if peer_uid != process::uid() && segment.is_huge() {
                return Err(NotMapped::OtherUser);
            }
            segment.drop_fd();
            Ok(PeerMemory::Mapped(Arc::new(segment)))
        }
        // Another user may have a file whose bytes never come, such as one that a program of theirs serves.
        Content::File if peer_uid != process::uid() && peer_uid != 0 => Err(NotMapped::OtherUser),
        Content::File => {
            let file = file::open_of_peer(fd).map_err(|error| NotMapped::of(&error))?;
            Ok(PeerMemory::File(file, grant.memory_bytes))
        }
    }
}
