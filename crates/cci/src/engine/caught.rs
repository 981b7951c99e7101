//! Completions that become no event of their own: somebody waits for them in a call, or they are counted for a burst.

use crate::connection::Status;
use cci_memory::slab::{Key, Slab};

/// The completion of a blocking send or operation.
struct Blocked {
    context: u64,
    status: Option<Status>,
}

/// The completions of a burst, which raise one event together.
struct Burst {
    /// The program's.
    context: u64,
    /// Messages that have not completed, and one more while the burst is being sent.
    pending: u32,
    /// How the first message ended that failed.
    failed: Option<Status>,
}

/// The end of a burst, which is to become an event.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct BurstEnd {
    /// The program's.
    pub context: u64,
    pub status: Status,
}

/// What became of a completion.
pub(crate) enum Catch {
    /// It is to become an event.
    No,
    /// It raises no event.
    Yes,
    /// It was the last of a burst.
    Last(BurstEnd),
}

/// The completions of an endpoint that are caught instead of becoming events.
pub(crate) struct Caught {
    /// Rarely more than one.
    blocked: Vec<Blocked>,
    bursts: Slab<Burst>,
    /// Bursts and blocking calls in progress.
    len: usize,
    /// What makes a burst's context of its key: random, so that no context of the program's own is taken for one.
    secret: u64,
}

impl Caught {
    pub fn new() -> Caught {
        let bursts = Slab::new(crate::limits::SENDS_MAX);
        Caught { blocked: Vec::with_capacity(4), bursts, len: 0, secret: 0 }
    }

    /// Sets what makes a burst's context of its key, before the first burst.
    pub fn set_secret(&mut self, secret: u64) {
        self.secret = secret;
    }

    /// Whether every completion becomes an event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn block_on(&mut self, context: u64) {
        self.blocked.push(Blocked { context, status: None });
        self.len += 1;
    }

    /// The status of a blocking send, once it is known; it is then forgotten.
    pub fn unblocked(&mut self, context: u64) -> Option<Status> {
        let at = self.blocked.iter().position(|waiter| waiter.context == context)?;
        let status = self.blocked.get(at)?.status?;
        self.blocked.swap_remove(at);
        self.len -= 1;
        Some(status)
    }

    pub fn stop_blocking(&mut self, context: u64) {
        let before = self.blocked.len();
        self.blocked.retain(|waiter| waiter.context != context);
        self.len -= before - self.blocked.len();
    }

    /// Blocking sends that have ended.
    pub fn unblocked_count(&self) -> usize {
        self.blocked.iter().filter(|waiter| waiter.status.is_some()).count()
    }

    /// Enters a burst of up to `messages` messages. Returns the context to send them with; `None`: there is no memory.
    pub fn begin_burst(&mut self, context: u64, messages: u32) -> Option<u64> {
        let burst = Burst { context, pending: messages.checked_add(1)?, failed: None };
        let key = self.bursts.insert(burst).ok()?;
        self.len += 1;
        Some(key.to_bits() ^ self.secret)
    }

    /// Notes that `untaken` messages of a burst were not sent after all, and that no more will be. Returns its end, if all that were
    /// sent have completed.
    pub fn burst_sent(&mut self, context: u64, untaken: u32) -> Option<BurstEnd> {
        self.count_down(context, untaken + 1, Status::Success)?
    }

    /// Forgets a burst of which nothing was sent.
    #[cold]
    pub fn withdraw_burst(&mut self, context: u64) {
        if self.bursts.remove(Key::from_bits(context ^ self.secret)).is_some() {
            self.len -= 1;
        }
    }

    /// Catches the completion of a send or operation, if somebody waits for it or counts it.
    #[cold]
    #[inline(never)]
    pub fn catch(&mut self, context: u64, status: Status) -> Catch {
        if let Some(waiter) = self.blocked.iter_mut().find(|waiter| waiter.context == context) {
            waiter.status = Some(status);
            return Catch::Yes;
        }
        self.catch_some(context, status, 1)
    }

    /// Catches the completions of messages of a burst.
    #[inline]
    pub fn catch_some(&mut self, context: u64, status: Status, messages: u32) -> Catch {
        match self.count_down(context, messages, status) {
            None => Catch::No,
            Some(None) => Catch::Yes,
            Some(Some(end)) => Catch::Last(end),
        }
    }

    /// Counts messages of a burst that have ended. `None`: the context is not that of a burst.
    fn count_down(&mut self, context: u64, messages: u32, status: Status) -> Option<Option<BurstEnd>> {
        let key = Key::from_bits(context ^ self.secret);
        let burst = self.bursts.get_mut(key)?;
        if status != Status::Success {
            burst.failed.get_or_insert(status);
        }
        burst.pending = burst.pending.saturating_sub(messages);
        if burst.pending > 0 {
            return Some(None);
        }
        let burst = self.bursts.remove(key)?;
        self.len -= 1;
        Some(Some(BurstEnd { context: burst.context, status: burst.failed.unwrap_or(Status::Success) }))
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bursts.bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_ends_once_with_its_first_failure() {
        let mut caught = Caught::new();
        caught.set_secret(0x1234_5678_9abc_def0);
        let context = caught.begin_burst(7, 4).unwrap();
        assert!(
            matches!(caught.catch(7, Status::Success), Catch::No),
            "the program's context is not the burst's"
        );
        assert!(matches!(caught.catch(context, Status::Success), Catch::Yes));
        assert!(matches!(caught.catch(context, Status::ReceiverNotReady), Catch::Yes));
        assert_eq!(caught.burst_sent(context, 1), None);
        let Catch::Last(end) = caught.catch(context, Status::TimedOut) else {
            panic!("all three have ended")
        };
        assert_eq!(end, BurstEnd { context: 7, status: Status::ReceiverNotReady });
        assert!(matches!(caught.catch(context, Status::Success), Catch::No), "it is over");
        assert!(caught.is_empty());
    }

    #[test]
    fn a_burst_that_completed_while_it_was_sent_ends_with_it() {
        let mut caught = Caught::new();
        caught.set_secret(1);
        let context = caught.begin_burst(u64::MAX, 2).unwrap();
        assert!(matches!(caught.catch(context, Status::Success), Catch::Yes));
        assert!(matches!(caught.catch(context, Status::Success), Catch::Yes));
        let end = BurstEnd { context: u64::MAX, status: Status::Success };
        assert_eq!(caught.burst_sent(context, 0), Some(end));
        let unsent = caught.begin_burst(1, 2).unwrap();
        caught.withdraw_burst(unsent);
        assert!(caught.is_empty());
    }

    #[test]
    fn blocking_calls_and_bursts_are_told_apart() {
        let mut caught = Caught::new();
        caught.set_secret(99);
        let burst = caught.begin_burst(5, 1).unwrap();
        caught.block_on(5);
        assert!(matches!(caught.catch(5, Status::TimedOut), Catch::Yes));
        assert_eq!((caught.unblocked_count(), caught.unblocked(5)), (1, Some(Status::TimedOut)));
        caught.block_on(6);
        caught.stop_blocking(6);
        assert!(!caught.is_empty(), "the burst is in progress");
        assert_eq!(caught.burst_sent(burst, 0), None);
        assert!(matches!(caught.catch(burst, Status::Success), Catch::Last(_)));
        assert!(caught.is_empty());
    }
}
