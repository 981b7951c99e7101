//! The security settings of a device, from its section.

use super::syntax::{Pair, Section, Wrong};
use crate::device::{DeviceInfo, TransportKind, Unavailable};
use crate::security::Security;
use crate::transport::datagram;
use cci_secure::{CredentialsError, Names, Wrong as CredentialsWrong, limits::OVERHEAD_BYTES};
use std::io::ErrorKind;

/// Applies the security settings of a section to the device. If this process may not read the secrets, the device is down and
/// says why: one file may serve several users.
pub(super) fn apply(section: &Section<'_>, info: &mut DeviceInfo) -> Result<(), Wrong> {
    let Some((pair, how)) = asked(section) else { return Ok(()) };
    if info.second.is_some() {
        return Err(pair.wrong(
            "a device with two interfaces can't be sealed yet: name one, or make two devices of it"
                .to_owned(),
        ));
    }
    let security = match how {
        How::Psk => {
            let path = needed(section, pair, "psk_file")?;
            Security::psk_file(path.value).map_err(|error| (path, error))
        }
        How::Certificates => {
            let files = ["certificate", "private_key", "authorities"].map(|key| needed(section, pair, key));
            let [certificate, private_key, authorities] = files;
            let [certificate, private_key, authorities] = [certificate?, private_key?, authorities?];
            let files = [certificate, private_key, authorities];
            let named = |error: &CredentialsError| {
                let path = error.path.as_deref();
                files.into_iter().find(|pair| path == Some(pair.value.as_ref())).unwrap_or(certificate)
            };
            Security::certificate_files(certificate.value, private_key.value, authorities.value)
                .map_err(|error| (named(&error), error))
        }
    };
    let mut security = match security {
        Ok(security) => security,
        Err((pair, error)) => return refused(pair, &error, info),
    };
    if let Some(required) = section.is_on("security_required") {
        security = security.required(required);
    }
    if let Some(pair) = section.get("expect") {
        security = expected(pair, security)?;
    }
    if let Some(pair) = section.get("allow_connect") {
        security = security.allow_connect(names(pair)?);
    }
    if let Some(pair) = section.get("allow_rma_read") {
        security = security.allow_rma_read(names(pair)?);
    }
    if let Some(pair) = section.get("allow_rma_write") {
        security = security.allow_rma_write(names(pair)?);
    }
    make_space(info);
    info.info = format!("{}; sealed: {}", info.info, security.describe());
    info.security = Some(security);
    Ok(())
}

enum How {
    Psk,
    Certificates,
}

/// The security that a section asks for; `None` if it is off.
fn asked<'s>(section: &'s Section<'_>) -> Option<(&'s Pair<'s>, How)> {
    let pair = section.get("security")?;
    match pair.value {
        "psk" => Some((pair, How::Psk)),
        "certificates" => Some((pair, How::Certificates)),
        _ => None,
    }
}

fn needed<'s>(section: &'s Section<'_>, security: &Pair<'_>, key: &str) -> Result<&'s Pair<'s>, Wrong> {
    section
        .get(key)
        .ok_or_else(|| security.wrong(format!("security = {} needs {key}; add {key} = PATH", security.value)))
}

/// The name that peers of outgoing connections must prove: one name, no pattern.
fn expected(pair: &Pair<'_>, security: Security) -> Result<Security, Wrong> {
    let name = pair.value;
    if !name.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '*' | ',')) {
        let reason = format!("expect = {name:?}: write one name, such as hub or hub.cluster.example");
        return Err(pair.wrong(reason));
    }
    if !security.can_expect(name) {
        let reason =
            format!("expect = {name:?}: psk_file has no key of that name, by which to ask for a connection");
        return Err(pair.wrong(reason));
    }
    Ok(security.expect(name))
}

fn names(pair: &Pair<'_>) -> Result<Names, Wrong> {
    Names::parse(pair.value).map_err(|error| pair.wrong(error.to_string()))
}

/// Reports credentials that can't be used. This is an error of the file, unless this process may not read it; then the device is
/// down.
fn refused(pair: &Pair<'_>, error: &CredentialsError, info: &mut DeviceInfo) -> Result<(), Wrong> {
    let denied = matches!(&error.wrong, CredentialsWrong::Unreadable(source)
        if source.kind() == ErrorKind::PermissionDenied);
    if !denied {
        return Err(pair.wrong(format!("{}: {error}", pair.key)));
    }
    info.up = false;
    info.unavailable.push(Unavailable {
        what: format!("the device: its {}", pair.key),
        reason: error.to_string(),
        remedy: "run as its owner, or have a file of your own and a device that names it".to_owned(),
    });
    Ok(())
}

/// Shortens the longest message by what sealing adds to each datagram.
fn make_space(info: &mut DeviceInfo) {
    let (mtu_bytes, min_bytes) = match info.kind {
        TransportKind::Udp => (info.mtu_bytes, datagram::MTU_BYTES_MIN),
        TransportKind::Eth => (info.mtu_bytes, datagram::FRAME_MTU_BYTES_MIN),
        // A stream is divided anew, and the receive buffers of `any` are used by all paths.
        TransportKind::Tcp | TransportKind::Any | TransportKind::Shm => return,
    };
    let remaining_bytes = mtu_bytes.saturating_sub(OVERHEAD_BYTES as u32);
    info.max_send_size = match info.kind {
        TransportKind::Eth => datagram::message_bytes_max_in_frame(remaining_bytes),
        _ => datagram::message_bytes_max(remaining_bytes, info.ip.is_some_and(|ip| ip.is_ipv6())),
    };
    if remaining_bytes < min_bytes {
        info.up = false;
        info.unavailable.push(Unavailable {
            what: "sealed datagrams".to_owned(),
            reason: format!("the MTU is {mtu_bytes} bytes"),
            remedy: format!("at least {} are needed", min_bytes + OVERHEAD_BYTES as u32),
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::error::ContextError;
    use crate::{Context, Device};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::{Path, PathBuf};

    const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    /// A folder of files for one test, which is removed with it.
    struct Files(PathBuf);

    impl Files {
        fn new(name: &str) -> Files {
            let folder = std::env::temp_dir().join(format!("cci-{}-{name}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            Files(folder)
        }

        fn write(&self, name: &str, text: &str, mode: u32) -> String {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.to_str().unwrap().to_owned()
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn read(lines: &str) -> Result<Device, ContextError> {
        Context::from_text(&format!("[d]\n{lines}\n"), Path::new("cci.ini"))
            .map(|context| context.default_device().clone())
    }

    #[test]
    fn keys_are_taken() {
        let files = Files::new("taken");
        let psk = files.write("k", &format!("node1 = {KEY}\n"), 0o600);
        let udp = format!("transport = udp\nip = 127.0.0.1\nmtu = 1500\nsecurity = psk\npsk_file = {psk}");
        let device = read(&udp).unwrap();
        assert_eq!(device.security().as_deref(), Some("psk, here node1; required"));
        assert!(device.info().contains("sealed: psk, here node1"), "{}", device.info());
        assert_eq!(device.max_send_size(), 1472 - 32 - 56, "sealing takes 32 bytes of each datagram");
        let more =
            "security_required = off\nallow_connect = node1, *.x\nallow_rma_read = *\nallow_rma_write = a";
        let device = read(&format!("{udp}\n{more}")).unwrap();
        assert_eq!(device.security().as_deref(), Some("psk, here node1; plain peers are served, too"));
        assert_eq!(read("transport = udp\nip = 127.0.0.1\nsecurity = off").unwrap().security(), None);
        let small = read(&udp.replace("1500", "1210")).unwrap();
        assert!(!small.is_up());
        let lacks = small.unavailable().iter().find(|lack| lack.what == "sealed datagrams").unwrap();
        assert_eq!(lacks.remedy, "at least 1232 are needed");
    }

    #[test]
    fn every_mistake_has_its_line_and_a_word_on_what_to_write() {
        let files = Files::new("mistakes");
        let psk = files.write("k", &format!("node1 = {KEY}\n"), 0o600);
        let (open, bad) = (files.write("o", "", 0o644), files.write("b", "\nnode1 = 12\n", 0o600));
        let pem = files.write("p", "", 0o600);
        for (lines, line, word) in [
            ("transport = udp\nsecurity = tls", 3, "write off, psk or certificates"),
            ("transport = udp\nsecurity = psk", 3, "add psk_file = PATH"),
            ("transport = udp\nsecurity = psk\npsk_file = /nosuch/file", 4, "/nosuch/file: can't be read"),
            (&format!("transport = tcp\nsecurity = psk\npsk_file = {open}"), 4, "chmod 600"),
            (&format!("transport = any\nsecurity = psk\npsk_file = {bad}"), 4, "line 2: the key is not"),
            (&format!("transport = udp\npsk_file = {psk}"), 3, "add security = psk, or take this line out"),
            (&format!("transport = udp\nsecurity = off\npsk_file = {psk}"), 4, "take this line out"),
            ("transport = udp\nallow_connect = a", 3, "without security"),
            (&format!("transport = shm\nsecurity = psk\npsk_file = {psk}"), 3, "nothing to seal"),
            (&format!("transport = udp\nsecurity = psk\npsk_file = {psk}\nallow_connect = a*"), 5, "'a*'"),
            (&format!("transport = udp\nsecurity = psk\npsk_file = {psk}\nallow_rma_read = *.*"), 5, "'*.*'"),
            (
                &format!("transport = udp\nsecurity = psk\npsk_file = {psk}\nsecurity_required = no"),
                5,
                "on or off",
            ),
            (&format!("transport = udp\nsecurity = psk\npsk_file = {psk}\nauthorities = x"), 5, "no meaning"),
            ("transport = udp\nsecurity = certificates\ncertificate = a", 3, "add private_key"),
            (
                &format!(
                    "transport = eth\ninterface = a\nsecurity = certificates\ncertificate = {pem}\nprivate_key = {pem}\nauthorities = {pem}"
                ),
                5,
                "no certificate in it",
            ),
        ] {
            let error = read(lines).unwrap_err();
            let shown = error.to_string();
            assert!(
                matches!(error, ContextError::Config { line: at, .. } if at == line),
                "{lines:?}: {shown}"
            );
            assert!(shown.contains(word), "{lines:?}: {shown}");
        }
    }

    #[test]
    fn whom_to_expect_is_one_name_that_can_be_proved() {
        let files = Files::new("expected");
        let psk = files.write("k", &format!("hub = {KEY}\n"), 0o600);
        let lines = format!("transport = udp\nip = 127.0.0.1\nsecurity = psk\npsk_file = {psk}");
        for name in ["hub", "HUB"] {
            let device = read(&format!("{lines}\nexpect = {name}")).unwrap();
            assert!(device.info().contains("sealed: psk"), "{}", device.info());
        }
        for (name, word) in
            [("hub2", "no key of that name"), ("*", "write one name"), ("hub, x", "write one name")]
        {
            let shown = read(&format!("{lines}\nexpect = {name}")).unwrap_err().to_string();
            assert!(shown.starts_with("cci.ini:6: ") && shown.contains(word), "{shown}");
        }
        let shown = read("transport = udp\nexpect = hub").unwrap_err().to_string();
        assert!(shown.starts_with("cci.ini:3: ") && shown.contains("security"), "{shown}");
    }

    #[test]
    fn two_interfaces_are_refused() {
        let files = Files::new("two");
        let psk = files.write("k", &format!("node1 = {KEY}\n"), 0o600);
        let two = cci_sys::net::interfaces().unwrap_or_default();
        let ips: Vec<String> = two
            .iter()
            .filter(|interface| interface.up)
            .flat_map(|interface| interface.addrs.iter().map(|addr| addr.ip()))
            .filter(|ip| ip.is_ipv4())
            .map(|ip| ip.to_string())
            .collect();
        let [first, second, ..] = &ips[..] else {
            println!("skipped: fewer than two addresses here");
            return;
        };
        let lines = format!("transport = udp\nip = {first}, {second}\nsecurity = psk\npsk_file = {psk}");
        let shown = read(&lines).unwrap_err().to_string();
        assert!(shown.starts_with("cci.ini:4: ") && shown.contains("two interfaces"), "{shown}");
    }
}
