//! Devices from an INI file. Each section is one.
//!
//! The [registry](super::registry) lists the keys; any other is an error. Keys of CCI 2.x that have no effect here are accepted
//! with a [`ConfigNote`], and so is a section of a transport that this version lacks.

use super::any;
use super::check::Note;
use super::eth;
use super::note::ConfigNote;
use super::registry::{LACKING, REGISTRY};
use super::security;
use super::services;
use super::shm;
use super::syntax::{self, Pair, Section, Wrong};
use super::tcp;
use super::udp::{self, Choice};
use crate::device::{Device, DeviceInfo, MulticastKeys, TransportKind};
use crate::error::ContextError;
use crate::transport::ip_uri;
use cci_sys::net::Interface;
use std::path::Path;
use std::sync::Arc;

/// The content of a file.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// The devices, highest priority first. Those of the same priority are in the order of the file.
    pub devices: Vec<Device>,
    /// Remarks that are no errors, in the order of the file. The author may have meant something else.
    pub notes: Vec<ConfigNote>,
    /// The directory that the section `[services]` gives.
    pub services_directory: Option<String>,
}

/// Reads a file. Every section is a device, unless it is `[services]` or its transport is one of CCI 2.x that this version lacks.
pub(crate) fn load(text: &str, path: &Path) -> Result<Loaded, ContextError> {
    let loaded = syntax::sections(text).and_then(from_sections);
    loaded.map_err(|Wrong { line, reason }| ContextError::Config { path: path.to_owned(), line, reason })
}

/// Reads the devices of a file and nothing else.
#[cfg(any(test, fuzzing))]
pub(crate) fn devices(text: &str, path: &Path) -> Result<Vec<Device>, ContextError> {
    load(text, path).map(|loaded| loaded.devices)
}

fn from_sections(sections: Vec<Section<'_>>) -> Result<Loaded, Wrong> {
    let interfaces = cci_sys::net::interfaces().unwrap_or_default();
    let mut loaded = Loaded::default();
    let mut default_line = None;
    for mut section in sections {
        if services::is_it(&section) {
            loaded.services_directory = services::directory(&section)?;
            continue;
        }
        let (line, name) = (section.line, section.name.to_owned());
        let mut note = |line, text| loaded.notes.push(ConfigNote { section: name.clone(), line, text });
        let Some(kind) = kind(&section)? else {
            REGISTRY.check_names(&section)?;
            note(line, "this section gives no device: its transport is not in this version".to_owned());
            continue;
        };
        for Note { line, text } in REGISTRY.check(&mut section, kind)? {
            note(line, text);
        }
        let info = device(&section, kind, &interfaces)?;
        if let Some(pair) = section.get("default").filter(|_| info.is_default)
            && let Some(first) = default_line.replace(pair.line)
        {
            return Err(pair.wrong(format!("line {first} names a default already; keep one of the two")));
        }
        loaded.devices.push(Device(Arc::new(info)));
    }
    loaded.devices.sort_by_key(|device| std::cmp::Reverse(device.0.priority));
    Ok(loaded)
}

/// The device of a section whose keys were checked.
fn device(section: &Section<'_>, kind: TransportKind, interfaces: &[Interface]) -> Result<DeviceInfo, Wrong> {
    let mut info = match kind {
        TransportKind::Shm => shm::from_section(section)?,
        TransportKind::Eth => eth::from_section(section, interfaces)?,
        TransportKind::Any => any::device(shm::from_section(section)?, udp(section, interfaces)?),
        TransportKind::Udp => udp(section, interfaces)?,
        TransportKind::Tcp => {
            let choice = Choice { mtu_bytes: None, ..choice(section, interfaces)? };
            tcp::device(section.name.to_owned(), &choice)
        }
    };
    info.priority = section.number("priority")?.unwrap_or(info.priority);
    info.is_default = section.number("default")? == Some(1_u8);
    security::apply(section, &mut info)?;
    info.conf_argv = section.pairs.iter().map(|pair| format!("{}={}", pair.key, pair.value)).collect();
    Ok(info)
}

/// The transport of a section; `None` if it is one of CCI 2.x that this version lacks.
fn kind(section: &Section<'_>) -> Result<Option<TransportKind>, Wrong> {
    let Some(pair) = section.get("transport") else {
        let reason = format!(
            "section [{}] has no transport; add transport = shm, transport = udp or transport = tcp",
            section.name
        );
        return Err(Wrong { line: section.line, reason });
    };
    match pair.value {
        "shm" | "sm" => Ok(Some(TransportKind::Shm)),
        "udp" | "sock" => Ok(Some(TransportKind::Udp)),
        "eth" => Ok(Some(TransportKind::Eth)),
        "any" => Ok(Some(TransportKind::Any)),
        "tcp" => Ok(Some(TransportKind::Tcp)),
        old if LACKING.iter().any(|lacking| lacking.eq_ignore_ascii_case(old)) => Ok(None),
        known @ "ofi" => {
            Err(pair
                .wrong(format!("transport {known:?} is not in this build; write shm, udp, tcp, eth or any")))
        }
        other => Err(pair.wrong(format!("there is no transport {other:?}; write shm, udp, tcp, eth or any"))),
    }
}

/// The interface, address and limits of a section that names at most one of each.
fn choice<'a>(section: &Section<'_>, interfaces: &'a [Interface]) -> Result<Choice<'a>, Wrong> {
    let value = |key| section.get(key).map(|pair| pair.value);
    choose(section, value("ip"), value("interface"), interfaces)
}

/// What a section asks for, with this address and interface of those that it names.
fn choose<'a>(
    section: &Section<'_>,
    ip: Option<&str>,
    named: Option<&str>,
    interfaces: &'a [Interface],
) -> Result<Choice<'a>, Wrong> {
    let mut choice = Choice {
        port: section.number("port")?.unwrap_or(0),
        mtu_bytes: section.number("mtu")?,
        ..Choice::default()
    };
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
    // A device that does not exist here is down, and no error: one file may serve many machines.
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

/// The value of a key: one, or two with a comma between.
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
    keys.hops = section.number("multicast_ttl")?.unwrap_or(keys.hops);
    keys.own = section.is_on("multicast_loop").unwrap_or(keys.own);
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::datagram;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Vec<Device>, ContextError> {
        devices(text, Path::new("cci.ini"))
    }

    #[test]
    fn a_file_written_for_2x_works() {
        let text = "# mine\n[old0]\ntransport = sock\npriority = 10\nip = 127.0.0.1\nbufsize = 20971520\n\n\
                    [old1]\ntransport = sm\npriority = 60\ndefault = 1\ndirectory = /tmp/x\nmss = 256\npid = 7\n\
                    [old2]\ntransport = Verbs\nhca_id = mlx4_0\nport = 5555\n\
                    [old3]\ntransport = tcp\nip = 127.0.0.1\nmtu = 9000\n";
        let loaded = load(text, Path::new("cci.ini")).unwrap();
        let notes: Vec<String> = loaded.notes.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 5, "{notes:?}");
        for (note, start) in notes.iter().zip([
            "line 6 ([old0]): bufsize has no effect: ",
            "line 13 ([old1]): mss has no effect: ",
            "line 14 ([old1]): pid has no effect: ",
            "line 15 ([old2]): this section gives no device: ",
            "line 22 ([old3]): mtu has no effect: ",
        ]) {
            assert!(note.starts_with(start), "{note}");
        }
        let found = loaded.devices;
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].name(), "old1");
        assert_eq!(found[0].transport(), TransportKind::Shm);
        assert!(found[0].0.is_default && found[0].priority() == 60);
        assert_eq!(found[0].0.shm.directory.as_deref(), Some(Path::new("/tmp/x")));
        assert_eq!(found[1].transport(), TransportKind::Tcp);
        assert_eq!(found[2].transport(), TransportKind::Udp);
        assert_eq!(found[2].conf_argv()[3], "bufsize=20971520");
        assert_eq!(found[2].ip(), Some([127, 0, 0, 1].into()));
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
            ("[x]\ntransport = pigeon", 2, "there is no transport"),
            ("[x]\ntransport = gni\npatg = 1", 3, "there is no key"),
            ("[x]\ntransport = shm\npriority = 101", 3, "0 to 100"),
            ("[x]\ntransport = shm\npriority = -1", 3, "0 to 100"),
            ("[x]\ntransport = shm\ndefault = yes", 3, "0 or 1"),
            ("[x]\ntransport = shm\ndefault=1\n[y]\ntransport = shm\ndefault=1", 6, "line 3"),
            ("[x]\ntransport = shm\ndirectory = here", 3, "absolute"),
            ("[x]\ntransport = shm\nall_users = yes", 3, "on or off"),
            ("[x]\ntransport = any\nsecurity = psk\npsk_file = /k\nall_users = on", 5, "proves no names"),
            ("[x]\ntransport = udp\nport = 65536", 3, "0 to 65535"),
            ("[x]\ntransport = udp\nmtu = 100", 3, "a whole number from 1200 to 65536"),
            ("[x]\ntransport = udp\nip = host.example", 3, "numeric"),
            ("[x]\ntransport = udp\nip = 0.0.0.0", 3, "interface = NAME"),
            ("[x]\ntransport = udp\nip = 239.1.2.3", 3, "interface = NAME"),
            ("[x]\ntransport = udp\nip = 127.0.0.1, 0.0.0.0", 3, "interface = NAME"),
            ("[x]\ntransport = udp\nip = 127.0.0.1, 127.0.0.1", 3, "twice"),
            ("[x]\ntransport = udp\nip = 127.0.0.1, ::1", 3, "one kind"),
            ("[x]\ntransport = udp\ninterface = a, b, c", 3, "more than two"),
            ("[x]\ntransport = udp\nip = 127.0.0.1\ninterface = a, b", 4, "two of both"),
            ("[x]\ntransport = udp\nmulticast_ttl = 256", 3, "0 to 255"),
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

    #[test]
    fn a_mistyped_key_is_an_error_that_names_the_nearest() {
        for (text, line, word) in [
            ("[x]\ntransport = udp\nsecurty = psk", 3, "did you mean security?"),
            ("[x]\ntransport = udp\nallow_conect = node1", 3, "did you mean allow_connect?"),
            ("[x]\ntransport = shm\ndirct = off", 3, "did you mean direct?"),
            ("[x]\ntransport = shm\nmtu = 1500", 3, "udp, any and eth"),
            ("[x]\ntransport = udp\nzzzzzzzz = 1", 3, "multicast_loop"),
        ] {
            let error = read(text).unwrap_err();
            let shown = error.to_string();
            assert!(
                matches!(error, ContextError::Config { line: at, .. } if at == line),
                "{text:?}: {shown}"
            );
            assert!(shown.contains(word), "{text:?}: {shown}");
        }
    }

    /// Draws lines that are nearly right, so that they get past the syntax.
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
