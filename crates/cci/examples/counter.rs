//! The server of the guide: counts each client's messages and tells it the number.

use cci::{Connection, Context, Endpoint, Event, Options, SendError, SendFlags};
use std::collections::HashMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let context = Context::new()?;
    let options = Options::default().service("counter".to_owned());
    let mut endpoint = Endpoint::create(context.default_device(), options)?;
    let mut seen: HashMap<Connection, u64> = HashMap::new();
    println!("{}", endpoint.uri());
    loop {
        match endpoint.wait(None)? {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
            Some(Event::Recv(message)) => {
                let from = message.connection();
                let count = seen.entry(from).or_default();
                *count += 1;
                match endpoint.send(from, &count.to_le_bytes(), 0, SendFlags::SILENT) {
                    // A client that went away is reported by the event below.
                    Ok(()) | Err(SendError::Disconnected) => {}
                    Err(error) => eprintln!("{error}"),
                }
            }
            // Exactly once for each client, after its last message, whether it has closed, died or fallen silent.
            Some(Event::Disconnected { connection, .. }) => drop(seen.remove(&connection)),
            _ => {}
        }
    }
}
