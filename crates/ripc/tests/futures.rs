//! Services in tasks, on each device, with tokio and with an executor of the test's own.

use cci::Context;
use cci_ripc::futures::{Driver, Node, Reactor, Service};
use cci_ripc::{CallError, CallOptions, Content, Event, Options, Part, ReachError, ServiceName, directory};
use futures_util::StreamExt;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const PATIENCE: Duration = Duration::from_secs(120);
/// More than the calls that a service may have under way.
const CALLERS: u32 = 400;

/// A directory of the test's own, and nodes in it.
struct World {
    folder: tempfile::TempDir,
    device: &'static str,
}

impl World {
    fn open(&self) -> cci_ripc::Node {
        let directory = directory::open(&format!("host:{}", self.folder.path().display())).unwrap();
        let config = format!("[{0}]\ntransport = {0}\n", self.device);
        let context = Context::from_text(&config, "test".as_ref()).unwrap();
        cci_ripc::Node::open(Options::default().directory(directory).device(context.default_device()))
            .unwrap()
    }

    fn spawn(&self) -> Node {
        Node::spawn(self.open()).unwrap()
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs a test on each device, in one thread, for so long at most.
fn on_each_device<F: Future<Output = ()>>(test: impl Fn(Arc<World>) -> F) {
    for device in ["shm", "udp", "tcp", "any"] {
        let world = Arc::new(World { folder: tempfile::tempdir().unwrap(), device });
        runtime().block_on(async {
            tokio::time::timeout(PATIENCE, test(world))
                .await
                .unwrap_or_else(|_| panic!("{device}: it took too long"));
        });
    }
}

fn name(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

/// Answers each request with its bytes in reverse, and each message with a message, until the service is dropped.
async fn serve(service: Service) {
    while let Some(event) = service.next().await {
        match event {
            Event::Request(request) => {
                let mut answer = request.message().item(0).to_vec();
                answer.reverse();
                // A client that has given its call up may be gone.
                let _gone = service.answer(request.ticket(), &answer[..]);
            }
            Event::Message(message) => {
                service.sender(message.partner()).send(message.item(0)).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn more_calls_than_may_be_under_way_each_get_their_answer() {
    on_each_device(|world| async move {
        let server = tokio::spawn(serve(world.spawn().register(&name("server")).unwrap()));
        let me = world.spawn().client().unwrap();
        let to = me.partner(&name("server")).unwrap();
        let mut callers = JoinSet::new();
        for number in 0..CALLERS {
            let to = to.clone();
            callers.spawn(async move {
                for round in 0..5_u32 {
                    let request = [number.to_le_bytes(), round.to_le_bytes()].concat();
                    let answer = to.call(&request[..], CallOptions::default()).await.unwrap();
                    assert!(answer.item(0).iter().rev().eq(&request));
                }
            });
        }
        while let Some(done) = callers.join_next().await {
            done.unwrap();
        }
        server.abort();
    });
}

#[test]
fn messages_come_in_order_as_a_stream() {
    on_each_device(|world| async move {
        let server = tokio::spawn(serve(world.spawn().register(&name("server")).unwrap()));
        let mut me = world.spawn().client().unwrap();
        let to = me.partner(&name("server")).unwrap();
        to.reach(PATIENCE).await.unwrap();
        for number in 0..100_u32 {
            to.send(&number.to_le_bytes()).unwrap();
        }
        for number in 0..100_u32 {
            let event = StreamExt::next(&mut me).await;
            let Some(Event::Message(message)) = event else { panic!("{event:?}") };
            assert_eq!(message.item(0), number.to_le_bytes());
        }
        server.abort();
    });
}

#[test]
fn long_items_are_fetched_while_a_task_waits() {
    on_each_device(|world| async move {
        let service = world.spawn().register(&name("server")).unwrap();
        let node = world.spawn();
        let me = node.client().unwrap();
        let memory = node.with(|node| node.allocate(300_000)).unwrap();
        assert!(memory.write(0, &[7; 300_000]));
        let to = me.partner(&name("server")).unwrap();
        to.send(Content::from(b"long").long_items(&[Part::all(&memory)]).context(5)).unwrap();
        let event = service.next().await;
        let Some(Event::Message(message)) = event else { panic!("{event:?}") };
        let [Some(item)] = message.long_items() else { panic!("{message:?}") };
        assert!(item.len() == 300_000 && item.to_vec().iter().all(|&byte| byte == 7));
        let event = me.next().await;
        assert!(matches!(event, Some(Event::Returned { context: 5, fetched: true, .. })), "{event:?}");
    });
}

#[test]
fn calls_go_to_wherever_the_service_is() {
    on_each_device(|world| async move {
        let mut server = tokio::spawn(serve(world.spawn().register(&name("server")).unwrap()));
        let me = world.spawn().client().unwrap();
        let to = me.partner(&name("server")).unwrap();
        for round in 0..6_u32 {
            let calls = (0..20_u32).map(|number| {
                let to = to.clone();
                async move {
                    let request = (round * 100 + number).to_le_bytes();
                    let answer = to.call(&request, CallOptions::default().timeout(PATIENCE)).await.unwrap();
                    assert!(answer.item(0).iter().rev().eq(&request));
                }
            });
            let mut running: JoinSet<()> = calls.collect();
            // The service's life ends in the middle of them, and another one begins.
            running.join_next().await.unwrap().unwrap();
            server.abort();
            let _ended = server.await;
            server = tokio::spawn(serve(world.spawn().register(&name("server")).unwrap()));
            while let Some(done) = running.join_next().await {
                done.unwrap();
            }
        }
        server.abort();
    });
}

#[test]
fn a_call_that_is_dropped_is_given_up_and_makes_space() {
    on_each_device(|world| async move {
        let service = world.spawn().register(&name("server")).unwrap();
        let me = world.spawn().client().unwrap();
        let to = me.partner(&name("server")).unwrap();
        // Nobody answers; more than may be under way are begun, and dropped.
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let to = to.clone();
            callers.spawn(async move {
                to.call(b"never", CallOptions::default().timeout(PATIENCE)).await.map(drop)
            });
        }
        // Some have come, so all that fit were begun.
        let event = service.next().await;
        let Some(Event::Request(request)) = event else { panic!("{event:?}") };
        callers.abort_all();
        while let Some(ended) = callers.join_next().await {
            assert!(ended.unwrap_err().is_cancelled());
        }
        // An answer that nobody waits for harms nobody.
        service.answer(request.ticket(), b"late").unwrap();
        let server = tokio::spawn(serve(service));
        let answer = to.call(b"abc", CallOptions::default().timeout(PATIENCE)).await.unwrap();
        assert_eq!(answer.item(0), b"cba");
        server.abort();
    });
}

#[test]
fn what_is_unknown_is_an_error_after_the_deadline() {
    on_each_device(|world| async move {
        let me = world.spawn().client().unwrap();
        let to = me.partner(&name("nobody")).unwrap();
        let error = to.reach(Duration::from_millis(20)).await.unwrap_err();
        assert!(
            matches!(&error, ReachError::Unknown { service, .. } if *service == name("nobody")),
            "{error:?}"
        );
        let error =
            to.call(b"", CallOptions::default().timeout(Duration::from_millis(20))).await.unwrap_err();
        assert!(matches!(error, CallError::TimedOut { reached: false, .. }), "{error:?}");
        let taken = world.spawn().register(&name("one")).unwrap();
        assert!(world.spawn().register(&name("one")).is_err());
        drop(taken);
        world.spawn().register(&name("one")).unwrap();
    });
}

#[test]
fn everything_ends_with_the_driver() {
    on_each_device(|world| async move {
        let (node, driver) = Node::with_tokio(world.open()).unwrap();
        let driver = tokio::spawn(driver);
        let me = node.client().unwrap();
        let to = me.partner(&name("nobody")).unwrap();
        let call = tokio::spawn(async move { to.call(b"", CallOptions::default()).await.map(drop) });
        let next = tokio::spawn(async move { me.next().await.is_none() });
        tokio::task::yield_now().await;
        driver.abort();
        assert_eq!(call.await.unwrap(), Err(CallError::Closed));
        assert!(next.await.unwrap());
        // And the driver ends with the last of those who use it.
        let (node, driver) = Node::with_tokio(world.open()).unwrap();
        let driver = tokio::spawn(driver);
        let me = node.client().unwrap();
        drop(node);
        assert!(!driver.is_finished());
        drop(me);
        driver.await.unwrap().unwrap();
    });
}

/// A reactor that knows no descriptor: the task looks again and again.
struct Busy;

impl Reactor for Busy {
    fn poll_wake(&mut self, _: &mut Task<'_>, _: Duration) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct NoWaker;

impl Wake for NoWaker {
    fn wake(self: Arc<Self>) {}
}

/// Runs a future and drivers beside it, without an executor.
fn run<T>(future: impl Future<Output = T>, drivers: &mut [Driver<Busy>]) -> T {
    let waker = Waker::from(Arc::new(NoWaker));
    let mut task = Task::from_waker(&waker);
    let (mut future, began) = (pin!(future), Instant::now());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut task) {
            return done;
        }
        for driver in drivers.iter_mut() {
            let _ = pin!(driver).poll(&mut task);
        }
        assert!(began.elapsed() < PATIENCE, "it took too long");
    }
}

#[test]
fn any_executor_will_do() {
    for device in ["shm", "udp"] {
        let world = World { folder: tempfile::tempdir().unwrap(), device };
        let ((server, one), (client, other)) = (Node::new(world.open(), Busy), Node::new(world.open(), Busy));
        let mut drivers = [one, other];
        let service = server.register(&name("server")).unwrap();
        let me = client.client().unwrap();
        let to = me.partner(&name("server")).unwrap();
        let answer = run(
            async {
                let answer = async {
                    let event = service.next().await;
                    let Some(Event::Request(request)) = event else { panic!("{event:?}") };
                    service.answer(request.ticket(), b"here").unwrap();
                };
                let call = to.call(b"who?", CallOptions::default());
                futures_util::future::join(call, answer).await.0
            },
            &mut drivers,
        );
        assert_eq!(answer.unwrap().item(0), b"here");
    }
}
