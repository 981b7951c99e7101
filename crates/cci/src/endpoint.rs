//! An endpoint: the complete container of communication resources (CCI-014, CCI-015), used through `&mut`.

mod connecting;
mod peers;
mod registration;
mod rma;
#[cfg(feature = "seam")]
pub(crate) mod seam;
mod settings;
#[cfg(feature = "simulated")]
pub(crate) mod simulated;
mod waiting;

use crate::connection::{Connection, Status};
use crate::counters::{ConnectionCounters, EndpointCounters, MemoryUse};
use crate::device::Device;
use crate::engine::core::{ConnState, Core, SendOp};
use crate::engine::event::Event;
use crate::engine::pace::Pace;
use crate::engine::poller::Poller;
use crate::engine::requests::Decision;
use crate::engine::spin::Spin;
use crate::error::{CreateError, OptionError, SendError, WaitError};
use crate::explain::{Explanation, Fact};
use crate::limits;
use crate::options::{Attribute, Options, SendFlags};
use crate::sealing::Sealing;
use crate::transport::any::Beyond;
use crate::transport::{self, Activity, Armed, Report, Transport};
use cci_proto::RmaSegment;
use cci_sys::process::fork;
use cci_sys::{SysError, clock, cpu, random};
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A virtual instance of one device, with its buffers, queues and connections (CCI-014). It makes progress when its
/// owner calls it, from one thread at a time; [`crate::SharedEndpoint`] is the form for several.
///
/// Dropping it is as if every connection were disconnected: what was sent before is still delivered, for a second
/// at most, which is the only time that dropping can take.
///
/// ```
/// use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};
/// use std::time::Duration;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new()?;
/// let device = context.default_device();
/// let mut server = Endpoint::create(device, Options::default())?;
/// let mut client = Endpoint::create(device, Options::default())?;
/// let timeout = Some(Duration::from_secs(10));
/// client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, timeout)?;
/// let message = loop {
///     match server.next_event() {
///         Some(Event::ConnectRequest(request)) => server.accept(request, 0)?,
///         Some(Event::Recv(message)) => break message,
///         _ => {}
///     }
///     if let Some(Event::Connect { result, .. }) = client.next_event() {
///         client.send(result?, b"hello", 0, SendFlags::NONE)?;
///     }
/// };
/// assert_eq!(*message, *b"hello");
/// # Ok(())
/// # }
/// ```
pub struct Endpoint {
    transport: Box<dyn Transport>,
    core: Core,
    device: Device,
    spin: Spin,
    /// The program has the descriptor: keep it level-triggered at every call.
    exported: Cell<bool>,
    taken_since_progress: u32,
    pace: Pace,
    /// The process it was opened in: a fork child has a copy of it that must not speak.
    made_by: fork::Token,
    /// Contexts of blocking sends are drawn from here: 48 random bits, so that no context of the program's own
    /// is taken for one.
    next_blocking_context: u64,
    /// Room for the pieces of one operation.
    rma_segments: Vec<RmaSegment>,
    /// Whom the device's configuration, or the program, expects wherever this endpoint connects to.
    expected: Option<Box<str>>,
    /// By what it connects where its own transport does not lead; None: by nothing, or it does already.
    beyond: Option<Beyond>,
}

impl Endpoint {
    /// Opens an endpoint on `device`.
    ///
    /// # Errors
    /// [`CreateError`] says which option, service or system call stood in the way. Nothing is left behind.
    pub fn create(device: &Device, options: Options) -> Result<Endpoint, CreateError> {
        Endpoint::open(device, options, false)
    }

    /// `with_thread`: a progress thread will sleep on what the transport waits for, apart from the program.
    pub(crate) fn open(
        device: &Device,
        options: Options,
        with_thread: bool,
    ) -> Result<Endpoint, CreateError> {
        options.check()?;
        let poller = Arc::new(Poller::new(with_thread)?);
        let core = Core::new(options.clone(), device.max_send_size(), poller.clone())?;
        let transport = transport::open(device, &options, &poller)?;
        let beyond = Beyond::of(device, &options)?;
        let mut endpoint = Endpoint::of(device, core, transport)?;
        endpoint.beyond = beyond;
        Ok(endpoint)
    }

    /// An endpoint of parts that fit each other.
    fn of(device: &Device, core: Core, transport: Box<dyn Transport>) -> Result<Endpoint, CreateError> {
        let expected = Sealing::expected(&device.0, &core.options)?;
        Ok(Endpoint {
            expected,
            beyond: None,
            transport,
            core,
            device: device.clone(),
            spin: Spin::new(cpu::available()),
            exported: Cell::new(false),
            taken_since_progress: 0,
            pace: Pace::new(),
            made_by: fork::token(),
            next_blocking_context: random::u64()? & !0xffff,
            rma_segments: Vec::with_capacity(64),
        })
    }

    /// Whether this process may use the endpoint: the one that opened it may. In a child that `fork` made without `exec`
    /// every call fails, or does nothing, and dropping it there harms nobody: the child opens endpoints of its own.
    ///
    /// # Errors
    /// Says so.
    pub fn check_process(&self) -> Result<(), SysError> {
        fork::check(self.made_by)
    }

    pub(crate) fn made_by(&self) -> fork::Token {
        self.made_by
    }

    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        fork::same_process(self.made_by)
    }

    /// What others connect to. It holds as long as the endpoint lives.
    pub fn uri(&self) -> &str {
        self.transport.about().uri
    }

    /// The device it was opened on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.core.options
    }

    /// Closes a connection from this side. What was sent before is still delivered, or fails with its own
    /// completion; the handle is refused from now on. The peer is told by [`Event::Disconnected`], behind the last message.
    /// Unknown and already closed connections are ignored.
    pub fn disconnect(&mut self, connection: Connection) {
        let ours = self.is_ours();
        let Some(conn) = self.core.conn_mut(connection).filter(|_| ours) else { return };
        match conn.state {
            ConnState::Closing => return,
            // The transport was asked already; what it says when it is done is for nobody now.
            ConnState::Releasing => return conn.state = ConnState::Closing,
            ConnState::Released | ConnState::Reported => return self.core.forget(connection),
            _ => {}
        }
        let (link, was_open) = (conn.link, conn.state == ConnState::Open);
        let was = std::mem::replace(&mut conn.state, ConnState::Closing);
        self.core.not_owed(was);
        if was_open {
            self.core.counters.connections_open = self.core.counters.connections_open.saturating_sub(1);
        }
        if self.core.waiting.close(connection) {
            return self.touched();
        }
        self.transport.disconnect(&mut self.core, connection, link);
        self.touched();
    }

    /// Sends one message, of zero bytes up to [`Endpoint::max_send_size`]. It is copied before the call returns.
    /// Ends in exactly one [`Event::Send`] with `context`, unless `flags` has [`SendFlags::SILENT`].
    ///
    /// # Errors
    /// [`SendError`]: nothing was sent and no event will come. `WouldBlock`: as many sends are in progress as there are send
    /// buffers, or as this connection may have of them, or the memory cap is reached; get events and try again.
    #[inline]
    pub fn send(
        &mut self,
        connection: Connection,
        message: &[u8],
        context: u64,
        flags: SendFlags,
    ) -> Result<(), SendError> {
        self.check_quota(connection, flags)?;
        self.send_segments(connection, &[message], message.len(), context, flags)
    }

    /// Sends a message that is gathered from segments, such as a header and its data (CCI-042, CCI-043). All else is as
    /// with [`Endpoint::send`].
    ///
    /// # Errors
    /// Those of [`Endpoint::send`].
    pub fn send_vectored(
        &mut self,
        connection: Connection,
        segments: &[&[u8]],
        context: u64,
        flags: SendFlags,
    ) -> Result<(), SendError> {
        self.check_quota(connection, flags)?;
        self.send_segments(connection, segments, total_bytes(segments), context, flags)
    }

    /// A program that sends and never takes its completions would fill the memory with them; so would one operation that never
    /// ends, with sends behind it.
    #[inline]
    fn check_quota(&self, connection: Connection, flags: SendFlags) -> Result<(), SendError> {
        if !self.core.has_send_quota(connection) && !flags.contains(SendFlags::SILENT) {
            return Err(SendError::WouldBlock);
        }
        Ok(())
    }

    #[inline]
    fn send_segments(
        &mut self,
        connection: Connection,
        segments: &[&[u8]],
        len_bytes: usize,
        context: u64,
        flags: SendFlags,
    ) -> Result<(), SendError> {
        if !self.is_ours() {
            return Err(SendError::OtherProcess);
        }
        let Some(conn) = self.core.conn(connection) else { return Err(SendError::UnknownConnection) };
        match conn.state {
            ConnState::Open => {}
            ConnState::Connecting | ConnState::Accepting => return Err(SendError::UnknownConnection),
            _ => return Err(SendError::Disconnected),
        }
        if len_bytes > conn.mss as usize {
            return Err(SendError::TooLong { len_bytes, max_bytes: conn.mss });
        }
        if conn.attribute == Attribute::MulticastReceive {
            return Err(SendError::ReceiveOnly);
        }
        let link = conn.link;
        let op = SendOp { context, silent: flags.contains(SendFlags::SILENT) };
        let is_queued = conn.attribute == Attribute::ReliableOrdered && !op.silent;
        if is_queued && !self.core.order.is_empty() && !self.core.order.reserve() {
            return Err(SendError::WouldBlock);
        }
        if self.core.waiting.is_empty() {
            match self.transport.send(&mut self.core, connection, link, segments, op) {
                Ok(()) => {}
                Err(SendError::WouldBlock) => self.send_or_wait(connection, link, segments, len_bytes, op)?,
                Err(other) => return Err(other),
            }
        } else {
            self.send_or_wait(connection, link, segments, len_bytes, op)?;
        }
        if is_queued && !self.core.order.is_empty() {
            // Where the connection has no line, it is told when it is done.
            self.core.order.enter_send(connection.index, context);
        }
        self.core.counters.messages_sent += 1;
        self.core.counters.bytes_sent += len_bytes as u64;
        self.touched();
        Ok(())
    }

    /// Sends and waits for the completion, which is returned and raises no event. Events that come meanwhile are
    /// kept. Where [`Endpoint::send`] would return `WouldBlock` it waits for room, as long as the connection's send
    /// timeout; then the same time bounds the wait for the completion.
    ///
    /// # Errors
    /// [`SendError`] as for [`Endpoint::send`]: nothing was sent; `WouldBlock`: there was no room until the send
    /// timeout. Otherwise how the send ended.
    pub fn send_blocking(&mut self, connection: Connection, segments: &[&[u8]]) -> Result<Status, SendError> {
        let until_ns = self.space_until_ns(connection);
        let context = loop {
            match self.try_start_blocking(connection, segments) {
                Err(SendError::WouldBlock) if clock::now_ns() < until_ns => self.pause_for_space(),
                other => break other?,
            }
        };
        Ok(self.wait_for_blocking(context))
    }

    fn wait_for_blocking(&mut self, context: u64) -> Status {
        loop {
            if let Some(status) = self.take_blocking_status(context) {
                return status;
            }
            if self.pause(None, Core::has_unblocked).is_err() {
                // The system can't wait; polling can.
                self.progress();
            }
        }
    }

    /// The context of the next blocking operation, whose completion is caught from now on.
    fn next_blocking(&mut self) -> u64 {
        let context = self.next_blocking_context;
        self.next_blocking_context = context & !0xffff | (context + 1) & 0xffff;
        self.core.block_on(context);
        context
    }

    /// Makes progress until there may be room for another send: a millisecond at most, since nothing announces room.
    fn pause_for_space(&mut self) {
        let until_ns = clock::now_ns() + limits::SPACE_POLL_NS;
        let _ = self.pause(Some(until_ns), |_| false);
    }

    /// How long a blocking send that starts now waits for room.
    pub(crate) fn space_until_ns(&self, connection: Connection) -> u64 {
        let timeout = self.timeouts(connection).map_or(Duration::ZERO, |(send, _)| send);
        clock::now_ns().saturating_add(as_ns(timeout))
    }

    pub(crate) fn try_start_blocking(
        &mut self,
        connection: Connection,
        segments: &[&[u8]],
    ) -> Result<u64, SendError> {
        let context = self.next_blocking();
        let sent = self.send_segments(connection, segments, total_bytes(segments), context, SendFlags::NONE);
        if sent.is_err() {
            self.core.stop_blocking(context);
        }
        sent.map(|()| context)
    }

    pub(crate) fn take_blocking_status(&mut self, context: u64) -> Option<Status> {
        let status = self.core.unblocked(context);
        if status.is_some() {
            // Whoever waited for it slept with the level down; events may have come meanwhile.
            self.touched();
        }
        status
    }

    /// With the descriptor out, a program may sleep on it right after any call. Something was started that may need
    /// an earlier deadline than the one the descriptor was armed with, or has queued an event already: be readable
    /// until the program has looked.
    #[inline]
    fn touched(&self) {
        if self.exported.get() {
            self.core.poller.set_pending(true);
        }
    }

    /// The next event, if there is one; never blocks (CCI-018). When there is none and
    /// [`Endpoint::recv_buffers_free`] is 0, messages may be waiting for a buffer: drop some.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        if !self.is_ours() {
            return None;
        }
        if !self.core.has_events() {
            self.pace.broken();
            self.make_progress();
        } else if self.pace.is_due(self.taken_since_progress) {
            // A program slow to take its events must not stop acknowledgements and time-outs meanwhile.
            self.progress_between();
        }
        self.taken_since_progress += 1;
        if self.exported.get() {
            self.keep_level();
        }
        // Made where the caller wants it, and not touched any more: moving what was just written in pieces costs more
        // than all the rest here.
        if self.core.has_events() { self.core.pop_event() } else { None }
    }

    /// Makes progress — takes in what came, sends what waits, times out what is due — without taking an event.
    #[inline]
    pub fn progress(&mut self) {
        if self.is_ours() {
            self.pace.broken();
            self.make_progress();
        }
    }

    /// Makes progress, in the process that opened the endpoint.
    #[inline]
    fn make_progress(&mut self) {
        if let Some(decisions) = self.core.requests.take() {
            self.settle(decisions);
        }
        self.taken_since_progress = 0;
        self.transport.progress(&mut self.core);
        if !self.core.waiting.is_empty() {
            self.advance_some();
        }
        if self.core.has_ended() {
            self.release_ended();
        }
    }

    /// Has the transport let go of connections whose peers are gone.
    #[cold]
    fn release_ended(&mut self) {
        while let Some((connection, link)) = self.core.next_ended() {
            self.transport.disconnect(&mut self.core, connection, link);
        }
    }

    /// Makes progress although events wait.
    #[cold]
    fn progress_between(&mut self) {
        self.pace.begins(self.taken_since_progress, self.transport.now_ns());
        self.make_progress();
        self.pace.ended(self.transport.now_ns());
    }

    #[cold]
    fn settle(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.transport.decided(&mut self.core, decision);
        }
    }

    /// With the descriptor out, it must be readable whenever an event can be had, after every call.
    #[cold]
    fn keep_level(&mut self) {
        if self.core.has_events() {
            // More may be there: stay readable until the program has seen that nothing is.
            self.core.poller.set_pending(true);
        } else {
            self.arm();
        }
    }

    /// Prepares for sleeping on [`Endpoint::os_handle`]: true = something can be had now, do not sleep. Needed only by
    /// those who sleep without having seen [`Endpoint::next_event`] return None; it does this itself once
    /// the handle was asked for.
    pub fn arm(&mut self) -> bool {
        if !self.is_ours() {
            return false;
        }
        if !self.core.has_events() {
            self.progress();
        }
        if self.has_news() {
            self.core.poller.set_pending(true);
            return true;
        }
        match self.arm_transport() {
            Armed::Sleep { deadline_ns } if !self.has_news() => {
                self.core.poller.set_pending(false);
                if !self.core.requests.has_news() && self.core.poller.set_timer(deadline_ns).is_ok() {
                    return false;
                }
                // A request was decided on elsewhere just now; or without a timer the descriptor must stay readable: busy, but nothing is missed.
                self.core.poller.set_pending(true);
                true
            }
            Armed::Sleep { .. } | Armed::Pending => {
                self.core.poller.set_pending(true);
                true
            }
        }
    }

    #[inline]
    fn arm_transport(&mut self) -> Armed {
        if self.core.waiting.is_empty() {
            return self.transport.arm(&mut self.core);
        }
        self.arm_with_waiting()
    }

    /// For the progress thread: makes progress and prepares for sleeping on what the transport waits for alone. True:
    /// sleep is safe. Queued events do not keep it from sleeping; they are the program's, which the descriptor tells.
    pub(crate) fn progress_apart(&mut self) -> bool {
        self.core.counters.thread_rounds += 1;
        self.progress();
        let armed = self.arm_transport();
        if self.exported.get() {
            let news = self.has_news() || armed == Armed::Pending;
            self.core.poller.set_pending(news);
        }
        let Armed::Sleep { deadline_ns } = armed else { return false };
        // What is told from now on wakes the thread. In that order: see `Endpoint::arm`.
        self.core.poller.set_timer(deadline_ns).is_ok()
            && !self.core.requests.has_news()
            && !self.core.has_ended()
    }

    #[cfg(test)]
    pub(crate) fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    /// Something that a sleeper may be waiting for: an event, one that is about to come of a connection that has ended, or the end
    /// of another thread's blocking send.
    pub(crate) fn has_news(&self) -> bool {
        self.core.has_events() || self.core.has_unblocked() || self.core.has_ended()
    }

    /// A descriptor for poll, select or epoll, readable whenever [`Endpoint::next_event`] may have something
    /// (CCI-020). It belongs to the endpoint. Programs that only call `wait` or poll should not ask for it: keeping it
    /// level-triggered costs a system call where an endpoint goes idle. [`AsFd`] and [`AsRawFd`] give it, too, to those who
    /// register an endpoint with an event loop.
    pub fn os_handle(&self) -> BorrowedFd<'_> {
        // A fork child must not make it readable for its parent.
        if !self.exported.get() && self.is_ours() {
            self.exported.set(true);
            self.core.poller.set_pending(true);
        }
        self.core.poller.fd()
    }

    /// Waits for the next event: spins for as long as that pays, then sleeps. None after `timeout`; without one it
    /// waits for ever (CCI-019).
    ///
    /// # Errors
    /// Only if the system refuses to wait.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, WaitError> {
        self.check_process()?;
        if let Some(event) = self.next_event() {
            return Ok(Some(event));
        }
        let until_ns = timeout.map(|timeout| clock::now_ns().saturating_add(as_ns(timeout)));
        loop {
            self.pause(until_ns, Core::has_events)?;
            if let Some(event) = self.next_event() {
                return Ok(Some(event));
            }
            if until_ns.is_some_and(|until_ns| clock::now_ns() >= until_ns) {
                return Ok(None);
            }
        }
    }

    /// Waits as [`Endpoint::wait`] does, but takes no event: returns whether [`Endpoint::next_event`] has one now.
    ///
    /// # Errors
    /// Those of [`Endpoint::wait`].
    pub fn wait_any(&mut self, timeout: Option<Duration>) -> Result<bool, WaitError> {
        self.check_process()?;
        self.progress();
        let until_ns = timeout.map(|timeout| clock::now_ns().saturating_add(as_ns(timeout)));
        while !self.core.has_events() {
            if until_ns.is_some_and(|until_ns| clock::now_ns() >= until_ns) {
                return Ok(false);
            }
            self.pause(until_ns, Core::has_events)?;
        }
        Ok(true)
    }

    /// Spins, then sleeps, until `done` or `until_ns`. May return early.
    fn pause(&mut self, until_ns: Option<u64>, done: impl Fn(&Core) -> bool) -> Result<(), WaitError> {
        let spin_until_ns = clock::now_ns() + self.spin.budget_ns();
        loop {
            self.progress();
            if done(&self.core) {
                self.spin.paid();
                return Ok(());
            }
            let now_ns = clock::now_ns();
            if until_ns.is_some_and(|until_ns| now_ns >= until_ns) {
                return Ok(());
            }
            if now_ns >= spin_until_ns {
                break;
            }
            std::hint::spin_loop();
        }
        if !self.arm_for_sleep()? || done(&self.core) {
            return Ok(());
        }
        let now_ns = clock::now_ns();
        self.core.counters.sleeps += 1;
        self.core.poller.sleep(until_ns.map(|until_ns| until_ns.saturating_sub(now_ns)))?;
        self.spin.failed(clock::now_ns().saturating_sub(now_ns));
        if self.core.has_events() {
            self.core.poller.set_pending(true);
        }
        Ok(())
    }

    /// Like [`Endpoint::arm`], for one who will sleep although events are queued, because it waits for something
    /// else. The level is put right at the next call. False: do not sleep, look again.
    pub(crate) fn arm_for_sleep(&mut self) -> Result<bool, WaitError> {
        let known = self.core.news();
        let Armed::Sleep { deadline_ns } = self.arm_transport() else { return Ok(false) };
        self.core.poller.set_pending(false);
        self.core.poller.set_timer(deadline_ns)?;
        // What fell due while the transport was armed may be what is waited for, and nothing would tell of it.
        Ok(self.core.news() == known && !self.core.requests.has_news())
    }

    /// True, and the descriptor is readable, where events are queued that another thread, asleep on the exported
    /// descriptor, must hear of.
    pub(crate) fn must_show_events(&self) -> bool {
        let must = self.exported.get() && self.core.has_events();
        if must {
            self.core.poller.set_pending(true);
        }
        must
    }

    pub(crate) fn spin_budget_ns(&self) -> u64 {
        self.spin.budget_ns()
    }

    pub(crate) fn poller(&self) -> Arc<Poller> {
        self.core.poller.clone()
    }

    /// Receive buffers free now.
    #[inline]
    pub fn recv_buffers_free(&mut self) -> u32 {
        self.core.receive.free_count()
    }

    /// The longest message a connection takes, bytes: the smaller of its two sides' (CCI-048). None: no such
    /// connection, or not open yet.
    pub fn max_send_size(&self, connection: Connection) -> Option<u32> {
        self.core.conn(connection).filter(|conn| conn.mss > 0).map(|conn| conn.mss)
    }

    /// What a connection promises.
    pub fn attribute(&self, connection: Connection) -> Option<Attribute> {
        self.core.conn(connection).map(|conn| conn.attribute)
    }

    /// The context given to `connect` or `accept`.
    pub fn context(&self, connection: Connection) -> Option<u64> {
        self.core.conn(connection).map(|conn| conn.context)
    }

    /// True while messages can be sent.
    pub fn is_open(&self, connection: Connection) -> bool {
        self.is_ours() && self.core.conn(connection).is_some_and(|conn| conn.state == ConnState::Open)
    }

    /// Counters since the endpoint was opened.
    pub fn counters(&self) -> EndpointCounters {
        let mut counters = self.core.counters.clone();
        if !self.is_ours() {
            return counters;
        }
        counters.rma_refused = self.core.regions.refused;
        counters.rma_refused_by_name = self.core.regions.refused_by_name;
        counters.regions = u64::from(self.core.regions.len());
        self.core.registrations.count(&mut counters);
        let report = Report::Counters { into: &mut counters.device, drops: &mut counters.drops };
        self.transport.report(&self.core, report);
        let mut kinds = self.core.memory().to_vec();
        self.transport.report(&self.core, Report::Memory(&mut kinds));
        // The program asks for it by name and size, so the cap rises with it.
        let rma_bytes = self.core.rma_bill.load(Ordering::Relaxed);
        kinds.push(("allocated for remote access", rma_bytes));
        let total_bytes = kinds.iter().map(|(_, bytes)| bytes).sum();
        counters.memory =
            MemoryUse { kinds, total_bytes, cap_bytes: self.core.options.memory_bytes_max + rma_bytes };
        counters
    }

    /// Counters of one connection.
    pub fn connection_counters(&self, connection: Connection) -> Option<ConnectionCounters> {
        let link = self.link(connection).ok()?;
        let mut counters = ConnectionCounters::default();
        self.transport.report(&self.core, Report::Connection { link, into: &mut counters });
        counters.sends_in_progress += u64::from(self.core.waiting.len_of(connection));
        Some(counters)
    }

    /// Which path the connection takes, which others were looked at and why not, what holds it up.
    pub fn explain(&self, connection: Connection) -> Option<Explanation> {
        let conn = self.core.conn(connection)?;
        if !self.is_ours() {
            return None;
        }
        let mut explanation = Explanation {
            transport: self.device.transport().name().to_owned(),
            attribute: conn.attribute.short_name().to_owned(),
            ..Explanation::default()
        };
        if conn.link != u64::MAX {
            let report = Report::Explanation { link: conn.link, into: &mut explanation };
            self.transport.report(&self.core, report);
        }
        let waiting = self.core.waiting.len_of(connection);
        if waiting > 0 {
            explanation.facts.push(("sends that wait for space", Fact::Count(waiting.into())));
            let reason = || Some("sends wait until the transport has room for them".to_owned());
            explanation.blocked_on = explanation.blocked_on.take().or_else(reason);
        }
        Some(explanation)
    }

    fn link(&self, connection: Connection) -> Result<u64, OptionError> {
        if !self.is_ours() {
            return Err(OptionError::OtherProcess);
        }
        match self.core.conn(connection) {
            Some(conn) if conn.link != u64::MAX => Ok(conn.link),
            _ => Err(OptionError::UnknownConnection),
        }
    }

    fn set_link(&mut self, connection: Connection, link: u64) {
        if let Some(conn) = self.core.conn_mut(connection) {
            conn.link = link;
        }
    }

    /// Disconnects everything and goes on delivering what was sent, until it is, or for `limit` at most. Says whether
    /// all of it was delivered or failed. Dropping the endpoint does this with a limit of a second.
    pub fn close(mut self, limit: Duration) -> bool {
        self.is_ours() && self.drain(as_ns(limit))
    }

    fn drain(&mut self, limit_ns: u64) -> bool {
        for connection in self.core.connections() {
            self.disconnect(connection);
        }
        let mut until_ns = clock::now_ns().saturating_add(limit_ns);
        let mut all_delivered = false;
        loop {
            // Requests among the events are refused by being dropped: progress tells their peers so.
            while self.core.pop_event().is_some() {}
            self.progress();
            let none_waits = self.core.operations.is_empty() && self.core.waiting.is_empty();
            if none_waits && self.transport.activity() >= Activity::Drained && !self.core.has_events() {
                return true;
            }
            if !all_delivered && none_waits && self.transport.activity() >= Activity::Delivered {
                all_delivered = true;
                until_ns = until_ns.min(clock::now_ns().saturating_add(limits::FAREWELL_NS_MAX));
            }
            if clock::now_ns() >= until_ns || self.pause(Some(until_ns), |_| false).is_err() {
                return all_delivered;
            }
        }
    }
}

/// The descriptor of [`Endpoint::os_handle`], for event loops.
impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.os_handle()
    }
}

/// The descriptor of [`Endpoint::os_handle`], for event loops.
impl AsRawFd for Endpoint {
    fn as_raw_fd(&self) -> RawFd {
        self.os_handle().as_raw_fd()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // A fork child shares the parent's sockets: what it sent there would close the parent's connections.
        if !self.is_ours() {
            return;
        }
        self.drain(limits::LINGER_NS_MAX);
        self.core.requests.close();
    }
}

fn total_bytes(segments: &[&[u8]]) -> usize {
    segments.iter().map(|segment| segment.len()).sum()
}

fn as_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
