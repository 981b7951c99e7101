//! Remote memory access between two processes, on each of its paths, next to the plainest code for the same work: a
//! `memcpy` between two mappings, and `process_vm_writev` by hand.
//!
//! `cargo run --release -p cci --example rma_paths` on an idle machine with two cores. Rounds of all alternate; the ratio is
//! taken within each round, and medians are printed. One operation at a time, from its start to its completion.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example for people")]

use cci::{
    Access, Attribute, Connection, Context, Endpoint, Event, Foreign, Memory, Options, Place, RmaFlags,
    RmaHandle, SendFlags, Status,
};
use cci_sys::floor;
use std::io::BufRead;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const LEN: usize = 4 << 20;
const SIZES: [usize; 7] = [8, 64, 4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20];

fn endpoint(direct: &str, cma: &str) -> Endpoint {
    let text = format!("[m]\ntransport = shm\ndirect = {direct}\ncma = {cma}\n");
    let context = Context::from_text(&text, Path::new("example")).unwrap();
    Endpoint::create(&context.devices()[0], Options::default()).unwrap()
}

fn foreign() -> Memory {
    Memory::foreign(Foreign::owned(vec![1; LEN].into_boxed_slice()))
}

/// The other process: sends the handle of its memory, and polls until the parent is gone.
fn serve(direct: &str, cma: &str, library: bool) {
    cci_sys::cpu::pin(1).unwrap();
    let mut endpoint = endpoint(direct, cma);
    let memory = if library { endpoint.allocate(LEN).unwrap() } else { foreign() };
    let handle = endpoint.register(&memory, Access::ALL).unwrap();
    println!("{} {}", endpoint.uri(), memory.as_ptr().addr());
    let mut connection = None;
    loop {
        match endpoint.next_event() {
            Some(Event::ConnectRequest(request)) => endpoint.accept(request, 0).unwrap(),
            Some(Event::Accept { result, .. }) => {
                let on = result.unwrap();
                endpoint.send(on, &handle.to_bytes(), 0, SendFlags::SILENT).unwrap();
                connection = Some(on);
            }
            _ => {}
        }
        if connection.is_some_and(|connection| !endpoint.is_open(connection)) {
            return;
        }
    }
}

struct Route {
    name: &'static str,
    endpoint: Endpoint,
    connection: Connection,
    here: RmaHandle,
    memory: Memory,
    there: RmaHandle,
    child: Child,
    address: u64,
}

impl Route {
    fn open(name: &'static str, direct: &str, cma: &str, library: bool) -> Route {
        let arguments = ["serve", direct, cma, if library { "library" } else { "foreign" }];
        let own = std::env::current_exe().unwrap();
        let mut child = Command::new(own).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (uri, address) = line.trim().split_once(' ').unwrap();
        let mut endpoint = endpoint(direct, cma);
        let memory = if library { endpoint.allocate(LEN).unwrap() } else { foreign() };
        let here = endpoint.register(&memory, Access::ALL).unwrap();
        endpoint.connect(uri, b"", Attribute::ReliableOrdered, 0, None).unwrap();
        let (mut connection, mut there) = (None, None);
        while there.is_none() {
            match endpoint.next_event() {
                Some(Event::Connect { result, .. }) => connection = Some(result.unwrap()),
                Some(Event::Recv(message)) => there = RmaHandle::from_message(&message),
                _ => {}
            }
        }
        let (connection, there) = (connection.unwrap(), there.unwrap());
        let address = address.parse().unwrap();
        let mut path = Route { name, endpoint, connection, here, memory, there, child, address };
        // So that everything is mapped and tried.
        for _ in 0..1000 {
            path.run(true, 64 << 10);
            path.run(false, 64 << 10);
        }
        path
    }

    /// One operation from start to end.
    fn run(&mut self, write: bool, len: usize) {
        let (here, there) = (Place::new(self.here, 0), Place::new(self.there, 0));
        let start = if write { Endpoint::rma_write } else { Endpoint::rma_read };
        start(&mut self.endpoint, self.connection, here, there, len as u64, 0, RmaFlags::NONE).unwrap();
        loop {
            if let Some(event) = self.endpoint.next_event() {
                assert!(matches!(event, Event::Send { status: Status::Success, .. }), "{event:?}");
                return;
            }
        }
    }
}

/// Nanoseconds of one of these.
fn time(len: usize, mut run: impl FnMut()) -> f64 {
    let count = ((1 << 20) / len.max(512)).clamp(2, 500);
    let start = Instant::now();
    for _ in 0..count {
        run();
    }
    start.elapsed().as_nanos() as f64 / count as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, direct, cma, library] = &arguments[..]
        && mode == "serve"
    {
        return serve(direct, cma, library == "library");
    }
    let rounds = arguments.first().map_or(25, |rounds| rounds.parse().unwrap());
    cci_sys::cpu::pin(0).unwrap();
    for (name, direct, cma, library) in
        [("direct", "on", "off", true), ("pulled", "off", "on", false), ("ring", "off", "off", false)]
    {
        let mut path = Route::open(name, direct, cma, library);
        for path in path.endpoint.explain(path.connection).unwrap().paths.iter().filter(|path| path.chosen) {
            println!("{}: {}", path.path, path.reason);
        }
        let mut mappings = floor::Mappings::create(LEN).unwrap();
        mappings.source().fill(3);
        let process = floor::Process::of(path.child.id()).unwrap();
        let data = vec![5; LEN];
        println!(
            "{:>8} {:>10} {:>11} {:>11} {:>11} {:>11}",
            path.name, "bytes", "write ns", "read ns", "by hand ns", "ratio"
        );
        for len in SIZES {
            let (mut writes, mut reads, mut floors, mut ratios) = (vec![], vec![], vec![], vec![]);
            for _ in 0..rounds {
                let floor = match name {
                    "direct" => time(len, || assert!(mappings.copy(0, len))),
                    _ => time(len, || process.write(path.address, &data[..len]).unwrap()),
                };
                let write = time(len, || path.run(true, len));
                reads.push(time(len, || path.run(false, len)));
                writes.push(write);
                floors.push(floor);
                ratios.push(floor / write);
            }
            println!(
                "{:>19} {:>11.0} {:>11.0} {:>11.0} {:>11.3}",
                len,
                median(&mut writes),
                median(&mut reads),
                median(&mut floors),
                median(&mut ratios)
            );
        }
        assert!(path.memory.len() == LEN);
        path.endpoint.disconnect(path.connection);
        while !path.child.try_wait().unwrap().is_some_and(|status| status.success()) {
            path.endpoint.progress();
        }
    }
}
