//! A key-value service that is killed under load and started anew, again and again, while clients work:
//! `cargo run -p cci-ripc --example restarts [RESTARTS]`. With `hand-over` behind that, each process passes the service and its values on to
//! the next one instead, and no call is lost.
//!
//! Each call ends in exactly one answer or error. At the end it says how long clients waited, and checks what they got.

use cci_ripc::{CallError, CallOptions, Event, Node, Options, ServiceName};
use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const NAME: &str = "kv-example";
/// Clients whose calls are repeated to the next life of the service. One more has its calls carried out once at most.
const CLIENTS: usize = 3;
/// A process is the service for so long at least.
const LIFE: Duration = Duration::from_millis(100);
/// How long a process may take to become the service.
const TAKE_OVER_LIMIT: Duration = Duration::from_secs(30);
/// A process that has handed the service over leaves when nobody has asked it for so long.
const QUIET: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve"] => serve(),
        ["client", ref options @ ..] => client(options.contains(&"once"), options.contains(&"kept")),
        [] => drive(20, false),
        [restarts] => drive(restarts.parse()?, false),
        [restarts, "hand-over"] => drive(restarts.parse()?, true),
        _ => Err("usage: restarts [RESTARTS [hand-over]]".into()),
    }
}

type Values = HashMap<Vec<u8>, Vec<u8>>;

/// Keys and values in memory, those of the process before it if that passes them on. A value is the number of the client's call, so that a
/// call carried out twice changes nothing.
fn serve() -> Result<()> {
    let mut node = Node::open(Options::default())?;
    let (service, passed_on) = node.take_over(&ServiceName::new(NAME)?, TAKE_OVER_LIMIT)?;
    println!("ready");
    let mut values = passed_on.map(|message| decode(message.item(0))).unwrap_or_default();
    let mut has_moved = false;
    loop {
        let request = match node.wait(service, has_moved.then_some(QUIET))? {
            Some(Event::Request(request)) => request,
            Some(Event::TakeOver(request)) => {
                node.hand_over(request, &encode(&values)[..])?;
                has_moved = true;
                continue;
            }
            None if has_moved => return Ok(()),
            _ => continue,
        };
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

/// Each key and each value behind its length, one byte.
fn encode(values: &Values) -> Vec<u8> {
    let words = values.iter().flat_map(|(key, value)| [key, value]);
    words.flat_map(|word| [&[word.len() as u8][..], word].concat()).collect()
}

fn decode(mut bytes: &[u8]) -> Values {
    let mut word = || {
        let (len, rest) = bytes.split_first()?;
        let (word, rest) = rest.split_at_checked(usize::from(*len))?;
        bytes = rest;
        Some(word.to_vec())
    };
    std::iter::from_fn(|| word().zip(word())).collect()
}

/// Puts and gets until standard input ends. A life of the service that follows knows nothing, so a key is what was put last, or nothing. With `once`,
/// no second life carries a call out: one that the service may have died with is lost, which is an error. With `kept`, values are passed on
/// from life to life, and what was put last is always there.
fn client(is_once: bool, is_kept: bool) -> Result<()> {
    let mut node = Node::open(Options::default())?;
    let me = node.client()?;
    let kv = node.partner(me, &ServiceName::new(NAME)?)?;
    let key = node.name(me).map(|name| name.as_str().as_bytes().to_vec()).unwrap_or_default();
    let options = CallOptions::default().timeout(Duration::from_secs(30));
    let options = if is_once { options.once() } else { options };
    let (mut answered, mut lost) = (0_u64, 0_u64);
    let mut times_us: Vec<u32> = Vec::new();
    let until = thread::spawn(|| drop(io::stdin().read_to_end(&mut Vec::new())));
    while !until.is_finished() {
        let value = (answered + lost).to_le_bytes();
        for content in [&[&b"put"[..], &key, &value][..], &[&b"get"[..], &key]] {
            let asked = Instant::now();
            match node.call_blocking(kv, content, options) {
                // Of a put that was lost, the next get may or may not find the value.
                Ok(answer) => {
                    let is_right = match answer.item(0) {
                        b"done" => true,
                        b"" => !is_kept,
                        found => found == value || lost > 0,
                    };
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

fn drive(restarts: u32, is_handed_over: bool) -> Result<()> {
    let this = env::current_exe()?;
    let start = |args: &[&str]| Command::new(&this).args(args).stdin(Stdio::piped()).spawn();
    let start_service = || Command::new(&this).arg("serve").stdout(Stdio::piped()).spawn();
    let kept = if is_handed_over { "kept" } else { "lost" };
    let mut service = start_service()?;
    if is_handed_over {
        await_ready(&mut service)?;
    }
    let repeating = (0..CLIENTS).map(|_| start(&["client", kept]));
    let clients: io::Result<Vec<Child>> = repeating.chain([start(&["client", kept, "once"])]).collect();
    for restart in 0..restarts {
        // At another point of its work each time.
        sleep(LIFE + Duration::from_micros(u64::from(restart) * 977 % 60_000));
        service = if is_handed_over {
            let mut next = start_service()?;
            await_ready(&mut next)?;
            end_of(service)?;
            next
        } else {
            service.kill()?;
            service.wait()?;
            start_service()?
        };
    }
    sleep(LIFE);
    // They end with their standard input, which waiting for them closes.
    let ended: Vec<bool> =
        clients?.iter_mut().map(|client| client.wait().is_ok_and(|status| status.success())).collect();
    service.kill()?;
    service.wait()?;
    let how = if is_handed_over { "handed over" } else { "killed and started anew" };
    println!("the service was {how} {restarts} times");
    if ended.iter().all(|&well| well) { Ok(()) } else { Err("a client failed".into()) }
}

/// Waits until a process is the service.
fn await_ready(service: &mut Child) -> Result<()> {
    let mut line = String::new();
    if let Some(output) = service.stdout.take() {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line == "ready\n" { Ok(()) } else { Err("it has not become the service".into()) }
}

/// Waits for a process that has handed the service over.
fn end_of(mut service: Child) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < TAKE_OVER_LIMIT {
        if let Some(status) = service.try_wait()? {
            return if status.success() { Ok(()) } else { Err(format!("the service: {status}").into()) };
        }
        sleep(Duration::from_millis(5));
    }
    service.kill()?;
    service.wait()?;
    Err("it goes on although it has handed the service over".into())
}
