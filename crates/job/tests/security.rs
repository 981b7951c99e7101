//! Endpoints that have the job's security admit ranks of that job, and nobody else.
#![cfg(feature = "sealing")]
#![allow(clippy::unwrap_used)]

use cci::{Attribute, Context, Endpoint, Event, Options};
use cci_job::Job;
use std::time::{Duration, Instant};

/// How long a process without the key waits for an answer, which never comes.
const REFUSED_AFTER: Duration = Duration::from_millis(500);
/// Connecting takes far less.
const LIMIT: Duration = Duration::from_secs(30);

fn endpoint(device: &str, options: Options) -> Endpoint {
    let context = Context::new().unwrap();
    Endpoint::create(context.device(device).unwrap(), options).unwrap()
}

fn of(job: &Job, device: &str) -> Endpoint {
    endpoint(device, Options::default().security(job.security().unwrap()))
}

/// Whether the server gets to see the client, and the client gets a connection.
fn connects(client: &mut Endpoint, server: &mut Endpoint, within: Duration) -> bool {
    client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(within)).unwrap();
    let start = Instant::now();
    while start.elapsed() < 2 * LIMIT {
        if let Some(Event::ConnectRequest(request)) = server.next_event() {
            server.accept(request, 0).unwrap();
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            return result.is_ok();
        }
    }
    panic!("an attempt to connect ends");
}

#[test]
fn only_ranks_of_the_job_connect() {
    // No launcher has started the tests: each is a job of one, with a key of its own.
    let (job, other) = (Job::join().unwrap(), Job::join().unwrap());
    for device in ["udp-lo", "tcp-lo"] {
        let mut server = of(&job, device);
        assert!(connects(&mut of(&job, device), &mut server, LIMIT), "{device}: a rank of the job");
        assert!(
            !connects(&mut of(&other, device), &mut server, REFUSED_AFTER),
            "{device}: a rank of another job"
        );
        let mut outsider = endpoint(device, Options::default());
        assert!(!connects(&mut outsider, &mut server, REFUSED_AFTER), "{device}: one that has no key");
        assert!(connects(&mut of(&job, device), &mut server, LIMIT), "{device}: a rank, after the others");
    }
}
