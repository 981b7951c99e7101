//! A channel for messages, as exchanges use it: the same exchange runs over CCI and over plain sockets.

use crate::failure::{Failure, Outcome};
use cci_sys::clock;

/// Nothing is waited for longer.
pub const SILENCE_NS: u64 = 20_000_000_000;

/// Messages between two calls of [`Channel::flush`], and in a burst.
pub const BURST: usize = 32;

/// One end of a connection.
pub trait Channel: Sized {
    /// What is sent arrives.
    const RELIABLE: bool = true;
    /// Receives between two looks at the clock while nothing comes: 1 where a receive sleeps.
    const POLLS_PER_LOOK: u32 = 1 << 16;

    /// False: no room now; room comes with receiving.
    fn try_send(&mut self, message: &[u8]) -> Outcome<bool>;

    /// Has what was sent leave now, where it may still be here.
    fn flush(&mut self) {}

    /// Called while the partner ends: what was sent last leaves.
    fn linger(&mut self) {
        // The partner may be gone already, and the connection with it.
        drop(self.try_receive());
    }

    /// The first eight bytes of the next message (0 for a shorter one); None: there is none now.
    fn try_receive(&mut self) -> Outcome<Option<u64>>;

    /// Sends as soon as there is room. For exchanges in which nothing else is under way.
    #[inline]
    fn send(&mut self, message: &[u8]) -> Outcome {
        if self.try_send(message)? {
            return Ok(());
        }
        let until_ns = clock::now_ns() + SILENCE_NS;
        loop {
            self.flush();
            if self.try_send(message)? {
                return Ok(());
            }
            if clock::now_ns() > until_ns {
                return Err(Failure::new("no room for a message"));
            }
        }
    }

    /// Sends the message so many times, as fast as it goes.
    #[inline]
    fn send_all(&mut self, message: &[u8], count: u64) -> Outcome {
        for nth in 1..=count {
            self.send(message)?;
            if nth % BURST as u64 == 0 {
                self.flush();
            }
        }
        Ok(())
    }

    /// Waits for so many messages.
    #[inline]
    fn receive_all(&mut self, count: u64) -> Outcome {
        for _ in 0..count {
            self.receive()?;
        }
        Ok(())
    }

    /// Waits for a message.
    #[inline]
    fn receive(&mut self) -> Outcome<u64> {
        self.receive_within(SILENCE_NS)?.ok_or_else(|| Failure::new("nothing comes"))
    }

    /// Waits for a message; `None` where none came for so long, or somewhat longer.
    #[inline]
    fn receive_within(&mut self, silence_ns: u64) -> Outcome<Option<u64>> {
        let mut silent_since_ns = 0;
        loop {
            for _ in 0..Self::POLLS_PER_LOOK {
                if let Some(stamp) = self.try_receive()? {
                    return Ok(Some(stamp));
                }
            }
            match silent_since_ns {
                0 => silent_since_ns = clock::now_ns(),
                since_ns if clock::now_ns() - since_ns > silence_ns => return Ok(None),
                _ => {}
            }
        }
    }
}

/// The first eight bytes of a message, 0 for a shorter one.
#[inline]
pub fn stamp(message: &[u8]) -> u64 {
    message.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Writes them, as far as there is room.
#[inline]
pub fn put_stamp(message: &mut [u8], stamp: u64) {
    for (to, from) in message.iter_mut().zip(stamp.to_le_bytes()) {
        *to = from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_travel_in_messages_that_have_room() {
        let mut message = [0; 9];
        put_stamp(&mut message, u64::MAX - 5);
        assert_eq!((stamp(&message), stamp(&message[..7])), (u64::MAX - 5, 0));
        put_stamp(&mut message[..2], 7);
    }
}
