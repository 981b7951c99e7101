//! What tests of hostile peers share: a device between processes, and peers that are killed in the end.
#![allow(dead_code, reason = "not every test that shares this file needs all of it")]

use cci::{Context, Device};
use cci_testkit::net::Veth;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a child process is to do, in words, with its device in [`CONFIG`].
pub const ROLE: &str = "CCI_HOSTILE_ROLE";
pub const CONFIG: &str = "CCI_HOSTILE_CONFIG";
/// Long enough on the slowest machine; nothing is concluded from how long something takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `CCI_HOSTILE_MESSAGES`: what each honest peer has to get through.
pub fn messages() -> u64 {
    std::env::var("CCI_HOSTILE_MESSAGES").map_or(2_000, |text| text.parse().unwrap())
}

pub fn device(text: &str) -> Device {
    Context::from_text(text, Path::new("hostile.ini")).unwrap().devices()[0].clone()
}

/// A device for the endpoint, and one for its peers.
pub struct Place {
    pub here: String,
    pub there: String,
    /// Interfaces, where the device has some.
    _veth: Option<Veth>,
}

impl Place {
    /// None: this machine can't, and it was said why.
    pub fn find(name: &str) -> Option<Place> {
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
            "udp" => "[d]\ntransport = udp\nip = 127.0.0.1\n".to_owned(),
            "tcp" => "[d]\ntransport = tcp\nip = 127.0.0.1\n".to_owned(),
            "shm" => "[d]\ntransport = shm\n".to_owned(),
            "eth" => format!("[d]\ntransport = eth\ninterface = {end}0\n"),
            _ => format!("[d]\ntransport = eth\ninterface = {end}0\nmode = packet\n"),
        };
        Some(Place { here: text("a"), there: text("b"), _veth: veth })
    }

    /// Starts the test `peer` of this program as a process of its own.
    pub fn start(&self, role: &str) -> Killed {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "peer", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(CONFIG, &self.there).stdout(Stdio::null());
        Killed(command.spawn().unwrap())
    }
}

/// A process that ends with this.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
