//! What one end wants done: a message delivered, or an operation on remote memory. A task is made of steps, of which the peer does
//! one at a time, when its endpoint makes progress.

use cci::seam::{Action, AtomicRequest, Core, SendOp};
use cci::{Access, Atomic, Connection, RmaKind, Status};
use cci_proto::{RemoteAddress, RmaRefusal, RmaSegment};
use std::collections::VecDeque;

/// What one end asks of the other.
pub(super) enum Request {
    Message(Vec<u8>),
    Write(RemoteAddress, Vec<u8>),
    Read(RemoteAddress, u64),
    Atomic(RemoteAddress, Atomic),
}

/// What has come of a request: the bytes that it asked for, or how the task ends.
pub(super) type Reply = Result<Vec<u8>, Status>;

enum Step {
    Message(Vec<u8>),
    Write(RmaSegment),
    Read(RmaSegment),
    Atomic(AtomicRequest),
}

/// What the engine knows a task by.
#[derive(Copy, Clone)]
enum Name {
    Send(SendOp),
    Operation(u64),
}

/// A message or an operation that is not over.
pub(super) struct Task {
    name: Name,
    /// What is left to do.
    steps: VecDeque<Step>,
    /// It begins when all tasks before it are over.
    pub is_fenced: bool,
    /// The peer was asked for the first step.
    pub is_asked: bool,
    /// Given by the link, as is the time at which the task is given up.
    pub number: u64,
    pub due_ns: u64,
}

impl Task {
    pub fn send(message: Vec<u8>, op: SendOp) -> Task {
        Task::new(Name::Send(op), [Step::Message(message)].into(), false)
    }

    pub fn operation(id: u64, action: &Action<'_>) -> Task {
        let mut steps = VecDeque::new();
        let is_fenced = match action {
            Action::Transfer(request) => {
                let step = if request.kind == RmaKind::Write { Step::Write } else { Step::Read };
                steps.extend(request.segments.iter().map(|segment| step(*segment)));
                steps.extend(request.message.map(|message| Step::Message(message.to_vec())));
                request.fence
            }
            Action::Atomic(request) => {
                steps.push_back(Step::Atomic(*request));
                request.fence
            }
        };
        Task::new(Name::Operation(id), steps, is_fenced)
    }

    fn new(name: Name, steps: VecDeque<Step>, is_fenced: bool) -> Task {
        Task { name, steps, is_fenced, is_asked: false, number: 0, due_ns: 0 }
    }

    /// How its completion reaches the program, if it is a send.
    pub fn send_op(&self) -> Option<SendOp> {
        if let Name::Send(op) = self.name { Some(op) } else { None }
    }

    /// What to ask the peer next. The error is how the task ends.
    pub fn request(&mut self, core: &Core) -> Result<Request, Status> {
        self.is_asked = true;
        Ok(match self.steps.front_mut().ok_or(Status::Success)? {
            Step::Message(message) => Request::Message(std::mem::take(message)),
            Step::Read(segment) => Request::Read(segment.remote, segment.len_bytes),
            Step::Atomic(request) => Request::Atomic(request.target, request.atomic),
            Step::Write(segment) => {
                let mut data = vec![0; segment.len_bytes as usize];
                let found = core.regions.local(segment.local, segment.len_bytes);
                let read = found.filter(|(bytes, offset)| bytes.read(*offset, &mut data));
                read.ok_or(Status::RmaHandle)?;
                Request::Write(segment.remote, data)
            }
        })
    }

    /// The peer has done the first step. The error is how the task ends.
    pub fn advance(&mut self, core: &Core, reply: Reply) -> Result<(), Status> {
        self.is_asked = false;
        let data = reply?;
        let into = match self.steps.pop_front() {
            Some(Step::Read(segment)) => Some(segment.local),
            Some(Step::Atomic(request)) => request.result,
            _ => None,
        };
        if let Some(at) = into {
            let found = core.regions.local(at, data.len() as u64);
            found.filter(|(bytes, offset)| bytes.write(*offset, &data)).ok_or(Status::RmaHandle)?;
        }
        if self.steps.is_empty() { Err(Status::Success) } else { Ok(()) }
    }

    /// Reports how the task ended.
    pub fn complete(&self, core: &mut Core, connection: Connection, status: Status) {
        match self.name {
            Name::Send(op) => core.complete(connection, op, status),
            Name::Operation(id) => core.complete_operation(id, status),
        }
    }
}

/// Does what a peer asks for in this side's memory. Each access goes through the engine's table of regions.
pub(super) fn access(core: &mut Core, from: Connection, request: &Request) -> Reply {
    let regions = &mut core.regions;
    let done = match request {
        Request::Message(_) => Ok(Vec::new()),
        Request::Write(at, data) => regions
            .peer(from, *at, data.len() as u64, Access::WRITE)
            .and_then(|(bytes, offset)| bytes.write(offset, data).then(Vec::new).ok_or(RmaRefusal::Handle)),
        Request::Read(at, len) => regions.peer_source(from, *at, *len).map(drop).and_then(|()| {
            let mut data = vec![0; *len as usize];
            regions.peer_read(from, *at, &mut data).map(|()| data)
        }),
        Request::Atomic(at, atomic) => {
            regions.peer_atomic(from, *at, *atomic).map(|before| before.to_ne_bytes().to_vec())
        }
    };
    done.map_err(|why| if why == RmaRefusal::Handle { Status::RmaHandle } else { Status::RmaOperation })
}
