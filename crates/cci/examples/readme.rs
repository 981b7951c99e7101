//! The program of the README: an echo server, and a client when given the server's URI.

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut endpoint = Endpoint::create(Context::new()?.default_device(), Options::default())?;
    match std::env::args().nth(1) {
        None => println!("{}", endpoint.uri()),
        Some(uri) => endpoint.connect(&uri, b"hello", Attribute::ReliableOrdered, 0, None)?,
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
