//! What programs do with their events.

use super::held::Held;
use super::judge::Judge;
use super::machine::Host;
use super::scenario::{Answer, End};
use super::side::{Life, Side};
use crate::rng::mix;
use crate::whole::contents;
use cci::{ConnectFailure, ConnectRequest, Connection, Endpoint, Event, Polled};

/// Least length of a request: the side that asks, twice.
pub(super) const REQUEST_BYTES_MIN: usize = 16;

/// A request that a program thinks about.
pub(super) struct Waiting {
    pub due_ns: u64,
    pub machine: usize,
    pub client: usize,
    pub request: ConnectRequest,
}

/// What a client says of itself in its request.
pub(super) fn request_of(side: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.max(REQUEST_BYTES_MIN)];
    contents::fill(side as u32, 0, &mut bytes);
    bytes
}

/// Events of one turn after which there is no end of them.
const EVENTS_MAX: usize = 100_000;

/// The most that a handler is given in one call.
const POLLED_MAX: usize = 48;

/// What a program's handler has noted.
enum Noted {
    Event(Event),
    /// A message that it did not keep.
    Message(Connection, Vec<u8>),
}

/// Has a handler note what came. It keeps some of the messages.
fn poll(endpoint: &mut Endpoint, max: usize, mut keeps: impl FnMut() -> bool) -> Vec<Noted> {
    let mut noted = Vec::new();
    endpoint.poll(max, |polled| {
        noted.push(match polled {
            Polled::Message(message) if keeps() => Noted::Event(Event::Recv(message.keep())),
            Polled::Message(message) => Noted::Message(message.connection(), message.to_vec()),
            Polled::Event(event) => Noted::Event(event),
        });
    });
    noted
}

/// Takes what has come until there is nothing: event by event in one turn, by a handler in the next. Returns how much it was.
pub(super) fn take_all(
    host: &mut Host,
    machine: usize,
    judge: &mut Judge,
    now_ns: u64,
    waiting: &mut Vec<Waiting>,
) -> usize {
    let by_handler = host.polls.is_multiple_of(2);
    let mut taken = 0;
    while taken < EVENTS_MAX {
        let Some(endpoint) = host.endpoint.as_mut() else { return taken };
        let noted = if by_handler {
            let (mut draw, keeps_any) = (mix(now_ns), host.hold_until_ns > now_ns);
            let max = 1 + draw as usize % POLLED_MAX;
            poll(endpoint, max, || {
                draw = mix(draw);
                keeps_any || draw.is_multiple_of(4)
            })
        } else {
            endpoint.next_event().map(Noted::Event).into_iter().collect()
        };
        if noted.is_empty() {
            return taken;
        }
        taken += noted.len();
        for noted in noted {
            match noted {
                Noted::Event(event) => handle(host, machine, judge, now_ns, event, waiting),
                Noted::Message(connection, bytes) => {
                    delivered(host, machine, judge, now_ns, connection, &bytes);
                }
            }
        }
    }
    judge.fail(now_ns, "storm", format!("machine {machine}: no end of events"));
    EVENTS_MAX
}

/// Notes a message. Returns the side that it came to.
fn delivered(
    host: &Host,
    machine: usize,
    judge: &mut Judge,
    now_ns: u64,
    connection: Connection,
    bytes: &[u8],
) -> Option<usize> {
    if cci::simulated::is_dead() {
        return None;
    }
    let side = host.side_of(connection);
    match side {
        Some(side) => judge.delivered(now_ns, side, bytes),
        None => {
            let what = format!("machine {machine}: a message on {connection:?}");
            judge.fail(now_ns, "delivery", what);
        }
    }
    side
}

/// Takes one event.
fn handle(
    host: &mut Host,
    machine: usize,
    judge: &mut Judge,
    now_ns: u64,
    event: Event,
    waiting: &mut Vec<Waiting>,
) {
    if cci::simulated::is_dead() {
        // The process has died in the middle of this turn: its program learns of nothing any more.
        return;
    }
    match event {
        Event::Send { connection, context, status } => {
            judge.completed(now_ns, machine, connection, context, status);
        }
        Event::Recv(message) => {
            let Some(side) = delivered(host, machine, judge, now_ns, message.connection(), &message) else {
                return;
            };
            if let Some(until_ns) = host.keeps_until_ns(now_ns) {
                host.held.push(Held { until_ns, side, message });
            }
        }
        Event::Connect { context, result } => {
            ended(host, machine, judge, now_ns, context, result, End::Client)
        }
        Event::Accept { context, result } => {
            ended(host, machine, judge, now_ns, context, result, End::Server)
        }
        Event::ConnectRequest(request) => asked(machine, judge, now_ns, request, waiting),
        Event::KeepaliveTimedOut { connection } => {
            let side = host.side_of(connection).and_then(|side| judge.sides.get_mut(side));
            let left = side.and_then(|side| {
                side.keepalives = side.keepalives.checked_sub(1)?;
                Some(())
            });
            judge.note(now_ns, 7, machine as u64, connection.to_bits());
            if left.is_none() {
                judge.fail(
                    now_ns,
                    "keepalive",
                    format!("machine {machine}: once too often on {connection:?}"),
                );
            }
        }
        Event::Disconnected { connection, context, reason } => {
            let number = host.side_of(connection);
            if let Err(what) = judge.disconnected(now_ns, number, context, reason) {
                judge.fail(now_ns, "disconnected", format!("machine {machine}, {connection:?}: {what}"));
            }
        }
        Event::DeviceFailed => judge.fail(now_ns, "device", format!("machine {machine}: the device failed")),
        other => panic!("an event that this suite does not know: {other:?}"),
    }
}

fn ended(
    host: &mut Host,
    machine: usize,
    judge: &mut Judge,
    now_ns: u64,
    context: u64,
    result: Result<Connection, ConnectFailure>,
    end: End,
) {
    judge.note(now_ns, 5, context, u64::from(result.is_ok()));
    judge.log(now_ns, || format!("side {context}: {end:?} ends with {result:?}"));
    let gentle = judge.gentle;
    let number = context as usize;
    let is_asked_twice = judge.is_asked_twice(number);
    let wrong = match judge.sides.get_mut(number) {
        None => Some("of no side there is".to_owned()),
        Some(side) if side.machine != machine || side.end != end => Some("on another machine".to_owned()),
        Some(side) if side.life != Life::Pending => Some(format!("while {:?}", side.life)),
        Some(side) => match result {
            Err(why) => {
                side.life = Life::Failed;
                let is_due = match why {
                    ConnectFailure::Refused => side.asks_itself,
                    ConnectFailure::TimedOut => is_asked_twice,
                    _ => false,
                };
                (gentle && !is_due).then(|| format!("with {why:?} though nothing was wrong"))
            }
            Ok(connection) => {
                side.life = Life::Up;
                side.connection = Some(connection);
                side.progress_ns = now_ns;
                side.keepalives += u32::from(host.spec.keepalive_ns.is_some());
                let other = host.sides.insert(connection.to_bits(), number);
                if side.has_more() {
                    host.active.push(number);
                }
                other.map(|other| format!("as {connection:?}, which is side {other}'s"))
            }
        },
    };
    if let Some(what) = wrong {
        judge.fail(now_ns, "connect", format!("side {context}: {end:?} ended {what}"));
    }
}

fn asked(
    machine: usize,
    judge: &mut Judge,
    now_ns: u64,
    request: ConnectRequest,
    waiting: &mut Vec<Waiting>,
) {
    let client = match contents::identify(request.data()) {
        Some((side, 0)) => side as usize,
        _ => return judge.fail(now_ns, "request", format!("machine {machine}: {request:?} is damaged")),
    };
    judge.note(now_ns, 6, machine as u64, client as u64);
    judge.log(now_ns, || format!("machine {machine} is asked by side {client}"));
    let Some(side) = judge.sides.get(client) else {
        return judge.fail(now_ns, "request", format!("machine {machine} is asked by side {client}"));
    };
    let wrong = side.end != End::Client
        || side.talk.server != machine
        || side.attribute() != request.attribute()
        || request.data().len() != side.talk.request_bytes.max(REQUEST_BYTES_MIN);
    if wrong {
        return judge.fail(
            now_ns,
            "request",
            format!("machine {machine}: {request:?} is not side {client}'s"),
        );
    }
    let due_ns = now_ns + side.talk.answer_ns;
    waiting.push(Waiting { due_ns, machine, client, request });
}

/// Answers a request; which machine has something to do for it.
pub(super) fn answer(
    hosts: &mut [Host],
    judge: &mut Judge,
    now_ns: u64,
    waiting: Waiting,
    jobs: impl FnOnce(&mut Side),
) -> Option<usize> {
    let Waiting { machine, client, request, .. } = waiting;
    let talk = judge.sides[client].talk.clone();
    let by = match talk.answer {
        Answer::Reject => {
            drop(request);
            return Some(machine);
        }
        Answer::Broker(other) => other,
        Answer::Accept => machine,
    };
    let host = hosts.get_mut(by)?;
    host.set_clock(now_ns);
    let Some(endpoint) = &mut host.endpoint else {
        drop(request);
        return Some(machine);
    };
    let number = judge.sides.len();
    let mut side = Side::new(&talk, End::Server, (by, host.spec.send_timeout_ns), Some(client));
    jobs(&mut side);
    match endpoint.accept(request, number as u64) {
        Ok(()) => {}
        // Only sealed endpoints say so.
        Err(cci::AcceptError::Itself) if by == judge.sides[client].machine => {
            side.life = Life::Failed;
            judge.sides[client].asks_itself = true;
        }
        Err(error) => {
            // Without memory a request is refused. Nothing else stands in the way of one.
            side.life = Life::Failed;
            if !matches!(
                error,
                cci::AcceptError::NoMemory | cci::AcceptError::Gone | cci::AcceptError::System(_)
            ) || judge.gentle
            {
                judge.fail(now_ns, "accept", format!("machine {by}: {error}"));
            }
        }
    }
    judge.sides.push(side);
    judge.log(now_ns, || format!("machine {by} accepts side {client} as side {number}"));
    Some(by)
}
