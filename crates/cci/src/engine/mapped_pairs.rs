//! Pairs of regions between which operations of this endpoint are plain copies: a region of its own and a mapped one of a peer's. Both
//! were found, and their rights checked, once; an operation between them searches no other table.

use crate::connection::{Connection, Status};
use crate::limits;
use crate::rma::{Access, BlockRun, REPLACED_WORD, atomic_op};
use cci_memory::bytes::{Backing, Blocks, Bytes};
use cci_memory::ring::Direct;
use cci_proto::{Atomic, RemoteAddress, RmaKind};
use cci_sys::shared_memory::{ReadOnlyWord, SharedMemory, SharedMemoryReader};
use std::sync::Arc;

/// Pairs that are kept at a time.
const PAIRS: usize = 16;
/// While pairs are missed, one in so many takes the place of another: more pairs than there are places cost little more than none.
const MISSES_PER_PAIR: u32 = 8;

/// The value from before an atomic operation, as it is put into local memory.
const RESULT_BYTES: usize = size_of::<u64>();

/// A peer's region that is mapped here, with the word that says how long it may be used.
pub struct MappedRegion {
    /// Exactly the region's bytes, in `memory`.
    bytes: Bytes,
    access: Access,
    live: ReadOnlyWord,
    /// What the live word holds while the region may be used.
    token: u64,
    /// The peer's count of replaced pages, and what it was before the region was used.
    replaced: (ReadOnlyWord, u64),
    /// Says to the peer that its memory is being used.
    direct: Direct<Arc<SharedMemory>>,
    /// What the peer knows the memory by.
    name: u64,
    /// Keeps `bytes` mapped.
    _memory: Arc<SharedMemory>,
}

impl MappedRegion {
    /// The region of `len_bytes` at `start` of `memory`, which may be used with these rights while the word `name` of `control` is
    /// `token`. `None`: it does not lie there.
    pub fn new(
        memory: Arc<SharedMemory>,
        (start, len_bytes): (usize, usize),
        access: Access,
        control: &Arc<SharedMemoryReader>,
        (name, token): (u64, u64),
        direct: Direct<Arc<SharedMemory>>,
    ) -> Option<MappedRegion> {
        let bytes = memory.bytes().part(start, len_bytes)?;
        let word = |name: u64| control.word(usize::try_from(name).ok()?.checked_mul(8)?).ok();
        let (live, replaced) = (word(name)?, word(REPLACED_WORD.into())?);
        let replaced_before = replaced.load();
        let replaced = (replaced, replaced_before);
        Some(MappedRegion { bytes, access, live, token, replaced, direct, name, _memory: memory })
    }

    /// Whether all that was done so far was done in pages that were the region's then, although the peer has taken it back.
    #[cold]
    fn keeps_its_pages(&self) -> bool {
        let (word, before) = &self.replaced;
        *before != 0 && word.load() == *before
    }

    #[inline(always)]
    fn is_live(&self) -> bool {
        self.live.load() == self.token
    }

    /// Whether copies of so many bytes may go this way.
    #[inline(always)]
    fn may(&self, kind: RmaKind, len_bytes: u64) -> bool {
        let need = match kind {
            RmaKind::Write => Access::WRITE,
            RmaKind::Read => Access::READ,
        };
        self.access.contains(need) && len_bytes <= limits::RMA_COPY_BYTES as u64
    }

    /// Begins an access, of which the peer knows until it [ends](Accessed::end).
    #[inline(always)]
    fn begin(&self) -> Accessed<'_> {
        self.direct.begin(self.name);
        Accessed(self)
    }

    /// Writes bytes. False: they are too many or beyond its end, the rights are not its own, or the peer has taken it back. Some may have been written then.
    #[inline]
    pub fn put(&self, from: &[u8], offset: u64) -> bool {
        if !self.may(RmaKind::Write, from.len() as u64) {
            return false;
        }
        let access = self.begin();
        let is_copied = access.bytes().is_some_and(|bytes| bytes.write(offset as usize, from));
        access.end() && is_copied
    }

    /// Reads bytes from the region. False: as where [`MappedRegion::put`] says so.
    #[inline]
    fn get(&self, offset: u64, to: &mut [u8]) -> bool {
        if !self.may(RmaKind::Read, to.len() as u64) {
            return false;
        }
        let access = self.begin();
        let is_copied = access.bytes().is_some_and(|bytes| bytes.read(offset as usize, to));
        access.end() && is_copied
    }

    /// Copies one block between local memory, from an offset on, and the region. False: as where [`MappedRegion::put`] says so.
    pub fn copy_block(&self, kind: RmaKind, local: (&Bytes, usize), offset: u64, len: usize) -> bool {
        if !self.may(kind, len as u64) {
            return false;
        }
        let access = self.begin();
        let is_copied =
            access.bytes().is_some_and(|bytes| copy_one(kind, local, (bytes, offset as usize), len));
        access.end() && is_copied
    }

    /// Changes a value, and answers the one from before. `None`: nothing was done. An error: the region's pages may have been replaced before, or
    /// after. It can't be repeated.
    #[inline(always)]
    fn change(&self, atomic: Atomic, offset: u64) -> Option<Result<u64, Lost>> {
        if !self.access.contains(Access::ATOMIC) {
            return None;
        }
        let access = self.begin();
        let changed = access.bytes().map(|bytes| bytes.atomic(offset as usize, atomic_op(atomic)));
        let is_live = access.end();
        changed?.ok().map(|before| if is_live || self.keeps_its_pages() { Ok(before) } else { Err(Lost) })
    }
}

/// A mapped region whose bytes are being accessed. (No closure is called in between: compilers do not always make such calls vanish.)
#[must_use = "the peer waits for the end of the access"]
struct Accessed<'a>(&'a MappedRegion);

impl<'a> Accessed<'a> {
    /// `None`: the region was taken back.
    #[inline(always)]
    fn bytes(&self) -> Option<&'a Bytes> {
        self.0.is_live().then_some(&self.0.bytes)
    }

    /// Ends the access. False: the region was taken back before or meanwhile, so what was read may not be its own, and what was written may
    /// have gone into pages that were replaced.
    #[inline(always)]
    fn end(self) -> bool {
        let is_live = self.0.is_live();
        self.0.direct.end();
        is_live
    }
}

/// Where a region of a peer's is among the pairs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Known(usize);

/// Where a region of a peer's is found among the pairs, until it is forgotten there. No other one is found by it then.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    place: usize,
    stamp: u64,
}

/// An operation that may have changed pages that are nobody's any more.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Lost;

/// What names a region.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Name {
    region: u64,
    key: u64,
}

/// No region has this name, as no slot of the table has this number.
const NO_REGION: Name = Name { region: u64::MAX, key: 0 };

impl From<RemoteAddress> for Name {
    #[inline]
    fn from(at: RemoteAddress) -> Name {
        Name { region: at.region, key: at.key }
    }
}

/// The two regions of operations on one connection.
struct Pair {
    /// No other pair has had it.
    stamp: u64,
    connection: Connection,
    local: Name,
    remote: Name,
    /// The local region; `None` for operations without one. The table of regions keeps it mapped.
    local_bytes: Option<Bytes>,
    /// Operations may write to the local region.
    is_target: bool,
    mapped: MappedRegion,
}

/// The pairs used lately. Whatever may make one wrong [clears](MappedPairs::clear) them: a region that is taken out of the table, a connection
/// that is open no more, and every change of what is mapped of a peer.
pub struct MappedPairs {
    /// By the low bits of what names the two.
    pairs: Box<[Option<Pair>; PAIRS]>,
    /// The stamp of the newest one.
    stamp: u64,
    misses: u32,
    /// Operations that were done.
    pub done: u64,
}

impl MappedPairs {
    pub fn new() -> MappedPairs {
        // Made where they stay: an array that is made on the stack takes along to the heap what else was there, and that may be a key.
        let pairs = std::iter::repeat_with(|| None).take(PAIRS).collect::<Box<[_]>>();
        let pairs = pairs.try_into().unwrap_or_else(|_| unreachable!("there are just so many"));
        MappedPairs { pairs, stamp: 0, misses: 0, done: 0 }
    }

    pub const fn bytes(&self) -> usize {
        size_of::<[Option<Pair>; PAIRS]>()
    }

    /// Forgets all pairs.
    pub fn clear(&mut self) {
        self.pairs.iter_mut().for_each(|pair| *pair = None);
    }

    /// Forgets the pairs of a local region.
    pub fn forget_local(&mut self, region: u64) {
        self.forget(|pair| pair.local.region == region);
    }

    /// Forgets the pairs of a connection.
    pub fn forget_connection(&mut self, connection: Connection) {
        self.forget(|pair| pair.connection == connection);
    }

    fn forget(&mut self, is: impl Fn(&mut Pair) -> bool) {
        for pair in &mut *self.pairs {
            pair.take_if(&is);
        }
    }

    /// Whether the pair of an operation that was not found here is to be entered.
    pub fn wants(
        &mut self,
        connection: Connection,
        local: Option<RemoteAddress>,
        remote: RemoteAddress,
    ) -> bool {
        let (local, remote) = (name(local), Name::from(remote));
        self.misses = self.misses.wrapping_add(1);
        match self.pairs.get(place(connection, local, remote)) {
            Some(Some(pair)) => {
                is_of(pair, connection, local, remote) || self.misses.is_multiple_of(MISSES_PER_PAIR)
            }
            _ => true,
        }
    }

    /// Enters a pair. `local`: the address, all bytes of its region, and whether operations may write there.
    pub fn insert(
        &mut self,
        connection: Connection,
        local: Option<(RemoteAddress, Bytes, bool)>,
        remote: RemoteAddress,
        mapped: MappedRegion,
    ) {
        let (local_name, remote) = (name(local.map(|(at, ..)| at)), Name::from(remote));
        let local_bytes = local.map(|(_, bytes, _)| bytes);
        let is_target = local.is_some_and(|(.., is_target)| is_target);
        self.stamp += 1;
        let stamp = self.stamp;
        let pair = Pair { stamp, connection, local: local_name, remote, local_bytes, is_target, mapped };
        if let Some(entry) = self.pairs.get_mut(place(connection, local_name, remote)) {
            *entry = Some(pair);
        }
    }

    /// Copies between the two regions. False: they are no pair, or the range or the rights are not theirs, or the peer has taken its
    /// region back. Then the operation is for the transport, which may repeat what was copied.
    #[inline(always)]
    pub fn copy(
        &mut self,
        kind: RmaKind,
        connection: Connection,
        local: RemoteAddress,
        remote: RemoteAddress,
        len_bytes: u64,
    ) -> bool {
        let Some(pair) = find(&self.pairs, connection, local.into(), remote.into()) else { return false };
        let Some(local_bytes) = &pair.local_bytes else { return false };
        let may_here = kind == RmaKind::Write || pair.is_target;
        if !may_here || len_bytes == 0 || !pair.mapped.may(kind, len_bytes) {
            return false;
        }
        let (len, at, local_at) = (len_bytes as usize, remote.offset as usize, local.offset as usize);
        let access = pair.mapped.begin();
        let is_copied =
            access.bytes().is_some_and(|bytes| copy_one(kind, (local_bytes, local_at), (bytes, at), len));
        let is_done = access.end() && is_copied;
        self.done += u64::from(is_done);
        is_done
    }

    /// Begins to copy without a local region. `None`: nothing is known at this place, the rights are not its own, or the bytes are too many for
    /// one turn.
    #[inline(always)]
    fn begin(&self, kind: RmaKind, known: Known, len: usize) -> Option<Accessed<'_>> {
        let pair = self.pairs[known.0 % PAIRS].as_ref()?;
        pair.mapped.may(kind, len as u64).then(|| pair.mapped.begin())
    }

    /// Where operations without a local region find this region of a peer's, as long as nothing else is done with the pairs.
    #[inline(always)]
    pub fn known(&self, connection: Connection, remote: RemoteAddress) -> Option<Known> {
        let place = place(connection, NO_REGION, remote.into());
        let pair = self.pairs[place].as_ref()?;
        is_of(pair, connection, NO_REGION, remote.into()).then_some(Known(place))
    }

    /// A [known](MappedPairs::known) region itself.
    #[inline]
    pub fn mapped(&self, known: Known) -> Option<&MappedRegion> {
        Some(&self.pairs[known.0 % PAIRS].as_ref()?.mapped)
    }

    /// What finds a [known](MappedPairs::known) region later.
    pub fn keep(&self, Known(place): Known) -> Option<Kept> {
        let stamp = self.pairs.get(place)?.as_ref()?.stamp;
        Some(Kept { place, stamp })
    }

    #[inline(always)]
    fn kept(&self, kept: &Kept) -> Option<&Pair> {
        self.pairs[kept.place % PAIRS].as_ref().filter(|pair| pair.stamp == kept.stamp)
    }

    /// The connection that a kept region is used on. `None`: it is not among the pairs any more.
    #[inline(always)]
    pub fn connection(&self, kept: &Kept) -> Option<Connection> {
        Some(self.kept(kept)?.connection)
    }

    /// Copies one block between local memory and a [kept](MappedPairs::keep) region of a peer's. False: as where [`MappedPairs::copy_blocks`]
    /// says so, or it is not among the pairs any more.
    // No closures, which the compiler might not compile in here; and nothing is loaded before it is needed, as there are few registers.
    #[inline(always)]
    pub fn copy_kept(
        &mut self,
        kind: RmaKind,
        (local, local_at): (&Bytes, usize),
        (remote, offset): (&Kept, u64),
        len: usize,
    ) -> bool {
        let Some(pair) = self.kept(remote) else { return false };
        if !pair.mapped.may(kind, len as u64) {
            return false;
        }
        let access = pair.mapped.begin();
        let is_copied = match (access.bytes(), kind) {
            (Some(bytes), RmaKind::Write) => bytes.copy_inlined_from(offset as usize, local, local_at, len),
            (Some(bytes), RmaKind::Read) => local.copy_inlined_from(local_at, bytes, offset as usize, len),
            (None, _) => false,
        };
        let is_done = access.end() && is_copied;
        self.done += u64::from(is_done);
        is_done
    }

    /// Writes bytes to a kept region of a peer's. False: as where [`MappedPairs::copy_kept`] says so.
    #[inline(always)]
    pub fn put_kept(&mut self, from: &[u8], (remote, offset): (&Kept, u64)) -> bool {
        let is_done = self.kept(remote).is_some_and(|pair| pair.mapped.put(from, offset));
        self.done += u64::from(is_done);
        is_done
    }

    /// Reads bytes from a kept region of a peer's. False: as where [`MappedPairs::copy_kept`] says so.
    #[inline(always)]
    pub fn get_kept(&mut self, (remote, offset): (&Kept, u64), to: &mut [u8]) -> bool {
        let is_done = self.kept(remote).is_some_and(|pair| pair.mapped.get(offset, to));
        self.done += u64::from(is_done);
        is_done
    }

    /// Changes a value of a kept region of a peer's, and answers the one from before. `None`: nothing was done, as where
    /// [`MappedPairs::copy_kept`] says false.
    #[inline(always)]
    pub fn fetch_kept(
        &mut self,
        atomic: Atomic,
        (target, offset): (&Kept, u64),
    ) -> Option<Result<u64, Lost>> {
        let before = self.kept(target)?.mapped.change(atomic, offset)?;
        self.done += 1;
        Some(before)
    }

    /// Copies blocks between local memory and a [known](MappedPairs::known) region of a peer's. False: a range or the rights are not its own, the
    /// blocks are too many bytes for one turn, or the peer has taken its region back. Some may have been copied then.
    #[inline(always)]
    pub fn copy_blocks(&mut self, kind: RmaKind, local: &Bytes, remote: Known, runs: &[BlockRun]) -> bool {
        let Some(len) = total_bytes(runs) else { return false };
        let Some(access) = self.begin(kind, remote, len) else { return false };
        let is_copied =
            access.bytes().is_some_and(|bytes| runs.iter().all(|run| copy_run(kind, local, bytes, run)));
        let is_done = access.end() && is_copied;
        self.done += u64::from(is_done);
        is_done
    }

    /// Writes bytes to a known region of a peer's. False: as where [`MappedPairs::copy_blocks`] says so.
    #[inline]
    pub fn put(&mut self, from: &[u8], (remote, offset): (Known, u64)) -> bool {
        let Some(access) = self.begin(RmaKind::Write, remote, from.len()) else { return false };
        let is_copied = access.bytes().is_some_and(|bytes| bytes.write(offset as usize, from));
        let is_done = access.end() && is_copied;
        self.done += u64::from(is_done);
        is_done
    }

    /// Reads bytes from a known region of a peer's. False: as where [`MappedPairs::copy_blocks`] says so.
    #[inline]
    pub fn get(&mut self, (remote, offset): (Known, u64), to: &mut [u8]) -> bool {
        let Some(access) = self.begin(RmaKind::Read, remote, to.len()) else { return false };
        let is_copied = access.bytes().is_some_and(|bytes| bytes.read(offset as usize, to));
        let is_done = access.end() && is_copied;
        self.done += u64::from(is_done);
        is_done
    }

    /// Copies one block between local memory and a known region of a peer's. False: as where [`MappedPairs::copy_blocks`] says so.
    #[inline(always)]
    pub fn copy_block(
        &mut self,
        kind: RmaKind,
        local: (&Bytes, usize),
        (remote, offset): (Known, u64),
        len: usize,
    ) -> bool {
        let Some(access) = self.begin(kind, remote, len) else { return false };
        let is_copied =
            access.bytes().is_some_and(|bytes| copy_one(kind, local, (bytes, offset as usize), len));
        let is_done = access.end() && is_copied;
        self.done += u64::from(is_done);
        is_done
    }

    /// Changes a value of a [known](MappedPairs::known) region of a peer's, and answers the one from before. `None`: as where
    /// [`MappedPairs::atomic`] says so.
    #[inline(always)]
    pub fn fetch(&mut self, atomic: Atomic, (target, offset): (Known, u64)) -> Option<Result<u64, Lost>> {
        let pair = self.pairs[target.0 % PAIRS].as_ref()?;
        let before = pair.mapped.change(atomic, offset)?;
        self.done += 1;
        Some(before)
    }

    /// Changes a value of the peer's region, and puts the value from before where it is wanted. `None`: as where [`MappedPairs::copy`]
    /// says false, and nothing was done.
    #[inline]
    pub fn atomic(
        &mut self,
        connection: Connection,
        atomic: Atomic,
        target: RemoteAddress,
        result: Option<RemoteAddress>,
    ) -> Option<Status> {
        let pair = find(&self.pairs, connection, name(result), target.into())?;
        let result_bytes = match (result, &pair.local_bytes) {
            (None, None) => None,
            (Some(at), Some(bytes)) if pair.is_target => Some(bytes.part(at.offset as usize, RESULT_BYTES)?),
            _ => return None,
        };
        let before = pair.mapped.change(atomic, target.offset)?;
        self.done += 1;
        let Ok(before) = before else { return Some(Status::TimedOut) };
        let is_put = result_bytes.is_none_or(|bytes| bytes.write(0, &before.to_ne_bytes()));
        debug_assert!(is_put, "the part is as long as the value");
        Some(Status::Success)
    }
}

/// How many bytes all blocks have; none if that is beyond all numbers.
#[inline(always)]
fn total_bytes(runs: &[BlockRun]) -> Option<usize> {
    runs.iter().try_fold(0_usize, |all, run| all.checked_add(run.len_bytes.checked_mul(run.count)?))
}

/// Copies bytes between places of local and of remote memory.
#[inline(always)]
fn copy_one(
    kind: RmaKind,
    (local, local_at): (&Bytes, usize),
    (remote, at): (&Bytes, usize),
    len: usize,
) -> bool {
    match kind {
        RmaKind::Write => remote.copy_from(at, local, local_at, len),
        RmaKind::Read => local.copy_from(local_at, remote, at, len),
    }
}

#[inline(always)]
fn copy_run(kind: RmaKind, local: &Bytes, remote: &Bytes, run: &BlockRun) -> bool {
    let BlockRun { len_bytes: len, count, .. } = *run;
    if count == 1 {
        return copy_one(kind, (local, run.local), (remote, run.remote), len);
    }
    let here = Blocks { first: run.local, stride: run.local_stride, len, count };
    let there = Blocks { first: run.remote, stride: run.remote_stride, len, count };
    match kind {
        RmaKind::Write => remote.copy_blocks_from(there, local, here),
        RmaKind::Read => local.copy_blocks_from(here, remote, there),
    }
}

fn name(at: Option<RemoteAddress>) -> Name {
    at.map_or(NO_REGION, Name::from)
}

#[inline(always)]
fn place(connection: Connection, local: Name, remote: Name) -> usize {
    (connection.index as usize ^ local.region as usize ^ remote.region as usize) % PAIRS
}

#[inline(always)]
fn is_of(pair: &Pair, connection: Connection, local: Name, remote: Name) -> bool {
    pair.connection == connection && pair.local == local && pair.remote == remote
}

#[inline(always)]
fn find(pairs: &[Option<Pair>; PAIRS], connection: Connection, local: Name, remote: Name) -> Option<&Pair> {
    let pair = pairs[place(connection, local, remote)].as_ref()?;
    is_of(pair, connection, local, remote).then_some(pair)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cci_memory::bytes::{AtomicKind as Kind, AtomicOp, AtomicWidth as Width, Foreign};
    use cci_memory::ring::region_bytes;
    use cci_proto::{AtomicKind, AtomicWidth};
    use std::os::fd::AsFd;

    const ON: Connection = Connection { index: 3, generation: 1 };
    const LOCAL: RemoteAddress = RemoteAddress { region: 1, key: 0, offset: 0 };
    const REMOTE: RemoteAddress = RemoteAddress { region: 2, key: 77, offset: 0 };
    const LEN: usize = 4096;
    const NAME: u64 = 4;
    const TOKEN: u64 = 9;

    struct Scene {
        pairs: MappedPairs,
        local: SharedMemory,
        remote: Arc<SharedMemory>,
        control: Arc<SharedMemory>,
    }

    impl Scene {
        /// A pair, the remote part of which is the second half of its memory.
        fn new(access: Access, is_target: bool) -> Scene {
            let memory = || SharedMemory::create("cci-test", LEN).unwrap();
            let control = Arc::new(SharedMemory::create_read_only_for_others(LEN).unwrap());
            let scene =
                Scene { pairs: MappedPairs::new(), local: memory(), remote: Arc::new(memory()), control };
            scene.with_pair((LEN / 2, LEN / 2), access, is_target)
        }

        /// A pair, the remote part of which is all of the control page. `replaced`: the count of replaced pages.
        fn over_the_control_page(replaced: u64) -> Scene {
            let mut scene = Scene::new(Access::ALL, true);
            scene.remote = scene.control.clone();
            scene.say(REPLACED_WORD.into(), replaced);
            scene.with_pair((0, LEN), Access::ALL, true)
        }

        fn with_pair(mut self, part: (usize, usize), access: Access, is_target: bool) -> Scene {
            self.say(NAME, TOKEN);
            let fd = self.control.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
            let reader = Arc::new(SharedMemory::open_read_only(fd, LEN).unwrap());
            let ring = SharedMemory::create("cci-test", region_bytes(4096)).unwrap();
            let direct = ring.into_producer(1000).unwrap().direct();
            let region =
                MappedRegion::new(self.remote.clone(), part, access, &reader, (NAME, TOKEN), direct).unwrap();
            self.pairs.insert(ON, Some((LOCAL, self.local.bytes(), is_target)), REMOTE, region);
            self
        }

        /// Changes a word of the control page.
        fn say(&mut self, name: u64, word: u64) {
            let op = AtomicOp { kind: Kind::Swap, width: Width::Eight, operand: word, compare: 0 };
            self.control.bytes().atomic(name as usize * 8, op).unwrap();
        }

        fn copy(&mut self, kind: RmaKind, at: u64, len: u64) -> bool {
            let remote = RemoteAddress { offset: at, ..REMOTE };
            self.pairs.copy(kind, ON, LOCAL, remote, len)
        }

        fn remote(&self, at: usize) -> u8 {
            let mut byte = [0];
            assert!(self.remote.bytes().read(at, &mut byte));
            byte[0]
        }
    }

    #[test]
    fn a_pair_is_used_within_its_range_and_rights() {
        let mut scene = Scene::new(Access::WRITE, true);
        assert!(scene.local.bytes().fill(0, LEN, 7));
        assert!(scene.copy(RmaKind::Write, 0, 8) && scene.copy(RmaKind::Write, 100, LEN as u64 / 2 - 100));
        assert_eq!((scene.remote(LEN / 2 - 1), scene.remote(LEN / 2), scene.remote(LEN - 1)), (0, 7, 7));
        let beyond = [(0, 0), (1, LEN as u64 / 2), (LEN as u64 / 2, 1), (u64::MAX, 1), (0, u64::MAX)];
        for (at, len) in beyond {
            assert!(!scene.copy(RmaKind::Write, at, len), "{len} at {at}");
        }
        assert!(!scene.copy(RmaKind::Read, 0, 8), "it may only be written");
        let others = [
            (Connection { generation: 2, ..ON }, LOCAL, REMOTE),
            (ON, RemoteAddress { region: 17, ..LOCAL }, REMOTE),
            (ON, LOCAL, RemoteAddress { key: 78, ..REMOTE }),
            (ON, LOCAL, RemoteAddress { region: 18, ..REMOTE }),
        ];
        for (on, local, remote) in others {
            assert!(!scene.pairs.copy(RmaKind::Write, on, local, remote, 8));
        }
        assert_eq!(scene.pairs.done, 2);
        for (is_target, reads) in [(true, true), (false, false)] {
            assert_eq!(Scene::new(Access::READ, is_target).copy(RmaKind::Read, 0, 8), reads);
        }
    }

    #[test]
    fn a_region_that_is_not_live_is_not_used() {
        let mut scene = Scene::new(Access::ALL, true);
        assert!(scene.local.bytes().fill(0, LEN, 7));
        let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        for word in [0, TOKEN + 1] {
            scene.say(NAME, word);
            assert!(!scene.copy(RmaKind::Write, 0, 8) && !scene.copy(RmaKind::Read, 0, 8));
            assert_eq!(scene.pairs.atomic(ON, add, REMOTE, Some(LOCAL)), None);
        }
        assert_eq!((scene.remote(LEN / 2), scene.pairs.done), (0, 0));
        scene.say(NAME, TOKEN);
        assert!(scene.copy(RmaKind::Read, 0, 8));
        assert_eq!(scene.pairs.atomic(ON, add, REMOTE, Some(LOCAL)), Some(Status::Success));
        assert_eq!(scene.pairs.atomic(ON, add, REMOTE, None), None, "the pair has a local region");
        assert_eq!(scene.pairs.atomic(ON, add, RemoteAddress { offset: 4, ..REMOTE }, Some(LOCAL)), None);
        let end = RemoteAddress { offset: LEN as u64 - 7, ..LOCAL };
        assert_eq!(scene.pairs.atomic(ON, add, REMOTE, Some(end)), None);
        assert_eq!(scene.remote(LEN / 2), 1);
        scene.pairs.forget_local(LOCAL.region + 1);
        assert!(scene.copy(RmaKind::Read, 0, 8));
        scene.pairs.forget_local(LOCAL.region);
        assert!(!scene.copy(RmaKind::Read, 0, 8));
    }

    /// The region lies in the control page itself, so that an operation can take it back.
    #[test]
    fn a_value_that_was_changed_as_its_region_was_taken_back_is_known_unless_pages_were_replaced() {
        let word = |name: u64| RemoteAddress { offset: name * 8, ..REMOTE };
        let swap =
            |operand| Atomic { kind: AtomicKind::Swap, width: AtomicWidth::Eight, operand, compare: 0 };
        for (before, after, expected) in [
            (1, 1, Status::Success),
            (5, 5, Status::Success),
            (1, 2, Status::TimedOut),
            (0, 0, Status::TimedOut),
            (0, 1, Status::TimedOut),
        ] {
            let mut scene = Scene::over_the_control_page(before);
            assert_eq!(
                scene.pairs.atomic(ON, swap(after), word(REPLACED_WORD.into()), Some(LOCAL)),
                Some(Status::Success)
            );
            assert_eq!(scene.pairs.atomic(ON, swap(0), word(NAME), Some(LOCAL)), Some(expected));
            assert_eq!(scene.pairs.atomic(ON, swap(0), word(NAME), Some(LOCAL)), None);
            if expected == Status::Success {
                let mut taken = [0; RESULT_BYTES];
                assert!(scene.local.bytes().read(0, &mut taken));
                assert_eq!(u64::from_ne_bytes(taken), TOKEN);
            }
        }
    }

    #[test]
    fn blocks_are_copied_within_the_region_and_while_it_is_live() {
        let mut scene = Scene::new(Access::WRITE, true);
        let data: Vec<u8> = (0..LEN).map(|at| at as u8).collect();
        let local = Foreign::owned(data.clone().into());
        let run =
            BlockRun { local: 1, local_stride: 3, remote: 4, remote_stride: 8, len_bytes: 2, count: 100 };
        let half = LEN / 2;
        let copy = |scene: &mut Scene, kind, runs: &[BlockRun]| {
            let known = scene.pairs.known(ON, REMOTE);
            known.is_some_and(|known| scene.pairs.copy_blocks(kind, &local.bytes(), known, runs))
        };
        assert!(!copy(&mut scene, RmaKind::Write, &[run]), "it is only known beside a local region");
        let mapped = scene.pairs.pairs.iter_mut().find_map(Option::take).unwrap().mapped;
        scene.pairs.insert(ON, None, REMOTE, mapped);
        let single = BlockRun { local: 7, remote: half - 1, len_bytes: 1, count: 1, ..run };
        assert!(copy(&mut scene, RmaKind::Write, &[run, single]));
        for block in 0..100 {
            let (at, from) = (half + 4 + 8 * block, 1 + 3 * block);
            assert_eq!((scene.remote(at), scene.remote(at + 1)), (data[from], data[from + 1]));
            assert_eq!((scene.remote(at - 1), scene.remote(at + 2)), (0, 0));
        }
        assert_eq!((scene.remote(LEN - 1), scene.pairs.done), (7, 1));
        let beyond = [
            BlockRun { remote: half - 1, count: 1, ..run },
            BlockRun { remote_stride: -8, ..run },
            BlockRun { remote_stride: (half / 99 + 1) as isize, ..run },
            BlockRun { local: LEN - 200, ..run },
            BlockRun { count: usize::MAX, ..run },
        ];
        for run in beyond {
            assert!(!copy(&mut scene, RmaKind::Write, &[run]), "{run:?}");
        }
        assert!(!copy(&mut scene, RmaKind::Read, &[run]), "it may only be written");
        scene.say(NAME, 0);
        assert!(!copy(&mut scene, RmaKind::Write, &[run]));
        let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
        let known = scene.pairs.known(ON, REMOTE).unwrap();
        assert_eq!((scene.pairs.fetch(add, (known, 0)), scene.pairs.done), (None, 1));
        let others = [
            (Connection { generation: 2, ..ON }, REMOTE),
            (ON, RemoteAddress { key: 78, ..REMOTE }),
            (ON, RemoteAddress { region: REMOTE.region + PAIRS as u64, ..REMOTE }),
        ];
        assert!(others.iter().all(|(on, remote)| scene.pairs.known(*on, *remote).is_none()));
    }

    #[test]
    fn one_miss_in_some_takes_the_place_of_another_pair() {
        let mut scene = Scene::new(Access::ALL, true);
        let same_place = RemoteAddress { region: REMOTE.region + PAIRS as u64, ..REMOTE };
        let wanted = (0..800).filter(|_| scene.pairs.wants(ON, Some(LOCAL), same_place)).count();
        assert_eq!(wanted, 800 / MISSES_PER_PAIR as usize);
        assert!(scene.pairs.wants(ON, Some(LOCAL), REMOTE), "itself anew");
        assert!(scene.pairs.wants(ON, None, REMOTE), "a free place");
        scene.pairs.clear();
        assert!(scene.pairs.wants(ON, Some(LOCAL), same_place));
    }

    #[test]
    fn a_kept_region_is_found_until_it_is_forgotten() {
        type Forget = fn(&mut Scene);
        let forgets: [(&str, Forget); 4] = [
            ("all pairs", |scene| scene.pairs.clear()),
            ("those of its connection", |scene| scene.pairs.forget_connection(ON)),
            ("entered anew", |scene| {
                let mapped = scene.pairs.pairs.iter_mut().find_map(Option::take).unwrap().mapped;
                scene.pairs.insert(ON, None, REMOTE, mapped);
            }),
            ("of another peer's", |scene| {
                let mapped = scene.pairs.pairs.iter_mut().find_map(Option::take).unwrap().mapped;
                let same_place = RemoteAddress { region: REMOTE.region + PAIRS as u64, ..REMOTE };
                scene.pairs.insert(ON, None, same_place, mapped);
            }),
        ];
        for (what, forget) in forgets {
            let mut scene = Scene::new(Access::ALL, true);
            let mapped = scene.pairs.pairs.iter_mut().find_map(Option::take).unwrap().mapped;
            scene.pairs.insert(ON, None, REMOTE, mapped);
            let known = scene.pairs.known(ON, REMOTE).unwrap();
            let kept = scene.pairs.keep(known).unwrap();
            scene.pairs.forget_connection(Connection { generation: 2, ..ON });
            scene.pairs.forget_local(LOCAL.region);
            let local = scene.local.bytes();
            assert!(local.fill(0, LEN, 7));
            let copy = |scene: &mut Scene| scene.pairs.copy_kept(RmaKind::Write, (&local, 0), (&kept, 0), 8);
            assert!(copy(&mut scene), "{what}");
            assert_eq!((scene.remote(LEN / 2), scene.pairs.connection(&kept)), (7, Some(ON)), "{what}");
            forget(&mut scene);
            assert!(!copy(&mut scene), "{what}");
            let add = Atomic { kind: AtomicKind::Add, width: AtomicWidth::Eight, operand: 1, compare: 0 };
            assert_eq!(
                (scene.pairs.fetch_kept(add, (&kept, 0)), scene.pairs.connection(&kept)),
                (None, None)
            );
            assert_eq!((scene.remote(LEN / 2), scene.pairs.done), (7, 1), "{what}");
        }
    }
}
