//! Two connected endpoints that one thread drives in turns: nothing runs beside it, so that what it does can be counted.

use crate::conformance::{DeviceUnderTest, config};
use crate::net::Veth;
use cci::{Attribute, Connection, Context, Endpoint, Event, Options};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long anything may take that is certain to come.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Two endpoints of one device, or of the two ends of a wire.
pub struct Pair {
    /// The client's and the server's.
    pub ends: [Endpoint; 2],
    /// After the endpoints, which are in it.
    _network: Option<Veth>,
}

impl Pair {
    /// Opens both. An error says what this machine does not have.
    pub fn open(device: &DeviceUnderTest, options: &Options) -> Result<Pair, String> {
        let network = device.network().map_err(|reason| reason.to_string())?;
        let far = device.far(network.as_ref());
        let open = |section: &str| {
            let context =
                Context::from_text(&config(), Path::new("pair.ini")).map_err(|error| error.to_string())?;
            let device = context.device(section).ok_or_else(|| format!("no device {section}"))?;
            Endpoint::create(device, options.clone()).map_err(|error| format!("{section}: {error}"))
        };
        let server = {
            let _inside = far.as_ref().map(|far| far.enter().expect("who made it may enter it"));
            open(device.peer.unwrap_or(device.name))?
        };
        let client = open(device.name)?;
        Ok(Pair { ends: [client, server], _network: network })
    }

    /// Connects them; the client's and the server's name of the connection.
    pub fn connect(&mut self, attribute: Attribute) -> [Connection; 2] {
        let uri = self.ends[1].uri().to_owned();
        self.ends[0].connect(&uri, b"", attribute, 0, Some(PATIENCE)).expect("nothing stands in the way");
        let mut connections = [None; 2];
        let started = Instant::now();
        while connections.iter().any(Option::is_none) {
            assert!(started.elapsed() < PATIENCE, "not connected: {connections:?}");
            for (end, connection) in self.ends.iter_mut().zip(&mut connections) {
                match end.next_event() {
                    Some(Event::ConnectRequest(request)) => {
                        end.accept(request, 0).expect("it was just asked")
                    }
                    Some(Event::Accept { result, .. } | Event::Connect { result, .. }) => {
                        *connection = Some(result.expect("both want it"));
                    }
                    _ => {}
                }
            }
        }
        connections.map(|connection| connection.expect("looked at above"))
    }
}
