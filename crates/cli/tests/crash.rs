//! Processes that are killed, crash and stop at any instant, on every device: `cci soak` with such faults alone, and many of
//! them. What it checks is in `cci soak --help`; what its peers check of the memory that they lend, in `soak/peer/contents.rs`.
//!
//! `CCI_CRASH_SECONDS` says for how long, `CCI_CRASH_SEED` sets another course of things.

mod common;

use common::{folder, json};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::Command;

/// Devices whose peers are all on this machine; `@` stands for a folder with credentials.
const HERE: &[(&str, &str)] = &[
    ("shm", "transport = shm"),
    ("shm-pull", "transport = shm\ndirect = off\ncma = always"),
    ("shm-ring", "transport = shm\ndirect = off\ncma = off"),
    ("any", "transport = any\nip = 127.0.0.1"),
];
const LOOPBACK: &[(&str, &str)] = &[
    ("tcp4", "transport = tcp\nip = 127.0.0.1"),
    ("tcp-psk", "transport = tcp\nip = 127.0.0.1\nsecurity = psk\npsk_file = @/cluster.psk"),
    ("udp4", "transport = udp\nip = 127.0.0.1"),
    ("udp-bonded", "transport = udp\nip = 127.0.0.1, 127.0.0.2"),
    ("udp-psk", "transport = udp\nip = 127.0.0.1\nsecurity = psk\npsk_file = @/cluster.psk"),
    (
        "udp-certificates",
        "transport = udp\nip = 127.0.0.1\nsecurity = certificates\ncertificate = @/node1.pem\n\
         private_key = @/node1.key\nauthorities = @/authority.pem",
    ),
];
/// Raw Ethernet, with peers at both ends of a pair of interfaces.
const ETHERNET: &[(&str, &str)] = &[
    ("eth-best", "transport = eth\ninterface = wire0"),
    ("eth-packet", "transport = eth\ninterface = wire0\nmode = packet"),
    ("eth-psk", "transport = eth\ninterface = wire0\nsecurity = psk\npsk_file = @/cluster.psk"),
];
/// Through AF_XDP in the driver and no other way: there is room for one endpoint at each end.
const ETHERNET_DRIVER: &[(&str, &str)] = &[("eth-driver", "transport = eth\ninterface = wire0\nmode = xdp")];

const CREDENTIALS: &[(&str, &str)] = &[
    ("cluster.psk", "cluster = 8b1f6a6f0d1c2e0f7a5b3c4d9e8f7061524334251607f8e9dacbbcad9e8f7061\n"),
    ("authority.pem", include_str!("../../testkit/credentials/authority.pem")),
    ("node1.pem", include_str!("../../testkit/credentials/node1.pem")),
    ("node1.key", include_str!("../../testkit/credentials/node1.key")),
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// An INI file with devices, beside the credentials that they name.
fn configure(name: &str, devices: &[(&str, &str)]) -> PathBuf {
    let folder = folder(name);
    for (name, text) in CREDENTIALS {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(folder.join(name));
        file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file for this user alone");
    }
    let sections = devices.iter().map(|(name, keys)| format!("[{name}]\n{keys}\n"));
    let path = folder.join("crash.ini");
    let text = sections.collect::<String>().replace('@', folder.to_str().expect("UTF-8"));
    std::fs::write(&path, text).expect("an INI file");
    path
}

/// Adds to what `cargo xtask reliability` collects, where it does.
fn note(name: &str, value: u64) {
    let Some(path) = std::env::var_os("CCI_FIGURES") else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(format!("{name}\t{value}\n").as_bytes()))
        .expect("figures are kept");
}

/// How long peers wait for each other. On a busy machine each has the processor for a part of the time only, and none of them is to be
/// given up for that.
fn timeout_s() -> u64 {
    let load = std::fs::read_to_string("/proc/loadavg").ok();
    let load = load.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let others_per_processor = (load / processors as f64).clamp(0.0, 20.0);
    4 + others_per_processor as u64
}

/// Faults of a device after which each kind has certainly had its turn.
const FAULTS_OF_ALL_KINDS: u64 = 60;

/// What each peer is.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Peers {
    Endpoints,
    Messengers,
}

/// A busy machine has fewer faults in a time: so many times more is tried, each time for longer.
const TRIES: u64 = 4;

/// Runs soaks of killed, crashed and stopped processes on some devices at once, until each has had enough of them: all survive it.
fn survive(soak: impl Fn() -> Command, devices: &[&str], peers: usize, what: Peers, more: &[&str]) {
    let mut faults = vec![[0; 3]; devices.len()];
    for attempt in 1..=TRIES {
        for (sum, faults) in faults.iter_mut().zip(soak_once(soak(), devices, peers, what, more, attempt)) {
            sum.iter_mut().zip(faults).for_each(|(sum, faults)| *sum += faults);
        }
        let is_enough = |faults: &[u64; 3]| {
            let total: u64 = faults.iter().sum();
            total > 10 && (total < FAULTS_OF_ALL_KINDS || !faults.contains(&0))
        };
        if faults.iter().all(is_enough) {
            return;
        }
    }
    panic!("kills, crashes, stops: {faults:?} of {devices:?}");
}

/// One soak, which all survive. Returns the kills, crashes and stops of each device.
fn soak_once(
    mut soak: Command,
    devices: &[&str],
    peers: usize,
    what: Peers,
    more: &[&str],
    attempt: u64,
) -> Vec<[u64; 3]> {
    let seconds = format!("{}s", number("CCI_CRASH_SECONDS", 4) * attempt);
    let seed = number("CCI_CRASH_SEED", 20_261_122 + u64::from(what == Peers::Messengers)) + attempt - 1;
    soak.args(["soak", "--json", "--device", &devices.join(","), "--peers", &peers.to_string()]);
    soak.args(["--for", &seconds, "--seed", &seed.to_string()]);
    soak.args(["--faults", "kill,segv,stop", "--fault-every", "60ms"]);
    soak.args(["--timeout", &format!("{}s", timeout_s()), "--load", "8"]).args(more);
    let counted = match what {
        Peers::Endpoints => ["messages", "transfers", "atomics", "clean"],
        Peers::Messengers => ["messages", "transfers", "calls", "clean"],
    };
    if what == Peers::Messengers {
        soak.arg("--messengers");
    }
    let printed = json(&soak.output().expect("it runs"));
    let count = |device: &Value, of: &str, what: &str| device[of][what].as_u64().unwrap_or(0);
    let mut torn = 0;
    let devices = printed["devices"].as_array().expect("devices");
    let faults = devices.iter().map(|device| {
        assert_eq!(device["verdict"], "survived", "{device}");
        println!("{}: {} {}", device["device"], device["faults"], device["totals"]);
        for what in counted {
            assert!(count(device, "totals", what) > 10, "{what}: {device}");
        }
        if what == Peers::Endpoints && device["device"] == "shm" {
            assert!(count(device, "totals", "loans") > 0, "none was received where it was written: {device}");
        }
        note("faults.loans_with_the_dead", count(device, "totals", "loans_orphaned"));
        torn += count(device, "totals", "torn");
        note("faults.kills", count(device, "faults", "kill"));
        note("faults.crashes", count(device, "faults", "segv"));
        note("faults.stops", count(device, "faults", "stop"));
        for what in &counted[..3] {
            note("faults.operations", count(device, "totals", what));
        }
        ["kill", "segv", "stop"].map(|fault| count(device, "faults", fault))
    });
    let faults = faults.collect();
    note("faults.torn_writes", torn);
    faults
}

fn survive_configured(name: &str, devices: &[(&str, &str)], peers: usize, what: Peers) {
    let configuration = configure(name, devices);
    let soak = || {
        let mut soak = Command::new(env!("CARGO_BIN_EXE_cci"));
        soak.env("CCI_CONFIG", &configuration);
        soak
    };
    survive(soak, &devices.iter().map(|(name, _)| *name).collect::<Vec<_>>(), peers, what, &[]);
}

/// Whether this process may make interfaces.
fn is_root() -> bool {
    let is_root =
        std::fs::metadata("/proc/self").is_ok_and(|about| std::os::unix::fs::MetadataExt::uid(&about) == 0);
    if !is_root {
        println!("skipped: a pair of virtual interfaces takes root");
    }
    is_root
}

#[test]
fn crashes_harm_nobody_on_shared_memory() {
    survive_configured("crash-here", HERE, 6, Peers::Endpoints);
}

#[test]
fn crashes_harm_nobody_on_udp_and_tcp() {
    survive_configured("crash-loopback", LOOPBACK, 6, Peers::Endpoints);
}

#[test]
fn crashes_harm_nobody_on_ethernet() {
    if is_root() {
        survive_configured("crash-ethernet", ETHERNET, 6, Peers::Endpoints);
    }
}

#[test]
fn crashes_harm_nobody_on_ethernet_in_the_driver() {
    if is_root() {
        survive_configured("crash-driver", ETHERNET_DRIVER, 2, Peers::Endpoints);
    }
}

#[test]
fn crashes_harm_nobody_between_namespaces() {
    if is_root() {
        let soak = || {
            let mut soak = Command::new(env!("CARGO_BIN_EXE_cci"));
            soak.env_remove("CCI_CONFIG");
            soak
        };
        survive(soak, &["tcp", "any", "udp"], 6, Peers::Endpoints, &["--veth"]);
    }
}

#[test]
fn crashes_of_messengers_harm_nobody_on_shared_memory() {
    survive_configured("crash-messengers-here", HERE, 6, Peers::Messengers);
}

#[test]
fn crashes_of_messengers_harm_nobody_on_tcp() {
    let tcp: Vec<_> = LOOPBACK.iter().copied().filter(|(name, _)| name.starts_with("tcp")).collect();
    survive_configured("crash-messengers-tcp", &tcp, 6, Peers::Messengers);
}

#[test]
fn crashes_of_messengers_harm_nobody_on_ethernet() {
    if is_root() {
        survive_configured("crash-messengers-ethernet", ETHERNET, 6, Peers::Messengers);
    }
}

#[test]
fn crashes_of_messengers_harm_nobody_on_ethernet_in_the_driver() {
    if is_root() {
        survive_configured("crash-messengers-driver", ETHERNET_DRIVER, 2, Peers::Messengers);
    }
}
