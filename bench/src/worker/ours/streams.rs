//! Messages in bursts, received by a handler.

use super::dial;
use super::messages::Messages;
use cci::{Endpoint, Event, Polled, SendError, SendFlags};
use cci_measure::channel::{BURST, Channel, SILENCE_NS, stamp};
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;

/// Messages that one call lends at most.
const LENT_MAX: usize = 64;

/// One end.
pub struct Streams(Messages);

impl From<Messages> for Streams {
    fn from(messages: Messages) -> Streams {
        Streams(messages)
    }
}

impl Channel for Streams {
    #[inline]
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool> {
        self.0.try_send(message)
    }

    fn flush(&mut self) {
        self.0.flush();
    }

    #[inline]
    fn try_receive(&mut self) -> Outcome<Option<u64>> {
        let mut received = None;
        poll(&mut self.0.endpoint, 1, |message| received = Some(stamp(message)))?;
        Ok(received)
    }

    #[inline]
    fn send_all(&mut self, message: &[u8], count: u64) -> Outcome {
        let burst = [message; BURST];
        let mut left = count;
        let mut full_since_ns = 0;
        while left > 0 {
            let messages = burst.get(..left.min(BURST as u64) as usize).unwrap_or(&burst);
            match self.0.endpoint.send_burst(self.0.connection, messages, 0, SendFlags::SILENT) {
                Ok(taken) => {
                    left -= taken as u64;
                    full_since_ns = 0;
                    continue;
                }
                Err(SendError::WouldBlock) if full_since_ns == 0 => full_since_ns = clock::now_ns(),
                Err(SendError::WouldBlock) if clock::now_ns() - full_since_ns < SILENCE_NS => {}
                Err(error) => return Err(dial::failed("send_burst")(&error)),
            }
            self.0.endpoint.progress();
        }
        self.0.endpoint.progress();
        Ok(())
    }

    #[inline]
    fn receive_all(&mut self, count: u64) -> Outcome {
        let (mut left, mut polls, mut silent_since_ns) = (count, 0, 0);
        while left > 0 {
            let before = left;
            poll(&mut self.0.endpoint, left.min(LENT_MAX as u64) as usize, |_| left -= 1)?;
            if left < before {
                (polls, silent_since_ns) = (0, 0);
                continue;
            }
            polls += 1;
            if polls % Self::POLLS_PER_LOOK != 0 {
                continue;
            }
            match silent_since_ns {
                0 => silent_since_ns = clock::now_ns(),
                since_ns if clock::now_ns() - since_ns > SILENCE_NS => {
                    return Err(Failure::new("nothing comes"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Has the endpoint lend up to `max` messages.
#[inline]
fn poll(endpoint: &mut Endpoint, max: usize, mut receive: impl FnMut(&[u8])) -> Outcome {
    let mut failed = false;
    endpoint.poll(max, |polled| match polled {
        Polled::Message(message) => receive(&message),
        Polled::Event(Event::DeviceFailed) => failed = true,
        Polled::Event(_) => {}
    });
    if failed { Err(Failure::new("the device failed")) } else { Ok(()) }
}
