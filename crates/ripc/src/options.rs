//! How a node is opened.

use crate::directory::Directory;
use crate::limits::{KEEPALIVE_NS, LEASE_NS, PULLED_BYTES_DEFAULT, RESOLVE_TIMEOUT_NS, SEND_TIMEOUT_NS};
use crate::policy::Policy;
use cci::Device;
use std::fmt;
use std::time::Duration;

/// How a node is opened. The defaults suit most programs.
#[non_exhaustive]
pub struct Options {
    /// The device that the node listens on. None: shared memory, or what the configuration file marks as default; other devices are
    /// used for partners that only they lead to.
    pub device: Option<Device>,
    /// The options of its endpoint: by default, a partner that is silent for 5 s is looked for anew.
    pub endpoint: cci::Options,
    /// Where services are. None: what the environment variable `CCI_DIRECTORY` says, or else the directory of this host.
    pub directory: Option<Box<dyn Directory>>,
    /// Who may register which services, and who may reach them, by the identities that partners have proved. By default
    /// everybody.
    pub policy: Policy,
    /// How long a service is looked for before what waits for it fails: 10 s.
    pub resolve_timeout: Duration,
    /// How long memory is lent to one partner, at most: 60 s.
    pub lease: Duration,
    /// Memory of the library into which long items are fetched when a program has given no windows, at a time, bytes: 256 MiB. With 0,
    /// only windows are used.
    pub fetched_bytes_max: u64,
    /// Whether long items are fetched when the program receives their message, into the windows that it has given by then, and not
    /// when the message comes: by default not.
    pub fetch_on_receive: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            device: None,
            endpoint: cci::Options::default()
                .keepalive(Duration::from_nanos(KEEPALIVE_NS))
                .send_timeout(Duration::from_nanos(SEND_TIMEOUT_NS)),
            directory: None,
            policy: Policy::default(),
            resolve_timeout: Duration::from_nanos(RESOLVE_TIMEOUT_NS),
            lease: Duration::from_nanos(LEASE_NS),
            fetched_bytes_max: PULLED_BYTES_DEFAULT,
            fetch_on_receive: false,
        }
    }
}

impl Options {
    /// These options with another [`device`](field@Options::device).
    #[must_use]
    pub fn device(self, device: &Device) -> Options {
        Options { device: Some(device.clone()), ..self }
    }

    /// These options with others for the [`endpoint`](field@Options::endpoint).
    #[must_use]
    pub fn endpoint(self, endpoint: cci::Options) -> Options {
        Options { endpoint, ..self }
    }

    /// These options with another [`directory`](field@Options::directory).
    #[must_use]
    pub fn directory(self, directory: Box<dyn Directory>) -> Options {
        Options { directory: Some(directory), ..self }
    }

    /// These options with another [`policy`](field@Options::policy).
    #[must_use]
    pub fn policy(self, policy: Policy) -> Options {
        Options { policy, ..self }
    }

    /// These options with another [`resolve_timeout`](field@Options::resolve_timeout).
    #[must_use]
    pub fn resolve_timeout(self, resolve_timeout: Duration) -> Options {
        Options { resolve_timeout, ..self }
    }

    /// These options with another [`lease`](field@Options::lease).
    #[must_use]
    pub fn lease(self, lease: Duration) -> Options {
        Options { lease, ..self }
    }

    /// These options with another [`fetched_bytes_max`](field@Options::fetched_bytes_max).
    #[must_use]
    pub fn fetched_bytes_max(self, fetched_bytes_max: u64) -> Options {
        Options { fetched_bytes_max, ..self }
    }

    /// These options with another [`fetch_on_receive`](field@Options::fetch_on_receive).
    #[must_use]
    pub fn fetch_on_receive(self, fetch_on_receive: bool) -> Options {
        Options { fetch_on_receive, ..self }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("device", &self.device)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}
