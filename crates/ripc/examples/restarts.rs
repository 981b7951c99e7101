//! A key-value service that is killed under load and started anew, again and again, while clients work:
//! `cargo run -p cci-ripc --example restarts [RESTARTS]`.
//!
//! Each call ends in exactly one answer or error. At the end it says how long clients waited, and checks what they got.

use cci_ripc::{CallError, CallOptions, Event, Node, Options, ServiceName};
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NAME: &str = "kv-example";
/// Clients whose calls are repeated to the next life of the service. One more has its calls carried out once at most.
const CLIENTS: usize = 3;

fn main() -> Result<()> {
    match env::args().nth(1).as_deref() {
        Some("serve") => serve(),
        Some("client") => {
            client(env::args().nth(2).unwrap_or_default().parse()?, env::args().nth(3).is_some())
        }
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

/// Puts and gets for some seconds. A life of the service that follows knows nothing, so a key is what was put last, or nothing. With `once`,
/// no second life carries a call out: one that the service may have died with is lost, which is an error.
fn client(seconds: u64, is_once: bool) -> Result<()> {
    let mut node = Node::open(Options::default())?;
    let me = node.client()?;
    let kv = node.partner(me, &ServiceName::new(NAME)?)?;
    let key = node.name(me).map(|name| name.as_str().as_bytes().to_vec()).unwrap_or_default();
    let options = CallOptions::default().timeout(Duration::from_secs(30));
    let options = if is_once { options.once() } else { options };
    let (began, mut answered, mut lost) = (Instant::now(), 0_u64, 0_u64);
    let mut times_us: Vec<u32> = Vec::new();
    while began.elapsed() < Duration::from_secs(seconds) {
        let value = (answered + lost).to_le_bytes();
        for content in [&[&b"put"[..], &key, &value][..], &[&b"get"[..], &key]] {
            let asked = Instant::now();
            match node.call_blocking(kv, content, options) {
                // Of a put that was lost, the next get may or may not find the value.
                Ok(answer) => {
                    let is_right =
                        matches!(answer.item(0), b"done" | b"") || answer.item(0) == value || lost > 0;
                    if !is_right {
                        return Err(format!("{value:?} was put, {:?} is there", answer.item(0)).into());
                    }
                    answered += 1;
                }
                Err(CallError::Lost) if is_once => lost += 1,
                Err(error) => return Err(error.into()),
            }
            times_us.push(u32::try_from(asked.elapsed().as_micros())?);
        }
    }
    times_us.sort_unstable();
    let at = |percent: usize| times_us.get(times_us.len() * percent / 100).copied().unwrap_or_default();
    println!(
        "{} calls, each ended once: {answered} answered, {lost} lost; half of them within {} us, 99 of 100 within {} us, all within {} ms",
        answered + lost,
        at(50),
        at(99),
        times_us.last().copied().unwrap_or_default() / 1_000
    );
    Ok(())
}

fn drive(restarts: u32) -> Result<()> {
    let this = env::current_exe()?;
    let start = |args: &[&str]| Command::new(&this).args(args).spawn();
    let seconds = (u64::from(restarts) / 5 + 2).to_string();
    let mut service = start(&["serve"])?;
    let repeating = (0..CLIENTS).map(|_| start(&["client", &seconds]));
    let clients: std::io::Result<Vec<Child>> =
        repeating.chain([start(&["client", &seconds, "once"])]).collect();
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
