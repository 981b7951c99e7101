//! The program of the README: an echo server, and a client when given the server's URI.

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::new()?;
    let argument = std::env::args().nth(1);
    let uri = argument.as_deref().filter(|text| text.contains("://"));
    let device = match (uri, &argument) {
        (Some(uri), _) => context.device_for(uri)?,
        (None, Some(name)) => context.device(name).ok_or("no such device: `cci info` lists them")?,
        (None, None) => context.default_device(),
    };
    let mut endpoint = Endpoint::create(device, Options::default())?;
    match uri {
        None => println!("{}", endpoint.uri()),
        Some(uri) => endpoint.connect(uri, b"hello", Attribute::ReliableOrdered, 0, None)?,
    }
    loop {
        match endpoint.wait(None)? {
            // The server: takes every client, and sends back what comes.
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
            Some(Event::Recv(message)) if *message == *b"ping" => {
                endpoint.send(message.connection(), b"pong", 0, SendFlags::SILENT)?;
            }
            // The client: asks, and prints the answer.
            Some(Event::Connect { result, .. }) => endpoint.send(result?, b"ping", 1, SendFlags::NONE)?,
            Some(Event::Recv(message)) => {
                println!("{}", String::from_utf8_lossy(&message));
                return Ok(());
            }
            _ => {}
        }
    }
}
