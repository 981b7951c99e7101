//! Files and what is wrong with them.

use super::*;
use crate::credentials_error::Wrong;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

const A: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const B: &str = "FF112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn wrong(text: &str) -> String {
    Credentials::psk(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_file_of_keys() {
    let text = format!("# our keys\n\n node7 = {A} # the own one\r\nnode8={B}\n");
    let credentials = Credentials::psk(text.as_bytes()).unwrap();
    assert_eq!(format!("{credentials:?}"), "Credentials(psk node7)");
    let Kind::Psk(keys) = &*credentials.0 else { panic!("keys") };
    assert_eq!(&*keys.own().name, "node7");
    assert_eq!(keys.own().secret[1], 0x11);
    assert!(keys.find(&[0; 8]).is_none() && keys.named("node9").is_none());
    for name in ["node7", "node8"] {
        let id = keys.named(name).unwrap().id;
        assert_eq!(&*keys.find(&id).unwrap().name, name);
    }
}

#[test]
fn wrong_lines_are_told_with_a_remedy() {
    assert!(wrong("").contains("no key"));
    assert!(wrong("\nnode7").starts_with("line 2 of the keys: not a key: write"));
    assert!(wrong("a b = 00").contains("not a name"));
    assert!(wrong(" = 00").contains("not a name"));
    assert!(wrong("a = 0011").contains("openssl rand -hex 32"));
    assert!(wrong(&format!("a = {A}0")).contains("64 hexadecimal digits"));
    assert!(wrong(&format!("a = {A}00")).contains("64 hexadecimal digits"));
    assert!(wrong(&format!("a = {}", "00".repeat(32))).contains("guess"));
    assert!(
        wrong(&format!("a = {A}\nb = {A}"))
            .starts_with("line 2 of the keys: the same name or the same key is in line 1")
    );
    assert!(wrong(&format!("a = {A}\nA = {B}")).contains("line 1"));
}

#[test]
fn secrets_are_in_no_error() {
    let error = Credentials::psk(format!("a = {A}\nb = {}", A.replace('0', "g")).as_bytes()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains("1122"), "{error:?}");
}

/// A file of its own for one test, gone with it.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: &str) -> Temporary {
        let path = std::env::temp_dir().join(format!("cci-secure-{name}-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Temporary(path)
    }

    fn mode(&self, mode: u32) -> &Temporary {
        std::fs::set_permissions(&self.0, std::fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    fn owner(&self) -> u32 {
        std::fs::metadata(&self.0).unwrap().uid()
    }

    fn read(&self, own_uid: u32) -> Result<Credentials, CredentialsError> {
        Credentials::psk_file(&self.0, own_uid)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn others_may_not_read_it() {
    let file = Temporary::new("keys", &format!("a = {A}\n"));
    let own = file.owner();
    let error = file.mode(0o640).read(own).unwrap_err().to_string();
    assert!(error.contains("mode 640") && error.contains("chmod 600 "), "{error}");
    assert_eq!(file.mode(0o600).read(own).unwrap().own_name(), "a");
    std::fs::write(&file.0, "nothing\n").unwrap();
    let line = file.read(own).unwrap_err().to_string();
    assert!(line.contains(&format!("{}, line 1: ", file.0.display())), "{line}");
    std::fs::remove_file(&file.0).unwrap();
    assert!(file.read(own).unwrap_err().to_string().contains("can't be read"));
}

#[test]
fn it_belongs_to_root_or_to_who_reads_it() {
    let file = Temporary::new("owner", &format!("a = {A}\n"));
    file.mode(0o600);
    let owner = file.owner();
    // Who is not root can't have a file of somebody else's; who reads it then calls himself somebody else.
    let is_root = std::os::unix::fs::chown(&file.0, Some(owner + 1000), None).is_ok();
    let (theirs, own) = if is_root { (owner + 1000, owner) } else { (owner, owner + 1000) };
    let error = file.read(own).unwrap_err();
    assert!(matches!(error.wrong, Wrong::Foreign { .. }), "{error}");
    let text = error.to_string();
    let path = file.0.display();
    let remedy = format!("chown {own} {path}");
    assert!(
        text.starts_with(&format!("{path}: it belongs to user {theirs}")) && text.ends_with(&remedy),
        "{text}"
    );
    assert_eq!(file.read(theirs).unwrap().own_name(), "a");
    if is_root {
        std::os::unix::fs::chown(&file.0, Some(0), None).unwrap();
        assert_eq!(file.read(owner + 7).unwrap().own_name(), "a", "root may write it");
    }
}

#[test]
fn nobody_else_decides_who_is_let_in() {
    let made = make(&["a.x"]);
    let files = [
        Temporary::new("certificate", &made.certificate),
        Temporary::new("private", &made.key),
        Temporary::new("authorities", &made.authority),
    ];
    let own = files[0].owner();
    let read = || {
        let [certificate, key, authorities] = files.each_ref().map(|file| &*file.0);
        Credentials::certificate_files(certificate, key, authorities, own)
    };
    for (at, mode, word) in
        [(0, 0o664, "chmod go-w"), (1, 0o644, "chmod 600"), (2, 0o646, "decide who is let in (mode 646)")]
    {
        files[0].mode(0o644);
        files[1].mode(0o600);
        files[2].mode(0o644);
        assert_eq!(read().unwrap().own_name(), "a.x");
        files[at].mode(mode);
        let error = read().unwrap_err();
        let text = error.to_string();
        assert!(text.contains(word) && error.path.as_deref() == Some(&*files[at].0), "{text}");
    }
}

/// Mistakes with which a secret comes to where errors are made.
#[test]
fn no_error_shows_a_secret() {
    let made = make(&["a.x"]);
    let one_line = made.key.replace('\n', "");
    let secret = made.key.lines().nth(1).unwrap();
    for (certificate, key, authority) in [
        (&made.certificate, &one_line, &made.authority),
        (&one_line, &made.key, &made.authority),
        (&made.certificate, &made.key, &one_line),
        (&made.certificate, &made.key.replace("-----END", "END"), &made.authority),
    ] {
        let error = Credentials::certificates(certificate.as_bytes(), key.as_bytes(), authority.as_bytes());
        let text = format!("{0} {0:?}", error.unwrap_err());
        assert!(!text.contains(secret), "{text}");
    }
    for path in [A.to_owned(), format!("a = {A}"), made.key] {
        let error = Credentials::psk_file(Path::new(&path), 0).unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains("not the path of a file") && !text.contains(&path[10..30]), "{text}");
    }
}

struct Made {
    certificate: String,
    key: String,
    authority: String,
}

fn make(names: &[&str]) -> Made {
    let (authority, issuer) = crate::testing::authority("one");
    let (certificate, key) = crate::testing::issue(&issuer, names, |_| {});
    Made { certificate, key, authority }
}

fn load(made: &Made) -> Result<Credentials, CredentialsError> {
    Credentials::certificates(made.certificate.as_bytes(), made.key.as_bytes(), made.authority.as_bytes())
}

#[test]
fn certificates() {
    let made = make(&["Node7.cluster.example", "*.other.example"]);
    let credentials = load(&made).unwrap();
    assert_eq!(format!("{credentials:?}"), "Credentials(certificate node7.cluster.example)");
    let Kind::Certificates(certificates) = &*credentials.0 else { panic!("certificates") };
    assert_eq!(certificates.own.names().count(), 1, "stars name nobody");
}

#[test]
fn wrong_certificates_are_told() {
    let (made, other) = (make(&["a.x"]), make(&["a.x"]));
    let text = |made: Made| load(&made).unwrap_err().to_string();
    let with = |f: fn(&mut Made)| {
        let mut made = make(&["a.x"]);
        f(&mut made);
        text(made)
    };
    assert!(text(Made { key: other.key, ..made }).contains("not this certificate's"));
    assert!(with(|made| made.certificate = String::new()).contains("no certificate"));
    assert!(with(|made| made.key = String::new()).contains("no private key"));
    assert!(with(|made| made.authority = "hello".to_owned()).contains("no certificate"));
    // Without its first bytes, which say how long it is.
    let without_beginning = |pem: &str| {
        let lines = pem.lines().enumerate().filter(|(at, _)| *at != 1);
        lines.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    let made = make(&["a.x"]);
    let error = text(Made { authority: without_beginning(&made.authority), ..made });
    assert!(error.contains("not an authority"), "{error}");
    assert!(text(make(&[])).contains("no DNS name"));
}
