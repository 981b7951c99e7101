//! Two sides of a stream in memory.

use super::*;
use crate::credentials::Credentials;
use crate::identity::Names;
use crate::testing::{certificates, psk};

fn config(credentials: &Credentials, number: u8) -> StreamConfig {
    StreamConfig {
        credentials: credentials.clone(),
        authorisation: Authorisation::default(),
        update: UpdateLimits { records: 10, age_ns: 1000 },
        own: EndpointId::of_secret(&[number; 32]),
    }
}

fn dial(credentials: &Credentials) -> SealedStream {
    SealedStream::dial(&config(credentials, 1), None).unwrap()
}

fn answer(credentials: &Credentials) -> SealedStream {
    SealedStream::answer(&config(credentials, 2))
}

fn answer_only(credentials: &Credentials, names: &str) -> SealedStream {
    let only = Authorisation { connect: Names::parse(names).unwrap(), ..Authorisation::default() };
    SealedStream::answer(&StreamConfig { authorisation: only, ..config(credentials, 2) })
}

/// What one side has said goes to the other, part by part.
fn turn(from: &mut SealedStream, to: &mut SealedStream) -> Result<usize, Failure> {
    let bytes = std::mem::take(from.outgoing());
    let mut remainder = &bytes[..];
    while !remainder.is_empty() {
        let wanted = to.wanted(remainder)?;
        let Some((part, behind)) = remainder.split_at_checked(wanted) else { return Err(Failure::Malformed) };
        to.shake(part, 0)?;
        remainder = behind;
    }
    Ok(bytes.len())
}

fn shake(a: &mut SealedStream, b: &mut SealedStream) -> Result<(), Failure> {
    for _ in 0..4 {
        turn(a, b)?;
        turn(b, a)?;
    }
    Ok(())
}

fn kinds() -> [(Credentials, Credentials); 2] {
    [(psk(&["a"]), psk(&["b", "a"])), certificates(&["a"], &["b"])]
}

fn record(from: &mut SealedStream, body: &[u8], now_ns: u64) -> Vec<u8> {
    let mut record = vec![0; RECORD_HEADER_BYTES];
    record.extend_from_slice(body);
    record.extend_from_slice(&[0; TAG_BYTES]);
    assert!(from.seal(&mut record, now_ns));
    record
}

#[test]
fn records_go_both_ways() {
    for (one, two) in kinds() {
        let (mut a, mut b) = (dial(&one), answer(&two));
        assert!(b.outgoing().is_empty() && a.peer().is_none());
        shake(&mut a, &mut b).unwrap();
        assert_eq!(b.peer().unwrap().0.name(), "a");
        assert!(a.peer().is_some());
        for i in 0..100u64 {
            for (from, to) in [(true, false), (false, true)] {
                let (from, _) = if from { (&mut a, to) } else { (&mut b, to) };
                let body = vec![i as u8; 1 + (i * 150) as usize];
                let mut record = record(from, &body, i * 100);
                let to = if to { &mut a } else { &mut b };
                assert_eq!(to.wanted(&record[..4]).unwrap(), record.len());
                assert_eq!(to.open(&mut record).unwrap(), body);
            }
        }
        let mut full = vec![0; RECORD_OVERHEAD_BYTES + RECORD_BODY_BYTES_MAX];
        assert!(a.seal(&mut full, 0) && b.open(&mut full).is_some());
        assert!(!a.seal(&mut vec![0; RECORD_OVERHEAD_BYTES + RECORD_BODY_BYTES_MAX + 1], 0));
        assert!(b.shake(&[0, 0, HANDSHAKE, 0], 0).is_err());
    }
}

/// Whoever says nothing in as many parts as it likes would be listened to without an end.
#[test]
fn a_handshake_has_few_parts_and_no_part_is_empty() {
    for (one, two) in kinds() {
        let mut b = answer(&two);
        b.shake(&preamble(two.method()), 0).unwrap();
        assert!(b.wanted(&[0, 0, HANDSHAKE, 0]).is_err() && b.shake(&[0, 0, HANDSHAKE, 0], 0).is_err());
        let mut b = answer(&two);
        b.shake(&preamble(two.method()), 0).unwrap();
        let outgoing = (0..100).take_while(|_| b.shake(&[1, 0, HANDSHAKE, 0, 22], 0).is_ok()).count();
        assert!(outgoing <= HANDSHAKE_PARTS_MAX, "{outgoing}");
        // Nor is a record empty.
        let (mut a, mut b) = (dial(&one), answer(&two));
        shake(&mut a, &mut b).unwrap();
        let mut empty = vec![0; RECORD_OVERHEAD_BYTES];
        assert!(!a.seal(&mut empty, 0) && b.wanted(&[16, 0, SEALED, 0]).is_err());
        assert!(b.wanted(&[17, 0, SEALED, 0]).is_ok());
    }
}

#[test]
fn what_is_changed_left_out_or_repeated_is_refused() {
    let (one, two) = kinds()[0].clone();
    let connected = || {
        let (mut a, mut b) = (dial(&one), answer(&two));
        shake(&mut a, &mut b).unwrap();
        (a, b)
    };
    let (mut a, mut b) = connected();
    let first = record(&mut a, b"first", 0);
    for bit in 0..first.len() * 8 {
        let mut wrong = first.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        // The length is checked before: it says how much is read.
        if b.wanted(&wrong) == Ok(wrong.len()) {
            assert!(b.open(&mut wrong).is_none(), "{bit}");
        }
    }
    let mut second = record(&mut a, b"second", 0);
    assert!(b.open(&mut second.clone()).is_none(), "left out");
    assert!(b.open(&mut first.clone()).is_some() && b.open(&mut first.clone()).is_none(), "repeated");
    assert!(b.open(&mut second).is_some());
    let mut own = record(&mut a, b"back", 0);
    assert!(a.open(&mut own).is_none(), "reflected");
    let (mut other, _) = connected();
    assert!(b.open(&mut record(&mut other, b"other", 0)).is_none(), "of another stream");
}

/// Records that stay where they are can be opened again, across one change of keys; behind two, once the first ones are taken.
#[test]
fn records_that_are_not_taken_are_opened_again() {
    let (mut a, mut b) = (dial(&psk(&["a"])), answer(&psk(&["a"])));
    shake(&mut a, &mut b).unwrap();
    // Ten records a key, by the configuration above.
    let records: Vec<Vec<u8>> = (0..40u8).map(|number| record(&mut a, &[number; 3], 0)).collect();
    let (mut taken, mut looks) = (0, 0);
    while taken < records.len() {
        let mut opened = 0;
        for (at, record) in records[taken..].iter().enumerate() {
            let mut copy = record.clone();
            match b.open_ahead(at as u64, &mut copy) {
                Ahead::Opened(body) => assert_eq!(body, [(taken + at) as u8; 3]),
                Ahead::Forged => panic!("record {taken} and {at}"),
                Ahead::Later => break,
            }
            opened += 1;
        }
        // As many as there are of this key, and all of the next one.
        assert_eq!(opened, (20 - taken % 10).min(records.len() - taken));
        looks += 1;
        let some = if looks % 2 == 0 { 0 } else { 3.min(opened) };
        b.advance(some as u64);
        taken += some;
        if looks % 5 == 0 && taken < records.len() {
            assert_eq!(b.open(&mut records[taken].clone()), Some(&mut [taken as u8; 3][..]));
            taken += 1;
        }
    }
    let mut forged = records[3].clone();
    assert_eq!(b.open_ahead(0, &mut forged), Ahead::Forged);
    let mut last = record(&mut a, b"last", 0);
    assert_eq!(b.open(&mut last).map(|body| body.to_vec()), Some(b"last".to_vec()));
}

#[test]
fn without_the_key_there_is_no_word() {
    let (mut a, mut b) = (dial(&psk(&["c"])), answer(&psk(&["a"])));
    assert_eq!(turn(&mut a, &mut b), Err(Failure::Key));
    assert!(b.outgoing().is_empty());
    // What is no handshake.
    for bytes in [&b"CCIt\x02\0\0\0"[..], b"GET / HT", b"CCIs\x02\x02\0\0", b"CCIs\x02\x01\0\x01"] {
        let mut b = answer(&psk(&["a"]));
        assert_eq!((b.wanted(bytes), b.shake(bytes, 0)), (Ok(8), Err(Failure::Malformed)));
        assert!(b.outgoing().is_empty());
    }
    // Nor is a name that may not connect given any.
    let (mut a, mut b) = (dial(&psk(&["a"])), answer_only(&psk(&["a"]), "x"));
    assert_eq!(turn(&mut a, &mut b), Err(Failure::NotAllowed("a (psk)".into())));
    assert!(b.outgoing().is_empty());
}

#[test]
fn certificates_are_told_why() {
    let ((one, _), (_, two)) = (certificates(&["a"], &["b"]), certificates(&["a"], &["b"]));
    let (mut a, mut b) = (dial(&one), answer(&two));
    let why = shake(&mut a, &mut b).unwrap_err();
    assert!(why.to_string().contains("invalid peer certificate"), "{why}");
    // The alert gets to the other side.
    let why = turn(&mut a, &mut b).unwrap_err();
    assert!(why.to_string().contains("refuses"), "{why}");
    // The side that dialled knows that it is let in, or that it is not.
    let (one, two) = certificates(&["a"], &["b"]);
    let (mut a, mut b) = (dial(&one), answer_only(&two, "x"));
    assert_eq!(shake(&mut a, &mut b), Err(Failure::NotAllowed("a (certificate)".into())));
    assert!(a.peer().is_none() && b.outgoing().is_empty());
}

/// What a client of version 1 began with: preamble, and with keys the key's name and 48 bytes of Noise.
#[test]
fn another_version_is_refused_as_such() {
    for (credentials, method) in [(psk(&["a"]), 1), (certificates(&["a"], &["b"]).0, 2)] {
        for theirs in [1, 3] {
            let first = [b'C', b'C', b'I', b's', theirs, method, 0, 0];
            let mut b = answer(&credentials);
            assert_eq!((b.wanted(&first), b.shake(&first, 0)), (Ok(8), Err(Failure::Version(theirs))));
            // With keys, not a word to who has shown none.
            let answered: &[u8] = if method == 1 { &[] } else { &[b'C', b'C', b'I', b's', 2, 2, 0, 0] };
            assert_eq!(b.outgoing(), answered);
            // And who asks hears it.
            let mut a = dial(&credentials);
            assert_eq!((a.wanted(&first[..4]), a.shake(&first, 0)), (Ok(8), Err(Failure::Version(theirs))));
            let why = Failure::Version(theirs).to_string();
            assert!(why.contains(&format!("version {theirs}")) && why.contains("by version 2"), "{why}");
        }
    }
}

#[test]
fn what_comes_back_is_known() {
    let (one, _) = certificates(&["a"], &["b"]);
    for credentials in [psk(&["a"]), one] {
        let mut a = dial(&credentials);
        // The same endpoint, from wherever.
        let mut same = SealedStream::answer(&config(&credentials, 1));
        assert_eq!(turn(&mut a, &mut same), Err(Failure::Own));
        assert!(same.outgoing().is_empty() && same.peer().is_none());
    }
}

#[test]
fn who_is_expected_must_be_there() {
    let (one, two) = certificates(&["a", "a.x"], &["b", "b.x"]);
    for (name, is_connected) in [("b", true), ("B.X", true), ("c", false), ("b.x.y", false)] {
        let mut a = SealedStream::dial(&config(&one, 1), Some(name)).unwrap();
        let shaken = shake(&mut a, &mut answer(&two));
        if is_connected {
            assert_eq!((shaken, a.peer().unwrap().0.name()), (Ok(()), "b"));
        } else {
            let why = shaken.unwrap_err();
            assert_eq!(why, Failure::NotExpected("b (certificate)".into(), name.into()));
            assert!(why.is_final() && a.peer().is_none() && !a.seal(&mut [0; 100], 0));
        }
    }
    // With keys the name is that of the key by which this side asks.
    let keys = psk(&["a", "b"]);
    let mut a = SealedStream::dial(&config(&keys, 1), Some("b")).unwrap();
    let mut b = answer(&psk(&["b"]));
    shake(&mut a, &mut b).unwrap();
    assert_eq!((a.peer().unwrap().0.name(), b.peer().unwrap().0.name()), ("b", "b"));
    let mut a = SealedStream::dial(&config(&keys, 1), Some("b")).unwrap();
    assert_eq!(turn(&mut a, &mut answer(&psk(&["a"]))), Err(Failure::Key));
}

#[test]
fn nothing_that_comes_panics() {
    for (one, two) in kinds() {
        for byte in 0..=255u8 {
            for mut side in [dial(&one), answer(&two)] {
                for _ in 0..10 {
                    let Ok(wanted) = side.wanted(&[byte; 16]) else { break };
                    if side.shake(&vec![byte; wanted], 0).is_err() {
                        break;
                    }
                }
                assert!(!side.is_open() && side.open(&mut [byte; 64]).is_none());
            }
        }
    }
}
