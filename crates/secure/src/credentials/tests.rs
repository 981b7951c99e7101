//! Files and what is wrong with them.

use super::*;
use std::os::unix::fs::PermissionsExt;

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
    let Keys { .. } = keys;
    assert!(keys.find(&[0; 8]).is_none());
    let id = keys.own().id;
    assert_eq!(&*keys.find(&id).unwrap().name, "node7");
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

#[test]
fn others_may_not_read_it() {
    let path = std::env::temp_dir().join(format!("cci-secure-keys-{}", std::process::id()));
    std::fs::write(&path, format!("a = {A}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = Credentials::psk_file(&path).unwrap_err().to_string();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let read = Credentials::psk_file(&path);
    std::fs::write(&path, "nothing\n").unwrap();
    let line = Credentials::psk_file(&path).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(error.contains("mode 640") && error.contains("chmod 600 "), "{error}");
    assert_eq!(read.unwrap().own_name(), "a");
    assert!(line.contains(&format!("{}, line 1: ", path.display())), "{line}");
    assert!(Credentials::psk_file(&path).unwrap_err().to_string().contains("can't be read"));
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
    assert!(with(|made| made.authority = made.authority.replace("AA", "")).len() > 5);
    assert!(text(make(&[])).contains("no DNS name"));
}
