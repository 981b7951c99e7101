//! What keeps others from reading and forging: files of keys and certificates, and associations between two endpoints with
//! somebody on the way who keeps, repeats, changes and makes up datagrams.

use cci_secure::limits::{HEADER_BYTES, TAG_BYTES};
use cci_secure::{Associations, Authorisation, Config, Credentials, Names, Opened, Route, UpdateLimits};
use std::collections::{HashSet, VecDeque};

/// So many at most, or one input would take a second.
const STEPS_MAX: usize = 300;
/// Genuine datagrams that whoever is on the way has kept.
const KEPT: usize = 32;
/// Nobody else has it.
const PSK: &[u8] = b"pair = 0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20\n";

/// Files of keys, three texts of certificates with a byte of 0xff between them, and lists of names.
pub fn secure_files(data: &[u8]) {
    let has_text = |error: &dyn std::fmt::Display| assert!(!error.to_string().is_empty());
    match Credentials::psk(data) {
        Ok(keys) => assert!(!keys.own_name().is_empty()),
        Err(error) => has_text(&error),
    }
    let mut texts = data.splitn(3, |byte| *byte == 0xff);
    let mut next = || texts.next().unwrap_or_default();
    if let Err(error) = Credentials::certificates(next(), next(), next()) {
        has_text(&error);
    }
    if let Some(Err(error)) = std::str::from_utf8(data).ok().map(Names::parse) {
        has_text(&error);
    }
}

struct Exchange {
    ends: [Associations<u32>; 2],
    /// Target and bytes.
    flying: VecDeque<(usize, Vec<u8>)>,
    kept: VecDeque<(usize, Vec<u8>)>,
    /// What was sent and may be received, once.
    sent: HashSet<(usize, Vec<u8>)>,
    count: u64,
    now_ns: u64,
}

/// Nothing arrives that was not sent, and nothing twice.
pub fn secure_datagrams(data: &[u8]) {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let end = || {
        let config = Config {
            credentials: Credentials::psk(PSK).expect("a key"),
            authorisation: Authorisation::default(),
            associations_max: 4,
            handshakes_max: 3,
            datagram_bytes_max: 1400,
            update: UpdateLimits::default(),
            host_of: |address| *address,
        };
        Associations::new(config, 0).expect("there is memory")
    };
    let mut exchange = Exchange {
        ends: [end(), end()],
        flying: VecDeque::new(),
        kept: VecDeque::new(),
        sent: HashSet::new(),
        count: 0,
        now_ns: 1,
    };
    if how & 1 == 0 {
        exchange.send(0);
        (0..8).for_each(|_| exchange.honest());
    }
    for _ in 0..STEPS_MAX {
        let Some((&[how, at, len], behind)) = rest.split_first_chunk::<3>() else { break };
        let (bytes, behind) = behind.split_at(usize::from(len).min(behind.len()));
        rest = behind;
        exchange.step(how, usize::from(at), bytes);
    }
    // Whatever was done: two who can hear each other get through in the end.
    for _ in 0..400 {
        exchange.pass(500_000_000);
        exchange.honest();
    }
    let before = exchange.sent.len();
    exchange.send(0);
    for _ in 0..400 {
        exchange.pass(500_000_000);
        exchange.honest();
    }
    assert!(exchange.sent.len() <= before, "nothing gets through: {:?}", exchange.ends[0].counters());
}

impl Exchange {
    fn step(&mut self, how: u8, at: usize, bytes: &[u8]) {
        let node = usize::from(how & 1);
        match how >> 1 & 7 {
            0 => self.deliver(node, bytes.to_vec()),
            1 => self.send(node),
            2 => self.honest(),
            3 => self.pass(1 << (at % 36)),
            // Lost.
            4 => drop(self.flying.pop_front()),
            // Again, to the same or to the other.
            5 => {
                if let Some((target, bytes)) = self.kept.get(at % KEPT).cloned() {
                    self.deliver(if how & 0x80 == 0 { target } else { 1 - target }, bytes);
                }
            }
            _ => {
                let Some((target, mut changed)) = self.kept.get(at % KEPT).cloned() else { return };
                // Where the first byte says.
                let (&from, masks) = bytes.split_first().unwrap_or((&0, &[]));
                for (byte, mask) in changed.iter_mut().skip(usize::from(from)).zip(masks) {
                    *byte ^= mask;
                }
                if how & 0x40 != 0 {
                    changed.truncate(usize::from(from).max(8));
                }
                self.deliver(target, changed);
            }
        }
    }

    fn send(&mut self, node: usize) {
        self.count += 1;
        let body = self.count.to_le_bytes().repeat(4);
        let to = 1 - node;
        match self.ends[node].route(to as u32) {
            Route::Wait => self.ends[node].hold(to as u32, &body, self.now_ns),
            Route::Ready(by) => {
                let mut datagram = vec![0; HEADER_BYTES];
                datagram.extend_from_slice(&body);
                datagram.extend_from_slice(&[0; TAG_BYTES]);
                if self.ends[node].seal(by, &mut datagram, self.now_ns) {
                    self.fly(to, datagram);
                }
            }
        }
        self.sent.insert((to, body));
        self.flush();
    }

    fn fly(&mut self, to: usize, datagram: Vec<u8>) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back((to, datagram.clone()));
        self.flying.push_back((to, datagram));
    }

    fn flush(&mut self) {
        for node in 0..2 {
            let mut out = [0; 1500];
            while let Some((to, len)) = self.ends[node].poll_transmit(self.now_ns, &mut out) {
                self.fly(to as usize & 1, out[..len].to_vec());
            }
            assert!(self.ends[node].memory_bytes() < 1 << 20, "{:?}", self.ends[node].counters());
        }
    }

    fn deliver(&mut self, target: usize, mut bytes: Vec<u8>) {
        let from = 1 - target;
        if let Opened::Datagram { body, .. } = self.ends[target].open(from as u32, &mut bytes, self.now_ns) {
            assert!(self.sent.remove(&(target, body.to_vec())), "forged or repeated: {body:?}");
        }
        self.flush();
    }

    /// Everything under way arrives.
    fn honest(&mut self) {
        for (target, bytes) in std::mem::take(&mut self.flying) {
            self.deliver(target, bytes);
        }
    }

    fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
        for end in &mut self.ends {
            if end.next_deadline_ns().is_some_and(|due| due <= self.now_ns) {
                end.handle_timeout(self.now_ns);
            }
        }
        self.flush();
    }
}
