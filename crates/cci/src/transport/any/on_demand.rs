//! Transports that are opened when they are first dialled: with them an endpoint on one device connects to URIs that other
//! devices of its context lead to.
//!
//! Such an endpoint has only its device's own transport at first. [`around`] is called at the first URI that another device
//! leads to, so that an endpoint which stays on its device pays nothing for it. A transport opened later serves only the
//! connections that it dials: it listens nowhere and answers no requests (`DeviceInfo::serves`).
//! `docs/adr/0028-endpoints-that-connect-to-any-uri.md` has the reasons.

use super::parts::{BY_NAME, Part, engine_bytes};
use super::{Any, Counts, TOKEN_PARTS};
use crate::device::{Device, DeviceInfo, EthKeys, TransportKind};
use crate::engine::core::Core;
use crate::error::{ConnectError, CreateError, DeviceForError};
use crate::options::Options;
use crate::sealing::Sealing;
use crate::transport::reach;
use crate::transport::shm::{self, Admission};
use crate::transport::{self, Report, Setting, Transport};
use cci_sys::clock;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// Transports that one endpoint opens to dial, at most.
const DIALLED_MAX: u64 = 4;
/// Each of these may take this part of the memory cap, after the engine's buffers.
const DIVISOR: u64 = 2 * DIALLED_MAX;

/// What an endpoint needs to open more transports.
pub(crate) struct OnDemand {
    home: Device,
    /// Bytes of the memory cap that each transport may take, and that all transports may take together.
    part_bytes: u64,
    parts_bytes: u64,
    /// The endpoint has security, by its device or by what the program asked for.
    has_security: bool,
    /// Whoever connects over shared memory has all rights, because the endpoint has no security, or because its security says
    /// so.
    shares_memory: bool,
}

impl OnDemand {
    /// For an endpoint on this device. None: its context has no other devices that it may use.
    pub fn of(device: &Device, options: &Options) -> Result<Option<OnDemand>, CreateError> {
        if device.0.on_demand.is_empty() {
            return Ok(None);
        }
        let parts_bytes = parts_bytes(&device.0, options);
        let sealing = Sealing::of(&device.0, options)?;
        Ok(Some(OnDemand {
            home: device.clone(),
            part_bytes: parts_bytes / DIVISOR,
            parts_bytes,
            has_security: sealing.is_some(),
            shares_memory: sealing.as_ref().is_none_or(Sealing::gives_all_to_the_unnamed),
        }))
    }

    /// The name of the endpoint's own device.
    pub fn home(&self) -> &str {
        self.home.name()
    }

    /// The device that leads to a URI.
    pub fn device_for(&self, uri: &str) -> Result<&Device, ConnectError> {
        let bad_uri = |reason| ConnectError::BadUri { uri: uri.to_owned(), reason };
        let found = reach::device_for(&self.home.0.on_demand, uri).map_err(|error| match error {
            DeviceForError::BadUri { reason, .. } | DeviceForError::NoDevice { reason, .. } => {
                bad_uri(reason)
            }
        })?;
        let is_nameless = found.transport() == TransportKind::Shm && !self.shares_memory;
        if is_nameless { Err(bad_uri(format!("{BY_NAME}; connect by a network"))) } else { Ok(found) }
    }

    /// Whether the endpoint's own transport does not lead to a URI.
    pub fn is_needed_for(&self, uri: &str) -> Result<bool, ConnectError> {
        if self.home.transport() == TransportKind::Any {
            return Ok(false);
        }
        let lists_several = uri.starts_with(super::uri::SCHEME);
        Ok(lists_several || self.device_for(uri)?.name() != self.home.name())
    }

    /// Opens the transport of another device, for connections that this endpoint asks for.
    fn open(&self, device: &Device, uri: &str, core: &Core, index: usize) -> Result<Part, ConnectError> {
        let error = |error: CreateError| match error {
            CreateError::NoMemory { .. } => ConnectError::NoMemory,
            CreateError::System(error) => ConnectError::System(error),
            other => {
                let reason = format!("device {} can't be opened: {other}", device.name());
                ConnectError::BadUri { uri: uri.to_owned(), reason }
            }
        };
        let kind = device.transport();
        let found = &device.0;
        let device = DeviceInfo {
            serves: false,
            on_demand: Arc::new([]),
            // Ports and endpoint numbers are for endpoints that others are to find.
            port: 0,
            eth: EthKeys { endpoint: None, ..found.eth.clone() },
            // The endpoint's receive buffers are as long as its own device's messages.
            max_send_size: found.max_send_size.min(self.home.max_send_size()),
            security: match kind {
                TransportKind::Shm => None,
                _ => found.security.clone().or_else(|| self.home.0.security.clone()),
            },
            ..(**found).clone()
        };
        let mut options = Options { service: None, ..core.options.clone() };
        let poller = core.poller.part(TOKEN_PARTS + index as u64);
        let poller = Arc::new(poller.map_err(ConnectError::System)?);
        let transport = if kind == TransportKind::Shm {
            options.security = None;
            let admission = Admission::of(&device, self.has_security);
            shm::open(&device, &options, self.part_bytes, &poller, admission, None).map_err(error)?
        } else {
            options.memory_bytes_max = engine_bytes(&device, &options) + self.part_bytes;
            transport::open_one(&device, &options, &poller).map_err(error)?
        };
        Ok(Part {
            kind,
            expected: Sealing::expected(&device, &options).map_err(error)?,
            device: Some(device.name),
            transport,
            poller,
            set_apart_bytes: self.parts_bytes - self.part_bytes,
            busy: true,
        })
    }
}

/// Bytes of the memory cap that remain for the transports.
fn parts_bytes(device: &DeviceInfo, options: &Options) -> u64 {
    options.memory_bytes_max.saturating_sub(engine_bytes(device, options))
}

/// The options of an endpoint's first transport: its memory cap is without what others may take later. Shared memory checks
/// what remains whenever it takes memory, and needs no such limit.
pub(crate) fn options_of_home(device: &DeviceInfo, options: &Options) -> Options {
    let mut options = options.clone();
    if !device.on_demand.is_empty() && device.kind != TransportKind::Shm {
        options.memory_bytes_max -= parts_bytes(device, &options) / DIVISOR * DIALLED_MAX;
    }
    options
}

/// Makes a transport of several parts, with an endpoint's only transport as the first of them. Its connections keep their
/// names.
pub(crate) fn around(home: Box<dyn Transport>, core: &Core, on_demand: OnDemand) -> Box<dyn Transport> {
    let part = Part {
        kind: on_demand.home.transport(),
        expected: None,
        device: Some(on_demand.home.name().to_owned()),
        poller: core.poller.clone(),
        set_apart_bytes: 0,
        busy: true,
        transport: home,
    };
    Box::new(Any {
        on_demand: Some(on_demand),
        ..Any::of(part.transport.about().uri.to_owned(), vec![part], Vec::new())
    })
}

/// A transport without parts, which stands in for another one for a moment.
pub(crate) fn nothing() -> Box<dyn Transport> {
    Box::new(Any::of(String::new(), Vec::new(), Vec::new()))
}

impl Any {
    pub(super) fn of(uri: String, parts: Vec<Part>, missing: Vec<super::Missing>) -> Any {
        Any {
            uri,
            parts,
            missing,
            on_demand: None,
            attempts: HashMap::new(),
            due: BinaryHeap::new(),
            paths: HashMap::new(),
            counts: Counts::default(),
            polls: 0,
            clock_at: 0,
            polls_per_clock: 1,
            looked_ns: clock::now_ns(),
            slept: true,
        }
    }

    /// Whether a part of this kind leads to the URI, or could be opened to do so.
    pub(super) fn leads_to(&self, kind: TransportKind, uri: &str) -> bool {
        let opens =
            |on_demand: &OnDemand| on_demand.device_for(uri).is_ok_and(|device| device.transport() == kind);
        self.index_of(kind).is_some() || self.on_demand.as_ref().is_some_and(opens)
    }

    /// The index of the part that leads to a URI, which may be opened for it.
    pub(super) fn index_for(
        &mut self,
        core: &mut Core,
        kind: TransportKind,
        uri: &str,
    ) -> Result<usize, ConnectError> {
        let Some(on_demand) = &self.on_demand else {
            return self.index_of(kind).ok_or(ConnectError::Unsupported);
        };
        // A device `any` has one part of each kind, which leads wherever its interface does.
        if let Some(index) = self.parts.iter().position(|part| part.kind == kind && part.device.is_none()) {
            return Ok(index);
        }
        let device = on_demand.device_for(uri)?;
        let is_open = |part: &Part| part.device.as_deref() == Some(device.name());
        if let Some(index) = self.parts.iter().position(is_open) {
            return Ok(index);
        }
        if self.dialled() >= DIALLED_MAX || !self.leaves(core, on_demand.part_bytes) {
            return Err(ConnectError::NoMemory);
        }
        let index = self.parts.len();
        let part_bytes = on_demand.part_bytes;
        let part = on_demand.open(device, uri, core, index)?;
        self.parts.iter_mut().for_each(|part| part.set_apart_bytes += part_bytes);
        self.parts.push(part);
        for part in &mut self.parts {
            let setting = Setting::SetApart { bytes: part.set_apart_bytes };
            part.turn(core, |transport, core| transport.configure(core, setting));
        }
        // It may have something to arm before the next sleep.
        self.slept = true;
        Ok(index)
    }

    /// Parts that were opened to dial.
    fn dialled(&self) -> u64 {
        let own = self.on_demand.as_ref().map(OnDemand::home);
        self.parts.iter().filter(|part| part.device.is_some() && part.device.as_deref() != own).count() as u64
    }

    /// Whether so many bytes of the memory cap remain. Shared memory takes what it needs of the whole cap.
    fn leaves(&self, core: &Core, bytes: u64) -> bool {
        self.parts.iter().filter(|part| part.kind == TransportKind::Shm).all(|part| {
            let mut kinds = core.memory().to_vec();
            part.transport.report(core, Report::Memory(&mut kinds));
            let held_bytes: u64 = kinds.iter().map(|(_, bytes)| bytes).sum();
            held_bytes + part.set_apart_bytes + bytes <= core.options.memory_bytes_max
        })
    }
}
