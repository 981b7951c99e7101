//! CCI's services (libRIPC): calls of many clients, long items of messages, and the first contact with a service.

use super::calls::{Silence, warm_up};
use super::connect::median;
use super::dial;
use crate::args::{By, WorkArgs};
use crate::reading::Reading;
use crate::work::{CONTACT_PAUSE, Work};
use crate::worker::partner::{self, Partner};
use cci::Context;
use cci_measure::failure::{Failure, Outcome};
use cci_ripc::{CallOptions, Content, Event, Node, Options, Part, Service, ServiceName, directory};
use cci_sys::clock;
use std::path::PathBuf;
use std::time::Duration;

/// Nothing is waited for longer.
const LIMIT: Duration = Duration::from_secs(20);
/// Long items that are lent at a time.
const LENT: u64 = 4;

/// The first side has the services, and the partner uses them.
pub fn run(args: &WorkArgs) -> Outcome<Option<Reading>> {
    if let Some(first) = &args.partner_of {
        let node = open(args, first)?;
        partner::pin(args)?;
        match args.work {
            Work::Calls { len, clients } => call(args, node, len, clients)?,
            Work::Long { len } => lend(args, node, len)?,
            Work::Contact => contact(args, node)?,
            work => return Err(not_done(work)),
        }
        return Ok(None);
    }
    let place = Place::new(args)?;
    let mut node = open(args, &place.directory)?;
    let names = if args.work == Work::Contact { args.count } else { 1 };
    let services: Vec<Service> = (0..names).map(|nth| register(&mut node, nth)).collect::<Outcome<_>>()?;
    let service = *services.first().ok_or_else(|| Failure::new("no services"))?;
    let partner = Partner::start(args, &partner::site(args)?, &place.directory)?;
    partner::pin(args)?;
    let reading = match args.work {
        Work::Calls { .. } => serve(args, &mut node, service)?,
        Work::Long { len } => take(args, &mut node, service, len)?,
        Work::Contact => be_found(args, &mut node, service)?,
        work => return Err(not_done(work)),
    };
    partner.end(|| node.progress())?;
    Ok(Some(reading))
}

fn not_done(work: Work) -> Failure {
    Failure::new(format!("services do no {work}"))
}

/// Where the services of a turn are.
struct Place {
    directory: String,
    /// Removed afterwards.
    folder: Option<PathBuf>,
}

impl Place {
    fn new(args: &WorkArgs) -> Outcome<Place> {
        let number = std::process::id();
        if args.by == By::ServicesUdp && args.work == Work::Contact {
            let port = 20_000 + number % 40_000;
            return Ok(Place {
                directory: format!("multicast://239.255.77.1:{port}?interface=lo"),
                folder: None,
            });
        }
        let folder = std::env::temp_dir().join(format!("cci-bench-services-{number}"));
        std::fs::create_dir_all(&folder).map_err(|error| dial::failed("a folder")(&error))?;
        Ok(Place { directory: format!("host:{}", folder.display()), folder: Some(folder) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // What stays is in the folder of temporary files.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn open(args: &WorkArgs, directory: &str) -> Outcome<Node> {
    let context = Context::new().map_err(|error| dial::failed("context")(&error))?;
    let directory = directory::open(directory).map_err(|error| dial::failed("directory")(&error))?;
    let options = Options::default().device(dial::device(&context, args)?).directory(directory);
    Node::open(options).map_err(|error| dial::failed("node")(&error))
}

fn name(nth: u64) -> Outcome<ServiceName> {
    ServiceName::new(&format!("bench-{nth}")).map_err(|error| dial::failed("name")(&error))
}

fn register(node: &mut Node, nth: u64) -> Outcome<Service> {
    node.register(&name(nth)?).map_err(|error| dial::failed("register")(&error))
}

/// A number in a message.
fn number(message: &cci_ripc::Message) -> Outcome<u64> {
    let number = message.item(0).first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    number.ok_or_else(|| Failure::new("no number"))
}

/// Tells the first service how long it took.
fn report(node: &mut Node, me: Service, took_ns: u64) -> Outcome {
    let partner = node.partner(me, &name(0)?).map_err(|error| dial::failed("partner")(&error))?;
    node.reach(partner, LIMIT).map_err(|error| dial::failed("reach")(&error))?;
    node.send(partner, &took_ns.to_le_bytes()).map_err(|error| dial::failed("send")(&error))?;
    // Until it has left: whoever gets it ends the connection.
    let until_ns = clock::now_ns() + 100_000_000;
    while clock::now_ns() < until_ns && node.is_reached(partner) {
        node.progress();
    }
    Ok(())
}

/// Answers requests with what is in them, until it hears how long they took.
fn serve(args: &WorkArgs, node: &mut Node, service: Service) -> Outcome<Reading> {
    let mut silent = Silence::default();
    loop {
        match node.next_event(service) {
            Some(Event::Request(request)) => {
                let answered = node.answer(request.ticket(), request.message().item(0));
                answered.map_err(|error| dial::failed("answer")(&error))?;
                silent = Silence::default();
            }
            Some(Event::Message(message)) => return Ok(Reading::of_rate(args.count, number(&message)?)),
            _ => silent.look()?,
        }
    }
}

/// The clients, all in this process.
fn call(args: &WorkArgs, mut node: Node, len: u32, clients: u32) -> Outcome {
    let to = name(0)?;
    let mut all = Vec::new();
    for _ in 0..clients {
        let me = node.client().map_err(|error| dial::failed("client")(&error))?;
        let partner = node.partner(me, &to).map_err(|error| dial::failed("partner")(&error))?;
        node.reach(partner, LIMIT).map_err(|error| dial::failed("reach")(&error))?;
        all.push((me, partner));
    }
    let request = vec![7; len as usize];
    let mut took_ns = 0;
    for count in [warm_up(args.count), args.count] {
        let began_ns = clock::now_ns();
        let (mut begun, mut ended, mut silent) = (0, 0, Silence::default());
        for &(_, partner) in all.iter().take(count.try_into().unwrap_or(usize::MAX)) {
            let called = node.call(partner, &request[..], CallOptions::default());
            called.map_err(|error| dial::failed("call")(&error))?;
            begun += 1;
        }
        while ended < count {
            for &(me, partner) in &all {
                let Some(event) = node.next_event(me) else { continue };
                match event {
                    Event::Answer { result: Ok(answer), .. } if answer.item(0).len() == request.len() => {}
                    event => return Err(Failure::new(format!("no answer, but {event:?}"))),
                }
                (ended, silent) = (ended + 1, Silence::default());
                if begun < count {
                    let called = node.call(partner, &request[..], CallOptions::default());
                    called.map_err(|error| dial::failed("call")(&error))?;
                    begun += 1;
                }
            }
            silent.look()?;
        }
        took_ns = clock::now_ns() - began_ns;
    }
    let (me, _) = *all.first().ok_or_else(|| Failure::new("no clients"))?;
    report(&mut node, me, took_ns)
}

/// Takes messages with a long item each, all into one window.
fn take(args: &WorkArgs, node: &mut Node, service: Service, len: u32) -> Outcome<Reading> {
    let window = node.allocate(len as usize).map_err(|error| dial::failed("memory")(&error))?;
    let (warm_up, mut silent) = (warm_up(args.count), Silence::default());
    let (mut taken, mut began_ns) = (0, 0);
    node.give_window(Some(service), &window).map_err(|error| dial::failed("window")(&error))?;
    while taken < warm_up + args.count {
        match node.next_event(service) {
            Some(Event::Message(message)) => {
                if !matches!(message.long_items(), [Some(item)] if item.len() == len as usize) {
                    return Err(Failure::new("a message without its long item"));
                }
                drop(message);
                node.give_window(Some(service), &window).map_err(|error| dial::failed("window")(&error))?;
                (taken, silent) = (taken + 1, Silence::default());
                if taken == warm_up {
                    began_ns = clock::now_ns();
                }
            }
            _ => silent.look()?,
        }
    }
    Ok(Reading::of_bytes(len, args.count, clock::now_ns() - began_ns))
}

/// Sends messages with the same long item, a few at a time.
fn lend(args: &WorkArgs, mut node: Node, len: u32) -> Outcome {
    let me = node.client().map_err(|error| dial::failed("client")(&error))?;
    let partner = node.partner(me, &name(0)?).map_err(|error| dial::failed("partner")(&error))?;
    node.reach(partner, LIMIT).map_err(|error| dial::failed("reach")(&error))?;
    let memory = node.allocate(len as usize).map_err(|error| dial::failed("memory")(&error))?;
    if !memory.write(0, &vec![7; len as usize]) {
        return Err(Failure::new("the item does not fit its memory"));
    }
    let item = [Part::all(&memory)];
    let (count, mut sent, mut back, mut silent) =
        (warm_up(args.count) + args.count, 0, 0, Silence::default());
    while back < count {
        if sent < count && sent - back < LENT {
            let content = Content::default().long_items(&item);
            node.send(partner, content).map_err(|error| dial::failed("send")(&error))?;
            sent += 1;
            continue;
        }
        match node.next_event(me) {
            Some(Event::Returned { fetched: true, .. }) => (back, silent) = (back + 1, Silence::default()),
            Some(Event::Returned { .. }) => return Err(Failure::new("a long item was not fetched")),
            _ => silent.look()?,
        }
    }
    Ok(())
}

/// Lets services be found, until it hears how long that took.
fn be_found(args: &WorkArgs, node: &mut Node, service: Service) -> Outcome<Reading> {
    let mut silent = Silence::default();
    loop {
        let event = if is_asleep(args) {
            let waited = node.wait(service, Some(LIMIT));
            Some(
                waited
                    .map_err(|error| dial::failed("wait")(&error))?
                    .ok_or_else(|| Failure::new("nobody comes"))?,
            )
        } else {
            node.next_event(service)
        };
        match event {
            Some(Event::Message(message)) => return Ok(Reading::of(number(&message)? as f64)),
            _ => silent.look()?,
        }
    }
}

/// Whether both sides sleep while they wait, as what they are compared with does.
fn is_asleep(args: &WorkArgs) -> bool {
    args.by == By::ServicesUdp
}

/// Reaches each service for the first time.
fn contact(args: &WorkArgs, mut node: Node) -> Outcome {
    let me = node.client().map_err(|error| dial::failed("client")(&error))?;
    let mut took_ns = Vec::new();
    for nth in 0..args.count {
        let name = name(nth)?;
        if is_asleep(args) {
            std::thread::sleep(CONTACT_PAUSE);
        }
        let began_ns = clock::now_ns();
        let partner = node.partner(me, &name).map_err(|error| dial::failed("partner")(&error))?;
        if is_asleep(args) {
            node.reach(partner, LIMIT).map_err(|error| dial::failed("reach")(&error))?;
        } else {
            let mut silent = Silence::default();
            while !node.try_reach(partner) {
                silent.look()?;
            }
        }
        took_ns.push(clock::now_ns() - began_ns);
    }
    report(&mut node, me, median(took_ns))
}
