//! Functions for programs that wait in loops of their own, or that lend memory which is taken back.

use super::lending::Terms;
use super::whole::Whole;
use super::{Node, as_ns};
use crate::content::Part;
use crate::error::{ReachError, SendError};
use crate::event::Event;
use crate::handles::{Partner, Service};
use crate::name::ServiceName;
use cci::{RegisterError, Sleeper, SysError, TransportKind};
use cci_sys::clock;
use std::time::Duration;

impl Node {
    /// Whether something waits for a service; true, too, if there is no such service any more.
    pub fn has_event(&self, service: Service) -> bool {
        self.engine.base.services.get(service).is_none_or(super::services::State::has_events)
    }

    /// Takes the first event of a service that is no message, request or answer, wherever it is in the queue: for programs that
    /// receive seldom.
    pub fn next_notice(&mut self, service: Service) -> Option<Event> {
        self.engine.base.services.get_mut(service)?.take_notice()
    }

    /// Takes the first [`Event::Answer`] of a service, wherever it is in the queue: for programs that wait for calls and for
    /// messages separately.
    pub fn next_answer(&mut self, service: Service) -> Option<Event> {
        self.engine.base.services.get_mut(service)?.next_answer()
    }

    /// Whether [`Node::next_answer`] has one; true, too, if there is no such service any more.
    pub fn has_answer(&self, service: Service) -> bool {
        self.engine.base.services.get(service).is_none_or(super::services::State::has_answer)
    }

    /// Whether a partner is connected. If not, it is looked for, as by [`Node::reach`], without waiting: call it again when
    /// [`Node::next_due`] is over or the descriptor is readable.
    pub fn try_reach(&mut self, partner: Partner) -> bool {
        let now_ns = clock::now_ns();
        self.engine.finding.search(&mut self.engine.base, partner, None, now_ns);
        self.engine.look(now_ns);
        self.progress();
        self.is_reached(partner)
    }

    /// Whether a partner is connected.
    pub fn is_reached(&self, partner: Partner) -> bool {
        self.engine.base.partners.get(partner).is_some_and(|state| state.connection().is_some())
    }

    /// How long the only short item of a message to a partner may be on its present path, bytes. `None`: the partner is not connected.
    pub fn short_item_bytes_max(&self, partner: Partner) -> Option<usize> {
        self.engine.base.short_item_bytes_max(partner)
    }

    /// What carries messages to a partner on its present path. `None`: the partner is not connected.
    pub fn transport(&self, partner: Partner) -> Option<TransportKind> {
        self.engine.base.transport(partner)
    }

    /// Why a partner was not reached, after it has been [looked for](Node::try_reach) for so long.
    pub fn reach_error(&self, partner: Partner, waited: Duration) -> ReachError {
        let state = self.engine.base.partners.get(partner);
        let reach_error = state.and_then(|state| state.search.as_ref()?.reach_error.clone());
        let unknown = || ReachError::Unknown {
            service: state.map_or_else(|| ServiceName::number(0), |state| state.name.clone()),
            directory: self.engine.finding.directory.describe(),
            waited,
        };
        reach_error.unwrap_or_else(unknown).after(waited)
    }

    /// Whether long items are being written into return buffers of a partner: their message leaves after that, and others may before.
    pub fn is_writing(&self, partner: Partner) -> bool {
        self.engine.pushing.is_writing(partner)
    }

    /// Takes the news of the directory. Programs that sleep without [`Node::wait`] call it after each long sleep.
    pub fn check_directory(&mut self) {
        self.engine.look(clock::now_ns());
    }

    /// What threads sleep on without having the node: for programs that have it behind a lock. Unlike [`Node::os_handle`], it costs nothing
    /// while nobody sleeps. See [`Node::arm`].
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn sleeper(&self) -> Result<Sleeper, SysError> {
        self.engine.base.endpoint.sleeper()
    }

    /// Ensures that whatever comes from now on wakes the threads that sleep on a [`Sleeper`] of this node. What has come already, and what
    /// this call finds, wakes them at once. Call it after each use of the node while a thread sleeps, or is about to.
    pub fn arm(&mut self) {
        let _descriptor_is_readable = self.engine.base.endpoint.arm();
    }

    /// Gives a part of memory as a window, which one long item of a message is fetched into ([`Node::give_window`]).
    ///
    /// # Errors
    /// [`SendError::Unknown`] if there is no such service, [`SendError::Range`] if the part is empty or reaches beyond its memory,
    /// [`SendError::System`] if it is of a file.
    pub fn give_window_part(&mut self, service: Option<Service>, window: Part) -> Result<(), SendError> {
        if window.range.is_empty() || window.range.end > window.memory.len() {
            return Err(SendError::Range);
        }
        if window.memory.is_file() {
            return Err(SendError::System(RegisterError::ReadOnly.to_string()));
        }
        let services = &mut self.engine.base.services;
        match service {
            None => services.windows.push_back(window),
            Some(service) => services.get_mut(service).ok_or(SendError::Unknown)?.give_window(window),
        }
        Ok(())
    }

    /// Takes back the windows and the return buffers that have a byte of this memory: nothing will be put there.
    pub fn withdraw_buffers(&mut self, part: &Part) {
        let base = &mut self.engine.base;
        base.services.take_back_windows(part);
        base.lending.take_back_buffers(&mut base.endpoint, part);
    }

    /// Whether a byte of this memory is lent, is to be lent, or is in a window: partners, or this node, may still use it.
    pub fn is_lent(&self, part: &Part) -> bool {
        let base = &self.engine.base;
        base.lending.is_lent(part)
            || base.services.has_window(part)
            || self.engine.pushing.is_read(part)
            || self.engine.calls.values().any(|calls| calls.lends(part))
            || base.partners.iter().any(|(_, state)| state.waiting.iter().any(|frame| frame.lends(part)))
    }

    /// Sets for how long a service lends from now on, instead of [`Options::lease`](field@crate::Options::lease): `lease` at most, and the
    /// memory of answers for `disconnected` at most once their client's connection has ended. Until then the client may come back and ask
    /// for the answer again.
    ///
    /// # Errors
    /// [`SendError::Unknown`] if there is no such service.
    pub fn set_lease(
        &mut self,
        service: Service,
        lease: Duration,
        disconnected: Duration,
    ) -> Result<(), SendError> {
        if self.engine.base.services.get(service).is_none() {
            return Err(SendError::Unknown);
        }
        let terms = Terms { lease_ns: as_ns(lease), disconnected_ns: as_ns(disconnected) };
        self.engine.base.lending.set_terms(service, terms);
        Ok(())
    }

    /// Forgets a call, whose end raises no event. It may have been carried out; what it lends stays lent until the lease ends.
    #[cfg(feature = "futures")]
    pub(crate) fn give_up(&mut self, service: Service, call: crate::CallId) {
        self.engine.calls.get_mut(service).and_then(|calls| calls.remove(call));
    }

    /// Whether this partner still exists.
    pub fn has_partner(&self, partner: Partner) -> bool {
        self.engine.base.partners.get(partner).is_some()
    }

    /// Receives a message whose long items are still at the sender.
    #[cold]
    pub(super) fn receive_unfetched(&mut self, service: Service, whole: Whole) -> Option<Event> {
        self.engine.fetch_received(service, whole);
        self.pop(service)
    }
}
