//! A ring whose memory a peer writes what it likes to, as any bytes say. Of the test `corpora`, and of `fuzz/`.

use super::Memory;
use cci_memory::atomic::Ordering;
use cci_memory::ring::{Line, RecordHeader};

const DATA_BYTES: usize = 1024;
const PAYLOAD_BYTES_MAX: u32 = 300;
const STEPS_MAX: usize = 2_000;

/// What is missing at the end is zeros.
struct Script<'a>(std::slice::Iter<'a, u8>);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
}

/// Both ends are used while words of the memory change between any two calls.
pub fn ring(data: &[u8]) {
    let mut script = Script(data.iter());
    let memory = Memory::new(DATA_BYTES);
    let (mut consumer, mut producer) =
        (memory.consumer(PAYLOAD_BYTES_MAX), memory.producer(PAYLOAD_BYTES_MAX));
    let words = memory.len_bytes() / 8;
    let mut to = [0; PAYLOAD_BYTES_MAX as usize];
    let mut spans = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(&how) = script.0.next() else { break };
        match how % 16 {
            // The peer: a word anywhere.
            0 | 1 => {
                let at = usize::from(u16::from_le_bytes([script.byte(), script.byte()])) % words;
                memory.word(8 * at).store(script.word(), Ordering::Relaxed);
            }
            2 | 3 => {
                let at = usize::from(u16::from_le_bytes([script.byte(), script.byte()])) % words;
                memory.word(8 * at).fetch_xor(1 << (script.byte() % 64), Ordering::Relaxed);
            }
            // A word that was right elsewhere.
            4 => {
                let from = usize::from(script.byte()) * 8 % memory.len_bytes();
                let at = usize::from(script.byte()) * 8 % memory.len_bytes();
                memory.word(at).store(memory.word(from).load(Ordering::Relaxed), Ordering::Relaxed);
            }
            5 => {
                let len = usize::from(script.byte()) * 60 / 255;
                let header = RecordHeader { kind: script.byte(), flags: how, conn: 7, ack: 9 };
                let messages = [&[0xA5; 60][..len]; 5];
                let pushed = match len {
                    0..=48 => producer.push_lines(header, &messages, 50, 99),
                    _ => producer.push_alike(header, &messages, 60, 99),
                };
                if let Ok(Some((mut span, _))) = pushed {
                    spans.extend(std::iter::from_fn(|| span.pop()));
                }
            }
            6 | 7 => {
                let len = usize::from(script.byte()) * 300 / 255;
                let header = RecordHeader { kind: script.byte(), flags: how, conn: 7, ack: 9 };
                if let Ok(span) = producer.push(header, &[&[0xA5; 300][..len]]) {
                    spans.push(span);
                }
            }
            8 => {
                if let Ok(Some(record)) = consumer.peek() {
                    let like = record.like(u32::from(how));
                    let mut lines = vec![Line::EMPTY; 3];
                    let (taken, _) = consumer.take_lines(like, &mut lines);
                    assert!(lines[..taken].iter().all(|line| line.bytes().len() <= usize::from(how).min(48)));
                }
            }
            9 if consumer.peek_line(how).is_some() => {
                let Some((_, len_bytes)) = consumer.peek_line(how) else { return };
                assert!(len_bytes <= PAYLOAD_BYTES_MAX.min(48));
                consumer.take_line(len_bytes, &mut [0; 48]);
            }
            9..=11 => {
                if let Ok(Some(record)) = consumer.peek() {
                    assert!(record.len_bytes() <= PAYLOAD_BYTES_MAX);
                    assert_eq!(record.copy_to(&mut to), record.len_bytes() as usize);
                    consumer.consume();
                }
            }
            12 => {
                let _ = consumer.publish_head();
            }
            13 => {
                consumer.stall();
                if let (Ok(Some(mut guard)), Some(span)) = (producer.try_cancel(), spans.pop()) {
                    guard.void(span);
                }
                consumer.resume();
            }
            14 => {
                let _ = (consumer.arm(), producer.needs_wake());
                consumer.disarm();
            }
            _ => {
                let _ = producer.consumed();
            }
        }
    }
}
