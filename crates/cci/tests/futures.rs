//! Messengers in tasks, on each device, with tokio and with an executor of the test's own.

use cci::futures::{CallError, ConnectError, Connection, Driver, Messenger, Reactor, Received, SendError};
use cci::messages::{self, CallFailure, Limits, SendFailure};
use cci::{Attribute, Context, Device, Endpoint, Options, Status};
use futures_util::{FutureExt, SinkExt, StreamExt};
use std::error::Error;
use std::future::Future;
use std::io::{self, BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Task, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(60);
const DEVICES: [&str; 4] = ["shm", "udp4", "tcp4", "any"];
const CONFIG: &str = "\
[shm]
transport = shm
[udp4]
transport = udp
ip = 127.0.0.1
[tcp4]
transport = tcp
ip = 127.0.0.1
[any]
transport = any
ip = 127.0.0.1
";

fn messenger(device: &str, limits: Limits) -> messages::Messenger {
    let context = Context::from_text(CONFIG, Path::new("test.ini")).unwrap();
    let endpoint = Endpoint::create(context.device(device).unwrap(), Options::default()).unwrap();
    messages::Messenger::new(endpoint, limits).unwrap()
}

fn spawn(device: &str) -> Messenger {
    Messenger::spawn(messenger(device, Limits::default())).unwrap()
}

/// Runs a test on each device, in one thread, for so long at most.
fn on_each_device<F: Future<Output = ()>>(test: impl Fn(&'static str) -> F) {
    for device in DEVICES {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, test(device))
                .await
                .unwrap_or_else(|_| panic!("{device}: it took too long"));
        });
    }
}

/// Two connected ends, and their messengers.
async fn pair(device: &str, attribute: Attribute) -> (Connection, Connection) {
    let (server, client) = (spawn(device), spawn(device));
    let uri = server.uri().to_owned();
    let accept = tokio::spawn(async move {
        let incoming = server.incoming().await.unwrap();
        assert_eq!((incoming.data(), incoming.attribute()), (&b"hi"[..], attribute));
        incoming.accept().await.unwrap()
    });
    let connection = client.connect(&uri, b"hi", attribute, None).await.unwrap();
    (connection, accept.await.unwrap())
}

fn contents(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 977 + seed * 101) as u8).collect()
}

#[test]
fn messages_and_calls_of_all_lengths() {
    on_each_device(|device| async move {
        for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
            let (client, server) = pair(device, attribute).await;
            tokio::spawn(async move {
                while let Some(received) = server.receive().await {
                    match received {
                        Received::Message(message) => server.send(&message[..]).await.unwrap(),
                        Received::Request(request) => {
                            let mut reply = request.to_vec();
                            reply.reverse();
                            request.reply(reply);
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
            for len in [0, 8, 9_000, 700_000] {
                let bytes = contents(len, 1);
                client.send(&bytes).await.unwrap();
                match client.receive().await {
                    Some(Received::Message(message)) => assert!(message[..] == bytes[..], "{device}: {len}"),
                    other => panic!("{other:?}"),
                }
                let mut reply = client.call(&bytes, Some(PATIENCE)).await.unwrap().to_vec();
                reply.reverse();
                assert!(reply == bytes, "{device}: {len}");
            }
        }
    });
}

/// One thread, one task set.
#[test]
fn a_thousand_connections() {
    const CONNECTIONS: u32 = 1_000;
    on_each_device(|device| async move {
        let (server, client) = (spawn(device), spawn(device));
        let uri = server.uri().to_owned();
        tokio::spawn(async move {
            while let Some(incoming) = server.incoming().await {
                tokio::spawn(async move {
                    let connection = incoming.accept().await.unwrap();
                    while let Some(received) = connection.receive().await {
                        let Received::Request(request) = received else { panic!("{received:?}") };
                        let reply = request.to_vec();
                        request.reply(reply);
                    }
                });
            }
        });
        let mut tasks = JoinSet::new();
        for number in 0..CONNECTIONS {
            let (client, uri) = (client.clone(), uri.clone());
            tasks.spawn(async move {
                let connection =
                    client.connect(&uri, b"", Attribute::ReliableOrdered, Some(PATIENCE)).await.unwrap();
                for turn in 0..3_u32 {
                    let request = [number.to_le_bytes(), turn.to_le_bytes()].concat();
                    assert_eq!(connection.call(&request, Some(PATIENCE)).await.unwrap()[..], request);
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
}

#[test]
fn a_dropped_call_is_given_up_and_a_dropped_receive_loses_nothing() {
    on_each_device(|device| async move {
        let (client, server) = pair(device, Attribute::ReliableOrdered).await;
        let client = Arc::new(client);
        let asking = client.clone();
        let call = tokio::spawn(async move { drop(asking.call(b"slow", None).await) });
        let Some(Received::Request(request)) = server.receive().await else { panic!() };
        call.abort();
        let Some(Received::RequestCancelled(id)) = server.receive().await else { panic!() };
        assert_eq!(id, request.id());
        request.reply(*b"nobody waits");

        // Polled, and dropped again and again.
        for _ in 0..100 {
            let receive = server.receive();
            assert!(tokio::time::timeout(Duration::from_micros(50), receive).await.is_err());
        }
        for number in 0..100_u8 {
            client.send(&[number]).await.unwrap();
        }
        for number in 0..100_u8 {
            let received = loop {
                let receive = tokio::time::timeout(Duration::from_micros(50), server.receive());
                if let Ok(received) = receive.await {
                    break received;
                }
            };
            assert!(matches!(received, Some(Received::Message(message)) if message[..] == [number]));
        }
    });
}

#[test]
fn a_send_that_is_dropped_has_been_sent_or_not() {
    on_each_device(|device| async move {
        let (client, server) = pair(device, Attribute::ReliableOrdered).await;
        drop(client.send(b"never polled"));
        {
            let mut send = pin!(client.send(b"polled once"));
            assert!(send.as_mut().poll(&mut Task::from_waker(Waker::noop())).is_pending());
        }
        client.send(b"last").await.unwrap();
        for expected in [&b"polled once"[..], b"last"] {
            let Some(Received::Message(message)) = server.receive().await else { panic!() };
            assert_eq!(message[..], *expected, "{device}");
        }
    });
}

#[test]
fn senders_wait_for_a_receiver_that_takes_nothing() {
    const ROUNDS: usize = 500;
    on_each_device(|device| async move {
        let (client, server) = pair(device, Attribute::ReliableOrdered).await;
        let client = Arc::new(client);
        let mut tasks = JoinSet::new();
        for task in 0..4 {
            let client = client.clone();
            tasks.spawn(async move {
                let bytes = [task; 100];
                for _ in 0..ROUNDS {
                    // Not awaited one by one: each task keeps sixteen under way.
                    let sends = (0..16).map(|_| client.send(&bytes));
                    for sent in futures_util::future::join_all(sends).await {
                        sent.unwrap();
                    }
                }
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut received = [0; 4];
        while received.iter().sum::<usize>() < 4 * ROUNDS * 16 {
            let Some(Received::Message(message)) = server.receive().await else { panic!() };
            received[usize::from(message[0])] += 1;
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
    });
}

#[test]
fn a_sink_and_a_stream() {
    on_each_device(|device| async move {
        let (mut client, mut server) = pair(device, Attribute::ReliableOrdered).await;
        let count = 3_000;
        let reading = tokio::spawn(async move {
            let mut at = 0;
            while let Some(received) = server.next().await {
                let Received::Message(message) = received else { panic!("{received:?}") };
                assert!(message[..] == contents(if at % 500 == 0 { 50_000 } else { 20 }, at));
                at += 1;
            }
            at
        });
        for at in 0..count {
            client.feed(contents(if at % 500 == 0 { 50_000 } else { 20 }, at)).await.unwrap();
        }
        SinkExt::<Vec<u8>>::close(&mut client).await.unwrap();
        assert_eq!(reading.await.unwrap(), count, "{device}: the stream ends with the connection");
    });
}

#[test]
fn posted_messages_arrive_in_order_and_flush_waits_for_them() {
    on_each_device(|device| async move {
        let (client, server) = pair(device, Attribute::ReliableOrdered).await;
        let count = 3_000;
        let length = |at| if at % 500 == 0 { 50_000 } else { 20 };
        client.flush().await.expect("nothing was posted");
        client.post(&contents(length(0), 0)).await.unwrap();
        assert!(client.flush().now_or_never().is_none(), "{device}: nobody has received it");
        let reading = tokio::spawn(async move {
            for at in 0..count {
                let Some(Received::Message(message)) = server.receive().await else { panic!("no message") };
                assert!(message[..] == contents(length(at), at), "{at}");
            }
            server
        });
        for at in 1..count {
            client.post(&contents(length(at), at)).await.unwrap();
        }
        client.flush().await.unwrap();
        let server = reading.await.unwrap();
        client.post(b"one more").await.unwrap();
        drop(server);
        // It may have arrived, or not; either is known now.
        let flushed = client.flush().await;
        assert!(matches!(flushed, Ok(()) | Err(SendError::Failed(_))), "{flushed:?}");
        assert!(client.receive().await.is_none());
        let posted = client.post(b"too late").await;
        assert!(matches!(posted, Err(SendError::NotTaken(_) | SendError::Failed(_))), "{posted:?}");
    });
}

#[test]
fn what_was_posted_does_not_count_as_sent_when_the_driver_ends() {
    on_each_device(|device| async move {
        let (client, driver) = Messenger::with_tokio(messenger(device, Limits::default())).unwrap();
        let driver = tokio::spawn(driver);
        let server = spawn(device);
        let uri = server.uri().to_owned();
        let accept =
            tokio::spawn(
                async move { server.incoming().await.unwrap().accept().await.map(|one| (server, one)) },
            );
        let connection = client.connect(&uri, b"", Attribute::ReliableOrdered, None).await.unwrap();
        let _server = accept.await.unwrap().unwrap();
        connection.post(b"hello").await.unwrap();
        driver.abort();
        assert!(driver.await.unwrap_err().is_cancelled());
        let flushed = connection.flush().await;
        assert!(matches!(flushed, Err(SendError::Over)), "{device}: {flushed:?}");
    });
}

#[test]
fn several_tasks_may_wait_on_one_connection() {
    on_each_device(|device| async move {
        let (client, server) = pair(device, Attribute::ReliableOrdered).await;
        let (client, server) = (Arc::new(client), Arc::new(server));
        let mut reading = JoinSet::new();
        for _ in 0..3 {
            let server = server.clone();
            reading.spawn(async move { server.receive().await.is_some() });
        }
        client.post(b"first").await.unwrap();
        let mut flushing = JoinSet::new();
        for _ in 0..3 {
            let client = client.clone();
            flushing.spawn(async move { client.flush().await });
        }
        assert!(reading.join_next().await.unwrap().unwrap(), "{device}");
        while let Some(flushed) = flushing.join_next().await {
            flushed.unwrap().unwrap();
        }
        client.post(b"second").await.unwrap();
        assert!(reading.join_next().await.unwrap().unwrap(), "{device}");
        client.flush().await.unwrap();
        client.post(b"third").await.unwrap();
        assert!(reading.join_next().await.unwrap().unwrap(), "{device}");
    });
}

#[test]
fn requests_and_messages_stay_in_order_whoever_takes_them() {
    on_each_device(|device| async move {
        let (client, server) = pair(device, Attribute::ReliableOrdered).await;
        let client = Arc::new(client);
        let asking = client.clone();
        let sending = tokio::spawn(async move {
            for at in 0..500_u32 {
                asking.post(&at.to_le_bytes()).await.unwrap();
                if at % 7 == 0 {
                    let asked = asking.call(&at.to_le_bytes(), None).now_or_never();
                    assert!(asked.is_none(), "nobody answers without being polled");
                }
            }
        });
        let mut next = 0_u32;
        while next < 500 {
            match server.receive().await.unwrap() {
                Received::Message(message) => {
                    assert_eq!(message[..], next.to_le_bytes(), "{device}");
                    next += 1;
                }
                Received::Request(request) => assert_eq!(request[..], (next - 1).to_le_bytes(), "{device}"),
                Received::RequestCancelled(_) => {}
                other @ Received::Offer(_) => panic!("{other:?}"),
                _ => unreachable!("no other kind was sent"),
            }
            // Now the driver takes what comes next, and then the reader.
            if next.is_multiple_of(3) {
                tokio::task::yield_now().await;
            }
        }
        sending.await.unwrap();
    });
}

#[test]
fn a_reader_that_always_finds_something_lets_the_driver_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, server) = pair("shm", Attribute::ReliableOrdered).await;
        for at in 0..200_u32 {
            client.post(&at.to_le_bytes()).now_or_never().expect("there is space").unwrap();
        }
        // No other task has run since.
        let mut at_once = 0_u32;
        while let Some(received) = server.receive().now_or_never() {
            let Some(Received::Message(message)) = received else { panic!("{received:?}") };
            assert_eq!(message[..], at_once.to_le_bytes());
            at_once += 1;
        }
        assert!((1..=64).contains(&at_once), "{at_once}");
        for at in at_once..200 {
            let received = tokio::time::timeout(PATIENCE, server.receive()).await.expect("it is there");
            let Some(Received::Message(message)) = received else { panic!("{received:?}") };
            assert_eq!(message[..], at.to_le_bytes());
        }
    });
}

#[test]
fn what_is_under_way_ends_with_the_peer() {
    on_each_device(|device| async move {
        let (client, server) = pair(device, Attribute::ReliableOrdered).await;
        let client = Arc::new(client);
        let asking = client.clone();
        let call = tokio::spawn(async move { asking.call(b"?", None).await });
        let Some(Received::Request(request)) = server.receive().await else { panic!() };
        drop(server);
        assert!(client.receive().await.is_none());
        let ended = call.await.unwrap();
        assert!(
            matches!(ended, Err(CallError::Failed(CallFailure::Failed(Status::Disconnected)))),
            "{ended:?}"
        );
        drop(request);
        let sent = client.send(b"too late").await;
        assert!(
            matches!(sent, Err(SendError::NotTaken(_) | SendError::Failed(SendFailure::Failed(_)))),
            "{sent:?}"
        );
        assert!(client.receive().await.is_none());
    });
}

/// Set to the device that a child serves on, until it is killed.
const SERVES_ON: &str = "CCI_TEST_FUTURES_SERVE_ON";

/// As a child: takes a connection, and answers nothing that comes.
#[test]
fn serve_until_killed() {
    let Ok(device) = std::env::var(SERVES_ON) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let limits = Limits::default().whole_bytes_max(0);
        let server = Messenger::spawn(messenger(&device, limits)).unwrap();
        // A line of its own.
        println!("\nURI {}", server.uri());
        let connection = server.incoming().await.unwrap().accept().await.unwrap();
        let mut kept = Vec::new();
        while let Ok(Some(received)) = tokio::time::timeout(PATIENCE, connection.receive()).await {
            kept.push(received);
            println!("HAS {}", kept.len());
        }
    });
}

#[test]
fn what_is_in_progress_ends_when_the_peers_process_is_killed() {
    on_each_device(|device| async move {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_until_killed", "--nocapture", "--test-threads=1"])
            .env(SERVES_ON, device)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let uri = lines.find_map(|line| line.strip_prefix("URI ").map(str::to_owned)).unwrap();
        // Over UDP a process that is gone is only silent.
        let options = Options::default().keepalive(Duration::from_secs(1));
        let context = Context::from_text(CONFIG, Path::new("test.ini")).unwrap();
        let endpoint = Endpoint::create(context.device(device).unwrap(), options).unwrap();
        let client =
            Messenger::spawn(messages::Messenger::new(endpoint, Limits::default()).unwrap()).unwrap();
        let connection = client.connect(&uri, b"", Attribute::ReliableOrdered, None).await.unwrap();
        let connection = Arc::new(connection);
        let (asking, sending, receiving) = (connection.clone(), connection.clone(), connection.clone());
        let call = tokio::spawn(async move { asking.call(b"?", None).await });
        let send = tokio::spawn(async move { sending.send(&contents(200_000, 1)).await });
        let receive = tokio::spawn(async move { receiving.receive().await.is_none() });
        let has_both = tokio::task::spawn_blocking(move || lines.any(|line| line == "HAS 2"));
        assert!(has_both.await.unwrap(), "{device}");
        child.kill().unwrap();
        child.wait().unwrap();
        let ended = call.await.unwrap();
        assert!(matches!(ended, Err(CallError::Failed(CallFailure::Failed(_)))), "{device}: {ended:?}");
        let ended = send.await.unwrap();
        assert!(matches!(ended, Err(SendError::Failed(_))), "{device}: {ended:?}");
        assert!(receive.await.unwrap(), "{device}");
        assert!(connection.receive().await.is_none());
    });
}

#[test]
fn offers_are_taken_refused_and_given_up() {
    on_each_device(|device| async move {
        let limits = Limits::default().whole_bytes_max(0);
        let server = Messenger::spawn(messenger(device, limits)).unwrap();
        let (client, uri) = (spawn(device), server.uri().to_owned());
        let accept = tokio::spawn(async move {
            let connection = server.incoming().await.unwrap().accept().await.unwrap();
            (server, connection)
        });
        let client = Arc::new(client.connect(&uri, b"", Attribute::ReliableUnordered, None).await.unwrap());
        let (server, connection) = accept.await.unwrap();
        let bytes = contents(200_000, 5);
        let memory = server.with(|messenger| messenger.allocate(bytes.len())).unwrap();
        for turn in 0..4 {
            let (sender, sent) = (client.clone(), bytes.clone());
            let send = tokio::spawn(async move { sender.send(&sent).await });
            let Some(Received::Offer(offer)) = connection.receive().await else { panic!() };
            assert_eq!(offer.len_bytes(), 200_000);
            match turn {
                0 => {
                    connection.receive_into(offer, &memory, 0).await.unwrap().unwrap();
                    let mut out = vec![0; bytes.len()];
                    assert!(memory.read(0, &mut out) && out == bytes);
                    send.await.unwrap().unwrap();
                }
                1 => {
                    connection.refuse(offer, 7).unwrap();
                    assert!(matches!(send.await.unwrap(), Err(SendError::Failed(SendFailure::Refused(7)))));
                }
                2 => {
                    // Polled once, and dropped: over a network nothing can have come by then.
                    let polled = {
                        let mut receive = std::pin::pin!(connection.receive_into(offer, &memory, 0));
                        std::future::poll_fn(|context| Poll::Ready(receive.as_mut().poll(context))).await
                    };
                    assert!(polled.is_pending());
                    assert!(memory.write(0, b"the program's"));
                    let ended = send.await.unwrap();
                    let is_refused = matches!(ended, Err(SendError::Failed(SendFailure::Refused(0))));
                    assert!(is_refused || (device == "shm" || device == "any") && ended.is_ok(), "{device}");
                }
                _ => {
                    connection.receive_lent(offer).unwrap();
                    let Some(Received::Message(message)) = connection.receive().await else { panic!() };
                    assert!(message[..] == bytes[..]);
                    send.await.unwrap().unwrap();
                }
            }
        }
    });
}

#[test]
fn nothing_comes_without_the_driver() {
    on_each_device(|device| async move {
        let (client, driver) = Messenger::with_tokio(messenger(device, Limits::default())).unwrap();
        let other = spawn(device);
        let (connecting, uri) = (client.clone(), other.uri().to_owned());
        let attempt =
            tokio::spawn(
                async move { connecting.connect(&uri, b"", Attribute::ReliableOrdered, None).await },
            );
        tokio::task::yield_now().await;
        drop(driver);
        assert!(matches!(attempt.await.unwrap(), Err(ConnectError::Over)), "{device}");
        assert!(client.incoming().await.is_none());
        let refused = client.connect("shm://x", b"", Attribute::ReliableOrdered, None).await;
        assert!(matches!(refused, Err(ConnectError::Over)));
    });
}

/// The smallest executor that sleeps: one descriptor, and a flag that wakers set.
struct Tiny {
    descriptor: Arc<OwnedFd>,
    is_watched: Arc<AtomicBool>,
}

impl Reactor for Tiny {
    fn poll_readable(&mut self, _: &mut Task<'_>, look: &mut dyn FnMut() -> bool) -> Poll<io::Result<()>> {
        let mut descriptors = [rustix::event::PollFd::new(&*self.descriptor, rustix::event::PollFlags::IN)];
        let none = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        while rustix::event::poll(&mut descriptors, Some(&none))? > 0 {
            if look() {
                return Poll::Ready(Ok(()));
            }
        }
        self.is_watched.store(true, Ordering::SeqCst);
        Poll::Pending
    }
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn tiny(device: &str) -> (Messenger, Driver<Tiny>, Arc<OwnedFd>) {
    let messenger = messenger(device, Limits::default());
    let descriptor = Arc::new(messenger.os_handle().try_clone_to_owned().unwrap());
    let reactor = Tiny { descriptor: descriptor.clone(), is_watched: Arc::default() };
    let (messenger, driver) = Messenger::new(messenger, reactor);
    (messenger, driver, descriptor)
}

/// Both drivers and one task, polled in turns; it sleeps in between until a descriptor is readable.
#[test]
fn any_executor_will_do() {
    for device in DEVICES {
        let (server, server_driver, server_descriptor) = tiny(device);
        let (client, client_driver, client_descriptor) = tiny(device);
        let (mut server_driver, mut client_driver) = (pin!(server_driver), pin!(client_driver));
        let uri = server.uri().to_owned();
        let done = Mutex::new(false);
        let mut serve = pin!(async {
            let connection = server.incoming().await.unwrap().accept().await.unwrap();
            while let Some(Received::Request(request)) = connection.receive().await {
                let reply = request.to_ascii_uppercase();
                request.reply(reply);
            }
        });
        let mut ask = pin!(async {
            let connection = client.connect(&uri, b"", Attribute::ReliableOrdered, None).await.unwrap();
            for _ in 0..10 {
                assert_eq!(connection.call(b"tiny", None).await.unwrap()[..], *b"TINY");
            }
            *done.lock().unwrap() = true;
        });
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let (waker, started) = (Waker::from(flag.clone()), Instant::now());
        let mut task = Task::from_waker(&waker);
        let (mut is_served, mut is_asked) = (false, false);
        while !is_asked {
            assert!(started.elapsed() < PATIENCE, "{device}");
            if !flag.0.swap(false, Ordering::SeqCst) {
                let mut descriptors = [&server_descriptor, &client_descriptor].map(|descriptor| {
                    rustix::event::PollFd::new(&**descriptor, rustix::event::PollFlags::IN)
                });
                let limit = rustix::time::Timespec { tv_sec: 10, tv_nsec: 0 };
                assert!(
                    rustix::event::poll(&mut descriptors, Some(&limit)).unwrap() > 0,
                    "{device}: nothing comes"
                );
            }
            assert!(server_driver.as_mut().poll(&mut task).is_pending());
            assert!(client_driver.as_mut().poll(&mut task).is_pending());
            is_served = is_served || serve.as_mut().poll(&mut task).is_ready();
            is_asked = ask.as_mut().poll(&mut task).is_ready();
        }
        assert!(*done.lock().unwrap() && !is_served);
    }
}

/// Tasks of other threads may have connections.
#[test]
fn everything_can_be_sent_to_other_threads() {
    fn is_send<T: Send>(_: &T) {}
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Messenger>();
    is_shared::<Connection>();
    fn futures(connection: &Connection, messenger: &Messenger) {
        is_send(&connection.send(b""));
        is_send(&connection.call(b"", None));
        is_send(&connection.receive());
        is_send(&messenger.incoming());
        is_send(&messenger.connect("", b"", Attribute::ReliableOrdered, None));
    }
    let _ = futures;
}

/// The server that the guide shows.
async fn the_guides_server(device: &Device) -> Result<(), Box<dyn Error>> {
    let server = cci::futures::Messenger::spawn(cci::messages::Messenger::open(device, Options::default())?)?;
    while let Some(client) = server.incoming().await {
        tokio::spawn(async move {
            let connection = client.accept().await?;
            while let Some(received) = connection.receive().await {
                if let Received::Request(request) = received {
                    let answer = answer(&request).await;
                    request.reply(answer);
                }
            }
            Ok::<(), ConnectError>(())
        });
    }
    Ok(())
}

async fn answer(request: &[u8]) -> Vec<u8> {
    request.to_ascii_uppercase()
}

#[test]
fn the_guide_shows_a_server_that_compiles() {
    let guide = include_str!("../../../docs/guide.md");
    let shown = guide.split("```rust,ignore\n").find(|rest| rest.starts_with("let server = cci::futures"));
    let shown = shown.and_then(|rest| rest.split("```").next()).expect("the guide's server");
    let indented: String = shown.lines().map(|line| format!("    {line}\n")).collect();
    assert!(include_str!("futures.rs").contains(&indented), "another server than here");
    // It opens its messenger, and waits for clients until it is dropped.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let context = Context::new().unwrap();
        let server = the_guides_server(context.default_device());
        assert!(tokio::time::timeout(Duration::from_millis(10), server).await.is_err());
    });
}
