//! Publish and subscribe by the number of a group. In some terminals: `cargo run -p cci-ripc --example news -- subscribe`. Then in another one:
//! `cargo run -p cci-ripc --example news -- publish 2 "first" "second"`, where 2 is the number of subscribers to wait for.
//!
//! Nobody is in the middle: each member of a group sends to the others, and hears of those who join within some tenths of a second.

use cci_ripc::{Event, Node, Options, Service, ServiceName};
use std::env;
use std::error::Error;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The number of the group. Programs in C join it by `ripc_register_multicast_service_id(30)`.
const GROUP: u16 = 30;
/// What subscribers end at.
const END: &[u8] = b"end";
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let mut node = Node::open(Options::default())?;
    let member = node.join(&ServiceName::number(GROUP))?;
    match words.split_first() {
        Some((role, [])) if role == "subscribe" => subscribe(&mut node, member),
        Some((role, [others, texts @ ..])) if role == "publish" => {
            publish(&mut node, member, others.parse()?, texts)
        }
        _ => Err("news subscribe, or news publish SUBSCRIBERS TEXT…".into()),
    }
}

/// Prints what others publish.
fn subscribe(node: &mut Node, member: Service) -> Result<()> {
    println!("listening");
    loop {
        let Some(Event::Message(message)) = node.wait(member, None)? else { continue };
        match message.item(0) {
            // Somebody has looked who is there.
            b"" => {}
            END => return Ok(()),
            text => println!("{}", String::from_utf8_lossy(text)),
        }
    }
}

/// Waits until so many others are members, and publishes.
fn publish(node: &mut Node, member: Service, others: usize, texts: &[String]) -> Result<()> {
    let began = Instant::now();
    while node.publish(member, &[])? < others {
        if began.elapsed() > PATIENCE {
            return Err(format!("there are fewer than {others} subscribers").into());
        }
        let _heard = node.wait(member, Some(Duration::from_millis(50)))?;
    }
    let texts = texts.iter().map(|text| text.as_bytes());
    for text in texts.chain([END]) {
        let sent_to = node.publish(member, &[text])?;
        println!("sent to {sent_to}: {}", String::from_utf8_lossy(text));
    }
    // What was sent leaves as long as the node lives.
    let _last = node.wait(member, Some(Duration::from_millis(500)))?;
    Ok(())
}
