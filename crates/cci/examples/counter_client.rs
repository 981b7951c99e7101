//! The client of the guide: sends one message to `counter` and prints the number that comes back.

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: counter_client URI")?;
    let context = Context::new()?;
    let mut endpoint = Endpoint::create(context.device_for(&uri)?, Options::default())?;
    endpoint.connect(&uri, b"hello", Attribute::ReliableOrdered, 0, None)?;
    loop {
        match endpoint.wait(None)? {
            Some(Event::Connect { result, .. }) => endpoint.send(result?, b"ping", 1, SendFlags::NONE)?,
            Some(Event::Send { context: 1, status, .. }) => println!("the message was sent: {status}"),
            Some(Event::Recv(message)) => {
                println!("the server has counted {}", u64::from_le_bytes(message[..].try_into()?));
                return Ok(());
            }
            Some(Event::Disconnected { reason, .. }) => return Err(format!("the server: {reason}").into()),
            _ => {}
        }
    }
}
