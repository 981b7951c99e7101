//! Kills and stops peers in the middle of remote memory operations, on both sides: the survivor's memory holds nothing that
//! nobody wrote, its operations end exactly once, what it has given up does not change, and nothing of the dead is left.
//!
//! The victim is the test's own program, started anew with an environment variable set: see [`victim()`].

pub(crate) mod area;
mod initiators;
mod targets;
pub(crate) mod victim;

pub use initiators::{kill_initiators, stop_initiators};
pub use targets::{kill_targets, stop_targets};
pub use victim::victim;

use crate::conformance::CONFIG;
use crate::crash_peers::Resources;
use cci::{Connection, Context, Endpoint, Event, Options, RegionAddress, RmaFlags, Status};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use area::{Area, LEN};

const ROLE: &str = "CCI_KILL_RMA_ROLE";
const DEVICE: &str = "CCI_KILL_RMA_DEVICE";

/// What to do, on which device.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// A section of [`CONFIG`].
    pub device: &'static str,
    /// How often.
    pub kills: u32,
    /// Printed on failure; the points of death depend on it, as far as the scheduler lets them.
    pub seed: u64,
    /// Of the survivor's sends and operations.
    pub send_timeout: Duration,
    /// How long until the survivor must have noticed.
    pub noticed_within: Duration,
}

/// What the kills came to, for a line in the test's output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Casualties {
    /// Victims killed.
    pub kills: u32,
    /// Of those, how many had not come to any operation.
    pub early: u32,
    /// Deaths that left a write half done.
    pub torn: u32,
    /// Operations of the survivor's that ended well.
    pub good: u64,
    /// Those that ended otherwise.
    pub failed: u64,
    /// Longest time that giving up a region took, microseconds.
    pub deregister_us_max: u64,
    /// Times that giving up a region found the peer in the middle of a copy, and waited for its end.
    pub waited: u64,
    /// Times that it did not wait any longer, and took the pages away from the peer.
    pub detached: u64,
}

impl Casualties {
    /// With what the survivor's device counted.
    fn counted(self, hub: &Endpoint) -> Casualties {
        Casualties {
            waited: counted(hub, "rma_revocations_waited"),
            detached: counted(hub, "rma_detached"),
            ..self
        }
    }
}

/// A counter of the device's; 0 where it has none of the name.
fn counted(hub: &Endpoint, name: &str) -> u64 {
    hub.counters().device.iter().find(|(is, _)| *is == name).map_or(0, |(_, count)| *count)
}

fn open(device: &str, send_timeout: Duration) -> Endpoint {
    let context = Context::from_text(CONFIG, "kill.ini".as_ref()).expect("CONFIG is right");
    let device = context.device(device).expect("CONFIG names it");
    Endpoint::create(device, Options::default().send_timeout(send_timeout)).expect("an endpoint")
}

/// Starts the victim: this very program, running only its test `victim`.
fn start(role: &str, device: &str) -> Child {
    let program = std::env::current_exe().expect("our own path");
    Command::new(program)
        .args(["--exact", "victim", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(DEVICE, device)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(if role == "target" { Stdio::piped() } else { Stdio::null() })
        .spawn()
        .expect("the victim starts")
}

/// An endpoint in the survivor's process that has nothing to do with the victims, and must not notice them.
struct Bystander {
    endpoint: Endpoint,
    to_hub: Connection,
    local: Area,
    remote: Area,
}

impl Bystander {
    fn new(plan: &Plan, hub: &mut Endpoint) -> Bystander {
        let mut endpoint = open(plan.device, plan.noticed_within);
        let uri = hub.uri().to_owned();
        endpoint
            .connect(&uri, b"", cci::Attribute::ReliableOrdered, 0, Some(plan.noticed_within))
            .expect("a connection");
        let (mut to_hub, mut accepted) = (None, false);
        while to_hub.is_none() || !accepted {
            match hub.next_event() {
                Some(Event::ConnectRequest(request)) => hub.accept(request, 0).expect("accepted"),
                Some(Event::Accept { result, .. }) => accepted = result.is_ok(),
                _ => {}
            }
            if let Some(Event::Connect { result, .. }) = endpoint.next_event() {
                to_hub = Some(result.expect("connected"));
            }
        }
        let local = Area::new(&mut endpoint, true);
        let remote = Area::new(hub, true);
        local.fill();
        let mut bystander = Bystander { endpoint, to_hub: to_hub.expect("just seen"), local, remote };
        // What its first uses of the memory make, such as a mapping, is held from now on.
        for _ in 0..5 {
            bystander.goes_on(plan, hub);
        }
        bystander
    }

    /// It must be driven, or it would be taken for dead itself.
    fn turn(&mut self) {
        if let Some(event) = self.endpoint.next_event() {
            panic!("the bystander noticed something: {event:?}");
        }
    }

    /// Writes to the hub as if nothing had happened. The hub has no other peers now.
    fn goes_on(&mut self, plan: &Plan, hub: &mut Endpoint) {
        self.remote.clear();
        let (from, to) =
            (RegionAddress::new(self.local.handle, 0), RegionAddress::new(self.remote.handle, 0));
        self.endpoint
            .rma_write(self.to_hub, from, to, LEN as u64, 5, RmaFlags::NONE)
            .expect("the bystander is connected");
        let end = Instant::now() + plan.noticed_within;
        loop {
            assert!(Instant::now() < end, "the bystander was stopped");
            // What the dead have left in the queue is nobody's concern.
            drop(hub.next_event());
            match self.endpoint.next_event() {
                Some(Event::Send { context: 5, status, .. }) => {
                    assert_eq!(status, Status::Success);
                    break;
                }
                Some(other) => panic!("the bystander noticed something: {other:?}"),
                None => {}
            }
        }
        assert_eq!(self.remote.check(), LEN, "all of it was written");
    }
}

/// Goes on until no more is held than before, of the system and of connections.
fn check_nothing_left(plan: &Plan, hub: &mut Endpoint, before: &Resources, connections: u64) {
    let end = Instant::now() + plan.noticed_within;
    loop {
        drop(hub.next_event());
        let (counters, now) = (hub.counters(), Resources::now());
        if now == *before && counters.connections_open == connections {
            return;
        }
        assert!(
            Instant::now() < end,
            "left behind: {now:?}, before {before:?}; {} connections open",
            counters.connections_open
        );
    }
}
