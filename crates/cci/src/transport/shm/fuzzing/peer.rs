//! A peer that has connected by the real handshake and then writes anything: records, words in the middle of both rings, grants,
//! nonsense on the socket. Meanwhile the endpoint uses the connection.

use super::menu::Menu;
use crate::config::builtin;
use crate::fuzzing::{Script, with_handle};
use crate::transport::shm::scripted::{Joined, ask, confirm};
use crate::{
    Access, Atomic, AtomicKind, AtomicWidth, Attribute, Endpoint, Event, Memory, Options, RegionAddress,
    RegionHandle, RmaFlags, SendFlags,
};
use cci_memory::bytes::Backing;
use cci_memory::ring::RecordHeader;
use cci_sys::shared_memory::SharedMemory;

const STEPS_MAX: usize = 600;
const MEMORY_BYTES: usize = 16 << 10;
/// The only part of the memory that the peer may reach.
const REGION: std::ops::Range<usize> = 4 << 10..12 << 10;

struct Scene {
    server: Endpoint,
    memory: Memory,
    handle: RegionHandle,
    lie: Joined,
    menu: Menu,
}

/// Connects such a peer, and runs a script with it. Whatever it does, the endpoint and another connection must live, and no byte
/// outside the region may change.
pub fn shm_peer(data: &[u8]) {
    let mut script = Script(data);
    let options = Options { recv_buffers: 16, send_buffers: 16, rma_operations: 16, ..Options::default() };
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
    let mut scene = Scene { server, memory, handle, lie, menu: Menu::new() };
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
}

impl Scene {
    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 16 {
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
            if let Some(Event::ConnectRequest(request)) = self.server.next_event() {
                let _ = self.server.accept(request, 1);
            }
        }
    }

    fn record(&mut self, script: &mut Script<'_>) {
        let how = script.byte();
        let kind = if how & 0x40 == 0 { script.byte() % 14 } else { script.byte() };
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
