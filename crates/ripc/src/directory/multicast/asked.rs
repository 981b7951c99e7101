//! The names that were asked for: questions, answers, and what is remembered of them.

use super::limits::{CACHED_NS, FRESH_NS, QUESTIONS_NS, ROUND_NS, SPREAD_NS, WATCHED_NS};
use super::outbox::{Outbox, Time, To};
use super::wire::Body;
use crate::directory::limits::NAMES_MAX;
use crate::directory::{Kind, News, Record};
use crate::limits::MEMBERS_MAX;
use crate::name::ServiceName;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// A question that is sent several times, and its result.
struct Round {
    nonce: u64,
    began: Time,
    sent: usize,
    found: Vec<Record>,
    /// Whether an answer was reported.
    is_answered: bool,
}

#[derive(Default)]
struct Asked {
    /// The last report. It is empty if nobody was found.
    records: Vec<Record>,
    confirmed: Time,
    /// When the name was last asked for.
    used: Time,
    round: Option<Round>,
    /// When the next round begins, because something may have changed.
    hint: Option<Time>,
}

/// The names that were asked for.
#[derive(Default)]
pub(super) struct Names {
    asked: FxHashMap<ServiceName, Asked>,
    /// Those of them that have a round or a hint.
    active: BTreeSet<ServiceName>,
    /// Rounds by their nonces.
    rounds: FxHashMap<u64, ServiceName>,
}

/// Chooses the owner of a name: the service with the lowest instance, otherwise all members.
//= wire.md R-DIR-5
fn choose(known: &[Record], found: &[Record]) -> Vec<Record> {
    let services = found.iter().filter(|record| record.kind == Kind::Service);
    if let Some(one) = services.min_by_key(|record| record.instance) {
        return vec![one.clone()];
    }
    let is_new =
        |record: &&Record| record.kind == Kind::Member && found.iter().all(|f| f.instance != record.instance);
    found.iter().chain(known.iter().filter(is_new)).take(MEMBERS_MAX).cloned().collect()
}

impl Round {
    fn next(&self) -> Time {
        let is_settled = self.found.iter().any(|record| record.kind == Kind::Service);
        let question = QUESTIONS_NS.get(self.sent).filter(|_| !is_settled);
        self.began + question.copied().unwrap_or(ROUND_NS)
    }
}

impl Names {
    /// Asks for a name. `own` are the services of this side that have it.
    pub fn ask(&mut self, now: Time, service: &ServiceName, own: Vec<Record>, out: &mut Outbox) {
        if own.iter().any(|record| record.kind == Kind::Service) {
            return out.news.push(News::Found { service: service.clone(), records: own });
        }
        if self.asked.len() >= NAMES_MAX && !self.asked.contains_key(service) {
            self.forget_oldest();
        }
        let asked = self.asked.entry(service.clone()).or_default();
        asked.used = now;
        let age_ns = now.saturating_sub(asked.confirmed);
        let is_known = !asked.records.is_empty() && age_ns < CACHED_NS;
        if is_known {
            out.news.push(News::Found { service: service.clone(), records: asked.records.clone() });
        }
        if asked.round.is_none() && !(is_known && age_ns < FRESH_NS) {
            self.begin(now, service, own, is_known, out);
        }
    }

    fn begin(
        &mut self,
        now: Time,
        service: &ServiceName,
        own: Vec<Record>,
        is_answered: bool,
        out: &mut Outbox,
    ) {
        let Some(asked) = self.asked.get_mut(service) else { return };
        let nonce = out.nonce();
        asked.hint = None;
        asked.round = Some(Round { nonce, began: now, sent: 1, found: own, is_answered });
        self.rounds.insert(nonce, service.clone());
        self.active.insert(service.clone());
        out.send(To::Group, nonce, Body::Question(service.clone()));
    }

    /// Forgets the eighth of all names that were asked for longest ago.
    fn forget_oldest(&mut self) {
        let mut used: Vec<Time> = self.asked.values().map(|asked| asked.used).collect();
        let (_, &mut limit, _) = used.select_nth_unstable(NAMES_MAX / 8);
        let oldest = self.asked.iter().filter(|(_, asked)| asked.used <= limit).map(|(name, _)| name.clone());
        for name in oldest.take(NAMES_MAX / 8).collect::<Vec<_>>() {
            self.forget(&name);
        }
    }

    fn forget(&mut self, service: &ServiceName) {
        self.active.remove(service);
        if let Some(round) = self.asked.remove(service).and_then(|asked| asked.round) {
            self.rounds.remove(&round.nonce);
        }
    }

    /// Handles an answer. Returns false if no question had this nonce.
    //= wire.md R-DIR-4
    pub fn on_answer(&mut self, now: Time, nonce: u64, records: &[Record], out: &mut Outbox) -> bool {
        let Some(service) = self.rounds.get(&nonce) else { return false };
        let Some(asked) = self.asked.get_mut(service) else { return false };
        let Some(round) = &mut asked.round else { return false };
        for record in records.iter().filter(|record| record.service == *service) {
            let known = round.found.iter_mut().find(|found| found.instance == record.instance);
            if let Some(known) = known {
                *known = record.clone();
            } else if round.found.len() < MEMBERS_MAX {
                round.found.push(record.clone());
            }
        }
        if round.found.is_empty() {
            return true;
        }
        let chosen = choose(&asked.records, &round.found);
        asked.confirmed = now;
        if chosen != asked.records || !round.is_answered {
            round.is_answered = true;
            asked.records = chosen.clone();
            out.news.push(News::Found { service: service.clone(), records: chosen });
        }
        true
    }

    /// Handles an announcement that a service has a name. If that is new, the name is asked for.
    //= wire.md R-DIR-10
    pub fn on_announcement(&mut self, now: Time, record: &Record, out: &mut Outbox) {
        self.hint(now, &record.service, |asked| !asked.records.contains(record), out);
    }

    /// Handles a goodbye: a service does not have a name any more. If it was thought to have the name, the name is asked for.
    pub fn on_goodbye(&mut self, now: Time, record: &Record, out: &mut Outbox) {
        let is_known = |asked: &Asked| asked.records.iter().any(|known| known.instance == record.instance);
        self.hint(now, &record.service, is_known, out);
    }

    fn hint(&mut self, now: Time, service: &ServiceName, matters: impl Fn(&Asked) -> bool, out: &mut Outbox) {
        let Some(asked) = self.asked.get_mut(service) else { return };
        if now.saturating_sub(asked.used) > WATCHED_NS {
            return self.forget(service);
        }
        if asked.hint.is_none() && matters(asked) {
            asked.hint = Some(now + out.spread(SPREAD_NS));
            self.active.insert(service.clone());
        }
    }

    /// `own` gives the services of this side that have a name.
    pub fn on_time(&mut self, now: Time, own: impl Fn(&ServiceName) -> Vec<Record>, out: &mut Outbox) {
        if self.next().is_none_or(|next| next > now) {
            return;
        }
        let active: Vec<ServiceName> = self.active.iter().cloned().collect();
        for service in active {
            let Some(asked) = self.asked.get_mut(&service) else { continue };
            match &mut asked.round {
                Some(round) if round.next() > now => {}
                Some(round) if now < round.began + ROUND_NS => {
                    round.sent += 1;
                    out.send(To::Group, round.nonce, Body::Question(service));
                }
                Some(_) => self.end(&service, out),
                None if asked.hint.is_some_and(|hint| hint <= now) => {
                    self.begin(now, &service, own(&service), true, out);
                }
                None => {}
            }
        }
    }

    fn end(&mut self, service: &ServiceName, out: &mut Outbox) {
        let Some(asked) = self.asked.get_mut(service) else { return };
        let Some(round) = asked.round.take() else { return };
        self.rounds.remove(&round.nonce);
        if asked.hint.is_none() {
            self.active.remove(service);
        }
        let service = service.clone();
        if round.found.is_empty() {
            asked.records.clear();
            out.news.push(match &out.fault {
                Some(fault) => News::Failed { service, reason: fault.clone() },
                None => News::Absent { service },
            });
            return;
        }
        let chosen = choose(&[], &round.found);
        if chosen != asked.records || !round.is_answered {
            asked.records = chosen.clone();
            out.news.push(News::Found { service, records: chosen });
        }
    }

    /// Whether answers are still expected.
    pub fn is_asking(&self) -> bool {
        !self.rounds.is_empty()
    }

    pub fn next(&self) -> Option<Time> {
        let active = self.active.iter().filter_map(|service| self.asked.get(service));
        active.filter_map(|asked| asked.round.as_ref().map(Round::next).or(asked.hint)).min()
    }
}
