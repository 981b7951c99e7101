//! Peers that die or stop while they write to the survivor's memory.

use super::area::{Area, LEN};
use super::victim::message;
use super::{Bystander, Casualties, Plan, check_nothing_left, counted, open, start};
use crate::crash_peers::{PrintSeedOnPanic, Random, Resources, signal};
use cci::{Connection, Endpoint, Event, SendFlags};
use std::time::{Duration, Instant};

/// The survivor, whose memory victims are let at.
struct Survivor {
    hub: Endpoint,
    bystander: Bystander,
    areas: [Area; 3],
    random: Random,
    /// The victim, once it is connected.
    victim: Option<Connection>,
    asked: bool,
    casualties: Casualties,
}

impl Survivor {
    fn new(plan: &Plan) -> Survivor {
        let mut hub = open(plan.device, plan.send_timeout);
        let bystander = Bystander::new(plan, &mut hub);
        let areas = [true, false, true].map(|library| Area::new(&mut hub, library));
        let random = Random(plan.seed);
        Survivor {
            hub,
            bystander,
            areas,
            random,
            victim: None,
            asked: false,
            casualties: Casualties::default(),
        }
    }

    fn turn(&mut self) {
        self.bystander.turn();
        match self.hub.next_event() {
            Some(Event::ConnectRequest(request)) => {
                self.asked = true;
                let _ = self.hub.accept(request, 1);
            }
            Some(Event::Accept { result: Ok(connection), .. }) => {
                let _ = self.hub.send(connection, &message(&self.areas), 0, SendFlags::SILENT);
                self.victim = Some(connection);
            }
            Some(Event::Recv(message)) => assert_eq!(&*message, b"written"),
            _ => {}
        }
    }

    fn turn_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.turn();
        }
    }

    /// A moment by chance, most of them short.
    fn moment(&mut self) -> Duration {
        let longest_us = [30, 300, 3_000, 12_000][self.random.below(4) as usize];
        Duration::from_micros(self.random.below(longest_us))
    }

    fn changed(&self) -> bool {
        let mut word = [0; 8];
        let counter = self.areas[2].memory.read(4096 + 64, &mut word) && word != [0; 8];
        counter
            || self.areas[..2].iter().any(|area| area.now()[4096..4096 + LEN].iter().any(|&byte| byte != 0))
    }

    /// Lets a new victim at the memory until it has changed it.
    fn let_in(&mut self, patience: Duration) {
        for area in &self.areas {
            area.clear();
        }
        (self.victim, self.asked) = (None, false);
        let born = Instant::now();
        let mut turns = 0;
        while born.elapsed() < patience {
            self.turn();
            turns += 1;
            // Looking costs more than a turn.
            if self.victim.is_some() && turns % 64 == 0 && self.changed() {
                return;
            }
        }
        self.casualties.early += 1;
    }

    /// Waits until the victim may map our memory, if it asks to, and a moment more. One region is the bystander's.
    fn let_map(&mut self, patience: Duration) {
        let started = Instant::now();
        while started.elapsed() < patience && counted(&self.hub, "rma_regions_granted") < 2 {
            self.turn_for(Duration::from_micros(100));
        }
        self.turn_for(Duration::from_millis(3));
    }

    /// Gives up the regions; from then on nothing may change. Returns what they hold.
    fn give_up(&mut self, plan: &Plan) -> [Vec<u8>; 3] {
        let started = Instant::now();
        for area in &self.areas {
            self.hub.deregister(&area.handle).expect("registered");
        }
        let took = started.elapsed();
        assert!(took < plan.noticed_within, "giving up three regions took {took:?}");
        self.casualties.deregister_us_max = self.casualties.deregister_us_max.max(took.as_micros() as u64);
        self.areas.each_ref().map(Area::now)
    }

    fn check_unchanged(&self, before: &[Vec<u8>; 3], when: &str) {
        for (area, before) in self.areas.iter().zip(before) {
            assert!(area.now() == *before, "a byte changed {when}");
        }
    }

    /// After a death: what is in the memory is what was written, or nothing.
    fn mourn(&mut self, plan: &Plan) {
        // What it had sent may bring a request that nobody waits for any more, or an end of an accept.
        self.turn_for(Duration::from_millis(1));
        if let Some(victim) = self.victim.take() {
            self.hub.disconnect(victim);
        }
        for area in &self.areas[..2] {
            let written = area.check();
            self.casualties.torn += u32::from(written > 0 && written < LEN);
        }
        let words = self.areas[2].now();
        let beside = words[4096..4096 + 64].iter().chain(&words[4096 + 72..4096 + LEN]);
        assert!(beside.into_iter().all(|&byte| byte == 0), "words beside the counter");
        self.bystander.goes_on(plan, &mut self.hub);
        for area in &mut self.areas {
            area.register(&mut self.hub);
        }
        self.casualties.kills += 1;
    }
}

/// Kills peers that write to our memory, at random points.
pub fn kill_initiators(plan: &Plan) -> Casualties {
    let _seed = PrintSeedOnPanic(plan.seed);
    let mut survivor = Survivor::new(plan);
    let before = Resources::now();
    let uri = survivor.hub.uri().to_owned();
    for kill in 0..plan.kills {
        let mut victim = start(&uri, plan.device);
        // Now and then the process dies before it has said anything.
        let early = kill % 16 == 0;
        survivor.let_in(if early { Duration::from_millis(3) } else { Duration::from_secs(5) });
        let moment = survivor.moment();
        survivor.turn_for(moment);
        // Every other time the regions are given up while it lives and goes on.
        let given_up = (kill % 2 == 0).then(|| survivor.give_up(plan));
        if given_up.is_some() {
            let moment = survivor.moment();
            survivor.turn_for(moment);
        }
        victim.kill().expect("it can be killed");
        victim.wait().expect("it is dead");
        let given_up = given_up.unwrap_or_else(|| {
            survivor.turn_for(Duration::from_micros(200));
            survivor.give_up(plan)
        });
        survivor.turn_for(Duration::from_millis(1));
        survivor.check_unchanged(&given_up, "after its region was given up");
        survivor.mourn(plan);
        if kill.is_multiple_of(16) || kill + 1 == plan.kills {
            check_nothing_left(plan, &mut survivor.hub, &before, 1);
        }
    }
    survivor.casualties.counted(&survivor.hub)
}

/// Stops peers that write to our memory (SIGSTOP), gives up the regions, and lets the peers go on.
pub fn stop_initiators(plan: &Plan) -> Casualties {
    let _seed = PrintSeedOnPanic(plan.seed);
    let mut survivor = Survivor::new(plan);
    let before = Resources::now();
    let uri = survivor.hub.uri().to_owned();
    for _ in 0..plan.kills {
        let mut victim = start(&uri, plan.device);
        survivor.let_in(Duration::from_secs(5));
        survivor.let_map(Duration::from_millis(50));
        let moment = survivor.moment();
        survivor.turn_for(moment);
        signal(&victim, "STOP");
        let given_up = survivor.give_up(plan);
        survivor.turn_for(Duration::from_millis(2));
        survivor.check_unchanged(&given_up, "while the peer was stopped");
        signal(&victim, "CONT");
        survivor.turn_for(Duration::from_millis(8));
        survivor.check_unchanged(&given_up, "when the peer went on");
        victim.kill().expect("it can be killed");
        victim.wait().expect("it is dead");
        survivor.mourn(plan);
    }
    check_nothing_left(plan, &mut survivor.hub, &before, 1);
    survivor.casualties.counted(&survivor.hub)
}
