//! Real sockets with a bad network between them: everything arrives, exactly once, in order where that was promised.

use crate::stage::PATIENCE;
use cci::{Attribute, Context, Endpoint, Options};
use cci_testkit::relay::{Relay, Weather};
use cci_testkit::traffic::Traffic;
use std::path::Path;

fn endpoint() -> Option<Endpoint> {
    let text = "[u]\ntransport = udp\nip = 127.0.0.1\nmtu = 1500\n";
    let context = Context::from_text(text, Path::new("test.ini")).unwrap();
    if !context.default_device().is_up() {
        println!("skipped: no loopback interface is up here");
        return None;
    }
    Some(Endpoint::create(context.default_device(), Options::default()).unwrap())
}

fn exchange(attribute: Attribute, weather: Weather, seed: u64) {
    let (Some(client), Some(server)) = (endpoint(), endpoint()) else { return };
    let addr = server.uri().strip_prefix("udp://").unwrap().parse().unwrap();
    let relay = Relay::start(addr, weather, seed).unwrap();
    let uri = format!("udp://{}", relay.addr());
    let mut traffic = Traffic::join_at(client, server, &uri, attribute, PATIENCE).unwrap();
    for _ in 0..8 {
        traffic.until_received(1_000);
    }
    let messages = traffic.finish();
    println!("{attribute:?}, seed {seed}: {messages} messages once, {} datagrams lost", relay.lost());
    assert!(relay.lost() > 0);
}

const BAD: Weather = Weather { lost: 50, repeated: 20, late: 50 };

#[test]
fn ordered_over_five_percent_loss() {
    for seed in 1..=3 {
        exchange(Attribute::ReliableOrdered, BAD, seed);
    }
}

#[test]
fn unordered_over_five_percent_loss() {
    for seed in 4..=6 {
        exchange(Attribute::ReliableUnordered, BAD, seed);
    }
}
