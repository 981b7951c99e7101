//! Messages over plain sockets with nothing above them, on the cores and the path that the library used just before.

use super::client::Client;
use super::plan::{Budget, Plan};
use super::results::Plain;
use crate::failure::{Failure, Outcome};
use crate::signals;
use cci::{Device, TransportKind};
use cci_measure::cores::Cores;
use cci_measure::site::Site;
use cci_sys::{clock, cpu};
use hdrhistogram::Histogram;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};

/// An echo that takes longer is lost, and sent again.
const LOST_AFTER_NS: u64 = 50_000_000;
/// Without an echo for so long, something is wrong.
const STUCK_AFTER_NS: u64 = 5_000_000_000;
/// Messages between two looks at the clock.
const SENDS_PER_LOOK: u64 = 32;
const WARM_UP: u64 = 64;

/// What messages of a device are compared with.
pub struct PlainSockets<'a> {
    site: &'a Site,
    core: Option<usize>,
    local: IpAddr,
    remote: IpAddr,
    tcp: bool,
}

/// Two sockets, each of which knows the other.
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl<'a> PlainSockets<'a> {
    /// None where nothing can be compared: shared memory, a server elsewhere, an interface without an address.
    pub fn of(
        device: &Device,
        site: &'a Site,
        cores: &Cores,
        server_is_ours: bool,
    ) -> Option<PlainSockets<'a>> {
        let tcp = match device.transport() {
            TransportKind::Udp | TransportKind::Eth => false,
            TransportKind::Tcp => true,
            TransportKind::Shm | TransportKind::Any => return None,
        };
        let (local, remote) = site.addresses(device.ip()).filter(|_| server_is_ours)?;
        Some(PlainSockets { site, core: cores.theirs, local, remote, tcp })
    }

    /// Exchanges the messages that the library does: one at a time with their echo, then one system call for each as fast as they go. The library's
    /// figures are given for the ratios.
    pub fn measure(
        &self,
        client: &mut Client,
        plan: &Plan,
        len: u32,
        half_round_trip_ns: f64,
        messages_per_s: f64,
    ) -> Outcome<Option<Plain>> {
        // A stream has no messages without bytes.
        if self.tcp && len == 0 {
            return Ok(None);
        }
        // The other end of ours wants the core that the server polls on.
        client.poll(false)?;
        let half_ns = self.half_round_trip_ns(plan, len as usize).map_err(failed)?;
        let per_s = self.messages_per_s(plan, len as usize).map_err(failed)?;
        signals::go_on()?;
        Ok(Some(Plain {
            half_round_trip_ns_p50: half_ns,
            latency_times_as_fast: half_ns / half_round_trip_ns,
            messages_per_s: per_s,
            rate_times_as_fast: messages_per_s / per_s,
        }))
    }

    /// What it compares with.
    pub const fn name(&self) -> &'static str {
        if self.tcp { "TCP sockets" } else { "UDP sockets" }
    }

    fn half_round_trip_ns(&self, plan: &Plan, len: usize) -> io::Result<f64> {
        let (mut mine, theirs) = self.sockets()?;
        let other = Other::start(theirs, self.core, len, true);
        let (message, mut echo) = (vec![7; len], vec![0; len.max(1)]);
        let mut trips = Histogram::<u64>::new_with_bounds(1, STUCK_AFTER_NS, 3).map_err(io::Error::other)?;
        let begin_ns = clock::now_ns();
        let mut sent = 0;
        loop {
            let sent_ns = clock::now_ns();
            mine.send(&message, sent_ns + STUCK_AFTER_NS)?;
            sent += 1;
            let arrived = mine.receive(&mut echo, sent_ns + LOST_AFTER_NS)?;
            let now_ns = clock::now_ns();
            if arrived && sent > WARM_UP {
                trips.saturating_record(now_ns - sent_ns);
            }
            if now_ns - begin_ns > STUCK_AFTER_NS && trips.is_empty() {
                return Err(ErrorKind::TimedOut.into());
            }
            if is_over(plan, begin_ns, now_ns, trips.len()) && (!trips.is_empty() || signals::interrupted()) {
                break;
            }
        }
        drop(mine);
        other.end()?;
        Ok(trips.value_at_quantile(0.5) as f64 / 2.0)
    }

    fn messages_per_s(&self, plan: &Plan, len: usize) -> io::Result<f64> {
        let (mut mine, theirs) = self.sockets()?;
        let other = Other::start(theirs, self.core, len, false);
        let message = vec![7; len];
        let begin_ns = clock::now_ns();
        let mut sent = 0;
        let took_ns = loop {
            for _ in 0..SENDS_PER_LOOK {
                mine.send(&message, clock::now_ns() + STUCK_AFTER_NS)?;
                sent += 1;
            }
            let now_ns = clock::now_ns();
            if is_over(plan, begin_ns, now_ns, sent) {
                break now_ns - begin_ns;
            }
        };
        drop(mine);
        other.end()?;
        Ok(sent as f64 * 1e9 / took_ns.max(1) as f64)
    }

    fn sockets(&self) -> io::Result<(Socket, Socket)> {
        if self.tcp {
            let listener = self.site.in_peer_namespace(|| TcpListener::bind((self.remote, 0)))?;
            let mine = TcpStream::connect(listener.local_addr()?)?;
            let (theirs, _) = listener.accept()?;
            for stream in [&mine, &theirs] {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
            }
            return Ok((Socket::Tcp(mine), Socket::Tcp(theirs)));
        }
        let mine = UdpSocket::bind((self.local, 0))?;
        let theirs = self.site.in_peer_namespace(|| UdpSocket::bind((self.remote, 0)))?;
        mine.connect(theirs.local_addr()?)?;
        theirs.connect(mine.local_addr()?)?;
        for socket in [&mine, &theirs] {
            socket.set_nonblocking(true)?;
        }
        Ok((Socket::Udp(mine), Socket::Udp(theirs)))
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::new(format!("plain sockets, to compare with: {error}"))
}

fn is_over(plan: &Plan, begin_ns: u64, now_ns: u64, count: u64) -> bool {
    match plan.budget {
        _ if signals::interrupted() => true,
        Budget::Nanoseconds(ns) => now_ns - begin_ns >= ns,
        Budget::Messages(wanted) => count >= wanted,
    }
}

impl Socket {
    /// One system call, repeated only where the socket had no space.
    fn send(&mut self, message: &[u8], until_ns: u64) -> io::Result<()> {
        let mut rest = message;
        loop {
            let done = match self {
                Socket::Udp(socket) => socket.send(rest),
                Socket::Tcp(stream) => stream.write(rest),
            };
            match done {
                Ok(count) if count >= rest.len() => return Ok(()),
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if clock::now_ns() > until_ns {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// All of a message; false: nothing came until then.
    fn receive(&mut self, buffer: &mut [u8], until_ns: u64) -> io::Result<bool> {
        let mut filled = 0;
        loop {
            let done = match self {
                Socket::Udp(socket) => socket.recv(buffer).map(|_| buffer.len()),
                Socket::Tcp(stream) => stream.read(buffer.get_mut(filled..).unwrap_or_default()),
            };
            match done {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    filled += count;
                    if filled >= buffer.len() {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if clock::now_ns() > until_ns {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The other end: a thread on the other core that echoes or swallows.
struct Other {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Other {
    fn start(mut socket: Socket, core: Option<usize>, len: usize, echo: bool) -> Other {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let placed = Arc::new(Barrier::new(2));
        let remote = placed.clone();
        let thread = thread::spawn(move || {
            let pinned = core.map_or(Ok(()), cpu::pin);
            remote.wait();
            pinned.map_err(io::Error::other)?;
            let mut buffer = vec![0; if echo { len.max(1) } else { 1 << 16 }];
            while !stopped.load(Ordering::Relaxed) {
                let arrived = if echo {
                    socket.receive(&mut buffer, clock::now_ns() + LOST_AFTER_NS)
                } else {
                    swallow(&mut socket, &mut buffer)
                };
                match arrived {
                    Ok(true) if echo => {
                        let message = buffer.get(..len).unwrap_or_default();
                        socket.send(message, clock::now_ns() + STUCK_AFTER_NS)?;
                    }
                    Ok(_) => {}
                    // This end is closed: that is how it ends.
                    Err(_) => break,
                }
            }
            Ok(())
        });
        // One that is still on our core would not get away from it while we poll, where both have real-time priority.
        placed.wait();
        Other { stop, thread }
    }

    fn end(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the other end panicked")))
    }
}

/// One receive call.
fn swallow(socket: &mut Socket, buffer: &mut [u8]) -> io::Result<bool> {
    let done = match socket {
        Socket::Udp(socket) => socket.recv(buffer).map(|_| 1),
        Socket::Tcp(stream) => stream.read(buffer),
    };
    match done {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn both_kinds_of_sockets_go_there_and_back() {
        let site = Site::same_host();
        let lo = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for tcp in [false, true] {
            let plain = PlainSockets { site: &site, core: None, local: lo, remote: lo, tcp };
            let (mut mine, theirs) = plain.sockets().unwrap();
            let other = Other::start(theirs, None, 100, true);
            let mut echo = [0; 100];
            for _ in 0..10 {
                let until_ns = clock::now_ns() + STUCK_AFTER_NS;
                mine.send(&[3; 100], until_ns).unwrap();
                assert!(mine.receive(&mut echo, until_ns).unwrap());
            }
            drop(mine);
            other.end().unwrap();
        }
    }
}
