//! The global address space as programs use it.

mod turns;

use crate::address::GlobalAddress;
use crate::buffers::Buffers;
use crate::channels::Channels;
use crate::data;
use crate::engine::{Direct, Engine, Handle, Order};
use crate::error::{AcpError, Result};
use crate::limits::{
    ALIGN_BYTES, CLOSE_LIMIT, COLORS, RANKS_MAX, SCRATCH_BYTES, SILENCE_LIMIT, STARTER_PLACE,
};
use crate::links::Links;
use crate::numbering::Numbering;
use crate::regions::{RegionKey, Regions};
use crate::reserve::Reserves;
use crate::space::{Space, behind};
use cci::{Atomic, AtomicKind, AtomicWidth, Device, Foreign, Memory, Options};
use cci_job::{Connections, Job, Ranks};
use std::time::Duration;

/// Bytes of an address in memory.
const WORD_BYTES: usize = 8;
/// Where the heap begins in the library's memory: behind the buffer for transfers and the word of a broadcast.
const HEAP_AT: usize = SCRATCH_BYTES + 16;
/// A rank's number in memory.
const NUMBER_BYTES: usize = 4;

/// This process's part in the global address space of its job.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use cci_acp::GlobalMemory;
///
/// let mut job = cci_job::Job::join()?;
/// let context = cci::Context::new()?;
/// let device = context.device("any").ok_or("no device any")?;
/// let mut global = GlobalMemory::open(&mut job, device, cci::Options::default(), 10_240)?;
/// let memory = global.allocate(1 << 20)?;
/// let key = global.register(&memory, 0)?;
/// // Others read the address of this memory from the starter memory here.
/// let address = global.address(key, 0)?;
/// assert!(global.starter_memory().write(0, &address.to_bits().to_ne_bytes()));
/// global.sync()?;
/// # Ok(())
/// # }
/// ```
pub struct GlobalMemory {
    pub(crate) links: Links,
    pub(crate) channels: Channels,
    pub(crate) buffers: Buffers,
    pub(crate) regions: Regions,
    engine: Engine,
    /// The result of the barrier that this rank has called, until its caller has taken it.
    barrier_end: Option<Result<()>>,
    starter: Memory,
    /// The library's memory: the buffer for transfers, and the heap.
    library: Memory,
    heap_bytes: u64,
    reserves: Reserves,
}

impl GlobalMemory {
    /// Opens the global address space (`acp_init`). All ranks call it, in the same order with exchanges and barriers of the job, with the same
    /// `starter_bytes`: each gets starter memory of that length (8 at least), zeroed. Only ranks of this job reach its memory.
    ///
    /// # Errors
    /// There are more ranks than addresses have space for. The endpoint can't be opened. Those of [`Ranks::open`].
    pub fn open(
        job: &mut Job,
        device: &Device,
        options: Options,
        starter_bytes: usize,
    ) -> Result<GlobalMemory> {
        GlobalMemory::open_with_heap(job, device, options, starter_bytes, 0)
    }

    /// Opens the global address space with starter memory of `starter_bytes` and a heap of `heap_bytes` on each rank, the same on all. In the heaps,
    /// ranks [allocate](crate::allocate) memory on each other; containers are in them, too. Only what is used of a heap takes memory. The
    /// [cap](field@Options::memory_bytes_max) of the endpoint's memory is raised by three times the length of all heaps of this host, so that it may
    /// map them. All ranks call it.
    ///
    /// # Errors
    /// Those of [`GlobalMemory::open`]. The heap is longer than 1 TiB.
    pub fn open_with_heap(
        job: &mut Job,
        device: &Device,
        options: Options,
        starter_bytes: usize,
        heap_bytes: usize,
    ) -> Result<GlobalMemory> {
        if job.size() > RANKS_MAX {
            return Err(AcpError::Full("there are more ranks than global addresses have space for"));
        }
        if heap_bytes as u64 > data::HEAP_BYTES_MAX {
            return Err(AcpError::Full("a heap has 1 TiB at most"));
        }
        let options = Connections::options(job, device, options)?;
        let options = with_heaps(options, heap_bytes as u64, job.local_size());
        GlobalMemory::over(Ranks::open(job, device, options)?, starter_bytes, heap_bytes)
    }

    /// Opens it over the connections of a rank, for tests of layers.
    ///
    /// # Errors
    /// The system has no memory.
    #[doc(hidden)]
    pub fn over(mut ranks: Ranks, starter_bytes: usize, heap_bytes: usize) -> Result<GlobalMemory> {
        let starter = ranks.endpoint().allocate(starter_bytes.max(WORD_BYTES))?;
        let library = ranks.endpoint().allocate(HEAP_AT + heap_bytes)?;
        let mut regions = Regions::beginning_at(STARTER_PLACE);
        let key = regions.register(ranks.endpoint(), &starter, 0)?;
        debug_assert_eq!(key.place(), STARTER_PLACE, "memory of the library begins with a page");
        let key = regions.register(ranks.endpoint(), &library, 0)?;
        debug_assert_eq!(key.place(), library_place(starter.len()), "it is where others expect it");
        let is_inside = library.write(HEAP_AT, &data::prepare(heap_bytes as u64));
        debug_assert!(is_inside);
        Ok(GlobalMemory {
            links: Links::new(ranks),
            channels: Channels::default(),
            buffers: Buffers::default(),
            regions,
            engine: Engine::default(),
            barrier_end: None,
            starter,
            library,
            heap_bytes: heap_bytes as u64,
            reserves: Reserves::default(),
        })
    }

    /// Gives up the endpoint in its present state, for simulations.
    #[doc(hidden)]
    pub fn into_endpoint(self) -> cci::Endpoint {
        self.links.ranks.into_endpoint()
    }

    /// The number of this rank (`acp_rank`).
    pub fn rank(&self) -> u32 {
        self.links.rank()
    }

    /// How many ranks there are (`acp_procs`).
    pub fn size(&self) -> u32 {
        self.links.ranks.size()
    }

    /// The number of colours (`acp_colors`). Accesses of one colour do not wait for those of another. On the device `any`, those
    /// of colour 0 take the best path, which is shared memory on one host. Those of colour 1 always use a network, if the device
    /// has one. On other devices both take the same path.
    pub fn colors(&self) -> u32 {
        COLORS
    }

    /// The address at which the starter memory of a rank begins (`acp_query_starter_ga`). Its colour is 0.
    ///
    /// # Errors
    /// There is no such rank.
    pub fn starter(&self, rank: u32) -> Result<GlobalAddress> {
        let size = self.size();
        let there = (rank < size).then(|| GlobalAddress::new(rank, 0, STARTER_PLACE)).flatten();
        there.ok_or(AcpError::Rank { rank, size })
    }

    /// This rank's own starter memory.
    pub fn starter_memory(&self) -> &Memory {
        &self.starter
    }

    /// Allocates memory that other processes of this host access without this one's help, once it is registered: zeroed, whole pages.
    ///
    /// # Errors
    /// The length is 0, or the system has no memory.
    pub fn allocate(&mut self, len_bytes: usize) -> Result<Memory> {
        Ok(self.links.endpoint().allocate(len_bytes)?)
    }

    /// Gives memory global addresses, by which all ranks may read and change it from now on (`acp_register_memory`). Accesses take the
    /// connection of this colour. Memory may be registered any number of times.
    ///
    /// # Errors
    /// There is no such colour. There is no space left. The memory is not mapped as it should be.
    pub fn register(&mut self, memory: &Memory, color: u32) -> Result<RegionKey> {
        self.regions.register(self.links.endpoint(), memory, color)
    }

    /// Ends a registration (`acp_unregister_memory`): when this returns, no rank reads or changes the memory by it any more.
    ///
    /// # Errors
    /// It has ended before, or it is that of the starter memory, which stays.
    pub fn unregister(&mut self, key: RegionKey) -> Result<()> {
        if key.place() <= library_place(self.starter.len()) {
            return Err(AcpError::Argument("starter memory stays registered"));
        }
        self.regions.unregister(self.links.endpoint(), key)
    }

    /// The global address of a byte of registered memory (`acp_query_ga`). The position after the last byte has an address,
    /// too.
    ///
    /// # Errors
    /// The registration has ended, or the memory is shorter.
    pub fn address(&self, key: RegionKey, offset_bytes: usize) -> Result<GlobalAddress> {
        let region = self.regions.get(key)?;
        let is_inside = offset_bytes <= region.memory.len();
        let place = key.place() + offset_bytes as u64;
        let address = GlobalAddress::new(self.rank(), region.color, place).filter(|_| is_inside);
        address.ok_or(AcpError::Argument("the address is behind the end of the registered memory"))
    }

    /// The memory of this process that a global address names, and how many bytes into it (`acp_query_address`).
    ///
    /// # Errors
    /// It is another rank's address, or no memory is registered there any more.
    pub fn local(&self, address: GlobalAddress) -> Result<(&Memory, usize)> {
        if address.rank() != self.rank() {
            return Err(AcpError::Argument("this address names memory of another rank"));
        }
        let found = self.regions.find(address.color(), address.place(), 0);
        let (_, region, offset) = found.ok_or_else(|| AcpError::NotRegistered(address))?;
        Ok((&region.memory, offset as usize))
    }

    /// Starts to copy `len_bytes` from any rank's registered memory to any rank's, which may be the same (`acp_copy`). If both have memory of
    /// [`GlobalMemory::allocate`] on one host, neither rank's program takes part; otherwise they take part in their calls. In a copy between two
    /// other ranks, the one that has the source always takes part. Never blocks.
    ///
    /// # Errors
    /// There is no such rank or colour. This process's own part is not registered. That another rank has not registered its part is found
    /// out later: then [`GlobalMemory::complete`] returns it.
    pub fn copy(
        &mut self,
        dst: GlobalAddress,
        src: GlobalAddress,
        len_bytes: usize,
        order: Order,
    ) -> Result<Handle> {
        let handle = self.engine.copy(&mut self.links, &self.regions, (dst, src, len_bytes as u64), order)?;
        self.turn_now_and_then();
        Ok(handle)
    }

    /// Starts to change 4 or 8 bytes of any rank's registered memory at `src`, atomically; the value from before goes to `dst`, which is memory of this
    /// rank (`acp_cas4`, `acp_swap4`, `acp_add4`, `acp_xor4`, `acp_or4`, `acp_and4`, and those of 8 bytes). Both are aligned to the width. Never blocks.
    ///
    /// # Errors
    /// `dst` is another rank's. An address is not aligned. Those of [`GlobalMemory::copy`].
    pub fn atomic(
        &mut self,
        dst: GlobalAddress,
        src: GlobalAddress,
        atomic: Atomic,
        order: Order,
    ) -> Result<Handle> {
        let handle = self.engine.atomic(&mut self.links, &self.regions, (dst, src, atomic), order)?;
        self.turn_now_and_then();
        Ok(handle)
    }

    /// Takes a turn from time to time, since operations that are done at once make no progress for others.
    #[inline]
    fn turn_now_and_then(&mut self) {
        if self.engine.wants_turn() {
            self.turn();
        }
    }

    /// The operation of this number ([`Handle::number`]); `None` if it was not issued.
    pub fn handle(&self, number: u64) -> Option<Handle> {
        self.engine.handle(number)
    }

    /// The operation that was issued last; `None` if there was none.
    pub fn last(&self) -> Option<Handle> {
        self.engine.handle(self.engine.last().number())
    }

    /// Waits until this operation and all before it have ended (`acp_complete`). Serves other ranks meanwhile, and sleeps if that takes long.
    ///
    /// # Errors
    /// [`AcpError::Failed`] if one of them has failed: it is kept until [`GlobalMemory::take_failure`]. The system refuses to wait.
    pub fn complete(&mut self, handle: Handle) -> Result<()> {
        while !self.engine.has_ended(handle) {
            self.turn();
            if !self.engine.has_ended(handle) {
                self.wait()?;
            }
        }
        self.engine.failure(handle)
    }

    /// Waits until all operations have ended (`acp_complete` of `ACP_HANDLE_ALL`).
    ///
    /// # Errors
    /// Those of [`GlobalMemory::complete`].
    pub fn complete_all(&mut self) -> Result<()> {
        self.complete(self.engine.last())
    }

    /// Whether this operation and all before it have ended (`acp_inquire` is 0 then). Makes progress, and never blocks.
    pub fn has_ended(&mut self, handle: Handle) -> bool {
        self.turn();
        self.engine.has_ended(handle)
    }

    /// Waits until all operations have ended, and forgets the failure of the first one that has failed, if any has. Until then everything that is
    /// ordered after it fails, too.
    ///
    /// # Errors
    /// The system refuses to wait.
    pub fn take_failure(&mut self) -> Result<Option<AcpError>> {
        match self.complete_all() {
            Ok(()) | Err(AcpError::Failed { .. }) => Ok(self.engine.take_failure()),
            Err(error) => Err(error),
        }
    }

    /// Makes progress with operations of this rank and of others. Never blocks. Call it now and then while the program computes.
    pub fn progress(&mut self) {
        self.turn();
    }

    /// Makes progress for the progress thread, and prepares for its sleep. Returns whether the thread may sleep until something
    /// comes, or only for a moment because something waits for space. `None` if there may be more to do.
    pub(crate) fn prepare_sleep(&mut self) -> Option<bool> {
        self.turn();
        if self.engine.waits_for_space || self.channels.waits_for_space || self.buffers.waits_for_space {
            return Some(false);
        }
        self.links.prepare_sleep()
    }

    /// Records that were ignored because no process that keeps to the protocol sends them.
    pub fn faults(&self) -> u64 {
        self.links.faults
    }

    /// Checks that a rank exists and is not this one.
    pub(crate) fn check_other(&self, rank: u32) -> Result<()> {
        let size = self.size();
        if rank >= size {
            return Err(AcpError::Rank { rank, size });
        }
        let is_other = rank != self.rank();
        is_other.then_some(()).ok_or(AcpError::Argument("a channel or segmented buffer is between two ranks"))
    }

    /// Waits until all ranks have called it (`acp_sync`). This rank serves the others meanwhile, and sleeps if that takes long. Operations go
    /// on.
    ///
    /// # Errors
    /// A rank is gone.
    pub fn sync(&mut self) -> Result<()> {
        self.links.ranks.barrier(SILENCE_LIMIT)?;
        loop {
            if let Some(end) = self.turn() {
                return end;
            }
            self.wait()?;
        }
    }

    /// Gives all ranks a word of one rank, such as the address of a container or a length. All ranks call it.
    ///
    /// # Errors
    /// There is no such rank. A rank is gone.
    pub fn broadcast(&mut self, root: u32, word: u64) -> Result<u64> {
        let size = self.size();
        if root >= size {
            return Err(AcpError::Rank { rank: root, size });
        }
        if root == self.rank() {
            let is_inside = self.library.write(SCRATCH_BYTES, &word.to_ne_bytes());
            debug_assert!(is_inside);
        }
        self.sync()?;
        let at = GlobalAddress::new(root, 0, library_place(self.starter.len()) + SCRATCH_BYTES as u64);
        let word = self.read_word(at.ok_or(AcpError::Full("there is no space for starter memory"))?)?;
        // The next broadcast may not come before all ranks have read this one.
        self.sync()?;
        Ok(word)
    }

    /// Ends all registrations, fills starter memory with zeros, empties the heap, and makes this process `rank` (`acp_reset`), when all operations of all ranks have
    /// ended. All ranks call it, each with another number. Addresses from before are void. A failure that was not taken is forgotten.
    ///
    /// # Errors
    /// Two ranks want the same number, or one a number that no rank has: all ranks get that error, and nothing has changed. A rank is gone.
    pub fn reset(&mut self, rank: u32) -> Result<()> {
        self.take_failure()?;
        // After the next barrier, no rank writes to the memory of requests any more. The requests end.
        self.channels.allow_placement(false);
        let end = self.reset_with_barriers(rank);
        self.channels.allow_placement(true);
        end
    }

    fn reset_with_barriers(&mut self, rank: u32) -> Result<()> {
        self.sync()?;
        let by_number = self.exchange_numbers(rank)?;
        let by_job_rank = (0..self.size()).map(|job_rank| {
            let number = self.links.number(job_rank) as usize;
            by_number.get(number).copied().unwrap_or(u32::MAX)
        });
        let numbering = Numbering::new(by_job_rank.collect())?;
        self.regions.unregister_behind(self.links.endpoint(), library_place(self.starter.len()))?;
        let is_inside = self.starter.write(0, &vec![0; self.starter.len()])
            && self.library.write(HEAP_AT, &data::prepare(self.heap_bytes));
        debug_assert!(is_inside);
        self.reserves = Reserves::default();
        self.engine.forget();
        self.channels.forget(&mut self.links)?;
        self.buffers.forget(&mut self.links)?;
        self.links.renumber(numbering);
        // Until then, nobody uses memory of a rank that has not cleared it.
        self.sync()
    }

    /// Gives a number of this rank to all ranks, and returns everybody's, by rank. Rank 0 has a list, to which every rank writes
    /// and which it then reads. Rank 0's starter memory has the address of the list meanwhile, and gets its own content back.
    fn exchange_numbers(&mut self, number: u32) -> Result<Vec<u32>> {
        const WRONG: AcpError = AcpError::Argument(
            "rank 0 gave bytes that are no global address: all ranks must run the same version of this library",
        );
        let (rank, size) = (self.rank() as usize, self.size() as usize);
        let memory = vec![0; WORD_BYTES + NUMBER_BYTES * size].into_boxed_slice();
        let memory = Memory::foreign(Foreign::owned(memory));
        let key = self.register(&memory, 0)?;
        let mut content = [0; WORD_BYTES];
        let mut is_inside = self.starter.read(0, &mut content);
        if rank == 0 {
            let own = self.address(key, 0)?;
            is_inside &= self.starter.write(0, &own.to_bits().to_ne_bytes());
        }
        self.sync()?;
        let at = WORD_BYTES + NUMBER_BYTES * rank;
        is_inside &= memory.write(at, &number.to_ne_bytes());
        let mut first = [0; WORD_BYTES];
        let own = self.address(key, 0)?;
        let asked = self.copy(own, self.starter(0)?, WORD_BYTES, Order::Now)?;
        self.complete(asked)?;
        is_inside &= memory.read(0, &mut first);
        let list = GlobalAddress::from_bits(u64::from_ne_bytes(first)).ok_or(WRONG)?;
        let there = |offset: usize| list.checked_add(offset as u64).ok_or(WRONG);
        if rank != 0 {
            let own = self.address(key, at)?;
            let written = self.copy(there(at)?, own, NUMBER_BYTES, Order::Now)?;
            self.complete(written)?;
        }
        self.sync()?;
        if rank != 0 {
            let own = self.address(key, WORD_BYTES)?;
            let read = self.copy(own, there(WORD_BYTES)?, NUMBER_BYTES * size, Order::Now)?;
            self.complete(read)?;
        }
        self.sync()?;
        if rank == 0 {
            is_inside &= self.starter.write(0, &content);
        }
        self.unregister(key)?;
        let mut list = vec![0; NUMBER_BYTES * size];
        is_inside &= memory.read(WORD_BYTES, &mut list);
        debug_assert!(is_inside);
        Ok(list.as_chunks::<NUMBER_BYTES>().0.iter().map(|bytes| u32::from_ne_bytes(*bytes)).collect())
    }

    /// The buffer for bytes that this rank reads of others or writes to them.
    fn scratch(&self) -> Result<GlobalAddress> {
        let place = library_place(self.starter.len());
        GlobalAddress::new(self.rank(), 0, place)
            .ok_or_else(|| AcpError::Full("there is no space for starter memory"))
    }

    /// Does an operation, and returns when it has ended.
    fn do_now(&mut self, dst: GlobalAddress, src: GlobalAddress, what: Direct) -> Result<()> {
        self.turn_now_and_then();
        self.engine.start_direct(&mut self.links, &self.regions, (dst, src), what)?;
        loop {
            if let Some(end) = self.engine.take_direct() {
                return end;
            }
            self.turn();
            if !self.engine.has_direct() {
                self.links.wait(self.engine.waits_for_space)?;
            }
        }
    }

    /// Changes a word, and returns its previous value.
    fn change(&mut self, at: GlobalAddress, kind: AtomicKind, operand: u64, compare: u64) -> Result<u64> {
        let atomic = Atomic { kind, width: AtomicWidth::Eight, operand, compare };
        self.turn_now_and_then();
        // The check of the operation refuses an unaligned value.
        let is_aligned = at.to_bits().is_multiple_of(WORD_BYTES as u64);
        let endpoint = self.links.endpoint();
        if is_aligned && let Some(found) = self.engine.mapped.fetch(endpoint, at, atomic) {
            return found.map_err(|_| AcpError::NotRegistered(at));
        }
        self.do_now(self.scratch()?, at, Direct::Atomic(atomic))?;
        let mut found = [0; WORD_BYTES];
        let is_inside = self.library.read(0, &mut found);
        debug_assert!(is_inside);
        Ok(u64::from_ne_bytes(found))
    }

    /// Leaves the global address space (`acp_finalize`), when all operations of all ranks have ended. All ranks call it.
    ///
    /// # Errors
    /// A rank is gone. An operation has failed.
    pub fn close(mut self) -> Result<()> {
        let ended = self.complete_all();
        let end = self.sync();
        self.links.ranks.close(CLOSE_LIMIT);
        ended.and(end)
    }
}

impl Space for GlobalMemory {
    fn rank(&self) -> u32 {
        GlobalMemory::rank(self)
    }

    fn size(&self) -> u32 {
        GlobalMemory::size(self)
    }

    fn heap(&self, rank: u32) -> Result<GlobalAddress> {
        let size = self.size();
        if rank >= size {
            return Err(AcpError::Rank { rank, size });
        }
        let place = library_place(self.starter.len()) + HEAP_AT as u64;
        let heap = GlobalAddress::new(rank, 0, place).filter(|_| self.heap_bytes > 0);
        heap.ok_or_else(|| AcpError::Argument("this job has no heap: open global memory with one"))
    }

    fn heap_bytes(&self) -> u64 {
        self.heap_bytes
    }

    #[inline]
    fn reserves(&mut self) -> &mut Reserves {
        &mut self.reserves
    }

    fn read(&mut self, at: GlobalAddress, bytes: &mut [u8]) -> Result<()> {
        if at.rank() == self.rank() {
            let (memory, offset) = self.local(at)?;
            return memory.read(offset, bytes).then_some(()).ok_or_else(|| AcpError::NotRegistered(at));
        }
        self.turn_now_and_then();
        if self.engine.mapped.read(self.links.endpoint(), at, bytes) {
            return Ok(());
        }
        let (mut from, scratch) = (at, self.scratch()?);
        for part in bytes.chunks_mut(SCRATCH_BYTES) {
            let len = part.len() as u64;
            self.do_now(scratch, from, Direct::Copy(len))?;
            let is_inside = self.library.read(0, part);
            debug_assert!(is_inside);
            from = behind(from, len)?;
        }
        Ok(())
    }

    fn write(&mut self, at: GlobalAddress, bytes: &[u8]) -> Result<()> {
        if at.rank() == self.rank() {
            let (memory, offset) = self.local(at)?;
            return memory.write(offset, bytes).then_some(()).ok_or_else(|| AcpError::NotRegistered(at));
        }
        self.turn_now_and_then();
        if self.engine.mapped.write(self.links.endpoint(), at, bytes) {
            return Ok(());
        }
        let (mut to, scratch) = (at, self.scratch()?);
        for part in bytes.chunks(SCRATCH_BYTES) {
            let len = part.len() as u64;
            let is_inside = self.library.write(0, part);
            debug_assert!(is_inside);
            self.do_now(to, scratch, Direct::Copy(len))?;
            to = behind(to, len)?;
        }
        Ok(())
    }

    fn compare_swap(&mut self, at: GlobalAddress, expected: u64, new: u64) -> Result<u64> {
        self.change(at, AtomicKind::CompareSwap, new, expected)
    }

    fn serve(&mut self, pause: Duration) -> Result<()> {
        self.turn();
        if pause.is_zero() {
            // The rank that is waited for may need this core.
            std::thread::yield_now();
            Ok(())
        } else {
            self.links.wait_for(pause)
        }
    }

    fn has_died(&mut self, rank: u32) -> Result<bool> {
        let size = self.size();
        if rank >= size {
            return Err(AcpError::Rank { rank, size });
        }
        Ok(self.links.has_lost(rank))
    }
}

/// The heaps of a host are added this many times to the cap of an endpoint's memory, so that they can be mapped. Half of it is
/// for other transports, a quarter of the rest is reserved for operations, and while there are several peers, one gets at most
/// half of what is left.
const HEAPS_IN_CAP: u64 = 3;

/// Options of an endpoint that may map the heaps of `local_size` ranks. The original cap remains for everything else.
pub(crate) fn with_heaps(options: Options, heap_bytes: u64, local_size: u32) -> Options {
    let heaps_bytes = heap_bytes.saturating_mul(local_size.into()).saturating_mul(HEAPS_IN_CAP);
    let cap_bytes = options.memory_bytes_max.saturating_add(heaps_bytes);
    options.memory_bytes_max(cap_bytes)
}

/// The place at which the library's memory begins on every rank, by the length of starter memory.
fn library_place(starter_bytes: usize) -> u64 {
    (STARTER_PLACE + starter_bytes as u64).next_multiple_of(ALIGN_BYTES) + ALIGN_BYTES
}
