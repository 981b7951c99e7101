//! All that a process has.

use super::buffers::Buffers;
use super::calls::Calls;
use super::numbers::Numbers;
use super::system::EventFd;
use cci::Sleeper;
use cci_ripc::{Event, Node, Partner, SendError, Service};
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

pub(super) use crate::wrong::{Result, Wrong, guarded, wrong};

impl From<SendError> for Wrong {
    fn from(error: SendError) -> Wrong {
        Wrong(error.to_string())
    }
}

/// What the program's loop waits on for a service.
pub(super) struct Descriptor {
    /// Readable while something waits for the service.
    pub waits: EventFd,
    pub is_readable: bool,
    /// Readable also when something has come for the node.
    pub fd: OwnedFd,
}

/// A service of this process's.
pub(super) struct Registered {
    pub service: Service,
    pub is_group: bool,
    /// How long a send looks for a service that is not connected.
    pub resolve_timeout: Duration,
    pub descriptor: Option<Descriptor>,
}

/// What a sleeping thread waits for.
#[derive(Copy, Clone)]
pub(super) enum Awaited {
    /// Something to receive.
    Event(Service),
    /// Something to receive, or the return of what this service, whose number it is, has lent.
    Request(u16, Service),
    /// A connection.
    Reached(Partner),
    /// The end of a call of this service, whose number it is.
    Reply(u16, Service),
    /// The end of what is being written for it.
    Written(Partner),
}

pub(super) struct Waiter {
    pub awaited: Awaited,
    pub wake: Arc<EventFd>,
    pub is_woken: bool,
}

/// What the progress thread does.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Doing {
    /// Something that ends by itself.
    Naps,
    /// Asleep for as long as a thread of the program's sleeps in a call.
    Rests,
    /// Asleep until something comes for the node.
    Watches,
}

/// All that a process has.
pub(super) struct Live {
    pub node: Node,
    /// What everybody sleeps on. While nobody does, messages come and go without a system call.
    sleeper: Sleeper,
    pub services: HashMap<u16, Registered>,
    pub partners: HashMap<(u16, u16), Partner>,
    pub numbers: Numbers,
    pub buffers: Buffers,
    pub calls: Calls,
    pub waiters: Vec<Waiter>,
    pub doing: Doing,
    pub thread_wake: Arc<EventFd>,
}

impl Live {
    pub fn new(node: Node, sleeper: Sleeper, thread_wake: Arc<EventFd>) -> Live {
        Live {
            node,
            sleeper,
            services: HashMap::new(),
            partners: HashMap::new(),
            numbers: Numbers::default(),
            buffers: Buffers::default(),
            calls: Calls::default(),
            waiters: Vec::new(),
            doing: Doing::Naps,
            thread_wake,
        }
    }

    /// The descriptor to sleep on until something comes for the node. Whoever does is one of the `waiters`, or the thread that `Watches`,
    /// before the lock is given back.
    pub fn epoll(&self) -> RawFd {
        self.sleeper.as_fd().as_raw_fd()
    }

    /// A service of this process's.
    pub fn registered(&self, id: u16) -> Result<&Registered> {
        self.services
            .get(&id)
            .ok_or_else(|| Wrong(format!("{id} is no service of this process: register it first")))
    }

    /// Another service, as one of this process's sees it.
    pub fn partner(&mut self, id: u16, dest: u16) -> Result<Partner> {
        let service = self.registered(id)?.service;
        if let Some(partner) = self.numbers.sender(dest, id).filter(|partner| self.node.is_reached(*partner))
        {
            return Ok(partner);
        }
        if let Some(&partner) = self.partners.get(&(id, dest))
            && self.node.has_partner(partner)
        {
            return Ok(partner);
        }
        let partner = self.node.partner(service, &self.numbers.name(dest))?;
        self.partners.insert((id, dest), partner);
        Ok(partner)
    }

    /// Takes what is no message, request or answer. The program is notified only of what it wants to know.
    pub fn take_notices(&mut self) {
        for registered in self.services.values() {
            while let Some(event) = self.node.next_notice(registered.service) {
                if let Event::Returned { context, fetched, .. } = event {
                    self.calls.returned(context, fetched);
                }
            }
        }
    }

    /// Wakes the threads whose wait is over, makes descriptors readable or not, and lets what comes wake those who still sleep.
    pub fn wake_waiters(&mut self) {
        let (node, calls) = (&self.node, &self.calls);
        for waiter in self.waiters.iter_mut().filter(|waiter| !waiter.is_woken) {
            waiter.is_woken = match waiter.awaited {
                Awaited::Event(service) => node.has_event(service),
                Awaited::Request(id, service) => node.has_event(service) || calls.has_returned(id),
                Awaited::Reply(id, service) => node.has_answer(service) || calls.has_ended(id),
                Awaited::Reached(partner) => node.is_reached(partner) || !node.has_partner(partner),
                Awaited::Written(partner) => !node.is_writing(partner),
            };
            if waiter.is_woken {
                waiter.wake.signal();
            }
        }
        for (id, registered) in &mut self.services {
            let Some(descriptor) = &mut registered.descriptor else { continue };
            let has_event =
                node.has_event(registered.service) || calls.has_ended(*id) || calls.has_returned(*id);
            if has_event != descriptor.is_readable {
                descriptor.is_readable = has_event;
                if has_event { descriptor.waits.signal() } else { descriptor.waits.drain() }
            }
        }
        if self.doing == Doing::Watches || self.waiters.iter().any(|waiter| !waiter.is_woken) {
            self.node.arm();
        }
    }
}
