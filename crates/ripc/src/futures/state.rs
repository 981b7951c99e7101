//! The state that the tasks of one node share, behind a lock that is held for the length of a call.

use crate::content::Message;
use crate::error::CallError;
use crate::event::Event;
use crate::handles::{CallId, Service};
use crate::node::Node;
use rustc_hash::FxHashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A node, and the tasks that wait.
pub struct Shared {
    state: Mutex<State>,
    /// The node's URI.
    pub uri: String,
}

pub struct State {
    pub node: Node,
    services: FxHashMap<Service, Tasks>,
    /// Tasks that wait until a partner is reached.
    seekers: Vec<Waker>,
    driver: Option<Waker>,
    /// Nodes and services that programs have.
    pub handles: usize,
    /// Whether the driver has ended, so that nothing more comes.
    pub is_over: bool,
}

/// The tasks of one service.
#[derive(Default)]
struct Tasks {
    /// Tasks that wait for an event.
    readers: Vec<Waker>,
    /// Tasks that wait until there is space for a call.
    callers: Vec<Waker>,
    calls: FxHashMap<CallId, Call>,
}

enum Call {
    Pending(Option<Waker>),
    Ended(Result<Message, CallError>),
}

impl Shared {
    pub fn new(node: Node) -> Shared {
        let uri = node.uri().to_owned();
        let state = State {
            node,
            services: FxHashMap::default(),
            seekers: Vec::new(),
            driver: None,
            handles: 1,
            is_over: false,
        };
        Shared { state: Mutex::new(state), uri }
    }

    /// Locks the state for a moment.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Makes the driver take a turn, since something was begun or has ended.
    pub fn wake_driver(&mut self) {
        self.driver.take().into_iter().for_each(Waker::wake);
    }

    /// Remembers how to wake the driver.
    pub fn set_driver(&mut self, context: &Context<'_>) {
        self.driver = Some(context.waker().clone());
    }

    /// Makes progress, and wakes the tasks concerned. Returns whether there may be more to take.
    pub fn turn(&mut self) -> bool {
        let has_more = self.node.turn();
        for (service, tasks) in &mut self.services {
            while self.node.has_answer(*service)
                && let Some(Event::Answer { call, result, .. }) = self.node.next_answer(*service)
            {
                tasks.ended(call, result);
            }
            if self.node.has_event(*service) {
                tasks.readers.drain(..).for_each(Waker::wake);
            }
        }
        self.seekers.drain(..).for_each(Waker::wake);
        has_more
    }

    /// Wakes everybody who waits, since nothing more comes.
    pub fn end(&mut self) {
        self.is_over = true;
        self.services.values_mut().for_each(Tasks::wake_all);
        self.seekers.drain(..).for_each(Waker::wake);
    }

    /// Notes that a program has a service from now on.
    pub fn opened(&mut self, service: Service) {
        self.services.insert(service, Tasks::default());
        self.handles += 1;
        self.wake_driver();
    }

    /// Closes a service that the program does not want any more.
    pub fn close(&mut self, service: Service) {
        self.node.unregister(service);
        if let Some(mut tasks) = self.services.remove(&service) {
            tasks.wake_all();
        }
        self.handles -= 1;
        self.wake_driver();
    }

    /// The next event of a service, except ends of calls.
    pub fn poll_event(&mut self, service: Service, context: &Context<'_>) -> Poll<Option<Event>> {
        loop {
            match self.node.pop(service) {
                Some(Event::Answer { call, result, .. }) => {
                    if let Some(tasks) = self.services.get_mut(&service) {
                        tasks.ended(call, result);
                    }
                }
                Some(event) => return Poll::Ready(Some(event)),
                None => break,
            }
        }
        match self.services.get_mut(&service) {
            Some(tasks) if !self.is_over => enter(&mut tasks.readers, context),
            _ => return Poll::Ready(None),
        }
        // A message that was taken may have to be fetched first.
        self.wake_driver();
        Poll::Pending
    }

    /// Has the task woken when there may be space for a call of this service. Returns false if there never will be.
    pub fn wait_for_space(&mut self, service: Service, context: &Context<'_>) -> bool {
        match self.services.get_mut(&service) {
            Some(tasks) if !self.is_over => {
                enter(&mut tasks.callers, context);
                true
            }
            _ => false,
        }
    }

    /// Has the task woken after the driver's next turn.
    pub fn wait_for_turn(&mut self, context: &Context<'_>) {
        enter(&mut self.seekers, context);
    }

    /// Notes that a call was begun, for which a task will wait.
    pub fn called(&mut self, service: Service, call: CallId) {
        if let Some(tasks) = self.services.get_mut(&service) {
            tasks.calls.insert(call, Call::Pending(None));
        }
        self.wake_driver();
    }

    /// Takes the end of a call, or has the task woken when it comes.
    pub fn poll_call(
        &mut self,
        service: Service,
        call: CallId,
        context: &Context<'_>,
    ) -> Poll<Result<Message, CallError>> {
        let calls = self.services.get_mut(&service).map(|tasks| &mut tasks.calls);
        let Some(calls) = calls else { return Poll::Ready(Err(CallError::Closed)) };
        match calls.get_mut(&call) {
            Some(Call::Pending(waker)) if !self.is_over => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(match calls.remove(&call) {
                Some(Call::Ended(result)) => result,
                _ => Err(CallError::Closed),
            }),
        }
    }

    /// Notes that no task waits for a call any more.
    pub fn give_up(&mut self, service: Service, call: CallId) {
        let Some(tasks) = self.services.get_mut(&service) else { return };
        if let Some(Call::Pending(_)) = tasks.calls.remove(&call) {
            self.node.give_up(service, call);
            tasks.callers.drain(..).for_each(Waker::wake);
            self.wake_driver();
        }
    }
}

impl Tasks {
    fn ended(&mut self, call: CallId, result: Result<Message, CallError>) {
        // Nobody wants the end of a call that was given up.
        if let Some(pending) = self.calls.get_mut(&call)
            && let Call::Pending(waker) = std::mem::replace(pending, Call::Ended(result))
        {
            waker.into_iter().for_each(Waker::wake);
        }
        self.callers.drain(..).for_each(Waker::wake);
    }

    fn wake_all(&mut self) {
        self.readers.drain(..).chain(self.callers.drain(..)).for_each(Waker::wake);
        for call in self.calls.values_mut() {
            if let Call::Pending(waker) = call {
                waker.take().into_iter().for_each(Waker::wake);
            }
        }
    }
}

/// Adds a task to those that wait, once.
fn enter(wakers: &mut Vec<Waker>, context: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
        wakers.push(context.waker().clone());
    }
}
