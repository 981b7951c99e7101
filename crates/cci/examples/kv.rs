//! The guide's program for request and reply: a server of keys and values, and three clients.

use cci::messages::{Event, Messenger};
use cci::{Attribute, Context, Options};
use std::{collections::HashMap, error::Error, thread};

/// `key=value` sets a value. Either that or `key` returns it.
fn serve(mut messenger: Messenger, mut clients: usize) -> Result<(), Box<dyn Error>> {
    let mut values = HashMap::new();
    while clients > 0 {
        match messenger.wait(None)?.ok_or("no event")? {
            Event::ConnectRequest(request) => messenger.accept(request, 0)?,
            Event::Request(request) => {
                let text = String::from_utf8_lossy(&request).into_owned();
                text.split_once('=').map(|(key, value)| values.insert(key.to_owned(), value.to_owned()));
                match text.split('=').next().and_then(|key| values.get(key)) {
                    Some(value) => messenger.reply(request, value)?,
                    None => messenger.reply_error(request, 404, "no such key")?,
                }
            }
            Event::Disconnected { .. } => clients -= 1,
            _ => {}
        }
    }
    Ok(())
}

fn client(uri: &str, name: &str) -> Result<String, Box<dyn Error>> {
    let mut messenger = Messenger::open(Context::new()?.device_for(uri)?, Options::default())?;
    messenger.connect(uri, b"", Attribute::ReliableOrdered, 0, None)?;
    loop {
        match messenger.wait(None)?.ok_or("no event")? {
            Event::Connect { result, .. } => _ = messenger.call(result?, &format!("{name}=here"), None, 1)?,
            Event::Reply { connection, context: 1, .. } => _ = messenger.call(connection, name, None, 2)?,
            Event::Reply { result, .. } => return Ok(String::from_utf8(result?.to_vec())?),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = Messenger::open(Context::new()?.default_device(), Options::default())?;
    let uri = &server.endpoint().uri().to_owned();
    thread::scope(|scope| {
        for name in ["ann", "bob", "cy"] {
            scope.spawn(move || println!("{name}: {:?}", client(uri, name)));
        }
        serve(server, 3)
    })
}
