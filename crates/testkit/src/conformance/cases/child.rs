//! The child's part of the cases with two processes: it echoes messages, and lends memory to who asks.

use super::peer::{CHILD, URI_MARK};
use super::rma_process;
use crate::conformance::{DeviceUnderTest, Driver, Environment, Flags, Port, Refusal, Side};
use std::io::Write;
use std::time::{Duration, Instant};

/// No child outlives its parent's patience.
const CHILD_TIME_MAX: Duration = Duration::from_secs(80);

/// The child: echoes until its standard input ends. Does nothing unless a parent of the same device started it.
pub fn child<D: Driver>(driver: D, about: DeviceUnderTest) {
    if std::env::var_os(CHILD).is_none_or(|device| device != about.name) {
        return;
    }
    let place = Environment::new(driver, about, "");
    let mut server: Side<D> = Side::server(&place);
    let mut out = std::io::stdout();
    writeln!(out, "\n{URI_MARK}{}", server.port.uri())
        .and_then(|()| out.flush())
        .expect("the parent listens");
    let (ended_sender, ended_receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let ended = std::io::stdin().read_line(&mut String::new());
        let _ = ended_sender.send(ended.is_ok());
    });
    let until = Instant::now() + CHILD_TIME_MAX;
    let mut areas = Vec::new();
    while ended_receiver.try_recv().is_err() && Instant::now() < until {
        server.poll();
        while !server.requests.is_empty() {
            server.accept_next(0);
        }
        while let Some((from, message)) = server.inbox.pop_front() {
            if rma_process::serve(&mut server, from, message.as_ref(), &mut areas) {
                continue;
            }
            while server.port.send(from, message.as_ref(), 0, Flags { silent: true, no_copy: false })
                == Err(Refusal::WouldBlock)
            {
                server.poll();
            }
        }
    }
}
