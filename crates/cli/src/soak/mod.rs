//! `cci soak`: mixed traffic with faults for as long as asked, every byte checked, with a verdict.
//!
//! The process that is started conducts: for each device it starts peers (this program once more), does harm to some of
//! them, and judges what they report. It takes no part in the traffic.

pub mod args;
mod child;
mod faults;
mod network;
mod peer;
mod peers;
mod plan;
mod random;
mod relay;
mod scene;
mod screen;
mod status;
mod talk;
mod watch;

pub use faults::Fault;
pub use peer::run as run_peer;

use crate::failure::{Failure, Outcome};
use crate::{signals, text};
use args::SoakArgs;
use cci_measure::site::Site;
use plan::Plan;
use scene::lock;
use screen::{Screen, thousands};
use serde_json::json;
use status::{State, Status};
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How many failures of a device are printed at the end.
const FAILURES_SHOWN: usize = 4;
/// What is looked at when nothing is named.
const USUAL: [&str; 5] = ["shm", "udp", "tcp", "any", "eth"];
/// The screen is drawn so often.
const FRAME: Duration = Duration::from_millis(250);

/// Runs the subcommand.
pub fn run(args: &SoakArgs) -> Outcome {
    let seed = match args.seed {
        Some(seed) => seed,
        None => cci_sys::random::u64().map_err(|error| Failure::new(format!("a seed: {error}")))? >> 32,
    };
    let plans = plans(args, seed)?;
    let stop = signals::catch_interrupts()?;
    let begin = Instant::now();
    let mut scenes = Vec::new();
    for plan in plans {
        let status = Arc::new(Mutex::new(Status::new(plan.device.clone(), plan.site_name())));
        let (for_scene, stop) = (status.clone(), stop.clone());
        // A thread each: some enter network namespaces of their own.
        let thread = thread::Builder::new()
            .name(plan.device.clone())
            .spawn(move || scene::run(plan, &for_scene, stop))
            .map_err(|error| Failure::new(format!("a thread: {error}")))?;
        scenes.push((status, thread));
    }
    let title = Title { seed, lasts: args.r#for.into(), begin };
    let snapshot = || scenes.iter().map(|(status, _)| lock(status).clone()).collect::<Vec<_>>();
    let mut view = if args.plain || args.json || !std::io::stdout().is_terminal() {
        View::Lines { every: args.every.into(), last: begin, silent: args.json }
    } else {
        View::Screen(Screen::open()?)
    };
    while scenes.iter().any(|(_, thread)| !thread.is_finished()) {
        view.show(&title, &snapshot())?;
        thread::sleep(FRAME);
    }
    let mut all = snapshot();
    drop(view);
    for ((_, thread), status) in scenes.into_iter().zip(&mut all) {
        if thread.join().is_err() {
            status.fail("its conductor panicked; that is a defect of `cci soak`".to_owned());
            status.state = State::Failed;
        }
    }
    finish(args, &title, &all, stop.load(Ordering::Relaxed))
}

/// What is in the first line.
pub struct Title {
    /// Makes everything.
    pub seed: u64,
    /// Asked for.
    pub lasts: Duration,
    /// When it began.
    pub begin: Instant,
}

enum View {
    Screen(Screen),
    Lines { every: Duration, last: Instant, silent: bool },
}

impl View {
    fn show(&mut self, title: &Title, all: &[Status]) -> Outcome {
        match self {
            View::Screen(screen) => screen.draw(title, all),
            View::Lines { silent: true, .. } => Ok(()),
            View::Lines { every, last, .. } if last.elapsed() < *every => Ok(()),
            View::Lines { last, .. } => {
                *last = Instant::now();
                all.iter().try_for_each(|status| text::emit(line(title, status).as_bytes()))
            }
        }
    }
}

/// One device in one line.
fn line(title: &Title, status: &Status) -> String {
    let [messages, bytes, transfers, transfer_bytes, atomics] = status.now;
    format!(
        "{:>6} s {:<5} {:<8} {} peers, {} open; {} msg/s {}B/s, {} rma/s {}B/s, {} atomics/s; {} messages and {} \
         verified; {} sessions, {} broken by faults; faults: {}; {} and {} descriptors; {} failures\n",
        title.begin.elapsed().as_secs(),
        status.name,
        status.state.word(),
        status.peers,
        status.total.open,
        text::si(messages),
        text::si(bytes),
        text::si(transfers),
        text::si(transfer_bytes),
        text::si(atomics),
        thousands(status.total.messages),
        text::bytes(status.total.message_bytes + status.total.transfer_bytes),
        thousands(status.total.clean),
        status.excused,
        status.faults_text(),
        text::bytes(status.memory_bytes.last().copied().unwrap_or(0)),
        status.descriptors.last().copied().unwrap_or(0),
        status.failures.len()
    )
}

fn plans(args: &SoakArgs, seed: u64) -> Outcome<Vec<Plan>> {
    let is_root = cci_sys::process::uid() == 0;
    let usual = || USUAL.iter().filter(|name| is_root || **name != "eth").map(|name| (*name).to_owned());
    let devices: Vec<String> = if args.device.is_empty() { usual().collect() } else { args.device.clone() };
    let faults = match args.faults.as_slice() {
        [one] if one == "none" => Vec::new(),
        [one] if one == "all" => Fault::ALL.to_vec(),
        some => some
            .iter()
            .map(|name| {
                clap::ValueEnum::from_str(name, true).map_err(|_| {
                    let names: Vec<String> = Fault::ALL.iter().map(Fault::to_string).collect();
                    Failure::usage(format!("--faults {name}: no such fault"))
                        .remedy(format!("all, none, or some of {}", names.join(",")))
                })
            })
            .collect::<Outcome<_>>()?,
    };
    let plan = |(number, device): (usize, String)| {
        let (transport, on_pair) = if USUAL.contains(&device.as_str()) {
            (device.clone(), false)
        } else {
            let context = crate::devices::context()?;
            let named = crate::devices::named(&context, &device)?;
            (named.transport().name().to_owned(), named.interface() == Some(Site::INTERFACE))
        };
        // A device of the INI file's has its own address, which can't be at both ends of a wire, unless it names the wire.
        let pair = transport == "eth"
            || on_pair
            || (is_root && device == "tcp")
            || (args.veth && ["udp", "any"].contains(&device.as_str()));
        if transport == "eth" && !is_root {
            return Err(Failure::usage("raw Ethernet needs two interfaces, made here by root")
                .remedy("as root, or other devices"));
        }
        Ok(Plan {
            number,
            pair,
            relay: transport == "udp" && !pair,
            peers: args.peers,
            seed,
            load_percent: args.load,
            lasts: args.r#for.into(),
            faults: faults.clone(),
            fault_every: args.fault_every.into(),
            timeout: args.timeout.into(),
            messengers: args.messengers,
            plant: args.plant,
            device,
            transport,
        })
    };
    devices.into_iter().enumerate().map(plan).collect()
}

/// The last picture, the summary, the verdict.
fn finish(args: &SoakArgs, title: &Title, all: &[Status], interrupted: bool) -> Outcome {
    let report = as_json(args, title, all, interrupted);
    if args.json {
        text::emit_json(&report)?;
    }
    if let Some(path) = &args.json_file {
        text::write_file(path, &serde_json::to_vec_pretty(&report).unwrap_or_default())?;
    }
    if !args.json {
        text::emit(screen::picture(title, all).as_bytes())?;
    }
    let again = format!(
        "cci soak --seed {} --for {} --peers {} --load {} --faults {}",
        title.seed,
        args.r#for,
        args.peers,
        args.load,
        args.faults.join(",")
    );
    match all.iter().find(|status| !status.failures.is_empty()) {
        Some(status) => {
            let reason = status
                .failures
                .iter()
                .take(FAILURES_SHOWN)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join("\n");
            let more = status.failures.len().saturating_sub(FAILURES_SHOWN);
            Err(Failure::new(format!("{}: {reason}\n(and {more} more failures of this device)", status.name))
                .remedy(format!("{again} --device {}, which does the same at other instants", status.name)))
        }
        None if args.json => Ok(()),
        None => {
            let after = if interrupted { ", interrupted" } else { "" };
            let seconds = title.begin.elapsed().as_secs();
            let verdict = format!(
                "survived{after}: {}, {seconds} s, seed {}\n",
                text::count(all.len(), "device"),
                title.seed
            );
            text::emit(verdict.as_bytes())
        }
    }
}

fn as_json(args: &SoakArgs, title: &Title, all: &[Status], interrupted: bool) -> serde_json::Value {
    let devices = all.iter().map(|status| {
        let faults = Fault::ALL
            .iter()
            .map(|fault| (fault.to_string(), json!(status.faults.get(fault.index()).copied().unwrap_or(0))));
        json!({
            "device": status.name,
            "place": status.place,
            "verdict": status.state.word(),
            "seconds": status.elapsed.as_secs_f64(),
            "totals": status.total,
            "faults": faults.collect::<serde_json::Map<_, _>>(),
            "datagrams_spoiled": status.spoiled,
            "sessions_broken_by_faults": status.excused,
            "memory_bytes": status.memory_bytes.last(),
            "descriptors": status.descriptors.last(),
            "failures": status.failures,
        })
    });
    json!({
        "seed": title.seed,
        "asked_seconds": title.lasts.as_secs_f64(),
        "peers": args.peers,
        "load_percent": args.load,
        "interrupted": interrupted,
        "interface": Site::INTERFACE,
        "survived": all.iter().all(|status| status.failures.is_empty()),
        "devices": devices.collect::<Vec<_>>(),
    })
}
