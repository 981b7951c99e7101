//! CCI's messages: reliable and ordered, without completion events, taken by polling.

use super::dial;
use crate::args::WorkArgs;
use crate::worker::dialled::Dialled;
use cci::{Attribute, Connection, Endpoint, Event, SendError, SendFlags};
use cci_measure::channel::{Channel, stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_measure::site::Site;

/// One end.
pub struct Messages {
    /// Where they come.
    pub endpoint: Endpoint,
    /// Where they go.
    pub connection: Connection,
}

impl Channel for Messages {
    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        taken(self.endpoint.send(self.connection, message, 0, SendFlags::SILENT))
    }

    #[inline]
    fn flush(&mut self) {
        self.endpoint.progress();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        match self.endpoint.next_event() {
            None => Ok(None),
            Some(event) => received(&event),
        }
    }
}

/// Whatever goes over a connection for messages is set up as that is.
impl<C: Channel + From<Messages>> Dialled for C {
    type Listening = Endpoint;

    fn listen(args: &WorkArgs, _site: &Site) -> Outcome<(Endpoint, String)> {
        let endpoint = dial::endpoint(args)?;
        let uri = endpoint.uri().to_owned();
        Ok((endpoint, uri))
    }

    fn accept(mut endpoint: Endpoint, _args: &WorkArgs) -> Outcome<C> {
        let connection = dial::accept(&mut endpoint)?;
        Ok(C::from(Messages { endpoint, connection }))
    }

    fn dial(args: &WorkArgs, first: &str) -> Outcome<C> {
        let mut endpoint = dial::endpoint(args)?;
        let connection = dial::connect(&mut endpoint, first, Attribute::ReliableOrdered)?;
        Ok(C::from(Messages { endpoint, connection }))
    }
}

/// False: no room.
#[inline]
pub fn taken(sent: Result<(), SendError>) -> Outcome<bool> {
    match sent {
        Ok(()) => Ok(true),
        Err(SendError::WouldBlock) => Ok(false),
        Err(error) => Err(dial::failed("send")(&error)),
    }
}

/// The message's first bytes, where the event is one.
#[inline]
pub fn received(event: &Event) -> Outcome<Option<u64>> {
    match event {
        Event::Recv(message) => Ok(Some(stamp(message))),
        Event::DeviceFailed => Err(Failure::new("the device failed")),
        _ => Ok(None),
    }
}
