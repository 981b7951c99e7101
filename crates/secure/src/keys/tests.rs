//! Known answers, and epochs.

use super::*;

fn hex<const N: usize>(digits: &str) -> [u8; N] {
    base16ct::mixed::decode_vec(digits).unwrap().try_into().unwrap()
}

/// RFC 9001 A.1 and A.5.
#[test]
fn labels_are_expanded_as_tls_does() {
    let client = hex("c00cf151ca5be075ed0ebfb5c80323c42d6b7db67881289af4008f1f6c357aea");
    let (mut key, mut iv) = ([0; 16], [0; 12]);
    expand_label(&client, b"quic key", b"", &mut key);
    expand_label(&client, b"quic iv", b"", &mut iv);
    assert_eq!(key, hex("1f369613dd76d5467730efcbe3b1a22d"));
    assert_eq!(iv, hex("fa044b2f42a3fd3b46fb255c"));
    let secret = hex("9ac312a7f877468ebe69422748ad00a15443f18203a07d6060f688f30f21632b");
    let mut update = [0; 32];
    expand_label(&secret, b"quic ku", b"", &mut update);
    assert_eq!(update, hex("1223504755036d556342ee9361d253421a826c9ecdf3c7148684b36b714881f9"));
}

/// Test case 14 of McGrew and Viega's specification of GCM.
#[test]
fn the_cipher_is_aes_256_gcm() {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &[0; 32]).unwrap());
    let epoch = Epoch { key, iv: Zeroizing::new([0; 12]) };
    let mut text = [0u8; 16];
    let tag = epoch.key.seal_in_place_separate_tag(epoch.nonce(0), Aad::empty(), &mut text).unwrap();
    assert_eq!(text, hex("cea7403d4d606b6e074ec5d3baf39d18"));
    assert_eq!(tag.as_ref(), hex::<16>("d0d1c8a799996bf0265b98b5d48ab919"));
}

fn secret(byte: u8) -> Secret {
    Secret::new([byte; SECRET_BYTES])
}

fn seal(sealer: &mut Sealer, now_ns: u64, text: &[u8]) -> (u64, u64, Vec<u8>) {
    let (epoch, counter) = sealer.next(now_ns);
    let mut body = text.to_vec();
    let tag = sealer.seal(b"head", &mut body);
    body.extend_from_slice(&tag);
    (epoch, counter, body)
}

#[test]
fn keys_follow_each_other() {
    let mut sealer = Sealer::new(secret(1), 0, UpdateLimits { records: 3, age_ns: 1000 });
    let mut opener = Opener::new(&secret(1));
    let mut late = None;
    for i in 0..20u8 {
        let (epoch, counter, mut sealed) = seal(&mut sealer, 0, &[i; 5]);
        assert_eq!((epoch, counter), (u64::from(i) / 3, u64::from(i)));
        if i == 11 {
            // Of epoch 3; opened when the opener is in epoch 4.
            late = Some((epoch, counter, sealed));
            continue;
        }
        assert_eq!(opener.open(epoch & 63, 63, counter, b"head", &mut sealed).unwrap(), [i; 5]);
        if i == 12 {
            let (epoch, counter, mut sealed) = late.take().unwrap();
            assert_eq!(opener.open(epoch, 63, counter, b"head", &mut sealed).unwrap(), [11; 5]);
        }
    }
    assert_eq!(sealer.next(2000), (6, 20), "whoever has said nothing may not have got this key either");
    sealer.answered();
    let (epoch, counter, mut sealed) = seal(&mut sealer, 1000, b"old");
    assert_eq!(epoch, 7, "time steps too");
    assert_eq!(opener.open(epoch & 63, 63, counter, b"head", &mut sealed).unwrap(), b"old");
    assert_eq!(opener.number(), 7);
}

#[test]
fn what_is_not_the_peers_is_refused_and_changes_nothing() {
    let mut sealer = Sealer::new(secret(1), 0, UpdateLimits { records: 1, age_ns: 1000 });
    let mut opener = Opener::new(&secret(1));
    let (epoch, counter, sealed) = seal(&mut sealer, 0, b"a message");
    for bit in 0..sealed.len() * 8 {
        let mut wrong = sealed.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        assert!(opener.open(epoch, 63, counter, b"head", &mut wrong).is_none());
    }
    for (epoch, counter, head) in
        [(1, 0, b"head"), (2, 0, b"head"), (63, 0, b"head"), (0, 1, b"head"), (0, 0, b"haed")]
    {
        assert!(opener.open(epoch, 63, counter, head, &mut sealed.clone()).is_none());
    }
    assert_eq!(opener.number(), 0, "forward only when a tag proved right");
    assert!(opener.open(epoch, 63, counter, b"head", &mut sealed.clone()).is_some());
    let (epoch, counter, mut sealed) = seal(&mut sealer, 0, b"next");
    assert!(opener.open(epoch, 63, counter, b"head", &mut sealed).is_some());
    assert_eq!(opener.number(), 1);
}
