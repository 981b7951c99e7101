//! The library as a program sees it first: which devices are there.

use crate::config;
use crate::config::ConfigNote;
use crate::config::ini::Loaded;
use crate::device::{Device, DeviceInfo, TransportKind, Unavailable};
use crate::error::{ContextError, DeviceForError};
use crate::transport::reach;
use cci_secure::CAN_SEAL;
use std::path::Path;
use std::sync::Arc;

/// The devices of this machine, ordered by priority. Holds no other resources; make as many as you like.
///
/// ```
/// use cci::Context;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let context = Context::new()?;
/// for device in context.devices() {
///     println!("{} {}", device.name(), if device.is_up() { "up" } else { "down" });
/// }
/// assert!(context.default_device().is_up());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    devices: Vec<Device>,
    notes: Vec<ConfigNote>,
    services_directory: Option<String>,
}

/// A device as it is in a build without the feature `sealing`: it says so.
fn without_sealing(device: Device) -> Device {
    if device.transport() == TransportKind::Shm {
        return device;
    }
    let mut info = (*device.0).clone();
    info.unavailable.push(Unavailable {
        what: "security (encryption)".to_owned(),
        reason: "this build of CCI was made without it".to_owned(),
        remedy: "build CCI with the feature `sealing`, which is on unless default features are off"
            .to_owned(),
    });
    Device(Arc::new(info))
}

impl Context {
    /// Reads the INI file named by the environment variable `CCI_CONFIG`. Without one, finds shared memory, which is the default;
    /// UDP and TCP on each interface that is up, loopback included; `any`; and raw Ethernet.
    ///
    /// # Errors
    /// [`ContextError`]: the file can't be read, is wrong at a given line, or no device was found.
    pub fn new() -> Result<Context, ContextError> {
        match std::env::var_os("CCI_CONFIG") {
            Some(path) if !path.is_empty() => Context::from_file(Path::new(&path)),
            _ => Context::of(Loaded { devices: config::builtin::devices(), ..Loaded::default() }),
        }
    }

    /// Reads a configuration file.
    ///
    /// # Errors
    /// Those of [`Context::new`].
    pub fn from_file(path: &Path) -> Result<Context, ContextError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ContextError::Unreadable { path: path.to_owned(), source })?;
        Context::from_text(&text, path)
    }

    /// Reads a configuration; `path` is only for error messages.
    ///
    /// # Errors
    /// Those of [`Context::new`].
    pub fn from_text(text: &str, path: &Path) -> Result<Context, ContextError> {
        let mut loaded = config::ini::load(text, path)?;
        if loaded.devices.is_empty() && loaded.services_directory.is_some() {
            loaded.devices = config::builtin::devices();
        }
        if loaded.devices.is_empty() {
            let reason = "the file names no device: write a section such as [shm], below it transport = shm, or unset \
                          CCI_CONFIG, and devices are found";
            return Err(ContextError::Config { path: path.to_owned(), line: 1, reason: reason.to_owned() });
        }
        Context::of(loaded)
    }

    /// `devices` come ordered, the default one marked or first.
    fn of(Loaded { devices, notes, services_directory }: Loaded) -> Result<Context, ContextError> {
        if devices.is_empty() {
            return Err(ContextError::NoDevice);
        }
        let devices = if CAN_SEAL { devices } else { devices.into_iter().map(without_sealing).collect() };
        Ok(Context { devices, notes, services_directory })
    }

    /// What the configuration file says that is no error, but may not be what its author meant. Empty without a file.
    pub fn notes(&self) -> &[ConfigNote] {
        &self.notes
    }

    /// What the section `[services]` of the configuration file gives as `directory`: where services are found by name, for the layer that
    /// does so. The core does not use it.
    pub fn services_directory(&self) -> Option<&str> {
        self.services_directory.as_deref()
    }

    /// All devices, highest priority first.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The one marked `default` in the configuration, or the first that is up.
    pub fn default_device(&self) -> &Device {
        let marked = self.devices.iter().find(|device| device.0.is_default);
        let up = || self.devices.iter().find(|device| device.is_up());
        marked.or_else(up).unwrap_or_else(|| &self.devices[0])
    }

    /// The default device, whose endpoints connect to every URI that any of the devices leads to. An endpoint of it listens where
    /// one of [`Context::default_device`] does, and nowhere else: another device gets a socket when it is first dialled, and that
    /// socket admits nobody. C programs that name no device get this one.
    ///
    /// ```
    /// use cci::{Attribute, Context, Endpoint, Event, Options};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let context = Context::new()?;
    /// let mut server = Endpoint::create(context.device_for("tcp://127.0.0.1:1")?, Options::default())?;
    /// let mut client = Endpoint::create(&context.device_for_any(), Options::default())?;
    /// client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, None)?;
    /// while !matches!(client.next_event(), Some(Event::Connect { .. })) {
    ///     if let Some(Event::ConnectRequest(request)) = server.next_event() {
    ///         server.accept(request, 0)?;
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn device_for_any(&self) -> Device {
        let home = self.default_device();
        let others = self.devices.iter().filter(|device| device.name() != home.name());
        let on_demand = std::iter::once(home).chain(others).cloned().collect();
        Device(Arc::new(DeviceInfo { on_demand, ..(*home.0).clone() }))
    }

    /// The device that leads to a URI, so that one program serves every transport: shared memory for `shm://`, for `udp://` and `tcp://`
    /// the one on the interface by which the system reaches that address, and so on. It does not ask whether somebody is there.
    ///
    /// ```
    /// use cci::{Context, Endpoint, Options};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let uri = cci::resolve("udp://localhost:7811")?;
    /// let endpoint = Endpoint::create(Context::new()?.device_for(&uri)?, Options::default())?;
    /// assert_eq!(endpoint.device().transport(), cci::TransportKind::Udp);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`DeviceForError`]: the URI can't be understood, or no device that is up leads there. Nothing blocks: a host's name is refused
    /// here, and [`crate::resolve()`] looks it up.
    pub fn device_for(&self, uri: &str) -> Result<&Device, DeviceForError> {
        reach::device_for(&self.devices, uri)
    }

    /// The device of a name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name() == name)
    }
}
