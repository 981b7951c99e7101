//! News of a directory that has a descriptor end the sleep of a node, however it sleeps. Nothing is polled by time.

use cci::Context;
use cci_ripc::directory::{Directory, Instance, News, Record};
use cci_ripc::{ClaimError, Event, Node, Options, ServiceName, futures};
use cci_sys::event::{Epoll, EventFd, Events, Interest, Trigger};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A safety net: nothing here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The news that a test gives, and the descriptor that announces them.
struct Source {
    news: Mutex<Vec<News>>,
    ready: EventFd,
}

impl Source {
    fn say(&self, news: News) {
        let mut waiting = self.news.lock().unwrap();
        waiting.push(news);
        self.ready.signal().unwrap();
    }
}

/// A directory that has the news of a test.
struct Fake(Arc<Source>);

impl Directory for Fake {
    fn describe(&self) -> String {
        "a test".to_owned()
    }

    fn claim(&mut self, _: &Record) -> Result<(), ClaimError> {
        Ok(())
    }

    fn withdraw(&mut self, _: &ServiceName, _: Instance) {}

    fn ask(&mut self, _: &ServiceName) {}

    fn poll(&mut self) -> Option<News> {
        let mut waiting = self.0.news.lock().unwrap();
        let news = waiting.pop();
        if waiting.is_empty() {
            self.0.ready.drain().unwrap();
        }
        news
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.ready.as_fd())
    }
}

fn open() -> (Arc<Source>, Node) {
    let source = Arc::new(Source { news: Mutex::default(), ready: EventFd::new().unwrap() });
    let context = Context::from_text("[shm]\ntransport = shm\n", "test".as_ref()).unwrap();
    let options =
        Options::default().device(context.default_device()).directory(Box::new(Fake(source.clone())));
    (source, Node::open(options).unwrap())
}

fn name() -> ServiceName {
    ServiceName::new("kv").unwrap()
}

fn lost() -> News {
    News::Lost { service: name(), to: "somebody else".to_owned() }
}

fn is_lost(event: Option<Event>) -> bool {
    matches!(event, Some(Event::NameLost { to }) if to == "somebody else")
}

#[test]
fn a_wait_ends_with_news() {
    let (source, mut node) = open();
    let service = node.register(&name()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| source.say(lost()));
        assert!(is_lost(node.wait(service, Some(PATIENCE)).unwrap()));
    });
}

#[test]
fn the_descriptor_tells_of_news_and_nothing_is_due_without_them() {
    let (source, mut node) = open();
    let service = node.register(&name()).unwrap();
    let epoll = Epoll::new().unwrap();
    epoll.add(node.os_handle(), 0, Interest::Read, Trigger::Level).unwrap();
    let mut events = Events::with_capacity(1);
    assert!(node.next_event(service).is_none());
    assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
    assert!(node.next_due() >= PATIENCE, "{:?}", node.next_due());
    source.say(lost());
    assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 1);
    assert!(is_lost(node.next_event(service)));
    assert!(node.next_event(service).is_none());
    assert_eq!(epoll.wait(&mut events, Some(0)).unwrap(), 0);
}

#[test]
fn a_sleeper_wakes_for_what_comes_once_the_node_is_armed() {
    let (source, mut node) = open();
    let service = node.register(&name()).unwrap();
    let sleeper = node.sleeper().unwrap();
    let epoll = Epoll::new().unwrap();
    epoll.add(sleeper.as_fd(), 0, Interest::Read, Trigger::Level).unwrap();
    let mut events = Events::with_capacity(1);
    let mut is_readable = || epoll.wait(&mut events, Some(0)).unwrap() == 1;
    assert!(node.next_event(service).is_none());
    node.arm();
    assert!(!is_readable());
    source.say(lost());
    assert!(is_readable());
    assert!(is_lost(node.next_event(service)));
    node.arm();
    assert!(!is_readable());
}

#[test]
fn a_search_sleeps_until_the_directory_answers() {
    let (_source, mut node) = open();
    let me = node.client().unwrap();
    let partner = node.partner(me, &name()).unwrap();
    assert!(!node.try_reach(partner));
    // It looks again and again for a moment, and then only asks once more now and then.
    let longest = Duration::from_millis(100);
    let until = std::time::Instant::now() + PATIENCE;
    while node.next_due() < longest {
        assert!(std::time::Instant::now() < until, "{:?}", node.next_due());
        assert!(!node.try_reach(partner));
    }
}

#[test]
fn a_task_that_waits_is_woken_by_news() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (source, node) = open();
        let service = futures::Node::spawn(node).unwrap().register(&name()).unwrap();
        let (event, ()) = tokio::join!(service.next(), async {
            // The driver sleeps by then.
            tokio::task::yield_now().await;
            source.say(lost());
        });
        assert!(is_lost(event));
    });
}
