//! What few scenarios have, drawn apart from all else: none of it changes what a seed means otherwise.

use super::scenario::{Act, End, Fabric, Hold, Job, Kinds, Operating, Scenario, Step, Talk, Weather};
use crate::rng::Rng;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

impl Scenario {
    /// What only networks of datagrams have.
    pub(super) fn draw_rare(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x7261_7265);
        let (gentle, many) = (self.is_gentle(), self.machines.len() > 60);
        if rng.pct(50.0) {
            // Numbers of bundles wrap early.
            for machine in &mut self.machines {
                machine.first_seq = Some(u32::MAX - rng.below(8) as u32);
            }
        }
        if !many {
            self.weather.draw_rough(&mut rng);
        }
        if !gentle && rng.pct(20.0) {
            for machine in &mut self.machines {
                machine.connections_max = Some(rng.pick(&[4, 16, 64]));
                machine.requests_max = Some(rng.pick(&[1, 2, 16]));
            }
        }
        let span_ns = self.steps.last().map_or(MS, |step| step.at_ns + 1);
        if !many && !self.sealed && rng.pct(30.0) {
            self.draw_bonds(&mut rng, span_ns);
        }
        if !gentle && !many && rng.pct(25.0) {
            self.draw_deaf(&mut rng);
        }
        if rng.pct(25.0) {
            for _ in 0..rng.range(1, 10) {
                let count = rng.range(1, 40) as u32;
                let act = if rng.pct(70.0) { Act::Forge(count) } else { Act::ReplayElsewhere(count) };
                self.add(rng.below(2 * span_ns), act);
            }
        }
        self.draw_rare_work();
    }

    /// More messages than their receiver can store while it takes none, for longer than their sender waits.
    fn draw_deaf(&mut self, rng: &mut Rng) {
        let first = self.steps.iter().find_map(|step| match &step.act {
            Act::Connect(talk) if talk.attribute.is_reliable() => Some((step.at_ns, talk.clone())),
            _ => None,
        });
        let Some((at_ns, Talk { number, client, server, .. })) = first else { return };
        self.weather.loss_pct = rng.pick(&[1.0, 5.0, 15.0]);
        self.machines[client].send_timeout_ns = rng.pick(&[20 * MS, 200 * MS, 1_000 * MS]);
        self.machines[client].send_buffers = 1_024;
        self.machines[server].memory_bytes_max = 1 << 20;
        self.machines[server].recv_buffers = rng.pick(&[1, 2, 8]);
        let hold_ns = rng.pick(&[50 * MS, 300 * MS, 3_000 * MS]);
        self.add(at_ns, Act::Hold(server, Hold::Together(hold_ns), 2 * hold_ns));
        let bytes_max = rng.pick(&[64, 3_000, 100_000]);
        let messages = rng.range(100, 600) as u32;
        let job = Job {
            bytes_min: bytes_max / 10,
            gap_ns: rng.pick(&[0, 0, 20 * US]),
            ..Job::bulk(messages, bytes_max)
        };
        self.add(at_ns, Act::Send(number, End::Client, job));
    }

    /// What only processes have whose system calls are simulated.
    pub(super) fn draw_rare_processes(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x6c61_7465);
        if !self.is_gentle() && rng.pct(20.0) {
            self.draw_late(&mut rng);
        }
        self.draw_rare_work();
    }

    /// Messages whose time is up at about the moment in which their receiver has a buffer for them: it takes them more slowly than
    /// they are sent.
    fn draw_late(&mut self, rng: &mut Rng) {
        let first = self.steps.iter().find_map(|step| match &step.act {
            Act::Connect(talk) if talk.attribute.is_reliable() => Some((step.at_ns, talk.clone())),
            _ => None,
        });
        let Some((at_ns, Talk { number, client, server, .. })) = first else { return };
        self.machines[client].send_timeout_ns = rng.pick(&[200 * US, MS, 5 * MS]);
        self.machines[client].send_buffers = 1_024;
        self.machines[server].recv_buffers = rng.pick(&[1, 2, 8]);
        let hold_ns = rng.pick(&[20 * US, 50 * US, 200 * US]);
        let gap_ns = hold_ns / rng.range(2, 5);
        let messages = rng.range(100, 300);
        self.add(at_ns, Act::Hold(server, Hold::OneByOne(hold_ns), messages * hold_ns));
        let job = Job { burst: 1, gap_ns, ..Job::bulk(messages as u32, rng.pick(&[8, 64, 1_000])) };
        self.add(at_ns, Act::Send(number, End::Client, job));
    }

    fn draw_bonds(&mut self, rng: &mut Rng, span_ns: u64) {
        for machine in &mut self.machines {
            machine.is_bonded = rng.pct(80.0);
        }
        if rng.pct(50.0) {
            self.second_weather.delay_ns = rng.pick(&[US, 10 * US, 100 * US, MS]);
            self.second_weather.loss_pct = rng.pick(&[0.0, 1.0, 10.0]);
            self.second_weather.reorder_pct = rng.pick(&[0.0, 5.0]);
        }
        self.second_weather.draw_rough(rng);
        let count = self.machines.len() as u64;
        for _ in 0..if rng.pct(50.0) { rng.range(1, 4) } else { 0 } {
            let (machine, by) = (rng.below(count) as usize, rng.below(2) as u8);
            let for_ns = rng.pick(&[MS, 50 * MS, 800 * MS]);
            let act =
                if rng.pct(60.0) { Act::Unplug(machine, by, for_ns) } else { Act::Mute(machine, by, for_ns) };
            self.add(rng.below(span_ns), act);
        }
    }

    /// What programs on any fabric do.
    pub(super) fn draw_rare_work(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x776f_726b);
        let count = self.machines.len() as u64;
        let gentle = self.is_gentle();
        let span_ns = self.steps.last().map_or(MS, |step| step.at_ns + 1);
        for _ in 0..if rng.pct(25.0) { rng.range(1, 3) } else { 0 } {
            let most_ns = if gentle { 10 * MS } else { 300 * MS };
            let hold = match rng.below(3) {
                0 => Hold::OneByOne(rng.pick(&[100, 10 * US, 500 * US])),
                1 => Hold::Together(rng.pick(&[50 * US, MS, 20 * MS, most_ns])),
                _ => Hold::Shuffled(rng.pick(&[US, 100 * US, 5 * MS, most_ns])),
            };
            let machine = rng.below(count) as usize;
            self.add(rng.below(span_ns), Act::Hold(machine, hold, rng.pick(&[MS, 100 * MS, 1_000 * MS])));
        }
        // Simulated memory and streams take their time, too.
        let slow =
            self.weather.delay_ns > 5 * MS || self.weather.loss_pct > 5.0 || self.fabric != Fabric::Datagrams;
        let (few, mut large) = (count <= 15, false);
        for step in &mut self.steps {
            let Act::Operate(.., spec) = &mut step.act else { continue };
            spec.kinds = if rng.pct(50.0) { Kinds::All } else { Kinds::Common };
            if few && !large && rng.pct(15.0) {
                spec.draw_large(&mut rng, slow);
                large = true;
            }
        }
        if large {
            for machine in &mut self.machines {
                machine.rma_operations = rng.pick(&[2, 64, 2_048]);
                machine.memory_bytes_max = machine.memory_bytes_max.max(4 << 20);
            }
        }
        self.steps.sort_by_key(|step| step.at_ns);
        self.draw_files();
    }

    /// Has some work be reads of files: drawn apart, so that all else in the scenario of a seed stays as it is.
    fn draw_files(&mut self) {
        let mut rng = Rng::new(self.seed ^ 0x6669_6c65);
        for step in &mut self.steps {
            if let Act::Operate(.., spec) = &mut step.act
                && rng.pct(20.0)
            {
                spec.kinds = Kinds::File;
            }
        }
    }

    fn add(&mut self, at_ns: u64, act: Act) {
        self.steps.push(Step { at_ns, act });
    }
}

impl Weather {
    /// What makes a network worse than most.
    fn draw_rough(&mut self, rng: &mut Rng) {
        if rng.pct(5.0) {
            self.loss_pct = 30.0;
        }
        if rng.pct(10.0) {
            self.duplicate_pct = 50.0;
        }
        if rng.pct(20.0) {
            let outwards = rng.pick(&[100_000_000, 1_000_000_000, 10_000_000_000]);
            let inwards = rng.pick(&[50_000_000, 1_000_000_000, 10_000_000_000]);
            (self.link_bits_per_s, self.inward_bits_per_s) = (outwards, inwards);
            self.link_queue_bytes = rng.pick(&[20_000, 30_000, 300_000]);
        }
    }
}

impl Operating {
    /// Long operations, many at once, or many segments.
    fn draw_large(&mut self, rng: &mut Rng, slow: bool) {
        match rng.below(3) {
            0 if !slow => {
                self.bytes = rng.range(200_000, 700_000) as u32;
                self.operations = rng.range(1, 6) as u32;
            }
            1 => {
                self.bytes = rng.range(8, 64) as u32;
                self.operations = rng.range(1, if slow { 100 } else { 1_500 }) as u32;
                self.places = rng.pick(&[64, 512, 2_048]);
                self.outstanding_max = rng.pick(&[20, 200, 2_000]);
            }
            _ => {
                self.bytes = rng.range(1_000, if slow { 3_000 } else { 20_000 }) as u32;
                // Both sides together make no more than 1,024 runs.
                self.segments_max = rng.pick(&[10, 100, 512]);
                self.operations = rng.range(1, 40) as u32;
            }
        }
    }
}
