//! Messages over plain sockets with nothing above them, on the cores and the path that the library used just before.

use super::plan::Plan;
use super::results::Plain;
use crate::client::Client;
use crate::failure::{Failure, Outcome};
use crate::signals;
use cci::{Device, TransportKind};
use cci_measure::baseline::{PlainTcp, PlainUdp, failed};
use cci_measure::channel::Channel;
use cci_measure::cores::Cores;
use cci_measure::half_trip::{self, Meter};
use cci_measure::site::Site;
use cci_measure::statistics;
use cci_sys::{clock, cpu};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

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

/// Both ends of two sockets, each of which knows the other.
type Ends<C> = (C, C);

/// The times of trips, as the library's are taken, until the plan has enough.
struct Times<'a> {
    plan: &'a Plan,
    trips: statistics::Times,
    begin_ns: u64,
    left_ns: u64,
    done: u64,
}

impl Meter for Times<'_> {
    #[inline]
    fn leaves(&mut self) {
        self.left_ns = clock::now_ns();
    }

    #[inline]
    fn is_back(&mut self) -> bool {
        let now_ns = clock::now_ns();
        self.done += 1;
        if self.done > WARM_UP {
            self.trips.record(now_ns - self.left_ns);
        }
        let enough = self.plan.budget.is_spent(now_ns - self.begin_ns, self.trips.count());
        !signals::interrupted() && (!enough || self.trips.count() == 0)
    }
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
        let (half_ns, per_s) = match self.tcp {
            true => self.both(plan, len, || self.streams(len)),
            false => self.both(plan, len, || self.datagrams()),
        }?;
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

    /// Nanoseconds of half a round trip, and messages a second.
    fn both<C: Channel + Send>(
        &self,
        plan: &Plan,
        len: u32,
        sockets: impl Fn() -> Outcome<Ends<C>>,
    ) -> Outcome<(f64, f64)> {
        let (trips, begin_ns) = (statistics::Times::default(), clock::now_ns());
        let mut times = Times { plan, trips, begin_ns, left_ns: 0, done: 0 };
        let echo = vec![7; len as usize];
        self.beside(sockets()?, |theirs| theirs.send(&echo), |mine| half_trip::ask(mine, len, &mut times))?;
        let per_s = self.beside(
            sockets()?,
            |_| Ok(()),
            |mine| {
                let (message, begin_ns) = (vec![7; len as usize], clock::now_ns());
                let mut sent = 0;
                loop {
                    for _ in 0..SENDS_PER_LOOK {
                        mine.send(&message)?;
                        sent += 1;
                    }
                    let took_ns = clock::now_ns() - begin_ns;
                    if plan.budget.is_spent(took_ns, sent) || signals::interrupted() {
                        return Ok(sent as f64 * 1e9 / took_ns.max(1) as f64);
                    }
                }
            },
        )?;
        Ok((times.trips.summary(0.5).p50, per_s))
    }

    /// Does the work here, while a thread on the other core has the other end and answers whatever comes.
    fn beside<C: Channel + Send, T>(
        &self,
        (mut mine, mut theirs): Ends<C>,
        answer: impl Fn(&mut C) -> Outcome + Sync,
        work: impl FnOnce(&mut C) -> Outcome<T>,
    ) -> Outcome<T> {
        let (stop, placed, core) = (AtomicBool::new(false), Barrier::new(2), self.core);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let pinned = core.map_or(Ok(()), cpu::pin);
                placed.wait();
                pinned?;
                while !stop.load(Ordering::Relaxed) {
                    match theirs.try_receive() {
                        Ok(Some(_)) if answer(&mut theirs).is_ok() => {}
                        Ok(None) => {}
                        // This end is closed: that is how it ends.
                        Ok(Some(_)) | Err(_) => break,
                    }
                }
                Ok(())
            });
            // One that is still on our core would not get away from it while we poll, where both have real-time priority.
            placed.wait();
            let done = work(&mut mine);
            stop.store(true, Ordering::Relaxed);
            drop(mine);
            let ended = other.join().unwrap_or_else(|_| Err(Failure::new("the other end panicked")));
            done.and_then(|done| ended.map(|()| done))
        })
    }

    fn streams(&self, len: u32) -> Outcome<Ends<PlainTcp<false>>> {
        let failed = failed("plain sockets, to compare with");
        let listener =
            self.site.in_peer_namespace(|| TcpListener::bind((self.remote, 0))).map_err(&failed)?;
        let mine = listener.local_addr().and_then(TcpStream::connect).map_err(&failed)?;
        let (theirs, _) = listener.accept().map_err(&failed)?;
        Ok((PlainTcp::over(mine, len)?, PlainTcp::over(theirs, len)?))
    }

    fn datagrams(&self) -> Outcome<Ends<PlainUdp<false>>> {
        let failed = failed("plain sockets, to compare with");
        let mine = UdpSocket::bind((self.local, 0)).map_err(&failed)?;
        let theirs = self.site.in_peer_namespace(|| UdpSocket::bind((self.remote, 0))).map_err(&failed)?;
        theirs.local_addr().and_then(|address| mine.connect(address)).map_err(&failed)?;
        mine.local_addr().and_then(|address| theirs.connect(address)).map_err(&failed)?;
        Ok((PlainUdp::over(mine)?, PlainUdp::over(theirs)?))
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
        let plain = |tcp| PlainSockets { site: &site, core: None, local: lo, remote: lo, tcp };
        fn trips<C: Channel + Send>(plain: &PlainSockets<'_>, ends: Outcome<Ends<C>>) -> f64 {
            let work = |mine: &mut C| half_trip::mean_ns(mine, 100, 10);
            plain.beside(ends.unwrap(), |theirs| theirs.send(&[3; 100]), work).unwrap()
        }
        assert!(trips(&plain(true), plain(true).streams(100)) > 0.0);
        assert!(trips(&plain(false), plain(false).datagrams()) > 0.0);
    }
}
