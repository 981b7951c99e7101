//! What is lent: long items to be read by one partner, and return buffers to be written once by one partner. Everything ends with
//! its lease at the latest.

use crate::content::{LongItem, Part};
use crate::directory::Instance;
use crate::error::SendError;
use crate::event::Event;
use crate::handles::{Partner, Service};
use crate::limits::OFFERS_KEPT_MAX;
use crate::wire::Offer;
use cci::{Access, Connection, Endpoint, RegionHandle, RegisterError, Registration};
use rustc_hash::FxHashMap;
use slotmap::{Key, KeyData, SlotMap, new_key_type};
use std::collections::VecDeque;

new_key_type! {
    struct LeaseKey;
    struct BufferKey;
}

/// The long items of one message.
struct Lease {
    service: Service,
    partner: Partner,
    handles: Vec<RegionHandle>,
    parts: Vec<Part>,
    until_ns: u64,
    context: u64,
    /// The answer that it belongs to, which may have to be sent again when the client has connected again.
    answer: Option<AnswerTo>,
}

/// The request that an answer is for: a client's instance, and the request's number.
pub type AnswerTo = (Instance, u64);

/// The end of a lease.
pub struct Ended {
    pub service: Service,
    pub event: Event,
    /// The answer whose memory belongs to the program again.
    pub answer: Option<AnswerTo>,
}

/// A return buffer of this node.
struct Buffer {
    partner: Partner,
    service: Service,
    handle: RegionHandle,
    part: Part,
    until_ns: u64,
}

/// How long a service lends, nanoseconds.
#[derive(Copy, Clone)]
pub struct Terms {
    pub lease_ns: u64,
    /// The longest time for which the memory of answers stays lent after their client's connection has ended.
    pub disconnected_ns: u64,
}

/// All that this node has lent.
pub struct Lending {
    leases: SlotMap<LeaseKey, Lease>,
    buffers: SlotMap<BufferKey, Buffer>,
    /// The last return buffers that were offered to each partner, which forgets older ones.
    latest: FxHashMap<Partner, VecDeque<BufferKey>>,
    terms: Terms,
    /// The terms of services that have their own.
    terms_of: FxHashMap<Service, Terms>,
    /// No lease ends before this time.
    next_end_ns: u64,
}

impl Lending {
    pub fn new(lease_ns: u64) -> Lending {
        Lending {
            leases: SlotMap::with_key(),
            buffers: SlotMap::with_key(),
            latest: FxHashMap::default(),
            terms: Terms { lease_ns, disconnected_ns: lease_ns },
            terms_of: FxHashMap::default(),
            next_end_ns: u64::MAX,
        }
    }

    /// Sets how long a service lends from now on.
    pub fn set_terms(&mut self, service: Service, terms: Terms) {
        self.terms_of.insert(service, terms);
    }

    fn terms(&self, service: Service) -> Terms {
        self.terms_of.get(&service).copied().unwrap_or(self.terms)
    }

    fn until(&mut self, service: Service, is_connected: bool, now_ns: u64) -> u64 {
        let terms = self.terms(service);
        let lease_ns = if is_connected { terms.lease_ns } else { terms.lease_ns.min(terms.disconnected_ns) };
        let until_ns = now_ns.saturating_add(lease_ns);
        self.next_end_ns = self.next_end_ns.min(until_ns);
        until_ns
    }

    /// Begins a lease. Returns its number, which is never 0. It replaces an earlier one for the same answer.
    pub fn begin(
        &mut self,
        endpoint: &mut Endpoint,
        (service, partner): (Service, Partner),
        (context, answer): (u64, Option<AnswerTo>),
        is_connected: bool,
        now_ns: u64,
    ) -> u64 {
        if answer.is_some() {
            self.leases.retain(|_, lease| {
                let is_same = lease.service == service && lease.answer == answer;
                if is_same {
                    end(endpoint, &lease.handles);
                }
                !is_same
            });
        }
        let until_ns = self.until(service, is_connected, now_ns);
        let handles = Vec::new();
        let lease = Lease { service, partner, handles, parts: Vec::new(), until_ns, context, answer };
        self.leases.insert(lease).data().as_ffi()
    }

    /// Lends a long item, to be read over one connection.
    pub fn lend(
        &mut self,
        endpoint: &mut Endpoint,
        number: u64,
        connection: Connection,
        part: &Part,
    ) -> Result<RegionHandle, SendError> {
        let lease = self.leases.get_mut(key(number)).ok_or(SendError::Unknown)?;
        let handle = register(endpoint, part, Access::READ, Some(connection))?;
        lease.handles.push(handle);
        lease.parts.push(part.clone());
        Ok(handle)
    }

    /// Notes memory that will be lent when its answer can be sent.
    pub fn will_lend(&mut self, number: u64, parts: &[Part]) {
        if let Some(lease) = self.leases.get_mut(key(number)) {
            lease.parts.extend_from_slice(parts);
        }
    }

    /// Lends a return buffer, to be written over one connection.
    pub fn offer(
        &mut self,
        endpoint: &mut Endpoint,
        (service, partner): (Service, Partner),
        connection: Connection,
        part: &Part,
        now_ns: u64,
    ) -> Result<Offer, SendError> {
        let handle = register(endpoint, part, Access::WRITE, Some(connection))?;
        let until_ns = self.until(service, true, now_ns);
        let buffer = Buffer { partner, service, handle, part: part.clone(), until_ns };
        let key = self.buffers.insert(buffer);
        let latest = self.latest.entry(partner).or_default();
        latest.push_back(key);
        if latest.len() > OFFERS_KEPT_MAX
            && let Some(forgotten) = latest.pop_front().and_then(|key| self.buffers.remove(key))
        {
            end(endpoint, &[forgotten.handle]);
        }
        let number = key.data().as_ffi();
        Ok(Offer { number, handle, len_bytes: part.len_bytes() })
    }

    /// Ends a lease whose message was not sent. The lease of an answer goes on without a region, until the answer is sent again
    /// or the lease ends.
    pub fn take_back(&mut self, endpoint: &mut Endpoint, number: u64) {
        let answer = self.leases.get_mut(key(number)).filter(|lease| lease.answer.is_some());
        if let Some(lease) = answer {
            end(endpoint, &lease.handles);
            return lease.handles.clear();
        }
        if let Some(lease) = self.leases.remove(key(number)) {
            end(endpoint, &lease.handles);
        }
    }

    /// Handles a partner's report that it does not need a lease any more. Leases of others are not changed.
    //= wire.md R-RIPC-7
    pub fn fetched(
        &mut self,
        endpoint: &mut Endpoint,
        partner: Partner,
        number: u64,
        fetched: bool,
    ) -> Option<Ended> {
        let key = key(number);
        if self.leases.get(key)?.partner != partner {
            return None;
        }
        let lease = self.leases.remove(key)?;
        end(endpoint, &lease.handles);
        let Lease { service, context, answer, .. } = lease;
        Some(Ended { service, event: Event::Returned { partner, context, fetched }, answer })
    }

    /// Handles a partner's report that it has filled a return buffer. When this returns, nobody can write to the buffer any more.
    /// `None` if it was not offered to this partner, was filled before, or is shorter.
    //= wire.md R-RIPC-3
    pub fn filled(
        &mut self,
        endpoint: &mut Endpoint,
        partner: Partner,
        offer: u64,
        len_bytes: u64,
    ) -> Option<LongItem> {
        let key = BufferKey::from(KeyData::from_ffi(offer));
        if self
            .buffers
            .get(key)
            .is_none_or(|buffer| buffer.partner != partner || buffer.part.len_bytes() < len_bytes)
        {
            return None;
        }
        let buffer = self.buffers.remove(key)?;
        end(endpoint, &[buffer.handle]);
        Some(LongItem::memory(buffer.part.memory, buffer.part.range.start, len_bytes as usize))
    }

    /// Ends all leases of a partner whose connection has ended. The memory of answers to it stays lent for a while, since the
    /// client may ask for them again.
    pub fn end_of_partner(
        &mut self,
        endpoint: &mut Endpoint,
        partner: Partner,
        now_ns: u64,
        mut raise: impl FnMut(Service, Event),
    ) {
        let Lending { leases, terms, terms_of, next_end_ns, .. } = self;
        leases.retain(|_, lease| {
            if lease.partner != partner {
                return true;
            }
            end(endpoint, &lease.handles);
            lease.handles.clear();
            if lease.answer.is_none() {
                raise(lease.service, returned(lease));
                return false;
            }
            let terms = terms_of.get(&lease.service).unwrap_or(terms);
            lease.until_ns = lease.until_ns.min(now_ns.saturating_add(terms.disconnected_ns));
            *next_end_ns = (*next_end_ns).min(lease.until_ns);
            true
        });
        self.end_buffers(endpoint, |buffer| buffer.partner == partner);
    }

    /// Ends all leases of a service that has ended. Nobody is notified.
    pub fn end_of_service(&mut self, endpoint: &mut Endpoint, service: Service) {
        self.leases.retain(|_, lease| {
            let ends = lease.service == service;
            if ends {
                end(endpoint, &lease.handles);
            }
            !ends
        });
        self.end_buffers(endpoint, |buffer| buffer.service == service);
        self.terms_of.remove(&service);
    }

    fn end_buffers(&mut self, endpoint: &mut Endpoint, is_meant: impl Fn(&Buffer) -> bool) {
        self.buffers.retain(|_, buffer| {
            let ends = is_meant(buffer);
            if ends {
                end(endpoint, &[buffer.handle]);
            }
            !ends
        });
        let buffers = &self.buffers;
        self.latest.retain(|_, latest| latest.iter().any(|key| buffers.contains_key(*key)));
    }

    /// Whether a partner may read or write a byte of this memory.
    pub fn is_lent(&self, part: &Part) -> bool {
        self.leases.values().any(|lease| lease.parts.iter().any(|lent| lent.overlaps(part)))
            || self.buffers.values().any(|buffer| buffer.part.overlaps(part))
    }

    /// Ends the return buffers that contain a byte of this memory.
    pub fn take_back_buffers(&mut self, endpoint: &mut Endpoint, part: &Part) {
        self.buffers.retain(|_, buffer| {
            let ends = buffer.part.overlaps(part);
            if ends {
                end(endpoint, &[buffer.handle]);
            }
            !ends
        });
    }

    /// Ends the leases that are due.
    pub fn end_due(&mut self, endpoint: &mut Endpoint, now_ns: u64, mut raise: impl FnMut(Ended)) {
        if now_ns < self.next_end_ns {
            return;
        }
        let mut next_end_ns = u64::MAX;
        let mut stays = |until_ns: u64| {
            if until_ns > now_ns {
                next_end_ns = next_end_ns.min(until_ns);
            }
            until_ns > now_ns
        };
        self.leases.retain(|_, lease| {
            let stays = stays(lease.until_ns);
            if !stays {
                end(endpoint, &lease.handles);
                raise(Ended { service: lease.service, event: returned(lease), answer: lease.answer });
            }
            stays
        });
        self.buffers.retain(|_, buffer| {
            let stays = stays(buffer.until_ns);
            if !stays {
                end(endpoint, &[buffer.handle]);
            }
            stays
        });
        self.next_end_ns = next_end_ns;
    }

    /// When the next lease ends.
    pub fn next_end_ns(&self) -> u64 {
        self.next_end_ns
    }

    /// How many leases and return buffers there are.
    pub fn len(&self) -> (usize, usize) {
        (self.leases.len(), self.buffers.len())
    }
}

fn returned(lease: &Lease) -> Event {
    Event::Returned { partner: lease.partner, context: lease.context, fetched: false }
}

fn key(number: u64) -> LeaseKey {
    LeaseKey::from(KeyData::from_ffi(number))
}

fn end(endpoint: &mut Endpoint, handles: &[RegionHandle]) {
    for handle in handles {
        // It may have ended with its connection.
        let _ended_before = endpoint.deregister(handle);
    }
}

/// Registers a part of memory, for one connection or for this side alone.
pub fn register(
    endpoint: &mut Endpoint,
    part: &Part,
    access: Access,
    only: Option<Connection>,
) -> Result<RegionHandle, SendError> {
    let registration = Registration { range: Some(part.range.clone()), access, only };
    endpoint.register(&part.memory, registration).map_err(|error| match error {
        RegisterError::Length | RegisterError::Range { .. } => SendError::Range,
        RegisterError::UnknownConnection => SendError::Gone,
        RegisterError::TooMany => SendError::WouldBlock,
        error => SendError::System(error.to_string()),
    })
}
