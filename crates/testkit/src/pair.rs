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
        let [client, server] = &mut self.ends;
        let uri = server.uri().to_owned();
        join(client, server, &uri, attribute, PATIENCE).expect("nothing stands in the way")
    }
}

/// Connects `client` by the URI of `server`, or by that of a relay to it, and has `server` accept; the client's and the
/// server's name of the connection. The server may hear meanwhile that other connections have ended.
///
/// # Errors
/// Says why there is no connection.
pub fn join(
    client: &mut Endpoint,
    server: &mut Endpoint,
    uri: &str,
    attribute: Attribute,
    patience: Duration,
) -> Result<[Connection; 2], String> {
    client.connect(uri, b"", attribute, 0, Some(patience)).map_err(|error| error.to_string())?;
    let (mut ours, mut theirs, mut requests) = (None, None, 0);
    let started = Instant::now();
    loop {
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            return Ok([ours, theirs]);
        }
        match client.next_event() {
            Some(Event::Connect { result, .. }) => {
                ours = Some(result.map_err(|failure| failure.to_string())?);
            }
            Some(other) => return Err(format!("{other:?}")),
            None => {}
        }
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => {
                requests += 1;
                assert_eq!((request.attribute(), requests), (attribute, 1), "asked for once, as it was");
                server.accept(request, 0).map_err(|error| error.to_string())?;
            }
            Some(Event::Accept { result, .. }) => {
                theirs = Some(result.map_err(|failure| failure.to_string())?);
            }
            Some(Event::Disconnected { .. }) | None => {}
            Some(other) => return Err(format!("{other:?}")),
        }
        if started.elapsed() > patience + PATIENCE / 4 {
            return Err(format!("no connection: {:?} {:?}", client.counters(), server.counters()));
        }
    }
}
