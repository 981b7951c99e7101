//! What operations say of themselves is true, whatever happens meanwhile: memory that goes, buffers that lack, networks
//! that lose and fall silent, sides that close.

use super::rma::KEY;
use super::*;

const SEEDS: u64 = 300;

/// What the region of an operation holds where its data comes from.
fn pattern(operation: usize, len: usize) -> Vec<u8> {
    (0..len).map(|byte| (operation.wrapping_mul(31) + byte.wrapping_mul(7) + byte / 251) as u8 | 1).collect()
}

#[derive(Clone)]
struct Asked {
    end: usize,
    kind: RmaKind,
    len: usize,
    note: bool,
    /// The handle is not what the peer gave.
    forged: bool,
}

struct Truth {
    net: Net,
    keys: [ConnKey; 2],
    asked: Vec<Asked>,
    sends: Vec<usize>,
    checked: [usize; 2],
}

/// The number that a message begins with; those of operations and of sends differ in the highest bit.
const SEND: u64 = 1 << 63;

impl Truth {
    fn new(seed: u64) -> Truth {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut pick = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let config = |memory: u64, datagram_bytes_max: u16| Config {
            memory_bytes_max: memory << 10,
            datagram_bytes_max,
            sends_max: 512,
            operations_max: 300,
            first_seq: Some(u32::MAX - 30),
            send_timeout_ns: SECOND,
            ..Config::default()
        };
        let sizes = [1152, 1472, 8952];
        let mut one = || config(500 + pick(3) * 500, sizes[pick(3) as usize]);
        let configs = vec![one(), one()];
        let mut net = Net::new(seed, configs);
        let attribute =
            if seed.is_multiple_of(2) { Attribute::ReliableOrdered } else { Attribute::ReliableUnordered };
        let (client, server) = net.join(attribute);
        net.apps.iter_mut().for_each(|app| app.one_each = true);
        Truth { net, keys: [client, server], asked: Vec::new(), sends: Vec::new(), checked: [0, 0] }
    }

    fn ask(&mut self, end: usize) {
        let net = &mut self.net;
        let sizes = [8, 90, 700, 3000, 20_000, 120_000];
        let size = sizes[net.random(sizes.len() as u64) as usize];
        let len = 1 + net.random(size) as usize;
        let kind = if net.random(3) == 0 { RmaKind::Read } else { RmaKind::Write };
        let (note, fence, cut) = (net.random(2) == 0, net.random(6) == 0, net.random(2) == 0);
        let operation = self.asked.len();
        let forged = net.random(12) == 0;
        let from = if kind == RmaKind::Write { end } else { 1 - end };
        for side in 0..2 {
            let bytes = if side == from { pattern(operation, len) } else { vec![0; len] };
            let region = Region { bytes, key: KEY, readable: true, writable: true, ..Region::default() };
            let mut after = Vec::new();
            if fence && side != end {
                let writes = |asked: &Asked| asked.end == end && asked.kind == RmaKind::Write;
                after = (0..operation).filter(|earlier| writes(&self.asked[*earlier])).collect();
            }
            net.apps[side].regions.push(Region { complete: pattern(operation, len), after, ..region });
        }
        let at = |offset: usize| RemoteAddress { region: operation as u64, key: KEY, offset: offset as u64 };
        let key = if forged { KEY ^ 1 << 40 } else { KEY };
        let segment = |start: usize, len: usize| RmaSegment {
            local: at(start),
            remote: RemoteAddress { key, ..at(start) },
            len_bytes: len as u64,
        };
        let segments = match len / 3 {
            third @ 1.. if cut => vec![segment(0, third), segment(third, len - third)],
            _ => vec![segment(0, len)],
        };
        let more = net.random(900) as usize;
        let message = [&(operation as u64).to_le_bytes()[..], &vec![7; more]].concat();
        let message = note.then_some(&message[..]);
        let asked =
            net.ends[end].rma(net.now, self.keys[end], kind, &segments, message, fence, operation as u64);
        if asked.is_ok() {
            self.asked.push(Asked { end, kind, len, note, forged });
        } else {
            net.apps.iter_mut().for_each(|app| drop(app.regions.pop()));
        }
    }

    fn send(&mut self, end: usize) {
        let context = self.sends.len() as u64 | SEND;
        let more = self.net.random(900) as usize;
        let payload = [&context.to_le_bytes()[..], &vec![7; more]].concat();
        if self.net.ends[end].send(self.net.now, self.keys[end], &[&payload], context, false).is_ok() {
            self.sends.push(end);
        }
    }

    /// Time passes; each message that came is true.
    fn run(&mut self, ns: u64) {
        let until = self.net.now.plus(ns);
        loop {
            let more = self.net.step(until);
            for end in 0..2 {
                while let Some((_, message)) = self.net.apps[end].messages.get(self.checked[end]) {
                    let number = u64::from_le_bytes(message[..8].try_into().unwrap());
                    self.checked[end] += 1;
                    if number & SEND != 0 {
                        continue;
                    }
                    let Asked { end: from, kind, len, .. } = self.asked[number as usize];
                    assert_eq!(from, 1 - end);
                    let peer = if kind == RmaKind::Write { end } else { from };
                    let is = &self.net.apps[peer].regions[number as usize].bytes;
                    assert!(
                        *is == pattern(number as usize, len),
                        "a message came for data that is not there: {number} {kind:?}"
                    );
                }
            }
            if !more {
                return;
            }
        }
    }

    fn check(&mut self, seed: u64) {
        let mut reported = [Vec::new(), Vec::new()];
        for (app, reported) in self.net.apps.iter().zip(&mut reported) {
            assert_eq!(app.wrong, Vec::<String>::new(), "seed {seed}");
            for (_, message) in &app.messages {
                reported.push(u64::from_le_bytes(message[..8].try_into().unwrap()));
            }
            let mut once = reported.clone();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), reported.len(), "seed {seed}: a message came twice");
        }
        let mut ended = vec![None; self.asked.len()];
        for end in 0..2 {
            for (operation, status) in self.net.apps[end].operations() {
                assert!(
                    ended[operation as usize].replace(status).is_none(),
                    "seed {seed}: {operation} ended twice"
                );
            }
            for (context, status) in self.net.apps[end].statuses() {
                let came = reported[1 - end].contains(&context);
                assert!(status != Status::ReceiverNotReady || !came, "seed {seed}: {context:x} came");
            }
        }
        for (operation, (asked, ended)) in self.asked.iter().zip(ended).enumerate() {
            let Some(status) = ended else { panic!("seed {seed}: {operation} did not end") };
            let Asked { end, kind, len, note, forged } = *asked;
            let peer = if kind == RmaKind::Write { 1 - end } else { end };
            let is = self.net.apps[peer].regions[operation].bytes == pattern(operation, len);
            let came = reported[1 - end].contains(&(operation as u64));
            assert!(is || status != Status::Success, "seed {seed}: {operation} {kind:?} is not there");
            assert!((note && !forged) || !came);
            assert!(!forged || status != Status::Success);
            // Others may have been given up, and what comes after did not wait for them.
            let unfenced = self.net.apps[1 - end].unfenced.contains(&operation);
            assert!(!unfenced || status != Status::Success, "seed {seed}: {operation} came behind a fence");
            // A write whose memory goes here after all has arrived, but before that is known, ends likewise.
            let unknown = status == Status::RmaHandle && self.net.apps[end].regions[operation].gone;
            if matches!(status, Status::ReceiverNotReady | Status::RmaHandle) && !unknown {
                assert!(!came, "seed {seed}: {operation} {kind:?} {status:?}, and its message came");
            }
        }
    }
}

fn play(seed: u64) {
    let mut truth = Truth::new(seed);
    let calls = 30 + truth.net.random(150);
    let closes = truth.net.random(3) == 0;
    for call in 0..calls {
        let end = truth.net.random(2) as usize;
        match truth.net.random(16) {
            0 => {
                let count = truth.net.random(4) as usize;
                truth.net.apps[end].buffers = if count == 3 { None } else { Some(count) };
                let now = truth.net.now;
                truth.net.ends[end].buffers_returned(now, &mut truth.net.apps[end]);
            }
            1 if !truth.asked.is_empty() => {
                let which = truth.net.random(truth.asked.len() as u64) as usize;
                truth.net.apps[end].regions[which].gone = true;
            }
            1 | 2 => {
                let ns = truth.net.random(300_000);
                truth.run(ns);
            }
            3 => {
                let ns = truth.net.random(1500) * MS;
                truth.run(ns);
            }
            4 if truth.net.random(3) == 0 => truth.net.space = 1 + truth.net.random(64) as usize,
            4 => truth.net.cut = truth.net.random(5) == 0,
            5 => truth.net.loss_pct = truth.net.random(4) * 12,
            6 => truth.net.jitter_ns = truth.net.random(3) * 200_000,
            7 if truth.net.random(6) == 0 => {
                let bytes = 1152 + truth.net.random(40) as u16 * 8;
                let now = truth.net.now;
                truth.net.ends[end].path_mtu_changed(now, address(1 - end), bytes);
            }
            8 if closes && call > calls / 2 => {
                let now = truth.net.now;
                let _ = truth.net.ends[end].disconnect(now, truth.keys[end]);
            }
            7..10 => (0..truth.net.random(6)).for_each(|_| truth.send(end)),
            _ => (0..truth.net.random(12)).for_each(|_| truth.ask(end)),
        }
    }
    (truth.net.cut, truth.net.loss_pct) = (false, 0);
    for end in [0, 1] {
        truth.net.apps[end].buffers = None;
        let now = truth.net.now;
        truth.net.ends[end].buffers_returned(now, &mut truth.net.apps[end]);
    }
    truth.run(5 * SECOND);
    for end in [0, 1] {
        let _ = truth.net.ends[end].disconnect(truth.net.now, truth.keys[end]);
    }
    truth.run(30 * SECOND);
    truth.check(seed);
    truth.net.assert_clean();
}

#[test]
fn outcomes_of_operations_are_true() {
    for seed in 0..SEEDS {
        play(seed);
    }
}

#[test]
fn a_side_that_closes_does_not_tell_of_data_that_is_not_there() {
    // The program hangs up at once: then the target learns that all is over before the gap is filled.
    let mut failed = 0;
    for attribute in [Attribute::ReliableOrdered, Attribute::ReliableUnordered] {
        for seed in 0..150 {
            let (mut net, client, _) = super::rma::pair(seed, attribute, 20_000);
            net.loss_pct = 40;
            net.operate(
                client,
                RmaKind::Write,
                &[super::rma::segment(0, 0, 12_000)],
                Some(b"done"),
                false,
                1,
            );
            net.run(11_000);
            net.apps[0].regions[0].gone = true;
            net.finish(1);
            failed += u32::from(net.apps[0].operations()[0].1 == Status::RmaHandle);
            net.ends[0].disconnect(net.now, client).unwrap();
            net.run(SECOND);
            if !net.apps[1].messages.is_empty() {
                assert!(net.region(0)[..12_000] == net.region(1)[..12_000], "{attribute:?} seed {seed}");
            }
        }
    }
    assert!(failed > 100, "{failed}");
}
