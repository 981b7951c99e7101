//! A process of the same user that is not of the job knows where the ranks are, and gets nothing of their memory, while they work on.
#![cfg(feature = "sealing")]
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod roles;

use cci::{Attribute, Context, Device, Endpoint, Event, Options};
use cci_acp::{GlobalMemory, Order};
use cci_job::{Connections, Job, Ranks};
use roles::draw::Draw;
use roles::{DEVICE, ROLE, close, launch, role};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use std::{env, fs};

const STARTER_BYTES: usize = 16_384;
/// What every rank's memory is full of, beside two words.
const SECRET: &[u8] = b"what only the ranks know";
const WORDS_BYTES: usize = 48;
/// Where the ranks are.
const URIS: &str = "CCI_TEST_URIS";
/// How long the attempt of a process without the key lasts. Nobody answers it.
const REFUSED_AFTER: Duration = Duration::from_millis(200);
/// How long nothing comes back.
const SILENCE: Duration = Duration::from_millis(200);
/// Events of an attempt to connect come sooner.
const LIMIT: Duration = Duration::from_secs(30);
const DATAGRAMS: usize = 2_000;
const STREAMS: usize = 20;

/// Not a test where nothing has started it: what ranks do, and the process that is none.
#[test]
fn as_a_rank() {
    match env::var(ROLE).as_deref() {
        Ok("rank") => rank(),
        Ok("stranger") => stranger(),
        _ => {}
    }
}

fn device() -> Device {
    Context::new().unwrap().device(&env::var(DEVICE).unwrap()).unwrap().clone()
}

/// Copies numbers through the other rank's memory, for as long as the stranger runs.
fn rank() {
    let mut job = Job::join().unwrap();
    let mut ranks = Ranks::open(&mut job, &device(), Options::default()).unwrap();
    let uri = ranks.endpoint().uri().to_owned();
    let mut global = GlobalMemory::over(ranks, STARTER_BYTES, 1 << 20).unwrap();
    let uris = job.exchange(uri.as_bytes()).unwrap();
    let secret: Vec<u8> = SECRET.iter().copied().cycle().take(STARTER_BYTES - WORDS_BYTES).collect();
    assert!(global.starter_memory().write(WORDS_BYTES, &secret));
    global.sync().unwrap();
    let mut number = 0_u64;
    if global.rank() == 0 {
        let uris: Vec<&str> = uris.iter().map(|uri| str::from_utf8(uri).unwrap()).collect();
        let mut stranger = role("stranger", "")();
        for (name, _) in env::vars().filter(|(name, _)| name.starts_with("CCI_JOB_")) {
            stranger.env_remove(name);
        }
        stranger.env(URIS, uris.join(" ")).env(DEVICE, env::var(DEVICE).unwrap());
        let mut stranger = stranger.spawn().unwrap();
        let [own, other] = [0, 1].map(|rank| global.starter(rank).unwrap());
        let word = |at| own.checked_add(at).unwrap();
        while number < 100 || stranger.try_wait().unwrap().is_none() {
            number += 1;
            assert!(global.starter_memory().write(8, &number.to_ne_bytes()));
            global.copy(other, word(8), 8, Order::All).unwrap();
            global.copy(word(16), other, 8, Order::All).unwrap();
            global.complete_all().unwrap();
            let mut found = [0; 8];
            assert!(global.starter_memory().read(16, &mut found));
            assert_eq!(u64::from_ne_bytes(found), number);
        }
        assert!(stranger.wait().unwrap().success());
    }
    let number = global.broadcast(0, number).unwrap();
    let mut found = vec![0; STARTER_BYTES];
    assert!(global.starter_memory().read(0, &mut found));
    assert!(found[WORDS_BYTES..] == secret, "nobody has written to it");
    if global.rank() == 1 {
        assert_eq!(found[..8], number.to_ne_bytes());
    }
    assert_no_shared_files();
    close(global);
}

/// What this process shares with others has no name that one could open: it is memory without a file, or files that are mapped to be read.
fn assert_no_shared_files() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.ends_with('s')))
    {
        let path = line.split_whitespace().nth(5).unwrap_or_default();
        let is_open = path.starts_with('/') && !path.starts_with("/memfd:") && !line.ends_with("(deleted)");
        assert!(!is_open, "{line}");
    }
}

fn assert_knows_nothing(bytes: &[u8]) {
    assert!(!bytes.windows(8).any(|window| SECRET.starts_with(window)), "memory of a rank");
}

fn stranger() {
    let device = device();
    // No launcher has started it: it is a job of its own, with another key.
    let own_job = Job::join().unwrap();
    let with_key = Connections::options(&own_job, &device, Options::default()).unwrap();
    let uris = env::var(URIS).unwrap();
    for (rank, uri) in (0_u32..).zip(uris.split(' ')) {
        for options in [Options::default(), with_key.clone()] {
            refused(&device, options, uri, 1 - rank);
        }
        for part in uri.trim_start_matches("any://").split(',') {
            let part = part.replace("://", "=");
            if let Some(place) = part.strip_prefix("udp=") {
                datagrams(place);
            } else if let Some(place) = part.strip_prefix("tcp=") {
                streams(place);
            }
        }
    }
}

/// Connects as a program of the library's, once as if it were a rank, and is refused each time.
fn refused(device: &Device, options: Options, uri: &str, as_rank: u32) {
    let mut endpoint = Endpoint::create(device, options).unwrap();
    // What ranks say, with another job's random number, for a connection that there is not yet.
    let hello = [b"cci-job\x01", &[7; 16][..], &as_rank.to_le_bytes(), &[5, 0]].concat();
    for words in [b"", &hello[..]] {
        endpoint.connect(uri, words, Attribute::ReliableOrdered, 0, Some(REFUSED_AFTER)).unwrap();
        let begun = Instant::now();
        let result = loop {
            assert!(begun.elapsed() < LIMIT, "an attempt to connect ends");
            if let Some(Event::Connect { result, .. }) = endpoint.next_event() {
                break result;
            }
        };
        assert!(result.is_err(), "{uri} has taken a stranger in");
    }
}

/// What an endpoint without the key says first, of which all that follows is made.
fn first_words(transport: &str, record: impl FnOnce(&mut dyn FnMut(String)) -> Vec<u8>) -> Vec<u8> {
    let context = Context::new().unwrap();
    let mut dialer =
        Endpoint::create(context.device(&format!("{transport}-lo")).unwrap(), Options::default()).unwrap();
    record(&mut |uri| {
        dialer.connect(&uri, b"", Attribute::ReliableOrdered, 0, Some(REFUSED_AFTER)).unwrap();
        while dialer.next_event().is_none() {
            std::thread::yield_now();
        }
    })
}

/// Changes some bytes, cuts, or draws all anew.
fn changed(draw: &mut Draw, first: &[u8]) -> Vec<u8> {
    let mut bytes = first.to_vec();
    match draw.below(3) {
        0 => bytes = (0..draw.below(1_400)).map(|_| draw.below(256) as u8).collect(),
        1 => bytes.truncate(draw.below(first.len() + 1)),
        _ => {}
    }
    for _ in 0..draw.below(4).min(bytes.len()) {
        let at = draw.below(bytes.len());
        bytes[at] = draw.below(256) as u8;
    }
    bytes
}

fn datagrams(place: &str) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let uri = format!("udp://{}", socket.local_addr().unwrap());
    let first = first_words("udp", |dial| {
        dial(uri);
        let mut first = vec![0; 2_000];
        let len = socket.recv(&mut first).unwrap();
        first[..len].to_vec()
    });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let mut draw = Draw(1);
    for _ in 0..DATAGRAMS {
        socket.send_to(&changed(&mut draw, &first), place).unwrap();
    }
    let mut answer = [0; 2_000];
    assert!(socket.recv(&mut answer).is_err(), "who has not the key gets no answer");
}

fn streams(place: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    let first = first_words("tcp", |dial| {
        dial(uri);
        let (mut stream, _) = listener.accept().unwrap();
        let mut first = vec![0; 2_000];
        let len = stream.read(&mut first).unwrap();
        first[..len].to_vec()
    });
    let mut draw = Draw(2);
    for _ in 0..STREAMS {
        let mut stream = TcpStream::connect(place).unwrap();
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        // It may have ended the connection already.
        let _ = stream.write_all(&changed(&mut draw, &first));
        let mut answer = [0; 4_096];
        let len = stream.read(&mut answer).unwrap_or(0);
        assert_knows_nothing(&answer[..len]);
    }
}

#[test]
fn strangers_get_nothing_and_do_no_harm() {
    for device in ["shm", "udp-lo", "tcp-lo", "any"] {
        for rank in launch(2, role("rank", device)) {
            assert!(rank.status.success(), "{device}: {rank:?}");
        }
    }
}
