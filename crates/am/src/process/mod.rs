//! The active messages of a process: contexts, links to other ranks, and messages that are due to be handled.

pub(crate) mod alone;
mod barrier;
mod collective_calls;
mod collectives;
mod content;
mod contexts;
mod counted;
#[cfg(test)]
mod counted_collective_tests;
#[cfg(test)]
mod counted_tests;
mod direct;
mod dispatcher;
mod due;
mod explain;
mod followers;
mod framing;
mod inbox;
mod large;
#[cfg(test)]
mod large_tests;
mod link;
mod links;
mod news;
mod onesided;
#[cfg(test)]
mod onesided_tests;
mod operation;
mod packed;
#[cfg(test)]
mod packed_tests;
mod part;
mod registered;
mod results;
mod sending;
mod served;
mod symmetric;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod update_tests;
mod waiting;

pub use collectives::{Collective, Team};
pub use contexts::{Context, Handler};
pub use due::{Batch, Delivery, Due, Token};
pub use explain::{RankExplanation, WaitsFor};
pub use followers::{Followers, Following};
pub use large::Held;
pub use links::Starter;
pub use part::{Elements, Part, Transfer};

use crate::arithmetic::{Accumulation, Change, Number, Reduction};
use crate::description::{Description, Readable};
use crate::error::{AmError, Result};
pub use crate::wire::Args;
use crate::wire::{Header, Kind};
use barrier::Barrier;
use cci::Memory;
use cci_job::Ranks;
use collectives::Collectives;
use content::{check, pack};
use contexts::Space;
use counted::Counted;
use dispatcher::Dispatcher;
use large::LargeMessages;
use links::Links;
use news::News;
use onesided::{Ended, OneSided};
use std::collections::VecDeque;
use std::thread;
use std::time::Duration;
use symmetric::Symmetric;
use waiting::Looks;

/// A process of a job, for callers that call handlers themselves, as the C interface does. [`Runtime`](crate::Runtime) has closures instead.
///
/// Here a handler is a number. [`Process::next`] returns what is due, with the number that was registered. After the caller has called the
/// handler, it calls [`Process::end`]. So nothing of the process is borrowed while a handler runs, and the handler may use all of it.
pub struct Process {
    links: Links,
    dispatcher: Dispatcher,
    memory: OneSided,
    symmetric: Symmetric,
    large: LargeMessages,
    collectives: Collectives,
    barrier: Barrier,
    counted: Counted,
    /// How many messages had been started when this process arrived at the last barrier.
    started: u64,
    /// Whether nobody has started anything since the barrier before the last one.
    was_idle: bool,
    /// The buffer into which described data are packed.
    packed: Vec<u8>,
    gone: VecDeque<(u32, String)>,
    /// A rank that is gone, so that no barrier is possible.
    missing: Option<(u32, String)>,
    looks: Looks,
}

impl Process {
    /// Makes a process of connections that nobody else uses.
    pub fn new(ranks: Ranks) -> Process {
        let collectives = Collectives::new(ranks.rank(), ranks.hosts());
        let hosts = ranks.hosts();
        let counted = Counted::new(ranks.rank(), hosts);
        let here = hosts.get(ranks.rank() as usize);
        let ranks_here = hosts.iter().filter(|host| Some(*host) == here).count();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Process {
            looks: Looks::new(ranks_here, cores),
            links: Links::new(ranks),
            collectives,
            counted,
            dispatcher: Dispatcher::default(),
            memory: OneSided::default(),
            symmetric: Symmetric::default(),
            large: LargeMessages::default(),
            barrier: Barrier::default(),
            started: 0,
            was_idle: false,
            packed: Vec::new(),
            gone: VecDeque::new(),
            missing: None,
        }
    }

    /// The number of this process among those of the job.
    pub fn rank(&self) -> u32 {
        self.links.rank()
    }

    /// How many processes the job has.
    pub fn size(&self) -> u32 {
        self.links.size()
    }

    /// Makes a context. The n-th one without a name of a process is the n-th of every other.
    ///
    /// # Errors
    /// There are too many.
    pub fn context(&mut self) -> Result<Context> {
        self.dispatcher.has_new_handlers = true;
        self.dispatcher.contexts.add_unnamed()
    }

    /// Makes a context with a name, or returns it: the same name is the same context, here and elsewhere.
    ///
    /// # Errors
    /// The name is longer than 256 bytes, or there are too many contexts.
    pub fn named_context(&mut self, name: &str) -> Result<Context> {
        self.dispatcher.has_new_handlers = true;
        self.dispatcher.contexts.add_named(name)
    }

    /// Frees a context, with its handlers. Messages that come for it later are discarded.
    ///
    /// # Errors
    /// [`AmError::WouldBlock`] as long as messages of this process are on their way out. It was freed before.
    pub fn free(&mut self, context: Context) -> Result<()> {
        self.dispatcher.contexts.check(context)?;
        if !self.links.are_sent() {
            return Err(AmError::WouldBlock);
        }
        self.dispatcher.has_new_handlers = true;
        self.dispatcher.contexts.free(context)
    }

    /// Registers `handler` as the handler `id` of a context.
    ///
    /// # Errors
    /// The number is taken, or the context was freed.
    pub fn register(&mut self, context: Context, id: u16, handler: Handler) -> Result<()> {
        self.dispatcher.has_new_handlers = true;
        self.dispatcher.contexts.register(context, Space::Messages, id, handler)
    }

    /// Registers `handler` as the handler `id` of a context for large messages. Their numbers are not those of [`Process::register`].
    ///
    /// # Errors
    /// The number is taken, or the context was freed.
    pub fn register_large(&mut self, context: Context, id: u16, handler: Handler) -> Result<()> {
        self.dispatcher.has_new_handlers = true;
        self.dispatcher.contexts.register(context, Space::Large, id, handler)
    }

    /// Starts a large message, of any length: the handler runs at the rank before any data are there, and says where they go. They must not
    /// change until [`Due::Done`] reports how it has ended: well, with [`AmError::Aborted`], or with [`AmError::Differs`].
    ///
    /// # Errors
    /// Those of [`Process::request`]; the part is not inside of its memory, or can't be registered. [`AmError::WouldBlock`] also if 256 large ones are
    /// under way to that rank.
    #[expect(clippy::too_many_arguments, reason = "a message, and how its end is reported")]
    pub fn send_large(
        &mut self,
        starter: Starter,
        context: Context,
        rank: u32,
        handler: u16,
        args: &[i64],
        local: Part,
        cookie: u64,
    ) -> Result<()> {
        check(args, &[])?;
        self.check_rank(rank)?;
        self.dispatcher.contexts.check(context)?;
        let offer = self.large.offer(&mut self.links, rank, local, cookie)?;
        let sent = self.dispatcher.contexts.name(context).and_then(|name| {
            let data = offer.encode();
            let header = Header {
                kind: Kind::Large,
                ..Header::message(false, context.number(), handler, args.len(), data.len())
            };
            self.links.start(starter, rank, context, name, header, args, &data)
        });
        sent.inspect_err(|_| self.large.withdraw(&mut self.links, offer))
    }

    /// Keeps the large message whose handler runs, to say now or later what becomes of it.
    ///
    /// # Errors
    /// Its handler has returned, it is no large message, or this was called before.
    pub fn hold(&mut self, token: Token) -> Result<Held> {
        let (rank, offer) = self.dispatcher.take_offer(token)?;
        self.large.hold(&mut self.links, rank, offer)
    }

    /// Has the data of a held message go to elements in this process's memory, the first of which has its origin `origin` bytes from its
    /// beginning. [`Due::Done`] reports how it has ended. If the message is longer or shorter, nothing is fetched, and that is [`AmError::Differs`].
    ///
    /// # Errors
    /// It is not held, or not any more; described bytes are outside of the memory.
    pub fn accept(&mut self, held: Held, into: (&Memory, isize, Elements), cookie: u64) -> Result<()> {
        self.large.accept(&mut self.links, &mut self.memory, held, into, cookie)
    }

    /// Ends a held message, of which nothing comes.
    ///
    /// # Errors
    /// It is not held, or not any more.
    pub fn abort(&mut self, held: Held) -> Result<()> {
        self.large.abort(&mut self.links, &mut self.memory, held)
    }

    /// Starts a message, which is copied or sent when this returns.
    ///
    /// # Errors
    /// [`AmError::WouldBlock`]: as many messages of this process are under way to that rank as may be. Else there is no such rank, it is gone, the
    /// context was freed, or there are too many arguments or too much data.
    #[inline(always)]
    pub fn request(
        &mut self,
        starter: Starter,
        context: Context,
        rank: u32,
        handler: u16,
        args: &[i64],
        data: &[u8],
    ) -> Result<()> {
        if self.request_at_once(starter, context, rank, handler, args, data) {
            return Ok(());
        }
        self.request_otherwise(starter, context, rank, handler, args, data)
    }

    /// Starts a short message without arguments if everything is ready, as for most. Returns false if nothing was done; then
    /// [`Process::request`] does it, or reports why not.
    #[inline(always)]
    pub(crate) fn request_at_once(
        &mut self,
        starter: Starter,
        context: Context,
        rank: u32,
        handler: u16,
        args: &[i64],
        data: &[u8],
    ) -> bool {
        args.is_empty()
            && self.dispatcher.contexts.is_open(context)
            && self.links.start_at_once(starter, rank, context, handler, data)
    }

    #[inline(never)]
    fn request_otherwise(
        &mut self,
        starter: Starter,
        context: Context,
        rank: u32,
        handler: u16,
        args: &[i64],
        data: &[u8],
    ) -> Result<()> {
        check(args, data)?;
        self.check_rank(rank)?;
        let name = self.dispatcher.contexts.name(context)?;
        let header = Header::message(false, context.number(), handler, args.len(), data.len());
        self.links.start(starter, rank, context, name, header, args, data)
    }

    /// As [`Process::request`], with described data, which is packed. The first element's origin is `origin` bytes from the beginning of the
    /// memory.
    ///
    /// # Errors
    /// Those of [`Process::request`], and [`AmError::Described`].
    #[expect(clippy::too_many_arguments, reason = "a message, and what describes its data")]
    pub fn request_described(
        &mut self,
        starter: Starter,
        context: Context,
        rank: u32,
        handler: u16,
        args: &[i64],
        (memory, origin): (Readable<'_>, isize),
        count: usize,
        description: &Description,
    ) -> Result<()> {
        let mut packed = std::mem::take(&mut self.packed);
        let done = pack(&mut packed, memory, origin, count, description)
            .and_then(|data| self.request(starter, context, rank, handler, args, data));
        self.packed = packed;
        done
    }

    /// As [`Process::reply`], with described data, which is packed.
    ///
    /// # Errors
    /// Those of [`Process::reply`], and [`AmError::Described`].
    pub fn reply_described(
        &mut self,
        token: Token,
        handler: u16,
        args: &[i64],
        (memory, origin): (Readable<'_>, isize),
        count: usize,
        description: &Description,
    ) -> Result<()> {
        let mut packed = std::mem::take(&mut self.packed);
        let done = pack(&mut packed, memory, origin, count, description)
            .and_then(|data| self.reply(token, handler, args, data));
        self.packed = packed;
        done
    }

    /// Replies to the message whose handler runs. There is space for one reply, always.
    ///
    /// # Errors
    /// The handler has replied before, or has returned. The context was freed; or there are too many arguments or too much data.
    pub fn reply(&mut self, token: Token, handler: u16, args: &[i64], data: &[u8]) -> Result<()> {
        check(args, data)?;
        let (rank, context, is_own) = self.dispatcher.take_reply(token)?;
        // The credit goes with the reply, and is the receiver's if it is not this process's.
        let is_receivers = !is_own;
        let name = self.dispatcher.contexts.name(context)?;
        self.links.link(rank).depart(!is_receivers);
        let header = Header::message(is_receivers, context.number(), handler, args.len(), data.len());
        self.links.send(rank, context, name, header, args, data);
        Ok(())
    }

    /// Makes progress, and runs no handlers.
    #[inline(always)]
    pub fn progress(&mut self) {
        self.counted.makes_progress();
        self.links.progress();
        if self.links.has_word() {
            self.hear();
        }
        self.memory.advance(&mut self.links);
        self.counted.advance(&mut self.links);
        self.advance_counted();
        if !self.collectives.are_idle() {
            self.collectives.advance_all(&mut self.links);
        }
        let (rank, size) = (self.rank(), self.size());
        while let Some(arrival) = self.barrier.next(rank, size) {
            self.links.report_arrival(arrival);
        }
    }

    /// Handles the news of the links.
    #[inline(never)]
    fn hear(&mut self) {
        while let Some(news) = self.links.next_news() {
            match news {
                News::Gone { rank, why } => {
                    self.memory.lose(&mut self.links, rank, &why);
                    self.large.lose(&mut self.links, &mut self.memory, rank, &why);
                    self.collectives.lose(&mut self.links, rank, &why);
                    self.counted.lose(&mut self.links, rank);
                    self.missing.get_or_insert_with(|| (rank, why.clone()));
                    self.gone.push_back((rank, why));
                }
                News::LostElsewhere { rank } => self.lose_elsewhere(rank, "a rank that has left had lost it"),
                News::Leaving { rank: 0, passed, was_idle } => self.counted.owner_left(passed, was_idle),
                News::Leaving { .. } => {}
                News::Counted { rank, word } => self.hear_counted(rank, word),
                News::Memory { rank, word } => {
                    if !self.memory.hear(&mut self.links, rank, word) {
                        self.links.refuse_rank(rank);
                    }
                }
                News::LargeEnded { rank, number, outcome } => {
                    if !self.large.ended(&mut self.links, &mut self.memory, rank, number, outcome) {
                        self.links.refuse_rank(rank);
                    }
                }
                News::Ended { operation: counted::MAPPING, .. } => self.counted.mapped(),
                News::Ended { operation, status } => {
                    self.memory.complete(&mut self.links, operation, status);
                }
                News::Collected { rank, collected } => {
                    if !self.collectives.hear(&mut self.links, rank, collected) {
                        self.links.refuse_rank(rank);
                    }
                }
                News::Arrived { rank, number, round, is_busy } => {
                    if !self.barrier.hear(number, round, is_busy) {
                        self.links.refuse_rank(rank);
                    }
                }
            }
        }
    }

    /// Takes what is due, for [`Process::next`]. `None` if nothing is, or the last batch was not put back.
    #[inline]
    pub fn take_due(&mut self) -> Option<Batch> {
        if !self.has_due() {
            return None;
        }
        self.dispatcher.take(&mut self.links)
    }

    /// Whether handlers are to be called.
    #[inline]
    pub fn has_due(&self) -> bool {
        self.links.has_news() || self.has_ends() || self.dispatcher.has_new_handlers
    }

    /// Puts a batch back, so that the next one can be taken. If a handler did not return as it should, the rest of the batch
    /// waits, and is due with the next one.
    #[inline(always)]
    pub fn put_back(&mut self, batch: Batch) {
        self.end_running();
        self.dispatcher.put_back(&mut self.links, batch);
    }

    /// The next remote operation that has ended: the number with which it was started and its result, for callers that want to
    /// know of ends before [`Process::next`] reports them.
    pub fn next_done(&mut self) -> Option<(u64, Result<u64>)> {
        self.memory.next_ended().map(|Ended { cookie, result }| (cookie, result))
    }

    /// The next collective that has ended: the number with which it was started and its result, for callers that want to know of
    /// ends before [`Process::next`] reports them.
    pub fn next_collected(&mut self) -> Option<(u64, Result<Vec<u8>>)> {
        self.collectives.next_ended()
    }

    /// The next message of a batch, if it has come whole, waits behind nothing, as most do, and no end comes before it. `None` if
    /// not; then nothing was done, and [`Process::next`] returns what is due. This call is optional, and costs less.
    #[inline(always)]
    pub fn next_at_once<'a>(&mut self, batch: &'a mut Batch) -> Option<Delivery<'a>> {
        // After the last message, only this is checked.
        if batch.inbox.is_empty() || self.has_ends() {
            return None;
        }
        self.dispatcher.next_at_once(&mut self.links, batch)
    }

    /// Whether a batch may have something more.
    #[inline(always)]
    pub(crate) fn has_more(&self, batch: &Batch) -> bool {
        !batch.inbox.is_empty() || self.has_ends() || self.dispatcher.is_holding()
    }

    /// Whether something has ended. Ends come before messages.
    #[inline(always)]
    fn has_ends(&self) -> bool {
        self.memory.has_ended() || self.collectives.has_ended() || !self.gone.is_empty()
    }

    /// The next thing of a batch that is due.
    pub fn next<'a>(&mut self, batch: &'a mut Batch) -> Option<Due<'a>> {
        if self.has_ends()
            && let Some(end) = self.next_end()
        {
            return Some(end);
        }
        self.dispatcher.next(&mut self.links, batch).map(Due::Message)
    }

    /// The next end of an operation, a collective or a rank. Ends come before messages.
    #[cold]
    fn next_end(&mut self) -> Option<Due<'static>> {
        if let Some(Ended { cookie, result }) = self.memory.next_ended() {
            return Some(Due::Done { cookie, result });
        }
        if let Some((cookie, result)) = self.collectives.next_ended() {
            return Some(Due::Collected { cookie, result });
        }
        self.gone.pop_front().map(|(rank, why)| Due::Gone { rank, why })
    }

    /// Ends a message whose handler has returned.
    #[inline]
    pub fn end(&mut self, token: Token) {
        if let Some((rank, offer)) = self.dispatcher.end(&mut self.links, token) {
            self.large.refuse(&mut self.links, &mut self.memory, rank, offer);
        }
    }

    /// Whether a handler runs.
    pub fn is_handling(&self) -> bool {
        self.dispatcher.is_handling()
    }

    /// The sender and the context of the message whose handler runs.
    ///
    /// # Errors
    /// Its handler has returned.
    pub fn message(&self, token: Token) -> Result<(u32, Context)> {
        self.dispatcher.running(token).map(|running| (running.sender, running.context))
    }

    /// Allocates memory of the library's own, which other ranks of this host map when they access it.
    ///
    /// # Errors
    /// It has no bytes, or the system refuses.
    pub fn allocate(&mut self, len_bytes: usize) -> Result<Memory> {
        Ok(self.links.endpoint().allocate(len_bytes)?)
    }

    /// Lets all ranks of the job access memory by its addresses in this process. It may be registered several times.
    ///
    /// # Errors
    /// It is not mapped, or not writable, or there are too many regions.
    pub fn register_memory(&mut self, memory: &Memory) -> Result<()> {
        self.memory.register(&mut self.links, memory)
    }

    /// Takes back one registration of the memory from this address on. With the last one the rights of other ranks end: when this returns,
    /// nobody accesses it any more.
    ///
    /// # Errors
    /// It is not registered with these bounds.
    pub fn deregister_memory(&mut self, address: u64, len_bytes: usize) -> Result<()> {
        self.memory.deregister(&mut self.links, address, len_bytes)
    }

    /// Begins to allocate memory at one address in all ranks, and says with which collective of all of them: its result is for
    /// [`Process::end_symmetric`].
    ///
    /// # Errors
    /// It has no bytes.
    pub fn begin_symmetric(&mut self, len_bytes: usize) -> Result<Collective> {
        if len_bytes == 0 {
            return Err(AmError::Argument("symmetric memory of 0 bytes: allocate one byte at least"));
        }
        self.take_back_symmetric();
        let (memory, mut data) = self.symmetric.attempt(self.links.endpoint(), len_bytes);
        // A rank that knows that all have the memory may access it at once.
        if let Some(memory) = memory
            && self.memory.register_symmetric(&mut self.links, &memory).is_err()
        {
            drop(self.symmetric.take_back());
            data = symmetric::refusal(&data);
        }
        Ok(Collective::Allreduce { data, with: (Number::U64, Reduction::Min) })
    }

    /// Ends what [`Process::begin_symmetric`] has begun, by the result of its collective: with the memory, which is registered, or None if all
    /// ranks have to try once more, at another address.
    ///
    /// # Errors
    /// Ranks differ in how many bytes they allocate, or some rank can't have them. Nothing is left of it.
    pub fn end_symmetric(&mut self, agreed: &[u8]) -> Result<Option<Memory>> {
        let ended = self.symmetric.agree(agreed);
        self.take_back_symmetric();
        ended
    }

    fn take_back_symmetric(&mut self) {
        if let Some(memory) = self.symmetric.take_back() {
            self.memory.free_symmetric(&mut self.links, &memory);
        }
    }

    /// Whether symmetric memory begins at this address.
    pub fn is_symmetric(&self, address: u64) -> bool {
        self.symmetric.find(address).is_some()
    }

    /// Frees symmetric memory, when no rank accesses it any more: after a barrier.
    ///
    /// # Errors
    /// None begins at this address.
    pub fn free_symmetric(&mut self, address: u64) -> Result<()> {
        let memory = self.symmetric.find(address).cloned();
        let memory = memory.ok_or(AmError::Argument("no symmetric memory begins at this address"))?;
        self.memory.free_symmetric(&mut self.links, &memory);
        self.symmetric.free(address);
        Ok(())
    }

    /// Starts to copy between a part of memory of this process and as many bytes at an address of any rank. [`Due::Done`] reports when
    /// the copy is complete, and the local part must not change until then. If the copy is complete at once, this returns 0.
    ///
    /// # Errors
    /// [`AmError::WouldBlock`]: 4,096 operations are under way. Else there is no such rank, the part is not inside of its memory, or there are no such
    /// addresses.
    pub fn transfer(
        &mut self,
        transfer: Transfer,
        rank: u32,
        remote: u64,
        local: &Part,
        cookie: u64,
    ) -> Result<Option<u64>> {
        if self.transfer_at_once(transfer, rank, remote, local) {
            return Ok(Some(0));
        }
        self.check_rank(rank)?;
        self.memory.transfer(&mut self.links, transfer, rank, remote, local, cookie)
    }

    /// Copies as [`Process::transfer`] does, if a plain copy is possible now. Returns false if nothing was done; that call reports why.
    #[inline(always)]
    pub(crate) fn transfer_at_once(
        &mut self,
        transfer: Transfer,
        rank: u32,
        remote: u64,
        local: &Part,
    ) -> bool {
        self.memory.transfer_at_once(&mut self.links, transfer, (rank, remote), local)
    }

    /// Starts to copy between described data of this process, whose first element has its origin `origin` bytes from the beginning of `local`, and
    /// described data of a rank's, whose first element has its origin at the address `remote`. All that the rank's description spans is in one
    /// region there. In all else it does what [`Process::transfer`] does.
    ///
    /// # Errors
    /// Those of [`Process::transfer`], and: both sides differ in their numbers of bytes; described bytes are outside of the local memory.
    pub fn transfer_described(
        &mut self,
        transfer: Transfer,
        rank: u32,
        remote: (u64, Elements),
        local: (&Memory, isize, Elements),
        cookie: u64,
    ) -> Result<Option<u64>> {
        self.check_rank(rank)?;
        self.memory.transfer_described(&mut self.links, transfer, rank, remote, local, cookie)
    }

    /// Starts to change elements of a rank's memory by as many of this process's, each atomically with respect to all such operations from any rank.
    /// In all else it does what [`Process::transfer_described`] does. The rank makes the changes in its progress, and all elements of one of the
    /// parts that it is sent, or none.
    ///
    /// # Errors
    /// Those of [`Process::transfer_described`], and: there are no such operations on floats, or some piece of the rank's description is not
    /// of whole elements at multiples of their length.
    pub fn accumulate(
        &mut self,
        what: (Accumulation, Number),
        rank: u32,
        remote: (u64, Elements),
        local: (&Memory, isize, Elements),
        cookie: u64,
    ) -> Result<()> {
        self.check_rank(rank)?;
        self.memory.accumulate(&mut self.links, what, rank, remote, local, cookie)
    }

    /// Starts to put a part of memory of this process to where a pointer of 8 bytes at the address `pointer` of a rank's points. When the data are
    /// there, the pointer moves on by their length, atomically. The rank does it in its progress.
    ///
    /// # Errors
    /// Those of [`Process::transfer`], and: the address of the pointer is no multiple of 8.
    pub fn indexed_put(&mut self, rank: u32, pointer: u64, local: Part, cookie: u64) -> Result<()> {
        self.check_rank(rank)?;
        self.memory.indexed_put(&mut self.links, rank, pointer, local, cookie)
    }

    /// Starts an atomic operation on a word at an address of a rank's, this one too. [`Due::Done`] has the value that it found, or this returns it. It is atomic with
    /// regard to all other such operations, from any rank.
    ///
    /// # Errors
    /// [`AmError::WouldBlock`]: 4,096 operations are under way. Else there is no such rank, or the address is no multiple of the width.
    pub fn atomic(&mut self, rank: u32, remote: u64, change: Change, cookie: u64) -> Result<Option<u64>> {
        match self.fetch_at_once(rank, remote, change) {
            Some(Ok(value)) => return Ok(Some(value)),
            Some(Err(error)) => {
                self.end_later(cookie, error);
                return Ok(None);
            }
            None => {}
        }
        self.check_rank(rank)?;
        self.memory.atomic(&mut self.links, rank, remote, change, cookie).map(|()| None)
    }

    /// Changes a word as [`Process::atomic`] does, if that can be done now, and returns the previous value. `None` if nothing was done; that
    /// call reports why. After an error it is not known whether the change was made, so it must not be repeated.
    #[inline]
    pub(crate) fn fetch_at_once(&mut self, rank: u32, remote: u64, change: Change) -> Option<Result<u64>> {
        let fetched = self.memory.fetch_at_once(&mut self.links, (rank, remote), change)?;
        Some(fetched.map_err(|status| AmError::Gone { rank, why: status.to_string() }))
    }

    /// Ends an operation that has failed. [`Due::Done`] reports it.
    #[cold]
    pub(crate) fn end_later(&mut self, cookie: u64, error: AmError) {
        self.memory.report_ended(cookie, Err(error));
    }

    fn check_rank(&self, rank: u32) -> Result<()> {
        if rank < self.size() { Ok(()) } else { Err(AmError::Range("there is no such rank in this job")) }
    }

    /// How many operations on a rank's memory have not ended; of all ranks, without a rank.
    pub fn operations(&self, rank: Option<u32>) -> u64 {
        self.memory.under_way(rank)
    }

    /// The number of this process in a team, and how many members that has.
    ///
    /// # Errors
    /// There is no such team.
    pub fn team(&mut self, team: Team) -> Result<(u32, u32)> {
        let (ranks, place) = self.collectives.teams().find(team)?;
        Ok((place.me as u32, ranks.len() as u32))
    }

    /// The contribution of this process to the split of a team. The members gather all contributions ([`Collective::Allgather`]),
    /// and each calls [`Process::split`] with the result.
    pub fn split_card(&mut self, color: i32, key: i32) -> Vec<u8> {
        self.collectives.teams().card(color, key)
    }

    /// Makes the team of those members of `parent` that have the same color, in the order of their keys, and then of their numbers there.
    ///
    /// # Errors
    /// These are not the cards of the members, or there are too many teams.
    pub fn split(&mut self, parent: Team, cards: &[u8], color: i32) -> Result<Team> {
        self.collectives.teams().split(parent, cards, color)
    }

    /// Removes a team. What is under way in it continues.
    ///
    /// # Errors
    /// There is no such team, or it exists from the start.
    pub fn free_team(&mut self, team: Team) -> Result<()> {
        self.collectives.teams().free(team)
    }

    /// Asks for all credits, so that [`Process::are_all_idle`] finally returns true.
    pub fn settle(&mut self) {
        self.links.want_credits();
    }

    /// Whether each message that this process has started was handled, with its replies.
    pub fn is_idle(&self) -> bool {
        let is_idle = self.links.are_idle() && self.collectives.are_idle() && self.counted.collecting() == 0;
        is_idle && self.large.are_idle() && self.memory.under_way(None) == 0 && !self.dispatcher.is_handling()
    }

    /// Whether nothing is under way anywhere. When the processes arrived at the last barrier, none had started a message since the barrier
    /// before, and all had been handled. So nothing was under way at any time between the two, and nothing can have come since.
    pub fn are_all_idle(&self) -> bool {
        self.was_idle
    }

    /// # Errors
    /// A rank is gone.
    pub fn check_all(&self) -> Result<()> {
        match &self.missing {
            Some((rank, why)) => Err(AmError::Gone { rank: *rank, why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Gives up the endpoint in its present state, for simulations.
    #[doc(hidden)]
    pub fn into_endpoint(self) -> cci::Endpoint {
        self.links.into_endpoint()
    }

    /// Delivers what was sent for up to `timeout`, and leaves. Others don't take it for a failure. Returns whether all of it was delivered.
    pub fn close(mut self, timeout: Duration) -> bool {
        let lost = self.missing.as_ref().map(|(rank, _)| *rank);
        self.links.leave(lost, (self.barrier.number(), self.was_idle));
        self.links.close(timeout)
    }
}
