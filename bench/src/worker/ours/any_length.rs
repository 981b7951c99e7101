//! CCI's messages of any length, from memory of the library, received whole or as offered.

use super::dial;
use crate::args::WorkArgs;
use crate::worker::dialled::Dialled;
use cci::messages::{Event, Limits, Messenger, SendError};
use cci::{Attribute, Connection, Memory, SendFlags};
use cci_measure::channel::{Channel, stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::site::Site;
use cci_sys::clock;

/// Nothing is waited for longer.
const LIMIT_NS: u64 = 20_000_000_000;

/// One end.
pub struct AnyLength {
    /// Where messages come.
    pub messenger: Messenger,
    /// Where they go.
    pub connection: Connection,
    /// What came while there was no room to send.
    came: Option<u64>,
    /// The message that was sent last: an exchange sends the same one many times.
    message: Option<Memory>,
}

impl AnyLength {
    fn memory(&mut self, message: &[u8]) -> Outcome<Memory> {
        if let Some(memory) = self.message.as_ref().filter(|memory| memory.len() == message.len()) {
            return Ok(memory.clone());
        }
        let memory =
            self.messenger.allocate(message.len()).map_err(|error| dial::failed("memory")(&error))?;
        if !memory.write(0, message) {
            return Err(Failure::new("the message does not fit its memory"));
        }
        self.message = Some(memory.clone());
        Ok(memory)
    }
}

impl AnyLength {
    fn take(&mut self) -> Outcome<Option<u64>> {
        match self.messenger.next_event() {
            Some(Event::Message(message)) => Ok(Some(stamp(&message))),
            Some(Event::Offer(offer)) => {
                self.messenger.receive(offer).map_err(|error| dial::failed("receive")(&error))?;
                Ok(None)
            }
            Some(Event::Received { result: Err(failure), .. }) => Err(dial::failed("receive")(&failure)),
            Some(Event::DeviceFailed) => Err(Failure::new("the device failed")),
            _ => Ok(None),
        }
    }
}

impl Channel for AnyLength {
    const POLLS_PER_LOOK: u32 = 1 << 10;

    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        let memory = self.memory(message)?;
        taken(self.messenger.send(self.connection, &memory, 0, SendFlags::SILENT))
    }

    fn flush(&mut self) {
        // What is under way moves on with the events that are taken. A failure shows when the next message is sent or waited for.
        if self.came.is_none() {
            self.came = self.take().unwrap_or(None);
        }
    }

    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        match self.came.take() {
            Some(stamp) => Ok(Some(stamp)),
            None => self.take(),
        }
    }
}

/// False: no room.
pub fn taken<T>(sent: Result<T, SendError>) -> Outcome<bool> {
    match sent {
        Ok(_) => Ok(true),
        Err(SendError::WouldBlock) => Ok(false),
        Err(error) => Err(dial::failed("send")(&error)),
    }
}

/// A messenger on the device that the contestant stands for, with the default limits.
pub fn messenger(args: &WorkArgs) -> Outcome<Messenger> {
    let made = Messenger::new(dial::endpoint(args)?, Limits::default());
    made.map_err(|error| dial::failed("messenger")(&error))
}

/// Accepts the first request, and waits until the connection stands.
fn accept(messenger: &mut Messenger) -> Outcome<Connection> {
    let until_ns = clock::now_ns() + LIMIT_NS;
    while clock::now_ns() < until_ns {
        match messenger.next_event() {
            Some(Event::ConnectRequest(request)) => {
                messenger.accept(request, 0).map_err(|error| dial::failed("accept")(&error))?;
            }
            Some(Event::Accept { result, .. }) => {
                return result.map_err(|error| dial::failed("accept")(&error));
            }
            _ => {}
        }
    }
    Err(Failure::new("nobody connects"))
}

/// Connects, and waits for the answer.
pub fn connect(messenger: &mut Messenger, uri: &str) -> Outcome<Connection> {
    let asked = messenger.connect(uri, b"", Attribute::ReliableOrdered, 0, None);
    asked.map_err(|error| dial::failed(uri)(&error))?;
    let until_ns = clock::now_ns() + LIMIT_NS;
    while clock::now_ns() < until_ns {
        if let Some(Event::Connect { result, .. }) = messenger.next_event() {
            return result.map_err(|error| dial::failed(uri)(&error));
        }
    }
    Err(Failure::new(format!("{uri}: no answer")))
}

impl Dialled for AnyLength {
    type Listening = Messenger;

    fn listen(args: &WorkArgs, _site: &Site) -> Outcome<(Messenger, String)> {
        let messenger = messenger(args)?;
        let uri = messenger.endpoint().uri().to_owned();
        Ok((messenger, uri))
    }

    fn accept(mut messenger: Messenger, _args: &WorkArgs) -> Outcome<AnyLength> {
        let connection = accept(&mut messenger)?;
        Ok(AnyLength { messenger, connection, came: None, message: None })
    }

    fn dial(args: &WorkArgs, first: &str) -> Outcome<AnyLength> {
        let mut messenger = messenger(args)?;
        let connection = connect(&mut messenger, first)?;
        Ok(AnyLength { messenger, connection, came: None, message: None })
    }
}
