//! Directories over a simulated network, in virtual time.

use super::limits::{ANNOUNCE_NS, CACHED_NS, MS, ROUND_NS};
use super::outbox::{Outbox, Refusal, Source, Time, To};
use super::state::State;
use super::wire::{Body, Packet};
use crate::directory::{Instance, Kind, News, Record};
use crate::name::ServiceName;
use std::net::SocketAddr;

/// A datagram on its way.
struct Flying {
    arrives: Time,
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

struct Network {
    now: Time,
    hosts: Vec<State>,
    /// A host of another part hears nothing. One number for each host.
    parts: Vec<u32>,
    flying: Vec<Flying>,
    loss_percent: u64,
    random: Outbox,
    /// All that was claimed: host, number, end.
    verdicts: Vec<(usize, u64, Result<(), Refusal>)>,
    news: Vec<(usize, News)>,
    sent: Vec<(usize, To, Packet)>,
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, (host >> 8) as u8, host as u8], 9))
}

impl Network {
    fn new(hosts: usize, seed: u64) -> Network {
        let mut random = Outbox::new(0, seed);
        Network {
            now: 1_000 * MS,
            hosts: (0..hosts).map(|_| State::new(random.nonce(), random.nonce())).collect(),
            parts: vec![0; hosts],
            flying: Vec::new(),
            loss_percent: 0,
            random,
            verdicts: Vec::new(),
            news: Vec::new(),
            sent: Vec::new(),
        }
    }

    fn flush(&mut self) {
        for from in 0..self.hosts.len() {
            let out = &mut self.hosts[from].out;
            self.verdicts.extend(std::mem::take(&mut out.verdicts).into_iter().map(|(n, v)| (from, n, v)));
            self.news.extend(std::mem::take(&mut out.news).into_iter().map(|news| (from, news)));
            for (to, packet) in std::mem::take(&mut out.packets) {
                let bytes = packet.write();
                let hosts: Vec<usize> = match to {
                    To::Group => (0..self.hosts.len()).collect(),
                    To::One(source) => {
                        (0..self.hosts.len()).filter(|h| address(*h) == source.address).collect()
                    }
                };
                self.sent.push((from, to, packet));
                for to in hosts.into_iter().filter(|to| self.parts[*to] == self.parts[from]) {
                    if self.random.spread(100) >= self.loss_percent {
                        let arrives = self.now + self.random.spread(2 * MS);
                        self.flying.push(Flying { arrives, from, to, bytes: bytes.clone() });
                    }
                }
            }
        }
    }

    /// Lets this time pass.
    fn run(&mut self, ns: u64) {
        let end = self.now + ns;
        loop {
            self.flush();
            let arrival = self.flying.iter().map(|flying| flying.arrives).min();
            let due = self.hosts.iter().filter_map(State::next).min();
            let Some(next) = arrival.into_iter().chain(due).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            let arrived: Vec<Flying> =
                self.flying.extract_if(.., |flying| flying.arrives <= self.now).collect();
            for Flying { from, to, bytes, .. } in arrived {
                let source = Source { interface: 0, address: address(from) };
                self.hosts[to].on_datagram(self.now, source, &bytes);
            }
            for host in &mut self.hosts {
                host.on_time(self.now);
            }
        }
    }

    fn claim(&mut self, host: usize, record: &Record) {
        self.hosts[host].claim(self.now, record.instance.0, record.clone());
    }

    fn claimed(&mut self, host: usize, record: &Record) -> Result<(), Refusal> {
        self.claim(host, record);
        self.run(1_000 * MS);
        self.verdicts.pop().expect("a claim ends").2
    }

    fn ask(&mut self, host: usize, name: &str) {
        self.hosts[host].ask(self.now, &ServiceName::new(name).unwrap());
    }

    /// The news of a host since the last look.
    fn heard(&mut self, host: usize) -> Vec<News> {
        let mine = self.news.extract_if(.., |news| news.0 == host);
        mine.map(|news| news.1).collect()
    }
}

fn record(name: &str, instance: u64, kind: Kind) -> Record {
    let service = ServiceName::new(name).unwrap();
    Record { service, instance: Instance(instance), kind, uris: vec![format!("shm://{instance}")] }
}

fn service(instance: u64) -> Record {
    record("kv", instance, Kind::Service)
}

fn found(records: &[&Record]) -> News {
    News::Found {
        service: records[0].service.clone(),
        records: records.iter().map(|record| (*record).clone()).collect(),
    }
}

#[test]
fn of_simultaneous_claims_exactly_one_wins() {
    for seed in 0..500 {
        let mut network = Network::new(5, seed);
        for host in 0..5 {
            let pause_ns = network.random.spread(60 * MS);
            network.run(pause_ns);
            let instance = network.random.nonce();
            network.claim(host, &service(instance));
        }
        network.run(3_000 * MS);
        assert_eq!(network.verdicts.len(), 5, "seed {seed}: every claim ends");
        let winners = network.verdicts.iter().filter(|verdict| verdict.2.is_ok()).count();
        assert_eq!(winners, 1, "seed {seed}");
    }
}

#[test]
fn claims_over_a_network_that_loses_a_fifth_are_settled_in_the_end() {
    let mut doubled = 0;
    for seed in 0..500 {
        let mut network = Network::new(3, seed);
        network.loss_percent = 20;
        for host in 0..3 {
            let instance = network.random.nonce();
            network.claim(host, &service(instance));
        }
        network.run(20_000 * MS);
        let winners = network.verdicts.iter().filter(|verdict| verdict.2.is_ok()).count();
        let losses = network.news.iter().filter(|news| matches!(news.1, News::Lost { .. })).count();
        doubled += usize::from(winners > 1);
        assert_eq!(winners, losses + 1, "seed {seed}: one is left");
    }
    assert!(doubled < 25, "{doubled} of 500 claims were doubled for a while");
}

#[test]
fn an_owner_keeps_its_name_whatever_the_instance_of_the_newcomer() {
    let mut network = Network::new(2, 1);
    network.claimed(0, &service(50)).unwrap();
    for instance in [1, 99] {
        let refused = network.claimed(1, &service(instance)).unwrap_err();
        assert_eq!(refused, Refusal::Taken(service(50).to_string()));
    }
    let refused = network.claimed(1, &record("kv", 7, Kind::Member)).unwrap_err();
    assert_eq!(refused, Refusal::Taken(service(50).to_string()), "a service is no group");
    assert!(network.claimed(0, &service(51)).is_err(), "nor twice on one side");
    network.hosts[0].withdraw(&service(50).service, Instance(50));
    network.run(10 * MS);
    network.claimed(1, &service(99)).unwrap();
}

#[test]
fn a_partition_that_heals_leaves_one_owner_and_tells_the_other() {
    let mut network = Network::new(4, 2);
    network.parts = vec![0, 1, 0, 1];
    network.claimed(0, &service(8)).unwrap();
    network.claimed(1, &service(5)).unwrap();
    network.ask(2, "kv");
    network.ask(3, "kv");
    network.run(ROUND_NS);
    assert_eq!(network.heard(2), [found(&[&service(8)])]);
    assert_eq!(network.heard(3), [found(&[&service(5)])]);
    network.parts = vec![0; 4];
    network.run(3 * ANNOUNCE_NS);
    assert_eq!(
        network.heard(0),
        [News::Lost { service: service(8).service, to: service(5).to_string() }],
        "the lower instance keeps the name"
    );
    assert_eq!(network.heard(1), []);
    assert_eq!(network.heard(2), [found(&[&service(5)])], "who had asked gets the answer");
    assert_eq!(network.heard(3), []);
}

#[test]
fn a_move_is_told_to_who_has_asked_and_a_death_is_found_out() {
    let mut network = Network::new(3, 3);
    network.claimed(0, &service(1)).unwrap();
    network.ask(2, "kv");
    network.run(10 * MS);
    assert_eq!(network.heard(2), [found(&[&service(1)])]);

    network.hosts[0].withdraw_all();
    network.run(2 * ROUND_NS);
    assert_eq!(network.heard(2), [News::Absent { service: service(1).service }]);
    network.claimed(1, &service(2)).unwrap();
    assert_eq!(network.heard(2), [found(&[&service(2)])], "without being asked again");

    // Dead: it says nothing, and answers nothing.
    network.parts[1] = 9;
    network.run(1_000 * MS);
    network.ask(2, "kv");
    network.run(ROUND_NS + MS);
    assert_eq!(
        network.heard(2),
        [found(&[&service(2)]), News::Absent { service: service(1).service }],
        "first what is remembered, and then what is so"
    );
}

#[test]
fn what_is_remembered_is_given_at_once_and_not_for_ever() {
    let mut network = Network::new(2, 4);
    network.claimed(0, &service(1)).unwrap();
    network.ask(1, "kv");
    network.run(10 * MS);
    network.heard(1);
    network.sent.clear();
    for _ in 0..100 {
        network.ask(1, "kv");
        network.run(MS);
    }
    assert_eq!(network.heard(1).len(), 100);
    assert!(network.sent.iter().all(|sent| sent.0 != 1), "an answer is fresh for a while");
    network.run(ROUND_NS);
    network.ask(1, "kv");
    network.run(ROUND_NS + MS);
    assert_eq!(network.heard(1), [found(&[&service(1)])], "nothing is said twice");
    assert_eq!(network.sent.iter().filter(|sent| sent.0 == 1).count(), 1, "and it was looked after");

    network.parts[0] = 1;
    network.run(CACHED_NS);
    network.ask(1, "kv");
    network.run(ROUND_NS + MS);
    assert_eq!(network.heard(1), [News::Absent { service: service(1).service }]);
}

#[test]
fn members_are_found_together_and_leave_one_by_one() {
    let mut network = Network::new(4, 5);
    let member = |instance| record("news", instance, Kind::Member);
    for host in 0..3 {
        network.claim(host, &member(host as u64));
        network.claim(host, &member(10 + host as u64));
    }
    network.run(1_000 * MS);
    assert!(network.verdicts.drain(..).all(|verdict| verdict.2.is_ok()));
    let last = |network: &mut Network| match network.heard(3).pop() {
        Some(News::Found { mut records, .. }) => {
            records.sort_by_key(|record| record.instance);
            records.iter().map(|record| record.instance.0).collect::<Vec<u64>>()
        }
        other => panic!("{other:?}"),
    };
    network.ask(3, "news");
    network.run(ROUND_NS + MS);
    assert_eq!(last(&mut network), [0, 1, 2, 10, 11, 12]);
    network.hosts[1].withdraw(&member(1).service, Instance(11));
    network.run(2 * ROUND_NS);
    assert_eq!(last(&mut network), [0, 1, 2, 10, 12]);
    // One of the members' own host asks, too.
    network.ask(0, "news");
    network.run(ROUND_NS + MS);
    assert!(matches!(network.heard(0).last(), Some(News::Found { records, .. }) if records.len() == 5));
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut network = Network::new(2, 6);
    network.claimed(0, &service(50)).unwrap();
    network.ask(1, "kv");
    network.run(10 * MS);
    network.heard(1);
    let source = Source { interface: 0, address: address(200) };
    for body in [
        Body::Answer(vec![service(1)]),
        Body::Announcement(vec![service(1)]),
        Body::Goodbye(vec![service(50)]),
        Body::Answer(vec![service(1)]),
    ] {
        let bytes = Packet { sender: 9, nonce: 12_345, body }.write();
        for host in 0..2 {
            network.hosts[host].on_datagram(network.now, source, &bytes);
        }
        network.run(1_000 * MS);
    }
    assert!(network.news.is_empty(), "{:?}", network.news);
    assert_eq!(network.hosts[1].counters.unasked, 2);
    network.hosts[1].on_datagram(network.now, source, b"nonsense");
    assert_eq!(network.hosts[1].counters.malformed, 1);
    assert!(network.claimed(1, &service(2)).is_err(), "the owner still has it");
}

#[test]
fn a_flood_of_questions_gets_few_answers_and_others_get_theirs() {
    let mut network = Network::new(2, 7);
    network.claimed(0, &service(1)).unwrap();
    network.sent.clear();
    let flood = Source { interface: 0, address: address(200) };
    let question = Packet { sender: 9, nonce: 1, body: Body::Question(service(1).service) }.write();
    for _ in 0..100_000 {
        network.hosts[0].on_datagram(network.now, flood, &question);
    }
    network.ask(1, "kv");
    network.run(ROUND_NS);
    let answers = network.sent.iter().filter(|sent| sent.1 == To::One(flood)).count();
    assert!(answers <= 200, "{answers}");
    assert!(network.hosts[0].counters.not_answered > 99_000);
    assert_eq!(network.heard(1), [found(&[&service(1)])]);
}

#[test]
fn names_that_are_asked_for_and_heard_of_are_bounded() {
    let mut network = Network::new(1, 8);
    network.loss_percent = 100;
    for number in 0..3 * crate::directory::limits::NAMES_MAX {
        network.ask(0, &format!("n{number}"));
        network.hosts[0].out.packets.clear();
    }
    network.run(ROUND_NS + MS);
    let ended = network.heard(0).len();
    let max = crate::directory::limits::NAMES_MAX;
    assert!((max * 7 / 8..=max).contains(&ended), "{ended}: each that was not forgotten ends");
    assert_eq!(network.hosts[0].next(), None);
}

#[test]
fn a_network_that_is_down_is_said_to_be() {
    let mut network = Network::new(1, 9);
    network.hosts[0].out.fault = Some("multicast on eth0: down".to_owned());
    let down = Refusal::Failed("multicast on eth0: down".to_owned());
    assert_eq!(network.claimed(0, &service(1)), Err(down));
    network.ask(0, "kv");
    network.run(ROUND_NS);
    assert!(matches!(&network.heard(0)[..], [News::Failed { reason, .. }] if reason.contains("eth0")));
}
