//! Where a scene plays: a device for the victim, and one for its honest peers.

use crate::net::Veth;
use cci::{Context, Device};
use std::path::Path;

/// A device for the victim, and one for its honest peers, as text of a configuration.
pub struct Stage {
    /// The victim's.
    pub victim: String,
    /// Its peers'.
    pub peers: String,
    /// Interfaces, where the device has some.
    _veth: Option<Veth>,
}

impl Stage {
    /// By name: `udp`, `tcp`, `shm`, `eth`, `eth-packet`. None: this machine has no such device, and that was printed.
    pub fn find(name: &str) -> Option<Stage> {
        let veth = match name {
            "eth" | "eth-packet" => match Veth::pair_here(1500) {
                Ok(veth) => Some(veth),
                Err(why) => {
                    println!("skipped: {name}: {why}");
                    return None;
                }
            },
            _ => None,
        };
        let text = |end: &str| match name {
            "eth" => format!("[d]\ntransport = eth\ninterface = {end}0\n"),
            "eth-packet" => format!("[d]\ntransport = eth\ninterface = {end}0\nmode = packet\n"),
            "shm" => "[d]\ntransport = shm\n".to_owned(),
            other => format!("[d]\ntransport = {other}\nip = 127.0.0.1\n"),
        };
        Some(Stage { victim: text("a"), peers: text("b"), _veth: veth })
    }
}

/// The first device of a configuration.
pub fn device(text: &str) -> Device {
    Context::from_text(text, Path::new("hostile.ini")).expect("a configuration").devices()[0].clone()
}
