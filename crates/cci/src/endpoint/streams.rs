//! The face for streams: messages are sent in bursts, and received by a handler.

use super::Endpoint;
use crate::connection::Connection;
use crate::engine::core::{ConnState, SendOp};
use crate::engine::event::Event;
use crate::engine::lent::{Caller, Calls, Lender, LentBuffer, LentMessage, Polled, ShortMessage};
use crate::error::SendError;
use crate::options::{Attribute, SendFlags};
use cci_memory::ring::Line;

impl Endpoint {
    /// Makes progress and gives what came to `handler`, in the order in which [`Endpoint::next_event`] would return it, except that
    /// messages may come before completions that were ready before them: up to `max` messages and events. A message is lent for the
    /// length of the handler's call, which costs less than an event does; [`LentMessage::keep`] makes it an ordinary one. Returns how
    /// many times the handler was called; 0 means that nothing was there.
    ///
    /// It never blocks. The handler can't use this endpoint, which is borrowed: it notes what is to be done, and the program does that
    /// after the call. If the handler panics, what it was given is gone; everything else comes with the next call.
    ///
    /// ```
    /// use cci::{Connection, Endpoint, Event, Message, Polled};
    ///
    /// /// Adds up the bytes of short messages, and keeps long ones for later.
    /// fn receive(endpoint: &mut Endpoint, bytes: &mut usize, later: &mut Vec<Message>, gone: &mut Vec<Connection>) {
    ///     endpoint.poll(64, |polled| match polled {
    ///         Polled::Message(message) if message.len() > 1024 => later.push(message.keep()),
    ///         Polled::Message(message) => *bytes += message.len(),
    ///         Polled::Event(Event::Disconnected { connection, .. }) => gone.push(connection),
    ///         Polled::Event(_) => {}
    ///     });
    /// }
    /// ```
    #[inline]
    pub fn poll(&mut self, max: usize, mut handler: impl FnMut(Polled<'_>)) -> usize {
        self.poll_with(max, &mut |calls| {
            while let Some(polled) = calls.next() {
                handler(polled);
            }
        })
    }

    /// Makes progress and lends messages that have come to `handler`, as [`Endpoint::poll`] does: up to `max` of them, and up to the next
    /// other event. It leaves that event for [`Endpoint::next_event`], so that the program handles it while it has the endpoint. Returns
    /// how many messages there were, and whether events wait. If events wait already, it does nothing: take them first.
    ///
    /// ```
    /// use cci::{AcceptError, Endpoint, Event};
    ///
    /// /// Adds up the bytes of messages, and accepts clients.
    /// fn receive(endpoint: &mut Endpoint, bytes: &mut usize) -> Result<(), AcceptError> {
    ///     let (_, has_events) = endpoint.poll_messages(64, |message| *bytes += message.len());
    ///     while has_events && let Some(event) = endpoint.next_event() {
    ///         match event {
    ///             Event::ConnectRequest(request) => endpoint.accept(request, 0)?,
    ///             Event::Recv(message) => *bytes += message.len(),
    ///             _ => {}
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[inline]
    pub fn poll_messages(&mut self, max: usize, mut handler: impl FnMut(LentMessage<'_>)) -> (usize, bool) {
        self.poll_messages_with(max, &mut |calls| {
            while let Some(message) = calls.next_message() {
                handler(message);
            }
        })
    }

    /// Whether [`Endpoint::take_short`] may find something: that is so where shared memory is a path of this endpoint. It never changes.
    #[inline]
    pub fn takes_short(&self) -> bool {
        self.takes_short
    }

    /// Copies the next message to `line` if it has 48 bytes at most and is all that there is to do now, as in an exchange of single
    /// messages. That takes less time than [`Endpoint::poll_messages`], and the program has the endpoint when it looks at the message: this
    /// is for layers that answer short messages. It counts as a poll, unless it returns [`ShortMessage::Other`]: then it has done nothing,
    /// and `poll_messages` does everything.
    ///
    /// ```
    /// use cci::{Endpoint, Line, SendError, SendFlags, ShortMessage};
    ///
    /// /// Sends back a short message. Returns whether there may be something else.
    /// fn echo(endpoint: &mut Endpoint) -> Result<bool, SendError> {
    ///     let mut line = Line::EMPTY;
    ///     match endpoint.take_short(&mut line) {
    ///         ShortMessage::Message(connection) => {
    ///             endpoint.send(connection, line.bytes(), 0, SendFlags::SILENT)?;
    ///             Ok(false)
    ///         }
    ///         ShortMessage::Nothing => Ok(false),
    ///         ShortMessage::Other => Ok(true),
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn take_short(&mut self, line: &mut Line) -> ShortMessage {
        let is_plain = self.is_ours()
            && !self.core.has_events()
            && self.core.waiting.is_empty()
            && !self.core.requests.may_have_news()
            && !self.core.has_ended()
            && !self.exported.get();
        if !is_plain {
            return ShortMessage::Other;
        }
        self.pace.broken();
        self.taken_since_progress = 0;
        self.transport.take_short(&mut self.core, line)
    }

    fn poll_messages_with(&mut self, max: usize, calls: &mut Caller<'_>) -> (usize, bool) {
        if !self.is_ours() {
            return (0, false);
        }
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let has_news = max == 0 || self.core.has_events();
        let lent = if has_news { 0 } else { self.progress_lending(max, calls) };
        if self.exported.get() {
            if lent > 0 || has_news { self.touched() } else { self.keep_level() }
        }
        (lent as usize, self.core.has_events())
    }

    fn poll_with(&mut self, max: usize, calls: &mut Caller<'_>) -> usize {
        if !self.is_ours() {
            return 0;
        }
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let mut left = max;
        while left > 0 {
            if !self.core.has_events() {
                left -= self.progress_lending(left, calls);
                if !self.core.has_events() {
                    break;
                }
            } else if self.pace.is_due(self.taken_since_progress) {
                self.progress_between();
            }
            while left > 0 && !self.pace.is_due(self.taken_since_progress) {
                self.taken_since_progress += 1;
                let Some(event) = self.core.pop_event() else { break };
                left -= 1;
                let mut message;
                let polled = match event {
                    Event::Recv(received) => {
                        message = Some(received);
                        Polled::Message(LentMessage::new(&mut message))
                    }
                    other => Polled::Event(other),
                };
                calls(&mut Calls::One(Some(polled)));
            }
        }
        if self.exported.get() {
            if left < max || max == 0 { self.touched() } else { self.keep_level() }
        }
        (max - left) as usize
    }

    /// Makes progress, and has the transport lend up to `max` messages while no event waits. Returns how many it lent.
    #[inline(always)]
    fn progress_lending(&mut self, max: u32, calls: &mut Caller<'_>) -> u32 {
        self.pace.broken();
        let mut buffer = self.lent.take().unwrap_or_else(LentBuffer::new);
        let mut lender = Lender::new(&mut buffer, max, calls);
        self.before_progress();
        self.transport.progress_lending(&mut self.core, &mut lender);
        let lent = max - lender.left();
        self.lent = Some(buffer);
        self.after_progress();
        lent
    }

    /// Sends several messages of 0 bytes up to [`Endpoint::max_send_size`] each, in order, as single messages; the receiver sees no
    /// difference. It costs less than sending each by itself. They are copied before the call returns.
    ///
    /// If nothing is in progress on the connection, they leave at once. Otherwise they leave as soon as there is a batch, and at the
    /// latest when the program next makes progress. So a program that has more to send makes progress when there is no space, and after
    /// its last burst; after every burst it would send batches that are not full.
    ///
    /// Returns how many were taken, from the first on: fewer than all if there is no space for more, or if the next one can't be sent.
    /// The program goes on with the rest in another call, which returns the error. The messages that were taken end in exactly one
    /// [`Event::Send`] with `context`, once all of them have ended: with success, or with the status of the first that failed. With
    /// [`SendFlags::SILENT`], or if none was taken, there is no event. Each message counts as a send of its own where the sends in
    /// progress are limited.
    ///
    /// ```
    /// use cci::{Connection, Endpoint, SendError, SendFlags};
    ///
    /// /// Sends what there is space for, and returns what is left.
    /// fn publish<'a>(
    ///     endpoint: &mut Endpoint,
    ///     to: Connection,
    ///     prices: &'a [&'a [u8]],
    /// ) -> Result<&'a [&'a [u8]], SendError> {
    ///     match endpoint.send_burst(to, prices, 0, SendFlags::SILENT) {
    ///         Ok(taken) => Ok(&prices[taken..]),
    ///         Err(SendError::WouldBlock) => Ok(prices),
    ///         Err(error) => Err(error),
    ///     }
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of [`Endpoint::send`], for the first message. After any of them, nothing was sent and no event will come. An empty burst is
    /// no error: it sends nothing.
    pub fn send_burst(
        &mut self,
        connection: Connection,
        messages: &[&[u8]],
        context: u64,
        flags: SendFlags,
    ) -> Result<usize, SendError> {
        if let [message] = messages {
            return self.send(connection, message, context, flags).map(|()| 1);
        }
        if flags.contains(SendFlags::SILENT) || messages.is_empty() {
            return self.send_all(connection, messages, context, flags);
        }
        let count = u32::try_from(messages.len()).unwrap_or(u32::MAX - 1);
        let messages = messages.get(..count as usize).unwrap_or(messages);
        let Some(burst) = self.core.caught.begin_burst(context, count) else {
            return Err(SendError::WouldBlock);
        };
        let sent = self.send_all(connection, messages, burst, flags);
        match sent {
            Ok(taken) => {
                self.core.burst_sent(connection, burst, count - taken as u32);
                self.touched();
            }
            Err(_) => self.core.caught.withdraw_burst(burst),
        }
        sent
    }

    /// Sends messages as long as they are taken. Returns how many were.
    fn send_all(
        &mut self,
        connection: Connection,
        messages: &[&[u8]],
        context: u64,
        flags: SendFlags,
    ) -> Result<usize, SendError> {
        let at_once = self.send_at_once(connection, messages, context, flags);
        for (taken, message) in messages.iter().enumerate().skip(at_once) {
            match self.send(connection, message, context, flags) {
                Ok(()) => {}
                Err(error) if taken == 0 => return Err(error),
                Err(_) => return Ok(taken),
            }
        }
        Ok(messages.len())
    }

    /// Sends what the transport takes in one go, unless the messages have to wait behind others. Returns how many these were.
    fn send_at_once(
        &mut self,
        connection: Connection,
        messages: &[&[u8]],
        context: u64,
        flags: SendFlags,
    ) -> usize {
        if !self.is_ours() || self.check_quota(connection, flags).is_err() {
            return 0;
        }
        let Some(conn) = self.core.conn(connection) else { return 0 };
        if conn.state != ConnState::Open
            || conn.attribute == Attribute::MulticastReceive
            || !self.core.waiting.is_empty()
            || !self.core.order.is_empty()
        {
            return 0;
        }
        let (link, mss) = (conn.link, conn.mss());
        let op = SendOp { context, silent: flags.contains(SendFlags::SILENT) };
        let taken = self.transport.send_burst(&mut self.core, connection, link, messages, mss, op);
        if taken.messages > 0 {
            self.core.counters.messages_sent += u64::from(taken.messages);
            self.core.counters.bytes_sent += taken.bytes;
            self.touched();
        }
        taken.messages as usize
    }
}
