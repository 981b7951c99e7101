//! A transport that never has space, on a clock that stands still.

use cci::seam::{
    About, Activity, Armed, Core, Dial, LinkState, Operation, Report, RequestBody, SendOp, Setting, Started,
    Transport,
};
use cci::{AcceptError, Attribute, ConnectError, Connection, Endpoint, Event, Options, SendError, SendFlags};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MESSAGE_BYTES_MAX: u32 = 64;
const LINK: u64 = 1;
const SECOND_NS: u64 = 1_000_000_000;

struct Full {
    /// How often it was asked to send.
    attempts: Arc<AtomicU64>,
}

impl Transport for Full {
    fn about(&self) -> About<'_> {
        About { uri: "full://", offers_multicast: false }
    }

    fn connect(&mut self, core: &mut Core, connection: Connection, _: Dial<'_>) -> Result<u64, ConnectError> {
        core.opened(connection, MESSAGE_BYTES_MAX);
        Ok(LINK)
    }

    fn accept(&mut self, _: &mut Core, _: Connection, _: RequestBody) -> Result<u64, AcceptError> {
        Err(AcceptError::Gone)
    }

    fn disconnect(&mut self, core: &mut Core, connection: Connection, _: u64) {
        core.closed(connection);
    }

    fn send(&mut self, _: &mut Core, _: Connection, _: u64, _: &[&[u8]], _: SendOp) -> Result<(), SendError> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        Err(SendError::WouldBlock)
    }

    fn start(
        &mut self,
        _: &mut Core,
        _: Connection,
        _: u64,
        _: &Operation<'_>,
    ) -> Result<Started, SendError> {
        Err(SendError::WouldBlock)
    }

    fn progress(&mut self, _: &mut Core) {}

    fn arm(&mut self, _: &mut Core) -> Armed {
        Armed::Pending
    }

    fn activity(&self) -> Activity {
        Activity::Idle
    }

    fn link_state(&self, _: u64) -> Option<LinkState> {
        // As over shared memory: the peer empties the ring without help from this side.
        Some(LinkState { held: 0, drains_by_itself: true, send_timeout_ns: SECOND_NS, keepalive_ns: 0 })
    }

    fn unreported(&self, _: u64) -> Option<u32> {
        Some(0)
    }

    fn configure(&mut self, _: &mut Core, _: Setting) {}

    fn report(&self, _: &Core, report: Report<'_>) {
        if let Report::SpareBytes(into) = report {
            *into += 16 << 20;
        }
    }

    fn now_ns(&self) -> u64 {
        SECOND_NS
    }
}

/// A program that sends where much waits already must not be kept from receiving: each further send costs it next to nothing (ADR 26).
#[test]
fn behind_many_sends_space_is_seldom_looked_for() {
    let attempts = Arc::new(AtomicU64::new(0));
    let counted = attempts.clone();
    let mut endpoint = cci::seam::open("full", MESSAGE_BYTES_MAX, Options::default(), |_, _| {
        Ok(Box::new(Full { attempts: counted }))
    })
    .expect("it needs nothing of the system");
    endpoint.connect("full://", b"", Attribute::ReliableOrdered, 0, None).expect("at once");
    let Some(Event::Connect { result: Ok(connection), .. }) = endpoint.next_event() else {
        panic!("it was opened");
    };
    let send = |endpoint: &mut Endpoint, count: u64| {
        for _ in 0..count {
            endpoint.send(connection, b"waits", 0, SendFlags::SILENT).expect("there are send buffers");
        }
        attempts.swap(0, Ordering::Relaxed)
    };
    assert!(send(&mut endpoint, 1) > 1, "the first one is held for a moment");
    send(&mut endpoint, 99);
    let looks = send(&mut endpoint, 800);
    assert!(looks <= 100, "{looks} looks for space with 800 sends");
}
