//! UCX: its own `ucx_perftest`, the same two processes and cores as everybody.
//!
//! Half round trips and rates are of tagged messages, its API for messages (`tag_lat`, `tag_bw`). Beside the active messages of
//! CCS stand its own, too (`ucp_am_lat`, `ucp_am_bw`). `ucp_put_lat` is not a message: the other side reads memory that it knows
//! of, without a call of the library, and half of the time is what one cache line takes. What comes last on its line is
//! taken for all works, operations a second over the whole test: the times have three digits after the microsecond.

use super::program::Installed;
use crate::child::{self, TURN_LIMIT};
use crate::contestant::{Contestant, Role};
use crate::reading::Reading;
use crate::work::Work;
use crate::worker::partner;
use cci_measure::failure::{Failure, Outcome};
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const PERFTEST: &str = "ucx_perftest";
/// Until the server listens.
const START_LIMIT: Duration = Duration::from_secs(10);

/// UCX over one kind of transport.
pub struct Ucx {
    name: &'static str,
    set_up: &'static str,
    variables: &'static [(&'static str, &'static str)],
    test: Test,
    installed: Installed,
}

/// Which test does a work, on messages of how many bytes.
type Test = fn(Work) -> Option<(&'static str, u32)>;
/// Its two kinds of shared memory, and the other process's memory directly.
const SHARED_MEMORY: &[(&str, &str)] = &[("UCX_TLS", "posix,sysv,cma,self")];

impl Ucx {
    /// Over shared memory.
    pub fn shared_memory(installed: Installed) -> Ucx {
        let set_up = "ucx_perftest tag_lat, tag_bw, ucp_put_bw; UCX_TLS=posix,sysv,cma,self";
        Ucx { name: "UCX shm", set_up, variables: SHARED_MEMORY, test, installed }
    }

    /// Its active messages, over shared memory.
    pub fn active_messages(installed: Installed) -> Ucx {
        let set_up = "ucx_perftest ucp_am_lat, ucp_am_bw; UCX_TLS=posix,sysv,cma,self";
        Ucx { name: "UCX am shm", set_up, variables: SHARED_MEMORY, test: active_message_test, installed }
    }

    /// TCP on loopback.
    pub fn tcp(installed: Installed) -> Ucx {
        let set_up = "ucx_perftest tag_lat, tag_bw, ucp_put_bw; UCX_TLS=tcp,self";
        let variables = &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")];
        Ucx { name: "UCX tcp", set_up, variables, test, installed }
    }

    fn perftest(&self, port: u16, core: usize) -> Command {
        let mut command = Command::new(PERFTEST);
        command.args(["-p", &port.to_string(), "-c", &core.to_string()]);
        command.envs(self.variables.iter().copied());
        command
    }
}

impl Contestant for Ucx {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn role(&self) -> Role {
        Role::Peer
    }

    fn about(&self) -> Outcome<String> {
        Ok(format!("{}: {}", self.installed.version("ucx")?, self.set_up))
    }

    fn turn(&self, work: Work, count: u64) -> Outcome<Reading> {
        let (test, len) =
            (self.test)(work).ok_or_else(|| Failure::new(format!("{PERFTEST} does no {work}")))?;
        let (cores, port) = (partner::cores()?, free_port()?);
        let _server = Server::start(self.perftest(port, cores.second), port)?;
        let mut client = self.perftest(port, cores.first);
        // Only the final numbers, and those separated by commas.
        client.args(["127.0.0.1", "-f", "-v", "-t", test, "-s", &len.to_string()]);
        client.args(["-n", &count.max(1).to_string(), "-w", &(count / 10 + 1).to_string()]);
        per_second(&child::output(client, TURN_LIMIT)?)
            .map(|rate| reading(work, rate))
            .ok_or_else(|| Failure::new(format!("{PERFTEST}: no figures in what it said")))
    }
}

const fn test(work: Work) -> Option<(&'static str, u32)> {
    match work {
        Work::HalfTrip { len } => Some(("tag_lat", len)),
        Work::Rate { len } | Work::Long { len } => Some(("tag_bw", len)),
        Work::Write { len } => Some(("ucp_put_bw", len)),
        Work::Read { len } => Some(("ucp_get", len)),
        Work::FetchAdd => Some(("ucp_fadd", 8)),
        _ => None,
    }
}

const fn active_message_test(work: Work) -> Option<(&'static str, u32)> {
    match work {
        Work::HalfTrip { len } => Some(("ucp_am_lat", len)),
        Work::Rate { len } => Some(("ucp_am_bw", len)),
        _ => None,
    }
}

/// The last figure of the last line: operations a second over the whole test.
fn per_second(printed: &str) -> Option<f64> {
    // Few iterations are padded with spaces in front.
    let mut lines = printed.lines().rev().map(str::trim);
    let figures = lines.find(|line| line.starts_with(|first: char| first.is_ascii_digit()))?;
    let rate: f64 = figures.rsplit(',').next()?.parse().ok()?;
    (figures.contains(',') && rate.is_finite() && rate > 0.0).then_some(rate)
}

/// An operation of a latency test is one way, a half round trip.
fn reading(work: Work, rate: f64) -> Reading {
    Reading::of(match work {
        Work::Long { len } | Work::Write { len } | Work::Read { len } => rate * f64::from(len),
        Work::HalfTrip { .. } => 1e9 / rate,
        _ => rate,
    })
}

fn free_port() -> Outcome<u16> {
    let found = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    found.map(|address| address.port()).map_err(|error| Failure::new(format!("a free port: {error}")))
}

/// The side that answers; it ends with the turn.
struct Server(Child);

impl Server {
    /// Starts it and waits until it listens. It takes the first that connects for its client: its table of sockets is
    /// read instead.
    fn start(mut command: Command, port: u16) -> Outcome<Server> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| Failure::new(format!("{PERFTEST}: {error}")))?;
        let (mut server, started) = (Server(child), Instant::now());
        while !listens(&fs::read_to_string("/proc/net/tcp").unwrap_or_default(), port) {
            if !matches!(server.0.try_wait(), Ok(None)) {
                return Err(Failure::new(format!("{PERFTEST}: the server did not start")));
            }
            if started.elapsed() > START_LIMIT {
                return Err(Failure::new(format!("{PERFTEST}: the server does not listen")));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // By its own id; usually it is done with its client. It has a moment to take its shared memory away.
        for _ in 0..100 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether the kernel's table of TCP sockets has a listener at this port.
fn listens(table: &str, port: u16) -> bool {
    let (ending, listening) = (format!(":{port:04X}"), "0A");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _remote, state) = (words.next(), words.next(), words.next());
        local.is_some_and(|local| local.ends_with(&ending)) && state == Some(listening)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG_LAT: &str = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr\n\
                           100000,0.150,1.762,1.762,4.33,4.33,567601,567601\n";

    #[test]
    fn the_rate_over_the_whole_test_is_read() {
        assert_eq!(per_second(TAG_LAT), Some(567_601.0));
        assert_eq!(per_second("  150,5.522,5.794,5.794,1.32,1.32,172605,172605\n"), Some(172_605.0));
        let half_trip = reading(Work::HalfTrip { len: 8 }, 567_601.0).value;
        assert!((half_trip - 1762.0).abs() < 1.0, "{half_trip}");
        assert_eq!(reading(Work::Write { len: 1 << 20 }, 2_000.0).value, 2_000.0 * 1_048_576.0);
    }

    #[test]
    fn what_is_no_figure_is_none() {
        let refused =
            "[1795244883.631139] [vm:11212:0] perftest.c:405 UCX ERROR client failed. connect() failed";
        let header = TAG_LAT.lines().next().unwrap();
        for printed in ["", refused, header, "100000,0.1,0,0", "7"] {
            assert_eq!(per_second(printed), None, "{printed}");
        }
    }

    #[test]
    fn active_messages_have_tests_of_their_own() {
        assert_eq!(active_message_test(Work::HalfTrip { len: 4 }), Some(("ucp_am_lat", 4)));
        assert_eq!(active_message_test(Work::Rate { len: 8 }), Some(("ucp_am_bw", 8)));
        assert_eq!(active_message_test(Work::FetchAdd), None);
    }

    #[test]
    fn a_listener_is_found_in_the_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     \x20  0: 00000000:3457 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 9956880\n\
                     \x20  1: 0100007F:3458 0100007F:3457 01 00000000:00000000 00:00000000 00000000     0        0 9956881\n";
        assert!(listens(table, 13_399) && !listens(table, 13_400) && !listens(table, 80));
    }
}
