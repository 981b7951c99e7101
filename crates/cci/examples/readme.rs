//! The program of the README: an echo server, and a client when given the server's URI.

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::new()?;
    let device = context.default_device();
    match std::env::args().nth(1) {
        None => serve(Endpoint::create(device, Options::default())?),
        Some(uri) => ask(Endpoint::create(device, Options::default())?, &uri),
    }
}

fn serve(mut endpoint: Endpoint) -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", endpoint.uri());
    loop {
        match endpoint.wait(None)? {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
            Some(Event::Recv(message)) => endpoint.send(message.connection(), &message, 0, SendFlags::SILENT)?,
            _ => {}
        }
    }
}

fn ask(mut endpoint: Endpoint, uri: &str) -> Result<(), Box<dyn std::error::Error>> {
    endpoint.connect(uri, b"hello", Attribute::ReliableOrdered, 0, None)?;
    loop {
        match endpoint.wait(None)? {
            Some(Event::Connect { result, .. }) => endpoint.send(result?, b"ping", 1, SendFlags::NONE)?,
            Some(Event::Recv(message)) => {
                println!("{}", String::from_utf8_lossy(&message));
                return Ok(());
            }
            _ => {}
        }
    }
}
