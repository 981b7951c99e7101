//! A bad network between real sockets: forwards UDP datagrams for many clients to one server, and loses, repeats and
//! delays some by seed, more or less of them as the weather changes.

use super::random::Random;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A datagram that is late arrives after this many others, or when nothing else comes.
const LATE_BY: usize = 4;
const QUIET: Duration = Duration::from_millis(2);
/// A client that was silent for so long has gone.
const FORGET: Duration = Duration::from_secs(30);
/// Clients at once; another one is not served.
const CLIENTS_MAX: usize = 256;

/// How bad, in parts per thousand, each direction; and what became of it.
#[derive(Default)]
pub struct Weather {
    lost: AtomicU32,
    repeated: AtomicU32,
    late: AtomicU32,
    /// Datagrams lost, repeated or late so far.
    pub spoiled: AtomicU64,
    stop: AtomicBool,
}

impl Weather {
    /// From now on, so many in a thousand are lost, come twice, come late.
    pub fn set(&self, lost: u64, repeated: u64, late: u64) {
        for (one, value) in [(&self.lost, lost), (&self.repeated, repeated), (&self.late, late)] {
            one.store(value as u32, Ordering::Relaxed);
        }
    }

    fn hits(&self, what: &AtomicU32, random: &mut Random) -> bool {
        let of_1000 = what.load(Ordering::Relaxed);
        let hit = of_1000 > 0 && random.below(1000) < u64::from(of_1000);
        self.spoiled.fetch_add(u64::from(hit), Ordering::Relaxed);
        hit
    }
}

/// A relay, running in threads until it is dropped.
pub struct Relay {
    front: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    weather: Arc<Weather>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens on a port of 127.0.0.1 and forwards what comes there to `server`, and the answers back.
    pub fn start(server: SocketAddr, weather: Arc<Weather>, seed: u64) -> io::Result<Relay> {
        let front = UdpSocket::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
        front.set_read_timeout(Some(QUIET))?;
        let addr = front.local_addr()?;
        let server = Arc::new(Mutex::new(server));
        let mut door = Door {
            front,
            server: server.clone(),
            weather: weather.clone(),
            random: Random::new(seed),
            clients: HashMap::new(),
        };
        let thread = std::thread::Builder::new().name("relay".to_owned()).spawn(move || door.run())?;
        Ok(Relay { front: addr, server, weather, thread: Some(thread) })
    }

    /// Where clients are to send to.
    pub fn front(&self) -> SocketAddr {
        self.front
    }

    /// The server is elsewhere now.
    pub fn point_to(&self, server: SocketAddr) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.weather.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What clients send to.
struct Door {
    front: UdpSocket,
    server: Arc<Mutex<SocketAddr>>,
    weather: Arc<Weather>,
    random: Random,
    clients: HashMap<SocketAddr, Client>,
}

/// One client: what it sends goes to the server from a socket of its own, whose thread brings back the answers.
struct Client {
    direction: Direction,
    heard: Arc<Mutex<Instant>>,
    thread: JoinHandle<()>,
}

impl Door {
    fn run(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        while !self.weather.stop.load(Ordering::Relaxed) {
            match self.front.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    if let Some(datagram) = buffer.get(..len) {
                        self.forward(datagram, from);
                    }
                }
                // Quiet, or nobody listened where the last one went.
                Err(_) => self.clients.values_mut().for_each(|client| client.direction.flush()),
            }
        }
        for (_, client) in self.clients.drain() {
            let _ = client.thread.join();
        }
    }

    fn forward(&mut self, datagram: &[u8], from: SocketAddr) {
        let server = *self.server.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.clients.contains_key(&from) {
            self.clients.retain(|_, client| !client.thread.is_finished());
            if self.clients.len() >= CLIENTS_MAX {
                return;
            }
            // Without a socket the datagram is lost, as datagrams may be.
            let Ok(client) = self.meet(from) else { return };
            self.clients.insert(from, client);
        }
        let Some(client) = self.clients.get_mut(&from) else { return };
        *client.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        if client.thread.is_finished() {
            self.clients.remove(&from);
            return;
        }
        client.direction.pass(datagram, server);
    }

    fn meet(&mut self, from: SocketAddr) -> io::Result<Client> {
        let back = UdpSocket::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0))?;
        back.set_read_timeout(Some(QUIET * 10))?;
        let heard = Arc::new(Mutex::new(Instant::now()));
        let direction = |to: &UdpSocket, seed| -> io::Result<Direction> {
            let weather = self.weather.clone();
            Ok(Direction { to: to.try_clone()?, weather, random: Random::new(seed), late: VecDeque::new() })
        };
        let forth = direction(&back, self.random.next())?;
        let mut again = direction(&self.front, self.random.next())?;
        let (last, weather) = (heard.clone(), self.weather.clone());
        let thread = std::thread::Builder::new().name("relay back".to_owned()).spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while !weather.stop.load(Ordering::Relaxed) {
                match back.recv_from(&mut buffer) {
                    Ok((len, _)) => again.pass(buffer.get(..len).unwrap_or_default(), from),
                    Err(_) => {
                        again.flush();
                        if last.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > FORGET {
                            return;
                        }
                    }
                }
            }
        })?;
        Ok(Client { direction: forth, heard, thread })
    }
}

/// One direction of one client.
struct Direction {
    to: UdpSocket,
    weather: Arc<Weather>,
    random: Random,
    late: VecDeque<(Vec<u8>, SocketAddr, usize)>,
}

impl Direction {
    fn pass(&mut self, datagram: &[u8], to: SocketAddr) {
        let weather = self.weather.clone();
        if weather.hits(&weather.lost, &mut self.random) {
        } else if weather.hits(&weather.late, &mut self.random) {
            self.late.push_back((datagram.to_vec(), to, LATE_BY));
            return;
        } else {
            self.send(datagram, to);
            if weather.hits(&weather.repeated, &mut self.random) {
                self.send(datagram, to);
            }
        }
        for (.., datagrams_left) in &mut self.late {
            *datagrams_left = datagrams_left.saturating_sub(1);
        }
        while self.late.front().is_some_and(|(.., datagrams_left)| *datagrams_left == 0) {
            if let Some((datagram, to, _)) = self.late.pop_front() {
                self.send(&datagram, to);
            }
        }
    }

    /// Nothing comes: late ones are not to be late for ever.
    fn flush(&mut self) {
        while let Some((datagram, to, _)) = self.late.pop_front() {
            self.send(&datagram, to);
        }
    }

    fn send(&self, datagram: &[u8], to: SocketAddr) {
        // One that does not go is lost.
        let _ = self.to.send_to(datagram, to);
    }
}
