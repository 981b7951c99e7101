//! `cci serve`: the other side of `cci ping` and `cci perf`, on every device that is up or on one.

mod lending;
mod server;
mod session;

use crate::args::ServeArgs;
use crate::devices;
use crate::dial;
use crate::failure::{Failure, Outcome};
use crate::signals;
use crate::text;
use cci::{Device, Endpoint, Options, TransportKind};
use serde_json::json;
use server::Server;
use std::io::Read;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A silent peer is taken for gone after this long.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long the servers may take to end after the parent process did.
const ENDING: Duration = Duration::from_secs(2);

/// Runs the subcommand: until it is interrupted, or until standard input closes if that is asked for.
pub fn run(args: &ServeArgs) -> Outcome {
    // A child is ended by its parent, and by nobody's Ctrl-C.
    let stop = if args.lifeline { Arc::default() } else { signals::catch_interrupts()? };
    if args.lifeline {
        let stop = stop.clone();
        // Before pinning: this thread inherits nothing.
        thread::spawn(move || end_with_parent(&stop));
    }
    if let Some(core) = args.core {
        cci_sys::cpu::pin(core)
            .map_err(|error| Failure::from(error).remedy("a --core that `taskset -p $$` allows, or none"))?;
    }
    let servers = open(args)?;
    for server in &servers {
        announce(args, server)?;
    }
    if !args.json && !args.lifeline {
        eprintln!(
            "ready: `cci ping URI` or `cci perf URI`, with a URI from above, in another terminal; Ctrl-C ends this"
        );
    }
    serve(servers, &stop)
}

/// One server for each device. Without `--device`, those that can't be opened are reported and left out.
fn open(args: &ServeArgs) -> Outcome<Vec<Server>> {
    let context = devices::context()?;
    let server = |device: &Device, service: Option<String>| -> Outcome<Server> {
        // A core was chosen for us alone; being pinned, we would not see that there are others.
        let can_spin = args.core.is_some() || cci_sys::cpu::available() >= 2;
        let options = Options::default().service(service).keepalive(KEEPALIVE);
        Ok(Server::new(dial::open(device, options)?, !args.lifeline && !args.json, can_spin, args.lifeline))
    };
    if let Some(name) = &args.device {
        return Ok(vec![server(devices::named(&context, name)?, args.service.clone())?]);
    }
    let (mut servers, mut need_number) = (Vec::new(), Vec::new());
    for device in context.devices() {
        let service = match (&args.service, device.transport()) {
            // It listens on ports and names of its own: those asked for are the other devices'.
            (_, TransportKind::Any) | (None, _) => None,
            (Some(name), kind) if kind != TransportKind::Shm && name.parse::<u32>().is_err() => {
                need_number.push(device.name());
                continue;
            }
            (Some(service), _) => Some(service.clone()),
        };
        match server(device, service) {
            Ok(server) => servers.push(server),
            Err(failure) => eprintln!("left out: {failure}"),
        }
    }
    if let (Some(service), [_, ..]) = (&args.service, need_number.as_slice()) {
        let names = need_number.join(", ");
        eprintln!("left out: {names} (a service there is a number, which {service:?} is not)");
    }
    if servers.is_empty() {
        return Err(Failure::new("no device can be served").remedy("`cci info` shows what each lacks"));
    }
    Ok(servers)
}

fn announce(args: &ServeArgs, server: &Server) -> Outcome {
    let endpoint: &Endpoint = server.endpoint();
    let (device, uri) = (endpoint.device().name(), endpoint.uri());
    let line = if args.json {
        json!({ "device": device, "uri": uri }).to_string()
    } else {
        format!("{device}  {uri}")
    };
    text::emit(format!("{line}\n").as_bytes())
}

/// One thread for each server; one that fails ends them all.
fn serve(mut servers: Vec<Server>, stop: &AtomicBool) -> Outcome {
    let Some(mut first) = servers.pop() else { return Ok(()) };
    let watched = |server: &mut Server| {
        let outcome = server.run(stop);
        stop.store(true, Ordering::Relaxed);
        outcome
    };
    thread::scope(|scope| {
        let others: Vec<_> = servers.iter_mut().map(|server| scope.spawn(|| watched(server))).collect();
        let mut outcome = watched(&mut first);
        for other in others {
            let ended = other.join().unwrap_or_else(|_| Err(Failure::new("a server thread failed")));
            outcome = outcome.and(ended);
        }
        outcome
    })
}

/// A parent that ends, in whatever way, closes our standard input.
fn end_with_parent(stop: &AtomicBool) {
    let mut ignored = [0; 64];
    while matches!(std::io::stdin().read(&mut ignored), Ok(1..)) {}
    stop.store(true, Ordering::Relaxed);
    thread::sleep(ENDING);
    process::exit(0);
}
