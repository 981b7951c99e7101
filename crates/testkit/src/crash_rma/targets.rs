//! Peers that die or stop while the survivor reads and writes their memory.

use super::area::{Area, LEN};
use super::victim::{handles, operate};
use super::{Bystander, Casualties, Plan, check_nothing_left, open, start};
use crate::crash_peers::{PrintSeedOnPanic, Random, Resources, read_uri, signal};
use cci::{Attribute, Connection, Endpoint, Event, RegionHandle, Status};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Operations under way, at most.
const UNDER_WAY: usize = 48;

/// The survivor, which works on the victims' memory.
struct Survivor {
    hub: Endpoint,
    bystander: Bystander,
    sources: [Area; 2],
    scratch: Area,
    random: Random,
    victim: Option<Connection>,
    theirs: Option<[RegionHandle; 3]>,
    /// The attempt to connect has not ended.
    dialing: bool,
    /// Contexts of operations that have not ended.
    under_way: HashSet<u64>,
    next_context: u64,
    casualties: Casualties,
}

impl Survivor {
    fn new(plan: &Plan) -> Survivor {
        let mut hub = open(plan.device, plan.send_timeout);
        let bystander = Bystander::new(plan, &mut hub);
        let sources = [true, false].map(|library| Area::new(&mut hub, library));
        sources.iter().for_each(Area::fill);
        let scratch = Area::new(&mut hub, false);
        Survivor {
            hub,
            bystander,
            sources,
            scratch,
            random: Random(plan.seed),
            victim: None,
            theirs: None,
            dialing: false,
            under_way: HashSet::new(),
            next_context: 0,
            casualties: Casualties::default(),
        }
    }

    fn dial(&mut self, plan: &Plan, uri: &str) {
        (self.victim, self.theirs) = (None, None);
        self.scratch.clear();
        let attribute =
            [Attribute::ReliableOrdered, Attribute::ReliableUnordered][self.random.below(2) as usize];
        self.dialing = self.hub.connect(uri, b"", attribute, 0, Some(plan.send_timeout)).is_ok();
    }

    fn turn(&mut self) {
        self.bystander.turn();
        for _ in 0..4 {
            match self.hub.next_event() {
                Some(Event::Connect { result, .. }) => {
                    self.dialing = false;
                    self.victim = result.ok();
                }
                Some(Event::Recv(message)) => self.theirs = handles(&message),
                Some(Event::Send { context, status, .. }) => {
                    assert!(self.under_way.remove(&context), "an operation that ended twice: {context}");
                    match status {
                        Status::Success => self.casualties.good += 1,
                        Status::Disconnected | Status::TimedOut | Status::ReceiverNotReady => {
                            self.casualties.failed += 1;
                        }
                        other => panic!("an operation ended with {other:?}"),
                    }
                }
                // The victim was killed.
                Some(Event::Disconnected { .. }) => {}
                Some(other) => panic!("unexpected {other:?}"),
                None => return,
            }
        }
    }

    /// Starts operations as long as there is room.
    fn work(&mut self) {
        let (Some(victim), Some(theirs)) = (self.victim, self.theirs) else { return };
        for _ in 0..4 {
            if self.under_way.len() >= UNDER_WAY {
                return;
            }
            self.next_context += 1;
            let context = self.next_context;
            let source = self.sources[self.random.below(2) as usize].handle;
            let local = [source, self.scratch.handle];
            if operate(&mut self.hub, victim, &mut self.random, local, theirs, LEN as u64, context) {
                self.under_way.insert(context);
            }
        }
    }

    fn work_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.work();
            self.turn();
        }
    }

    /// Works on a new victim's memory until some operations have ended well.
    fn begin(&mut self, patience: Duration) {
        let (born, good) = (Instant::now(), self.casualties.good);
        while self.casualties.good < good + 3 {
            if born.elapsed() > patience {
                self.casualties.early += 1;
                return;
            }
            self.work();
            self.turn();
        }
    }

    /// Goes on until every operation has ended.
    fn settle(&mut self, plan: &Plan) {
        let end = Instant::now() + plan.noticed_within;
        while !self.under_way.is_empty() || self.dialing {
            assert!(
                Instant::now() < end,
                "{} operations do not end: {:?}",
                self.under_way.len(),
                self.hub.counters()
            );
            self.turn();
        }
        let quiet = Instant::now() + Duration::from_millis(1);
        while Instant::now() < quiet {
            self.turn();
        }
        if let Some(victim) = self.victim.take() {
            self.hub.disconnect(victim);
        }
        self.scratch.check();
        for source in &self.sources {
            source.check();
        }
        self.bystander.goes_on(plan, &mut self.hub);
        self.casualties.kills += 1;
    }
}

/// Kills peers whose memory we work on, at random points.
pub fn kill_targets(plan: &Plan) -> Casualties {
    let _seed = PrintSeedOnPanic(plan.seed);
    let mut survivor = Survivor::new(plan);
    let before = Resources::now();
    for kill in 0..plan.kills {
        let mut victim = start("target", plan.device);
        let uri = read_uri(&mut victim);
        survivor.dial(plan, &uri);
        let early = kill % 16 == 0;
        survivor.begin(if early { Duration::from_micros(300) } else { Duration::from_secs(5) });
        let longest_us = [30, 300, 3_000, 12_000][survivor.random.below(4) as usize];
        let life = Duration::from_micros(survivor.random.below(longest_us));
        survivor.work_for(life);
        victim.kill().expect("it can be killed");
        // Some while it is dying.
        survivor.work();
        victim.wait().expect("it is dead");
        drop(victim);
        survivor.work();
        survivor.settle(plan);
        if kill.is_multiple_of(16) || kill + 1 == plan.kills {
            check_nothing_left(plan, &mut survivor.hub, &before, 1);
        }
    }
    survivor.casualties
}

/// Stops peers whose memory we work on (SIGSTOP): every operation ends all the same, when its time is over.
pub fn stop_targets(plan: &Plan) -> Casualties {
    let _seed = PrintSeedOnPanic(plan.seed);
    let mut survivor = Survivor::new(plan);
    let before = Resources::now();
    for _ in 0..plan.kills {
        let mut victim = start("target", plan.device);
        let uri = read_uri(&mut victim);
        survivor.dial(plan, &uri);
        survivor.begin(Duration::from_secs(5));
        signal(&victim, "STOP");
        survivor.work_for(Duration::from_millis(5));
        let end = Instant::now() + plan.noticed_within;
        while !survivor.under_way.is_empty() {
            assert!(Instant::now() < end, "{} operations do not end", survivor.under_way.len());
            survivor.turn();
        }
        signal(&victim, "CONT");
        survivor.work_for(Duration::from_millis(2));
        victim.kill().expect("it can be killed");
        victim.wait().expect("it is dead");
        drop(victim);
        survivor.settle(plan);
    }
    check_nothing_left(plan, &mut survivor.hub, &before, 1);
    survivor.casualties
}
