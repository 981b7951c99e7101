//! What the benchmark of `bindings/jetty` has measured at one place.

use cci_measure::failure::{Failure, Outcome};
use cci_measure::statistics::{Spread, median, spread};
use serde::Deserialize;

/// Where the two sides were.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Site {
    /// On one host: RIPC over shared memory, TCP over loopback.
    Host,
    /// At the two ends of a pair of virtual Ethernet interfaces: RIPC over UDP.
    Wire,
}

impl Site {
    /// What its files are called.
    pub fn file(self, extension: &str) -> String {
        let name = match self {
            Site::Host => "host",
            Site::Wire => "wire",
        };
        format!("{name}.{extension}")
    }
}

/// One run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Readings {
    /// Where the two sides were.
    pub site: Site,
    /// When it ended.
    pub date: String,
    /// The version of Java.
    pub java: String,
    /// The version of Jetty.
    pub jetty: String,
    /// How many cores the machine has.
    pub cores: u32,
    /// How long each turn took at least.
    pub turn_ms: u32,
    /// What was fetched.
    pub lines: Vec<Line>,
}

/// One kind of fetch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The length of the file.
    pub bytes: u64,
    /// How many fetches were under way at once.
    pub at_once: u32,
    /// Whether Jetty's cache served it.
    pub is_cached: bool,
    /// By round: how often in a second memcpy, RIPC, and TCP by one or more handlers did `at_once` of them.
    pub rates: Vec<Vec<f64>>,
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// A copy of as many bytes.
    Memcpy,
    /// Jetty on RIPC.
    Ripc,
    /// Jetty on TCP, by the faster of its handlers.
    Tcp,
}

impl By {
    /// The rate in one round.
    fn rate(self, round: &[f64]) -> f64 {
        match (self, round) {
            (By::Memcpy, [rate, ..]) | (By::Ripc, [_, rate, ..]) => *rate,
            (By::Tcp, [_, _, rates @ ..]) => rates.iter().copied().fold(0.0, f64::max),
            _ => 0.0,
        }
    }
}

impl Line {
    /// Bytes in a second: the median of the rounds.
    pub fn bytes_per_second(&self, by: By) -> f64 {
        let rates: Vec<f64> = self.rates.iter().map(|round| by.rate(round)).collect();
        median(rates) * self.bytes as f64 * f64::from(self.at_once)
    }

    /// How many times as fast RIPC was, within a round.
    pub fn ratio_to(&self, by: By) -> Spread {
        let ratios = self.rates.iter().map(|round| By::Ripc.rate(round) / by.rate(round)).collect();
        spread(ratios).unwrap_or(Spread { median: 0.0, low: 0.0, high: 0.0, rounds: 0 })
    }
}

/// The readings in a file's text. Rounds that lack somebody, or say that nothing was done, are refused.
pub fn parse(text: &str) -> Outcome<Readings> {
    let readings: Readings = serde_json::from_str(text)
        .map_err(|error| Failure::new(format!("no readings of fetches: {error}")))?;
    let is_whole = |line: &Line| {
        let mut rounds = line.rates.iter();
        !line.rates.is_empty() && rounds.all(|round| round.len() >= 3 && round.iter().all(|rate| *rate > 0.0))
    };
    match readings.lines.iter().find(|line| !is_whole(line)) {
        Some(line) => Err(Failure::new(format!("the readings of {} bytes are not whole", line.bytes))),
        None => Ok(readings),
    }
}
