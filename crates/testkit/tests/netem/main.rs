//! CCI over a network that really loses, delays and reorders packets: netem between two network namespaces, beside one TCP
//! plain stream in the same run. Every byte is checked.
//!
//! Few kernels have netem. Where this one has not, a virtual machine of a testbed folder runs the test instead: `CCI_TESTBED`
//! names the folder, which holds a program `guest-run SCRIPT OUT` that runs a script as root in a Linux guest that sees
//! this machine's files. Without either the test says so and does nothing. It runs if it is asked
//! for: `CCI_NETEM=short` tries little, `full` a whole table several times, and `10,5,20` a delay of 10 ms, 5 % reordered and 20 of 1,000 packets lost.
//! `CCI_NETEM_TABLE` names a file for the table.

mod contestants;
mod table;
mod weather;

use cci_testkit::figures;
use cci_testkit::net::{End, Veth, Wire};
use contestants::Contestant;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weather::Weather;

/// Where the testbed is, if not beside the project.
const TESTBED: &str = "CCI_TESTBED";
/// How much is tried: `full`, one weather, or little.
const EXTENT: &str = "CCI_NETEM";
/// Set by the test for itself, inside the guest.
const INSIDE: &str = "CCI_TEST_NETEM_INSIDE";

/// What is tried.
struct Extent {
    weathers: Vec<Weather>,
    contestants: &'static [Contestant],
    /// How often everything is done.
    rounds: u32,
    time: Duration,
}

impl Extent {
    fn asked_for() -> Extent {
        let asked = std::env::var(EXTENT).unwrap_or_default();
        let (weathers, rounds, time_ms) = match (asked.as_str(), Weather::parse(&asked)) {
            ("full", _) => (Weather::all(), 3, 1_200),
            (_, Some(one)) => (vec![one], 1, 2_500),
            _ => (Weather::few(), 1, 400),
        };
        Extent { weathers, contestants: &Contestant::ALL, rounds, time: Duration::from_millis(time_ms) }
    }

    /// The longest that all of it may take.
    fn seconds_max(&self) -> u64 {
        let runs = (self.weathers.len() * self.contestants.len()) as u64 * u64::from(self.rounds);
        60 + runs * (4 * self.time.as_millis() as u64 + 2_000) / 1_000
    }
}

#[test]
fn cci_beside_tcp_on_a_bad_network() {
    if std::env::var_os(EXTENT).is_none() {
        return println!("skipped: nobody asked for it; {EXTENT}=short does");
    }
    let extent = Extent::asked_for();
    let veth = Veth::across(&[Wire::default()]);
    let tried = veth.and_then(|veth| veth.netem(End::A, 0, "delay 1ms"));
    let Err(reason) = tried else { return table::write(&run_all(&extent)) };
    match guest_run() {
        Some(guest_run) => in_guest(&guest_run, &extent),
        None => println!("skipped: no netem here ({reason}), and no testbed with guest-run ({TESTBED})"),
    }
}

/// Not a test of its own: what the guest runs.
#[test]
fn inside_the_guest() {
    if std::env::var_os(INSIDE).is_some() {
        let _ = run_all(&Extent::asked_for());
    }
}

/// The program of the testbed that boots a guest.
fn guest_run() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/testbed");
    let folder = std::env::var_os(TESTBED).map_or_else(beside, PathBuf::from);
    Some(folder.join("guest-run")).filter(|program| program.is_file())
}

/// Boots a guest that runs this program, and says what it said.
fn in_guest(guest_run: &Path, extent: &Extent) {
    let out = std::env::temp_dir().join(format!("cci-netem-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let script = out.join("script");
    let program = std::env::current_exe().unwrap();
    let asked = std::env::var(EXTENT).unwrap_or_default();
    let text = format!(
        "#!/bin/sh\nexport {INSIDE}=1 {EXTENT}={asked} CCI_FIGURES=/mnt/figures\nexec {} --exact inside_the_guest --nocapture --test-threads=1\n",
        program.display()
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = Command::new(guest_run)
        .args([&script, &out])
        .env("GUEST_SECONDS", extent.seconds_max().to_string())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout).into_owned();
    println!("{printed}");
    let figures = std::fs::read_to_string(out.join("figures")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&out);
    if run.status.code() == Some(99) && !printed.contains("running 1 test") {
        return println!("skipped: the guest does not boot here");
    }
    assert!(run.status.success() && printed.contains("1 passed"), "{:?}", run.status);
    table::write(&printed);
    for (name, value) in figures.lines().filter_map(|line| line.split_once('\t')) {
        figures::note(name, value.parse().unwrap());
    }
}

/// All weathers, all contestants, lines for people and for the table.
fn run_all(extent: &Extent) -> String {
    let mut lines = String::new();
    for _ in 0..extent.rounds {
        for weather in &extent.weathers {
            let veth = network(*weather);
            for contestant in extent.contestants {
                let bytes_per_s = contestant.run(&veth, extent.time);
                let line = table::line(weather, *contestant, bytes_per_s);
                println!("{line}");
                lines += &line;
                lines.push('\n');
                assert!(bytes_per_s > 0.0, "{contestant:?} carries nothing at {weather:?}");
                figures::note("netem.runs", 1);
                figures::note("netem.bytes_checked", (bytes_per_s * extent.time.as_secs_f64()) as u64);
            }
        }
    }
    lines
}

fn network(weather: Weather) -> Veth {
    let veth = Veth::across(&[Wire::default()]).expect("it was had before");
    // As with a real network card: what is lost is a packet, not a train of them.
    veth.no_offload(0);
    for end in [End::A, End::B] {
        veth.netem(end, 0, &weather.netem()).expect("it was had before");
    }
    veth
}
