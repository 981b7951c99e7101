//! Endpoints, which own all resources of communication (CCI-014, CCI-015) and are used through `&mut`.

mod blocking;
mod connecting;
pub(crate) mod layers;
mod loans;
pub(crate) mod mapped;
mod peers;
mod registration;
mod rma;
#[cfg(feature = "seam")]
pub(crate) mod seam;
mod settings;
#[cfg(feature = "simulated")]
pub(crate) mod simulated;
pub(crate) mod sleeper;
mod streams;
mod waiting;
mod waits;

use crate::connection::Connection;
use crate::counters::{ConnectionCounters, EndpointCounters, MemoryUse};
use crate::device::{Device, TransportKind};
use crate::engine::core::{ConnState, Core, SendOp};
use crate::engine::event::Event;
use crate::engine::lent::LentBuffer;
use crate::engine::pace::Pace;
use crate::engine::poller::Poller;
use crate::engine::requests::Decision;
use crate::engine::spin::Spin;
use crate::error::{CreateError, OptionError, SendError};
use crate::explain::{Explanation, Fact};
use crate::limits;
use crate::options::{Attribute, Options, SendFlags};
use crate::sealing::Sealing;
use crate::transport::any::OnDemand;
use crate::transport::{self, Activity, Armed, Report, Transport};
use cci_memory::pool::SlotPool;
use cci_proto::RmaSegment;
use cci_sys::process::fork;
use cci_sys::{SysError, clock, cpu, random};
use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A virtual instance of one device, with its buffers, queues and connections (CCI-014). It makes progress when its
/// owner calls it, from one thread at a time; [`crate::SharedEndpoint`] is the form for several threads.
///
/// Dropping an endpoint disconnects all its connections. What was sent before is still delivered, for a second at most; dropping
/// takes no longer than that.
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
    /// What the transport says of itself.
    hands_out_events: bool,
    takes_short: bool,
    core: Core,
    device: Device,
    spin: Spin,
    /// Whether the program has the descriptor, so that every call must keep it level-triggered.
    exported: Cell<bool>,
    /// How many events the program has taken since progress was last made.
    taken_since_progress: u32,
    pace: Pace,
    /// The process that opened the endpoint. The copy that a fork child has must not send anything.
    made_by: fork::Token,
    /// The context of the next blocking send. It has 48 random bits, so that no context of the program's own is taken for it.
    next_blocking_context: u64,
    /// Space for the segments of one operation.
    rma_segments: Vec<RmaSegment>,
    /// The name that the device's configuration, or the program, expects of every peer that this endpoint connects to.
    expected: Option<Box<str>>,
    /// The other devices by which it can connect where its own transport does not lead. `None` if there are none, or if they are
    /// part of its transport already.
    on_demand: Option<OnDemand>,
    /// Where messages are that are lent, once the program polls with a handler.
    lent: Option<Box<LentBuffer>>,
    /// Where messages are written to that are sent as loans and copied then, once the program borrows memory.
    own_loans: Option<SlotPool>,
    /// When a layer above wants to be woken.
    alarm_ns: Option<u64>,
}

impl Endpoint {
    /// Opens an endpoint on `device`.
    ///
    /// # Errors
    /// [`CreateError`] says which option, service or system call stood in the way. Nothing is left behind.
    pub fn create(device: &Device, options: Options) -> Result<Endpoint, CreateError> {
        Endpoint::open(device, options, false)
    }

    /// Opens an endpoint. With `with_thread`, a progress thread will sleep on what the transport waits for, apart from the program.
    pub(crate) fn open(
        device: &Device,
        options: Options,
        with_thread: bool,
    ) -> Result<Endpoint, CreateError> {
        options.check()?;
        let poller = Arc::new(Poller::new(with_thread)?);
        let core = Core::new(options.clone(), device.max_send_size(), poller.clone())?;
        let transport = transport::open(device, &options, &poller)?;
        let on_demand = OnDemand::of(device, &options)?;
        let mut endpoint = Endpoint::of(device, core, transport)?;
        endpoint.on_demand = on_demand;
        Ok(endpoint)
    }

    /// Makes an endpoint of a device, and of a core and a transport that were opened for it.
    fn of(device: &Device, mut core: Core, transport: Box<dyn Transport>) -> Result<Endpoint, CreateError> {
        let expected = Sealing::expected(&device.0, &core.options)?;
        let next_blocking_context = random::u64()? & !0xffff;
        core.caught.set_secret(next_blocking_context.rotate_left(24));
        Ok(Endpoint {
            expected,
            on_demand: None,
            lent: None,
            own_loans: None,
            alarm_ns: None,
            hands_out_events: transport.hands_out_events(),
            takes_short: transport.takes_short(),
            transport,
            core,
            device: device.clone(),
            spin: Spin::new(cpu::available()),
            exported: Cell::new(false),
            taken_since_progress: 0,
            pace: Pace::new(),
            made_by: fork::token(),
            next_blocking_context,
            rma_segments: Vec::with_capacity(64),
        })
    }

    /// Checks that this process may use the endpoint, which only the process that opened it may. In a child that `fork` made without
    /// `exec`, every call fails or does nothing, and dropping the endpoint harms nobody. The child opens endpoints of its own.
    ///
    /// # Errors
    /// [`SysError`] if this is another process.
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

    /// The URI that others connect to. It stays the same for as long as the endpoint is open.
    pub fn uri(&self) -> &str {
        self.transport.about().uri
    }

    /// The device that the endpoint was opened on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The options in force.
    pub fn options(&self) -> &Options {
        &self.core.options
    }

    /// Closes a connection from this side; its handle is refused from now on. What was sent before is still delivered, or fails with
    /// a completion of its own. The peer gets [`Event::Disconnected`] after the last message. Connections that are unknown or closed
    /// already are ignored.
    pub fn disconnect(&mut self, connection: Connection) {
        let ours = self.is_ours();
        let Some(conn) = self.core.conn_mut(connection).filter(|_| ours) else { return };
        match conn.state {
            ConnState::Closing => return,
            // The transport was asked already. When it reports that it is done, nobody needs to know.
            ConnState::Releasing => return conn.state = ConnState::Closing,
            ConnState::Released | ConnState::Reported => return self.core.forget(connection),
            _ => {}
        }
        let (link, was_open) = (conn.link, conn.state == ConnState::Open);
        let was = std::mem::replace(&mut conn.state, ConnState::Closing);
        self.core.not_owed(was);
        self.core.regions.pairs.forget_connection(connection);
        if was_open {
            self.core.counters.connections_open = self.core.counters.connections_open.saturating_sub(1);
        }
        if self.core.waiting.close(connection) {
            return self.touched();
        }
        self.transport.disconnect(&mut self.core, connection, link);
        self.touched();
    }

    /// Sends one message of 0 bytes up to [`Endpoint::max_send_size`], which is copied before the call returns. Each send ends in
    /// exactly one [`Event::Send`] with `context`, unless `flags` has [`SendFlags::SILENT`].
    ///
    /// # Errors
    /// After any [`SendError`], nothing was sent and no event will come. `WouldBlock` means that as many sends are in progress as
    /// there are send buffers, or as this connection may have of them, or that the memory cap is reached: get events and try again.
    #[inline(always)]
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

    /// Sends one message that is gathered from segments, such as a header and its data (CCI-042, CCI-043). In all else it does what
    /// [`Endpoint::send`] does.
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

    /// Checks that there is space for one more completion. A program that sends and never takes completions would fill the memory
    /// with them, as would an operation that never ends, with sends behind it.
    #[inline]
    fn check_quota(&self, connection: Connection, flags: SendFlags) -> Result<(), SendError> {
        if !self.core.has_send_quota(connection) && !flags.contains(SendFlags::SILENT) {
            return Err(SendError::WouldBlock);
        }
        Ok(())
    }

    #[inline(always)]
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
        if len_bytes > conn.mss() as usize {
            return Err(SendError::TooLong { len_bytes, max_bytes: conn.mss() });
        }
        if conn.attribute == Attribute::MulticastReceive {
            return Err(SendError::ReceiveOnly);
        }
        let link = conn.link;
        let op = SendOp { context, silent: flags.contains(SendFlags::SILENT) };
        let is_queued = conn.attribute == Attribute::ReliableOrdered && !op.silent;
        let mut entered = None;
        if is_queued && !self.core.order.is_empty() {
            if !self.core.order.reserve() {
                return Err(SendError::WouldBlock);
            }
            // Before the transport may complete it. Without operations nothing is entered: completions come as sends end.
            entered = self.core.order.enter_send(connection.index, context);
        }
        let mut sent = Err(SendError::WouldBlock);
        if self.core.waiting.is_empty() {
            sent = self.transport.send(&mut self.core, connection, link, segments, op);
        }
        if let Err(SendError::WouldBlock) = sent {
            sent = self.send_or_wait(connection, link, segments, len_bytes, op);
        }
        if let (Err(_), Some(entry)) = (&sent, entered) {
            self.core.order.take_send_back(connection.index, entry);
        }
        sent?;
        self.core.counters.messages_sent += 1;
        self.core.counters.bytes_sent += len_bytes as u64;
        self.touched();
        Ok(())
    }

    /// Makes the descriptor readable, if the program has it, until the program looks for events. It must be called after something was
    /// started: that may have queued an event, or may need an earlier deadline than the one the descriptor was armed with, and the
    /// program may sleep on the descriptor right after any call.
    #[inline]
    fn touched(&self) {
        if self.exported.get() {
            self.core.poller.set_pending(true);
        }
    }

    /// Takes the next event, if there is one; never blocks (CCI-018). When there is none and [`Endpoint::recv_buffers_free`] is 0,
    /// messages may be waiting for a receive buffer: drop some that were taken before.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        if !self.is_ours() {
            return None;
        }
        // A program slow to take its events must not stop acknowledgements and time-outs meanwhile.
        if !self.core.has_events() || self.pace.is_due(self.taken_since_progress) || self.exported.get() {
            return if self.hands_out_events { self.next_handed_out() } else { self.next_after_progress() };
        }
        self.next_waiting()
    }

    /// Takes the next event, which waits.
    // Apart, as is what follows: the check before them needs no registers to be saved.
    #[inline(never)]
    fn next_waiting(&mut self) -> Option<Event> {
        self.taken_since_progress += 1;
        self.core.pop_event()
    }

    /// Makes progress and takes the next event, where the transport hands it out.
    #[inline(never)]
    fn next_handed_out(&mut self) -> Option<Event> {
        let is_handed_out = !self.core.has_events()
            && !self.exported.get()
            && self.core.waiting.is_empty()
            && !self.core.requests.may_have_news();
        if !is_handed_out {
            return self.next_after_progress();
        }
        self.pace.broken();
        self.taken_since_progress = 1;
        // Last of all, so that the transport writes the event to where the caller wants it: to move what was just written in parts
        // costs more than everything else here.
        self.transport.next(&mut self.core)
    }

    /// Makes progress if that is due, and takes the next event of those that wait.
    #[inline(never)]
    fn next_after_progress(&mut self) -> Option<Event> {
        if !self.core.has_events() {
            self.pace.broken();
            self.make_progress();
        } else if self.pace.is_due(self.taken_since_progress) {
            self.progress_between();
        }
        self.taken_since_progress += 1;
        if self.exported.get() {
            self.keep_level();
        }
        if self.core.has_events() { self.core.pop_event() } else { None }
    }

    /// Makes progress without taking an event: receives what has come, sends what waits, and times out what is due.
    #[inline]
    pub fn progress(&mut self) {
        if self.is_ours() {
            self.pace.broken();
            self.make_progress();
        }
    }

    /// Makes progress. The caller has checked that this is the process that opened the endpoint.
    #[inline]
    fn make_progress(&mut self) {
        self.before_progress();
        self.transport.progress(&mut self.core);
        self.after_progress();
    }

    #[inline(always)]
    fn before_progress(&mut self) {
        if let Some(decisions) = self.core.requests.take() {
            self.settle(decisions);
        }
        self.taken_since_progress = 0;
    }

    #[inline(always)]
    fn after_progress(&mut self) {
        if !self.core.waiting.is_empty() {
            self.advance_some();
        }
        if self.core.has_ended() {
            self.transport.release_ended(&mut self.core);
        }
    }

    /// Makes progress although events wait.
    #[cold]
    fn progress_between(&mut self) {
        self.pace.begins(self.taken_since_progress, self.transport.now_ns());
        // A program that is quick will come to the end of the queue soon. If as many came as were taken, it never would, and a peer that
        // keeps sending would have all receive buffers in the queue.
        if self.taken_since_progress >= limits::EVENTS_PER_PROGRESS {
            self.core.records_left = u64::from(self.taken_since_progress / 2);
        }
        self.make_progress();
        self.core.records_left = u64::MAX;
        self.pace.ended(self.transport.now_ns());
    }

    /// Passes what became of requests to the transport.
    #[cold]
    fn settle(&mut self, decisions: Vec<Decision>) {
        for decision in decisions {
            self.transport.decided(&mut self.core, decision);
        }
    }

    /// Sees to it that the descriptor, which the program has, is readable if there is an event, and otherwise becomes so when there is.
    /// If there is none, progress was made just before.
    #[cold]
    fn keep_level(&mut self) {
        if self.core.has_events() {
            // There may be more, so it stays readable until the program has seen that there is nothing.
            self.core.poller.set_pending(true);
        } else {
            self.arm_idle();
        }
    }

    /// Prepares for sleep on [`Endpoint::os_handle`]. Returns true if there is something now, so that the program must not sleep. Only
    /// programs that sleep without having seen [`Endpoint::next_event`] return `None` need this: once the handle was asked for,
    /// `next_event` does it.
    pub fn arm(&mut self) -> bool {
        if !self.is_ours() {
            return false;
        }
        if !self.core.has_events() {
            self.progress();
        }
        self.arm_idle()
    }

    /// [`Endpoint::arm`] behind progress.
    fn arm_idle(&mut self) -> bool {
        if self.has_news() {
            self.core.poller.renew_pending();
            return true;
        }
        match self.arm_transport() {
            Armed::Sleep { deadline_ns } if !self.has_news() => {
                self.core.poller.set_pending(false);
                if !self.core.requests.has_news() && self.core.poller.set_timer(deadline_ns).is_ok() {
                    return false;
                }
                // Somebody has just decided on a request, or there is no timer. In that case the descriptor stays readable, which keeps
                // the program busy, but nothing is missed.
                self.core.poller.renew_pending();
                true
            }
            Armed::Sleep { .. } | Armed::Pending => {
                // The program has seen no event, and has to look again all the same.
                self.core.poller.renew_pending();
                true
            }
        }
    }

    #[inline]
    fn arm_transport(&mut self) -> Armed {
        let armed = if self.core.waiting.is_empty() {
            self.transport.arm(&mut self.core)
        } else {
            self.arm_with_waiting()
        };
        match self.alarm_ns {
            None => armed,
            Some(alarm_ns) => Endpoint::until_alarm(armed, alarm_ns),
        }
    }

    /// Makes progress for the progress thread, and prepares for its sleep on what the transport waits for. Returns whether that sleep is
    /// safe. Queued events do not keep the thread from sleeping: they are for the program, which the descriptor wakes.
    pub(crate) fn progress_apart(&mut self) -> bool {
        self.core.counters.thread_rounds += 1;
        self.progress();
        let armed = self.arm_transport();
        if self.exported.get() {
            let news = self.has_news() || armed == Armed::Pending;
            self.core.poller.set_pending(news);
        }
        let Armed::Sleep { deadline_ns } = armed else { return false };
        // Requests that are decided on from now on wake the thread, so the order here is that of `Endpoint::arm`.
        self.core.poller.set_timer(deadline_ns).is_ok()
            && !self.core.requests.has_news()
            && !self.core.has_ended()
    }

    #[cfg(test)]
    pub(crate) fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    /// Whether there is something that a sleeper may be waiting for: an event, a connection that has ended and is about to raise one, or
    /// the completion of another thread's blocking send.
    pub(crate) fn has_news(&self) -> bool {
        self.core.has_events() || self.core.has_unblocked() || self.core.has_ended()
    }

    /// The endpoint's descriptor for poll, select or epoll, which is readable whenever [`Endpoint::next_event`] may have something
    /// (CCI-020). Programs that only poll or call `wait` should not ask for it: to keep it level-triggered costs a system call each time
    /// the endpoint becomes idle. A reactor that reports edges, as tokio's does, will do: after `next_event` has returned `None`, there is
    /// an edge for whatever comes. [`AsFd`] and [`AsRawFd`] return it, too, for programs that register an endpoint with an event loop.
    pub fn os_handle(&self) -> BorrowedFd<'_> {
        // A fork child must not make it readable for its parent.
        if !self.exported.get() && self.is_ours() {
            self.exported.set(true);
            self.core.poller.set_pending(true);
        }
        self.core.poller.fd()
    }

    /// How many receive buffers are free now.
    #[inline]
    pub fn recv_buffers_free(&mut self) -> u32 {
        self.core.receive.free_count()
    }

    /// The longest message that a connection takes, bytes: the smaller of what its two sides take (CCI-048). `None` if there is no such
    /// connection, or it is not open yet.
    pub fn max_send_size(&self, connection: Connection) -> Option<u32> {
        self.core.conn(connection).map(|conn| conn.mss()).filter(|&mss| mss > 0)
    }

    /// What a connection promises of order and delivery; `None` if there is no such connection.
    pub fn attribute(&self, connection: Connection) -> Option<Attribute> {
        self.core.conn(connection).map(|conn| conn.attribute)
    }

    /// The context that was given to `connect` or `accept`; `None` if there is no such connection.
    pub fn context(&self, connection: Connection) -> Option<u64> {
        self.core.conn(connection).map(|conn| conn.context)
    }

    /// Whether messages can be sent on a connection.
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
        // The program allocates it explicitly, so the cap rises with it.
        let rma_bytes = self.core.rma_bill.load(Ordering::Relaxed);
        kinds.push(("allocated for remote access", rma_bytes));
        kinds.push(("lent message", self.lent.as_ref().map_or(0, |_| size_of::<LentBuffer>()) as u64));
        let total_bytes = kinds.iter().map(|(_, bytes)| bytes).sum();
        counters.memory =
            MemoryUse { kinds, total_bytes, cap_bytes: self.core.options.memory_bytes_max + rma_bytes };
        counters
    }

    /// The counters of one connection; `None` if there is no such connection.
    pub fn connection_counters(&self, connection: Connection) -> Option<ConnectionCounters> {
        let link = self.link(connection).ok()?;
        let mut counters = ConnectionCounters::default();
        self.transport.report(&self.core, Report::Connection { link, into: &mut counters });
        counters.sends_in_progress += u64::from(self.core.waiting.len_of(connection));
        Some(counters)
    }

    /// Explains which path a connection takes, which others were looked at and why it does not take them, and what holds it up. `None` if
    /// there is no such connection.
    pub fn explain(&self, connection: Connection) -> Option<Explanation> {
        let conn = self.core.conn(connection)?;
        if !self.is_ours() {
            return None;
        }
        let mut explanation = Explanation {
            transport: self.device.transport().name().to_owned(),
            kind: Some(self.device.transport()).filter(|kind| *kind != TransportKind::Any),
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

    /// Disconnects all connections, and goes on delivering what was sent until that is done, or for `timeout` at most. Returns whether
    /// all of it was delivered or failed. Dropping the endpoint does this with a timeout of a second.
    pub fn close(mut self, timeout: Duration) -> bool {
        self.is_ours() && self.drain(as_ns(timeout))
    }

    fn drain(&mut self, timeout_ns: u64) -> bool {
        for connection in self.core.connections() {
            self.disconnect(connection);
        }
        let mut until_ns = clock::now_ns().saturating_add(timeout_ns);
        let mut all_delivered = false;
        loop {
            // A request among the events is refused by being dropped, and progress sends that to its peer.
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
            // The pause makes progress, too, and what comes then may be the last that comes.
            let before = self.transport.activity();
            let is_news =
                |endpoint: &Endpoint| endpoint.core.has_events() || endpoint.transport.activity() != before;
            if clock::now_ns() >= until_ns || self.pause(Some(until_ns), is_news).is_err() {
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
        // A fork child shares the parent's sockets. What it sent there would close the parent's connections.
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
