//! Frames that are handed out as they come, without a place in a queue.

use super::answers::Verdict;
use super::engine::Engine;
use crate::event::Ticket;
use crate::handles::{CallId, Partner, Service};
use crate::name::ServiceName;
use crate::wire::{Head, Kind};

/// The event of a frame.
pub enum AtOnce {
    Message,
    Request(Ticket),
    /// The end of a call, and the context that was given to it.
    Answer(CallId, u64),
}

impl Engine {
    /// Whether a frame may be handed out at once to the service that asks, for which nothing waits: it must be for this service,
    /// and lend nothing. Nothing has been done about any other frame.
    #[inline(always)]
    pub fn at_once(
        &mut self,
        frame: &cci::Message,
        service: Service,
    ) -> Option<(Partner, ServiceName, AtOnce)> {
        let partner = self.base.partners.of(frame.connection())?;
        let head = Head::parse(frame)?;
        let state = self.base.partners.get(partner)?;
        if state.service != service || !head.is_plain() {
            return None;
        }
        let event = match head.kind {
            Kind::Message => AtOnce::Message,
            Kind::Request => {
                let client = state.instance?;
                let answers = self.answers.get_mut(service)?;
                // A request that is not taken is handled once more, and answered then.
                let is_new = !self.base.services.get(service)?.has_moved
                    && matches!(answers.asked(client, partner, (head.number, head.oldest)), Verdict::New);
                if !is_new {
                    return None;
                }
                AtOnce::Request(Ticket { service, client, number: head.number })
            }
            Kind::Answer => {
                let call = CallId(head.number);
                AtOnce::Answer(call, self.calls.get_mut(service)?.end_of(call, partner)?)
            }
            _ => return None,
        };
        let from = self.base.partners.get(partner)?.name.clone();
        Some((partner, from, event))
    }
}
