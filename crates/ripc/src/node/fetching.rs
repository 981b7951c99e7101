//! Long messages that are being fetched: each long item into a window, or into the library's own memory. Then the message is
//! complete.

use super::base::Base;
use super::lending::register;
use super::services::{Window, WindowInUse};
use super::whole::Whole;
use crate::buffers::Buffers;
use crate::content::{LongItem, Part};
use crate::handles::Partner;
use crate::limits::{PARTNERS_MAX, PULLS_MAX};
use crate::wire;
use cci::{Access, Connection, Foreign, Memory, RegionHandle, Rma, RmaFlags, RmaKind, Segment, Status};
use slotmap::{Key, KeyData, SlotMap, new_key_type};
use std::collections::VecDeque;

new_key_type! { struct FetchKey; }

/// A long item on its way.
enum Item {
    /// The item will not come.
    Missing,
    /// The item was not asked for yet, or is under way.
    Coming {
        memory: Memory,
        start: usize,
        /// The program's window, or `None` for the library's own memory.
        window: Option<WindowInUse>,
        local: RegionHandle,
        remote: RegionHandle,
        len_bytes: u64,
    },
    /// The item has come.
    Here(LongItem),
}

struct Fetch {
    partner: Partner,
    connection: Connection,
    whole: Whole,
    items: Vec<Item>,
    /// The next item to ask for.
    next: usize,
    /// Items that have been asked for and have not come.
    under_way: usize,
}

/// All long messages that are being fetched.
pub struct Fetching {
    fetches: SlotMap<FetchKey, Fetch>,
    /// Those of `fetches` that may ask for more items.
    ready: VecDeque<FetchKey>,
    /// Messages of partners of which as many are being fetched as may.
    waiting: VecDeque<Whole>,
    own: Own,
}

/// The library's own memory, into which items are fetched.
struct Own {
    buffers: Buffers,
    /// Bytes that items on their way take.
    bytes: u64,
    bytes_max: u64,
}

impl Own {
    /// Takes a buffer, if enough is left.
    fn take(&mut self, len: usize) -> Option<Window> {
        let left = usize::try_from(self.bytes_max.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let buffer = if len > left { None } else { self.buffers.take(len, left) }?;
        self.bytes += buffer.len() as u64;
        Some(Window::Own(buffer))
    }

    /// Notes that a buffer belongs to the program now, or is not needed any more.
    fn end(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes as u64);
    }

    /// Takes back memory into which nothing was fetched.
    fn give_back(&mut self, memory: Memory) {
        self.end(memory.len());
        if let Some(bytes) = memory.into_owned() {
            drop(self.buffers.adopt(bytes));
        }
    }
}

impl Fetching {
    pub fn new(own_bytes_max: u64) -> Fetching {
        let own = Own { buffers: Buffers::default(), bytes: 0, bytes_max: own_bytes_max };
        let fetches = SlotMap::with_key();
        Fetching { fetches, ready: VecDeque::new(), waiting: VecDeque::new(), own }
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.waiting.is_empty()
    }

    /// Begins to fetch the long items of a message. Returns the message at once if that took no time.
    pub fn begin(&mut self, base: &mut Base, whole: Whole) -> Option<Whole> {
        let state = base.partners.get_mut(whole.partner)?;
        // One message at a time is fetched for a service that receives, however many others are.
        if state.fetching >= PULLS_MAX && whole.received_by.is_none() {
            if self.waiting.len() < PARTNERS_MAX {
                self.waiting.push_back(whole);
            }
            return None;
        }
        state.fetching += 1;
        let service = state.service;
        let (partner, connection) = (whole.partner, whole.connection);
        let mut items = Vec::with_capacity(usize::from(whole.head.long_items));
        for item in whole.head.long_items(&whole.frame) {
            items.push(match item {
                wire::LongItem::Here { offer, len_bytes } => {
                    match base.lending.filled(&mut base.endpoint, partner, offer, len_bytes) {
                        Some(item) => Item::Here(item),
                        None => Item::Missing,
                    }
                }
                wire::LongItem::There { handle, len_bytes } => {
                    let window = usize::try_from(len_bytes).ok().and_then(|len| {
                        base.services.take_window(service, len).or_else(|| self.own.take(len))
                    });
                    match window {
                        Some(window) => coming(base, window, handle, len_bytes, &mut self.own),
                        None => Item::Missing,
                    }
                }
            });
        }
        let fetch = Fetch { partner, connection, whole, items, next: 0, under_way: 0 };
        let key = self.fetches.insert(fetch);
        self.go_on(base, key)
    }

    /// Asks for the next items. Returns the message if it is complete.
    fn go_on(&mut self, base: &mut Base, key: FetchKey) -> Option<Whole> {
        let fetch = self.fetches.get_mut(key)?;
        while let Some(item) = fetch.items.get_mut(fetch.next) {
            if let Item::Coming { local, remote, len_bytes, .. } = *item {
                let (local, remote) =
                    ([Segment::new(local, 0, len_bytes)], [Segment::new(remote, 0, len_bytes)]);
                let (kind, flags) = (RmaKind::Read, RmaFlags::NONE);
                let context = key.data().as_ffi();
                let rma = Rma { kind, local: &local, remote: &remote, message: None, context, flags };
                match base.endpoint.rma_at_once(fetch.connection, &rma) {
                    Ok(Some(status)) => {
                        let ended = std::mem::replace(item, Item::Missing);
                        *item = arrived(base, ended, status, &mut self.own);
                        fetch.whole.is_lost |= is_loss(status);
                    }
                    Ok(None) => fetch.under_way += 1,
                    Err(cci::RmaError::WouldBlock) => {
                        self.ready.push_back(key);
                        return None;
                    }
                    Err(_) => {
                        let ended = std::mem::replace(item, Item::Missing);
                        *item = arrived(base, ended, Status::Disconnected, &mut self.own);
                        fetch.whole.is_lost = true;
                    }
                }
            }
            fetch.next += 1;
        }
        if fetch.under_way > 0 {
            return None;
        }
        let fetch = self.fetches.remove(key)?;
        if let Some(state) = base.partners.get_mut(fetch.partner) {
            state.fetching -= 1;
        }
        let mut whole = fetch.whole;
        whole.long_items = fetch
            .items
            .into_iter()
            .map(|item| if let Item::Here(item) = item { Some(item) } else { None })
            .collect();
        Some(whole)
    }

    /// Handles the end of a read. On one connection, reads end in the order in which they were started. Returns the message if it
    /// is complete.
    pub fn ended(&mut self, base: &mut Base, context: u64, status: Status) -> Option<Whole> {
        let key = FetchKey::from(KeyData::from_ffi(context));
        let fetch = self.fetches.get_mut(key)?;
        let is_coming = |item: &&mut Item| matches!(item, Item::Coming { .. });
        let item = fetch.items.iter_mut().take(fetch.next).find(is_coming)?;
        let ended = std::mem::replace(item, Item::Missing);
        *item = arrived(base, ended, status, &mut self.own);
        fetch.whole.is_lost |= is_loss(status);
        fetch.under_way -= 1;
        if self.ready.contains(&key) { None } else { self.go_on(base, key) }
    }

    /// Does what can be done now. Calls `deliver` with each complete message.
    pub fn progress(&mut self, base: &mut Base, mut deliver: impl FnMut(&mut Base, Whole)) {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else { break };
            if let Some(whole) = self.go_on(base, key) {
                deliver(base, whole);
            }
        }
        for _ in 0..self.waiting.len() {
            let Some(whole) = self.waiting.pop_front() else { break };
            if let Some(whole) = self.begin(base, whole) {
                deliver(base, whole);
            }
        }
    }

    /// Notes that the library's own bytes into which items were fetched belong to the program now.
    pub fn delivered(&mut self, whole: &Whole) {
        self.own.end(whole.long_items.iter().flatten().map(LongItem::own_bytes).sum());
    }
}

/// Prepares a window. If that fails, the item is missing.
fn coming(base: &mut Base, window: Window, remote: RegionHandle, len_bytes: u64, own: &mut Own) -> Item {
    let (memory, start, window) = match window {
        Window::Own(bytes) => (Memory::foreign(Foreign::owned(bytes)), 0, None),
        Window::Given(window, part) => (part.memory, part.range.start, Some(window)),
    };
    let part = Part::new(&memory, start..start + len_bytes as usize);
    let Ok(local) = register(&mut base.endpoint, &part, Access::LOCAL, None) else {
        match window {
            Some(window) => base.services.window_used(window, false),
            None => own.give_back(memory),
        }
        return Item::Missing;
    };
    Item::Coming { memory, start, window, local, remote, len_bytes }
}

/// Whether a read ended because its connection did.
fn is_loss(status: Status) -> bool {
    matches!(status, Status::Disconnected | Status::TimedOut | Status::ReceiverNotReady)
}

/// The state of an item after its read has ended.
fn arrived(base: &mut Base, item: Item, status: Status, own: &mut Own) -> Item {
    let Item::Coming { memory, start, window, local, len_bytes, .. } = item else { return item };
    let _registered_by_us = base.endpoint.deregister(&local);
    if let Some(window) = window {
        base.services.window_used(window, status == Status::Success);
    }
    if status != Status::Success {
        if window.is_none() {
            own.give_back(memory);
        }
        return Item::Missing;
    }
    let len = len_bytes as usize;
    if window.is_some() {
        return Item::Here(LongItem::memory(memory, start, len));
    }
    let own_bytes = memory.len();
    match memory.into_owned() {
        Some(bytes) => Item::Here(LongItem::own(own.buffers.adopt(bytes), len)),
        None => {
            own.end(own_bytes);
            Item::Missing
        }
    }
}
