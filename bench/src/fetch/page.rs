//! The page: a table and a plot for each place.

use super::FOLDER;
use super::readings::{By, Line, Readings, Site};
use crate::reading::Unit;
use crate::report::figures;
use cci_measure::table::markdown;
use cci_measure::units;

/// From so many bytes on, on one host, a fetch is measured by memcpy, too.
const COPIED_BYTES_MIN: u64 = 1 << 20;
/// The goals on one host, for these and for many short ones at once: so many times TCP, or so many times memcpy.
const TIMES_TCP: f64 = 3.0;
const TIMES_MEMCPY: f64 = 0.8;

const HEAD: &str = "\
# Jetty on RIPC and on TCP

One Jetty serves the same files over both, in a process of its own, and a client fetches them: over TCP by Jetty's own connector, through a blocking socket; over RIPC by `ServiceConnector`, through a `ServiceChannel`. Server and client have a core each. That is figure 3 of the paper
that put a web server on libRIPC. TCP has the faster of Jetty's handlers, one that reads files and one that maps them. All take turns in each round, one soon after the other; a ratio is of two rates of one round, and given are the
median of the rounds and, in brackets, between which bounds the middle half of them lies. Above 1, RIPC is faster. Compare ratios: rates belong to one machine and one hour.

Written by `cargo xtask bench fetch --write`, of the readings in [jetty](jetty). To measure anew, on a machine that does nothing else (the second one as root):

```sh
mvn -q -f bindings install -DskipTests
mvn -q -f bindings/jetty test-compile exec:exec@bench -Dout=/tmp/host.json
mvn -q -f bindings/jetty test-compile exec:exec@bench -Dwire=true -Dout=/tmp/wire.json
cargo xtask bench fetch /tmp/host.json /tmp/wire.json --write
```
";

/// All of it.
pub fn page(all: &[Readings]) -> String {
    let mut out = HEAD.to_owned();
    for readings in all {
        out += &section(readings);
    }
    out
}

fn section(readings: &Readings) -> String {
    let (title, about) = match readings.site {
        Site::Host => (
            "One host",
            "RIPC over shared memory, TCP over loopback. Goals: never slower than TCP; from 1 MiB on three times as fast, or 0.8 times as fast as memcpy; three times as fast where 64 files are fetched at once.",
        ),
        Site::Wire => (
            "Across a virtual wire",
            "Server and client are in network namespaces of their own, which a pair of virtual Ethernet interfaces joins. RIPC goes over UDP. Goal: as fast as TCP.",
        ),
    };
    let rounds = readings.lines.first().map_or(0, |line| line.rates.len());
    let met = readings.lines.iter().filter(|line| is_met(readings.site, line)).count();
    format!(
        "\n## {title}\n\n{about} {met} of {} met.\n\nJetty {}, Java {}, {}, {rounds} rounds of turns of {} ms, {}.\n\n![Bytes a second by the length of the file]({FOLDER}/{})\n\n{}",
        readings.lines.len(),
        readings.jetty,
        readings.java,
        units::count(readings.cores as usize, "core"),
        readings.turn_ms,
        readings.date.split('T').next().unwrap_or_default(),
        readings.site.file("svg"),
        markdown(
            &["file", "cache", "RIPC", "TCP", "RIPC ÷ TCP", "RIPC ÷ memcpy", ""],
            readings.lines.iter().map(|line| row(readings.site, line)),
        ),
    )
}

fn row(site: Site, line: &Line) -> Vec<String> {
    let what = match line.at_once {
        1 => units::bytes(line.bytes),
        many => format!("{many} at once of {}", units::bytes(line.bytes)),
    };
    vec![
        what,
        if line.is_cached { "yes" } else { "no" }.to_owned(),
        rate(line.bytes_per_second(By::Ripc)),
        rate(line.bytes_per_second(By::Tcp)),
        figures::ratio(&line.ratio_to(By::Tcp)),
        if is_copied(line) { figures::ratio(&line.ratio_to(By::Memcpy)) } else { "–".to_owned() },
        if is_met(site, line) { "met" } else { "**not met**" }.to_owned(),
    ]
}

/// Such as "1.28 GB/s".
pub fn rate(bytes_per_second: f64) -> String {
    figures::value(Unit::BytesPerSecond, bytes_per_second)
}

/// Whether memcpy says something of it.
fn is_copied(line: &Line) -> bool {
    line.at_once == 1 && line.bytes >= COPIED_BYTES_MIN
}

fn is_met(site: Site, line: &Line) -> bool {
    let to_tcp = line.ratio_to(By::Tcp).median;
    match site {
        Site::Wire => to_tcp >= 1.0,
        Site::Host if line.at_once > 1 => to_tcp >= TIMES_TCP,
        Site::Host if is_copied(line) => {
            to_tcp >= TIMES_TCP || line.ratio_to(By::Memcpy).median >= TIMES_MEMCPY
        }
        Site::Host => to_tcp >= 1.0,
    }
}
