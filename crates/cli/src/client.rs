//! The client's side of `cci ping` and of the measurements of `cci perf`: connections to the server, messages with their
//! echoes, and orders.

use crate::dial;
use crate::failure::{Failure, Outcome};
use crate::pattern::{Pattern, SEQ_BYTES};
use crate::protocol::{self, Answer, Hello, Lent, Order, Report, Role};
use crate::signals;
use cci::{Attribute, Connection, Device, Endpoint, Event, Options, SendError, SendFlags};
use cci_sys::{clock, random};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The server answers an order at once, or after its grace for messages that are late.
const ANSWER_NS: u64 = 15_000_000_000;
/// How long to sleep without looking whether the server is still there.
const LOOK: Duration = Duration::from_millis(50);
/// Polls without an event between two looks at the clock.
const POLLS_PER_LOOK: u32 = 64;

/// The connections to one server.
pub struct Client {
    /// Where they are.
    pub endpoint: Endpoint,
    /// What messages contain.
    pub pattern: Pattern,
    control: Connection,
    uri: String,
    session: u64,
    /// Poll instead of waiting: there is a core for each side.
    spin: bool,
}

/// The connection for the messages that are measured.
pub struct Data {
    /// Where they go.
    pub connection: Connection,
    /// Its kind.
    pub attribute: Attribute,
    /// The longest message it takes.
    pub len_max: u32,
}

/// What came of one message.
pub enum Echo {
    /// It came back.
    After {
        /// After so many nanoseconds.
        ns: u64,
        /// What is wrong with it, if anything.
        wrong: Option<String>,
    },
    /// It did not, in time.
    Missing,
}

impl Client {
    /// Connects to the server at `uri`.
    pub fn open(device: &Device, uri: &str, spin: bool) -> Outcome<Client> {
        let mut endpoint = dial::open(device, Options::default())?;
        let session = random::u64()?;
        let hello = protocol::encode(&Hello::new(Role::Control, session));
        let control = dial::connect(&mut endpoint, uri, &hello, Attribute::ReliableOrdered, CONNECT_TIMEOUT)?;
        let uri = uri.to_owned();
        Ok(Client { endpoint, pattern: Pattern::new(), control, uri, session, spin })
    }

    /// Connects to whoever sends back what comes. Waits without polling, and takes no orders.
    pub fn for_echoes(
        device: &Device,
        uri: &str,
        attribute: Attribute,
        timeout: Duration,
    ) -> Outcome<(Client, Data)> {
        let mut endpoint = dial::open(device, Options::default())?;
        let hello = protocol::encode(&Hello::new(Role::Echo, 0));
        let connection = dial::connect(&mut endpoint, uri, &hello, attribute, timeout)?;
        let len_max = endpoint.max_send_size(connection).unwrap_or(0);
        let (pattern, uri) = (Pattern::new(), uri.to_owned());
        let client = Client { endpoint, pattern, control: connection, uri, session: 0, spin: false };
        Ok((client, Data { connection, attribute, len_max }))
    }

    /// One more connection, for messages of one kind.
    pub fn data(&mut self, attribute: Attribute) -> Outcome<Data> {
        let hello = protocol::encode(&Hello::new(Role::Data, self.session));
        let connection = dial::connect(&mut self.endpoint, &self.uri, &hello, attribute, CONNECT_TIMEOUT)?;
        let len_max = self.endpoint.max_send_size(connection).unwrap_or(0);
        Ok(Data { connection, attribute, len_max })
    }

    /// Ends a connection.
    pub fn close(&mut self, data: &Data) {
        self.endpoint.disconnect(data.connection);
    }

    /// Announces messages of `len` bytes.
    pub fn start(&mut self, data: &Data, len: u32, echo: bool) -> Outcome {
        let attribute = data.attribute.short_name().to_owned();
        match self.ask(&Order::Start { echo, attribute, len })? {
            Answer::Ready => Ok(()),
            other => Err(confused(other)),
        }
    }

    /// Says how many there were, and hears how many came.
    pub fn finish(&mut self, sent: u64) -> Outcome<Report> {
        match self.ask(&Order::Finish { sent })? {
            Answer::Report(report) => Ok(report),
            other => Err(confused(other)),
        }
    }

    /// Memory of the server's, in place of what it lent before.
    pub fn borrow_memory(&mut self, len: u64, foreign: bool) -> Outcome<Lent> {
        match self.ask(&Order::Memory { len, foreign })? {
            Answer::Memory(lent) => Ok(lent),
            other => Err(confused(other)),
        }
    }

    /// Gives it back.
    pub fn give_memory_back(&mut self) -> Outcome {
        self.order(&Order::Memory { len: 0, foreign: false })
    }

    /// Has its first `len` bytes filled.
    pub fn fill_theirs(&mut self, seed: u64, len: u64) -> Outcome {
        self.order(&Order::Fill { seed, len })
    }

    /// Has them compared; what is wrong, if anything.
    pub fn check_theirs(&mut self, seed: u64, len: u64) -> Outcome<Option<String>> {
        match self.ask(&Order::Check { seed, len })? {
            Answer::Ready => Ok(None),
            Answer::Differs(reason) => Ok(Some(format!("at the server: {reason}"))),
            other => Err(confused(other)),
        }
    }

    /// Has the server poll, or not.
    pub fn poll(&mut self, wanted: bool) -> Outcome {
        self.order(&Order::Poll(wanted))
    }

    fn order(&mut self, order: &Order) -> Outcome {
        match self.ask(order)? {
            Answer::Ready => Ok(()),
            other => Err(confused(other)),
        }
    }

    fn ask(&mut self, order: &Order) -> Outcome<Answer> {
        let text = protocol::encode(order);
        let until_ns = clock::now_ns() + ANSWER_NS;
        while !self.try_send(self.control, &[&text], SendFlags::SILENT)? {
            self.endpoint.progress();
            if clock::now_ns() > until_ns {
                return Err(Failure::new("the server takes no orders"));
            }
        }
        loop {
            match self.next(until_ns)? {
                Some(Event::Recv(message)) if message.connection() == self.control => {
                    return serde_json::from_slice(&message)
                        .map_err(|error| Failure::new(format!("the server's answer: {error}")));
                }
                Some(event) => no_failure(&event)?,
                None => return Err(self.silent("the server does not answer")),
            }
        }
    }

    /// Sends message `seq` of `len` bytes. False: no room now.
    #[inline]
    pub fn send(&mut self, data: &Data, seq: u64, len: u32, flags: SendFlags) -> Outcome<bool> {
        let (number, len) = (seq.to_le_bytes(), len as usize);
        let head: &[u8] = if len < SEQ_BYTES { &[] } else { &number };
        let segments = [head, self.pattern.body(seq, len)];
        taken(self.endpoint.send_vectored(data.connection, &segments, seq, flags))
    }

    /// Sends message `seq` of `len` bytes and waits for its echo, which must come within a time. `is_any_lost`: of those
    /// before, some have not come back, and may still do so.
    #[inline]
    pub fn round_trip(
        &mut self,
        data: &Data,
        (seq, len): (u64, u32),
        flags: SendFlags,
        patience_ns: u64,
        is_any_lost: bool,
    ) -> Outcome<Echo> {
        let sent_ns = clock::now_ns();
        let until_ns = sent_ns + patience_ns;
        while !self.send(data, seq, len, flags)? {
            self.endpoint.progress();
            signals::go_on()?;
            if clock::now_ns() > until_ns {
                return Err(self.silent("no room to send"));
            }
        }
        loop {
            match self.next(until_ns)? {
                Some(Event::Recv(message)) if message.connection() == data.connection => {
                    let ns = clock::now_ns() - sent_ns;
                    let is_late = Pattern::seq_of(&message).is_some_and(|number| number < seq);
                    // What was given up as lost may still come.
                    if is_late && !data.attribute.is_reliable() {
                        continue;
                    }
                    // Where messages carry no number, it may even come now.
                    let is_unnumbered = is_any_lost && (len as usize) < SEQ_BYTES;
                    let due = if is_unnumbered { self.pattern.seq_like(&message) } else { seq };
                    let wrong = self.pattern.check(&message, due, len as usize).err();
                    return Ok(Echo::After { ns, wrong });
                }
                Some(event) => no_failure(&event)?,
                None => return Ok(Echo::Missing),
            }
        }
    }

    /// Takes whatever still comes until then, so that it is not mistaken for what comes next.
    pub fn let_pass(&mut self, until_ns: u64) -> Outcome {
        while let Some(event) = self.next(until_ns)? {
            no_failure(&event)?;
        }
        Ok(())
    }

    fn try_send(&mut self, connection: Connection, segments: &[&[u8]], flags: SendFlags) -> Outcome<bool> {
        taken(self.endpoint.send_vectored(connection, segments, 0, flags))
    }

    /// The next event; none when `until_ns` has passed.
    #[inline]
    pub fn next(&mut self, until_ns: u64) -> Outcome<Option<Event>> {
        if !self.spin {
            return self.sleep(until_ns);
        }
        let mut polls = 0_u32;
        loop {
            if let Some(event) = self.endpoint.next_event() {
                return Ok(Some(event));
            }
            polls += 1;
            if polls.is_multiple_of(POLLS_PER_LOOK) {
                self.alive()?;
                if clock::now_ns() >= until_ns {
                    return Ok(None);
                }
            }
            std::hint::spin_loop();
        }
    }

    fn sleep(&mut self, until_ns: u64) -> Outcome<Option<Event>> {
        loop {
            let left_ns = until_ns.saturating_sub(clock::now_ns());
            // The end of a connection is no event: looked for every now and then.
            let event = dial::wait(&mut self.endpoint, LOOK.min(Duration::from_nanos(left_ns)))?;
            if event.is_some() || left_ns == 0 {
                return Ok(event);
            }
            self.alive()?;
        }
    }

    fn alive(&self) -> Outcome {
        signals::go_on()?;
        if self.endpoint.is_open(self.control) {
            Ok(())
        } else {
            Err(dial::not_sent(SendError::Disconnected))
        }
    }

    /// Nothing comes any more, with what the library knows of the reason.
    pub fn silent(&self, what: &str) -> Failure {
        let held = self.endpoint.explain(self.control).and_then(|explanation| explanation.blocked_on);
        let held = held.map_or_else(String::new, |reason| format!("; held up by: {reason}"));
        Failure::new(format!("{what}{held}"))
            .remedy("see whether the server's process runs, and on which cores both processes are")
    }
}

fn taken(sent: Result<(), SendError>) -> Outcome<bool> {
    match sent {
        Ok(()) => Ok(true),
        Err(SendError::WouldBlock) => Ok(false),
        Err(error) => Err(dial::not_sent(error)),
    }
}

fn confused(answer: Answer) -> Failure {
    let reason = match answer {
        Answer::Confused(reason) => reason,
        Answer::Refused(reason) => return Failure::new(format!("the server says: {reason}")),
        Answer::Ready | Answer::Report(_) | Answer::Memory(_) | Answer::Differs(_) => {
            "an answer to something else".to_owned()
        }
    };
    Failure::new(format!("the server says: {reason}")).remedy("the same version of CCI on both sides")
}

/// Events that are of no interest, unless they are bad news.
pub fn no_failure(event: &Event) -> Outcome {
    match event {
        Event::Send { status, .. } if *status != cci::Status::Success => Err(dial::not_delivered(*status)),
        Event::Disconnected { reason, .. } => {
            Err(Failure::new(format!("the server is gone: {reason}")).remedy("see why its process ended"))
        }
        Event::DeviceFailed => Err(Failure::new("the device failed").remedy("`cci info` shows its state")),
        _ => Ok(()),
    }
}
