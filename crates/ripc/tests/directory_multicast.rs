//! Multicast directories in real processes, on loopback and between network namespaces.

use cci_ripc::ServiceName;
use cci_ripc::directory::{self, Directory, Instance, Kind, News, Record};
use cci_testkit::net::{End, Veth, Wire};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A safety net: nothing here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The directory of a process that was started by a test.
const VARIABLE: &str = "CCI_TEST_MULTICAST";
/// Claims that one process makes at a time.
const LANES: u64 = 10;
const BATCHES: u64 = 10;

fn record(name: &str, instance: u64) -> Record {
    let service = ServiceName::new(name).unwrap();
    let uris = vec![format!("shm://{name}-{instance}")];
    Record { service, instance: Instance(instance), kind: Kind::Service, uris }
}

fn group(last: u8, v6: bool, interface: &str) -> String {
    // Tests that run at the same time have ports of their own.
    let port = 20_000 + std::process::id() % 20_000;
    let group = if v6 { format!("[ff02::cc:{last}]") } else { format!("239.77.83.{last}") };
    format!("multicast://{group}:{port}?interface={interface}")
}

/// Waits for the news that `is_it` says.
fn wait_for(directory: &mut dyn Directory, what: &str, is_it: impl Fn(&News) -> bool) -> News {
    let patience = Instant::now() + PATIENCE;
    loop {
        match directory.poll() {
            Some(news) if is_it(&news) => return news,
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(2)),
        }
        assert!(Instant::now() < patience, "no news: {what}");
    }
}

/// Asks until a service is found, or not found any more.
fn ask_until(directory: &mut dyn Directory, name: &str, found: Option<u64>) {
    let patience = Instant::now() + PATIENCE;
    loop {
        directory.ask(&ServiceName::new(name).unwrap());
        let answer = wait_for(directory, name, |news| !matches!(news, News::Lost { .. }));
        let instance = match answer {
            News::Found { records, .. } => Some(records[0].instance.0),
            _ => None,
        };
        if instance == found {
            return;
        }
        assert!(Instant::now() < patience, "{name}: {instance:?} instead of {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process with a directory of its own, which does what it reads.
struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(directory: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_of_a_test", "--nocapture"])
            .env(VARIABLE, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process { child, input, output };
        assert_eq!(process.read(), "ready");
        process
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
        self.input.flush().unwrap();
    }

    fn read(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the process has ended");
            if let Some((_, said)) = line.trim_end().split_once("said: ") {
                return said.to_owned();
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone_already = self.child.kill();
        let _status = self.child.wait();
    }
}

/// No test of its own: what [`Process::start`] starts.
#[test]
fn a_process_of_a_test() {
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let mut lanes: Vec<_> = (0..LANES).map(|_| directory::open(&text).unwrap()).collect();
    println!("said: ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["claim", name, instance] => match lanes[0].claim(&record(name, instance.parse().unwrap())) {
                Ok(()) => println!("said: ok"),
                Err(error) => println!("said: {error}"),
            },
            ["lost"] => {
                let lost = wait_for(&mut *lanes[0], "a loss", |news| matches!(news, News::Lost { .. }));
                println!("said: {lost:?}");
            }
            // A claim on each lane, all at once; the lanes of other processes have the same names.
            ["batch", batch, who] => {
                let won = std::thread::scope(|scope| {
                    let claims: Vec<_> = lanes
                        .iter_mut()
                        .enumerate()
                        .map(|(lane, directory)| {
                            let instance = u64::from(cci_sys::random::u64().unwrap() as u32) << 8;
                            let record = record(&format!("n-{batch}-{lane}"), instance + who.len() as u64);
                            scope.spawn(move || match directory.claim(&record) {
                                Ok(()) => "1",
                                Err(cci_ripc::ClaimError::Taken { .. }) => "0",
                                Err(_) => "error",
                            })
                        })
                        .collect();
                    claims.into_iter().map(|claim| claim.join().unwrap()).collect::<Vec<_>>().join(" ")
                });
                println!("said: {won}");
            }
            _ => panic!("{line}"),
        }
    }
}

#[test]
fn of_two_processes_that_claim_a_name_at_once_exactly_one_wins() {
    let text = group(1, false, "lo");
    let mut one = Process::start(&text);
    let mut other = Process::start(&text);
    let (mut won_by_one, mut won_by_other) = (0, 0);
    for batch in 0..BATCHES {
        one.write(&format!("batch {batch} a"));
        other.write(&format!("batch {batch} bb"));
        let (of_one, of_other) = (one.read(), other.read());
        for (lane, pair) in of_one.split(' ').zip(of_other.split(' ')).enumerate() {
            match pair {
                ("1", "0") => won_by_one += 1,
                ("0", "1") => won_by_other += 1,
                _ => panic!("batch {batch}, lane {lane}: {pair:?}"),
            }
        }
    }
    assert_eq!(won_by_one + won_by_other, BATCHES * LANES);
    println!("{won_by_one} names were won by one process, {won_by_other} by the other");
}

#[test]
fn a_service_is_found_on_loopback_and_not_when_it_is_dead() {
    let text = group(2, false, "lo");
    let mut here = directory::open(&text).unwrap();
    assert!(here.descriptor().is_some());
    let mut service = Process::start(&text);
    service.write("claim kv 7");
    assert_eq!(service.read(), "ok");
    ask_until(&mut *here, "kv", Some(7));
    let refused = here.claim(&record("kv", 1)).unwrap_err().to_string();
    assert!(refused.contains("taken") && refused.contains("shm://kv-7"), "{refused}");

    drop(service);
    ask_until(&mut *here, "kv", None);
    let mut again = Process::start(&text);
    again.write("claim kv 8");
    assert_eq!(again.read(), "ok");
    let moved = wait_for(&mut *here, "the move", |news| matches!(news, News::Found { .. }));
    assert!(matches!(moved, News::Found { records, .. } if records[0].instance == Instance(8)));
}

#[test]
fn a_thread_ends_with_its_directory() {
    let text = group(3, false, "lo");
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "cci-directory").count()
    };
    let mut child = Process::start(&text);
    let mut here = directory::open(&text).unwrap();
    here.claim(&record("kv", 1)).unwrap();
    assert!(threads() >= 1);
    drop(here);
    // It said goodbye, so the name is free at once.
    child.write("claim kv 2");
    assert_eq!(child.read(), "ok");
}

fn between_namespaces(v6: bool) {
    let veth = match Veth::across(&[Wire::default()]) {
        Ok(veth) => veth,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let here = group(4, v6, &veth.name(End::A, 0));
    let there = group(4, v6, &veth.name(End::B, 0));
    let mut directory = directory::open(&here).unwrap();
    let mut far = {
        let _inside = veth.enter(End::B);
        Process::start(&there)
    };
    far.write("claim kv 5");
    assert_eq!(far.read(), "ok");
    ask_until(&mut *directory, "kv", Some(5));
    assert!(directory.claim(&record("kv", 1)).is_err());

    // Both sides have the name after a partition; the lower instance keeps it when that heals.
    veth.cut(0);
    directory.claim(&record("files", 9)).unwrap();
    far.write("claim files 3");
    assert_eq!(far.read(), "ok");
    veth.mend(0);
    let lost = wait_for(&mut *directory, "the loss", |news| matches!(news, News::Lost { .. }));
    assert!(matches!(lost, News::Lost { to, .. } if to.contains("shm://files-3")));
    ask_until(&mut *directory, "files", Some(3));

    // And the other way round.
    veth.cut(0);
    directory.claim(&record("mail", 1)).unwrap();
    far.write("claim mail 2");
    assert_eq!(far.read(), "ok");
    veth.mend(0);
    far.write("lost");
    assert!(far.read().contains("shm://mail-1"));
    drop(far);
    ask_until(&mut *directory, "kv", None);
}

#[test]
fn a_partition_heals_over_ipv4() {
    between_namespaces(false);
}

#[test]
fn a_partition_heals_over_ipv6() {
    between_namespaces(true);
}

#[test]
fn nonsense_from_the_network_is_passed_over() {
    let text = group(5, false, "lo");
    let mut here = directory::MulticastDirectory::open_text(&text).unwrap();
    let mut other = directory::open(&text).unwrap();
    here.claim(&record("kv", 1)).unwrap();
    let (_, rest) = text.split_once("://").unwrap();
    let (address, _) = rest.split_once('?').unwrap();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    for len_bytes in [0, 1, 23, 24, 480, 1_433, 60_000] {
        let sent = socket2::SockRef::from(&socket).set_multicast_if_v4(&"127.0.0.1".parse().unwrap());
        sent.and_then(|()| socket.send_to(&vec![b'C'; len_bytes], address)).unwrap();
    }
    let patience = Instant::now() + PATIENCE;
    while here.counters().malformed < 7 {
        assert!(Instant::now() < patience, "{:?}", here.counters());
        ask_until(&mut *other, "kv", Some(1));
    }
}
