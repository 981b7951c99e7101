//! Partners: pairs of a service of this node and a service elsewhere, and the connections between them.

use crate::content::Kept;
use crate::directory::{Instance, Record};
use crate::error::ReachError;
use crate::event::Event;
use crate::handles::{Partner, Service};
use crate::limits::{OFFERS_KEPT_MAX, PARTNERS_MAX};
use crate::name::ServiceName;
use crate::wire::{Kind, Offer};
use cci::Connection;
use rustc_hash::FxHashMap;
use slotmap::SlotMap;
use std::collections::VecDeque;

/// The state of a partner.
pub struct State {
    pub service: Service,
    pub name: ServiceName,
    /// The only place where it is, for a member of a group. Others are looked for by name.
    pub pinned: Option<Record>,
    /// Open connections with it. Messages are sent on the first.
    pub connections: Vec<Connection>,
    /// Its instance at the other end of the first connection.
    pub instance: Option<Instance>,
    /// The instance that is said to have ended.
    doubted: Option<Instance>,
    /// Whether its name leads to it. A process that only claims to have a name gets answers, and nothing else.
    pub is_named: bool,
    pub search: Option<Search>,
    /// What waits for a connection, or for space on it.
    pub waiting: VecDeque<Kept>,
    /// Its return buffers, the newest last.
    pub offers: VecDeque<Offer>,
    /// Messages from it that wait to be received.
    pub queued: usize,
    /// Messages from it whose long items are being fetched.
    pub fetching: usize,
    /// Whether it has reported that it moved. Nothing more is sent there then.
    pub has_moved: bool,
}

/// A search for a partner.
#[derive(Debug)]
pub struct Search {
    pub since_ns: u64,
    /// When to ask the directory again; `None` while an answer or a connection is awaited.
    pub ask_at_ns: Option<u64>,
    pub pause_ns: u64,
    /// What prevents the connection, as far as is known.
    pub reach_error: Option<ReachError>,
    /// An instance where it was not found, which is ignored for now.
    pub avoid: Option<Instance>,
    /// What is being dialled.
    pub dialling: Option<(Instance, String)>,
}

impl State {
    fn new(service: Service, name: ServiceName) -> State {
        State {
            service,
            name,
            pinned: None,
            connections: Vec::new(),
            instance: None,
            doubted: None,
            is_named: false,
            search: None,
            waiting: VecDeque::new(),
            offers: VecDeque::new(),
            queued: 0,
            fetching: 0,
            has_moved: false,
        }
    }

    /// The connection for messages to it.
    #[inline]
    pub fn connection(&self) -> Option<Connection> {
        if self.has_moved { None } else { self.connections.first().copied() }
    }

    /// Whether this instance, which has connected, is the known one, or none is connected.
    pub fn may_be(&self, instance: Instance) -> bool {
        self.connections.is_empty() || self.instance == Some(instance)
    }

    /// Keeps a return buffer of it.
    pub fn keep_offer(&mut self, offer: Offer) {
        if self.offers.len() == OFFERS_KEPT_MAX {
            self.offers.pop_front();
        }
        self.offers.push_back(offer);
    }

    /// Takes its newest return buffer that is large enough.
    //= wire.md R-RIPC-4
    pub fn take_offer(&mut self, len_bytes: u64) -> Option<Offer> {
        let index = self.offers.iter().rposition(|offer| offer.len_bytes >= len_bytes)?;
        self.offers.remove(index)
    }
}

/// All partners of a node.
#[derive(Default)]
pub struct Partners {
    states: SlotMap<Partner, State>,
    by_connection: FxHashMap<u64, Partner>,
    by_name: FxHashMap<(Service, ServiceName, Option<Instance>), Partner>,
}

impl Partners {
    #[inline]
    pub fn get(&self, partner: Partner) -> Option<&State> {
        self.states.get(partner)
    }

    #[inline]
    pub fn get_mut(&mut self, partner: Partner) -> Option<&mut State> {
        self.states.get_mut(partner)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Partner, &State)> {
        self.states.iter()
    }

    /// Connections with other instances of a service than this one, each once.
    pub fn elsewhere(&mut self, name: &ServiceName, instance: Instance) -> impl Iterator<Item = Connection> {
        let is_other = move |state: &&mut State| {
            state.is_named
                && state.pinned.is_none()
                && state.name == *name
                && state.instance.is_some_and(|of| of != instance)
        };
        self.states.values_mut().filter(is_other).filter_map(|state| {
            let connection = state.connections.first().copied().filter(|_| state.doubted != state.instance);
            state.doubted = state.instance;
            connection
        })
    }

    #[inline]
    pub fn of(&self, connection: Connection) -> Option<Partner> {
        self.by_connection.get(&connection.to_bits()).copied()
    }

    /// The partner of this name, created if there was none. `None` if there are as many as there may be.
    pub fn named(
        &mut self,
        service: Service,
        name: &ServiceName,
        pinned: Option<&Record>,
    ) -> Option<Partner> {
        let key = (service, name.clone(), pinned.map(|record| record.instance));
        if let Some(&partner) = self.by_name.get(&key) {
            return Some(partner);
        }
        let partner = self.insert(service, name.clone())?;
        let state = &mut self.states[partner];
        (state.pinned, state.is_named) = (pinned.cloned(), true);
        self.by_name.insert(key, partner);
        Some(partner)
    }

    /// Makes a partner that only answers reach. `None` if there are as many as there may be.
    pub fn nameless(&mut self, service: Service, name: ServiceName) -> Option<Partner> {
        self.insert(service, name)
    }

    fn insert(&mut self, service: Service, name: ServiceName) -> Option<Partner> {
        (self.states.len() < PARTNERS_MAX).then(|| self.states.insert(State::new(service, name)))
    }

    /// Notes that a connection with a partner has opened.
    pub fn connected(&mut self, partner: Partner, connection: Connection, instance: Instance, dialled: bool) {
        let Some(state) = self.states.get_mut(partner) else { return };
        // A connection that this side has dialled leads to the place that the directory gives.
        if dialled || state.connections.is_empty() {
            state.instance = Some(instance);
            state.connections.insert(0, connection);
        } else {
            state.connections.push(connection);
        }
        state.has_moved = false;
        self.by_connection.insert(connection.to_bits(), partner);
    }

    /// Notes that a connection has ended. Returns its partner, and whether it was the last one.
    pub fn disconnected(&mut self, connection: Connection) -> Option<(Partner, bool)> {
        let partner = self.by_connection.remove(&connection.to_bits())?;
        let state = self.states.get_mut(partner)?;
        state.connections.retain(|&open| open != connection);
        let was_last = state.connections.is_empty();
        if was_last {
            state.offers.clear();
            state.has_moved = false;
        }
        Some((partner, was_last))
    }

    /// Removes an answer whose memory was returned from what waits.
    pub fn forget_answer(&mut self, returned: &Event, number: u64) {
        let Event::Returned { partner, .. } = returned else { return };
        if let Some(state) = self.states.get_mut(*partner) {
            state.waiting.retain(|frame| frame.head().kind != Kind::Answer || frame.head().number != number);
        }
    }

    /// Forgets a partner, and returns its connections, which are to be closed.
    pub fn remove(&mut self, partner: Partner) -> Vec<Connection> {
        let Some(state) = self.states.remove(partner) else { return Vec::new() };
        for connection in &state.connections {
            self.by_connection.remove(&connection.to_bits());
        }
        if state.is_named {
            let pinned = state.pinned.as_ref().map(|record| record.instance);
            self.by_name.remove(&(state.service, state.name, pinned));
        }
        state.connections
    }
}
