//! Messages that are sent one by one, and received by a handler.

use super::messages::Messages;
use super::streams::Streams;
use cci_measure::channel::Channel;
use cci_measure::failure::Outcome;

/// One end.
pub struct Handled(Streams);

impl From<Messages> for Handled {
    fn from(messages: Messages) -> Handled {
        Handled(Streams::from(messages))
    }
}

impl Channel for Handled {
    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        self.0.try_send(message)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        self.0.try_receive()
    }

    #[inline]
    fn receive_all(&mut self, count: u64) -> Outcome {
        self.0.receive_all(count)
    }
}
