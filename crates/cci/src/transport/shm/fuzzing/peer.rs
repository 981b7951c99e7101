//! A peer that has connected by the real handshake and then writes anything: records, words in the middle of both rings, grants,
//! nonsense on the socket. Meanwhile the endpoint uses the connection.

use super::menu::{LENT_SLOT_BYTES, LENT_SLOTS, Menu};
use crate::config::builtin;
use crate::fuzzing::{Script, with_handle};
use crate::transport::shm::offer::Offer;
use crate::transport::shm::scripted::{Joined, ask, confirm};
use crate::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Endpoint, Event, Loan, Loans, MappedMessage, Memory,
    Message, Options, Polled, RegionAddress, RegionHandle, RmaFlags, SendFlags,
};
use cci_memory::bytes::Backing;
use cci_memory::ring::RecordHeader;
use cci_sys::shared_memory::SharedMemory;

const STEPS_MAX: usize = 600;
/// Kinds of records that a script writes without saying the kind itself.
const KINDS: u8 = 18;
/// Received messages and loans that the program keeps at once.
const KEPT_MAX: usize = 8;
const BUFFERS: u32 = 16;
const MEMORY_BYTES: usize = 16 << 10;
/// The only part of the memory that the peer may reach.
const REGION: std::ops::Range<usize> = 4 << 10..12 << 10;

struct Scene {
    server: Endpoint,
    memory: Memory,
    handle: RegionHandle,
    lie: Joined,
    menu: Menu,
    /// What the program has not given back.
    kept: Vec<Kept>,
}

enum Kept {
    Message(Message),
    Mapped(MappedMessage),
    Loan(Loan),
}

/// Connects such a peer, and runs a script with it. Whatever it does, the endpoint and another connection must live, and no byte
/// outside the region may change.
pub fn shm_peer(data: &[u8]) {
    let mut script = Script(data);
    let options =
        Options { recv_buffers: BUFFERS, send_buffers: 16, rma_operations: 16, ..Options::default() };
    let mut server = Endpoint::create(&builtin::shm("shm"), options).unwrap();
    let memory = server.allocate(MEMORY_BYTES).unwrap();
    assert!(memory.write(0, &[0x11; MEMORY_BYTES]));
    let registration = crate::Registration { range: Some(REGION), ..crate::Registration::from(Access::ALL) };
    let handle = server.register(&memory, registration).unwrap();
    let attributes = [Attribute::ReliableOrdered, Attribute::ReliableUnordered, Attribute::Unreliable];
    let attribute = attributes[usize::from(script.byte()) % 3];
    let attacker = ask(&mut server, 1, attribute);
    let lie = confirm(&mut server, attacker);
    let honest = ask(&mut server, 2, Attribute::ReliableOrdered);
    let honest = confirm(&mut server, honest);
    let mut scene = Scene { server, memory, handle, lie, menu: Menu::new(), kept: Vec::new() };
    for _ in 0..STEPS_MAX {
        if script.is_empty() {
            break;
        }
        scene.step(&mut script);
    }
    scene.polls(8);
    assert!(scene.server.is_open(honest.connection), "the honest peer lost its connection");
    scene.server.send(honest.connection, b"well?", 0, SendFlags::SILENT).unwrap();
    let mut bytes = vec![0; MEMORY_BYTES];
    assert!(scene.memory.read(0, &mut bytes));
    let outside = bytes[..REGION.start].iter().chain(&bytes[REGION.end..]);
    assert!(outside.copied().all(|byte| byte == 0x11), "written beside the region");
    let memory = scene.server.counters().memory;
    assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
    scene.kept.clear();
    assert!(scene.server.recv_buffers_free() <= BUFFERS, "more receive buffers than there are");
}

impl Kept {
    /// The program has done with it. All of it can be read to the end.
    fn check(self) {
        let (len, bytes) = match &self {
            Kept::Message(message) => (message.len(), message.to_vec()),
            Kept::Mapped(message) => (message.len(), message.to_vec()),
            Kept::Loan(loan) => (loan.len(), loan.to_vec()),
        };
        assert_eq!(bytes.len(), len);
    }
}

impl Scene {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 20 {
            0..=4 => self.record(script),
            5 => scribble(&self.lie.theirs, script),
            6 => scribble(&self.lie.again, script),
            7 => self.word_on_the_lifeline(script),
            8 => {
                let len = usize::from(script.byte());
                let _ = self.server.send(self.lie.connection, &[7; 255][..len], 5, SendFlags::NONE);
            }
            9 | 10 => self.operate(script),
            11 | 12 => self.polls(1 + usize::from(script.byte() % 4)),
            13 => {
                while let Ok(Some(_)) = self.lie.consumer.peek() {
                    self.lie.consumer.consume();
                }
                let _ = self.lie.consumer.publish_head();
            }
            14 => {
                let _ = self.lie.consumer.arm();
                let _ = self.lie.peer_bell.signal();
            }
            16 => self.lend(script),
            17 => self.borrow(script),
            18 => self.stream(script),
            19 if !self.kept.is_empty() => {
                let at = usize::from(script.byte()) % self.kept.len();
                self.kept.swap_remove(at).check();
            }
            _ => match script.byte() % 8 {
                0 => self.server.disconnect(self.lie.connection),
                1 => drop(self.server.deregister(&self.handle)),
                2 => self.lie.consumer.stall(),
                3 => {
                    self.lie.consumer.resume();
                }
                // A waiting endpoint looks at everything else in between.
                _ => drop(self.server.wait(Some(std::time::Duration::ZERO))),
            },
        }
    }

    fn polls(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(event) = self.server.next_event() {
                self.handle(event);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::ConnectRequest(request) => drop(self.server.accept(request, 1)),
            Event::Recv(message) => self.keep(Kept::Message(message)),
            Event::Mapped(message) => self.keep(Kept::Mapped(message)),
            _ => {}
        }
    }

    /// Keeps something until the script says that the program has done with it, or there is too much.
    fn keep(&mut self, kept: Kept) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(kept);
        }
    }

    /// The program lends to the peer: it takes a loan, and sends it now, later or never.
    fn lend(&mut self, script: &mut Script<'_>) {
        let (how, len) = (script.byte(), usize::from(script.u16()) % 9000);
        let flags = if how & 1 == 0 { SendFlags::NONE } else { SendFlags::SILENT };
        let waits = self.kept.iter().position(|kept| matches!(kept, Kept::Loan(_))).filter(|_| how & 2 != 0);
        let loan = match waits.map(|at| self.kept.swap_remove(at)) {
            Some(Kept::Loan(loan)) => loan,
            _ => match self.server.loan(self.lie.connection, len) {
                Ok(loan) => loan,
                Err(_) => return,
            },
        };
        if how & 4 != 0 {
            return self.keep(Kept::Loan(loan));
        }
        if let Err(refused) = self.server.send_loan(loan, 6, flags) {
            self.keep(Kept::Loan(refused.loan));
        }
    }

    /// The program borrows from the peer, which offers memory as an honest one does, or almost.
    fn borrow(&mut self, script: &mut Script<'_>) {
        let how = script.byte();
        if how & 1 == 0 {
            let loans = if how & 2 == 0 { Loans::Mapped } else { Loans::Copied };
            let _ = self.server.set_loans(self.lie.connection, loans);
        }
        if how & 4 == 0 {
            let mut offer = Offer { slots: LENT_SLOTS, slot_bytes: LENT_SLOT_BYTES };
            if how & 8 != 0 {
                (offer.slots, offer.slot_bytes) = (script.byte().into(), script.u16().into());
            }
            let _ = self.lie.stream.send(&offer.to_bytes(), &[self.menu.lending()]);
        }
    }

    /// The program sends a burst, or receives by a handler, which keeps some messages.
    fn stream(&mut self, script: &mut Script<'_>) {
        let how = script.byte();
        let count = 1 + usize::from(how >> 2) % 40;
        if how & 1 == 0 {
            let len = usize::from(script.byte()) * if how & 2 == 0 { 1 } else { 32 };
            let message = vec![7; len];
            let messages = vec![&*message; count];
            let _ = self.server.send_burst(self.lie.connection, &messages, 7, SendFlags::NONE);
            return;
        }
        let mut taken = Vec::new();
        self.server.poll(count, |polled| match polled {
            Polled::Message(message) if how & 2 != 0 => taken.push(Event::Recv(message.keep())),
            Polled::Message(message) => drop(message.to_vec()),
            Polled::Event(event) => taken.push(event),
        });
        taken.into_iter().for_each(|event| self.handle(event));
    }

    fn record(&mut self, script: &mut Script<'_>) {
        let how = script.byte();
        let kind = if how & 0x40 == 0 { script.byte() % KINDS } else { script.byte() };
        let conn = if how & 7 == 7 { script.u32() } else { self.lie.conn.index };
        let flags = if how & 0x38 == 0x38 { script.byte() } else { self.lie.conn.generation as u8 };
        let ack =
            if how & 0x80 == 0 { (self.lie.consumer.head() / 64) as u32 } else { script.odd_u64() as u32 };
        let len = usize::from(script.byte()) * 4;
        let payload = with_handle(script.take(len), &self.handle);
        let _ = self.lie.producer.push(RecordHeader { kind, flags, conn, ack }, &[&payload]);
    }

    fn word_on_the_lifeline(&mut self, script: &mut Script<'_>) {
        let fds = self.menu.pick(script);
        let len = usize::from(script.byte());
        let bytes = script.take(len);
        if !bytes.is_empty() {
            let _ = self.lie.stream.send(&with_handle(bytes, &self.handle), &fds);
        }
    }

    fn operate(&mut self, script: &mut Script<'_>) {
        let how = script.byte();
        let mut theirs = [0; RegionHandle::BYTES];
        for (to, from) in theirs.iter_mut().zip(script.take(RegionHandle::BYTES)) {
            *to = *from;
        }
        let (theirs, offset) =
            (RegionAddress::new(RegionHandle::from_bytes(theirs), 0), u64::from(script.u16()));
        let (ours, len) =
            (RegionAddress::new(self.handle, offset % 4096), u64::from(script.u16()) % 4096 + 1);
        let (on, flags) = (self.lie.connection, RmaFlags::NONE);
        let _ = match how % 3 {
            0 => self.server.rma_write(on, ours, theirs, len, 1, flags),
            1 => self.server.rma_read(on, ours, theirs, len, 2, flags),
            _ => {
                let kind = AtomicKind::ALL[usize::from(how >> 2) % AtomicKind::ALL.len()];
                let atomic = Atomic { kind, width: AtomicWidth::Eight, operand: 1, compare: 0 };
                let result = Some(RegionAddress::new(self.handle, 8 * (offset % 64)));
                self.server.atomic(on, atomic, theirs, result, 3, flags)
            }
        };
    }
}

/// Changes a word anywhere in a ring, as no honest peer would.
fn scribble(ring: &SharedMemory, script: &mut Script<'_>) {
    let how = script.byte();
    // The control lines are at the beginning, so writes go there more often.
    let at = if how & 1 == 0 { usize::from(script.byte()) } else { usize::from(script.u16()) };
    let at = at * 8 % ring.len();
    let mut word = [0; 8];
    assert!(ring.bytes().read(at, &mut word));
    let value = match how >> 1 & 3 {
        0 => script.odd_u64(),
        1 => u64::from_le_bytes(word) ^ 1 << (script.byte() % 64),
        2 => u64::from_le_bytes(word).wrapping_add(script.odd_u64()),
        _ => {
            let mut other = [0; 8];
            assert!(ring.bytes().read(usize::from(script.u16()) * 8 % ring.len(), &mut other));
            u64::from_le_bytes(other)
        }
    };
    assert!(ring.bytes().write(at, &value.to_le_bytes()));
}
