//! A peer that lies: an honest endpoint, and between it and the world somebody who edits what it sends (UDP, in the clear).

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What is said that is not so; each from when the connection is open.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Receiver not ready, for ever.
    NotReady,
    /// Nothing may be in flight.
    NoWindow,
    /// Any amount may be in flight.
    HugeWindow,
    /// Bundles came that were never sent.
    AckUnsent,
    /// All that was ever sent has come; nothing of it is passed on.
    Optimistic,
    /// Every bundle has come, but for the first.
    AckAllButOne,
    /// The round trip took no time, or an age.
    Echo,
    /// A new receiver-not-ready epoch with each datagram: send all of it again.
    Epoch,
    /// The generation before.
    Stale,
    /// Another nonce with each datagram.
    Guess,
    /// Each datagram eight times.
    Repeat,
    /// Something else in each word of the header.
    Anything,
}

pub const LIES: [Lie; 12] = [
    Lie::NotReady,
    Lie::NoWindow,
    Lie::HugeWindow,
    Lie::AckUnsent,
    Lie::Optimistic,
    Lie::AckAllButOne,
    Lie::Echo,
    Lie::Epoch,
    Lie::Stale,
    Lie::Guess,
    Lie::Repeat,
    Lie::Anything,
];

/// DATA; from here on, datagrams of a connection.
const DATA: u8 = 8;
/// How many datagrams of a connection pass unedited: what it takes to introduce oneself.
const TRUE_AT_FIRST: u32 = 12;

/// Where an endpoint is to connect, so that it lies to `server`. Runs until the process ends.
pub fn between(server: SocketAddr, lie: Lie) -> SocketAddr {
    let front = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let back = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    for socket in [&front, &back] {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    }
    let at = front.local_addr().unwrap();
    // The port of the endpoint behind us, and the newest bundle that the server has sent.
    let (client, newest) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    std::thread::spawn({
        let (front, back, client, newest) = (front.clone(), back.clone(), client.clone(), newest.clone());
        move || {
            let mut liar = Liar { lie, newest, told: 0, noise: 0x9e37_79b9_7f4a_7c15 };
            let mut buffer = [0; 1 << 16];
            loop {
                let Some((len, from)) = receive(&front, &mut buffer) else { continue };
                client.store(from.port().into(), Ordering::Relaxed);
                for _ in 0..liar.edit(&mut buffer[..len]) {
                    let _ = back.send_to(&buffer[..len], server);
                }
            }
        }
    });
    std::thread::spawn(move || {
        let mut buffer = [0; 1 << 16];
        let mut passed = 0;
        loop {
            let Some((len, _)) = receive(&back, &mut buffer) else { continue };
            let datagram = &buffer[..len];
            let is_data = datagram[0] & 15 == DATA;
            if is_data {
                let seq = u32::from_le_bytes(datagram[24..28].try_into().unwrap());
                newest.store(seq.wrapping_add(1), Ordering::Relaxed);
                passed += 1;
            }
            // An optimist needs no data; but has to be woken to acknowledge.
            if lie == Lie::Optimistic && is_data && passed > TRUE_AT_FIRST && !passed.is_multiple_of(8) {
                continue;
            }
            let to = (Ipv4Addr::LOCALHOST, client.load(Ordering::Relaxed) as u16);
            let _ = front.send_to(datagram, to);
        }
    });
    at
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    match socket.recv_from(buffer) {
        Ok((len, from)) => (len > 0).then_some((len, from)),
        Err(error) => {
            let quiet = matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused
            );
            assert!(quiet, "{error}");
            None
        }
    }
}

struct Liar {
    lie: Lie,
    newest: Arc<AtomicU32>,
    told: u32,
    noise: u64,
}

impl Liar {
    /// How many times it is sent.
    fn edit(&mut self, datagram: &mut [u8]) -> u32 {
        if datagram[0] & 15 < DATA || datagram.len() < 48 {
            return 1;
        }
        self.told += 1;
        if self.told <= TRUE_AT_FIRST {
            return 1;
        }
        let noise = self.noise();
        let mut put = |at: usize, bytes: &[u8]| datagram[at..at + bytes.len()].copy_from_slice(bytes);
        let newest = self.newest.load(Ordering::Relaxed);
        match self.lie {
            Lie::NotReady => datagram[1] |= 1,
            Lie::NoWindow => put(40, &[0; 2]),
            Lie::HugeWindow => put(40, &[0xff; 2]),
            Lie::AckUnsent => put(28, &newest.wrapping_add(1 + noise as u32 % 100_000).to_le_bytes()),
            Lie::Optimistic => put(28, &newest.to_le_bytes()),
            // The words, where there are some.
            Lie::AckAllButOne => {
                let words = usize::from(datagram[2]).min(4) * 8;
                let end = (48 + words).min(datagram.len());
                datagram[48..end].fill(0xff);
            }
            Lie::Echo => put(36, &(noise as u32).to_le_bytes()),
            Lie::Epoch => put(44, &(self.told as u16).to_le_bytes()),
            Lie::Stale => {
                let generation = u32::from_le_bytes(datagram[8..12].try_into().unwrap());
                datagram[8..12].copy_from_slice(&generation.wrapping_sub(1).to_le_bytes());
            }
            Lie::Guess => put(16, &noise.to_le_bytes()),
            Lie::Repeat => return 8,
            Lie::Anything => {
                let at = [1, 2, 24, 28, 32, 36, 40, 42, 44, 46][noise as usize % 10];
                put(at, &(noise >> 32).to_le_bytes()[..1 + (noise >> 16) as usize % 2]);
            }
        }
        1
    }

    fn noise(&mut self) -> u64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        self.noise
    }
}
