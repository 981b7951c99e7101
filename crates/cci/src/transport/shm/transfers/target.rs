//! The target's side of direct access: who may use which region, and how that is taken back.
//!
//! An endpoint has a *control page*, which peers can map and not write, with a *live word* for each region that somebody
//! was granted. While the word holds the grant's token, the grant stands. A peer that copies announces it in its ring before it
//! looks at the word; so when the target has cleared the word and fenced, it needs only wait for those whose rings still
//! name it (the protocol is in `cci_memory::ring`, "Direct access", with a model).
//!
//! A peer that was stopped in the middle of a copy, by a debugger or a signal, is not waited for: the memory's pages are
//! replaced, so that it goes on writing to pages that are nobody's. Everybody else's mappings of the old pages must
//! not be used any more then, so all grants of that memory end, at whatever endpoint of this process they were made.

use super::patience::Patience;
use crate::engine::regions::Region;
use crate::rma::{Access, Charged, LiveWord, Memory};
use crate::transport::shm::link::Link;
use crate::transport::shm::out::Control;
use crate::transport::shm::peer::Peer;
use crate::transport::shm::rma::grant::{Grant, NotMapped};
use crate::transport::shm::table::Table;
use crate::transport::shm::wire::{PeerConn, kind};
use cci_memory::atomic::{Ordering, fence};
use cci_memory::slab::Key;
use cci_sys::shared_memory::SharedMemory;
use cci_sys::{clock, process, random};
use std::collections::HashMap;
use std::sync::Arc;

/// How often a peer that is waited for is asked whether it is there.
const LOOK_NS: u64 = 500_000;
/// What the peers of other endpoints of this process get for their copies when pages are replaced.
const OTHERS_NS: u64 = 5_000_000;

/// Regions that may be granted at a time, less the first word, which names none.
const WORDS: u32 = 2048;
/// Regions that may be granted at a time.
pub(in crate::transport::shm) const GRANTED_MAX: usize = WORDS as usize - 1;
const CONTROL_BYTES: usize = WORDS as usize * 8;

/// A region that some peers may use directly.
pub(super) struct Granted {
    word: u32,
    token: u64,
    links: Vec<Key>,
    /// Must be taken back before it goes.
    memory: Memory,
    /// A peer that nobody looks at any more was in the middle of a copy of it.
    is_lost: bool,
}

/// What an endpoint has granted to its peers.
pub(in crate::transport::shm) struct Target {
    control: Option<Arc<SharedMemory>>,
    free: Vec<u32>,
    next: u32,
    token: u64,
    granted: HashMap<u64, Granted>,
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
            patience: Patience::default(),
            waited: 0,
            detached: 0,
            detach_failed: 0,
        }
    }

    pub fn bytes(&self) -> u64 {
        let control = self.control.as_ref().map_or(0, |control| control.len());
        (control + self.patience.bytes() + self.granted.capacity() * size_of::<(u64, Granted)>()) as u64
    }

    /// Processes that have nothing mapped any more.
    pub fn barred(&self) -> usize {
        self.patience.barred()
    }

    pub fn regions(&self) -> usize {
        self.granted.len()
    }

    /// The control page, made when it is first wanted.
    fn control(&mut self) -> Result<Arc<SharedMemory>, NotMapped> {
        if let Some(control) = &self.control {
            return Ok(Arc::clone(control));
        }
        let control = Arc::new(SharedMemory::create_read_only_for_others(CONTROL_BYTES)?);
        self.token = random::u64()?;
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

    /// Lets the peer of a link use a region directly: makes the grant, and sends it with the descriptors.
    pub fn grant(
        &mut self,
        link: &mut Link,
        region_id: u64,
        region: &Region,
        only: Option<(u32, u32)>,
        wants_control: bool,
    ) -> Result<(), NotMapped> {
        let memory = region.memory.charged().ok_or(NotMapped::Foreign)?;
        let segment = memory.segment.shared();
        if !may_map(&link.peer, region, segment) {
            return Err(NotMapped::OtherUser);
        }
        let fd = segment.fd().ok_or(NotMapped::System)?;
        let control = self.control()?;
        if !self.granted.contains_key(&region_id) {
            let word = self.take_word().ok_or(NotMapped::NoSpace)?;
            self.granted.insert(
                region_id,
                Granted { word, token: 0, links: Vec::new(), memory: region.memory.clone(), is_lost: false },
            );
        }
        let granted = self.granted.get_mut(&region_id).ok_or(NotMapped::NoSpace)?;
        let live = LiveWord { control: Arc::clone(&control), word: granted.word };
        if granted.token == 0 || live.get() != granted.token {
            // New, or cleared since. Whoever was granted it before may have pages that were replaced, or a link that nobody
            // looks at any more: for those the new token is of no use.
            self.token = self.token.wrapping_add(1).max(1);
            granted.token = self.token;
        }
        let grant = || Grant {
            region: region_id,
            key: region.key,
            only,
            access: region.access.bits(),
            memory: memory.id(),
            memory_bytes: segment.len() as u64,
            start: region.start as u64,
            len_bytes: region.bytes.len() as u64,
            word: u64::from(granted.word),
            token: granted.token,
            control_bytes: control.len() as u64,
        };
        let page = control.fd().ok_or(NotMapped::System)?;
        let fds = [fd, page];
        let fds = if wants_control { &fds[..] } else { &fds[..1] };
        let send = || link.lifeline.send(&grant().to_bytes(), fds);
        memory.grant(&live, granted.token, send).map_err(|_| NotMapped::NoSpace)?;
        if !granted.links.contains(&link.key) {
            granted.links.push(link.key);
        }
        Ok(())
    }

    /// A region is no more: takes back what was granted of it. When this returns, no peer writes to it.
    /// Answers the links whose peers get a record about it, to be woken.
    pub fn removed(&mut self, links: &mut Table, region_id: u64) -> Vec<Key> {
        let Some(granted) = self.granted.remove(&region_id) else { return Vec::new() };
        let (Some(control), Some(memory)) = (self.control.clone(), granted.memory.charged()) else {
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
        // Nobody looks at the words of those who were caught, and what they know is another token.
        self.free.push(granted.word);
        memory.remove_word(&live);
        let is_last = u64::from(!memory.has_words());
        for &key in &granted.links {
            let Some(link) = links.get_mut(key) else { continue };
            // So that the peer lets go of it; what is wrong with its ring, the next poll finds.
            let words = [region_id, memory.id(), is_last];
            let _ =
                link.send_control(Control::words(kind::UNMAP, PeerConn { index: 0, generation: 0 }, words));
        }
        granted.links
    }

    /// Waits while peers are in the middle of a copy. Answers the links of those that do not end it.
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
                std::thread::yield_now();
                now_ns = clock::now_ns();
            }
            self.patience.waited(&link.peer, start_ns, now_ns);
            has_waited |= until_ns > start_ns;
        }
        self.waited += u64::from(has_waited);
        stuck
    }

    /// A process keeps us waiting: it has nothing mapped from now on. What its links were granted ends, and they are waited for
    /// no more. The others who were granted the same ask again.
    fn bar(&mut self, links: &Table, peer: &Peer) {
        self.patience.bar(peer, clock::now_ns());
        self.end_grants(links, |link| (link.peer.uid, link.peer.pid) == (peer.uid, peer.pid));
    }

    /// Whether the process at the other end of a link was caught.
    pub fn is_barred(&self, peer: &Peer) -> bool {
        self.patience.is_barred(peer)
    }

    /// Ends what some links were granted, with peers that live on: nobody looks any more whether they copy. Answers whether one
    /// of them is in the middle of a copy.
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
    fn detach(&mut self, links: &Table, memory: &Charged) {
        memory.clear_words();
        fence(Ordering::SeqCst);
        let until_ns = clock::now_ns() + OTHERS_NS;
        // Whoever else is in a copy ends it, so that nothing it wrote is lost; who is stopped does not.
        let is_waited_for = |link: &Link| !self.patience.is_barred(&link.peer);
        let in_a_copy =
            || links.iter().any(|(_, link)| link.consumer.direct_now() != 0 && is_waited_for(link));
        while in_a_copy() && clock::now_ns() < until_ns {
            std::thread::yield_now();
        }
        match memory.detach() {
            Ok(()) => self.detached += 1,
            Err(_) => self.detach_failed += 1,
        }
    }

    /// A link is given up. If its peer lives, what it was granted ends here. A peer that is in the middle of a copy then is
    /// waited for no more than one that is caught: the next region would cost new pages again.
    pub fn link_ended(&mut self, links: &Table, key: Key) {
        let Some(link) = links.get(key) else { return };
        if link.lifeline.hung_up() {
            for granted in self.granted.values_mut() {
                granted.links.retain(|granted_to| *granted_to != key);
            }
        } else if self.end_grants(links, |ended| ended.key == key) {
            self.bar(links, &link.peer);
        }
    }

    /// The endpoint goes: what is granted is taken back.
    pub fn end(&mut self, links: &mut Table) {
        let ids: Vec<u64> = self.granted.keys().copied().collect();
        for id in ids {
            self.removed(links, id);
        }
    }
}

/// Whether the peer may map all of a memory for the sake of a region in it. One of our own user, or root, could write to
/// it anyway (ptrace); another gets no more than the region covers.
fn may_map(peer: &Peer, region: &Region, segment: &SharedMemory) -> bool {
    if peer.uid == process::uid() || peer.uid == 0 {
        return true;
    }
    let covers = region.start == 0 && region.bytes.len() == segment.len();
    // A hole punched in huge pages is a SIGBUS for whoever touches it when there are no more of them.
    covers
        && region.only.is_none()
        && region.access.contains(Access::READ | Access::WRITE)
        && !segment.is_huge()
}
