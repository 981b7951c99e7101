//! One endpoint that everybody connects to, and workers, each with an endpoint and a thread of its own, that take the
//! connections in turn. A connection belongs to its worker from the start: no message passes through the broker.
//!
//! `cargo run --release -p cci --example broker -- [WORKERS]` prints its URI and serves until killed; `echo_client` is
//! a client for it.

use cci::{Context, Endpoint, Event, Options, SendError, SendFlags, SharedEndpoint};
use std::error::Error;
use std::thread;

fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(2), |count| count.parse())?;
    let context = Context::new()?;
    let device = context.default_device();
    let mut broker = Endpoint::create(device, Options::default())?;
    // Shared: the broker accepts on a worker's endpoint while the worker waits there.
    let open = |_| Endpoint::create(device, Options::default()).map(SharedEndpoint::new);
    let workers = (0..count).map(open).collect::<Result<Vec<_>, _>>()?;
    for endpoint in workers.clone() {
        thread::spawn(move || {
            if let Err(error) = work(&endpoint) {
                eprintln!("a worker ended: {error}");
            }
        });
    }
    println!("{}", broker.uri());
    let mut next = workers.iter().enumerate().cycle();
    loop {
        if let Some(Event::ConnectRequest(request)) = broker.wait(None)?
            && let Some((at, worker)) = next.next()
            // The event comes to the worker. If this fails, the client is told that it was refused.
            && let Err(error) = worker.accept(request, at as u64)
        {
            eprintln!("a client could not be taken: {error}");
        }
    }
}

fn work(endpoint: &SharedEndpoint) -> Result<(), Box<dyn Error>> {
    loop {
        match endpoint.wait(None)? {
            Some(Event::Accept { context, .. }) => eprintln!("worker {context} has a client"),
            Some(Event::Recv(message)) => {
                let from = message.connection();
                match endpoint.send(from, &message, 0, SendFlags::SILENT) {
                    Err(SendError::Disconnected) => {}
                    other => other?,
                }
            }
            _ => {}
        }
    }
}
