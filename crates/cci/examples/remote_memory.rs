//! The second program of the README: a server that lends memory, and a client that writes into it when given the URI.

use cci::{Access, Attribute, Context, Endpoint, Event, Options, Segment, SendFlags};
use cci::{RegionHandle, Rma, RmaFlags, RmaKind};

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
    let memory = endpoint.allocate(1 << 20)?;
    let handle = endpoint.register(&memory, Access::WRITE)?;
    match uri {
        None => println!("{}", endpoint.uri()),
        Some(uri) => endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, None)?,
    }
    loop {
        match endpoint.wait(None)? {
            // The server lends its memory: the handle is 32 plain bytes, which a message carries.
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0)?,
            Some(Event::Accept { result, .. }) => {
                endpoint.send(result?, &handle.to_bytes(), 0, SendFlags::SILENT)?;
            }
            Some(Event::Recv(message)) => match RegionHandle::from_message(&message) {
                // The client writes 5 bytes to byte 4096 of it, and says so once they are there.
                Some(theirs) => {
                    assert!(memory.write(0, b"hello"));
                    let local = &[Segment::new(handle, 0, 5)];
                    let remote = &[Segment::new(theirs, 4096, 5)];
                    let (kind, look, flags) = (RmaKind::Write, Some(&b"look"[..]), RmaFlags::NONE);
                    let rma = Rma { kind, local, remote, message: look, context: 7, flags };
                    endpoint.rma(message.connection(), &rma)?;
                }
                // The server looks.
                None => {
                    let mut text = [0; 5];
                    assert!(memory.read(4096, &mut text));
                    println!("{}", String::from_utf8_lossy(&text));
                    return Ok(());
                }
            },
            // The client: it is done, and its own memory may change again.
            Some(Event::Send { context: 7, status, .. }) => {
                println!("{status}");
                return Ok(());
            }
            _ => {}
        }
    }
}
