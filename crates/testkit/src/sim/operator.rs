//! The program on one side of a conversation that uses its peer's memory.

use cci_proto::{
    Atomic, AtomicKind, ConnKey, ConnState, Endpoint, RemoteAddress, RmaError, RmaKind, RmaSegment, Time,
};

use super::ledger::Ledger;
use super::rma::names::{fill_message, name_of};
use super::rma::operation::{Operation, RESULT_BYTES, What, base_of};
use super::rma::ring::Ring;
use super::rma::words::{WORDS, word_kind};
use super::rma::{Exposed, RmaWork};
use crate::contents;
use crate::rng::Rng;

/// A region of this side's own, each byte of it in use by one operation at a time.
struct Space {
    region: u64,
    ring: Ring,
}

/// One side's operations still to be started.
pub(super) struct Operator {
    pub token: usize,
    key: ConnKey,
    peer: usize,
    work: RmaWork,
    pub left: u32,
    next_ns: u64,
    in_burst: u32,
    rng: Rng,
    /// Writes come from here.
    source: Space,
    /// Reads and results go here.
    sink: Space,
    /// What the peer told last.
    known: Exposed,
    /// The peer's writable region.
    target: Ring,
    /// An operation failed since the last fence: bytes of it may be under way to addresses that come next.
    unsure: bool,
    failed: u32,
    /// The last write: its number and where its room at the peer begins.
    last_write: Option<(u32, u64)>,
    /// There was no room for the next one.
    waits: bool,
    /// Ready to be started, when the endpoint takes it.
    draft: Option<Operation>,
}

impl Operator {
    /// `None`: the peer has told nothing.
    pub fn new(
        token: usize,
        key: ConnKey,
        work: RmaWork,
        now_ns: u64,
        mut rng: Rng,
        ledger: &mut Ledger,
    ) -> Option<Operator> {
        let peer = ledger.sides[token].peer?;
        let known = ledger.rma.side(peer).exposed?;
        let node = ledger.sides[token].node;
        let rng = Rng::new(rng.next_u64());
        let mut space = || Space::new(ledger, node, token, work.region_bytes);
        Some(Operator {
            token,
            key,
            peer,
            work,
            left: work.operations,
            next_ns: now_ns,
            in_burst: 0,
            rng,
            source: space(),
            sink: space(),
            known,
            target: Ring::new(work.region_bytes),
            unsure: false,
            failed: 0,
            last_write: None,
            waits: false,
            draft: None,
        })
    }

    /// Whether something is to be started now, as far as the clock goes.
    pub fn is_due(&self, now_ns: u64) -> bool {
        self.left > 0 && now_ns >= self.next_ns
    }

    /// When something is to be started that is not due yet.
    pub fn next_ns(&self, now_ns: u64) -> Option<u64> {
        (self.left > 0 && self.next_ns > now_ns).then_some(self.next_ns)
    }

    /// Starts one operation. False: it can't now.
    pub fn start_one(&mut self, now_ns: u64, endpoint: &mut Endpoint, ledger: &mut Ledger) -> bool {
        if ledger.rma.side(self.token).outstanding >= self.work.outstanding_max {
            return false;
        }
        let Some(info) = endpoint.connection(self.key) else {
            ledger.fail(now_ns, format!("side {} is up, yet its key is unknown", self.token));
            self.left = 0;
            return false;
        };
        if self.draft.is_none() {
            let asks = !self.waits && self.rng.pct(10.0);
            self.learn(asks, ledger);
            if !self.waits {
                self.live(now_ns, ledger);
            }
            // What finds no room now is the same when it is tried again: else long operations would lose to short ones.
            let before = self.rng.clone();
            self.draft = self.draw(now_ns, info.message_bytes_max, ledger);
            self.waits = self.draft.is_none();
            if self.waits {
                self.rng = before;
            }
        }
        let Some(draft) = &mut self.draft else { return false };
        draft.message = draft.message.map(|len| len.min(info.message_bytes_max));
        let index = ledger.rma.side(self.token).ops.len() as u32;
        match start(endpoint, now_ns, self.key, draft, self.token, index) {
            Ok(()) => {}
            Err(RmaError::WouldBlock) => return false,
            // The news may wait behind messages that the program has not taken yet.
            Err(RmaError::Disconnected) if info.state != ConnState::Up => {
                self.left = 0;
                return false;
            }
            Err(error) => {
                let state = ledger.sides[self.token].state;
                let what = format!("side {} ({state:?}): {draft:?}: {error:?}", self.token);
                ledger.fail(now_ns, what);
                self.left = 0;
                return false;
            }
        }
        if let Some(mut draft) = self.draft.take() {
            draft.started_ns = now_ns;
            ledger.log_line(|| format!("side {} starts operation {index}: {draft:?}", self.token));
            ledger.rma_started(self.token, self.peer, draft);
        }
        self.left -= 1;
        self.in_burst += 1;
        if self.work.gap_ns > 0 && self.in_burst >= self.work.burst {
            self.in_burst = 0;
            self.next_ns = now_ns + self.work.gap_ns;
        }
        true
    }

    /// The program asks its peer what there is, sometimes and when something failed.
    fn learn(&mut self, asks: bool, ledger: &mut Ledger) {
        let failed = ledger.rma.side(self.token).failed;
        let news = failed != self.failed;
        self.unsure |= news;
        self.failed = failed;
        let known = ledger.rma.side(self.peer).exposed.filter(|known| *known != self.known);
        if let Some(known) = known.filter(|_| asks || news) {
            self.known = known;
            self.target = Ring::new(self.work.region_bytes);
            self.last_write = None;
        }
    }

    /// What else happens to memory between two operations.
    fn live(&mut self, now_ns: u64, ledger: &mut Ledger) {
        let own = ledger.rma.side(self.token).exposed;
        if let Some(own) = own.filter(|_| self.rng.pct(self.work.change_pct)) {
            ledger.rma.regions.change(now_ns, own.readable);
        }
        if !self.rng.pct(self.work.deregister_pct) {
            return;
        }
        let node = ledger.sides[self.token].node;
        let space = match self.rng.below(4) {
            0 => &mut self.source,
            1 => &mut self.sink,
            _ => {
                if own.is_some() {
                    let scoped = self.rng.pct(50.0);
                    let region_bytes = own.and_then(|own| ledger.rma.regions.get(own.writable));
                    let region_bytes = region_bytes.map_or(0, |region| region.bytes.len() as u64);
                    ledger.rma.expose(now_ns, self.token, node, region_bytes, scoped);
                }
                return;
            }
        };
        ledger.log_line(|| format!("side {} deregisters its own region {}", self.token, space.region));
        ledger.rma.deregister(now_ns, space.region);
        *space = Space::new(ledger, node, self.token, self.work.region_bytes);
    }

    /// Makes up the next operation; `None` while there is no room for it.
    fn draw(&mut self, now_ns: u64, message_bytes_max: usize, ledger: &mut Ledger) -> Option<Operation> {
        let index = ledger.rma.side(self.token).ops.len() as u32;
        let fence = self.rng.pct(self.work.fence_pct) || self.unsure;
        if self.rng.pct(self.work.atomic_pct) {
            let op = self.draw_atomic(now_ns, index, fence, ledger)?;
            return Some(op);
        }
        let message =
            self.rng.pct(self.work.message_pct).then(|| self.draw_message(message_bytes_max, ledger));
        let again = self.rng.pct(self.work.again_pct);
        if let Some((written, start)) = self.last_write.filter(|_| again)
            && self.target.holds(start)
            && ledger.rma.side(self.token).ops[written as usize].bad.is_none()
        {
            return self.draw_again(now_ns, index, written, start, message, ledger);
        }
        let lens = self.draw_lens();
        let read = self.rng.pct(self.work.read_pct);
        let op = if read {
            let local = reserve(&mut self.rng, &mut self.sink, &lens, index, self.token, ledger)?;
            let readable = self.known.readable;
            let remote = lens.iter().map(|len| {
                let offset = self.rng.below(self.work.region_bytes - len + 1);
                ledger.rma.regions.address(readable, offset)
            });
            let remote: Vec<RemoteAddress> = remote.collect();
            Operation::new(now_ns, What::Read, segments(&local, &remote, &lens), message, fence)
        } else {
            let local = reserve(&mut self.rng, &mut self.source, &lens, index, self.token, ledger)?;
            let over = over(ledger, self.token);
            let (total, gaps) = spread(&mut self.rng, &lens);
            let Some(start) = self.target.take(total, index, over) else {
                self.source.ring.undo();
                return None;
            };
            let offsets = lay_out(&mut self.rng, start, &lens, &gaps);
            let writable = self.known.writable;
            let remote: Vec<RemoteAddress> =
                offsets.iter().map(|offset| ledger.rma.regions.address(writable, *offset)).collect();
            self.last_write = Some((index, start));
            let segments = segments(&local, &remote, &lens);
            fill_source(&segments, self.token, index, ledger);
            Operation::new(now_ns, What::Write, segments, message, fence)
        };
        self.unsure = false;
        Some(self.spoil(op, ledger))
    }

    /// Writes over the last write, or reads it back; nothing but the fence says in which order.
    fn draw_again(
        &mut self,
        now_ns: u64,
        index: u32,
        written: u32,
        start: u64,
        message: Option<usize>,
        ledger: &mut Ledger,
    ) -> Option<Operation> {
        let before = &ledger.rma.side(self.token).ops[written as usize].segments;
        let lens: Vec<u64> = before.iter().map(|segment| segment.len_bytes).collect();
        let remote: Vec<RemoteAddress> = before.iter().map(|segment| segment.remote).collect();
        let back = self.rng.pct(50.0);
        let space = if back { &mut self.sink } else { &mut self.source };
        let local = reserve(&mut self.rng, space, &lens, index, self.token, ledger)?;
        self.target.share(start, index);
        let segments = segments(&local, &remote, &lens);
        let what = if back {
            What::ReadBack(written)
        } else {
            self.last_write = Some((index, start));
            fill_source(&segments, self.token, index, ledger);
            What::Write
        };
        self.unsure = false;
        Some(Operation::new(now_ns, what, segments, message, true))
    }

    fn draw_message(&mut self, message_bytes_max: usize, ledger: &Ledger) -> usize {
        // Empty ones say nothing of where they are from: only where plain messages are never empty.
        let flow = &ledger.sides[self.token].flow;
        if flow.always_named && self.rng.pct(20.0) {
            return 0;
        }
        let most = if self.rng.pct(80.0) { 64 } else { message_bytes_max as u64 };
        self.rng.range(contents::NAMED_BYTES_MIN as u64, most) as usize
    }

    /// The lengths of an operation's segments.
    fn draw_lens(&mut self) -> Vec<u64> {
        let len_bytes = self.rng.range(self.work.bytes_min, self.work.bytes_max);
        let count = self.rng.range(1, u64::from(self.work.segments_max).min(len_bytes));
        let mut bounds: Vec<u64> = (1..count).map(|_| self.rng.below(len_bytes)).collect();
        bounds.extend([0, len_bytes]);
        bounds.sort_unstable();
        bounds.dedup();
        bounds.windows(2).map(|lay_out| lay_out[1] - lay_out[0]).collect()
    }

    fn draw_atomic(
        &mut self,
        now_ns: u64,
        index: u32,
        fence: bool,
        ledger: &mut Ledger,
    ) -> Option<Operation> {
        let words = ledger.rma.words.get(&ledger.sides[self.peer].node).copied().unwrap_or(0);
        let word = self.rng.below(WORDS);
        let (kind, width) = word_kind(word);
        let bytes = width.bytes() as u64;
        let unique = (self.token as u64 + 1) << 20 | u64::from(index);
        let bit = 1 << self.rng.below(bytes * 8);
        let operand = match kind {
            AtomicKind::FetchAdd => 1,
            AtomicKind::Add => self.rng.below(1_000),
            AtomicKind::Swap | AtomicKind::CompareSwap => unique,
            AtomicKind::And => !bit & (u64::MAX >> (64 - bytes * 8)),
            AtomicKind::Or | AtomicKind::Xor => bit,
        };
        let mut target = ledger.rma.regions.address(words, word * 8);
        // As if read a moment ago: mostly right.
        let compare = match ledger.rma.regions.get(words) {
            Some(region) if self.rng.pct(80.0) => number(&region.bytes[word as usize * 8..][..width.bytes()]),
            _ => 12_345,
        };
        if self.rng.pct(self.work.bad_pct) {
            match self.rng.below(3) {
                0 => target.offset += self.rng.range(1, bytes - 1),
                1 => target = ledger.rma.regions.address(self.known.writable, 0),
                _ => target.key ^= 1 << self.rng.below(64),
            }
        }
        let returns = matches!(kind, AtomicKind::FetchAdd | AtomicKind::Swap | AtomicKind::CompareSwap);
        let mut local = RemoteAddress::default();
        let mut result = None;
        if returns && self.rng.pct(90.0) {
            let offset = self.sink.ring.take(RESULT_BYTES, index, over(ledger, self.token))?;
            local = ledger.rma.regions.address(self.sink.region, offset);
            result = Some(local);
        }
        // Where it means nothing it tells operations apart that are all the same otherwise.
        let compare = if kind == AtomicKind::CompareSwap { compare } else { unique };
        let atomic = Atomic { kind, width, operand, compare };
        let segment = RmaSegment { local, remote: target, len_bytes: bytes };
        Some(Operation::new(now_ns, What::Atomic(atomic, result), vec![segment], None, fence))
    }

    /// Some operations name what they must not.
    fn spoil(&mut self, op: Operation, ledger: &Ledger) -> Operation {
        if !self.rng.pct(self.work.bad_pct) {
            return op;
        }
        let mut segments = op.segments;
        let which = self.rng.below(segments.len() as u64) as usize;
        let (segment, rng) = (&mut segments[which], &mut self.rng);
        match rng.below(6) {
            0 => segment.remote.key ^= 1 << rng.below(64),
            1 => segment.remote.region = rng.next_u64(),
            // A write's records are judged one by one: what is inside would be written, where others may be writing.
            2 if op.what == What::Write => segment.remote.offset = self.work.region_bytes,
            2 => segment.remote.offset = self.work.region_bytes - rng.below(segment.len_bytes),
            3 => segment.remote.offset = u64::MAX - segment.len_bytes - rng.below(3),
            // Registered, but not for this: the words are for atomics (and reads), what is readable is for reads.
            4 if op.what == What::Write => {
                segment.remote = ledger.rma.regions.address(self.known.readable, 0)
            }
            // Somebody else's.
            _ => {
                let other = rng.below(ledger.rma.regions.iter().count() as u64) + 1;
                let strange = |owner: Option<usize>| owner.is_some_and(|owner| owner != self.peer);
                match ledger.rma.regions.get(other) {
                    Some(region) if region.scoped && strange(region.owner) => {
                        segment.remote = ledger.rma.regions.address(other, 0);
                    }
                    _ => segment.remote.key = segment.remote.key.wrapping_add(1),
                }
            }
        }
        Operation::new(op.started_ns, op.what, segments, op.message, op.fence)
    }
}

impl Space {
    fn new(ledger: &mut Ledger, node: usize, token: usize, len_bytes: u64) -> Space {
        let region = ledger.rma.regions.add(node, Some(token), false, 0, len_bytes);
        Space { region, ring: Ring::new(len_bytes) }
    }
}

fn start(
    endpoint: &mut Endpoint,
    now_ns: u64,
    key: ConnKey,
    op: &Operation,
    token: usize,
    index: u32,
) -> Result<(), RmaError> {
    let (now, name) = (Time(now_ns), name_of(token, index));
    let kind = match op.what {
        What::Atomic(atomic, result) => {
            let target = op.segments.first().map(|segment| segment.remote).unwrap_or_default();
            return endpoint.atomic(now, key, atomic, target, result, op.fence, name);
        }
        What::Write => RmaKind::Write,
        What::Read | What::ReadBack(_) => RmaKind::Read,
    };
    let message = op.message.map(|len| {
        let mut message = vec![0; len];
        if len > 0 {
            fill_message(token, index, &mut message);
        }
        message
    });
    endpoint.rma(now, key, kind, &op.segments, message.as_deref(), op.fence, name)
}

fn over(ledger: &Ledger, token: usize) -> impl Fn(u32) -> bool + '_ {
    let ops = ledger.rma.sides.get(token).map_or(&[][..], |side| &side.ops);
    move |index| ops.get(index as usize).is_some_and(|op| op.status.is_some())
}

/// How many bytes segments take with gaps of 0 to 7 bytes before each, and those gaps.
fn spread(rng: &mut Rng, lens: &[u64]) -> (u64, Vec<u64>) {
    let gaps: Vec<u64> = lens.iter().map(|_| rng.below(8)).collect();
    (lens.iter().chain(&gaps).sum(), gaps)
}

/// Where each segment goes, in some order, from `start` on.
fn lay_out(rng: &mut Rng, start: u64, lens: &[u64], gaps: &[u64]) -> Vec<u64> {
    let mut order: Vec<usize> = (0..lens.len()).collect();
    if rng.pct(50.0) {
        for address in (1..order.len()).rev() {
            order.swap(address, rng.below(address as u64 + 1) as usize);
        }
    }
    let mut offsets = vec![0; lens.len()];
    let mut at = start;
    for which in order {
        at += gaps[which];
        offsets[which] = at;
        at += lens[which];
    }
    offsets
}

fn reserve(
    rng: &mut Rng,
    space: &mut Space,
    lens: &[u64],
    index: u32,
    token: usize,
    ledger: &Ledger,
) -> Option<Vec<RemoteAddress>> {
    let (total, gaps) = spread(rng, lens);
    let start = space.ring.take(total, index, over(ledger, token))?;
    let offsets = lay_out(rng, start, lens, &gaps);
    Some(offsets.into_iter().map(|offset| ledger.rma.regions.address(space.region, offset)).collect())
}

fn segments(local: &[RemoteAddress], remote: &[RemoteAddress], lens: &[u64]) -> Vec<RmaSegment> {
    let both = local.iter().zip(remote).zip(lens);
    both.map(|((local, remote), len)| RmaSegment { local: *local, remote: *remote, len_bytes: *len })
        .collect()
}

/// The program puts into its memory what is to be written.
fn fill_source(segments: &[RmaSegment], token: usize, index: u32, ledger: &mut Ledger) {
    let mut at = 0;
    for segment in segments {
        if let Some(region) = ledger.rma.regions.get_mut(segment.local.region) {
            let bytes = &mut region.bytes[segment.local.offset as usize..][..segment.len_bytes as usize];
            contents::fill_pattern(base_of(token, index), at, bytes);
        }
        at += segment.len_bytes;
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
