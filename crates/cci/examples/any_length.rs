//! The guide's program for messages of any length: a server that takes them, and a client that sends one of the length it is told.

use cci::messages::{Event, Limits, Messenger};
use cci::{Attribute, Context, Endpoint, Options, SendFlags};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (uri, length) = (arguments.next(), arguments.next());
    let context = Context::new()?;
    let device = uri.as_deref().map_or(Ok(context.default_device()), |uri| context.device_for(uri))?;
    let mut messenger = Messenger::new(Endpoint::create(device, Options::default())?, Limits::default())?;
    match &uri {
        None => println!("{}", messenger.endpoint().uri()),
        Some(uri) => messenger.connect(uri, b"", Attribute::ReliableOrdered, 0, None)?,
    }
    // Where the server puts messages that are too long to come whole, one at a time.
    let space = messenger.allocate(16 << 20)?;
    let outcome = loop {
        match messenger.wait(None)?.ok_or("no event")? {
            // The server: short messages come whole, and so do long ones of up to a mebibyte. It answers with the first byte.
            Event::ConnectRequest(request) => messenger.accept(request, 0)?,
            Event::Message(message) if uri.is_none() => {
                let first = message.get(..1).unwrap_or(&[]);
                messenger.send(message.connection(), first, 0, SendFlags::SILENT)?;
            }
            // It decides where longer ones go, before a byte of them has moved, or that it does not want them.
            Event::Offer(offer) if offer.len_bytes() <= space.len() as u64 => {
                messenger.receive_into(offer, &space, 0, 0)?;
            }
            Event::Offer(offer) => messenger.refuse(offer, 413)?,
            Event::Received { offer, result: Ok(()), .. } => {
                let mut first = [0];
                assert!(space.read(0, &mut first));
                messenger.send(offer.connection(), &first, 0, SendFlags::SILENT)?;
            }
            // The client: it sends a slice, which is copied, or memory of any length, which is not.
            Event::Connect { result, .. } => {
                let picture = vec![7; length.as_deref().unwrap_or("1000000").parse()?];
                messenger.send(result?, &picture, 1, SendFlags::NONE)?;
            }
            Event::Sent { context: 1, result: Err(failure), .. } => break failure.to_string(),
            Event::Message(answer) => break format!("it began with {}", answer[0]),
            _ => {}
        }
    };
    println!("{outcome}");
    Ok(())
}
