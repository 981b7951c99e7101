//! What layers of this crate that own an endpoint need beside its public interface: to be woken, at a time or by another thread.

use super::Endpoint;
use crate::engine::requests::RequestInbox;
use crate::error::WaitError;
use crate::transport::Armed;
use std::sync::Arc;

/// Wakes whoever waits for an endpoint, from any thread, so that the layer that owns the endpoint looks for news of its own.
#[derive(Clone)]
pub(crate) struct Waker(Arc<RequestInbox>);

impl Waker {
    pub fn wake(&self) {
        self.0.wake();
    }
}

impl Endpoint {
    /// What wakes those who wait for this endpoint.
    pub(crate) fn waker(&self) -> Waker {
        Waker(self.core.requests.clone())
    }

    /// The time in nanoseconds on the endpoint's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        self.transport.now_ns()
    }

    /// Ends the sleep of whoever waits for this endpoint at `at_ns`, at the latest; `None` takes that back.
    pub(crate) fn set_alarm(&mut self, at_ns: Option<u64>) {
        if self.alarm_ns != at_ns {
            self.alarm_ns = at_ns;
            self.touched();
        }
    }

    /// From now on, sends with contexts above `context` raise an event only if they fail.
    pub(crate) fn leaves_unsignaled_above(&mut self, context: u64) {
        self.core.unsignaled_above = context;
    }

    /// From now on the layer counts the messages for which bulk data make way, since some only steer bulk data.
    pub(crate) fn counts_prompt_messages(&mut self) {
        self.core.prompt_messages = Some(0);
    }

    /// Counts a message for which bulk data make way.
    #[inline]
    pub(crate) fn count_prompt_message(&mut self) {
        if let Some(messages) = &mut self.core.prompt_messages {
            *messages += 1;
        }
    }

    /// Messages so far for which bulk data make way.
    #[cfg(test)]
    pub(crate) fn prompt_messages(&self) -> u64 {
        self.core.prompt_messages()
    }

    /// Has the descriptor readable until the program looks for events, since the layer above has one for it.
    pub(crate) fn announce_news(&self) {
        self.touched();
    }

    /// Waits as [`Endpoint::wait_any`] does, also for an alarm, and for what `has_news` asks for. May return early.
    pub(crate) fn wait_for(
        &mut self,
        until_ns: Option<u64>,
        has_news: impl Fn() -> bool,
    ) -> Result<(), WaitError> {
        self.check_process()?;
        let until_ns = [until_ns, self.alarm_ns].into_iter().flatten().min();
        self.pause(until_ns, |endpoint| endpoint.core.has_events() || has_news())
    }

    /// Shortens a sleep to the alarm.
    #[cold]
    pub(super) fn until_alarm(armed: Armed, alarm_ns: u64) -> Armed {
        match armed {
            Armed::Sleep { deadline_ns } => {
                Armed::Sleep { deadline_ns: Some(deadline_ns.map_or(alarm_ns, |at_ns| at_ns.min(alarm_ns))) }
            }
            Armed::Pending => Armed::Pending,
        }
    }
}
