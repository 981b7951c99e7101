//! Somebody who has recorded an exchange, and learns the key or the certificates later.

use super::super::ask::prologue;
use super::super::wire::{self, Cookie, Datagram, Fragment};
use super::*;
use crate::credentials::KEY_ID_BYTES;
use crate::handshake::{Established, of_direction};
use crate::keys::{Opener, Secret};
use snow::Builder;

fn keys() -> Credentials {
    Credentials::psk(format!("a = {}58", "a7".repeat(31)).as_bytes()).unwrap()
}

fn key() -> [u8; 32] {
    let mut key = [0xa7; 32];
    key[31] = 0x58;
    key
}

fn exchange(one: &Credentials, two: &Credentials) -> Vec<Flying> {
    let mut nodes = [Node::new(1, config(one.clone())), Node::new(2, config(two.clone()))];
    let (mut net, mut seen) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        for node in &mut nodes {
            node.send(3 - node.at, b"a secret", 0, &mut net);
        }
        seen.extend(settle(&mut nodes, 0, &mut net));
    }
    assert!(nodes.iter().all(|node| node.got.len() >= 4));
    seen
}

/// What a recording holds of one handshake by a key.
struct Recorded {
    id: u64,
    cookie: Option<Cookie>,
    first: Vec<u8>,
    second: Vec<u8>,
    indices: [u32; 2],
}

/// The keys of both directions, initiator's and responder's, as the responder would make them that drew this private key for its
/// answer. None: the answer was another one.
fn derive(of: &Recorded, private: &[u8; 32]) -> (bool, [Secret; 2]) {
    let params = "Noise_NNpsk0_25519_AESGCM_SHA256".parse().unwrap();
    let (prologue, psk) = (prologue(of.id, of.cookie), key());
    let builder = Builder::new(params).prologue(&prologue).unwrap().psk(0, &psk).unwrap();
    let mut responder = builder.fixed_ephemeral_key_for_testing_only(private).build_responder().unwrap();
    let (mut payload, mut second) = ([0; 100], [0; 100]);
    let len = responder.read_message(&of.first[KEY_ID_BYTES..], &mut payload).unwrap();
    assert_eq!(len, 16, "with the key, the first message shows which endpoint asks");
    // The payload of the answer does not change the keys.
    let len = responder.write_message(&[0; 16], &mut second).unwrap();
    let is_it = second[..32] == of.second[..32];
    assert_eq!(len, of.second.len());
    let split = responder.dangerously_get_raw_split();
    let context =
        [&of.id.to_le_bytes()[..], &of.indices[0].to_le_bytes(), &of.indices[1].to_le_bytes()].concat();
    let initiator = of_direction(&Secret::new(split.0), true, &context);
    let responder = of_direction(&Secret::new(split.1), false, &context);
    (is_it, [initiator, responder])
}

/// How many of these are opened by such keys.
fn opened(sealed: &[Flying], secrets: &[Secret; 2]) -> usize {
    let open = |datagram: &&Flying| {
        secrets.iter().any(|secret| {
            let mut bytes = datagram.bytes.clone();
            let Some(Datagram::Sealed { epoch, counter, .. }) = wire::parse(&datagram.bytes) else {
                return false;
            };
            let (head, body) = bytes.split_at_mut(HEADER_BYTES);
            Opener::new(secret).open(epoch, EPOCH_MASK, counter, head, body).is_some()
        })
    };
    sealed.iter().filter(open).count()
}

fn fragment(datagram: &Flying) -> Option<Fragment<'_>> {
    match wire::parse(&datagram.bytes)? {
        Datagram::Handshake(fragment) => Some(fragment),
        _ => None,
    }
}

/// With the private key that one side drew for the handshake everything is opened, which shows that the reader does all that can
/// be done; with the pre-shared key alone, nothing is.
#[test]
fn who_learns_the_key_later_opens_nothing_that_was_recorded() {
    // An exchange whose responder drew a private key that is known.
    let own = EndpointId::random().unwrap();
    let drawn = [0x31; 32];
    let (id, indices) = (7, [8, 9]);
    let mut initiator =
        crate::handshake::Handshake::initiate(&keys(), own, &prologue(id, None), None).unwrap();
    let mut first = Vec::new();
    initiator.write(&mut first).unwrap();
    let mut known = Recorded { id, cookie: None, first, second: vec![0; 64], indices };
    let params = "Noise_NNpsk0_25519_AESGCM_SHA256".parse().unwrap();
    let (prologue_bytes, psk) = (prologue(id, None), key());
    let builder = Builder::new(params).prologue(&prologue_bytes).unwrap().psk(0, &psk).unwrap();
    let mut responder = builder.fixed_ephemeral_key_for_testing_only(&drawn).build_responder().unwrap();
    responder.read_message(&known.first[KEY_ID_BYTES..], &mut [0; 100]).unwrap();
    responder.write_message(&[5; 16], &mut known.second).unwrap();
    initiator.read_whole(&known.second).unwrap();
    let context = [&id.to_le_bytes()[..], &indices[0].to_le_bytes(), &indices[1].to_le_bytes()].concat();
    let Established { send, .. } = initiator.finish(&context).unwrap();
    let mut sealer = crate::keys::Sealer::new(send, 0, UpdateLimits::default());
    let (epoch, counter) = sealer.next(0);
    let mut bytes = wire::sealed_head(epoch, 40, 9, counter).to_vec();
    let mut body = *b"a secret";
    let tag = sealer.seal(&bytes, &mut body);
    bytes.extend_from_slice(&body);
    bytes.extend_from_slice(&tag);
    let sealed = [Flying { from: 1, to: 2, bytes }];
    let (is_it, secrets) = derive(&known, &drawn);
    assert!(is_it && opened(&sealed, &secrets) == 1, "the reader can read");
    let (is_it, secrets) = derive(&known, &[0x32; 32]);
    assert!(!is_it && opened(&sealed, &secrets) == 0);

    // One between two endpoints as they are.
    let seen = exchange(&keys(), &keys());
    let fragments: Vec<Fragment<'_>> = seen.iter().filter_map(fragment).collect();
    let second =
        fragments.iter().find(|fragment| !fragment.from_initiator && !fragment.bytes.is_empty()).unwrap();
    let is_first = |fragment: &&Fragment<'_>| {
        fragment.from_initiator && fragment.cookie.is_some() && fragment.id == second.id
    };
    let first = fragments.iter().find(is_first).unwrap();
    let recorded = Recorded {
        id: first.id,
        cookie: first.cookie,
        first: first.bytes.to_vec(),
        second: second.bytes.to_vec(),
        indices: [first.sender, second.sender],
    };
    let sealed: Vec<Flying> = seen.iter().filter(|datagram| datagram.bytes[1] & 3 == 1).cloned().collect();
    assert!(sealed.len() >= 8, "{}", sealed.len());
    let public = |bytes: &[u8]| <[u8; 32]>::try_from(&bytes[..32]).unwrap();
    let guesses =
        [key(), [0; 32], public(&recorded.second), public(&recorded.first[KEY_ID_BYTES..]), [0x31; 32]];
    for guess in guesses {
        let (is_it, secrets) = derive(&recorded, &guess);
        assert!(!is_it);
        assert_eq!(opened(&sealed, &secrets), 0, "of {}", sealed.len());
    }
}

/// Endpoints that have the key, or the certificates with their private keys, are given the recording, each what was said to it.
#[test]
fn a_recording_says_nothing_to_who_has_the_credentials_now() {
    for (one, two) in kinds() {
        let seen = exchange(&one, &two);
        let mut nodes = [Node::new(1, config(one)), Node::new(2, config(two))];
        // Both are about to ask each other, so that answers find somebody.
        for node in &mut nodes {
            node.send(3 - node.at, b"message0", 0, &mut Vec::new());
        }
        for _ in 0..2 {
            for datagram in &seen {
                nodes[datagram.to as usize - 1].receive(datagram.clone(), 0, &mut Vec::new());
            }
        }
        assert!(nodes.iter().all(|node| node.got.is_empty() && node.all.is_empty()));
    }
}
