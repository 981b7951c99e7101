//! Handles that come from peers, against a table of regions, and a list that says what should come of each.

use super::Script;
use crate::connection::Connection;
use crate::engine::regions::Regions;
use crate::rma::{Access, Memory, RegionHandle};
use cci_memory::bytes::Foreign;
use cci_proto::{Atomic, AtomicKind, AtomicWidth, RemoteAddress};
use std::ops::Range;

const BYTES: usize = 4096;
const LIVE_MAX: usize = 16;

struct Live {
    handle: RegionHandle,
    range: Range<usize>,
    access: Access,
    only: Option<Connection>,
}

fn connection(number: u8) -> Connection {
    Connection { index: u32::from(number % 3), generation: 1 }
}

fn access(bits: u8) -> Access {
    let all = [Access::READ, Access::WRITE, Access::ATOMIC];
    let chosen = all.into_iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0);
    chosen.fold(Access::LOCAL, |sum, (_, access)| sum | access)
}

/// Handles forged from real ones, from those of regions that are gone, and from nothing.
pub fn rma_handles(data: &[u8]) {
    let mut script = Script(data);
    let memory = Memory::foreign(Foreign::owned(vec![0x5a; BYTES].into_boxed_slice()));
    let mut regions = Regions::new();
    let (mut live, mut gone): (Vec<Live>, Vec<RegionHandle>) = (Vec::new(), Vec::new());
    while !script.is_empty() {
        match script.byte() % 8 {
            0 if live.len() < LIVE_MAX => {
                let start = usize::from(script.u16()) % BYTES;
                let end = (start + 1 + usize::from(script.u16())).min(BYTES);
                let (bits, who) = (script.byte(), script.byte());
                let only = (who & 0x80 != 0).then(|| connection(who));
                let made = regions.insert(&memory, start..end, access(bits), only).unwrap();
                live.push(Live { handle: made.unwrap(), range: start..end, access: access(bits), only });
            }
            1 if !live.is_empty() => {
                let old = live.swap_remove(usize::from(script.byte()) % live.len());
                assert!(regions.remove(&old.handle).is_some());
                gone.push(old.handle);
            }
            2 => {
                // Deregistering by a forged handle must not touch anybody's region.
                let forged = forge(&mut script, &live, &gone);
                let named = live.iter().position(|live| names(live, &forged));
                assert_eq!(regions.remove(&forged).is_some(), named.is_some());
                gone.extend(named.map(|at| live.swap_remove(at).handle));
            }
            _ => reach(&mut script, &mut regions, &live, &gone),
        }
        assert_eq!(regions.len() as usize, live.len());
    }
    let mut bytes = vec![0; BYTES];
    assert!(memory.read(0, &mut bytes));
}

fn names(live: &Live, handle: &RegionHandle) -> bool {
    (live.handle.region(), live.handle.key()) == (handle.region(), handle.key())
}

fn forge(script: &mut Script<'_>, live: &[Live], gone: &[RegionHandle]) -> RegionHandle {
    let how = script.byte();
    let pick = usize::from(script.byte());
    let known = match how % 4 {
        0 | 1 => live.get(pick % live.len().max(1)).map(|live| live.handle),
        2 => gone.get(pick % gone.len().max(1)).copied(),
        _ => None,
    };
    let mut bytes = known.map_or([0; RegionHandle::BYTES], RegionHandle::to_bytes);
    if how & 0x80 != 0 || known.is_none() {
        let mask = script.take(RegionHandle::BYTES);
        for (byte, mask) in bytes.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    RegionHandle::from_message(&bytes).unwrap()
}

fn reach(script: &mut Script<'_>, regions: &mut Regions, live: &[Live], gone: &[RegionHandle]) {
    let handle = forge(script, live, gone);
    assert_eq!(RegionHandle::from_bytes(handle.to_bytes()), handle);
    let _ = format!("{handle:?} {}", handle.len_bytes());
    let (offset, len, from) = (script.odd_u64(), script.odd_u64(), connection(script.byte()));
    let at = RemoteAddress { region: handle.region(), key: handle.key(), offset };
    let found = live.iter().find(|live| names(live, &handle));
    let may = |need: Access, len: u64| {
        found.filter(|live| {
            let end = offset.checked_add(len);
            live.access.contains(need)
                && live.only.is_none_or(|only| only == from)
                && end.is_some_and(|end| end <= live.range.len() as u64)
        })
    };
    let what = script.byte();
    if what & 1 == 0 {
        let need = access(what >> 1 & 3);
        let (was, expected) = (regions.refused, may(need, len));
        let got = regions.peer(from, at, len, need);
        assert_eq!(got.is_ok(), expected.is_some(), "{handle:?} {offset}+{len}");
        assert_eq!(regions.refused - was, u64::from(got.is_err()));
        if let Ok((bytes, offset)) = got {
            assert!(offset + len as usize <= bytes.len());
        }
        assert_eq!(
            regions.local(at, len).is_some(),
            found.is_some_and(|live| offset
                .checked_add(len)
                .is_some_and(|end| end <= live.range.len() as u64))
        );
    } else {
        let kind = AtomicKind::ALL[usize::from(what >> 1) % AtomicKind::ALL.len()];
        let width = if what & 0x80 == 0 { AtomicWidth::Four } else { AtomicWidth::Eight };
        let atomic = Atomic { kind, width, operand: script.odd_u64(), compare: script.odd_u64() };
        let done = regions.peer_atomic(from, at, atomic);
        if may(Access::ATOMIC, width.bytes() as u64).is_none() {
            assert!(done.is_err(), "{handle:?} {offset}");
        }
    }
}
