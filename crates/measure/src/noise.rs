//! How much the machine interferes with measuring. It is shown with the results, since it decides what they are worth.

use crate::cores::Cores;
use cci_sys::{clock, cpu};
use serde::{Deserialize, Serialize};

/// How long a core is watched.
const WATCH_NS: u64 = 40_000_000;
/// Between two readings of the clock that are so far apart, something else ran.
const GAP_NS: u64 = 1_000;
/// Above these, a warning.
const NOISY_FRACTION: f64 = 0.01;
const NOISY_GAP_NS: u64 = 1_000_000;
const NOISY_STEAL: f64 = 0.005;

/// What was seen.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Reading the clock, nanoseconds.
    pub clock_read_ns: f64,
    /// Time taken away from a loop that only reads the clock, on the worse of the cores.
    pub interrupted_fraction: f64,
    /// The longest piece of it.
    pub longest_interruption_ns: u64,
    /// CPU time that the hypervisor gave to others during the whole run, if the system says so.
    pub steal_fraction: Option<f64>,
    /// Programs running or ready to run on the machine before the start, this one left out.
    pub others_running: Option<u64>,
}

impl Noise {
    /// What makes the results doubtful, if anything.
    pub fn warning(&self) -> Option<String> {
        let mut reasons = Vec::new();
        if self.interrupted_fraction > NOISY_FRACTION {
            reasons.push(format!(
                "{:.1} % of the time goes to something else",
                self.interrupted_fraction * 100.0
            ));
        }
        if self.longest_interruption_ns > NOISY_GAP_NS {
            let longest = crate::units::duration(self.longest_interruption_ns as f64);
            reasons.push(format!("it was interrupted for {longest} at once"));
        }
        if let Some(steal) = self.steal_fraction.filter(|&steal| steal > NOISY_STEAL) {
            reasons.push(format!("the hypervisor took {:.1} % of the time", steal * 100.0));
        }
        if let Some(others) = self.others_running.filter(|&others| others > 0) {
            reasons.push(match others {
                1 => "another program was running".to_owned(),
                _ => format!("{others} other programs were running"),
            });
        }
        (!reasons.is_empty()).then(|| format!("this machine is noisy: {}", reasons.join("; ")))
    }
}

/// Watches this core, and then the other one if there is one, coming back.
pub fn measure(cores: &Cores) -> Noise {
    let mut noise = Noise { others_running: others_running(), ..Noise::default() };
    watch(&mut noise);
    if let (Some(mine), Some(theirs)) = (cores.mine, cores.theirs)
        && cpu::pin(theirs).is_ok()
    {
        watch(&mut noise);
        // This core was allowed a moment ago; if it no longer is, the results are those of an unpinned process.
        let _ = cpu::pin(mine);
    }
    noise
}

fn watch(noise: &mut Noise) {
    let begin_ns = clock::now_ns();
    let (mut last_ns, mut reads, mut taken_ns) = (begin_ns, 0_u64, 0_u64);
    while last_ns - begin_ns < WATCH_NS {
        let now_ns = clock::now_ns();
        let gap_ns = now_ns - last_ns;
        if gap_ns > GAP_NS {
            taken_ns += gap_ns;
            noise.longest_interruption_ns = noise.longest_interruption_ns.max(gap_ns);
        }
        (last_ns, reads) = (now_ns, reads + 1);
    }
    let elapsed_ns = last_ns - begin_ns;
    noise.clock_read_ns = elapsed_ns.saturating_sub(taken_ns) as f64 / reads as f64;
    noise.interrupted_fraction = noise.interrupted_fraction.max(taken_ns as f64 / elapsed_ns as f64);
}

/// The fourth field of /proc/loadavg: running or ready / existing.
fn others_running() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let running: u64 = text.split_whitespace().nth(3)?.split('/').next()?.parse().ok()?;
    Some(running.saturating_sub(1))
}

/// What the hypervisor takes, from now on.
pub struct StealClock(Option<(u64, u64)>);

impl StealClock {
    /// Now.
    pub fn start() -> StealClock {
        StealClock(ticks())
    }

    /// The part of all cores' time since then that was stolen.
    pub fn stolen_fraction(&self) -> Option<f64> {
        let ((stolen_before, all_before), (stolen, all)) = (self.0?, ticks()?);
        let passed = all.saturating_sub(all_before);
        (passed > 0).then(|| stolen.saturating_sub(stolen_before) as f64 / passed as f64)
    }
}

/// Stolen and all ticks of all cores: the first line of /proc/stat.
fn ticks() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let fields: Vec<u64> = line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
    Some((*fields.get(7)?, fields.iter().sum()))
}
