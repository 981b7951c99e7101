//! Active messages with closures for handlers.

mod callback;
mod following;
mod operating;
mod running_batch;
mod running_handler;
mod waiting;

use crate::arithmetic::{Accumulation, Change, Number};
use crate::description::{Description, Readable};
use crate::error::{AmError, Result};
use crate::message::Message;
use crate::process::alone::Alone;
use crate::process::{
    Collective, Context, Elements, Followers, Following, Held, Part, Process, RankExplanation, Starter, Team,
    Token, Transfer,
};
use callback::{Callback, Callbacks, Done, Found};
use cci::{Device, Line, Memory, Options};
use cci_job::numbered::Numbered;
use cci_job::{Job, JobError, Ranks};
use running_batch::RunningBatch;
use std::borrow::Borrow;
use std::time::Duration;

/// How long a process that leaves delivers messages to others.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);

/// This process of a job, with active messages (CCS section 3.3): a message names a handler, which runs at the receiver.
///
/// Messages of one process to another are handled in the order in which they were sent, across all contexts. Handlers run inside [`Runtime::poll`]
/// and the calls that wait, such as [`Runtime::wait`], fences, barriers, collectives, [`Runtime::finish`], and a [`Runtime::request`] that waits for
/// space. They run one at a time, and never inside another one. A handler may send and reply, but does not wait. A process keeps a bounded number of
/// messages of another one, and handlers that flood each other's processes don't block each other.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut job = cci_job::Job::join()?;
/// let mut runtime = cci_am::Runtime::open(&mut job, cci::Options::default())?;
/// let context = runtime.context()?;
/// runtime.register(context, 0, |_, message| {
///     println!("rank {} says {:?}", message.sender(), String::from_utf8_lossy(message.data()));
/// })?;
/// let next = (runtime.rank() + 1) % runtime.size();
/// runtime.request(context, next, 0, &[], b"hello")?;
/// runtime.finish()?;
/// # Ok(())
/// # }
/// ```
pub struct Runtime {
    process: Process,
    /// Handlers by their numbers. `None` while a handler runs.
    handlers: Vec<Option<Box<HandlerFn>>>,
    on_gone: Option<GoneFn>,
    /// The callbacks of operations.
    callbacks: Callbacks,
    collecting: Numbered<u64, CollectedFn>,
    /// The result of a collective without a callback, for which a call waits.
    awaited: Option<(u64, Result<Vec<u8>>)>,
    /// Messages that follow operations which have ended, each with the callback of its operation.
    following: Followers<Callback>,
    fences: u32,
    is_handling: bool,
}

type HandlerFn = dyn FnMut(&mut Runtime, &Message<'_>);
type CollectedFn = Box<dyn FnOnce(&mut Runtime, Result<Vec<u8>>)>;
type GoneFn = Box<dyn FnMut(u32, &str)>;

impl Runtime {
    /// Opens active messages on the device `any`: shared memory inside a host, UDP or TCP between hosts. Where a configuration file has no such
    /// device, its default one is taken. All ranks call it, in the same order with exchanges and barriers of the job.
    ///
    /// # Errors
    /// Those of [`Ranks::open`].
    pub fn open(job: &mut Job, options: Options) -> Result<Runtime> {
        let context = cci::Context::new().map_err(|error| JobError::Endpoint {
            what: "looking for devices".into(),
            error: Box::new(error),
        })?;
        let device = context.device("any").unwrap_or_else(|| context.default_device());
        Runtime::open_on(job, device, options)
    }

    /// Does what [`Runtime::open`] does, on any device.
    ///
    /// # Errors
    /// Those of [`Ranks::open`].
    pub fn open_on(job: &mut Job, device: &Device, options: Options) -> Result<Runtime> {
        Ok(Runtime::over(Process::new(Ranks::open(job, device, options)?)))
    }

    /// Makes a runtime of an unused process.
    pub fn over(process: Process) -> Runtime {
        Runtime {
            process,
            handlers: Vec::new(),
            on_gone: None,
            callbacks: Callbacks::default(),
            collecting: Numbered::default(),
            awaited: None,
            following: Followers::default(),
            fences: 0,
            is_handling: false,
        }
    }

    /// The number of this process among those of the job.
    pub fn rank(&self) -> u32 {
        self.process.rank()
    }

    /// How many processes the job has.
    pub fn size(&self) -> u32 {
        self.process.size()
    }

    /// Makes a context. The n-th context without a name of one process is the n-th of every other.
    ///
    /// # Errors
    /// There are too many.
    pub fn context(&mut self) -> Result<Context> {
        self.process.context()
    }

    /// Makes a context with a name, or returns it: the same name is the same context, here and elsewhere.
    ///
    /// # Errors
    /// The name is longer than 256 bytes, or there are too many contexts.
    pub fn named_context(&mut self, name: &str) -> Result<Context> {
        self.process.named_context(name)
    }

    /// Frees a context with its handlers, once all messages of this process have left. Messages that come for it later are discarded.
    ///
    /// # Errors
    /// It was freed before. Called in a handler while messages have yet to leave.
    pub fn free(&mut self, context: Context) -> Result<()> {
        waiting::for_space(self, |runtime| runtime.process.free(context))
    }

    /// Registers a closure as the handler `id` of a context.
    ///
    /// # Errors
    /// The number is taken, or the context was freed.
    pub fn register(
        &mut self,
        context: Context,
        id: u16,
        handler: impl FnMut(&mut Runtime, &Message<'_>) + 'static,
    ) -> Result<()> {
        self.process.register(context, id, self.handlers.len() as u64)?;
        self.handlers.push(Some(Box::new(handler)));
        Ok(())
    }

    /// Registers a closure as the handler `id` of a context for large messages. It is called before any of their data are there. It calls
    /// [`Runtime::hold`], and [`Runtime::accept`] then or later, to say where they go. A message that it has not held is aborted when it
    /// returns. The numbers are not those of [`Runtime::register`].
    ///
    /// # Errors
    /// The number is taken, or the context was freed.
    pub fn register_large(
        &mut self,
        context: Context,
        id: u16,
        handler: impl FnMut(&mut Runtime, &Message<'_>) + 'static,
    ) -> Result<()> {
        self.process.register_large(context, id, self.handlers.len() as u64)?;
        self.handlers.push(Some(Box::new(handler)));
        Ok(())
    }

    /// Sends a large message, of any length, to any rank. Its data are fetched from where they lie, and must not change until `done` was called,
    /// once, as handlers are.
    ///
    /// # Errors
    /// Those of [`Runtime::request`], and: the part is not inside of its memory. `done` is not called.
    pub fn send_large(
        &mut self,
        context: Context,
        rank: u32,
        id: u16,
        args: &[i64],
        local: Part,
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        let starter = if self.is_handling { Starter::Handler } else { Starter::Program };
        let start = |process: &mut Process, cookie| {
            process.send_large(starter, context, rank, id, args, local.clone(), cookie)
        };
        operating::start(self, start, Box::new(Done(done)))
    }

    /// Keeps the large message whose handler runs.
    ///
    /// # Errors
    /// Its handler has returned, it is no large message, or this was called before.
    pub fn hold(&mut self, token: Token) -> Result<Held> {
        self.process.hold(token)
    }

    /// Has the data of a held message fetched to elements in memory, of which the first has its origin `origin` bytes from the beginning of
    /// `memory`. `done` is called once: when the data are there, or with [`AmError::Differs`] if they have more or fewer bytes, and then
    /// nothing comes.
    ///
    /// # Errors
    /// It is not held, or not any more; described bytes are outside of the memory. `done` is not called.
    pub fn accept(
        &mut self,
        held: Held,
        (memory, origin, elements): (&Memory, isize, Elements),
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        let start =
            |process: &mut Process, cookie| process.accept(held, (memory, origin, elements.clone()), cookie);
        operating::start(self, start, Box::new(Done(done)))
    }

    /// Ends a held message without fetching its data: its sender gets [`AmError::Aborted`].
    ///
    /// # Errors
    /// It is not held, or not any more.
    pub fn abort(&mut self, held: Held) -> Result<()> {
        self.process.abort(held)
    }

    /// Registers a closure to which ranks that are gone are reported. Without one, errors of calls for them show it, and those of
    /// barriers.
    pub fn on_gone(&mut self, report: impl FnMut(u32, &str) + 'static) {
        self.on_gone = Some(Box::new(report));
    }

    /// Sends a message to the handler `id` of a context, at any rank, even this one. The data are copied or sent when this returns. If the
    /// limit of messages in progress to that rank is reached, it runs handlers until there is space.
    ///
    /// # Errors
    /// There is no such rank, or it is gone; the context was freed; there are more than 16 arguments, or too much data. [`AmError::WouldBlock`] in a
    /// handler, which can't wait.
    pub fn request(&mut self, context: Context, rank: u32, id: u16, args: &[i64], data: &[u8]) -> Result<()> {
        let starter = if self.is_handling { Starter::Handler } else { Starter::Program };
        if self.process.request_at_once(starter, context, rank, id, args, data) {
            return Ok(());
        }
        waiting::for_space(self, |runtime| runtime.process.request(starter, context, rank, id, args, data))
    }

    /// Does what [`Runtime::request`] does, with `count` elements of described data, the first of which has its origin at the beginning of the
    /// memory. They arrive packed.
    ///
    /// # Errors
    /// Those of [`Runtime::request`], and [`AmError::Described`] if described bytes lie outside of the memory.
    #[expect(clippy::too_many_arguments, reason = "a message, and what describes its data")]
    pub fn request_described(
        &mut self,
        context: Context,
        rank: u32,
        id: u16,
        args: &[i64],
        memory: &[u8],
        count: usize,
        description: &Description,
    ) -> Result<()> {
        let starter = if self.is_handling { Starter::Handler } else { Starter::Program };
        let origin = || (Readable::from(memory), 0);
        waiting::for_space(self, |runtime| {
            let process = &mut runtime.process;
            process.request_described(starter, context, rank, id, args, origin(), count, description)
        })
    }

    /// Does what [`Runtime::request`] does, but never waits.
    ///
    /// # Errors
    /// Those of [`Runtime::request`], and [`AmError::WouldBlock`] if there is no space.
    pub fn try_request(
        &mut self,
        context: Context,
        rank: u32,
        id: u16,
        args: &[i64],
        data: &[u8],
    ) -> Result<()> {
        let starter = if self.is_handling { Starter::Handler } else { Starter::Program };
        self.process.request(starter, context, rank, id, args, data)
    }

    /// Replies to the message whose handler runs, once. There is always space for it.
    ///
    /// # Errors
    /// The handler has replied or returned; the context was freed; there are more than 16 arguments, or too much data.
    pub fn reply(&mut self, token: Token, id: u16, args: &[i64], data: &[u8]) -> Result<()> {
        self.process.reply(token, id, args, data)
    }

    /// Does what [`Runtime::reply`] does, with described data as [`Runtime::request_described`] has them.
    ///
    /// # Errors
    /// Those of [`Runtime::reply`], and [`AmError::Described`] if described bytes lie outside of the memory.
    pub fn reply_described(
        &mut self,
        token: Token,
        id: u16,
        args: &[i64],
        memory: &[u8],
        count: usize,
        description: &Description,
    ) -> Result<()> {
        self.process.reply_described(token, id, args, (memory.into(), 0), count, description)
    }

    /// Allocates memory of the library's own, which other ranks of this host map when they access it: then an operation is a copy.
    ///
    /// # Errors
    /// It has no bytes, or the system refuses.
    pub fn allocate(&mut self, len_bytes: usize) -> Result<Memory> {
        self.process.allocate(len_bytes)
    }

    /// Allocates memory at one address in all ranks, who all call it with the same length, and registers it. On one host, ranks map each other's,
    /// so that an operation is a copy. [`Runtime::free_symmetric`] frees it.
    ///
    /// # Errors
    /// It has no bytes; ranks differ in its length; some rank can't have it: then none has. A rank is lost. It is called in a handler.
    pub fn allocate_symmetric(&mut self, len_bytes: usize) -> Result<Memory> {
        waiting::check(self)?;
        loop {
            let collective = self.process.begin_symmetric(len_bytes)?;
            let agreed = self.collective(Team::WORLD, collective)?;
            if let Some(memory) = self.process.end_symmetric(&agreed)? {
                return Ok(memory);
            }
        }
    }

    /// Frees symmetric memory when all ranks have called this. Operations on it have to have ended before.
    ///
    /// # Errors
    /// It is no symmetric memory, or was freed. A rank is lost. It is called in a handler.
    pub fn free_symmetric(&mut self, memory: &Memory) -> Result<()> {
        let address = memory.as_ptr().addr() as u64;
        if !self.process.is_symmetric(address) {
            return Err(AmError::Argument("no symmetric memory begins at this address"));
        }
        self.collective(Team::WORLD, Collective::Barrier)?;
        self.process.free_symmetric(address)
    }

    /// Lets all ranks of the job read and write memory, by its addresses in this process ([`Memory::as_ptr`]), until it was deregistered as often as
    /// it was registered.
    ///
    /// # Errors
    /// It is not mapped, or not writable, or there are too many regions.
    pub fn register_memory(&mut self, memory: &Memory) -> Result<()> {
        self.process.register_memory(memory)
    }

    /// Ends one registration. When the last one has ended, nobody accesses the memory any more.
    ///
    /// # Errors
    /// It is not registered.
    pub fn deregister_memory(&mut self, memory: &Memory) -> Result<()> {
        self.process.deregister_memory(memory.as_ptr().addr() as u64, memory.len())
    }

    /// Writes a part of this process's memory (a [`Part`], or a reference to one) to an address of a rank's, which has registered the memory there.
    /// `done` is called once, as handlers are: when all is there, or with an error if nothing of it could be written. The part must not change until
    /// then.
    ///
    /// # Errors
    /// There is no such rank, the part is not inside of its memory, or there are no such addresses: `done` is not called. [`AmError::WouldBlock`] in a
    /// handler, if 4,096 operations are under way.
    pub fn put(
        &mut self,
        rank: u32,
        remote: u64,
        local: impl Borrow<Part>,
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        operating::put(self, rank, remote, local.borrow(), Box::new(Done(done)))
    }

    /// Reads from an address of a rank's into a part of this process's memory. In all else it does what [`Runtime::put`] does.
    ///
    /// # Errors
    /// Those of [`Runtime::put`].
    pub fn get(
        &mut self,
        rank: u32,
        remote: u64,
        local: impl Borrow<Part>,
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        operating::get(self, rank, remote, local.borrow(), Box::new(Done(done)))
    }

    /// Writes described data of this process, whose first element has its origin `origin` bytes from the beginning of `local`, to described data of a
    /// rank's, whose first element has its origin at the address `remote`. What the rank's description reaches may be in several regions, but
    /// each of its contiguous pieces is in one. If `done` gets an error, a part of the data may be there. In all else it does what [`Runtime::put`]
    /// does.
    ///
    /// # Errors
    /// Those of [`Runtime::put`], and: both sides differ in their numbers of bytes.
    pub fn put_described(
        &mut self,
        rank: u32,
        remote: (u64, Elements),
        local: (&Memory, isize, Elements),
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        operating::transfer_described(self, Transfer::Put, rank, remote, local, Box::new(Done(done)))
    }

    /// Writes as [`Runtime::put_described`] does, and then sends a message without data to the rank, whose handler runs there when all data
    /// are in place. `done` is called when the message is on its path, or with an error if not all data could be written or the message not
    /// sent. Messages to one rank are sent in the order in which their operations end.
    ///
    /// # Errors
    /// Those of [`Runtime::put_described`] and of [`Runtime::request`]: `done` is not called.
    pub fn put_am(
        &mut self,
        remote: (u64, Elements),
        local: (&Memory, isize, Elements),
        message: Following,
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        following::put(self, remote, local, message, Box::new(Done(done)))
    }

    /// Reads described data of a rank's. In all else it does what [`Runtime::put_described`] does.
    ///
    /// # Errors
    /// Those of [`Runtime::put_described`].
    pub fn get_described(
        &mut self,
        rank: u32,
        remote: (u64, Elements),
        local: (&Memory, isize, Elements),
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        operating::transfer_described(self, Transfer::Get, rank, remote, local, Box::new(Done(done)))
    }

    /// Makes a rank change elements of its memory by as many of this process's, each atomically with respect to all such operations from any rank. The
    /// rank does it while it makes progress. In all else it does what [`Runtime::put_described`] does.
    ///
    /// # Errors
    /// Those of [`Runtime::put_described`], and: there are no such operations on floats, or what is described at the rank is not of whole elements,
    /// at multiples of their length.
    pub fn accumulate(
        &mut self,
        what: (Accumulation, Number),
        rank: u32,
        (remote, there): (u64, Elements),
        (local, origin, here): (&Memory, isize, Elements),
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        let start = |process: &mut Process, cookie| {
            let (there, here) = ((remote, there.clone()), (local, origin, here.clone()));
            process.accumulate(what, rank, there, here, cookie)
        };
        operating::start(self, start, Box::new(Done(done)))
    }

    /// Makes a rank write a part of this process's memory to where a pointer of 8 bytes at its address `pointer` points, and move the pointer on
    /// by the part's length, atomically, when the data are there. So several ranks append to one buffer. The rank does it while it makes
    /// progress; nothing moves if it is refused. In all else it does what [`Runtime::put`] does.
    ///
    /// # Errors
    /// Those of [`Runtime::put`], and: the address of the pointer is no multiple of 8.
    pub fn indexed_put(
        &mut self,
        rank: u32,
        pointer: u64,
        local: Part,
        done: impl FnOnce(&mut Runtime, Result<()>) + 'static,
    ) -> Result<()> {
        let start = |process: &mut Process, cookie| process.indexed_put(rank, pointer, local.clone(), cookie);
        operating::start(self, start, Box::new(Done(done)))
    }

    /// Changes a word at an address of a rank's atomically, with respect to all such operations from any rank. `done` gets the value from
    /// before; the upper half is 0 for a word of 4 bytes.
    ///
    /// # Errors
    /// There is no such rank, or the address is no multiple of the width: `done` is not called. [`AmError::WouldBlock`] in a handler, if 4,096 operations
    /// are under way.
    pub fn atomic(
        &mut self,
        rank: u32,
        remote: u64,
        change: impl Into<Change>,
        done: impl FnOnce(&mut Runtime, Result<u64>) + 'static,
    ) -> Result<()> {
        operating::atomic(self, rank, remote, change.into(), Box::new(Found(done)))
    }

    /// Waits until all operations on a rank's memory have ended that this process has started.
    ///
    /// # Errors
    /// It is called in a handler. The system refuses to wait.
    pub fn fence(&mut self, rank: u32) -> Result<()> {
        waiting::fence(self, Some(rank))
    }

    /// Waits until all operations have ended that this process has started.
    ///
    /// # Errors
    /// Those of [`Runtime::fence`].
    pub fn fence_all(&mut self) -> Result<()> {
        waiting::fence(self, None)
    }

    /// Waits until all operations have ended that any rank has started. All ranks call it, in the same order with barriers.
    ///
    /// # Errors
    /// A rank is gone. It is called in a handler.
    pub fn global_fence(&mut self) -> Result<()> {
        self.fence_all()?;
        self.barrier()
    }

    /// Makes progress and runs the handlers that are due. Returns whether there were any. It never blocks; in a handler it does nothing.
    pub fn poll(&mut self) -> bool {
        if self.is_handling {
            return false;
        }
        if self.callbacks.ended() > 0 || !self.following.is_empty() {
            return self.progress_and_run();
        }
        let mut line = Line::EMPTY;
        match self.process.next_alone(&mut line) {
            Alone::Message(delivery) => {
                running_batch::handle_alone(self, delivery);
                true
            }
            Alone::Nothing => false,
            Alone::Other => self.progress_and_run(),
        }
    }

    /// Makes progress, and sleeps until handlers have run, for up to `timeout`. Returns whether any have.
    ///
    /// # Errors
    /// It is called in a handler. The system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        waiting::until_some_ran(self, timeout)
    }

    /// Runs handlers until all ranks have called it.
    ///
    /// # Errors
    /// A rank is gone. It is called in a handler.
    pub fn barrier(&mut self) -> Result<()> {
        waiting::barrier(self)
    }

    /// Starts a collective, which all members of the team start, those of a team in the same order. `done` is called once, as handlers are, with
    /// what this member gets of it. It may be called in a handler.
    ///
    /// # Errors
    /// There is no such team or root, a member is gone, or the data are not as they have to be: `done` is not called. [`AmError::WouldBlock`]: 256
    /// collectives are under way.
    pub fn collect(
        &mut self,
        team: Team,
        collective: Collective,
        done: impl FnOnce(&mut Runtime, Result<Vec<u8>>) + 'static,
    ) -> Result<()> {
        let cookie = self.callbacks.number();
        self.process.collect(team, collective, cookie)?;
        self.collecting.insert(cookie, Box::new(done));
        Ok(())
    }

    /// Does a collective, with handlers running meanwhile, and returns what this member gets of it.
    ///
    /// # Errors
    /// Those of [`Runtime::collect`]; a member is lost meanwhile, or members differ in how much data they have. It is called in a handler.
    pub fn collective(&mut self, team: Team, collective: Collective) -> Result<Vec<u8>> {
        waiting::collective(self, team, collective)
    }

    /// Divides a team by colors: makes the team of those members of `parent` that give the same one, in the order of their keys, and then of
    /// their numbers there. All members of `parent` call it.
    ///
    /// # Errors
    /// Those of [`Runtime::collective`].
    pub fn split_team(&mut self, parent: Team, color: i32, key: i32) -> Result<Team> {
        let data = self.process.split_card(color, key);
        let cards = self.collective(parent, Collective::Allgather { data })?;
        self.process.split(parent, &cards, color)
    }

    /// The number of this process in a team, and how many members that has.
    ///
    /// # Errors
    /// There is no such team.
    pub fn team(&mut self, team: Team) -> Result<(u32, u32)> {
        self.process.team(team)
    }

    /// Removes a team. Collectives that were started in it continue.
    ///
    /// # Errors
    /// There is no such team, or it exists from the start.
    pub fn free_team(&mut self, team: Team) -> Result<()> {
        self.process.free_team(team)
    }

    /// Waits until nothing is in progress anywhere: all messages of all ranks have been handled, and so have those that their handlers
    /// have sent. All ranks call it, in the same order with barriers.
    ///
    /// # Errors
    /// A rank is gone. It is called in a handler.
    pub fn quiet(&mut self) -> Result<()> {
        waiting::quiet(self)
    }

    /// Waits as [`Runtime::quiet`] does, and leaves. All ranks call it.
    ///
    /// # Errors
    /// Those of [`Runtime::quiet`].
    pub fn finish(mut self) -> Result<()> {
        self.quiet()?;
        self.process.close(LEAVE_LIMIT);
        Ok(())
    }

    /// Explains the state between this process and a rank: [`Process::explain`].
    ///
    /// # Errors
    /// There is no such rank.
    pub fn explain(&mut self, rank: u32) -> Result<RankExplanation> {
        self.process.explain(rank)
    }

    #[cfg(test)]
    pub(crate) fn into_process(self) -> Process {
        self.process
    }

    #[cfg(test)]
    pub(crate) fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Whether nothing that this process has started is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.process.is_idle() && self.following.is_empty()
    }

    #[inline(never)]
    fn progress_and_run(&mut self) -> bool {
        self.process.progress();
        self.run_due()
    }

    #[inline(always)]
    fn run_due(&mut self) -> bool {
        let sent = !self.following.is_empty() && following::send(self);
        let ran = running_batch::run_ended(self) || sent;
        match self.process.take_due() {
            Some(batch) => RunningBatch::of(self, Some(batch)).run() || ran,
            None => ran,
        }
    }
}
