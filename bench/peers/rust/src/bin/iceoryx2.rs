//! iceoryx2, publish-subscribe, two processes: the shape of its own benchmark (`benchmarks/publish-subscribe`).
//!
//! Configured for speed as that benchmark is: `ipc::Service` (its single-threaded kind), one publisher and one
//! subscriber each way, no history, zero copy. The ping-pong has a queue of one and loans the next sample while the
//! answer is under way. For the rate nothing may be lost, so the queue does not overflow, and the publisher tries again
//! at once when it is full (a handler; the default sleeps). Unlike that benchmark this one writes the payload: a message
//! into which nothing is written would say nothing, and CCI's `send` is given bytes too.
#![forbid(unsafe_code)]

use iceoryx2::port::BackpressureAction;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use peers::{Arguments, CORES, Failure, Measure, OtherEnd, pin, report};
use std::time::Instant;

type Bytes = PortFactory<ipc::Service, [u8], ()>;

/// Messages that wait in the subscriber's queue at most, measuring the rate. Measured with 8 to 4,096: the best.
const QUEUE: usize = 256;

/// It has requests and replies of its own, which are not measured.
const NO_CALLS: &str = "no calls here";

struct Ends {
    /// Closed before the node, so that nothing stays behind in /dev/shm.
    sender: Publisher<ipc::Service, [u8], ()>,
    receiver: Subscriber<ipc::Service, [u8], ()>,
    _services: [Bytes; 2],
    _node: Node<ipc::Service>,
}

fn open(node: &Node<ipc::Service>, name: &str, queue: usize, overflow: bool) -> Result<Bytes, Failure> {
    Ok(node
        .service_builder(&name.try_into()?)
        .publish_subscribe::<[u8]>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(queue)
        .enable_safe_overflow(overflow)
        .open_or_create()?)
}

impl Ends {
    fn open(arguments: &Arguments, meet_at: &str, first: bool) -> Result<Self, Failure> {
        let mut config = Config::default();
        // Everything of this run is in one folder and under one prefix, and can be cleared away should it be ended.
        config.global.set_root_path(&format!("/tmp/{meet_at}").as_str().try_into()?);
        config.global.prefix = format!("{meet_at}_").as_str().try_into()?;
        let node = NodeBuilder::new().config(&config).create::<ipc::Service>()?;
        let stream = arguments.measure == Measure::Rate;
        let (queue, overflow) = if stream { (QUEUE, false) } else { (1, true) };
        let there = open(&node, "there", queue, overflow)?;
        let back = open(&node, "back", 1, true)?;
        let (to, from) = if first { (&there, &back) } else { (&back, &there) };
        let receiver = from.subscriber_builder().create()?;
        let sender = to
            .publisher_builder()
            .initial_max_slice_len(arguments.len_bytes)
            .max_loaned_samples(2)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .set_backpressure_handler(|_| BackpressureAction::Retry)
            .create()?;
        Ok(Self { sender, receiver, _services: [there, back], _node: node })
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> Result<(), Failure> {
        self.sender.loan_slice_uninit(bytes.len())?.write_from_slice(bytes).send()?;
        Ok(())
    }

    /// Waits for a message, which is given back at once.
    #[inline]
    fn receive(&self) -> Result<(), Failure> {
        while self.receiver.receive()?.is_none() {}
        Ok(())
    }

    fn ping(&self, bytes: &[u8], trips: u64) -> Result<(), Failure> {
        let mut sample = self.sender.loan_slice_uninit(bytes.len())?;
        for _ in 0..trips {
            sample.write_from_slice(bytes).send()?;
            sample = self.sender.loan_slice_uninit(bytes.len())?;
            self.receive()?;
        }
        Ok(())
    }

    fn pong(&self, bytes: &[u8], trips: u64) -> Result<(), Failure> {
        for _ in 0..trips {
            let sample = self.sender.loan_slice_uninit(bytes.len())?;
            self.receive()?;
            sample.write_from_slice(bytes).send()?;
        }
        Ok(())
    }

    fn stream(&self, bytes: &[u8], messages: u64) -> Result<(), Failure> {
        for _ in 0..messages {
            self.send(bytes)?;
        }
        self.receive()
    }

    fn swallow(&self, bytes: &[u8], messages: u64) -> Result<(), Failure> {
        for _ in 0..messages {
            self.receive()?;
        }
        self.send(bytes)
    }
}

fn main() -> Result<(), Failure> {
    set_log_level(LogLevel::Error);
    let arguments = Arguments::parse("ipc")?;
    let bytes = vec![7; arguments.len_bytes];
    if let Some(meet_at) = &arguments.meet_at {
        pin(CORES[1])?;
        let ends = Ends::open(&arguments, meet_at, false)?;
        ends.send(&bytes)?; // Here I am.
        for part in [arguments.warm_up(), arguments.count] {
            match arguments.measure {
                Measure::HalfTrip => ends.pong(&bytes, part)?,
                Measure::Rate => ends.swallow(&bytes, part)?,
                Measure::Calls => return Err(NO_CALLS.into()),
            }
        }
        return Ok(());
    }
    pin(CORES[0])?;
    let meet_at = format!("cci-bench-iox2-{}", std::process::id());
    let outcome = first_end(&arguments, &meet_at, &bytes);
    clear_away(&meet_at);
    outcome
}

/// iceoryx2 keeps its folder and a file of its nodes' for the next program, which will not come.
fn clear_away(meet_at: &str) {
    let _ = std::fs::remove_dir_all(format!("/tmp/{meet_at}"));
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&format!("{meet_at}_")) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

fn first_end(arguments: &Arguments, meet_at: &str, bytes: &[u8]) -> Result<(), Failure> {
    let ends = Ends::open(arguments, meet_at, true)?;
    let other: OtherEnd = arguments.start_other_end(meet_at)?;
    ends.receive()?;
    let run = |part| match arguments.measure {
        Measure::HalfTrip => ends.ping(bytes, part),
        Measure::Rate => ends.stream(bytes, part),
        Measure::Calls => Err(NO_CALLS.into()),
    };
    run(arguments.warm_up())?;
    let begun = Instant::now();
    run(arguments.count)?;
    report(arguments, begun.elapsed());
    other.wait()
}
