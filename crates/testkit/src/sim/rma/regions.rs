//! What nodes have registered: real bytes, with keys, rights and scopes.

use std::collections::BTreeMap;

use cci_proto::{RemoteAddress, RmaRefusal};

use crate::contents;
use crate::rng::mix;

/// Peers may read.
pub(in crate::sim) const READ: u8 = 1;
/// Peers may write.
pub(in crate::sim) const WRITE: u8 = 2;
/// Peers may do atomics.
pub(in crate::sim) const ATOMIC: u8 = 4;

/// One region.
#[derive(Debug)]
pub struct Region {
    /// Where it is.
    pub node: usize,
    /// The side that registered it; `None`: the node, for everybody.
    pub owner: Option<usize>,
    /// Only the owner's own connection may use it.
    pub scoped: bool,
    /// What only those know who were told.
    pub key: u64,
    /// What peers may do.
    pub rights: u8,
    /// What it holds.
    pub bytes: Vec<u8>,
    /// When it was deregistered, or its node went down.
    pub gone_ns: Option<u64>,
    /// What the owner wrote all over it, and when. Only the first, and that of no use, where peers write.
    pub versions: Vec<(u64, u64)>,
    /// Operations, by side and number, that may still touch it.
    pub users: Vec<(usize, u32)>,
}

/// Every region there ever was. Numbers are never used again, not even on another node.
#[derive(Debug, Default)]
pub struct Regions {
    by_id: BTreeMap<u64, Region>,
}

impl Regions {
    /// Registers; gives the region's number.
    pub(in crate::sim) fn add(
        &mut self,
        node: usize,
        owner: Option<usize>,
        scoped: bool,
        rights: u8,
        len_bytes: u64,
    ) -> u64 {
        let id = self.by_id.len() as u64 + 1;
        let base = mix(id);
        let mut bytes = vec![0; len_bytes as usize];
        contents::fill_pattern(base, 0, &mut bytes);
        let key = mix(base ^ 0x6b65_7900);
        let versions = vec![(0, base)];
        let region =
            Region { node, owner, scoped, key, rights, bytes, gone_ns: None, versions, users: Vec::new() };
        self.by_id.insert(id, region);
        id
    }

    /// Region `id`, gone or not.
    pub fn get(&self, id: u64) -> Option<&Region> {
        self.by_id.get(&id)
    }

    pub(in crate::sim) fn get_mut(&mut self, id: u64) -> Option<&mut Region> {
        self.by_id.get_mut(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Region)> {
        self.by_id.iter().map(|(id, region)| (*id, region))
    }

    /// An address in a region, with its key.
    pub(in crate::sim) fn address(&self, id: u64, offset: u64) -> RemoteAddress {
        RemoteAddress { region: id, key: self.by_id.get(&id).map_or(0, |region| region.key), offset }
    }

    /// The owner writes all over its region.
    pub(in crate::sim) fn change(&mut self, now_ns: u64, id: u64) {
        if let Some(region) = self.by_id.get_mut(&id).filter(|region| region.gone_ns.is_none()) {
            let base = mix(id ^ (region.versions.len() as u64) << 32);
            contents::fill_pattern(base, 0, &mut region.bytes);
            region.versions.push((now_ns, base));
        }
    }

    /// True if it was there, and somebody used it.
    pub(in crate::sim) fn deregister(&mut self, now_ns: u64, id: u64) -> bool {
        let Some(region) = self.by_id.get_mut(&id).filter(|region| region.gone_ns.is_none()) else {
            return false;
        };
        region.gone_ns = Some(now_ns);
        !region.users.is_empty()
    }

    pub(in crate::sim) fn crash(&mut self, now_ns: u64, node: usize) {
        for region in self.by_id.values_mut().filter(|region| region.node == node) {
            region.gone_ns.get_or_insert(now_ns);
        }
    }

    /// What the owner of memory has to check: number, key, range and right. The scope is the caller's.
    pub(in crate::sim) fn reach(
        &self,
        node: usize,
        at: RemoteAddress,
        len_bytes: u64,
        right: u8,
    ) -> Result<&Region, RmaRefusal> {
        let region = self.by_id.get(&at.region).ok_or(RmaRefusal::Handle)?;
        let end = at.offset.checked_add(len_bytes).ok_or(RmaRefusal::Handle)?;
        let right = region.node == node
            && region.key == at.key
            && region.gone_ns.is_none()
            && region.rights & right == right
            && end <= region.bytes.len() as u64;
        if right { Ok(region) } else { Err(RmaRefusal::Handle) }
    }

    /// Whether `bytes` are what the owner had there at `at` at some moment from `since_ns` to `now_ns`, each byte on its
    /// own.
    pub(in crate::sim) fn held(
        &self,
        at: RemoteAddress,
        bytes: &[u8],
        since_ns: u64,
        now_ns: u64,
    ) -> Result<(), String> {
        let region = self.by_id.get(&at.region).ok_or("no such region")?;
        let versions = &region.versions;
        let first = versions.iter().rposition(|(from_ns, _)| *from_ns <= since_ns).unwrap_or(0);
        let may: Vec<u64> = versions[first..]
            .iter()
            .filter(|(from_ns, _)| *from_ns <= now_ns)
            .map(|(_, base)| *base)
            .collect();
        if may.iter().any(|base| contents::is_pattern(*base, at.offset, bytes).is_ok()) {
            return Ok(());
        }
        for (i, byte) in bytes.chunks(1).enumerate() {
            let address = at.offset + i as u64;
            if !may.iter().any(|base| contents::is_pattern(*base, address, byte).is_ok()) {
                return Err(format!("byte {address} never was {:#x}", byte[0]));
            }
        }
        Ok(())
    }
}
