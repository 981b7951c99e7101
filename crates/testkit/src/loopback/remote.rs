//! Operations on remote memory: the initiator asks for a piece at a time, and the target's endpoint does it with its own memory when it
//! makes progress.

use cci::seam::{Action, Core};
use cci::{Access, Atomic, Connection, RmaKind, Status};
use cci_proto::{RemoteAddress, RmaRefusal, RmaSegment};

/// The most that is read or written at once, bytes.
const PIECE_BYTES_MAX: u64 = 64 << 10;

/// What an initiator wants of a target.
pub(super) enum Question {
    Write(RemoteAddress, Vec<u8>),
    Read(RemoteAddress, usize),
    Atomic(RemoteAddress, Atomic),
    /// The message behind the data.
    Message(Vec<u8>),
}

/// What has come of it.
pub(super) enum Answer {
    Done,
    Data(Vec<u8>),
    Before(u64),
    Refused(RmaRefusal),
    /// The target's program has closed the connection.
    Closed,
}

/// What is left of an operation to do.
enum Work {
    Transfer { kind: RmaKind, segments: Vec<RmaSegment>, message: Option<Vec<u8>> },
    Atomic { atomic: Atomic, target: RemoteAddress, result: Option<RemoteAddress> },
}

/// One of the initiator's operations.
pub(super) struct Operation {
    /// The engine's name for it.
    pub id: u64,
    pub is_fenced: bool,
    /// So many messages were sent before it.
    pub behind: u64,
    pub due_ns: u64,
    work: Work,
    /// The first segment that is not over, and how much of it is.
    segment: usize,
    done_bytes: u64,
    /// A question is under way, about so many bytes.
    asked_bytes: Option<u64>,
}

impl Operation {
    pub fn new(id: u64, action: &Action<'_>, behind: u64, due_ns: u64) -> Operation {
        let (work, is_fenced) = match action {
            Action::Transfer(request) => {
                let (segments, message) = (request.segments.to_vec(), request.message.map(<[u8]>::to_vec));
                (Work::Transfer { kind: request.kind, segments, message }, request.fence)
            }
            Action::Atomic(request) => {
                let (atomic, target, result) = (request.atomic, request.target, request.result);
                (Work::Atomic { atomic, target, result }, request.fence)
            }
        };
        Operation { id, is_fenced, behind, due_ns, work, segment: 0, done_bytes: 0, asked_bytes: None }
    }

    /// The part of the present segment that comes next: both addresses, and its length.
    fn next_piece(&self, segments: &[RmaSegment]) -> Option<(RemoteAddress, RemoteAddress, u64)> {
        let segment = segments.get(self.segment)?;
        let len = (segment.len_bytes - self.done_bytes).min(PIECE_BYTES_MAX);
        let moved = |at: RemoteAddress| RemoteAddress { offset: at.offset + self.done_bytes, ..at };
        Some((moved(segment.local), moved(segment.remote), len))
    }

    /// What to ask next; `None` while there is no answer to the last question. The error is how the operation ends.
    pub fn ask(&mut self, core: &Core) -> Result<Option<Question>, Status> {
        if self.asked_bytes.is_some() {
            return Ok(None);
        }
        let (question, len) = match &self.work {
            Work::Atomic { atomic, target, .. } => (Question::Atomic(*target, *atomic), 0),
            Work::Transfer { kind, segments, message } => match (self.next_piece(segments), message) {
                (Some((local, remote, len)), _) if *kind == RmaKind::Write => {
                    let (bytes, offset) = core.regions.local(local, len).ok_or(Status::RmaHandle)?;
                    let mut data = vec![0; len as usize];
                    let is_read = bytes.read(offset, &mut data);
                    (is_read.then_some(Question::Write(remote, data)).ok_or(Status::RmaHandle)?, len)
                }
                (Some((_, remote, len)), _) => (Question::Read(remote, len as usize), len),
                (None, Some(message)) => (Question::Message(message.clone()), 0),
                (None, None) => return Err(Status::Success),
            },
        };
        self.asked_bytes = Some(len);
        Ok(Some(question))
    }

    /// An answer has come. Returns how the operation ended, if it has.
    pub fn answered(&mut self, core: &mut Core, answer: Answer, due_ns: u64) -> Option<Status> {
        let asked_bytes = self.asked_bytes.take()?;
        self.due_ns = due_ns;
        match answer {
            Answer::Refused(RmaRefusal::Operation) => return Some(Status::RmaOperation),
            Answer::Refused(_) => return Some(Status::RmaHandle),
            Answer::Closed => return Some(Status::Disconnected),
            Answer::Before(value) => {
                let Work::Atomic { result, .. } = &self.work else { return None };
                let Some(at) = result else { return Some(Status::Success) };
                return Some(put(core, *at, &value.to_ne_bytes()));
            }
            Answer::Data(data) => {
                if let Work::Transfer { segments, .. } = &self.work
                    && let Some((local, ..)) = self.next_piece(segments)
                    && put(core, local, &data) != Status::Success
                {
                    return Some(Status::RmaHandle);
                }
            }
            Answer::Done => {}
        }
        let Work::Transfer { segments, message, .. } = &mut self.work else { return None };
        match segments.get(self.segment) {
            Some(segment) => {
                self.done_bytes += asked_bytes;
                if self.done_bytes == segment.len_bytes {
                    (self.segment, self.done_bytes) = (self.segment + 1, 0);
                }
            }
            None => *message = None,
        }
        (self.segment == segments.len() && message.is_none()).then_some(Status::Success)
    }
}

/// Puts what has come into memory of this side.
fn put(core: &Core, at: RemoteAddress, data: &[u8]) -> Status {
    let place = core.regions.local(at, data.len() as u64);
    let is_written = place.is_some_and(|(bytes, offset)| bytes.write(offset, data));
    if is_written { Status::Success } else { Status::RmaHandle }
}

/// Does what a peer asks of this side. Each access goes through the engine's table of regions. `None`: there is no receive buffer.
pub(super) fn serve(
    core: &mut Core,
    from: Connection,
    question: &Question,
    is_closing: bool,
) -> Option<Answer> {
    if is_closing {
        return Some(Answer::Closed);
    }
    let answer = match question {
        Question::Write(at, data) => {
            core.regions.peer(from, *at, data.len() as u64, Access::WRITE).and_then(|(bytes, offset)| {
                bytes.write(offset, data).then_some(Answer::Done).ok_or(RmaRefusal::Handle)
            })
        }
        Question::Read(at, len) => {
            let mut data = vec![0; *len];
            core.regions.peer(from, *at, *len as u64, Access::READ).and_then(|(bytes, offset)| {
                bytes.read(offset, &mut data).then_some(Answer::Data(data)).ok_or(RmaRefusal::Handle)
            })
        }
        Question::Atomic(at, atomic) => core.regions.peer_atomic(from, *at, *atomic).map(Answer::Before),
        Question::Message(message) => return core.deliver(from, message).then_some(Answer::Done),
    };
    Some(answer.unwrap_or_else(Answer::Refused))
}
