//! What people write: URIs, and the configuration file.

use crate::config::ini;
use crate::transport::fuzzing::{any_uri, eth_uri, shm_uri};
use crate::transport::ip_uri;
use std::path::Path;

/// URIs of every kind. What is read and written again is read as the same.
pub fn uris(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for scheme in ["udp://", "tcp://"] {
        if let Ok(addr) = ip_uri::parse(scheme, text) {
            assert_eq!(ip_uri::parse(scheme, &ip_uri::format(scheme, addr, None)), Ok(addr), "{text:?}");
        }
        if let Ok((first, Some(second))) = ip_uri::parse_both(scheme, text) {
            let both = ip_uri::format_both(scheme, [(first, None), (second, None)]);
            assert_eq!(ip_uri::parse_both(scheme, &both), Ok((first, Some(second))), "{text:?}");
        }
    }
    eth_uri(text);
    shm_uri(text);
    any_uri(text);
}

/// Configuration files: each is a list of devices, or one mistake that names its line.
pub fn ini(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match ini::devices(text, Path::new("fuzz.ini")) {
        Ok(devices) => {
            for device in devices {
                assert!(!device.name().is_empty());
            }
        }
        Err(error) => assert!(error.to_string().contains("fuzz.ini"), "{error}"),
    }
}
