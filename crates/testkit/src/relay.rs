//! A bad network between real sockets: forwards UDP datagrams on loopback, and loses, repeats and reorders some by
//! seed. The simulator tests the protocol; this tests the protocol with the kernel in between.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How bad, in parts per thousand, each way.
#[derive(Copy, Clone, Debug, Default)]
pub struct Weather {
    /// Never arrive.
    pub lost: u32,
    /// Arrive twice.
    pub repeated: u32,
    /// Arrive after some that were sent later.
    pub late: u32,
}

/// A relay, running in two threads until it is dropped.
pub struct Relay {
    front: SocketAddr,
    stop: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// A datagram that is late arrives after this many others, or when nothing else comes.
const LATE_BY: usize = 5;
const QUIET: Duration = Duration::from_millis(1);

impl Relay {
    /// Listens on a port of 127.0.0.1 and forwards what one client sends there to `server`, and the answers back.
    ///
    /// # Errors
    /// No sockets to be had.
    pub fn start(server: SocketAddr, weather: Weather, seed: u64) -> io::Result<Relay> {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let back = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        for socket in [&front, &back] {
            socket.set_read_timeout(Some(QUIET))?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let lost = Arc::new(AtomicU64::new(0));
        let client = Arc::new(Mutex::new(None));
        let addr = front.local_addr()?;
        let direction = |from: &UdpSocket, to: &UdpSocket, seed| -> io::Result<Direction> {
            Ok(Direction {
                from: from.try_clone()?,
                to: to.try_clone()?,
                weather,
                random: Random(seed | 1),
                late: VecDeque::new(),
                stop: stop.clone(),
                lost: lost.clone(),
            })
        };
        let mut there = direction(&front, &back, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))?;
        let mut again = direction(&back, &front, seed.wrapping_mul(0xd1b5_4a32_d192_ed03))?;
        let seen = client.clone();
        let threads = vec![
            std::thread::spawn(move || {
                there.run(|from| {
                    *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(from);
                    Some(server)
                })
            }),
            std::thread::spawn(move || {
                again.run(|from| {
                    let client = *client.lock().unwrap_or_else(PoisonError::into_inner);
                    client.filter(|_| from == server)
                })
            }),
        ];
        Ok(Relay { front: addr, stop, lost, threads })
    }

    /// Where the client is to send to.
    pub fn addr(&self) -> SocketAddr {
        self.front
    }

    /// Datagrams lost on purpose so far, both ways.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A relay that failed has made its test fail already.
            let _ = thread.join();
        }
    }
}

/// One direction.
struct Direction {
    from: UdpSocket,
    to: UdpSocket,
    weather: Weather,
    random: Random,
    late: VecDeque<(Vec<u8>, SocketAddr, usize)>,
    stop: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Direction {
    fn run(&mut self, mut route: impl FnMut(SocketAddr) -> Option<SocketAddr>) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        while !self.stop.load(Ordering::Relaxed) {
            match self.from.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    if let (Some(to), Some(datagram)) = (route(from), buffer.get(..len)) {
                        self.pass(datagram, to);
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    while let Some((datagram, to, _)) = self.late.pop_front() {
                        self.send(&datagram, to);
                    }
                }
                // Nobody listens where the last one went: the network's weather, too.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn pass(&mut self, datagram: &[u8], to: SocketAddr) {
        if self.random.hits(self.weather.lost) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else if self.random.hits(self.weather.late) {
            self.late.push_back((datagram.to_vec(), to, LATE_BY));
            return;
        } else {
            self.send(datagram, to);
            if self.random.hits(self.weather.repeated) {
                self.send(datagram, to);
            }
        }
        for (.., left) in &mut self.late {
            *left = left.saturating_sub(1);
        }
        while self.late.front().is_some_and(|(.., left)| *left == 0) {
            if let Some((datagram, to, _)) = self.late.pop_front() {
                self.send(&datagram, to);
            }
        }
    }

    fn send(&self, datagram: &[u8], to: SocketAddr) {
        // One that does not go is lost, as datagrams may be.
        let _ = self.to.send_to(datagram, to);
    }
}

/// xorshift64; never 0.
struct Random(u64);

impl Random {
    /// True for `of_1000` in a thousand.
    fn hits(&mut self, of_1000: u32) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % 1000 < u64::from(of_1000)
    }
}
