//! How often a directory is asked.

use cci::Context;
use cci_ripc::directory::{self, Directory, Instance, News, Record};
use cci_ripc::{CallOptions, ClaimError, Node, Options, ServiceName};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A safety net: nothing here takes nearly as long.
const PATIENCE: Duration = Duration::from_secs(120);
/// Half of how long an answer may take before it is asked where its service is.
const SOON: Duration = Duration::from_millis(10);

/// A directory that counts what it is asked.
struct Counting(Box<dyn Directory>, Arc<AtomicUsize>);

impl Directory for Counting {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn claim(&mut self, record: &Record) -> Result<(), ClaimError> {
        self.0.claim(record)
    }

    fn withdraw(&mut self, service: &ServiceName, instance: Instance) {
        self.0.withdraw(service, instance);
    }

    fn ask(&mut self, service: &ServiceName) {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.ask(service);
    }

    fn poll(&mut self) -> Option<News> {
        self.0.poll()
    }
}

#[test]
fn a_service_is_asked_for_again_when_its_answer_is_late_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let context = Context::from_text("[shm]\ntransport = shm\n", "test".as_ref()).unwrap();
    let open = || {
        let directory = directory::open(&format!("host:{}", folder.path().display())).unwrap();
        let directory = Box::new(Counting(directory, asked.clone()));
        Node::open(Options::default().device(context.default_device()).directory(directory)).unwrap()
    };
    let until = Instant::now() + PATIENCE;
    loop {
        let (mut server, mut client) = (open(), open());
        let _service = server.register(&ServiceName::new("slow").unwrap()).unwrap();
        let me = client.client().unwrap();
        let partner = client.partner(me, &ServiceName::new("slow").unwrap()).unwrap();
        while !client.try_reach(partner) {
            server.progress();
            assert!(Instant::now() < until);
        }
        let before = asked.load(Ordering::Relaxed);
        let began = Instant::now();
        client.call(partner, b"wait", CallOptions::default().timeout(PATIENCE)).unwrap();
        client.progress();
        let at_once = asked.load(Ordering::Relaxed);
        // Where this machine was so busy that the answer may be late already, another pair shows it.
        if began.elapsed() < SOON {
            assert_eq!(at_once, before, "an answer that can't be there yet is not late");
            while asked.load(Ordering::Relaxed) == before {
                assert!(Instant::now() < until, "a late answer has its service asked for");
                client.progress();
            }
            return;
        }
        assert!(Instant::now() < until);
    }
}
