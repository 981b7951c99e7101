//! Peers that are processes of their own, and are killed in the end; each device between them and the endpoint under test.

use super::{hostile_receivers, hostile_share};
use cci::{Attribute, Device};
use cci_testkit::hostile::{Stage, device};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a child process is to do, in words, with its device in [`CONFIG`].
const ROLE: &str = "CCI_HOSTILE_ROLE";
const CONFIG: &str = "CCI_HOSTILE_CONFIG";
/// Long enough on the slowest machine; nothing is concluded from how long something takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `CCI_HOSTILE_MESSAGES`: what each honest peer has to get through.
pub fn messages() -> u64 {
    std::env::var("CCI_HOSTILE_MESSAGES").map_or(2_000, |text| text.parse().unwrap())
}

/// A device for the endpoint, and one for its peers.
pub struct Environment(pub Stage);

impl Environment {
    /// None: this machine can't, and it was said why.
    pub fn find(name: &str) -> Option<Environment> {
        Stage::find(name).map(Environment)
    }

    /// Starts the test [`peer`] as a process of its own, with words for [`Role::parse`].
    pub fn start(&self, role: &str) -> Killed {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::peer", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, role).env(CONFIG, &self.0.peers).stdout(Stdio::null());
        Killed(command.spawn().unwrap())
    }
}

/// The argument of a peer's process: `<manner> <attribute> <bytes> <URI>`.
pub struct Role<'a> {
    /// How it behaves: `honest` or `hostile` sends; `takes`, `keeps` or `freezes` receives.
    pub manner: &'a str,
    pub attribute: Attribute,
    /// Of each message that it sends.
    pub bytes: usize,
    pub uri: &'a str,
}

impl Role<'_> {
    fn parse(text: &str) -> Role<'_> {
        let [manner, attribute, bytes, uri] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let attribute = match attribute {
            "UU" => Attribute::Unreliable,
            "RU" => Attribute::ReliableUnordered,
            _ => Attribute::ReliableOrdered,
        };
        Role { manner, attribute, bytes: bytes.parse().unwrap(), uri }
    }
}

/// Not a test: a peer, in the process that a test has started for it.
#[test]
fn peer() {
    let (Ok(role), Ok(config)) = (std::env::var(ROLE), std::env::var(CONFIG)) else { return };
    let (role, device): (_, Device) = (Role::parse(&role), device(&config));
    match role.manner {
        "honest" | "hostile" => hostile_share::send(&role, &device),
        _ => hostile_receivers::receive(&role, &device),
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
