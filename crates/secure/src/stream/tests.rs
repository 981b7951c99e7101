//! Two sides of a stream in memory.

use super::*;
use crate::identity::Names;
use crate::testing::{certificates, psk};

fn dial(credentials: &Credentials) -> SealedStream {
    SealedStream::dial(credentials, &Authorisation::default(), UpdateLimits { records: 10, age_ns: 1000 })
        .unwrap()
}

fn answer(credentials: &Credentials) -> SealedStream {
    SealedStream::answer(credentials, &Authorisation::default(), UpdateLimits { records: 7, age_ns: 1000 })
}

/// What one side has said goes to the other, part by part.
fn turn(from: &mut SealedStream, to: &mut SealedStream) -> Result<usize, Failure> {
    let bytes = std::mem::take(from.said());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let wanted = to.wanted(rest)?;
        let Some((part, behind)) = rest.split_at_checked(wanted) else { return Err(Failure::Malformed) };
        to.shake(part, 0)?;
        rest = behind;
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
        assert!(b.said().is_empty() && a.peer().is_none());
        shake(&mut a, &mut b).unwrap();
        assert_eq!(b.peer().unwrap().0.name(), "a");
        assert!(a.peer().is_some());
        for i in 0..100u64 {
            for (from, to) in [(true, false), (false, true)] {
                let (from, _) = if from { (&mut a, to) } else { (&mut b, to) };
                let body = vec![i as u8; (i * 150) as usize];
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

#[test]
fn without_the_key_there_is_no_word() {
    let (mut a, mut b) = (dial(&psk(&["c"])), answer(&psk(&["a"])));
    assert_eq!(turn(&mut a, &mut b), Err(Failure::Key));
    assert!(b.said().is_empty());
    // What is no handshake.
    for bytes in [&b"CCIt\x01\0\0\0"[..], b"GET / HT", b"CCIs\x01\x02\0\0", b"CCIs\x02\x01\0\0"] {
        let mut b = answer(&psk(&["a"]));
        assert_eq!((b.wanted(bytes), b.shake(bytes, 0)), (Ok(8), Err(Failure::Malformed)));
        assert!(b.said().is_empty());
    }
    // Nor is a name that may not connect given any.
    let only = Authorisation { connect: Names::parse("x").unwrap(), ..Authorisation::default() };
    let (mut a, mut b) =
        (dial(&psk(&["a"])), SealedStream::answer(&psk(&["a"]), &only, UpdateLimits::default()));
    assert_eq!(turn(&mut a, &mut b), Err(Failure::NotAllowed("a (psk)".into())));
    assert!(b.said().is_empty());
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
    let only = Authorisation { connect: Names::parse("x").unwrap(), ..Authorisation::default() };
    let (one, two) = certificates(&["a"], &["b"]);
    let (mut a, mut b) = (dial(&one), SealedStream::answer(&two, &only, UpdateLimits::default()));
    assert_eq!(shake(&mut a, &mut b), Err(Failure::NotAllowed("a (certificate)".into())));
    assert!(a.peer().is_none() && b.said().is_empty());
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
