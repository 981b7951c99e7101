//! Devices from an INI file: each section is one.
//!
//! | key | for | meaning |
//! |---|---|---|
//! | `transport` | all, required | `shm`, `udp`, `tcp`, `eth`, or `any`, which takes the keys of `shm` and `udp`; the 2.x names `sm` and `sock` are taken too |
//! | `priority` | all | 0 to 100, the highest comes first; 50 unless given |
//! | `default` | all | `1` on at most one device: what a program gets that names none |
//! | `ip` | udp, tcp | address to bind to; udp: or two, with a comma between, on two interfaces: connections to other devices with two are bonded |
//! | `interface` | udp, tcp | interface to bind to, by its best address unless `ip` is given; udp: or two, as above |
//! | `port` | udp, tcp | port of an endpoint that names no service; any unless given |
//! | `mtu` | udp | IP packets no larger than this, bytes |
//! | `multicast_ttl` | udp | routers that may pass on what is sent to multicast groups, this link counted; 1 (not beyond it) unless given |
//! | `multicast_loop` | udp | `on`: an endpoint that has joined a group gets what it sends there itself; `off` unless given |
//! | `interface` | eth, required | Ethernet interface |
//! | `mode` | eth | `xdp`, `xdp-generic`, `packet`: only this way of the kernel's; `auto` (the best there is) unless given |
//! | `mtu` | eth | frames no longer than this, without the Ethernet header, bytes |
//! | `endpoint` | eth | number of an endpoint that names no service; any unless given |
//! | `direct` | shm | `off`: remote memory is not mapped, by us or by peers; `on` unless given |
//! | `cma` | shm | `off`: remote memory is not read by `process_vm_readv`; `always`: wherever that works, not only where it pays; `on` unless given |
//! | `directory` | shm | absolute path of the folder for services, such as one that containers share |
//! | `security` | udp, tcp, eth, any | `psk`, `certificates`: peers prove who they are, and everything is sealed (AES-256-GCM); `off` unless given. Not for two interfaces yet |
//! | `security_required` | the same | `off`: peers without security are served, too; `on` unless given: they get no answer at all |
//! | `psk_file` | the same, `psk` | path of a file of lines `name = 64 hexadecimal digits`, which nobody else may read: the first key is for connections asked for here, all are accepted |
//! | `certificate`, `private_key`, `authorities` | the same, `certificates` | paths of PEM files: the own certificate with those between it and an authority, its key, which nobody else may read, and the authorities that sign for peers |
//! | `allow_connect` | the same | names of peers, with commas between, `*.domain` for any one label: who may be at the other end of a connection; everyone known unless given |
//! | `allow_rma_read`, `allow_rma_write` | the same | who may read and write the memory registered here, as far as a region allows it; atomics need both; everyone known unless given |
//!
//! Other keys are kept for the transport to see and do no harm: files written for 2.x have them.

use super::any;
use super::eth;
use super::keys::{number, on_off};
use super::security;
use super::shm;
use super::syntax::{self, Pair, Section, Wrong};
use super::tcp;
use super::udp::{self, Choice};
use crate::device::{Device, DeviceInfo, MulticastKeys, TransportKind};
use crate::error::ContextError;
use crate::transport::{datagram, ip_uri};
use cci_sys::net::Interface;
use std::path::Path;
use std::sync::Arc;

const PRIORITY_MAX: u8 = 100;

/// Every section is a device; highest priority first, in the order of the file where that is the same.
pub(crate) fn devices(text: &str, path: &Path) -> Result<Vec<Device>, ContextError> {
    let found = syntax::sections(text).and_then(|sections| from_sections(&sections));
    found.map_err(|Wrong { line, reason }| ContextError::Config { path: path.to_owned(), line, reason })
}

fn from_sections(sections: &[Section<'_>]) -> Result<Vec<Device>, Wrong> {
    let interfaces = cci_sys::net::interfaces().unwrap_or_default();
    let mut devices = Vec::with_capacity(sections.len());
    let mut default_line = None;
    for section in sections {
        let mut info = match kind(section)? {
            TransportKind::Shm => shm::from_section(section)?,
            TransportKind::Eth => eth::from_section(section, &interfaces)?,
            TransportKind::Any => any::device(shm::from_section(section)?, udp(section, &interfaces)?),
            TransportKind::Udp => udp(section, &interfaces)?,
            TransportKind::Tcp => tcp::device(section.name.to_owned(), &choice(section, &interfaces)?),
        };
        if let Some(pair) = section.get("priority") {
            let what = "a whole number from 0 to 100";
            info.priority = number(pair, what, |priority: &u8| *priority <= PRIORITY_MAX)?;
        }
        if let Some(pair) = section.get("default") {
            info.is_default = number(pair, "0 or 1", |flag: &u8| *flag <= 1)? == 1;
            if info.is_default
                && let Some(first) = default_line.replace(pair.line)
            {
                return Err(pair.wrong(format!("line {first} names a default already; keep one of the two")));
            }
        }
        security::apply(section, &mut info)?;
        info.conf_argv = section.pairs.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
        devices.push(Device(Arc::new(info)));
    }
    devices.sort_by_key(|device| std::cmp::Reverse(device.0.priority));
    Ok(devices)
}

fn kind(section: &Section<'_>) -> Result<TransportKind, Wrong> {
    let Some(pair) = section.get("transport") else {
        let reason = format!(
            "section [{}] has no transport; add transport = shm, transport = udp or transport = tcp",
            section.name
        );
        return Err(Wrong { line: section.line, reason });
    };
    match pair.value {
        "shm" | "sm" => Ok(TransportKind::Shm),
        "udp" | "sock" => Ok(TransportKind::Udp),
        "eth" => Ok(TransportKind::Eth),
        "any" => Ok(TransportKind::Any),
        "tcp" => Ok(TransportKind::Tcp),
        known @ "ofi" => {
            Err(pair
                .wrong(format!("transport {known:?} is not in this build; write shm, udp, tcp, eth or any")))
        }
        other => Err(pair.wrong(format!("there is no transport {other:?}; write shm, udp, tcp, eth or any"))),
    }
}

/// Which interface and address a section asks for.
/// The interface, address and limits of a section that names one of each at most.
fn choice<'a>(section: &Section<'_>, interfaces: &'a [Interface]) -> Result<Choice<'a>, Wrong> {
    let value = |key| section.get(key).map(|pair| pair.value);
    choose(section, value("ip"), value("interface"), interfaces)
}

/// The same of this address and interface, of those that the section names.
fn choose<'a>(
    section: &Section<'_>,
    ip: Option<&str>,
    named: Option<&str>,
    interfaces: &'a [Interface],
) -> Result<Choice<'a>, Wrong> {
    let mut choice = Choice::default();
    if let Some(pair) = section.get("port") {
        let what = "a port from 1 to 65535, or 0 or no such line for any";
        choice.port = number(pair, what, |_| true)?;
    }
    if let Some(pair) = section.get("mtu") {
        let (min, max) = (datagram::MTU_BYTES_MIN, datagram::MTU_BYTES_MAX);
        let what = format!("a number of bytes from {min} to {max}");
        choice.mtu_bytes = Some(number(pair, &what, |mtu| (min..=max).contains(mtu))?);
    }
    if let Some((pair, ip)) = section.get("ip").zip(ip) {
        let (ip, _) = ip_uri::parse_host(ip).map_err(|reason| pair.wrong(reason))?;
        if ip.is_unspecified() || ip.is_multicast() {
            let reason =
                "is no address a peer could connect to; write one of this machine's, or interface = NAME";
            return Err(pair.wrong(format!("{ip} {reason}")));
        }
        choice.ip = Some(ip);
    }
    choice.interface = match (named, choice.ip) {
        (Some(name), _) => interfaces.iter().find(|interface| interface.name == name),
        (None, Some(ip)) => {
            interfaces.iter().find(|interface| interface.addrs.iter().any(|addr| addr.ip() == ip))
        }
        (None, None) => udp::usual(interfaces),
    };
    // A device that is not there is a device that is down, not an error: one file may serve many machines.
    let has_ip = |interface: &Interface| {
        choice.ip.map_or(!interface.addrs.is_empty(), |ip| interface.addrs.iter().any(|addr| addr.ip() == ip))
    };
    if !choice.interface.is_some_and(|interface| interface.up && has_ip(interface)) {
        let what = match (named, choice.ip) {
            (Some(name), Some(ip)) => format!("interface {name} with address {ip}"),
            (Some(name), None) => format!("interface {name}"),
            (None, Some(ip)) => format!("address {ip}"),
            (None, None) => "any network interface".to_owned(),
        };
        choice.missing = Some(udp::not_here(what, interfaces));
    }
    Ok(choice)
}

fn udp(section: &Section<'_>, interfaces: &[Interface]) -> Result<DeviceInfo, Wrong> {
    let multicast = multicast(section)?;
    let (ip, second_ip) = one_or_two(section.get("ip"))?;
    let (named, second_named) = one_or_two(section.get("interface"))?;
    if let Some((ip, interface)) = section.get("ip").zip(section.get("interface"))
        && second_ip.is_some() != second_named.is_some()
    {
        let later = if ip.line > interface.line { ip } else { interface };
        return Err(later.wrong("ip and interface name different numbers; name two of both".to_owned()));
    }
    let name = section.name.to_owned();
    let choice = choose(section, ip, named, interfaces)?;
    let device = udp::device(name.clone(), &choice);
    if second_ip.is_none() && second_named.is_none() {
        return Ok(DeviceInfo { multicast, ..device });
    }
    let second = choose(section, second_ip, second_named, interfaces)?;
    if let Some(pair) = section.get("ip")
        && choice.ip.is_some_and(|ip| ip.is_ipv6()) != second.ip.is_some_and(|ip| ip.is_ipv6())
    {
        return Err(pair.wrong("one address is IPv4 and one IPv6; write two of one kind".to_owned()));
    }
    Ok(DeviceInfo { multicast, ..udp::bonded(device, udp::device(name, &second)) })
}

/// The value of a key, or two with a comma between.
fn one_or_two<'a>(pair: Option<&Pair<'a>>) -> Result<(Option<&'a str>, Option<&'a str>), Wrong> {
    let Some(pair) = pair else { return Ok((None, None)) };
    let mut values = pair.value.split(',').map(str::trim);
    match (values.next(), values.next(), values.next()) {
        (first, None, _) => Ok((first, None)),
        (first, second, None) if first == second => {
            Err(pair.wrong(format!("{} names {} twice; write it once", pair.key, first.unwrap_or_default())))
        }
        (first, second, None) => Ok((first, second)),
        _ => Err(pair.wrong(format!("{} names more than two; two can be bonded", pair.key))),
    }
}

fn multicast(section: &Section<'_>) -> Result<MulticastKeys, Wrong> {
    let mut keys = MulticastKeys::default();
    if let Some(pair) = section.get("multicast_ttl") {
        keys.hops = number(pair, "a number of hops from 0 (this host) to 255", |_| true)?;
    }
    if let Some(pair) = section.get("multicast_loop") {
        keys.own = on_off(pair)?;
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<Device>, ContextError> {
        devices(text, Path::new("cci.ini"))
    }

    #[test]
    fn a_file_written_for_2x_works() {
        let text = "# mine\n[old0]\ntransport = sock\npriority = 10\nip = 127.0.0.1\nmin_port = 4000\n\n\
                    [old1]\ntransport = sm\npriority = 60\ndefault = 1\ndirectory = /tmp/x\n";
        let found = read(text).unwrap();
        assert_eq!(found[0].name(), "old1");
        assert_eq!(found[0].transport(), TransportKind::Shm);
        assert!(found[0].0.is_default && found[0].priority() == 60);
        assert_eq!(found[0].0.shm.directory.as_deref(), Some(Path::new("/tmp/x")));
        assert_eq!(found[1].transport(), TransportKind::Udp);
        assert_eq!(found[1].conf_argv()[3], "min_port=4000");
        assert_eq!(found[1].ip(), Some([127, 0, 0, 1].into()));
    }

    #[test]
    fn mtu_and_port_are_taken() {
        let found = read("[u]\ntransport=udp\nip=127.0.0.1\nmtu=1500\nport=4791\n").unwrap();
        if !found[0].is_up() {
            println!("skipped: no loopback interface is up here");
            return;
        }
        assert_eq!((found[0].mtu_bytes(), found[0].0.port), (1500, 4791));
        assert_eq!(found[0].max_send_size(), datagram::message_bytes_max(1500, false));
        assert_eq!(found[0].interface(), Some("lo"));
    }

    #[test]
    fn what_is_not_on_this_machine_is_down_and_says_so() {
        for line in ["interface = nosuch0", "ip = 203.0.113.77", "interface = lo\nip = 203.0.113.77"] {
            let found = read(&format!("[u]\ntransport = udp\n{line}\n")).unwrap();
            assert!(!found[0].is_up(), "{line}");
            assert!(!found[0].unavailable()[0].remedy.is_empty(), "{line}");
        }
    }

    #[test]
    fn every_mistake_has_its_line_and_a_word_on_what_to_write() {
        for (text, line, word) in [
            ("\n[x]\npriority = 1", 2, "add transport"),
            ("[x]\ntransport = ofi", 2, "not in this build"),
            ("[x]\ntransport = verbs", 2, "there is no transport"),
            ("[x]\ntransport = shm\npriority = 101", 3, "0 to 100"),
            ("[x]\ntransport = shm\npriority = -1", 3, "0 to 100"),
            ("[x]\ntransport = shm\ndefault = yes", 3, "0 or 1"),
            ("[x]\ntransport = shm\ndefault=1\n[y]\ntransport = shm\ndefault=1", 6, "line 3"),
            ("[x]\ntransport = shm\ndirectory = here", 3, "absolute"),
            ("[x]\ntransport = udp\nport = 65536", 3, "1 to 65535"),
            ("[x]\ntransport = udp\nmtu = 100", 3, "bytes from"),
            ("[x]\ntransport = udp\nip = host.example", 3, "numeric"),
            ("[x]\ntransport = udp\nip = 0.0.0.0", 3, "interface = NAME"),
            ("[x]\ntransport = udp\nip = 239.1.2.3", 3, "interface = NAME"),
            ("[x]\ntransport = udp\nip = 127.0.0.1, 0.0.0.0", 3, "interface = NAME"),
            ("[x]\ntransport = udp\nip = 127.0.0.1, 127.0.0.1", 3, "twice"),
            ("[x]\ntransport = udp\nip = 127.0.0.1, ::1", 3, "one kind"),
            ("[x]\ntransport = udp\ninterface = a, b, c", 3, "more than two"),
            ("[x]\ntransport = udp\nip = 127.0.0.1\ninterface = a, b", 4, "two of both"),
            ("[x]\ntransport = udp\nmulticast_ttl = 256", 3, "0 (this host) to 255"),
            ("[x]\ntransport = udp\nmulticast_loop = 1", 3, "on or off"),
        ] {
            let error = read(text).unwrap_err();
            let shown = error.to_string();
            assert!(
                matches!(error, ContextError::Config { line: at, .. } if at == line),
                "{text:?}: {shown}"
            );
            assert!(
                shown.starts_with(&format!("cci.ini:{line}: ")) && shown.contains(word),
                "{text:?}: {shown}"
            );
        }
    }

    /// Lines that nearly make sense, to get behind the syntax.
    fn nearly() -> impl Strategy<Value = String> {
        let word = prop_oneof![
            Just("transport"),
            Just("shm"),
            Just("udp"),
            Just("ip"),
            Just("mtu"),
            Just("port"),
            Just("[a]"),
            Just("="),
            Just("default"),
            Just("priority"),
            Just("1"),
            Just("99999999999999999999"),
            Just("#"),
            Just("fe80::1%lo"),
            Just("interface"),
            Just("directory"),
            Just("\n"),
            Just("\n"),
            Just(" "),
            Just("[b"),
            Just("\u{feff}"),
        ];
        proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_text_panics_and_errors_name_a_line_of_it(text in prop_oneof![".{0,300}", nearly()]) {
            match read(&text) {
                Ok(_) => {}
                Err(ContextError::Config { line, reason, .. }) => {
                    prop_assert!(line >= 1 && line <= text.lines().count().max(1));
                    prop_assert!(!reason.is_empty());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
