//! What programs start: messages and operations.

use super::judge::{BEHIND, Judge};
use super::machine::Host;
use super::memory::{Kind, Op, Work};
use super::scenario::{Kinds, Operating};
use super::sent::Sent;
use super::side::{Doing, Life};
use super::words::{Words, returns};
use crate::rng::Rng;
use crate::rng::mix;
use crate::whole::contents;
use cci::{
    Atomic, AtomicKind, AtomicWidth, Attribute, Endpoint, RegionAddress, RegionHandle, Rma, RmaError,
    RmaFlags, RmaKind, Segment, SendError, SendFlags,
};

/// Started by one side in one turn at most.
const TURN: u32 = 64;

/// What came of trying.
enum Tried {
    Started,
    /// Later, perhaps.
    Blocked,
    /// The connection is over.
    Over,
    /// That should not be.
    Wrong(String),
}

/// What came of starting things.
#[derive(Default)]
pub(super) struct Spoken {
    /// How many were started.
    pub started: u32,
    /// When to try again at the latest.
    pub next_ns: Option<u64>,
    /// Sides that heard that their connection is over, for which a reason must show among the events that wait.
    pub suspects: Vec<usize>,
}

/// Starts what is due on this machine.
pub(super) fn speak(host: &mut Host, judge: &mut Judge, now_ns: u64) -> Spoken {
    let Some(endpoint) = host.endpoint.as_mut() else { return Spoken::default() };
    let Spoken { mut started, mut next_ns, mut suspects } = Spoken::default();
    let mut over = Vec::new();
    for number in host.active.iter().copied() {
        let tried = speak_on(endpoint, judge, number, now_ns, &mut started, &mut next_ns);
        match tried {
            Tried::Started | Tried::Blocked => {}
            Tried::Over if judge.may_be_over(number) => over.push(number),
            Tried::Over => suspects.push(number),
            Tried::Wrong(what) => judge.fail(now_ns, "refusal", format!("side {number}: {what}")),
        }
    }
    // The guide says that a program disconnects a connection once it hears that it is over.
    for number in over {
        let side = &mut judge.sides[number];
        if let Some(connection) = side.connection {
            endpoint.disconnect(connection);
        }
        side.life = Life::Closed;
        side.hung_up = true;
    }
    let sides = &judge.sides;
    host.active.retain(|number| sides[*number].life == Life::Up && sides[*number].has_more());
    Spoken { started, next_ns, suspects }
}

fn speak_on(
    endpoint: &mut Endpoint,
    judge: &mut Judge,
    number: usize,
    now_ns: u64,
    started: &mut u32,
    next_ns: &mut Option<u64>,
) -> Tried {
    for _ in 0..TURN {
        if judge.sides[number].life != Life::Up {
            return Tried::Blocked;
        }
        let mut blocked = true;
        if let Some(doing) = judge.sides[number].jobs.front() {
            if doing.next_ns > now_ns {
                *next_ns = Some(next_ns.map_or(doing.next_ns, |at| doing.next_ns.min(at)));
            } else {
                match log(endpoint, judge, number, now_ns) {
                    Tried::Started => {
                        *started += 1;
                        blocked = false;
                    }
                    Tried::Blocked => {}
                    other => return other,
                }
            }
        }
        if judge.sides[number].work.as_ref().is_some_and(Work::has_more) {
            match operate(endpoint, judge, number, now_ns) {
                Tried::Started => {
                    *started += 1;
                    blocked = false;
                }
                Tried::Blocked => {}
                other => return other,
            }
        }
        if blocked {
            return Tried::Blocked;
        }
    }
    *next_ns = Some(next_ns.map_or(now_ns + 1, |at| at.min(now_ns + 1)));
    Tried::Started
}

fn log(endpoint: &mut Endpoint, judge: &mut Judge, number: usize, now_ns: u64) -> Tried {
    let side = &mut judge.sides[number];
    let Some(connection) = side.connection else { return Tried::Wrong("up without a connection".into()) };
    let Some(mss) = endpoint.max_send_size(connection) else {
        return Tried::Wrong("up, and no message is short enough".into());
    };
    let index = side.flow.sent.len() as u32;
    let ordered = side.is_ordered();
    let Some(Doing { job, left, .. }) = side.jobs.front() else { return Tried::Blocked };
    // Drawn from the number, so that what was refused is tried again as it was.
    let mut rng = Rng::new(mix((number as u64) << 32 | u64::from(index)));
    let len = (rng.range(job.bytes_min as u64, job.bytes_max as u64) as usize).min(mss as usize);
    // Only order distinguishes messages of less than eight bytes.
    let len = if ordered || len == 0 { len } else { len.max(contents::NAMED_BYTES_MIN) };
    let silent = len >= contents::NAMED_BYTES_MIN && rng.pct(job.silent_pct);
    if silent && rng.pct(25.0) {
        let count = rng.range(2, BURST_MAX.into()).min(u64::from(*left)) as u32;
        return burst(endpoint, judge, number, now_ns, count);
    }
    let mut bytes = vec![0; len];
    contents::fill(number as u32, index, &mut bytes);
    let mut flags = if silent { SendFlags::SILENT } else { SendFlags::NONE };
    if rng.pct(20.0) {
        flags = flags | SendFlags::NO_COPY;
    }
    let context = Judge::context(number, index, false);
    let result = if rng.pct(70.0) {
        endpoint.send(connection, &bytes, context, flags)
    } else {
        let (head, tail) = bytes.split_at(rng.below(len as u64 + 1) as usize);
        endpoint.send_vectored(connection, &[head, tail], context, flags)
    };
    match result {
        Ok(()) => {}
        Err(SendError::WouldBlock) => return Tried::Blocked,
        Err(SendError::Disconnected) => return Tried::Over,
        Err(error) => return Tried::Wrong(format!("send of {len} bytes: {error}")),
    }
    sent(judge, number, now_ns, len, silent);
    Tried::Started
}

/// Notes a message that was taken.
fn sent(judge: &mut Judge, number: usize, now_ns: u64, len: usize, silent: bool) {
    let side = &mut judge.sides[number];
    let (index, ordered) = (side.flow.sent.len() as u32, side.is_ordered());
    let ticket = side.ticket(now_ns, silent);
    side.flow.push(len, silent, ticket, ordered);
    if let Some(doing) = side.jobs.front_mut() {
        doing.left -= 1;
        doing.in_burst += 1;
        if doing.job.gap_ns > 0 && doing.in_burst >= doing.job.burst {
            doing.in_burst = 0;
            doing.next_ns = now_ns + doing.job.gap_ns;
        }
        if doing.left == 0 {
            side.jobs.pop_front();
        }
    }
    judge.note(now_ns, 3, Judge::context(number, index, false), len as u64);
    judge.log(now_ns, || format!("side {number} sends message {index}, {len} bytes, silent {silent}"));
}

/// The most messages that are sent in one burst.
const BURST_MAX: u32 = 40;

/// Sends several silent messages of the job in progress in one call.
fn burst(endpoint: &mut Endpoint, judge: &mut Judge, number: usize, now_ns: u64, count: u32) -> Tried {
    let side = &judge.sides[number];
    let (Some(connection), Some(Doing { job, .. })) = (side.connection, side.jobs.front()) else {
        return Tried::Blocked;
    };
    let mss = endpoint.max_send_size(connection).unwrap_or(0) as usize;
    let first = side.flow.sent.len() as u32;
    let message = |index: u32| {
        let mut rng = Rng::new(mix((number as u64) << 32 | u64::from(index)));
        let len = (rng.range(job.bytes_min as u64, job.bytes_max as u64) as usize).min(mss);
        let mut bytes = vec![0; len.max(contents::NAMED_BYTES_MIN)];
        contents::fill(number as u32, index, &mut bytes);
        bytes
    };
    let messages: Vec<Vec<u8>> = (first..first + count).map(message).collect();
    let slices: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    match endpoint.send_burst(connection, &slices, 0, SendFlags::SILENT) {
        Ok(taken) => {
            for message in messages.iter().take(taken) {
                sent(judge, number, now_ns, message.len(), true);
            }
            Tried::Started
        }
        Err(SendError::WouldBlock) => Tried::Blocked,
        Err(SendError::Disconnected) => Tried::Over,
        Err(error) => Tried::Wrong(format!("burst of {count}: {error}")),
    }
}

/// An operation as drawn.
struct Drawn {
    kind: Kind,
    slot: usize,
    fenced: bool,
    message: Vec<u8>,
}

fn operate(endpoint: &mut Endpoint, judge: &mut Judge, number: usize, now_ns: u64) -> Tried {
    let side = &mut judge.sides[number];
    let Some(connection) = side.connection else { return Tried::Wrong("up without a connection".into()) };
    let Some(work) = &mut side.work else { return Tried::Blocked };
    if work.outstanding >= work.spec.outstanding_max {
        return Tried::Blocked;
    }
    let index = work.ops.len() as u32;
    let mut rng = Rng::new(work.spec.draw ^ mix(index.into()));
    let mss = endpoint.max_send_size(connection).unwrap_or(64) as u64;
    let Some(drawn) = draw(work, &mut rng, number, index, mss) else { return Tried::Blocked };
    let tried = start(endpoint, work, connection, number, index, &drawn, &mut rng);
    if !matches!(tried, Tried::Started) {
        if matches!(drawn.kind, Kind::Write { .. }) {
            work.refused(drawn.slot);
        }
        return tried;
    }
    let silent = drawn.kind == Kind::Silent;
    work.left -= 1;
    let (generation, len_bytes) = (work.generation, drawn.message.len() as u32);
    // Another, fenced, behind it in the same slot: what it leaves is what counts.
    let pair = work.spec.kinds.are_mixed()
        && matches!(drawn.kind, Kind::Write { .. })
        && work.left > 0
        && rng.pct(25.0);
    work.started(Op {
        kind: drawn.kind,
        slot: drawn.slot,
        fenced: false,
        generation,
        sent: Sent { len_bytes, silent, ..Sent::default() },
    });
    let ticket = side.ticket(now_ns, silent);
    if let Some(op) = side.work.as_mut().and_then(|work| work.ops.last_mut()) {
        op.sent.ticket = ticket;
    }
    judge.note(now_ns, 4, Judge::context(number, index, true), drawn.slot as u64);
    judge.log(now_ns, || {
        format!("side {number} starts operation {index}: {:?} in place {}", drawn.kind, drawn.slot)
    });
    if pair {
        return fenced(endpoint, judge, number, now_ns, drawn.slot, &mut rng);
    }
    Tried::Started
}

fn fenced(
    endpoint: &mut Endpoint,
    judge: &mut Judge,
    number: usize,
    now_ns: u64,
    slot: usize,
    rng: &mut Rng,
) -> Tried {
    let side = &mut judge.sides[number];
    let (Some(connection), Some(work)) = (side.connection, &mut side.work) else { return Tried::Blocked };
    let index = work.ops.len() as u32;
    let reads_back =
        work.spec.kinds == Kinds::All && mix(work.spec.draw ^ u64::from(index)).is_multiple_of(2);
    let kind = if reads_back { Kind::Read } else { Kind::Write { message: false } };
    let drawn = Drawn { kind, slot, fenced: true, message: Vec::new() };
    match start(endpoint, work, connection, number, index, &drawn, rng) {
        Tried::Started => {}
        Tried::Blocked => {
            if !reads_back {
                work.refused(slot);
            }
            // The first of the two has been taken.
            return Tried::Started;
        }
        other => return other,
    }
    work.left -= 1;
    let generation = work.generation;
    work.started(Op { kind: drawn.kind, slot, fenced: true, generation, sent: Sent::default() });
    let ticket = side.ticket(now_ns, false);
    if let Some(op) = side.work.as_mut().and_then(|work| work.ops.last_mut()) {
        op.sent.ticket = ticket;
    }
    judge.log(now_ns, || format!("side {number} starts operation {index}: fenced, in place {slot}"));
    Tried::Started
}

fn draw(work: &mut Work, rng: &mut Rng, number: usize, index: u32, mss: u64) -> Option<Drawn> {
    let mut drawn = Drawn { kind: Kind::Silent, slot: 0, fenced: false, message: Vec::new() };
    let roll = match work.spec.kinds {
        Kinds::Common | Kinds::All => rng.below(100),
        Kinds::Writes => 0,
        Kinds::Reads | Kinds::File => 45,
        Kinds::Additions => 70,
    };
    match roll {
        0..45 => {
            drawn.slot = work.free_slot(rng, false)?;
            let message = work.spec.kinds.are_mixed() && rng.pct(30.0);
            drawn.kind = Kind::Write { message };
            if message {
                let len = if rng.pct(10.0) { mss } else { rng.range(8, mss.min(300)) };
                drawn.message = vec![0; len as usize];
                contents::fill(number as u32 | BEHIND, index, &mut drawn.message);
            }
        }
        45..70 => {
            drawn.slot = work.free_slot(rng, true)?;
            drawn.kind = Kind::Read;
        }
        70..88 => {
            let result = work.free_result()?;
            drawn.kind = match work.known_words() {
                Some(words) if rng.pct(70.0) => {
                    let (word, atomic) = words.draw(rng)?;
                    Kind::Change { word, atomic, result }
                }
                _ => Kind::Add { result },
            };
        }
        88..94 => drawn.kind = Kind::Bad,
        94..96 => drawn.kind = Kind::Odd,
        _ => {}
    }
    Some(drawn)
}

fn start(
    endpoint: &mut Endpoint,
    work: &Work,
    connection: cci::Connection,
    number: usize,
    index: u32,
    drawn: &Drawn,
    rng: &mut Rng,
) -> Tried {
    let context = Judge::context(number, index, true);
    let local = |offset| RegionAddress::new(work.local_handle, offset);
    let len_bytes = u64::from(work.spec.bytes);
    let remote = work.offset(drawn.slot);
    let local_offset = work.local_offset(drawn.slot, drawn.fenced);
    let mut flags = if drawn.fenced { RmaFlags::FENCE } else { RmaFlags::NONE };
    let one = |kind| Atomic { kind, width: AtomicWidth::Eight, operand: 1, compare: 0 };
    let result = match drawn.kind {
        Kind::Add { result } => endpoint.atomic(
            connection,
            one(AtomicKind::FetchAdd),
            RegionAddress::new(work.handle, 0),
            Some(local(8 * result as u64)),
            context,
            flags,
        ),
        Kind::Change { word, atomic, result } => endpoint.atomic(
            connection,
            atomic,
            RegionAddress::new(work.handle, Words::offset(word)),
            returns(atomic.kind).then(|| local(8 * result as u64)),
            context,
            flags,
        ),
        Kind::Odd => endpoint.atomic(
            connection,
            one(AtomicKind::Add),
            RegionAddress::new(work.handle, 3),
            None,
            context,
            flags,
        ),
        Kind::Bad => {
            let to = bad(work, rng);
            endpoint.rma_write(connection, local(local_offset), to, len_bytes, context, flags)
        }
        Kind::Write { .. } | Kind::Silent | Kind::Read => {
            let kind = if drawn.kind == Kind::Read { RmaKind::Read } else { RmaKind::Write };
            if kind == RmaKind::Write
                && drawn.kind != Kind::Silent
                && let Err(what) = work.fill(number, index, drawn.slot, drawn.fenced)
            {
                return Tried::Wrong(what);
            }
            if drawn.kind == Kind::Silent {
                flags = flags | RmaFlags::SILENT;
            }
            let message = (!drawn.message.is_empty()).then_some(&*drawn.message);
            endpoint.rma(
                connection,
                &Rma {
                    kind,
                    local: &segments(work.local_handle, local_offset, &work.spec, rng),
                    remote: &segments(work.handle, remote, &work.spec, rng),
                    message,
                    context,
                    flags,
                },
            )
        }
    };
    match result {
        Ok(()) => Tried::Started,
        Err(RmaError::WouldBlock) => Tried::Blocked,
        Err(RmaError::Disconnected) => Tried::Over,
        Err(error) => Tried::Wrong(format!("{:?} of {len_bytes} bytes: {error}", drawn.kind)),
    }
}

/// A slot that the owner must refuse.
fn bad(work: &Work, rng: &mut Rng) -> RegionAddress {
    if let Some(stale) = work.stale
        && rng.pct(50.0)
    {
        return RegionAddress::new(stale, work.offset(1));
    }
    if rng.pct(50.0) {
        return RegionAddress::new(work.handle, work.handle.len_bytes() - 1);
    }
    let mut bytes = work.handle.to_bytes();
    bytes[16] ^= 1 << rng.below(8);
    RegionAddress::new(RegionHandle::from_bytes(bytes), work.offset(1))
}

/// The bytes as one segment or as several.
fn segments(handle: RegionHandle, offset: u64, spec: &Operating, rng: &mut Rng) -> Vec<Segment> {
    let mut segments = Vec::new();
    let (mut at, end) = (offset, offset + u64::from(spec.bytes));
    // Where there may be many, they are short.
    let (last_pct, longest) = match spec.segments_max {
        ..10 => (60.0, u64::MAX),
        segments_max => (0.0, (2 * u64::from(spec.bytes / segments_max)).max(1)),
    };
    while at < end {
        let left = end - at;
        let is_last = rng.pct(last_pct) || segments.len() + 1 >= spec.segments_max as usize;
        let this = if is_last { left } else { rng.range(1, left.min(longest)) };
        segments.push(Segment::new(handle, at, this));
        at += this;
    }
    segments
}

/// Whether a talk can have remote memory access.
pub(super) fn can_operate(attribute: Attribute) -> bool {
    attribute.is_reliable()
}
