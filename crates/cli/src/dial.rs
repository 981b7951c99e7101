//! Opening endpoints and connections for the subcommands, with a remedy for everything that can go wrong.

use crate::devices;
use crate::failure::{Failure, Outcome};
use cci::{
    Attribute, ConnectError, ConnectFailure, Connection, CreateError, Device, Endpoint, Event, Options,
    SendError, Status,
};
use std::time::{Duration, Instant};

/// Opens an endpoint on `device`.
pub fn open(device: &Device, options: Options) -> Outcome<Endpoint> {
    Endpoint::create(device, options).map_err(|error| {
        let failure = Failure::new(format!("device {}: {error}", device.name()));
        match error {
            CreateError::DeviceDown => not_up(device),
            CreateError::InUse { .. } => failure.remedy("another --service, or none: then one is chosen"),
            // The message says what is wrong with it and what would do.
            CreateError::BadService { .. } | CreateError::NoMemory { .. } | CreateError::BadOption { .. } => {
                failure
            }
            CreateError::System(_) => failure.remedy("`cci info` shows the limits of this machine"),
        }
    })
}

/// Why a device can't be used: what it lacks, where that is known; otherwise its interface is down.
fn not_up(device: &Device) -> Failure {
    let failure = |why: &str| Failure::new(format!("device {}: {why}", device.name()));
    match (device.unavailable().first(), device.interface()) {
        (Some(lack), _) => failure(&lack.reason).remedy(lack.remedy.clone()),
        (None, Some(interface)) => failure(&format!("the interface {interface} is down"))
            .remedy(format!("ip link set {interface} up")),
        (None, None) => match devices::network_lack() {
            Some(lack) => failure(&lack.reason).remedy(lack.remedy),
            None => failure("it is down").remedy("`cci info` shows the devices"),
        },
    }
}

/// Connects, or says what to do. Events of other connections that come meanwhile are dropped.
pub fn connect(
    endpoint: &mut Endpoint,
    uri: &str,
    hello: &[u8],
    attribute: Attribute,
    timeout: Duration,
) -> Outcome<Connection> {
    // The context of this connection is one that no other connection here uses.
    const CONTEXT: u64 = u64::MAX;
    endpoint.connect(uri, hello, attribute, CONTEXT, Some(timeout)).map_err(|error| match error {
        ConnectError::BadUri { .. } => {
            Failure::usage(error.to_string()).remedy("a URI as `cci serve` prints it")
        }
        _ => Failure::new(error.to_string()),
    })?;
    // The library ends the attempt in time; a little more is for a machine that is busy.
    let until = Instant::now() + timeout + Duration::from_secs(2);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if let Some(Event::Connect { context: CONTEXT, result }) = wait(endpoint, left)? {
            return result.map_err(|why| not_connected(uri, why));
        }
    }
    Err(not_connected(uri, ConnectFailure::TimedOut))
}

fn not_connected(uri: &str, why: ConnectFailure) -> Failure {
    let scheme = uri.split_once("://").map_or("", |(scheme, _)| scheme);
    let files_are_limited = cci_sys::limits::read().file_bytes.is_some();
    let remedy = match why {
        ConnectFailure::Refused if scheme == "shm" => {
            "start `cci serve` on this host and use the URI it prints"
        }
        ConnectFailure::Refused => "start `cci serve` on that host and use the URI it prints",
        ConnectFailure::TimedOut => match scheme {
            "shm" => "see whether the server's process is stopped or hangs",
            "eth" => {
                "see whether `cci serve` runs there, and whether both interfaces are on the same Ethernet; a longer \
                 --timeout"
            }
            "udp" => {
                "see whether `cci serve` runs there, on that port, and whether a firewall drops UDP to that port (then \
                 a tcp:// URI may get through); a longer --timeout"
            }
            "tcp" => {
                "see whether `cci serve` runs there, on that port, and whether a firewall drops TCP to that port; a \
                 longer --timeout"
            }
            _ => {
                "see whether `cci serve` runs there, and whether a firewall drops UDP and TCP to its ports; a longer \
                 --timeout"
            }
        },
        ConnectFailure::Version { .. } => "the same version of CCI on both sides",
        ConnectFailure::NoMemory if scheme == "shm" && files_are_limited => {
            "raise the limit of file sizes, which shared memory counts as (ulimit -f unlimited), on both sides"
        }
        ConnectFailure::NotPermitted if scheme == "shm" => {
            "run both as the same user, or, without security, write all_users = on into the section of the server's \
             device; where the server's name does not say its user, into that of the client's, too"
        }
        ConnectFailure::NotPermitted => "see allow_connect of both sides",
        ConnectFailure::WrongPeer => {
            "see who is at that address, and expect in the section of this side's device"
        }
        ConnectFailure::NoMemory => "close connections of the server, or raise its memory_bytes_max",
        ConnectFailure::Disconnected => "see why the server ended, then again",
    };
    Failure::new(format!("connecting to {uri}: {why}")).remedy(remedy)
}

/// The next event, or none after `timeout`.
pub fn wait(endpoint: &mut Endpoint, timeout: Duration) -> Outcome<Option<Event>> {
    endpoint.wait(Some(timeout)).map_err(|error| Failure::new(format!("waiting: {error}")))
}

/// A message was not taken, for good.
pub fn not_sent(error: SendError) -> Failure {
    match error {
        SendError::Disconnected => {
            Failure::new("the server closed the connection or died").remedy("see why it ended, then again")
        }
        _ => Failure::new(format!("sending: {error}")),
    }
}

/// A message was taken and failed.
pub fn not_delivered(status: Status) -> Failure {
    let failure = Failure::new(format!("a send ended with: {status}"));
    match status {
        Status::ReceiverNotReady => failure.remedy("see whether the server is overloaded or stopped"),
        Status::TimedOut => failure.remedy("see whether the network is up and the server's process runs"),
        Status::Disconnected => failure.remedy("see why the server ended, then again"),
        Status::DeviceDead => failure.remedy("`cci info` shows the device"),
        Status::RmaHandle | Status::RmaOperation => {
            failure.remedy("see whether both sides run the same version of `cci`")
        }
        Status::Success => failure,
    }
}
