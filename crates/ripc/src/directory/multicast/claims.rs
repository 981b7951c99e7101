//! The services of this side: how their names are claimed, announced, defended and lost.

use super::limits::{
    ANNOUNCE_AGAIN_NS, ANNOUNCE_NS, CONTEST_NS, MS, PROBE_NS, PROBES, PROBES_OF_HEARD, SPREAD_NS,
};
use super::outbox::{Outbox, Refusal, Source, Time, To};
use super::rates::Rates;
use super::wire::{Body, first_that_fit};
use crate::directory::{Instance, Kind, News, Record};
use crate::limits::SERVICES_MAX;
use crate::name::ServiceName;
use rustc_hash::FxHashMap;

/// How many announcements follow quickly after a claim.
const QUICK: u32 = 3;

/// A claim that nobody has objected to yet.
struct Probing {
    number: u64,
    record: Record,
    nonce: u64,
    probes_left: u32,
    next: Time,
}

/// A service of this side.
struct Owned {
    record: Record,
    /// How many quick announcements are left.
    quick_left: u32,
    announced: Time,
    next_announcement: Time,
    /// The question to a service that may have a better right, and how long it waits.
    contest: Option<(u64, Time)>,
}

/// The services of this side, and the claims that are being made.
#[derive(Default)]
pub(super) struct Claims {
    probing: Vec<Probing>,
    owned: FxHashMap<ServiceName, Vec<Owned>>,
    owned_count: usize,
}

/// Whether two records exclude each other.
//= wire.md R-DIR-6
fn conflict(one: &Record, other: &Record) -> bool {
    one.service == other.service
        && one.instance != other.instance
        && !(one.kind == Kind::Member && other.kind == Kind::Member)
}

impl Claims {
    /// The services of this side that have a name.
    pub fn of(&self, service: &ServiceName) -> Vec<Record> {
        let owned = self.owned.get(service).into_iter().flatten();
        owned.map(|owned| owned.record.clone()).collect()
    }

    /// Begins a claim. `was_heard` says whether another process had the name recently.
    pub fn claim(&mut self, now: Time, number: u64, record: Record, was_heard: bool, out: &mut Outbox) {
        let mut own = self.owned.get(&record.service).into_iter().flatten().map(|owned| &owned.record);
        let mut claimed = self.probing.iter().map(|probing| &probing.record);
        let refusal = if let Some(other) = own.find(|own| conflict(own, &record)) {
            Some(Refusal::Taken(other.to_string()))
        } else if let Some(other) = claimed.find(|other| conflict(other, &record)) {
            Some(Refusal::Taken(other.to_string()))
        } else if self.owned_count + self.probing.len() >= SERVICES_MAX {
            Some(Refusal::TooMany)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return out.verdicts.push((number, Err(refusal)));
        }
        let probes_left = if was_heard { PROBES_OF_HEARD } else { PROBES };
        let (nonce, next) = (out.nonce(), now + out.spread(SPREAD_NS));
        self.probing.push(Probing { number, record, nonce, probes_left, next });
    }

    /// Removes a service.
    pub fn withdraw(&mut self, service: &ServiceName, instance: Instance, out: &mut Outbox) {
        if let Some(record) = self.remove(service, instance) {
            out.send(To::Group, 0, Body::Goodbye(vec![record]));
        }
    }

    /// Removes all services.
    pub fn withdraw_all(&mut self, out: &mut Outbox) {
        self.owned_count = 0;
        let owned = std::mem::take(&mut self.owned);
        let records: Vec<Record> = owned.into_values().flatten().map(|owned| owned.record).collect();
        send_all(&records, Body::Goodbye, out);
    }

    fn remove(&mut self, service: &ServiceName, instance: Instance) -> Option<Record> {
        let owned = self.owned.get_mut(service)?;
        let index = owned.iter().position(|owned| owned.record.instance == instance)?;
        let record = owned.swap_remove(index).record;
        if owned.is_empty() {
            self.owned.remove(service);
        }
        self.owned_count -= 1;
        Some(record)
    }

    /// Handles a claim of another process. Returns false if an answer was due and is not permitted now.
    //= wire.md R-DIR-7
    pub fn on_probe(
        &mut self,
        now: Time,
        source: Source,
        nonce: u64,
        probe: &Record,
        rates: &mut Rates,
        out: &mut Outbox,
    ) -> bool {
        let mut owned = self.owned.get(&probe.service).into_iter().flatten().map(|owned| &owned.record);
        let mut objection = owned.find(|owned| conflict(owned, probe)).cloned();
        if let Some(index) = self.probing.iter().position(|probing| conflict(&probing.record, probe)) {
            if let Some(probing) = self.probing.get(index)
                && probing.record.instance < probe.instance
            {
                objection.get_or_insert_with(|| probing.record.clone());
            } else {
                let lost = self.probing.swap_remove(index);
                out.verdicts.push((lost.number, Err(Refusal::Taken(probe.to_string()))));
            }
        }
        let Some(objection) = objection else { return true };
        let permitted = rates.permit(now, source.address.ip());
        if permitted {
            out.send(To::One(source), nonce, Body::Answer(vec![objection]));
        }
        permitted
    }

    /// Handles an answer to a question or probe of this side. Returns false if none had this nonce.
    pub fn on_answer(&mut self, nonce: u64, records: &[Record], out: &mut Outbox) -> bool {
        if let Some(index) = self.probing.iter().position(|probing| probing.nonce == nonce) {
            let objects = |record: &&Record| {
                self.probing.get(index).is_some_and(|probing| conflict(&probing.record, record))
            };
            if let Some(objection) = records.iter().find(objects) {
                let lost = self.probing.swap_remove(index);
                out.verdicts.push((lost.number, Err(Refusal::Taken(objection.to_string()))));
            }
            return true;
        }
        let Some(service) = records.first().map(|record| record.service.clone()) else { return false };
        let mut owned = self.owned.get(&service).into_iter().flatten();
        let is_it = |owned: &&Owned| owned.contest.is_some_and(|contest| contest.0 == nonce);
        let Some(contested) = owned.find(is_it).map(|owned| owned.record.clone()) else { return false };
        //= wire.md R-DIR-8
        let better = |record: &&Record| conflict(record, &contested) && record.instance < contested.instance;
        if let Some(winner) = records.iter().find(better) {
            self.withdraw(&service, contested.instance, out);
            out.news.push(News::Lost { service, to: winner.to_string() });
        }
        true
    }

    /// Handles an announcement that a service has a name.
    //= wire.md R-DIR-8
    pub fn on_announcement(&mut self, now: Time, record: &Record, out: &mut Outbox) {
        let owned = self.owned.get_mut(&record.service).into_iter().flatten();
        for owned in owned.filter(|owned| conflict(&owned.record, record)) {
            if owned.record.instance < record.instance {
                // They are announced so that others see which has the better right.
                let soon = (owned.announced + ANNOUNCE_AGAIN_NS).max(now + out.spread(SPREAD_NS));
                owned.next_announcement = owned.next_announcement.min(soon);
            } else if owned.contest.is_none_or(|(_, until)| until <= now) {
                let nonce = out.nonce();
                owned.contest = Some((nonce, now + CONTEST_NS));
                out.send(To::Group, nonce, Body::Question(record.service.clone()));
            }
        }
    }

    pub fn on_time(&mut self, now: Time, out: &mut Outbox) {
        for index in (0..self.probing.len()).rev() {
            let Some(probing) = self.probing.get_mut(index).filter(|probing| probing.next <= now) else {
                continue;
            };
            if probing.probes_left > 0 {
                probing.probes_left -= 1;
                probing.next = now + PROBE_NS + out.spread(PROBE_NS / 5);
                out.send(To::Group, probing.nonce, Body::Probe(probing.record.clone()));
                continue;
            }
            let done = self.probing.swap_remove(index);
            if let Some(fault) = &out.fault {
                out.verdicts.push((done.number, Err(Refusal::Failed(fault.clone()))));
                continue;
            }
            out.verdicts.push((done.number, Ok(())));
            self.owned_count += 1;
            self.owned.entry(done.record.service.clone()).or_default().push(Owned {
                record: done.record,
                quick_left: QUICK,
                announced: 0,
                next_announcement: now,
                contest: None,
            });
        }
        let mut due = Vec::new();
        for owned in self.owned.values_mut().flatten().filter(|owned| owned.next_announcement <= now) {
            due.push(owned.record.clone());
            owned.announced = now;
            owned.quick_left = owned.quick_left.saturating_sub(1);
            let pause_ns = if owned.quick_left > 0 {
                100 * MS
            } else {
                ANNOUNCE_NS - ANNOUNCE_NS / 4 + out.spread(ANNOUNCE_NS / 4)
            };
            owned.next_announcement = now + pause_ns;
        }
        send_all(&due, Body::Announcement, out);
    }

    pub fn next(&self) -> Option<Time> {
        let probes = self.probing.iter().map(|probing| probing.next);
        let announcements = self.owned.values().flatten().map(|owned| owned.next_announcement);
        probes.chain(announcements).min()
    }
}

/// Sends records to the group, in as many datagrams as they take.
fn send_all(mut records: &[Record], body: fn(Vec<Record>) -> Body, out: &mut Outbox) {
    while !records.is_empty() {
        let first = first_that_fit(records);
        out.send(To::Group, 0, body(first.to_vec()));
        records = records.get(first.len()..).unwrap_or_default();
    }
}
