//! Where a scene plays: a device for the victim, and one for its honest peers.

use crate::credentials;
use crate::net::Veth;
use cci::{Context, Device};
use std::path::Path;

const PSK: &str = "security = psk\npsk_file = @/cluster.psk\n";
const CERTIFICATES: &str = "security = certificates\ncertificate = @/node1.pem\nprivate_key = @/node1.key\nauthorities = @/authority.pem\n";

/// A device for the victim, and one for its honest peers, as text of a configuration.
pub struct Stage {
    /// The victim's.
    pub victim: String,
    /// Its peers'.
    pub peers: String,
    /// A namespace with interfaces, where the scene needs one.
    network: Option<Veth>,
}

impl Stage {
    /// By name: `udp`, `tcp`, `shm`, `shm-ring` (all memory through the ring), `any`, `eth`, `eth-packet`; with `-psk` or `-certificates` behind it, with security. None:
    /// this machine has no such device, and that was printed.
    pub fn find(name: &str) -> Option<Stage> {
        let (device, security) = [("-psk", PSK), ("-certificates", CERTIFICATES)]
            .into_iter()
            .find_map(|(suffix, lines)| Some((name.strip_suffix(suffix)?, lines)))
            .unwrap_or((name, ""));
        let veth = match device {
            "eth" | "eth-packet" => match Veth::pair_in_one_namespace(1500) {
                Ok(veth) => Some(veth),
                Err(why) => {
                    println!("skipped: {name}: {why}");
                    return None;
                }
            },
            _ => None,
        };
        let security = security.replace('@', &credentials::folder().display().to_string());
        let text = |end: &str| {
            let lines = match device {
                "eth" => format!("transport = eth\ninterface = {end}0\n"),
                "eth-packet" => format!("transport = eth\ninterface = {end}0\nmode = packet\n"),
                "shm" => "transport = shm\n".to_owned(),
                "shm-ring" => "transport = shm\ndirect = off\ncma = off\n".to_owned(),
                other => format!("transport = {other}\nip = 127.0.0.1\n"),
            };
            format!("[d]\n{lines}{security}")
        };
        Some(Stage { victim: text("a"), peers: text("b"), network: veth })
    }

    /// Finds a stage in a network namespace of its own, where what the kernel believes is nobody else's affair.
    pub fn apart(name: &str) -> Option<Stage> {
        let stage = Stage::find(name)?;
        if stage.network.is_some() {
            return Some(stage);
        }
        let veth =
            Veth::pair_in_one_namespace(1500).map_err(|why| println!("skipped: {name}: {why}")).ok()?;
        Some(Stage { network: Some(veth), ..stage })
    }
}

/// The first device of a configuration.
pub fn device(text: &str) -> Device {
    Context::from_text(text, Path::new("hostile.ini")).expect("a configuration").devices()[0].clone()
}
