//! The target's side of direct access: who may use which region, and how that is taken back.
//!
//! An endpoint has a *control page*, which peers can map and not write. It has a *live word* for each region that was granted to
//! somebody. While the word holds the grant's token, the grant holds. A peer that copies announces that in its ring before it
//! reads the word. So after the target has cleared the word and made a fence, it must wait only for those peers whose rings still
//! name the word (the protocol is in `cci_memory::ring`, "Direct access", with a model).
//!
//! The target does not wait for a peer that was stopped in the middle of a copy, by a debugger or a signal. It replaces the
//! memory's pages instead, so that the peer continues to write to pages that nobody uses. Since no mapping of the old pages may be
//! used any more, all grants of that memory end, whichever endpoint of this process has made them.
//!
//! A live word is also cleared where the pages stay: a peer of the region has left, and the others must ask again. The first word
//! of the control page counts replacements of pages. So a peer whose word was cleared during an atomic operation knows whether
//! the operation has changed the region, and must not be repeated, or may be lost.

use super::lent::Lent;
use super::patience::Patience;
use crate::engine::regions::Region;
use crate::rma::{Access, Grantable, LiveWord, Memory, REPLACED_WORD};
use crate::transport::shm::link::Link;
use crate::transport::shm::out::Control;
use crate::transport::shm::peer::Peer;
use crate::transport::shm::rma::grant::{Content, Grant, NotMapped};
use crate::transport::shm::table::Table;
use crate::transport::shm::wire::{NOBODY, PeerConn, kind};
use cci_memory::atomic::{Ordering, fence};
use cci_memory::ring::{Corrupt, RecordHeader};
use cci_memory::slab::Key;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::{clock, process, random, thread};
use std::collections::HashMap;
use std::sync::Arc;

/// How often the target checks whether a peer for which it waits is alive.
const LOOK_NS: u64 = 500_000;
/// How long peers that are in a copy have to end it before pages are replaced.
const OTHERS_NS: u64 = 5_000_000;

/// Words in a control page. The first one is [`REPLACED_WORD`].
const WORDS: u32 = 2048;
/// The most regions that may be granted at a time.
pub(in crate::transport::shm) const GRANTED_MAX: usize = WORDS as usize - 1;
const CONTROL_BYTES: usize = WORDS as usize * 8;

/// A region that some peers may use directly.
pub(super) struct Granted {
    word: u32,
    token: u64,
    links: Vec<Key>,
    /// The region's memory, which is kept until the grant is taken back.
    memory: Memory,
    /// Whether a peer was in the middle of a copy when its link ended or it was barred. Nobody will see that copy end.
    is_lost: bool,
}

/// What an endpoint has granted to its peers.
pub(in crate::transport::shm) struct Target {
    control: Option<Arc<SharedMemory>>,
    free: Vec<u32>,
    next: u32,
    token: u64,
    granted: HashMap<u64, Granted>,
    /// The memories that peers map.
    lent: Lent,
    patience: Patience,
    pub waited: u64,
    pub detached: u64,
    pub detach_failed: u64,
}

impl Target {
    pub fn new() -> Target {
        Target {
            control: None,
            free: Vec::new(),
            next: 1,
            token: 0,
            granted: HashMap::new(),
            lent: Lent::default(),
            patience: Patience::default(),
            waited: 0,
            detached: 0,
            detach_failed: 0,
        }
    }

    pub fn bytes(&self) -> u64 {
        let control = self.control.as_ref().map_or(0, |control| control.len());
        (control
            + self.patience.bytes()
            + self.lent.bytes()
            + self.granted.capacity() * size_of::<(u64, Granted)>()) as u64
    }

    /// Whether it is time to check which memories that peers map have ended.
    #[inline]
    pub fn is_look_due(&self, now_ns: u64) -> bool {
        self.lent.is_look_due(now_ns)
    }

    /// How many processes are barred.
    pub fn barred(&self) -> usize {
        self.patience.barred()
    }

    pub fn regions(&self) -> usize {
        self.granted.len()
    }

    /// The control page, created when it is first needed.
    fn control(&mut self) -> Result<Arc<SharedMemory>, NotMapped> {
        if let Some(control) = &self.control {
            return Ok(Arc::clone(control));
        }
        let control = Arc::new(SharedMemory::create_read_only_for_others(CONTROL_BYTES)?);
        self.token = random::u64()?;
        LiveWord { control: Arc::clone(&control), word: REPLACED_WORD }.set(1);
        self.control = Some(Arc::clone(&control));
        Ok(control)
    }

    /// A live word that is not in use.
    fn take_word(&mut self) -> Option<u32> {
        self.free.pop().or_else(|| {
            let word = self.next;
            (word < WORDS).then(|| {
                self.next += 1;
                word
            })
        })
    }

    /// Grants the peer of a link direct use of a region, and sends it the grant with the descriptors.
    pub fn grant(
        &mut self,
        link: &mut Link,
        region_id: u64,
        region: &Region,
        only: Option<(u32, u32)>,
        wants_control: bool,
    ) -> Result<(), NotMapped> {
        let memory = region.memory.grantable().ok_or(NotMapped::Foreign)?;
        if !may_use(&link.peer, region, memory) {
            return Err(NotMapped::OtherUser);
        }
        let fd = memory.fd().ok_or(NotMapped::System)?;
        let (live, token) = self.live_word(region_id, region)?;
        let page = live.control.fd().ok_or(NotMapped::System)?;
        let fds = [fd, page];
        let fds = if wants_control { &fds[..] } else { &fds[..1] };
        // The memory's number is read while its pages can't change.
        let send = || {
            let grant = grant_of(region_id, region, memory, only, (&live, token));
            link.lifeline.send(&grant.to_bytes(), fds).map(|()| grant.memory)
        };
        let id = memory.grant(&live, token, send).map_err(|_| NotMapped::NoSpace)?;
        self.granted_to(region_id, link.key);
        self.lent.add(id, &region.memory, link.key);
        Ok(())
    }

    /// Grants the peer of a link direct use of a region that is only for `to`, a connection of the peer, by a record alone, if
    /// the peer maps its memory already. Otherwise nothing is done, since the peer can ask. Returns whether it was granted.
    pub fn announce(
        &mut self,
        link: &mut Link,
        region_id: u64,
        region: &Region,
        to: PeerConn,
    ) -> Result<bool, Corrupt> {
        let Some(memory) = region.memory.grantable() else { return Ok(false) };
        let id = memory.id();
        if !self.lent.has(id, link.key)
            || self.is_barred(&link.peer)
            || !may_use(&link.peer, region, memory)
            || !link.has_space_for_grant()?
        {
            return Ok(false);
        }
        let Ok((live, token)) = self.live_word(region_id, region) else { return Ok(false) };
        let header =
            RecordHeader { kind: kind::GRANT, flags: to.generation as u8, conn: to.index, ack: link.ack() };
        let send = || {
            let grant = grant_of(region_id, region, memory, None, (&live, token));
            // The memory may just have got other pages, which the peer does not map.
            if grant.memory != id { Ok(false) } else { link.push_record(header, &grant.to_record()) }
        };
        let is_granted = memory.grant(&live, token, send)?;
        if is_granted {
            self.granted_to(region_id, link.key);
        }
        Ok(is_granted)
    }

    /// The live word of a region, and the token that it must hold. The word is taken when the region is first granted.
    fn live_word(&mut self, region_id: u64, region: &Region) -> Result<(LiveWord, u64), NotMapped> {
        let control = self.control()?;
        if !self.granted.contains_key(&region_id) {
            let word = self.take_word().ok_or(NotMapped::NoSpace)?;
            self.granted.insert(
                region_id,
                Granted { word, token: 0, links: Vec::new(), memory: region.memory.clone(), is_lost: false },
            );
        }
        let granted = self.granted.get_mut(&region_id).ok_or(NotMapped::NoSpace)?;
        let live = LiveWord { control, word: granted.word };
        if granted.token == 0 || live.get() != granted.token {
            // The word is new, or was cleared. Peers that were granted the region before may have pages that were replaced, or a
            // link that has ended. Their token must not become valid again.
            self.token = self.token.wrapping_add(1).max(1);
            granted.token = self.token;
        }
        Ok((live, granted.token))
    }

    fn granted_to(&mut self, region_id: u64, link: Key) {
        if let Some(granted) = self.granted.get_mut(&region_id)
            && !granted.links.contains(&link)
        {
            granted.links.push(link);
        }
    }

    /// Takes back all grants of a region that has ended. When this returns, no peer writes to the region. Returns the links whose
    /// peers must be woken, since they get a record about it.
    pub fn removed(&mut self, links: &mut Table, region_id: u64) -> Vec<Key> {
        let Some(granted) = self.granted.remove(&region_id) else { return Vec::new() };
        let (Some(control), Some(memory)) = (self.control.clone(), granted.memory.grantable()) else {
            return Vec::new();
        };
        let live = LiveWord { control, word: granted.word };
        live.clear();
        let stuck = self.wait(links, &granted);
        for key in &stuck {
            if let Some(peer) = links.get(*key).map(|link| link.peer) {
                self.bar(links, &peer);
            }
        }
        if granted.is_lost || !stuck.is_empty() {
            self.detach(links, memory);
        }
        // The word can be used again at once, since a peer that was barred knows another token.
        self.free.push(granted.word);
        memory.remove_word(&live);
        for &key in &granted.links {
            let Some(link) = links.get_mut(key) else { continue };
            // If its ring is corrupt, the next poll finds that.
            let _ = link.send_control(Control::words(kind::UNMAP, NOBODY, [region_id, 0, 0]));
        }
        granted.links
    }

    /// Informs peers of memories that they still map, although those have ended or have other pages now. Returns the peers'
    /// links, since the peers must be woken.
    pub fn report_ended(&mut self, links: &mut Table, now_ns: u64) -> Vec<Key> {
        let mut affected = Vec::new();
        for (id, of_memory) in self.lent.take_ended(now_ns) {
            for key in of_memory {
                let Some(link) = links.get_mut(key) else { continue };
                let _ = link.send_control(Control::words(kind::FREED, NOBODY, [id, 0, 0]));
                affected.push(key);
            }
        }
        affected
    }

    /// Waits while peers are in the middle of a copy. Returns the links of those that did not end it in time.
    fn wait(&mut self, links: &Table, granted: &Granted) -> Vec<Key> {
        let (mut has_waited, mut stuck) = (false, Vec::new());
        for (key, link) in granted.links.iter().filter_map(|key| Some((*key, links.get(*key)?))) {
            let is_copying = || link.consumer.direct_now() == u64::from(granted.word);
            if !is_copying() {
                continue;
            }
            let start_ns = clock::now_ns();
            let until_ns = start_ns.saturating_add(self.patience.remaining_ns(&link.peer, start_ns));
            let (mut now_ns, mut looked_ns) = (start_ns, start_ns);
            while is_copying() {
                if now_ns >= until_ns {
                    stuck.push(key);
                    break;
                }
                if now_ns - looked_ns >= LOOK_NS {
                    looked_ns = now_ns;
                    if link.lifeline.hung_up() {
                        break;
                    }
                }
                thread::yield_now();
                now_ns = clock::now_ns();
            }
            self.patience.waited(&link.peer, start_ns, now_ns);
            has_waited |= until_ns > start_ns;
        }
        self.waited += u64::from(has_waited);
        stuck
    }

    /// Bars a process that has kept the target waiting: it gets no mapping from now on. All grants to its links end, and the
    /// target does not wait for them any more. Other peers that were granted the same regions must ask again.
    fn bar(&mut self, links: &Table, peer: &Peer) {
        self.patience.bar(peer, clock::now_ns());
        self.end_grants(links, |link| (link.peer.uid, link.peer.pid) == (peer.uid, peer.pid));
    }

    /// Whether the process at the other end of a link is barred.
    pub fn is_barred(&self, peer: &Peer) -> bool {
        self.patience.is_barred(peer)
    }

    /// Ends all grants to links whose peers live on, although nobody will see their copies end. Returns whether one of them is in
    /// the middle of a copy.
    fn end_grants(&mut self, links: &Table, ends: impl Fn(&Link) -> bool) -> bool {
        let Some(control) = &self.control else { return false };
        let ends = |key: &Key| links.get(*key).filter(|link| ends(link));
        let mut is_copying = false;
        for granted in self.granted.values_mut() {
            if !granted.links.iter().any(|key| ends(key).is_some()) {
                continue;
            }
            LiveWord { control: Arc::clone(control), word: granted.word }.clear();
            granted.links.retain(|key| {
                let link = ends(key);
                if link.is_some_and(|link| link.consumer.direct_now() == u64::from(granted.word)) {
                    (granted.is_lost, is_copying) = (true, true);
                }
                link.is_none()
            });
        }
        is_copying
    }

    /// Replaces a memory's pages.
    fn detach(&mut self, links: &Table, memory: &Grantable) {
        memory.clear_words();
        fence(Ordering::SeqCst);
        let until_ns = clock::now_ns() + OTHERS_NS;
        // Other peers may be in a copy. They get time to end it, so that nothing that they write is lost.
        let is_waited_for = |link: &Link| !self.patience.is_barred(&link.peer);
        let in_a_copy =
            || links.iter().any(|(_, link)| link.consumer.direct_now() != 0 && is_waited_for(link));
        while in_a_copy() && clock::now_ns() < until_ns {
            thread::yield_now();
        }
        match memory.detach() {
            Ok(()) => self.detached += 1,
            Err(_) => self.detach_failed += 1,
        }
    }

    /// Ends all grants to the peer of a link that has ended. A peer that lives, and is in the middle of a copy, is barred.
    /// Otherwise each of its regions would cost new pages.
    pub fn link_ended(&mut self, links: &Table, key: Key) {
        self.lent.link_ended(key);
        let Some(link) = links.get(key) else { return };
        if link.lifeline.hung_up() {
            for granted in self.granted.values_mut() {
                granted.links.retain(|granted_to| *granted_to != key);
            }
        } else if self.end_grants(links, |ended| ended.key == key) {
            self.bar(links, &link.peer);
        }
    }

    /// Takes back all grants, since the endpoint is being closed.
    pub fn end(&mut self, links: &mut Table) {
        let ids: Vec<u64> = self.granted.keys().copied().collect();
        for id in ids {
            self.removed(links, id);
        }
    }
}

/// A grant of a region with its live word.
fn grant_of(
    region_id: u64,
    region: &Region,
    memory: &Grantable,
    only: Option<(u32, u32)>,
    (live, token): (&LiveWord, u64),
) -> Grant {
    Grant {
        region: region_id,
        key: region.key,
        only,
        access: region.access.bits(),
        memory: memory.id(),
        content: if memory.as_file().is_some() { Content::File } else { Content::Memory },
        memory_bytes: memory.len_bytes(),
        start: region.start as u64,
        len_bytes: region.len_bytes as u64,
        word: u64::from(live.word),
        token,
        control_bytes: live.control.len() as u64,
    }
}

/// Whether the peer may have the descriptor of what a region is in. A process of our own user or of root could write to all of a memory
/// anyway (ptrace), and take our files. Another process gets no more than the region covers, and no file.
fn may_use(peer: &Peer, region: &Region, memory: &Grantable) -> bool {
    if peer.uid == process::uid() || peer.uid == 0 {
        return true;
    }
    let Some(segment) = memory.as_segment() else { return false };
    let covers = region.start == 0 && region.len_bytes == segment.len();
    // If a hole in huge pages is touched when there are no more huge pages, the process gets a SIGBUS.
    covers
        && region.only.is_none()
        && region.access.contains(Access::READ | Access::WRITE)
        && !segment.is_huge()
}
