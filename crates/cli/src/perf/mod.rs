//! `cci perf`: how fast messages and remote memory are, over every device, with every byte verified.

mod child;
mod latency;
mod live;
mod machine;
mod page;
mod plain;
mod plan;
mod rate;
mod results;
mod rma;
mod table;
mod work;

use crate::args::{PerfArgs, ServeArgs};
use crate::client::Client;
use crate::devices;
use crate::failure::{Failure, Outcome};
use crate::{serve, signals, text};
use cci::{Device, TransportKind};
use cci_measure::cores::Cores;
use cci_measure::site::Site;
use child::Child;
use live::Live;
use plain::PlainSockets;
use plan::Plan;
use results::{Cell, Results, Target};
use std::path::PathBuf;
use std::time::Instant;

/// The page, unless another value is given.
const HTML_FILE: &str = "cci-perf.html";

/// Runs the subcommand.
pub fn run(args: &PerfArgs) -> Outcome {
    if args.server {
        return serve::run(&ServeArgs {
            device: one_device(args)?,
            service: args.service.clone(),
            json: args.json,
            ..ServeArgs::default()
        });
    }
    let mut plan = Plan::new(args);
    let site = if args.veth { Site::across_a_pair()? } else { Site::same_host() };
    let targets = targets(args, &site)?;
    signals::catch_interrupts()?;
    let cores = Cores::pin(!args.no_pin, args.uri.is_none())?;
    let compared = |(device, target): &(Device, Target)| {
        let name =
            PlainSockets::of(device, &site, &cores, target.uri.is_none()).map(|sockets| sockets.name());
        (device.clone(), Target { plain_sockets: name, ..target.clone() })
    };
    let targets: Vec<(Device, Target)> = targets.iter().map(compared).collect();
    let devices = || targets.iter().map(|(device, target)| (device, target.plain_sockets.is_some()));
    plan.fit(devices());
    let live = Live::new(targets.iter().map(|(device, _)| steps(&plan, device)).sum(), args.json);
    let begin = Instant::now();
    if let Some(ns) = plan.estimate_ns(devices()) {
        let (count, about) = (text::count(targets.len(), "device"), results::minutes(ns as f64 / 1e9));
        live.print(&format!(
            "{count}, about {about} on a quiet machine; Ctrl-C ends it with what was measured\n"
        ))?;
    }
    let mut results = Results::new(machine::describe(&cores, &plan), cci_measure::noise::measure(&cores));
    let before = cci_measure::noise::StealClock::start();
    for (device, target) in targets {
        if signals::interrupted() {
            break;
        }
        results.targets.push(measure(&plan, &device, target, (&cores, &site), &live)?);
    }
    live.end();
    results.interrupted = signals::interrupted();
    results.elapsed_s = begin.elapsed().as_secs_f64();
    results.noise.steal_fraction = before.stolen_fraction();
    report(args, &results)
}

/// Table or JSON, and the page; then whether all went well.
fn report(args: &PerfArgs, results: &Results) -> Outcome {
    let page = match (&args.html, args.no_html || args.json) {
        (Some(path), _) => Some(path.clone()),
        (None, true) => None,
        (None, false) => Some(PathBuf::from(HTML_FILE)),
    };
    if args.json {
        text::emit_json(results)?;
    } else {
        text::emit(table::end(results).as_bytes())?;
    }
    if let Some(path) = page {
        match text::write_file(&path, page::render(results)?.as_bytes()) {
            Ok(()) if args.json => {}
            Ok(()) => text::emit(format!("curves: {}\n", path.display()).as_bytes())?,
            Err(failure) if args.html.is_some() => return Err(failure),
            // Nobody asked for it: the measurement is what counts.
            Err(failure) => eprintln!("cci: no page with curves, {failure}"),
        }
    }
    match results.failures().as_slice() {
        [] => Ok(()),
        [one] => Err(Failure::new(one.clone())),
        [first, rest @ ..] => Err(Failure::new(format!("{first}; and {} more, listed above", rest.len()))),
    }
}

fn one_device(args: &PerfArgs) -> Outcome<Option<String>> {
    match args.device.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.clone())),
        _ => Err(Failure::usage("--server takes one --device, or none for all")),
    }
}

/// What to measure: one URI, or each device of this machine.
fn targets(args: &PerfArgs, site: &Site) -> Outcome<Vec<(Device, Target)>> {
    let context = devices::context()?;
    let target =
        |device: &Device, uri: Option<&str>| (device.clone(), Target::new(device, uri, site.is_pair()));
    if let Some(uri) = &args.uri {
        let uri = devices::resolved(uri)?;
        let device = match one_device(args)? {
            Some(name) => devices::named(&context, &name)?.clone(),
            None => devices::towards(&context, &uri)?.clone(),
        };
        return Ok(vec![target(&device, Some(&uri))]);
    }
    if !args.device.is_empty() {
        let named = args.device.iter().map(|name| Ok(target(devices::named(&context, name)?, None)));
        return named.collect();
    }
    let is_here = |device: &&Device| {
        site.has_both_sides_of(device.interface(), device.transport() != TransportKind::Eth)
    };
    let up = context.devices().iter().filter(|device| device.is_up()).filter(is_here);
    let up: Vec<_> = up.map(|device| target(device, None)).collect();
    if up.is_empty() {
        return Err(Failure::new("no device is up").remedy("`cci info` shows what each lacks"));
    }
    Ok(up)
}

/// Measurements of a device, for the progress bar.
fn steps(plan: &Plan, device: &Device) -> u64 {
    plan.message_steps(device) + rma::steps(plan, device.transport())
}

/// Measures one target; what goes wrong is a result too.
fn measure(
    plan: &Plan,
    device: &Device,
    mut target: Target,
    (cores, site): (&Cores, &Site),
    live: &Live,
) -> Outcome<Target> {
    let (begin, last) = (Instant::now(), live.steps() + steps(plan, device));
    live.doing(target.device.clone());
    if device.transport() == TransportKind::Shm {
        target.cache_line_ns = cci_measure::cache_line::half_round_trip_ns(cores);
    }
    live.device(&target)?;
    let outcome = match target.uri.clone() {
        Some(uri) => measure_at(plan, device, &uri, (cores, site), live, &mut target),
        None => Child::start(device.name(), site, cores.theirs).and_then(|child| {
            let outcome = measure_at(plan, device, child.uri(), (cores, site), live, &mut target);
            child.end();
            outcome
        }),
    };
    // What the user has ended has not failed.
    target.failure = outcome.err().filter(|_| !signals::interrupted()).map(|failure| failure.to_string());
    if let Some(failure) = &target.failure {
        live.print(&format!("  FAILED: {failure}\n"))?;
    }
    target.elapsed_s = begin.elapsed().as_secs_f64();
    live.skip_to(last);
    Ok(target)
}

fn measure_at(
    plan: &Plan,
    device: &Device,
    uri: &str,
    (cores, site): (&Cores, &Site),
    live: &Live,
    target: &mut Target,
) -> Outcome {
    let mut client = Client::open(device, uri, cores.can_spin)?;
    let sockets = PlainSockets::of(device, site, cores, target.uri.is_none());
    for &attribute in plan.attributes.iter().filter(|_| plan.with_messages) {
        let kind = attribute.short_name();
        let data = client.data(attribute).map_err(|failure| failure.of(kind))?;
        for len in plan.sizes(data.len_max)? {
            let of = |what: &str| format!("{kind}, {len} B, {what}");
            live.doing(format!("{} {}", device.name(), of("latency")));
            let latency = client.latency(plan, &data, len).map_err(|failure| failure.of(&of("latency")))?;
            live.step();
            live.doing(format!("{} {}", device.name(), of("rate")));
            let rate = client.rate(plan, &data, len).map_err(|failure| failure.of(&of("rate")))?;
            live.step();
            let plain = match &sockets {
                Some(sockets) => {
                    let (half_ns, per_s) = (latency.half_round_trip.0.p50, rate.messages_per_s);
                    sockets
                        .measure(&mut client, plan, len, half_ns, per_s)
                        .map_err(|failure| failure.of(&of("plain sockets")))?
                }
                None => None,
            };
            let cell = Cell { r#type: kind, size_bytes: len, latency, rate, plain };
            target.cells.push(cell);
            live.row(&table::messages(target), "")?;
        }
        client.close(&data);
    }
    match plan.rma_attribute() {
        Some(attribute) => rma::measure(&mut client, plan, device, attribute, (cores, site), live, target),
        None => Ok(()),
    }
}
