//! Properties of everything that ranks, launchers and hosts say to each other.

use crate::ended::EndedPlace;
use crate::relayed::{FromHost, News, ToHost};
use crate::status::RankStatus;
use crate::wire::{FromLauncher, FromRank, VERSION};
use proptest::collection::vec;
use proptest::prelude::*;
use std::num::NonZeroU8;

fn values() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..64)
}

fn texts() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..16).prop_map(|chars| chars.into_iter().collect())
}

fn from_ranks() -> impl Strategy<Value = FromRank> {
    prop_oneof![
        (any::<[u8; 32]>(), any::<u32>()).prop_map(|(key, rank)| FromRank::Hello {
            version: VERSION.into(),
            key,
            rank
        }),
        values().prop_map(|value| FromRank::Exchange { value }),
        (texts(), values()).prop_map(|(key, value)| FromRank::Put { key, value }),
        (any::<u32>(), texts()).prop_map(|(rank, key)| FromRank::Get { rank, key }),
        (1..=u8::MAX, texts())
            .prop_map(|(code, reason)| FromRank::Abort { code: NonZeroU8::new(code).unwrap(), reason }),
        Just(FromRank::Survive),
        any::<u32>().prop_map(|rank| FromRank::Status { rank }),
    ]
}

fn statuses() -> impl Strategy<Value = RankStatus> {
    prop_oneof![
        Just(RankStatus::Running),
        Just(RankStatus::Left),
        Just(RankStatus::Lost),
        any::<u8>().prop_map(RankStatus::Exited),
        any::<u8>().prop_map(RankStatus::Killed),
    ]
}

fn places() -> impl Strategy<Value = EndedPlace> {
    (vec(any::<u8>(), 0..9), any::<u64>()).prop_map(|(place, nonce)| EndedPlace { place, nonce })
}

fn from_launchers() -> impl Strategy<Value = FromLauncher> {
    prop_oneof![
        (any::<u32>(), proptest::option::of(places()))
            .prop_map(|(size, ended)| FromLauncher::Welcome { size, ended }),
        vec(values(), 0..9).prop_map(|values| FromLauncher::Exchanged { values }),
        Just(FromLauncher::Done),
        proptest::option::of(values()).prop_map(|value| FromLauncher::Value { value }),
        texts().prop_map(|reason| FromLauncher::Failed { reason }),
        any::<u32>().prop_map(|rank| FromLauncher::Gone { rank }),
        statuses().prop_map(|status| FromLauncher::Status { status }),
    ]
}

fn from_hosts() -> impl Strategy<Value = FromHost> {
    let news = prop_oneof![Just(News::Joined), from_ranks().prop_map(News::Asks), Just(News::Left)];
    (any::<u32>(), news).prop_map(|(rank, what)| FromHost { rank, what })
}

fn to_hosts() -> impl Strategy<Value = ToHost> {
    prop_oneof![
        (any::<Option<u32>>(), from_launchers()).prop_map(|(rank, answer)| ToHost::Answer { rank, answer }),
        any::<(u32, bool)>().prop_map(|(rank, has_died)| ToHost::Ended { rank, has_died }),
    ]
}

/// What can be read is written in one way only: so nobody reads more, less or something else than what was said.
fn one_meaning(bytes: &[u8]) -> Result<(), TestCaseError> {
    match FromRank::decode(bytes) {
        // What follows another version is not read.
        Some(FromRank::Hello { version, .. }) if version != VERSION => {}
        Some(said) => prop_assert_eq!(&said.encode()[4..], bytes),
        None => {}
    }
    if let Some(said) = FromLauncher::decode(bytes) {
        prop_assert_eq!(&said.encode()[4..], bytes);
    }
    if let Some(said) = ToHost::decode(bytes) {
        prop_assert_eq!(&said.encode()[..], bytes);
    }
    match FromHost::decode(bytes) {
        Some(FromHost { what: News::Asks(FromRank::Hello { version, .. }), .. }) if version != VERSION => {}
        Some(said) => prop_assert_eq!(&said.encode()[..], bytes),
        None => {}
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_was_said_is_read(
        from_rank in from_ranks(),
        from_launcher in from_launchers(),
        from_host in from_hosts(),
        to_host in to_hosts(),
    ) {
        prop_assert_eq!(FromRank::decode(&from_rank.encode()[4..]), Some(from_rank));
        prop_assert_eq!(FromLauncher::decode(&from_launcher.encode()[4..]), Some(from_launcher));
        prop_assert_eq!(FromHost::decode(&from_host.encode()), Some(from_host));
        prop_assert_eq!(ToHost::decode(&to_host.encode()), Some(to_host));
    }

    #[test]
    fn any_bytes_have_one_meaning_at_most(kind in 0..8_u8, rest in vec(any::<u8>(), 0..48)) {
        one_meaning(&[&[kind], &rest[..]].concat())?;
    }

    #[test]
    fn damaged_frames_have_one_meaning_at_most(
        from_host in from_hosts(),
        to_host in to_hosts(),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        for mut bytes in [from_host.encode(), to_host.encode()] {
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            one_meaning(&bytes)?;
            one_meaning(&bytes[at..])?;
        }
    }
}
