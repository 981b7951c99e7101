//! The devices as C structs.

use crate::guard::Failure;
use crate::types::*;
use cci::{Context, Device};
use libc::{c_char, c_uint};
use std::ffi::CString;
use std::ptr::{self, null};

/// One device: the C struct and what its pointers point to.
struct Entry {
    device: Device,
    public: cci_device_t,
    _strings: Vec<CString>,
    _argv: Vec<*const c_char>,
}

/// All devices, from the first `cci_init` to the last `cci_finalize`. Nothing in it moves meanwhile.
pub(crate) struct Devices {
    entries: Box<[Entry]>,
    /// Pointers to the entries' public parts, NULL-ended: what `cci_get_devices` gives out.
    pub list: Box<[*const cci_device_t]>,
    default: usize,
    /// What a program gets that names no device.
    any: Device,
}

// SAFETY: the raw pointers lead into the struct's own heap memory, which is never written after `new`.
unsafe impl Send for Devices {}

impl Devices {
    pub fn new(context: &Context) -> Devices {
        let entries: Box<[Entry]> = context.devices().iter().map(Entry::new).collect();
        let pointers = entries.iter().map(|entry| ptr::from_ref(&entry.public));
        let list = pointers.chain([null()]).collect();
        let default_name = context.default_device().name();
        let default = entries.iter().position(|entry| entry.device.name() == default_name).unwrap_or(0);
        Devices { entries, list, default, any: context.device_for_any() }
    }

    /// The device that a program names by its pointer. NULL is the default one, whose endpoints connect by the others, too.
    pub fn find(&self, device: *const cci_device_t) -> Result<(Device, *const cci_device_t), Failure> {
        let unknown = || Failure::with_text(CCI_EINVAL, "not a device that cci_get_devices gave out");
        if device.is_null() {
            let entry = self.entries.get(self.default).ok_or_else(unknown)?;
            return Ok((self.any.clone(), &entry.public));
        }
        let entry = self.entries.iter().find(|entry| ptr::eq(&entry.public, device)).ok_or_else(unknown)?;
        Ok((entry.device.clone(), &entry.public))
    }
}

impl Entry {
    fn new(device: &Device) -> Entry {
        // The pointers lead to the strings' heap memory, which stays where it is when the vectors move.
        let mut strings = Vec::new();
        let mut keep = |text: &str| {
            let string = CString::new(text.replace('\0', "")).unwrap_or_default();
            let pointer = string.as_ptr();
            strings.push(string);
            pointer
        };
        let (name, transport, info) =
            (keep(device.name()), keep(device.transport().name()), keep(device.info()));
        let mut argv: Vec<*const c_char> = device.conf_argv().iter().map(|arg| keep(arg)).collect();
        argv.push(null());
        let pci = device.pci().map_or(
            cci_device_pci { domain: u32::MAX, bus: u32::MAX, dev: u32::MAX, func: u32::MAX },
            |pci| cci_device_pci { domain: pci.domain, bus: pci.bus, dev: pci.dev, func: pci.func },
        );
        let public = cci_device_t {
            name,
            transport,
            up: c_uint::from(device.is_up()),
            info,
            conf_argv: argv.as_ptr(),
            max_send_size: device.max_send_size(),
            rate: device.rate_bits_per_s(),
            pci,
        };
        Entry { device: device.clone(), public, _strings: strings, _argv: argv }
    }
}
