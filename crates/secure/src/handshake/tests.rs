//! Both handshakes, and everything that must end them.

use super::*;
use crate::testing::{authority, issue, psk};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, date_time_ymd};

fn ours() -> EndpointId {
    EndpointId::of_secret(&[1; 32])
}

fn theirs() -> EndpointId {
    EndpointId::of_secret(&[2; 32])
}

/// Carries bytes to and fro until nothing more is said. `cut` bytes at once.
fn run(
    initiator: &Credentials,
    responder: &Credentials,
    prologues: [&[u8]; 2],
    cut: usize,
) -> (Result<Handshake, Failure>, Result<Handshake, Failure>) {
    let mut a = Handshake::initiate(initiator, ours(), prologues[0], None);
    let mut b = Handshake::respond(responder, theirs(), prologues[1]);
    for _ in 0..8 {
        turn(&mut a, &mut b, cut);
        turn(&mut b, &mut a, cut);
    }
    (a, b)
}

fn turn(from: &mut Result<Handshake, Failure>, to: &mut Result<Handshake, Failure>, cut: usize) {
    let mut written = Vec::new();
    if let Ok(side) = from
        && let Err(failure) = side.write(&mut written)
    {
        *from = Err(failure);
    }
    for bytes in written.chunks(cut) {
        if let Ok(side) = to
            && let Err(failure) = side.read(bytes)
        {
            // It may say why before it goes.
            let mut last = Vec::new();
            let _ = side.write(&mut last);
            if let Ok(other) = from
                && let Err(failure) = other.read(&last)
            {
                *from = Err(failure);
            }
            *to = Err(failure);
        }
    }
}

fn agree(initiator: &Credentials, responder: &Credentials) -> [Identity; 2] {
    for cut in [1, 7, 100_000] {
        let (a, b) = run(initiator, responder, [b"p"; 2], cut);
        let (mut a, mut b) = (a.unwrap(), b.unwrap());
        assert!(a.is_done() && b.is_done());
        let (one, two) = (a.finish(b"here").unwrap(), b.finish(b"here").unwrap());
        assert_eq!((one.endpoint, two.endpoint), (theirs(), ours()));
        assert_eq!((&one.send, &one.receive), (&two.receive, &two.send));
        assert_ne!(one.send, one.receive);
        if cut > 7 {
            return [one.peer, two.peer];
        }
    }
    unreachable!()
}

fn refuse(initiator: &Credentials, responder: &Credentials) -> [String; 2] {
    let (a, b) = run(initiator, responder, [b"p"; 2], 100_000);
    let text = |side: Result<Handshake, Failure>| side.err().map_or(String::new(), |why| why.to_string());
    assert!(b.is_err(), "the responder took it");
    [text(a), text(b)]
}

#[test]
fn whoever_has_the_key() {
    let (one, two) = (psk(&["a", "b"]), psk(&["b", "a"]));
    let [of_one, of_two] = agree(&one, &two);
    assert_eq!((of_one.to_string(), of_two.to_string()), ("a (psk)".into(), "a (psk)".into()));
    assert_eq!(agree(&two, &one)[0].name(), "b");
}

#[test]
fn others_have_not() {
    let [_, why] = refuse(&psk(&["c"]), &psk(&["a", "b"]));
    assert!(why.contains("pre-shared key"), "{why}");
}

#[test]
fn every_bit_of_noise_counts() {
    let (one, two) = (psk(&["a"]), psk(&["a"]));
    let mut first = Vec::new();
    let mut a = Handshake::initiate(&one, ours(), b"p", None).unwrap();
    a.write(&mut first).unwrap();
    for bit in 0..first.len() * 8 {
        let mut wrong = first.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        // The top bit of a public key is not part of it, but of the transcript.
        assert_eq!(
            Handshake::respond(&two, theirs(), b"p").unwrap().read(&wrong),
            Err(Failure::Key),
            "bit {bit}"
        );
    }
    assert_eq!(Handshake::respond(&two, theirs(), b"q").unwrap().read(&first), Err(Failure::Key), "prologue");
    let mut b = Handshake::respond(&two, theirs(), b"p").unwrap();
    b.read(&first).unwrap();
    assert_eq!(b.peer().unwrap().name(), "a");
    let mut second = Vec::new();
    b.write(&mut second).unwrap();
    second[40] ^= 1;
    assert_eq!(a.read(&second), Err(Failure::Key));
    assert_eq!(b.read(b"more"), Err(Failure::Malformed));
}

#[test]
fn another_context_gives_other_secrets() {
    let (cert, _) = pair(|_| {});
    for credentials in [psk(&["a"]), cert] {
        let (a, b) = run(&credentials, &credentials, [b"p"; 2], 100_000);
        let (one, two) = (a.unwrap().finish(b"1").unwrap(), b.unwrap().finish(b"2").unwrap());
        assert!(one.send != two.receive && one.receive != two.send);
    }
}

#[test]
fn nobody_shakes_hands_with_itself() {
    let (one, two) = pair(|_| {});
    for (initiator, responder) in [(psk(&["a"]), psk(&["a"])), (one.clone(), one), (two.clone(), two)] {
        let mut a = Handshake::initiate(&initiator, ours(), b"p", None).unwrap();
        let mut first = Vec::new();
        a.write(&mut first).unwrap();
        let mut same = Handshake::respond(&responder, ours(), b"p").unwrap();
        assert_eq!(same.read(&first), Err(Failure::Own));
        // Another endpoint with the same credentials is another one.
        Handshake::respond(&responder, theirs(), b"p").unwrap().read(&first).unwrap();
    }
}

/// With certificates the endpoints are said before TLS, which knows nothing of them.
#[test]
fn who_changes_which_endpoint_it_is_gets_two_sides_without_a_common_secret() {
    let (one, _) = pair(|_| {});
    let mut a = Handshake::initiate(&one, ours(), b"p", None).unwrap();
    // Somebody gives an endpoint its own words back as another one's.
    let mut b = Handshake::respond(&one, ours(), b"p").unwrap();
    let mut flown = [0; 2];
    for turn in 0..6 {
        let (from, to) = if turn % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        let mut written = Vec::new();
        from.write(&mut written).unwrap();
        for byte in written.iter_mut().take(16_usize.saturating_sub(flown[turn % 2])) {
            *byte ^= 0xff;
        }
        flown[turn % 2] += written.len();
        to.read(&written).unwrap();
    }
    assert!(a.is_done() && b.is_done(), "TLS knows nothing of it");
    let (one, two) = (a.finish(b"").unwrap(), b.finish(b"").unwrap());
    assert!(one.send != two.receive && one.receive != two.send);
}

/// Credentials of two nodes of one authority; the second's certificate is changed.
fn pair(change: impl FnOnce(&mut CertificateParams)) -> (Credentials, Credentials) {
    let (pem, issuer) = authority("one");
    let of = |(certificate, key): (String, String)| {
        Credentials::certificates(certificate.as_bytes(), key.as_bytes(), pem.as_bytes()).unwrap()
    };
    (of(issue(&issuer, &["a.x", "a.y"], |_| {})), of(issue(&issuer, &["b.x"], change)))
}

#[test]
fn certificates_of_one_authority() {
    let (one, two) = pair(|_| {});
    let [of_one, of_two] = agree(&one, &two);
    assert_eq!(of_one.to_string(), "b.x (certificate)");
    assert_eq!(of_two.names().collect::<Vec<_>>(), ["a.x", "a.y"]);
}

#[test]
fn of_another_authority() {
    let ((one, _), (_, two)) = (pair(|_| {}), pair(|_| {}));
    for (initiator, responder) in [(&one, &two), (&two, &one)] {
        let [a, b] = refuse(initiator, responder);
        assert!(a.contains("invalid peer certificate"), "{a}");
        assert!(b.contains("the peer refuses this side's"), "{b}");
    }
}

#[test]
fn expired_or_not_meant_for_it() {
    let (one, two) = pair(|params| params.not_after = date_time_ymd(2001, 1, 1));
    let ([a, b], [_, c]) = (refuse(&one, &two), refuse(&two, &one));
    assert!(
        a.contains("expired") && b.contains("CertificateExpired") && c.contains("expired"),
        "{a} {b} {c}"
    );
    let (one, two) = pair(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning]);
    let ([a, _], [_, c]) = (refuse(&one, &two), refuse(&two, &one));
    assert!(a.contains("certificates: ") && c.contains("certificates: "), "{a} {c}");
}

#[test]
fn the_other_kind_of_credentials() {
    let (one, _) = pair(|_| {});
    refuse(&one, &psk(&["a"]));
    refuse(&psk(&["a"]), &one);
}

#[test]
fn garbage_is_refused_or_waited_for() {
    let (certificates, _) = pair(|_| {});
    for credentials in [psk(&["a"]), certificates] {
        for byte in 0..=255u8 {
            let mut b = Handshake::respond(&credentials, theirs(), b"p").unwrap();
            let mut taken = 0;
            while taken < 70_000 && b.read(&[byte; 100]).is_ok() {
                taken += 100;
            }
            assert!(taken < 70_000 && !b.is_done());
        }
    }
}
