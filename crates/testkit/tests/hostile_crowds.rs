//! Crowds of clients that connect and say nothing, or a byte now and then (slow loris): who wants to connect gets in all the
//! same, and nothing grows.
//!
//! `CCI_HOSTILE_CROWD` (400 if not given): clients that are silent at any time.

use cci::{Attribute, Context, Endpoint, Event, Options, SendFlags};
use cci_sys::unix::{Name, Stream};
use cci_testkit::figures;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const TCP: &str = "[d]\ntransport = tcp\nip = 127.0.0.1\n";
/// Honest clients that have to get in.
const HONEST: u64 = 8;

fn crowd() -> usize {
    std::env::var("CCI_HOSTILE_CROWD").map_or(400, |text| text.parse().unwrap())
}

/// One that connects, and is no client.
trait Mute: Sized {
    fn come(at: &str) -> Option<Self>;
    /// Says as little as it can. False: it was shown the door.
    fn mumble(&mut self) -> bool;
}

/// Says a greeting byte by byte, and never the last one.
struct Loris {
    stream: TcpStream,
    greeting: Arc<Vec<u8>>,
    said: usize,
}

impl Mute for Loris {
    fn come(at: &str) -> Option<Loris> {
        let greeting = GREETING.get_or_init(|| Arc::new(greeting())).clone();
        let stream = TcpStream::connect(at).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Loris { stream, greeting, said: 0 })
    }

    fn mumble(&mut self) -> bool {
        if self.said + 1 < self.greeting.len() {
            self.said += self.stream.write(&self.greeting[self.said..=self.said]).unwrap_or(0);
        }
        self.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

static GREETING: OnceLock<Arc<Vec<u8>>> = OnceLock::new();

/// What a client of TCP says first.
fn greeting() -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let context = Context::from_text(TCP, Path::new("crowds.ini")).unwrap();
    let mut client = Endpoint::create(&context.devices()[0], Options::default()).unwrap();
    let uri = format!("tcp://{}", listener.local_addr().unwrap());
    client.connect(&uri, b"honest", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let (mut bytes, start) = (vec![0; 4096], Instant::now());
    loop {
        client.progress();
        match stream.read(&mut bytes) {
            Ok(len) if len > 0 => {
                bytes.truncate(len);
                return bytes;
            }
            _ => assert!(start.elapsed() < PATIENCE, "it says nothing"),
        }
    }
}

impl Mute for Stream {
    fn come(at: &str) -> Option<Stream> {
        Stream::connect(&Name::Abstract(format!("cci/{at}").into_bytes())).ok()
    }

    fn mumble(&mut self) -> bool {
        !self.hung_up()
    }
}

/// Keeps so many of them at the door, until told to stop; how many came in all.
fn stand_about<M: Mute>(at: &str, crowd: usize, stop: &AtomicBool, came: &AtomicU64) {
    let mut mutes: Vec<M> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        mutes.retain_mut(Mute::mumble);
        while mutes.len() < crowd
            && !stop.load(Ordering::Relaxed)
            && let Some(mute) = M::come(at)
        {
            came.fetch_add(1, Ordering::Relaxed);
            mutes.push(mute);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn honest_clients_get_in<M: Mute>(config: &str, service: &str, at: impl Fn(&str) -> String) {
    let context = Context::from_text(config, Path::new("crowds.ini")).unwrap();
    let open = |service: Option<String>| {
        Endpoint::create(&context.devices()[0], Options { service, ..Options::default() }).unwrap()
    };
    let mut server = open((!service.is_empty()).then(|| service.to_owned()));
    let uri = server.uri().to_owned();
    let (stop, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let attacker = std::thread::spawn({
        let (stop, came, at) = (stop.clone(), came.clone(), at(&uri));
        move || stand_about::<M>(&at, crowd(), &stop, &came)
    });
    let start = Instant::now();
    let before_bytes = server.counters().memory.total_bytes;
    // They stand there first.
    while came.load(Ordering::Relaxed) < 300 {
        assert!(start.elapsed() < PATIENCE, "{} came", came.load(Ordering::Relaxed));
        assert!(server.next_event().is_none());
    }
    let mut met = 0;
    while met < HONEST {
        let mut client = open(None);
        client.connect(&uri, b"honest", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
        let mut is_met = false;
        while !is_met {
            assert!(start.elapsed() < PATIENCE, "{met} met; {:?}", server.counters());
            match client.next_event() {
                Some(Event::Connect { result, .. }) => {
                    client.send(result.unwrap(), b"a word", 0, SendFlags::SILENT).unwrap();
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match server.next_event() {
                Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
                Some(Event::Accept { result, .. }) => drop(result.unwrap()),
                Some(Event::Recv(message)) => {
                    let connection = message.connection();
                    drop(message);
                    server.disconnect(connection);
                    is_met = true;
                }
                _ => {}
            }
        }
        met += 1;
    }
    let after_bytes = server.counters().memory.total_bytes;
    stop.store(true, Ordering::Relaxed);
    attacker.join().unwrap();
    let came = came.load(Ordering::Relaxed);
    println!(
        "{config:?}: {met} got in beside {came} that said nothing; memory {before_bytes} B, then {after_bytes} B"
    );
    assert!(after_bytes <= before_bytes + (1 << 20), "{before_bytes} B, {after_bytes} B");
    figures::note("hostile.silent_clients", came);
    figures::note("hostile.met_beside_a_crowd", met);
}

#[test]
fn beside_a_crowd_on_tcp() {
    let at = |uri: &str| uri.strip_prefix("tcp://").unwrap().to_owned();
    honest_clients_get_in::<Loris>(TCP, "", at);
}

#[test]
fn beside_a_crowd_on_shm() {
    let service = format!("crowd-{}", std::process::id());
    let at = |_: &str| service.clone();
    honest_clients_get_in::<Stream>("[d]\ntransport = shm\n", &service, at);
}
