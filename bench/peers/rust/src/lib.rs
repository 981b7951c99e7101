//! What the peers' programs share: arguments, pinning, the other process, the line of output.
#![forbid(unsafe_code)]

use rustix::thread::{CpuSet, sched_setaffinity};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Whatever goes wrong ends the program with a line on standard error.
pub type Failure = Box<dyn std::error::Error>;

/// The core of the process that was called, and of the one it starts.
pub const CORES: [usize; 2] = [0, 1];

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Half of a round trip, mean.
    HalfTrip,
    /// Messages one way, as many a second as go.
    Rate,
    /// Requests of 64 clients that are answered, as many a second as go.
    Calls,
}

/// `half-trip|rate|calls LEN COUNT [TRANSPORT]`; after that, for the process at the other end, what the first one tells it.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// What is measured.
    pub measure: Measure,
    /// Bytes in a message.
    pub len_bytes: usize,
    /// Round trips or messages that are timed.
    pub count: u64,
    /// Which way messages go.
    pub transport: String,
    /// Set in the process that was started by the first: where to find it.
    pub meet_at: Option<String>,
}

impl Arguments {
    /// Reads the command line.
    ///
    /// # Errors
    /// When it is not of the form above.
    pub fn parse(default_transport: &str) -> Result<Self, Failure> {
        let usage = || Failure::from("arguments: half-trip|rate|calls LEN COUNT [TRANSPORT]");
        let mut words = std::env::args().skip(1);
        let measure = match words.next().as_deref() {
            Some("half-trip") => Measure::HalfTrip,
            Some("rate") => Measure::Rate,
            Some("calls") => Measure::Calls,
            _ => return Err(usage()),
        };
        let len_bytes = words.next().ok_or_else(usage)?.parse()?;
        let count = words.next().ok_or_else(usage)?.parse()?;
        let transport = words.next().unwrap_or_else(|| default_transport.to_owned());
        Ok(Self { measure, len_bytes, count, transport, meet_at: words.next() })
    }

    /// Trips or messages before those that are timed: caches, page tables and branch predictors are warm afterwards.
    #[must_use]
    pub fn warm_up(&self) -> u64 {
        (self.count / 10).max(1)
    }

    /// Starts this program again as the other end.
    ///
    /// # Errors
    /// When the system can't start it.
    pub fn start_other_end(&self, meet_at: &str) -> Result<OtherEnd, Failure> {
        let measure = match self.measure {
            Measure::HalfTrip => "half-trip",
            Measure::Rate => "rate",
            Measure::Calls => "calls",
        };
        let child = Command::new(std::env::current_exe()?)
            .args([measure, &self.len_bytes.to_string(), &self.count.to_string(), &self.transport, meet_at])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(OtherEnd(child))
    }
}

/// The process at the other end; it is ended with this value, should it not have ended by itself.
#[derive(Debug)]
pub struct OtherEnd(Child);

impl OtherEnd {
    /// Waits until it has ended.
    ///
    /// # Errors
    /// When it failed.
    pub fn wait(mut self) -> Result<(), Failure> {
        let status = self.0.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the other end: {status}").into()) }
    }
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        // Fails when it has ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Binds the calling thread, and threads it starts, to one core.
///
/// # Errors
/// When this process may not use that core.
pub fn pin(core: usize) -> Result<(), Failure> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Prints the one line of output.
pub fn report(arguments: &Arguments, took: Duration) {
    let (seconds, count) = (took.as_secs_f64(), arguments.count as f64);
    match arguments.measure {
        Measure::HalfTrip => println!("{{\"value\": {:.1}, \"unit\": \"ns\"}}", seconds * 1e9 / count / 2.0),
        Measure::Rate | Measure::Calls => println!("{{\"value\": {:.0}, \"unit\": \"1/s\"}}", count / seconds),
    }
}
