//! Scenarios drawn from a seed.

use super::scenario::{
    Act, Answer, End, Fabric, Hold, Job, Kinds, Machine, Operating, Scenario, Step, Talk, Weather,
};
use super::speaker::can_operate;
use crate::rng::Rng;
use cci::Attribute;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// What kind of trouble a scenario is about.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Loss, repeats, reordering, narrow ways; nothing may fail.
    Rough,
    /// Everybody sends to one.
    Incast,
    /// Programs keep buffers, longer than anyone waits.
    Slow,
    /// The network falls apart, both ways or one way, and heals.
    Split,
    /// Endpoints die and come back at the same address; old datagrams come again.
    Crash,
    /// Clocks run at their own rates, and jump.
    Clocks,
    /// Many short connections, made and ended under load.
    Churn,
    /// All of it.
    Everything,
}

const KINDS: &[Kind] = &[
    Kind::Rough,
    Kind::Rough,
    Kind::Incast,
    Kind::Slow,
    Kind::Split,
    Kind::Crash,
    Kind::Crash,
    Kind::Clocks,
    Kind::Churn,
    Kind::Everything,
];

/// Machines whose system calls are simulated, at most.
const PROCESSES_MAX: usize = 6;

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Scenario {
        let mut scenario = Scenario::draw_common(seed);
        scenario.draw_rare();
        scenario
    }

    /// The scenario of a seed, without what is drawn apart.
    fn draw_common(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0x77_686f_6c65);
        let kind = rng.pick(KINDS);
        let count = draw_count(&mut rng, kind);
        let gentle = matches!(kind, Kind::Rough | Kind::Incast);
        let machines: Vec<Machine> =
            (0..count).map(|_| draw_machine(&mut rng, kind, gentle, count)).collect();
        let mut machines = machines;
        for (number, machine) in machines.iter_mut().enumerate() {
            machine.host = number;
        }
        if kind == Kind::Incast {
            // Room for everybody's state: who has none left refuses, and here nothing may fail.
            machines[0].memory_bytes_max = 16 << 20;
        }
        let weather = draw_weather(&mut rng, kind);
        // Drawn apart, so that it changes nothing else of what a seed means.
        let sealed = Rng::new(seed ^ 0x7365_616c).pct(10.0);
        let mut scenario = Scenario {
            seed,
            machines,
            second_weather: weather.clone(),
            weather,
            steps: Vec::new(),
            sealed,
            fabric: Fabric::Datagrams,
            sabotage: None,
        };
        let span_ns = rng.pick(&[5 * MS, 50 * MS, 500 * MS, 3 * SECOND]);
        let talks = draw_talks(&mut rng, kind, count);
        for number in 0..talks {
            scenario.draw_talk(&mut rng, kind, number, span_ns);
        }
        scenario.draw_trouble(&mut rng, kind, span_ns);
        scenario.steps.sort_by_key(|step| step.at_ns);
        scenario
    }

    /// The scenario of a seed, for processes of one host that share memory.
    #[must_use]
    pub fn draw_shared(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0x7368_6d00);
        let mut scenario = Scenario::draw_few(seed, &mut rng);
        let gentle = scenario.is_gentle();
        scenario.sealed = false;
        let fault_per_calls = if gentle { 0 } else { rng.pick(&[0, 0, 10, 100]) };
        scenario.fabric = Fabric::SharedMemory { is_weak: rng.pct(50.0), fault_per_calls };
        let rate_ppm = scenario.machines[0].rate_ppm;
        for machine in &mut scenario.machines {
            (machine.host, machine.rate_ppm) = (0, rate_ppm);
        }
        scenario.steps.retain(|step| !matches!(step.act, Act::Outage(..) | Act::Split(..) | Act::Storm(..)));
        scenario.draw_processes(&mut rng, gentle);
        scenario
    }

    /// The scenario of a seed, for endpoints that are connected by streams, and some by shared memory, too.
    #[must_use]
    pub fn draw_streams(seed: u64) -> Scenario {
        let mut rng = Rng::new(seed ^ 0x7463_7000);
        let mut scenario = Scenario::draw_few(seed, &mut rng);
        let (gentle, any) = (scenario.is_gentle(), rng.pct(30.0));
        let fault_per_calls = if gentle { 0 } else { rng.pick(&[0, 0, 0, 10, 100]) };
        scenario.fabric = Fabric::Streams { any, fault_per_calls };
        let count = scenario.machines.len() as u64;
        for _ in 0..if any { rng.below(count) } else { 0 } {
            scenario.share_host(rng.below(count) as usize, rng.below(count) as usize);
        }
        for step in &mut scenario.steps {
            if let Act::Crash(machine, down_ns) = step.act
                && rng.pct(30.0)
            {
                step.act = Act::PowerFailure(machine, down_ns);
            }
        }
        let span_ns = scenario.steps.last().map_or(MS, |step| step.at_ns + 1);
        for _ in 0..if gentle || rng.pct(60.0) { 0 } else { rng.range(1, 4) } {
            let cut = Act::Cut(rng.below(count) as usize, rng.below(count) as usize);
            scenario.step(rng.below(span_ns), cut);
        }
        scenario.draw_processes(&mut rng, gentle);
        scenario
    }

    /// A scenario of few machines.
    fn draw_few(seed: u64, rng: &mut Rng) -> Scenario {
        let mut scenario = Scenario::draw_common(rng.next_u64());
        while scenario.machines.len() > PROCESSES_MAX {
            scenario = Scenario::draw_common(rng.next_u64());
        }
        Scenario { seed, ..scenario }
    }

    /// What happens to processes whose system calls are simulated.
    fn draw_processes(&mut self, rng: &mut Rng, gentle: bool) {
        for machine in &mut self.machines {
            // Rings and streams take what a datagram's state does not.
            machine.memory_bytes_max *= if gentle { 64 } else { 8 };
        }
        self.steps.retain(|step| !matches!(step.act, Act::Replay(_) | Act::Narrow(..)));
        let span_ns = self.steps.last().map_or(MS, |step| step.at_ns + 1);
        if !gentle {
            // Memory is taken back while operations on it are under way.
            for Step { at_ns, act } in self.steps.clone() {
                if let Act::Operate(talk, end, _) = act
                    && rng.pct(50.0)
                {
                    self.step(at_ns + rng.below(50 * US), Act::Deregister(talk, end));
                }
            }
        }
        for _ in 0..rng.below(4) {
            let stop_ns =
                rng.pick(if gentle { &[US, 100 * US, 5 * MS][..] } else { &[US, MS, 300 * MS, 3 * SECOND] });
            let machine = rng.below(self.machines.len() as u64) as usize;
            self.step(rng.below(span_ns), Act::Stop(machine, stop_ns));
        }
        self.draw_rare_processes();
    }

    fn step(&mut self, at_ns: u64, act: Act) {
        self.steps.push(Step { at_ns, act });
    }

    fn draw_talk(&mut self, rng: &mut Rng, kind: Kind, number: u32, span_ns: u64) {
        let count = self.machines.len() as u64;
        let server = if kind == Kind::Incast { 0 } else { rng.below(count) as usize };
        let client = (server + 1 + rng.below(count - 1) as usize) % count as usize;
        let attribute = rng.pick(&[
            Attribute::ReliableOrdered,
            Attribute::ReliableOrdered,
            Attribute::ReliableUnordered,
            Attribute::Unreliable,
        ]);
        let at_ns = rng.below(span_ns);
        let gentle = matches!(kind, Kind::Rough | Kind::Incast);
        let answer = match rng.below(10) {
            0 if !gentle => Answer::Reject,
            1 => Answer::Broker((server + 1 + rng.below(count - 1) as usize) % count as usize),
            _ => Answer::Accept,
        };
        let timeout_ns = match kind {
            _ if gentle => rng.pick(&[None, Some(100 * SECOND)]),
            _ => rng.pick(&[None, Some(MS), Some(100 * MS), Some(10 * SECOND), Some(10 * SECOND)]),
        };
        if let Answer::Broker(other) = answer {
            self.share_host(server, other);
        }
        // A dial without an end, to somebody who never answers, would never end.
        let timeout_ns = if gentle { timeout_ns } else { timeout_ns.or(Some(20 * SECOND)) };
        self.step(
            at_ns,
            Act::Connect(Talk {
                number,
                client,
                server,
                attribute,
                request_bytes: rng.pick(&[16, 16, 300, 1_024]),
                timeout_ns,
                answer,
                answer_ns: rng.pick(&[0, 0, 10 * US, 5 * MS]),
            }),
        );
        let share = (self.machines.len() as u32 / 10).max(1);
        for end in [End::Client, End::Server] {
            let jobs = if end == End::Client { rng.range(1, 2) } else { rng.below(2) };
            for _ in 0..jobs {
                let at_ns = at_ns + rng.below(span_ns);
                self.step(at_ns, Act::Send(number, end, draw_job(rng, kind, share)));
            }
            let slow = self.weather.delay_ns > 5 * MS || self.weather.loss_pct > 5.0;
            if can_operate(attribute) && rng.pct(if share > 2 { 5.0 } else { 35.0 }) {
                let at_ns = at_ns + rng.below(span_ns);
                self.step(at_ns, Act::Operate(number, end, draw_operating(rng, slow)));
                if rng.pct(20.0) && !gentle {
                    self.step(at_ns + rng.below(20 * MS), Act::Deregister(number, end));
                }
            }
        }
        let ends = match kind {
            Kind::Churn => 70.0,
            Kind::Everything | Kind::Crash => 20.0,
            _ => 0.0,
        };
        if rng.pct(ends) {
            let end = rng.pick(&[End::Client, End::Server]);
            self.step(at_ns + rng.below(2 * span_ns), Act::HangUp(number, end));
        }
        if !gentle && rng.pct(10.0) {
            let end = rng.pick(&[End::Client, End::Server]);
            let at_ns = at_ns + rng.below(span_ns);
            match rng.below(2) {
                0 => self.step(at_ns, Act::SendTimeout(number, end, rng.pick(&[MS, 50 * MS, SECOND]))),
                _ => self.step(at_ns, Act::Keepalive(number, end, rng.pick(&[MS, 20 * MS, SECOND]))),
            }
        }
    }

    /// A request goes from one process to another on one host, where all have one clock.
    fn share_host(&mut self, one: usize, other: usize) {
        let (to, from) = (self.machines[one].host, self.machines[other].host);
        let rate_ppm = self.machines[one].rate_ppm;
        for machine in self.machines.iter_mut().filter(|machine| machine.host == from) {
            (machine.host, machine.rate_ppm) = (to, rate_ppm);
        }
    }

    /// How many talks there are.
    fn talks(&self) -> u32 {
        self.steps.iter().filter(|step| matches!(step.act, Act::Connect(_))).count() as u32
    }

    fn draw_trouble(&mut self, rng: &mut Rng, kind: Kind, span_ns: u64) {
        let count = self.machines.len() as u64;
        let all = kind == Kind::Everything;
        let long_ns = |rng: &mut Rng| rng.pick(&[MS, 20 * MS, 300 * MS, 3 * SECOND, 15 * SECOND]);
        if kind == Kind::Split || all {
            for _ in 0..rng.range(1, 4) {
                let (a, b) = (rng.below(count) as usize, rng.below(count) as usize);
                let for_ns = long_ns(rng);
                let act = match rng.below(5) {
                    0 => Act::Split(rng.next_u64(), for_ns),
                    1 => Act::Outage(Some(a), None, for_ns),
                    2 => Act::Outage(None, Some(a), for_ns),
                    3 => Act::Outage(Some(a), Some(b), for_ns),
                    _ => Act::Storm(Weather { loss_pct: 60.0, ..self.weather.clone() }, for_ns),
                };
                self.step(rng.below(2 * span_ns), act);
            }
        }
        if kind == Kind::Crash || all {
            for _ in 0..rng.range(1, 3) {
                let down_ns = rng.pick(&[0, 10 * US, MS, 100 * MS, 3 * SECOND]);
                let (machine, at_ns) = (rng.below(count) as usize, rng.below(2 * span_ns));
                self.step(at_ns, Act::Crash(machine, down_ns));
                for back_ns in [down_ns + 10 * US, down_ns + 5 * MS] {
                    self.step(at_ns + back_ns, Act::Replay(rng.range(1, 60) as u32));
                }
                // Peers come back to it.
                for _ in 0..rng.range(1, 3) {
                    let number = self.talks();
                    self.draw_talk(rng, kind, number, span_ns);
                }
            }
        }
        if kind == Kind::Clocks || all {
            for _ in 0..rng.range(1, 6) {
                let ns = rng.pick(&[US, MS, 300 * MS, 2 * SECOND, 30 * SECOND, 1_000 * SECOND]);
                self.step(rng.below(2 * span_ns), Act::Jump(rng.below(count) as usize, ns));
            }
        }
        if kind == Kind::Slow || all || (kind == Kind::Incast && rng.pct(50.0)) {
            for _ in 0..rng.range(1, 3) {
                let hold_ns = match kind {
                    Kind::Incast => rng.pick(&[10 * US, MS, 100 * MS]),
                    _ => rng.pick(&[100 * US, 5 * MS, 300 * MS, 5 * SECOND]),
                };
                let machine = if kind == Kind::Incast { 0 } else { rng.below(count) as usize };
                self.step(
                    rng.below(span_ns),
                    Act::Hold(machine, Hold::Each(hold_ns), rng.pick(&[MS, 100 * MS, 2 * SECOND])),
                );
            }
        }
        for _ in 0..rng.below(3) {
            self.step(rng.below(3 * span_ns), Act::Replay(rng.range(1, 100) as u32));
        }
        if rng.pct(20.0) {
            let (from, to) = (rng.below(count) as usize, rng.below(count) as usize);
            self.step(rng.below(span_ns), Act::Narrow(from, to, rng.pick(&[1_152, 1_280, 1_400])));
        }
    }
}

fn draw_count(rng: &mut Rng, kind: Kind) -> u64 {
    let most = match rng.below(200) {
        0..130 => 5,
        130..180 => 15,
        180..196 => 60,
        _ => 300,
    };
    let least = if most == 300 { 150 } else { 2 };
    let count = rng.range(least, most);
    if kind == Kind::Incast { count.max(3) } else { count }
}

fn draw_talks(rng: &mut Rng, kind: Kind, count: u64) -> u32 {
    let talks = match kind {
        Kind::Incast => count - 1,
        Kind::Churn => rng.range(4, 20) + count,
        _ => rng.range(1, 4).max(count * 2 / 3),
    };
    talks as u32
}

fn draw_machine(rng: &mut Rng, kind: Kind, gentle: bool, count: u64) -> Machine {
    let many = count > 60;
    let patient = 100 * SECOND;
    let send_timeout_ns =
        if gentle || rng.pct(20.0) { patient } else { rng.pick(&[20 * MS, 200 * MS, SECOND, 10 * SECOND]) };
    let rate_ppm = match kind {
        Kind::Clocks | Kind::Everything => rng.pick(&[0, 200, -200, 50_000, -300_000, 400_000]),
        _ => rng.pick(&[0, 0, 20, -20]),
    };
    Machine {
        datagram_bytes_max: if many { 1_472 } else { rng.pick(&[1_152, 1_472, 1_472, 4_096, 8_952]) },
        recv_buffers: if many { 16 } else { rng.pick(&[1, 2, 8, 32, 32]) },
        send_buffers: if many { 64 } else { rng.pick(&[2, 16, 256]) },
        rma_operations: rng.pick(&[1, 8, 64]),
        memory_bytes_max: if many { 1 << 20 } else { rng.pick(&[1 << 20, 1 << 20, 2 << 20, 8 << 20]) },
        send_timeout_ns,
        keepalive_ns: if !gentle && rng.pct(20.0) { Some(rng.pick(&[5 * MS, 500 * MS])) } else { None },
        batch: rng.pick(&[2, 16, 64]),
        socket_bytes: rng.pick(&[20_000, 212_992, 4 << 20]),
        poll_ns: rng.pick(&[500, 2 * US, 20 * US]),
        rate_ppm,
        host: 0,
        exported: rng.pct(30.0),
        is_bonded: false,
        first_seq: None,
        connections_max: None,
        requests_max: None,
    }
}

fn draw_weather(rng: &mut Rng, kind: Kind) -> Weather {
    let delay_ns = rng.pick(&[US, 10 * US, 10 * US, 100 * US, MS, 20 * MS]);
    let loss = if kind == Kind::Rough { [0.0, 1.0, 5.0, 20.0] } else { [0.0, 0.0, 1.0, 5.0] };
    let linked = kind == Kind::Incast || rng.pct(30.0);
    let mut weather = Weather {
        loss_pct: rng.pick(&loss),
        duplicate_pct: rng.pick(&[0.0, 0.0, 1.0, 20.0]),
        delay_ns,
        jitter_ns: rng.pick(&[0, US, 10 * US, delay_ns]),
        reorder_pct: rng.pick(&[0.0, 0.0, 1.0, 20.0]),
        reorder_ns: rng.pick(&[5 * US, 100 * US, 5 * MS]),
        link_bits_per_s: if linked { rng.pick(&[100_000_000, 1_000_000_000, 10_000_000_000]) } else { 0 },
        inward_bits_per_s: 0,
        link_queue_bytes: rng.pick(&[30_000, 100_000, 1_000_000]),
    };
    weather.inward_bits_per_s = weather.link_bits_per_s;
    weather
}

fn draw_job(rng: &mut Rng, kind: Kind, share: u32) -> Job {
    let (bytes_min, bytes_max) =
        rng.pick(&[(8, 8), (0, 0), (0, 64), (8, 1_000), (0, 3_000), (100_000, 100_000)]);
    let messages = match kind {
        Kind::Churn => rng.range(1, 15),
        _ if rng.pct(30.0) => rng.range(1, 10),
        _ => rng.range(10, 150),
    };
    Job {
        messages: (messages as u32 / share).max(1),
        bytes_min,
        bytes_max,
        silent_pct: rng.pick(&[0.0, 0.0, 30.0, 100.0]),
        burst: rng.pick(&[1, 8, 64]),
        gap_ns: rng.pick(&[0, 0, 500, 20 * US, MS]),
    }
}

fn draw_operating(rng: &mut Rng, slow: bool) -> Operating {
    let bytes = match rng.below(4) {
        0 => 8,
        1 => rng.range(8, 200) as u32,
        2 => rng.range(1_000, 5_000) as u32,
        _ if slow => 3_000,
        _ => rng.range(5_000, 60_000) as u32,
    };
    Operating {
        operations: rng.range(1, if bytes > 5_000 { 20 } else { 80 }) as u32,
        bytes,
        places: 8,
        segments_max: 7,
        kinds: Kinds::Common,
        outstanding_max: rng.pick(&[1, 3, 12]),
        draw: rng.next_u64(),
    }
}
