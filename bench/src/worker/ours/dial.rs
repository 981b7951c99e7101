//! Endpoints and the connection of a turn.

use crate::args::{By, WorkArgs};
use cci::{Attribute, Connection, Context, Endpoint, Event, Options};
use cci_measure::trouble::{Outcome, Trouble};
use cci_sys::clock;

/// Nothing is waited for longer.
const LIMIT_NS: u64 = 20_000_000_000;

/// What the library says, as trouble of the benchmark.
pub fn failed(what: &str) -> impl Fn(&dyn std::fmt::Display) -> Trouble + '_ {
    move |error| Trouble::new(format!("{what}: {error}"))
}

/// An endpoint on the device that the contestant stands for.
pub fn endpoint(args: &WorkArgs) -> Outcome<Endpoint> {
    let name = match args.by {
        By::Shm => "shm",
        By::CacheLine => return Err(Trouble::new("no device")),
    };
    let context = Context::new().map_err(|error| failed("context")(&error))?;
    let device = context.device(name).ok_or_else(|| Trouble::new(format!("no device {name}")))?;
    Endpoint::create(device, Options::default()).map_err(|error| failed(name)(&error))
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
    Err(Trouble::new(format!("{uri}: no answer")))
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
    Err(Trouble::new("nobody connects"))
}
