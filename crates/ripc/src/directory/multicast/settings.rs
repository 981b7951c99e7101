//! The settings in the text of a multicast directory.

use super::limits::INTERFACES_MAX;
use crate::directory::text::Text;
use crate::error::DirectoryError;
use cci_sys::net::{self, Interface};
use std::net::{IpAddr, SocketAddr};

/// The group, and the interfaces on which it is used.
#[derive(Debug)]
pub(super) struct Settings {
    pub group: SocketAddr,
    /// The interfaces, each with an address of the group's family: at least one.
    pub interfaces: Vec<Place>,
    /// How many networks a datagram may cross.
    pub hops: u8,
}

/// The properties of an interface that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub name: String,
    pub index: u32,
    /// The address from which datagrams are sent, with port 0.
    pub address: SocketAddr,
}

impl Settings {
    /// Parses a text: `multicast://239.1.2.3:7800?interface=eth0&interface=eth1&hops=1`.
    pub fn parse(whole: &str) -> Result<Settings, DirectoryError> {
        let rest = whole.strip_prefix("multicast://");
        let text = Text::parse(whole, rest.unwrap_or_default(), &["interface", "hops"])?;
        let group: SocketAddr = text.place.parse().map_err(|_| {
            text.wrong("write multicast://GROUP:PORT, such as multicast://239.1.2.3:7800 or multicast://[ff02::cc1]:7800")
        })?;
        if !group.ip().is_multicast() {
            return Err(text.wrong(&format!("{} is no multicast group", group.ip())));
        }
        if group.port() == 0 {
            return Err(text.wrong("the port must not be 0"));
        }
        let hops = match text.one("hops")? {
            None => 1,
            Some(hops) => match hops.parse() {
                Ok(hops @ 1..) => hops,
                _ => return Err(text.wrong("hops must be a number from 1 to 255")),
            },
        };
        let present = net::interfaces().map_err(|error| text.wrong(&error.to_string()))?;
        let mut interfaces = Vec::new();
        for name in text.all("interface") {
            let Some(interface) = present.iter().find(|interface| interface.name == name) else {
                let names: Vec<&str> = present.iter().map(|interface| interface.name.as_str()).collect();
                return Err(
                    text.wrong(&format!("there is no interface {name}; there are {}", names.join(", ")))
                );
            };
            let Some(place) = place(interface, group.ip()) else {
                let family = if group.is_ipv4() { "IPv4" } else { "IPv6" };
                return Err(text.wrong(&format!("the interface {name} has no {family} address")));
            };
            if interfaces.contains(&place) {
                return Err(text.wrong(&format!("the interface {name} is there twice: keep one")));
            }
            interfaces.push(place);
        }
        if interfaces.is_empty() {
            interfaces = usual(&present, group.ip());
        }
        match interfaces.len() {
            0 => Err(text.wrong("no interface is up that has an address of the group's family")),
            1..=INTERFACES_MAX => Ok(Settings { group, interfaces, hops }),
            more => {
                Err(text
                    .wrong(&format!("{more} interfaces are more than {INTERFACES_MAX}: name those to use")))
            }
        }
    }
}

/// All interfaces that are up and lead to other hosts; if there is none, the loopback interface.
fn usual(present: &[Interface], group: IpAddr) -> Vec<Place> {
    let up = |loopback| {
        let chosen = present.iter().filter(move |interface| interface.up && interface.loopback == loopback);
        chosen.filter_map(|interface| place(interface, group)).collect::<Vec<Place>>()
    };
    let others = up(false);
    if others.is_empty() { up(true) } else { others }
}

fn place(interface: &Interface, group: IpAddr) -> Option<Place> {
    let is_link_local =
        |address: &&SocketAddr| matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local());
    let mut addresses = interface.addrs.iter().filter(|address| address.is_ipv4() == group.is_ipv4());
    // An address that every host of the link reaches comes first.
    let address = addresses.clone().find(is_link_local).or_else(|| addresses.next())?;
    Some(Place { name: interface.name.clone(), index: interface.index, address: *address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_checked() {
        for (rest, word) in [
            ("", "write multicast://GROUP:PORT"),
            ("239.1.2.3", "write multicast://GROUP:PORT"),
            ("10.0.0.1:80", "no multicast group"),
            ("[fe80::1]:80", "no multicast group"),
            ("239.1.2.3:0", "port"),
            ("239.1.2.3:80?hops=0", "1 to 255"),
            ("239.1.2.3:80?hops=256", "1 to 255"),
            ("239.1.2.3:80?interface=nosuch0", "there are lo"),
            ("239.1.2.3:80?interface=lo&interface=lo", "twice"),
            ("239.1.2.3:80?ttl=1", "interface, hops"),
        ] {
            let error = Settings::parse(&format!("multicast://{rest}")).unwrap_err();
            assert!(error.reason.contains(word), "{error}");
        }
        let settings = Settings::parse("multicast://239.1.2.3:80?interface=lo&hops=7").unwrap();
        assert_eq!((settings.hops, settings.interfaces[0].name.as_str()), (7, "lo"));
        assert!(settings.interfaces[0].address.ip().is_loopback());
    }
}
