//! Messages through the locking form of an endpoint, which several threads may use.

use super::messages::{Messages, received, taken};
use cci::{Connection, Endpoint, SendFlags, SharedEndpoint};
use cci_measure::channel::Channel;
use cci_measure::failure::Outcome;

/// One end.
pub struct Locked {
    endpoint: SharedEndpoint,
    connection: Connection,
}

impl From<Messages> for Locked {
    fn from(Messages { endpoint, connection }: Messages) -> Locked {
        Locked { endpoint: SharedEndpoint::new(endpoint), connection }
    }
}

impl Channel for Locked {
    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        taken(self.endpoint.send(self.connection, message, 0, SendFlags::SILENT))
    }

    #[inline]
    fn flush(&mut self) {
        self.endpoint.with(Endpoint::progress);
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        match self.endpoint.next_event() {
            None => Ok(None),
            Some(event) => received(&event),
        }
    }
}
