//! CCI's requests and replies: clients that have one call under way each, and a server that sends back what it was asked.

use super::any_length::{connect, messenger, taken};
use super::dial;
use crate::args::WorkArgs;
use crate::reading::Reading;
use crate::worker::partner::{self, Partner};
use cci::Connection;
use cci::messages::{Event, Messenger};
use cci_measure::failure::{Failure, Outcome};
use cci_sys::clock;

/// Nothing is waited for longer.
const SILENCE_NS: u64 = 20_000_000_000;
/// Events between two looks at the clock.
const TURNS_PER_LOOK: u64 = 1 << 16;

/// Half of what a call takes, where there is one client: what compares with half a round trip of messages.
pub fn half(args: &WorkArgs, len: u32) -> Outcome<Option<Reading>> {
    let took_ns = run(args, len, 1)?;
    Ok(took_ns.map(|took_ns| Reading::of(took_ns as f64 / args.count.max(1) as f64 / 2.0)))
}

/// Calls a second of all clients.
pub fn rate(args: &WorkArgs, len: u32, clients: u32) -> Outcome<Option<Reading>> {
    let took_ns = run(args, len, clients)?;
    Ok(took_ns.map(|took_ns| Reading::of_rate(args.count, took_ns)))
}

/// The first side serves and the partner calls: it measures, and its last request is the time in nanoseconds.
fn run(args: &WorkArgs, len: u32, clients: u32) -> Outcome<Option<u64>> {
    if let Some(first) = &args.partner_of {
        partner::pin(args)?;
        call(args, first, len, clients)?;
        return Ok(None);
    }
    let site = partner::site(args)?;
    let mut messenger = messenger(args)?;
    let uri = messenger.endpoint().uri().to_owned();
    let partner = Partner::start(args, &site, &uri)?;
    partner::pin(args)?;
    let took_ns = serve(&mut messenger, warm_up(args.count) + args.count)?;
    partner.end(|| drop(messenger.next_event()))?;
    Ok(Some(took_ns))
}

/// Calls before those that are timed.
pub const fn warm_up(count: u64) -> u64 {
    count / 10 + 1
}

/// Accepts clients, answers so many requests with what is in them, and then takes the time. A client may ask before the last one is accepted.
fn serve(messenger: &mut Messenger, count: u64) -> Outcome<u64> {
    let (mut served, mut silent) = (0, Silence::default());
    loop {
        match messenger.next_event() {
            Some(Event::Request(request)) if served < count => {
                let bytes = request.to_vec();
                messenger.reply(request, &bytes[..]).map_err(|error| dial::failed("reply")(&error))?;
                served += 1;
                silent = Silence::default();
            }
            Some(Event::ConnectRequest(request)) => {
                messenger.accept(request, 0).map_err(|error| dial::failed("accept")(&error))?;
            }
            Some(Event::Accept { result: Err(failure), .. }) => return Err(dial::failed("accept")(&failure)),
            Some(Event::Message(message)) => {
                let took_ns = message.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                return took_ns.ok_or_else(|| Failure::new("no time"));
            }
            _ => silent.look()?,
        }
    }
}

/// The clients, all in this process.
fn call(args: &WorkArgs, first: &str, len: u32, clients: u32) -> Outcome {
    let mut messenger = messenger(args)?;
    let connections: Vec<Connection> =
        (0..clients).map(|_| connect(&mut messenger, first)).collect::<Outcome<_>>()?;
    let request = vec![7; len as usize];
    call_all(&mut messenger, &connections, &request, warm_up(args.count))?;
    let took_ns = call_all(&mut messenger, &connections, &request, args.count)?;
    let connection = *connections.first().ok_or_else(|| Failure::new("no clients"))?;
    let word = took_ns.to_le_bytes();
    if !taken(messenger.send(connection, &word[..], 0, cci::SendFlags::NONE))? {
        return Err(Failure::new("no room for a message"));
    }
    let mut silent = Silence::default();
    while !matches!(messenger.next_event(), Some(Event::Sent { .. })) {
        silent.look()?;
    }
    Ok(())
}

/// So many calls, one of each client under way at a time. Nanoseconds.
fn call_all(messenger: &mut Messenger, clients: &[Connection], request: &[u8], count: u64) -> Outcome<u64> {
    let begin_ns = clock::now_ns();
    let mut begun = 0;
    for (client, connection) in clients.iter().enumerate().take(count.try_into().unwrap_or(usize::MAX)) {
        begin(messenger, *connection, request, client as u64)?;
        begun += 1;
    }
    let (mut ended, mut silent) = (0, Silence::default());
    while ended < count {
        match messenger.next_event() {
            Some(Event::Reply { result: Ok(reply), context, .. }) => {
                if reply.len() != request.len() {
                    return Err(Failure::new("a reply of another length"));
                }
                drop(reply);
                (ended, silent) = (ended + 1, Silence::default());
                if begun < count {
                    let client =
                        clients.get(context as usize).ok_or_else(|| Failure::new("no such client"))?;
                    begin(messenger, *client, request, context)?;
                    begun += 1;
                }
            }
            Some(Event::Reply { result: Err(failure), .. }) => return Err(dial::failed("call")(&failure)),
            _ => silent.look()?,
        }
    }
    Ok(clock::now_ns() - begin_ns)
}

fn begin(messenger: &mut Messenger, client: Connection, request: &[u8], context: u64) -> Outcome {
    let begun = messenger.call(client, request, None, context);
    begun.map(drop).map_err(|error| dial::failed("call")(&error))
}

/// How long nothing has come.
#[derive(Default)]
pub struct Silence {
    turns: u64,
    since_ns: Option<u64>,
}

impl Silence {
    /// Nothing came once more.
    ///
    /// # Errors
    /// Nothing has come for long.
    #[inline]
    pub fn look(&mut self) -> Outcome {
        self.turns += 1;
        if !self.turns.is_multiple_of(TURNS_PER_LOOK) {
            return Ok(());
        }
        let now_ns = clock::now_ns();
        if now_ns - *self.since_ns.get_or_insert(now_ns) > SILENCE_NS {
            return Err(Failure::new("nothing comes"));
        }
        Ok(())
    }
}
