//! An echo server: takes every client and sends back what comes.
//!
//! `cargo run --release -p cci --example echo_server -- [DEVICE [SERVICE]]` prints its URI and serves until killed.

use cci::{Context, Endpoint, Event, Message, Options, SendError, SendFlags};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let context = Context::new()?;
    let device = match arguments.next() {
        Some(name) => context.device(&name).ok_or_else(|| format!("no device {name}"))?,
        None => context.default_device(),
    };
    let mut endpoint = Endpoint::create(device, Options::default().service(arguments.next()))?;
    println!("{}", endpoint.uri());
    loop {
        match endpoint.wait(None)? {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
            Some(Event::Recv(message)) => echo(&mut endpoint, &message)?,
            _ => {}
        }
    }
}

/// Straight from the receive buffer, which is free again when `message` is dropped.
fn echo(endpoint: &mut Endpoint, message: &Message) -> Result<(), SendError> {
    let from = message.connection();
    match endpoint.send(from, message, 0, SendFlags::SILENT) {
        Ok(()) => {}
        // The client went away, as an event is about to say.
        Err(SendError::Disconnected) => {}
        // It does not take its answers: wait for room. Others wait with it, which a server for strangers would not do.
        Err(SendError::WouldBlock) => drop(endpoint.send_blocking(from, &[message])?),
        Err(error) => return Err(error),
    }
    Ok(())
}
