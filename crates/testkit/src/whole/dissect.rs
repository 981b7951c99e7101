//! The little that the simulator knows of datagrams' contents: enough for traces and forgeries, written from
//! `docs/wire.md` and not from the protocol's own parser.

use crate::rng::Rng;

const TYPES: [&str; 16] = [
    "?0",
    "HELLO",
    "RETRY",
    "CONNECT",
    "ACCEPT",
    "REJECT",
    "VERSION",
    "RESET",
    "DATA",
    "ACK",
    "PING",
    "CLOSE",
    "CLOSE_ACK",
    "GROUP",
    "?14",
    "PATH",
];

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let field = bytes.get(at..at + len).unwrap_or_default();
    field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// One line about a datagram, for traces.
pub(crate) fn line(bytes: &[u8]) -> String {
    let kind = number(bytes, 0, 1) as usize & 15;
    let name = TYPES.get(kind).copied().unwrap_or_default();
    let to = format!("{}.{} nonce {:016x}", number(bytes, 4, 4), number(bytes, 8, 4), number(bytes, 16, 8));
    if kind < 8 {
        return format!("{name} to {to}");
    }
    format!(
        "{name} to {to} flags {} seq {:x} ack {:x} epoch {} takes {} window {} time {} echo {} body {} sack {:x}{}",
        number(bytes, 1, 1),
        number(bytes, 24, 4),
        number(bytes, 28, 4),
        number(bytes, 42, 2),
        number(bytes, 44, 2),
        number(bytes, 40, 2),
        number(bytes, 32, 4),
        number(bytes, 36, 4),
        number(bytes, 46, 2) * 8,
        if number(bytes, 2, 1) > 0 { number(bytes, 48, 8) } else { 0 },
        records(bytes.get(48 + 8 * number(bytes, 2, 1) as usize..).unwrap_or_default())
    )
}

/// What the records of a body are: kind, flags, slot and length; equal ones in a row once.
fn records(mut body: &[u8]) -> String {
    const KINDS: [&str; 8] = ["void", "message", "WRITE", "READ", "DATA", "ATOMIC", "NOTIFY", "DONE"];
    let (mut text, mut last, mut times) = (String::new(), String::new(), 0);
    let mut add = |record: String| {
        if record == last {
            times += 1;
            return;
        }
        if times > 1 {
            text += &format!(" x{times}");
        }
        text += &record;
        (last, times) = (record, 1);
    };
    while body.len() >= 8 {
        let (len, kind, flags, slot) =
            (number(body, 0, 2), number(body, 2, 1), number(body, 3, 1), number(body, 4, 2));
        let kind = KINDS.get(kind as usize).copied().unwrap_or("?");
        add(match flags {
            0 => format!(" {kind} {slot}:{len}"),
            flags => format!(" {kind}/{flags} {slot}:{len}"),
        });
        body = body.get(8 + len.next_multiple_of(8) as usize..).unwrap_or_default();
    }
    add(String::new());
    text
}

/// The first byte of a datagram of a random type.
pub(crate) fn first_byte(rng: &mut Rng) -> u8 {
    cci_proto::limits::VERSION << 4 | rng.below(16) as u8
}

/// Changes one bit of what proves that a datagram belongs to a connection: index, generation, nonce. Of a handshake only the
/// nonce: the rest of it proves nothing, and its cookie would still be good.
pub(crate) fn spoil_identity(bytes: &mut [u8], rng: &mut Rng) {
    let handshake = number(bytes, 0, 1) & 15 < 8;
    let bit = if handshake { 64 + rng.below(64) } else { rng.below(128) } as usize;
    let index = if bit < 64 { 4 + bit / 8 } else { 8 + bit / 8 };
    if let Some(byte) = bytes.get_mut(index) {
        *byte ^= 1 << (bit % 8);
    }
}

/// Makes a datagram say something new: whoever takes it in spite of its spoilt identity will show it. Data gets another
/// number and other contents, an acknowledgement becomes the end of the connection.
pub(crate) fn make_harmful(bytes: &mut [u8], rng: &mut Rng) {
    match number(bytes, 0, 1) & 15 {
        8 => {
            let seq = (number(bytes, 24, 4) as u32).wrapping_add(rng.range(1, 40) as u32);
            bytes[24..28].copy_from_slice(&seq.to_le_bytes());
            if let Some(rest) = bytes.get_mut(64..) {
                rng.fill(rest);
            }
        }
        9 => bytes[0] = bytes[0] & 0xf0 | 11,
        _ => {}
    }
}
