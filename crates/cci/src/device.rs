//! Devices: what an endpoint can be opened on.

use crate::security::Security;
use std::fmt;
use std::sync::Arc;

/// Priority unless configured.
const PRIORITY_DEFAULT: u8 = 50;

/// Which transport drives a device.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum TransportKind {
    /// Shared memory on one host.
    Shm,
    /// UDP sockets.
    Udp,
    /// TCP streams.
    Tcp,
    /// Frames of our own on an Ethernet interface, past the kernel's IP stack.
    Eth,
    /// Several of the others under one address; each connection takes the best that leads to its peer.
    Any,
}

impl TransportKind {
    /// The name used in configuration files, URIs and the C interface.
    pub const fn name(self) -> &'static str {
        match self {
            TransportKind::Shm => "shm",
            TransportKind::Udp => "udp",
            TransportKind::Tcp => "tcp",
            TransportKind::Eth => "eth",
            TransportKind::Any => "any",
        }
    }
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a device sits on the PCI bus.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PciAddress {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u32,
    /// Device.
    pub dev: u32,
    /// Function.
    pub func: u32,
}

/// Something that a device or this machine can't do, why, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// What is missing, such as "udp receive offload (GRO)".
    pub what: String,
    /// Why it is missing.
    pub reason: String,
    /// What to do about it.
    pub remedy: String,
}

/// A device: shared memory, or one network interface. Cheap to clone.
///
/// ```
/// use cci::{Context, TransportKind};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new()?;
/// for device in context.devices().iter().filter(|device| !device.is_up()) {
///     for lack in device.unavailable() {
///         println!("{}: {}: {}", device.name(), lack.reason, lack.remedy);
///     }
/// }
/// assert!(context.devices().iter().any(|device| device.transport() == TransportKind::Shm));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Device(pub(crate) Arc<DeviceInfo>);

/// When memory that can't be mapped is read by system calls from process to process.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cma {
    Off,
    /// Use such reads where they work and are faster.
    On,
    /// Use such reads wherever they work.
    Always,
}

/// What is known of a device. Fields are read through [`Device`].
#[derive(Clone, Debug)]
pub(crate) struct DeviceInfo {
    pub name: String,
    pub kind: TransportKind,
    pub up: bool,
    pub info: String,
    /// `key=value`, as given in the configuration or as found.
    pub conf_argv: Vec<String>,
    pub max_send_size: u32,
    pub rate_bits_per_s: u64,
    pub pci: Option<PciAddress>,
    /// 100 highest, 50 default.
    pub priority: u8,
    pub is_default: bool,
    /// The address endpoints of this device bind to, without port (network devices).
    pub ip: Option<std::net::IpAddr>,
    /// IPv6 scope of a link-local address.
    pub scope_id: u32,
    pub interface: Option<String>,
    /// The other interface of a device with two: connections to others with two are bonded.
    pub second: Option<SecondInterface>,
    /// Port to use where the program names none; 0 = any.
    pub port: u16,
    /// MTU of the interface or from the configuration, bytes.
    pub mtu_bytes: u32,
    pub shm: ShmKeys,
    pub eth: EthKeys,
    pub multicast: MulticastKeys,
    /// How peers are known and how messages are sealed. None: they are neither.
    pub security: Option<Security>,
    pub unavailable: Vec<Unavailable>,
    /// Whether others may ask its endpoints for connections. They may not where an endpoint opens the device only to dial.
    pub serves: bool,
    /// The devices by which its endpoints connect, too, where these lead to a URI; itself is the first. Empty: it stands for
    /// itself alone.
    pub on_demand: Arc<[Device]>,
}

/// The second interface of a device.
#[derive(Clone, Debug)]
pub(crate) struct SecondInterface {
    /// The address to bind to.
    pub ip: std::net::IpAddr,
    /// IPv6 scope of a link-local address.
    pub scope_id: u32,
    /// Its name.
    pub interface: Option<String>,
}

/// What a configuration says of shared memory.
#[derive(Clone, Debug)]
pub(crate) struct ShmKeys {
    /// Directory for services, if configured.
    pub directory: Option<std::path::PathBuf>,
    /// Processes of all users may connect; otherwise only those of this process's user, and root's.
    pub all_users: bool,
    /// Peers on this host may map library memory, and we theirs.
    pub direct: bool,
    /// Whether memory is read by system calls from process to process.
    pub cma: Cma,
}

/// What a configuration says of raw Ethernet.
#[derive(Clone, Debug, Default)]
pub(crate) struct EthKeys {
    /// Which kernel interface carries frames.
    pub mode: EthMode,
    /// Number of an endpoint that names no service; None: any.
    pub endpoint: Option<u32>,
}

/// Which kernel interface carries frames.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum EthMode {
    /// AF_XDP if it can be had, in the driver if that can do it and gains by it, else AF_PACKET.
    #[default]
    Auto,
    /// AF_XDP only, in the driver if that can do it.
    Xdp,
    /// AF_XDP only, above the driver.
    XdpGeneric,
    /// AF_PACKET only.
    Packet,
}

impl Default for ShmKeys {
    fn default() -> Self {
        ShmKeys { directory: None, all_users: false, direct: true, cma: Cma::On }
    }
}

/// What a configuration says of multicast groups.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct MulticastKeys {
    /// Routers that may pass messages on, this link counted.
    pub hops: u8,
    /// An endpoint that has joined a group gets what it has itself sent there.
    pub own: bool,
}

impl Default for MulticastKeys {
    fn default() -> Self {
        MulticastKeys { hops: 1, own: false }
    }
}

impl DeviceInfo {
    /// A device of which nothing is known but what drives it: up, of the usual priority.
    pub fn new(name: String, kind: TransportKind) -> DeviceInfo {
        DeviceInfo {
            name,
            kind,
            up: true,
            info: String::new(),
            conf_argv: Vec::new(),
            max_send_size: 0,
            rate_bits_per_s: 0,
            pci: None,
            priority: PRIORITY_DEFAULT,
            is_default: false,
            ip: None,
            scope_id: 0,
            interface: None,
            second: None,
            port: 0,
            mtu_bytes: 0,
            shm: ShmKeys::default(),
            eth: EthKeys::default(),
            multicast: MulticastKeys::default(),
            security: None,
            unavailable: Vec::new(),
            serves: true,
            on_demand: Arc::new([]),
        }
    }
}

impl Device {
    /// The device's name: the section of the configuration file, or "shm", "udp-eth0", "udp-lo".
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// Which transport is behind the device.
    pub fn transport(&self) -> TransportKind {
        self.0.kind
    }
    /// Whether it can be used now.
    pub fn is_up(&self) -> bool {
        self.0.up
    }
    /// A line for people.
    pub fn info(&self) -> &str {
        &self.0.info
    }
    /// `key=value` strings of the configuration.
    pub fn conf_argv(&self) -> &[String] {
        &self.0.conf_argv
    }
    /// The longest message, bytes (CCI-047). A connection takes the smaller of its two sides'.
    pub fn max_send_size(&self) -> u32 {
        self.0.max_send_size
    }
    /// Speed of the link, bits per second; 0 when unknown.
    pub fn rate_bits_per_s(&self) -> u64 {
        self.0.rate_bits_per_s
    }
    /// Where it sits, if it is a PCI device.
    pub fn pci(&self) -> Option<PciAddress> {
        self.0.pci
    }
    /// Its priority: 100 is the highest, 50 unless configured.
    pub fn priority(&self) -> u8 {
        self.0.priority
    }
    /// Its IP address, for network devices.
    pub fn ip(&self) -> Option<std::net::IpAddr> {
        self.0.ip
    }
    /// The network interface, for network devices.
    pub fn interface(&self) -> Option<&str> {
        self.0.interface.as_deref()
    }
    /// MTU, bytes (0 where there is no such thing).
    pub fn mtu_bytes(&self) -> u32 {
        self.0.mtu_bytes
    }
    /// How peers are known and what passes is sealed, in a line for people; None: everything is plain, unless a program
    /// asks for more.
    pub fn security(&self) -> Option<String> {
        self.0.security.as_ref().map(Security::describe)
    }
    /// What this device can't do here, why, and what would help.
    pub fn unavailable(&self) -> &[Unavailable] {
        &self.0.unavailable
    }
}
