//! A key-value service that is killed under load and started anew, again and again, while clients work:
//! `cargo run -p cci-ripc --example restarts [RESTARTS]`.
//!
//! Each call ends in exactly one answer or error. At the end it says how long clients waited at most, and checks what they got.

use cci_ripc::{CallOptions, Event, Node, Options, ServiceName};
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NAME: &str = "kv-example";
const CLIENTS: usize = 3;

fn main() -> Result<()> {
    match env::args().nth(1).as_deref() {
        Some("serve") => serve(),
        Some("client") => client(env::args().nth(2).unwrap_or_default().parse()?),
        Some(restarts) => drive(restarts.parse()?),
        None => drive(20),
    }
}

/// Keys and values in memory. A value is the number of the client's call, so that a call carried out twice changes nothing.
fn serve() -> Result<()> {
    let mut node = Node::open(Options::default())?;
    let service = node.register(&ServiceName::new(NAME)?)?;
    let mut values: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
    loop {
        let Some(Event::Request(request)) = node.wait(service, None)? else { continue };
        let message = request.message();
        match message.item(0) {
            b"put" => {
                values.insert(message.item(1).to_vec(), message.item(2).to_vec());
                node.answer(request.ticket(), b"done")?;
            }
            b"get" => match values.get(message.item(1)) {
                Some(value) => node.answer(request.ticket(), &value[..])?,
                None => node.answer(request.ticket(), b"")?,
            },
            _ => node.refuse(request.ticket(), b"put KEY VALUE, or get KEY")?,
        }
    }
}

/// Puts and gets for some seconds. A life of the service that follows knows nothing, so a key is what was put last, or nothing.
fn client(seconds: u64) -> Result<()> {
    let mut node = Node::open(Options::default())?;
    let me = node.client()?;
    let kv = node.partner(me, &ServiceName::new(NAME)?)?;
    let key = node.name(me).map(|name| name.as_str().as_bytes().to_vec()).unwrap_or_default();
    let options = CallOptions::default().timeout(Duration::from_secs(30));
    let (began, mut calls, mut longest) = (Instant::now(), 0_u64, Duration::ZERO);
    while began.elapsed() < Duration::from_secs(seconds) {
        let asked = Instant::now();
        let value = calls.to_le_bytes();
        node.call_blocking(kv, &[&b"put"[..], &key, &value], options)?;
        let answer = node.call_blocking(kv, &[&b"get"[..], &key], options)?;
        if answer.item(0) != value && !answer.item(0).is_empty() {
            return Err(format!("call {calls}: {:?} was put, {:?} is there", value, answer.item(0)).into());
        }
        calls += 2;
        longest = longest.max(asked.elapsed());
    }
    println!("{calls} calls, each answered once; the longest pair took {} ms", longest.as_millis());
    Ok(())
}

fn drive(restarts: u32) -> Result<()> {
    let this = env::current_exe()?;
    let start = |args: &[&str]| Command::new(&this).args(args).spawn();
    let seconds = (u64::from(restarts) / 5 + 2).to_string();
    let mut service = start(&["serve"])?;
    let clients: std::io::Result<Vec<Child>> = (0..CLIENTS).map(|_| start(&["client", &seconds])).collect();
    let mut killed = 0;
    let mut clients = clients?;
    while killed < restarts && clients.iter_mut().any(|client| matches!(client.try_wait(), Ok(None))) {
        // At another point of its work each time.
        sleep(Duration::from_millis(100) + Duration::from_micros(u64::from(killed) * 977 % 60_000));
        service.kill()?;
        service.wait()?;
        service = start(&["serve"])?;
        killed += 1;
    }
    let ended: Vec<bool> =
        clients.iter_mut().map(|client| client.wait().is_ok_and(|status| status.success())).collect();
    service.kill()?;
    service.wait()?;
    println!("the service was killed and started anew {killed} times");
    if ended.iter().all(|&well| well) { Ok(()) } else { Err("a client failed".into()) }
}
