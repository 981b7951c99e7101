//! Endpoints and the connection of a turn.

use crate::args::{By, WorkArgs};
use crate::work::Placement;
use cci::{Attribute, Connection, Context, Device, Endpoint, Event, Options, TransportKind};
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;
use std::net::Ipv4Addr;

/// Nothing is waited for longer.
const LIMIT_NS: u64 = 20_000_000_000;

/// What the library says, as a failure of the benchmark.
pub fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> Failure + '_ {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// An endpoint on the device that the contestant stands for, with the default options.
pub fn endpoint(args: &WorkArgs) -> Outcome<Endpoint> {
    endpoint_with(args, Options::default())
}

/// Opens the endpoint of this side with options other than the defaults.
pub fn endpoint_with(args: &WorkArgs, options: Options) -> Outcome<Endpoint> {
    let context = Context::new().map_err(|error| failed("context")(&error))?;
    let device = device(&context, args)?;
    Endpoint::create(device, options).map_err(|error| failed(device.name())(&error))
}

/// The device that the contestant stands for.
pub fn device<'a>(context: &'a Context, args: &WorkArgs) -> Outcome<&'a Device> {
    let kind = match args.by {
        By::Shm | By::ShmForeign | By::ShmLocked | By::ShmHandle | By::ServicesShm => TransportKind::Shm,
        By::Udp | By::UdpLocked | By::UdpHandle | By::ServicesUdp => TransportKind::Udp,
        By::Tcp | By::TcpHandle | By::ServicesTcp => TransportKind::Tcp,
        By::Eth => TransportKind::Eth,
        By::Any => TransportKind::Any,
        By::CacheLine
        | By::PlainUdp
        | By::PlainTcp
        | By::PlainXdp
        | By::Memcpy
        | By::Pages
        | By::ProcessVm
        | By::Eventfd
        | By::Futex
        | By::Ranks
        | By::Acp
        | By::AcpUdp
        | By::Job => {
            return Err(Failure::new("no device of CCI's"));
        }
    };
    let found = context.devices().iter().find(|device| device.transport() == kind && is_at(device, args));
    found.ok_or_else(|| Failure::new(format!("no {} device here", kind.name())))
}

/// Loopback, or the pair: each of its namespaces has only that.
fn is_at(device: &Device, args: &WorkArgs) -> bool {
    match (device.transport(), args.placement) {
        (TransportKind::Shm | TransportKind::Any, _) => true,
        (TransportKind::Eth, _) => device.interface() != Some("lo"),
        (_, Placement::SameHost) => device.ip() == Some(Ipv4Addr::LOCALHOST.into()),
        (_, Placement::VirtualPair) => device.ip().is_some_and(|ip| ip.is_ipv4() && !ip.is_loopback()),
    }
}

/// Connects, and waits for the answer.
pub fn connect(endpoint: &mut Endpoint, uri: &str, attribute: Attribute) -> Outcome<Connection> {
    endpoint.connect(uri, b"", attribute, 0, None).map_err(|error| failed(uri)(&error))?;
    let until_ns = clock::now_ns() + LIMIT_NS;
    while clock::now_ns() < until_ns {
        if let Some(Event::Connect { result, .. }) = endpoint.next_event() {
            return result.map_err(|error| failed(uri)(&error));
        }
    }
    Err(Failure::new(format!("{uri}: no answer")))
}

/// Accepts the first request.
pub fn accept(endpoint: &mut Endpoint) -> Outcome<Connection> {
    let until_ns = clock::now_ns() + LIMIT_NS;
    while clock::now_ns() < until_ns {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => {
                endpoint.accept(request, 0).map_err(|error| failed("accept")(&error))?;
            }
            Some(Event::Accept { result, .. }) => return result.map_err(|error| failed("accept")(&error)),
            _ => {}
        }
    }
    Err(Failure::new("nobody connects"))
}
