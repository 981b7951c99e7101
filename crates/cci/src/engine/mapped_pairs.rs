//! Pairs of regions between which operations of this endpoint are plain copies: a region of its own and a mapped one of a peer's. Both
//! were found, and their rights checked, once; an operation between them searches no other table.

use crate::connection::{Connection, Status};
use crate::limits;
use crate::rma::{Access, atomic_op};
use cci_memory::bytes::{Backing, Bytes};
use cci_memory::ring::Direct;
use cci_proto::{Atomic, RemoteAddress, RmaKind};
use cci_sys::shared_memory::{SharedMemory, SharedMemoryReader};
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
    control: Arc<SharedMemoryReader>,
    /// Where in `control` the live word is.
    live_at: usize,
    /// What the live word holds while the region may be used.
    token: u64,
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
        control: Arc<SharedMemoryReader>,
        (name, token): (u64, u64),
        direct: Direct<Arc<SharedMemory>>,
    ) -> Option<MappedRegion> {
        let bytes = memory.bytes().part(start, len_bytes)?;
        let live_at = name as usize * 8;
        Some(MappedRegion { bytes, access, control, live_at, token, direct, name, _memory: memory })
    }

    #[inline]
    fn is_live(&self) -> bool {
        self.control.load(self.live_at) == Ok(self.token)
    }
}

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
    connection: Connection,
    local: Name,
    remote: Name,
    /// The local region; `None` for atomics whose value from before nobody wants. The table of regions keeps it mapped.
    local_bytes: Option<Bytes>,
    /// Operations may write to the local region.
    is_target: bool,
    mapped: MappedRegion,
}

/// The pairs used lately. Whatever may make one wrong [clears](MappedPairs::clear) them: a region that is taken out of the table, and
/// every change of what is mapped of a peer. Whether a connection is open is for the caller to ask.
pub struct MappedPairs {
    /// By the low bits of what names the two.
    pairs: Box<[Option<Pair>; PAIRS]>,
    misses: u32,
    /// Operations that were done.
    pub done: u64,
}

impl MappedPairs {
    pub fn new() -> MappedPairs {
        // Made where they stay: an array that is made on the stack takes along to the heap what else was there, and that may be a key.
        let pairs = std::iter::repeat_with(|| None).take(PAIRS).collect::<Box<[_]>>();
        let pairs = pairs.try_into().unwrap_or_else(|_| unreachable!("there are just so many"));
        MappedPairs { pairs, misses: 0, done: 0 }
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
        for pair in &mut *self.pairs {
            if pair.as_ref().is_some_and(|pair| pair.local.region == region) {
                *pair = None;
            }
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
        let pair = Pair { connection, local: local_name, remote, local_bytes, is_target, mapped };
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
        let mapped = &pair.mapped;
        let may = match kind {
            RmaKind::Write => mapped.access.contains(Access::WRITE),
            RmaKind::Read => mapped.access.contains(Access::READ) && pair.is_target,
        };
        if !may || len_bytes.wrapping_sub(1) >= limits::RMA_COPY_BYTES as u64 {
            return false;
        }
        let (len, at, local_at) = (len_bytes as usize, remote.offset as usize, local.offset as usize);
        mapped.direct.begin(mapped.name);
        // If the region was taken back meanwhile, what was read may not be the region's any more, and what was written may have gone
        // into pages that were replaced.
        let copied = mapped.is_live()
            && match kind {
                RmaKind::Write => mapped.bytes.copy_from(at, local_bytes, local_at, len),
                RmaKind::Read => local_bytes.copy_from(local_at, &mapped.bytes, at, len),
            }
            && mapped.is_live();
        mapped.direct.end();
        self.done += u64::from(copied);
        copied
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
        let mapped = &pair.mapped;
        let result_bytes = match (result, &pair.local_bytes) {
            (None, None) => None,
            (Some(at), Some(bytes)) if pair.is_target => Some(bytes.part(at.offset as usize, RESULT_BYTES)?),
            _ => return None,
        };
        if !mapped.access.contains(Access::ATOMIC) {
            return None;
        }
        mapped.direct.begin(mapped.name);
        let changed =
            mapped.is_live().then(|| mapped.bytes.atomic(target.offset as usize, atomic_op(atomic)));
        // If the region was taken back meanwhile, its pages may have been replaced before, or after. It can't be repeated.
        let may_be_lost = matches!(changed, Some(Ok(_))) && !mapped.is_live();
        mapped.direct.end();
        let before = changed?.ok()?;
        self.done += 1;
        if may_be_lost {
            return Some(Status::TimedOut);
        }
        let is_put = result_bytes.is_none_or(|bytes| bytes.write(0, &before.to_ne_bytes()));
        debug_assert!(is_put, "the part is as long as the value");
        Some(Status::Success)
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
    use cci_memory::bytes::{AtomicKind as Kind, AtomicOp, AtomicWidth as Width};
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
        control: SharedMemory,
    }

    impl Scene {
        /// A pair, the remote part of which is the second half of its memory.
        fn new(access: Access, is_target: bool) -> Scene {
            let memory = || SharedMemory::create("cci-test", LEN).unwrap();
            let control = SharedMemory::create_read_only_for_others(LEN).unwrap();
            let (local, remote) = (memory(), Arc::new(memory()));
            let mut scene = Scene { pairs: MappedPairs::new(), local, remote, control };
            scene.say(TOKEN);
            let fd = scene.control.fd().unwrap().as_fd().try_clone_to_owned().unwrap();
            let reader = Arc::new(SharedMemory::open_read_only(fd, LEN).unwrap());
            let ring = SharedMemory::create("cci-test", region_bytes(4096)).unwrap();
            let direct = ring.into_producer(1000).unwrap().direct();
            let part = (LEN / 2, LEN / 2);
            let region =
                MappedRegion::new(scene.remote.clone(), part, access, reader, (NAME, TOKEN), direct).unwrap();
            let local = Some((LOCAL, scene.local.bytes(), is_target));
            scene.pairs.insert(ON, local, REMOTE, region);
            scene
        }

        /// Changes the live word.
        fn say(&mut self, word: u64) {
            let op = AtomicOp { kind: Kind::Swap, width: Width::Eight, operand: word, compare: 0 };
            self.control.bytes().atomic(NAME as usize * 8, op).unwrap();
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
            scene.say(word);
            assert!(!scene.copy(RmaKind::Write, 0, 8) && !scene.copy(RmaKind::Read, 0, 8));
            assert_eq!(scene.pairs.atomic(ON, add, REMOTE, Some(LOCAL)), None);
        }
        assert_eq!((scene.remote(LEN / 2), scene.pairs.done), (0, 0));
        scene.say(TOKEN);
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
}
