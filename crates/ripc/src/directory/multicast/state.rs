//! The state of one directory in the group. Time and datagrams go in; datagrams, news and the ends of claims come out.

use super::asked::Names;
use super::claims::Claims;
use super::limits::{HEARD_MAX, HEARD_NS};
use super::outbox::{Outbox, Source, Time, To};
use super::rates::Rates;
use super::wire::{Body, Packet, first_that_fit};
use crate::directory::{Instance, Record};
use crate::name::ServiceName;
use std::collections::HashMap;

/// The counters of a multicast directory.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MulticastCounters {
    /// Malformed datagrams, which were ignored.
    pub malformed: u64,
    /// Answers without a question, which were ignored.
    pub unasked: u64,
    /// Questions and probes about services of this side.
    pub asked: u64,
    /// Of these, those without an answer, since too many came.
    pub not_answered: u64,
}

/// The state of a directory.
pub(super) struct State {
    claims: Claims,
    names: Names,
    /// Names that others claim or announce, and when they did so last.
    heard: HashMap<ServiceName, Time>,
    rates: Rates,
    pub counters: MulticastCounters,
    pub out: Outbox,
}

impl State {
    /// `sender` and `seed` are random.
    pub fn new(sender: u64, seed: u64) -> State {
        State {
            claims: Claims::default(),
            names: Names::default(),
            heard: HashMap::new(),
            rates: Rates::new(),
            counters: MulticastCounters::default(),
            out: Outbox::new(sender, seed),
        }
    }

    /// Begins a claim. `number` identifies it when it has ended.
    pub fn claim(&mut self, now: Time, number: u64, record: Record) {
        let was_heard =
            self.heard.get(&record.service).is_some_and(|heard| now.saturating_sub(*heard) < HEARD_NS);
        self.claims.claim(now, number, record, was_heard, &mut self.out);
    }

    pub fn withdraw(&mut self, service: &ServiceName, instance: Instance) {
        self.claims.withdraw(service, instance, &mut self.out);
    }

    pub fn withdraw_all(&mut self) {
        self.claims.withdraw_all(&mut self.out);
    }

    pub fn ask(&mut self, now: Time, service: &ServiceName) {
        let own = self.claims.of(service);
        self.names.ask(now, service, own, &mut self.out);
    }

    /// Handles a datagram, whatever it contains.
    pub fn on_datagram(&mut self, now: Time, source: Source, bytes: &[u8]) {
        let Some(packet) = Packet::read(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        if packet.sender == self.out.sender() {
            return;
        }
        match packet.body {
            Body::Question(service) => self.on_question(now, source, packet.nonce, &service),
            Body::Answer(records) => {
                let is_asked = self.names.on_answer(now, packet.nonce, &records, &mut self.out)
                    || self.claims.on_answer(packet.nonce, &records, &mut self.out);
                self.counters.unasked += u64::from(!is_asked);
            }
            Body::Probe(record) => {
                self.hear(now, &record);
                let (rates, out) = (&mut self.rates, &mut self.out);
                let is_permitted = self.claims.on_probe(now, source, packet.nonce, &record, rates, out);
                self.counters.not_answered += u64::from(!is_permitted);
            }
            Body::Announcement(records) => {
                for record in &records {
                    self.hear(now, record);
                    self.claims.on_announcement(now, record, &mut self.out);
                    self.names.on_announcement(now, record, &mut self.out);
                }
            }
            Body::Goodbye(records) => {
                for record in &records {
                    self.heard.remove(&record.service);
                    self.names.on_goodbye(now, record, &mut self.out);
                }
            }
        }
    }

    //= wire.md R-DIR-4
    fn on_question(&mut self, now: Time, source: Source, nonce: u64, service: &ServiceName) {
        let mut records = self.claims.of(service);
        if records.is_empty() {
            return;
        }
        self.counters.asked += 1;
        if !self.rates.permit(now, source.address.ip()) {
            self.counters.not_answered += 1;
            return;
        }
        // They are not always the same ones, if there are more than an answer has space for.
        let first = self.out.spread(records.len() as u64) as usize;
        records.rotate_left(first);
        let records = first_that_fit(&records).to_vec();
        self.out.send(To::One(source), nonce, Body::Answer(records));
    }

    fn hear(&mut self, now: Time, record: &Record) {
        if self.heard.len() >= HEARD_MAX && !self.heard.contains_key(&record.service) {
            self.heard.retain(|_, heard| now.saturating_sub(*heard) < HEARD_NS);
            if self.heard.len() >= HEARD_MAX {
                return;
            }
        }
        self.heard.insert(record.service.clone(), now);
    }

    /// Does what is due. The caller must pass datagrams that have come before.
    pub fn on_time(&mut self, now: Time) {
        self.claims.on_time(now, &mut self.out);
        self.names.on_time(now, |service| self.claims.of(service), &mut self.out);
    }

    /// Whether answers are still expected.
    pub fn is_asking(&self) -> bool {
        self.names.is_asking()
    }

    /// When something is due next.
    pub fn next(&self) -> Option<Time> {
        self.claims.next().into_iter().chain(self.names.next()).min()
    }
}
