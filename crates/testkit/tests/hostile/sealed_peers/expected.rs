//! A dial names whom it expects: nobody else hears anything of the request.

use super::stage::*;
use cci::{
    Attribute, ConnectError, ConnectFailure, Context, CreateError, Endpoint, Options, Security,
    SharedEndpoint,
};
use std::path::Path;
use std::time::Duration;

const BRIEF: Duration = Duration::from_millis(500);
const HUB: &str = "hub = 7b1f6a6f0d1c2e0f7a5b3c4d9e8f7061524334251607f8e9dacbbcad9e8f7061\n";
const SPOKE1: &str = "spoke1 = 1c5b2f3e4d6c7b8a99a8b7c6d5e4f3021223344556677889aabbccddeeff0011\n";
const SPOKE2: &str = "spoke2 = 2d5b2f3e4d6c7b8a99a8b7c6d5e4f3021223344556677889aabbccddeeff0022\n";

fn with_keys(transport: &str, keys: &str) -> Side {
    let text = format!("[d]\ntransport = {transport}\nip = 127.0.0.1\n");
    let context = Context::from_text(&text, Path::new("test.ini")).unwrap();
    let security = Some(Security::psk(keys.as_bytes()).unwrap());
    let options = Options::default().security(security);
    Side::new(Endpoint::create(context.default_device(), options).unwrap())
}

/// What becomes of a dial, and who asked the server with what.
fn dial(
    client: &mut Side,
    server: &mut Side,
    expected: Option<&str>,
    timeout: Duration,
) -> Result<(), ConnectFailure> {
    let uri = server.endpoint.uri().to_owned();
    client.made.clear();
    client.dial(&uri, expected, timeout);
    let over = |sides: &[&mut Side]| !sides[0].made.is_empty();
    assert!(run(&mut [client, server], &mut Nobody, PATIENCE, over), "{:?}", client.endpoint.counters());
    client.made.last().unwrap().map(drop)
}

/// The names of `node1.pem` are `node1.cci.test` and `storage.cci.test`.
#[test]
fn a_certificate_must_have_the_name() {
    for transport in ["udp", "tcp", "any"] {
        for (name, is_there) in [
            ("storage.cci.test", true),
            ("Node1.CCI.test", true),
            ("other.cci.test", false),
            ("cci.test", false),
        ] {
            // By the call, and by the device's configuration.
            for lines in ["", &format!("expect = {name}")] {
                let mut client = Side::new(local(transport, "certificates", lines));
                let mut server = Side::new(local(transport, "certificates", ""));
                let expected = lines.is_empty().then_some(name);
                let became = dial(&mut client, &mut server, expected, PATIENCE);
                let what = format!("{transport}, {name}, by {:?}", expected.map_or("ini", |_| "call"));
                if is_there {
                    assert_eq!(became, Ok(()), "{what}");
                    assert_eq!(server.asked, [(SECRET.to_vec(), "node1.cci.test".to_owned())], "{what}");
                    let connection = client.made[0].unwrap();
                    let identity = client.endpoint.peer_identity(connection).unwrap();
                    assert!(identity.has_name(name), "{what}: {identity}");
                } else {
                    assert_eq!(became, Err(ConnectFailure::WrongPeer), "{what}");
                    run(&mut [&mut client, &mut server], &mut Nobody, Duration::from_millis(100), |_| false);
                    assert!(server.asked.is_empty() && server.made.is_empty(), "{what}: {:?}", server.asked);
                }
            }
        }
    }
}

/// A hub has a key with each spoke. What it asks by the key of one spoke the other can't answer.
#[test]
fn with_a_key_for_each_spoke_the_hub_says_which_one_it_means() {
    for (transport, silent) in [("udp", ConnectFailure::TimedOut), ("tcp", ConnectFailure::NotPermitted)] {
        let mut hub = with_keys(transport, &format!("{HUB}{SPOKE1}{SPOKE2}"));
        let (mut one, mut two) = (with_keys(transport, SPOKE1), with_keys(transport, SPOKE2));
        assert_eq!(dial(&mut hub, &mut one, Some("spoke1"), PATIENCE), Ok(()), "{transport}");
        assert_eq!(dial(&mut hub, &mut two, Some("spoke2"), PATIENCE), Ok(()), "{transport}");
        assert_eq!((&one.asked[0].1[..], &two.asked[0].1[..]), ("spoke1", "spoke2"));
        // Somebody has the hub dial the one in place of the other.
        let mut hub = with_keys(transport, &format!("{HUB}{SPOKE1}{SPOKE2}"));
        assert_eq!(dial(&mut hub, &mut two, Some("spoke1"), BRIEF), Err(silent), "{transport}");
        assert_eq!(two.asked.len(), 1, "{transport}: it heard of it");
        // Towards the hub no spoke can stand in for the other: it has not its key.
        for (spoke, keys) in [("spoke1", SPOKE1), ("spoke2", SPOKE2)] {
            let mut spoke_side = with_keys(transport, keys);
            assert_eq!(dial(&mut spoke_side, &mut hub, None, PATIENCE), Ok(()));
            assert_eq!(hub.asked.last().unwrap().1, spoke);
            let uri = hub.endpoint.uri().to_owned();
            let other = if spoke == "spoke1" { "spoke2" } else { "spoke1" };
            let refused =
                spoke_side.endpoint.connect_expecting(other, &uri, b"", Attribute::ReliableOrdered, 0, None);
            assert!(matches!(refused, Err(ConnectError::CannotExpect { .. })), "{refused:?}");
        }
    }
}

/// One address has one identity while connections use it: whoever expects another one there gets an error at once.
#[test]
fn an_address_in_use_by_somebody_else_is_a_wrong_peer() {
    let keys = format!("{SPOKE1}{SPOKE2}");
    let (mut client, mut server) = (with_keys("udp", &keys), with_keys("udp", &keys));
    assert_eq!(dial(&mut client, &mut server, Some("spoke1"), PATIENCE), Ok(()));
    assert_eq!(dial(&mut client, &mut server, Some("spoke2"), PATIENCE), Err(ConnectFailure::WrongPeer));
    assert_eq!(dial(&mut client, &mut server, Some("spoke1"), PATIENCE), Ok(()));
    let asked: Vec<&str> = server.asked.iter().map(|(_, name)| &name[..]).collect();
    assert_eq!(asked, ["spoke1", "spoke1"]);
}

#[test]
fn where_no_name_is_proved_nobody_can_be_expected() {
    let context = |text: &str| Context::from_text(text, Path::new("test.ini")).unwrap();
    let lines = "[u]\ntransport = udp\nip = 127.0.0.1\n[t]\ntransport = tcp\nip = 127.0.0.1\n[s]\ntransport = shm\n[a]\ntransport = any\n";
    for device in context(lines).devices() {
        let mut endpoint = Endpoint::create(device, Options::default()).unwrap();
        let uri = endpoint.uri().to_owned();
        let refused = endpoint.connect_expecting("hub", &uri, b"", Attribute::ReliableOrdered, 0, None);
        let refused = refused.unwrap_err();
        assert!(matches!(&refused, ConnectError::CannotExpect { name, .. } if name == "hub"), "{refused}");
        assert!(refused.to_string().contains("security"), "{refused}");
    }
    // Nor is a group anybody.
    let mut group = local("udp", "psk", "security_required = off");
    let refused =
        group.connect_expecting("cluster", "udp://239.1.2.3:5000", b"", Attribute::MulticastSend, 0, None);
    assert!(refused.unwrap_err().to_string().contains("nobody"));
}

/// Shared memory proves users, not names: an endpoint of several paths takes another one for whom it expects.
#[test]
fn over_any_the_path_is_one_that_proves_names() {
    let (client, server) = (local("any", "psk", ""), local("any", "psk", ""));
    assert!(client.uri().contains("shm=") && server.uri().contains("shm="), "{}", client.uri());
    let (mut client, mut server) = (Side::new(client), Side::new(server));
    assert_eq!(dial(&mut client, &mut server, Some("cluster"), PATIENCE), Ok(()));
    let shown = client.endpoint.explain(client.made[0].unwrap()).unwrap().to_string();
    assert!(shown.contains("expected by name") && shown.contains("sealed by AES-256-GCM"), "{shown}");
    assert_eq!(server.asked[0].1, "cluster");
    client.endpoint.disconnect(client.made[0].unwrap());
    server.endpoint.progress();
}

#[test]
fn a_program_expects_no_other_than_its_device() {
    let mut endpoint = local("udp", "psk", "expect = node1");
    let refused =
        endpoint.connect_expecting("cluster", "udp://127.0.0.1:9", b"", Attribute::ReliableOrdered, 0, None);
    assert!(refused.unwrap_err().to_string().contains("node1 only"));
    let device = device("udp", "psk", "ip = 127.0.0.1\nexpect = node1");
    for (name, is_refused) in [("NODE1", false), ("cluster", true)] {
        let security = Some(Security::of_device().expect(name));
        let opened = Endpoint::create(&device, Options::default().security(security));
        match opened {
            Err(CreateError::BadOption { name: "security", reason }) => {
                assert!(is_refused && reason.contains("node1 only"), "{reason}");
            }
            other => assert!(other.is_ok() && !is_refused),
        }
    }
    // By the endpoint's options alone, and through the form for several threads.
    let keys = format!("{SPOKE1}{SPOKE2}");
    let text = "[d]\ntransport = udp\nip = 127.0.0.1\n";
    let context = Context::from_text(text, Path::new("test.ini")).unwrap();
    let with = |security: Security| {
        let options = Options::default().security(security);
        Endpoint::create(context.default_device(), options)
    };
    let mut client = Side::new(with(Security::psk(keys.as_bytes()).unwrap().expect("spoke2")).unwrap());
    let mut server = with_keys("udp", SPOKE2);
    assert_eq!(dial(&mut client, &mut server, None, PATIENCE), Ok(()));
    let nobody = with(Security::psk(keys.as_bytes()).unwrap().expect("nobody"));
    assert!(nobody.err().unwrap().to_string().contains("no key of that name"));
    let shared = SharedEndpoint::new(client.endpoint);
    let uri = server.endpoint.uri().to_owned();
    let attribute = Attribute::ReliableOrdered;
    assert!(shared.connect_expecting("spoke1", &uri, b"", attribute, 0, None).is_err());
    shared.connect_expecting("spoke2", &uri, b"", attribute, 0, None).unwrap();
}
