//! The services of a node: their names, and what waits to be received.

use super::whole::Whole;
use crate::content::{Message, Part};
use crate::directory::Instance;
use crate::error::{CallError, ClaimError};
use crate::event::Event;
use crate::handles::{CallId, Partner, Service};
use crate::limits::{QUEUE_MAX, QUEUE_OF_ONE_MAX, SERVICES_MAX};
use crate::name::ServiceName;
use rustc_hash::FxHashMap;
use slotmap::{SlotMap, new_key_type};
use std::collections::VecDeque;

/// How a service is listed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// In the directory, as the only service of its name.
    Service,
    /// In the directory, as a member of a group.
    Member,
    /// Nowhere. It calls others, and only answers reach it.
    Unlisted,
}

/// What waits to be received.
pub enum Waiting {
    /// An event that is complete.
    Event(Event),
    /// A message whose long items are fetched when the program receives it.
    Unfetched(Box<Whole>),
}

/// A service.
pub struct State {
    pub name: ServiceName,
    pub instance: Instance,
    pub listing: Listing,
    queue: VecDeque<(Option<Partner>, Waiting)>,
    /// Messages and requests in the queue. Ends of calls and leases always have space.
    queued: usize,
    windows: VecDeque<Part>,
    /// Whether the message that the program receives now is being fetched. What has come after it waits.
    pub is_fetching: bool,
    /// Whether another process is this service now.
    pub has_moved: bool,
    /// Messages that were dropped, since too many waited.
    pub dropped: u64,
}

impl State {
    /// Whether there is space for a message or request of a partner, of which `queued` wait.
    #[inline]
    pub fn has_space(&self, queued: usize) -> bool {
        self.queued < QUEUE_MAX && queued < QUEUE_OF_ONE_MAX
    }

    /// Whether nothing waits to be received.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_fetching
    }

    /// Whether something can be received.
    pub fn has_events(&self) -> bool {
        !self.queue.is_empty() && !self.is_fetching
    }

    /// Adds what a partner has sent.
    pub fn push_from(&mut self, partner: Partner, event: Event) {
        self.queued += 1;
        self.queue.push_back((Some(partner), Waiting::Event(event)));
    }

    /// Adds what a partner has sent, to be fetched when it is received.
    pub fn push_unfetched(&mut self, partner: Partner, whole: Whole) {
        self.queued += 1;
        self.queue.push_back((Some(partner), Waiting::Unfetched(Box::new(whole))));
    }

    /// Adds an event that is no message of a partner.
    pub fn push(&mut self, event: Event) {
        self.queue.push_back((None, Waiting::Event(event)));
    }

    /// Makes a message that was received and fetched the next event.
    pub fn push_fetched(&mut self, event: Event) {
        self.is_fetching = false;
        self.queue.push_front((None, Waiting::Event(event)));
    }

    /// Takes the next event, and the partner whose message it is.
    pub fn pop(&mut self) -> Option<(Option<Partner>, Waiting)> {
        if self.is_fetching {
            return None;
        }
        let (partner, event) = self.queue.pop_front()?;
        self.queued -= usize::from(partner.is_some());
        Some((partner, event))
    }

    /// Takes the first event that is no message, no request and no answer, wherever it is in the queue.
    pub fn take_notice(&mut self) -> Option<Event> {
        if self.queue.len() == self.queued {
            return None;
        }
        let is_notice = |(_, waiting): &(Option<Partner>, Waiting)| matches!(waiting, Waiting::Event(event) if !matches!(event, Event::Message(_) | Event::Request(_) | Event::TakeOver(_) | Event::Answer { .. }));
        let index = self.queue.iter().position(is_notice)?;
        match self.queue.remove(index)?.1 {
            Waiting::Event(event) => Some(event),
            Waiting::Unfetched(_) => None,
        }
    }

    /// Takes the answer to a call, wherever it is in the queue.
    pub fn take_answer(&mut self, call: CallId) -> Option<Result<Message, CallError>> {
        let is_it = |(_, waiting): &(Option<Partner>, Waiting)| matches!(waiting, Waiting::Event(Event::Answer { call: of, .. }) if *of == call);
        let index = self.queue.iter().position(is_it)?;
        match self.queue.remove(index)?.1 {
            Waiting::Event(Event::Answer { result, .. }) => Some(result),
            _ => None,
        }
    }

    /// Takes the first end of a call, wherever it is in the queue.
    pub fn next_answer(&mut self) -> Option<Event> {
        let index = self.queue.iter().position(|(_, waiting)| is_answer(waiting))?;
        match self.queue.remove(index)?.1 {
            Waiting::Event(event) => Some(event),
            Waiting::Unfetched(_) => None,
        }
    }

    /// Whether a call has ended.
    pub fn has_answer(&self) -> bool {
        self.queue.len() > self.queued && self.queue.iter().any(|(_, waiting)| is_answer(waiting))
    }

    /// Adds a window, into which one long item will be fetched.
    pub fn give_window(&mut self, window: Part) {
        self.windows.push_back(window);
    }
}

/// Takes the first window that is large enough (RIPC-022).
fn take_first(windows: &mut VecDeque<Part>, len_bytes: usize) -> Option<Part> {
    let index = windows.iter().position(|window| window.range.len() >= len_bytes)?;
    windows.remove(index)
}

new_key_type! {
    /// A window into which a long item is being fetched.
    pub struct WindowInUse;
}

/// Memory into which a long item is fetched.
#[derive(Debug)]
pub enum Window {
    /// The library's own memory.
    Own(Box<[u8]>),
    /// The program's memory.
    Given(WindowInUse, Part),
}

/// A window in use, with its place, to become a window again if nothing is fetched.
struct InUse {
    service: Option<Service>,
    part: Part,
    is_taken_back: bool,
}

fn is_answer(waiting: &Waiting) -> bool {
    matches!(waiting, Waiting::Event(Event::Answer { .. }))
}

/// All services of a node.
#[derive(Default)]
pub struct Services {
    states: SlotMap<Service, State>,
    by_name: FxHashMap<ServiceName, Service>,
    /// Windows for any service.
    pub windows: VecDeque<Part>,
    in_use: SlotMap<WindowInUse, InUse>,
}

impl Services {
    #[inline]
    pub fn get(&self, service: Service) -> Option<&State> {
        self.states.get(service)
    }

    #[inline]
    pub fn get_mut(&mut self, service: Service) -> Option<&mut State> {
        self.states.get_mut(service)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Service, &State)> {
        self.states.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Service, &mut State)> {
        self.states.iter_mut()
    }

    pub fn by_name(&self, name: &ServiceName) -> Option<Service> {
        self.by_name.get(name).copied()
    }

    /// Checks that one more service of this name may be registered.
    pub fn check(&self, name: &ServiceName) -> Result<(), ClaimError> {
        if self.states.len() == SERVICES_MAX {
            return Err(ClaimError::TooMany);
        }
        if self.by_name.contains_key(name) {
            let directory = "this process".to_owned();
            return Err(ClaimError::Taken { service: name.clone(), by: "itself".to_owned(), directory });
        }
        Ok(())
    }

    /// Adds a service. The caller has called [`Services::check`].
    pub fn insert(&mut self, name: ServiceName, instance: Instance, listing: Listing) -> Service {
        let service = self.states.insert(State {
            name: name.clone(),
            instance,
            listing,
            queue: VecDeque::new(),
            queued: 0,
            windows: VecDeque::new(),
            is_fetching: false,
            has_moved: false,
            dropped: 0,
        });
        self.by_name.insert(name, service);
        service
    }

    pub fn remove(&mut self, service: Service) -> Option<State> {
        let state = self.states.remove(service)?;
        self.by_name.remove(&state.name);
        Some(state)
    }

    /// Takes a window for one long item: the service's own, or one for any service.
    pub fn take_window(&mut self, service: Service, len_bytes: usize) -> Option<Window> {
        let own = take_first(&mut self.states.get_mut(service)?.windows, len_bytes);
        let (service, part) = match own {
            Some(part) => (Some(service), part),
            None => (None, take_first(&mut self.windows, len_bytes)?),
        };
        let in_use = self.in_use.insert(InUse { service, part: part.clone(), is_taken_back: false });
        Some(Window::Given(in_use, part))
    }

    /// Ends the use of a window. If it was not filled, it is the first window again, unless it was taken back.
    pub fn window_used(&mut self, window: WindowInUse, is_filled: bool) {
        let Some(InUse { service, part, is_taken_back }) = self.in_use.remove(window) else { return };
        if is_filled || is_taken_back {
            return;
        }
        match service {
            None => self.windows.push_front(part),
            Some(service) => {
                if let Some(state) = self.states.get_mut(service) {
                    state.windows.push_front(part);
                }
            }
        }
    }

    /// Whether a byte of this memory is in a window, or is being fetched.
    pub fn has_window(&self, part: &Part) -> bool {
        let of_services = self.states.values().flat_map(|state| &state.windows);
        let in_use = self.in_use.values().map(|in_use| &in_use.part);
        self.windows.iter().chain(of_services).chain(in_use).any(|window| window.overlaps(part))
    }

    /// Removes the windows that contain a byte of this memory. What is being fetched into one still comes.
    pub fn take_back_windows(&mut self, part: &Part) {
        self.windows.retain(|window| !window.overlaps(part));
        for in_use in self.in_use.values_mut().filter(|in_use| in_use.part.overlaps(part)) {
            in_use.is_taken_back = true;
        }
        for state in self.states.values_mut() {
            state.windows.retain(|window| !window.overlaps(part));
        }
    }
}
