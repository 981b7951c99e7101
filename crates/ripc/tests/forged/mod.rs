//! Hellos and frames as a liar writes them, by an encoder of the tests' own.
#![allow(dead_code, reason = "each test file uses its part")]

/// The hello of a partner that says it is `from`.
pub fn hello(from: &str, to: &str, is_listed: bool) -> Vec<u8> {
    hello_of(666, from, to, is_listed)
}

/// The hello of one that says, too, which instance it is.
pub fn hello_of(instance: u64, from: &str, to: &str, is_listed: bool) -> Vec<u8> {
    let mut bytes = b"RIPC\x01".to_vec();
    bytes.push(u8::from(is_listed));
    bytes.extend_from_slice(&instance.to_le_bytes());
    for name in [from, to] {
        bytes.push(name.len() as u8);
        bytes.extend_from_slice(name.as_bytes());
    }
    bytes
}

/// A frame: its kind, numbers, short items and long ones.
pub fn frame(kind: u8, numbers: [u64; 3], items: &[&[u8]], long_items: &[[u8; 41]]) -> Vec<u8> {
    let mut bytes = vec![kind, items.len() as u8, long_items.len() as u8, 0, 0, 0, 0, 0];
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    items.iter().for_each(|item| bytes.extend_from_slice(&(item.len() as u32).to_le_bytes()));
    long_items.iter().for_each(|item| bytes.extend_from_slice(item));
    items.iter().for_each(|item| bytes.extend_from_slice(item));
    bytes
}

pub fn long_item(tag: u8, handle: [u8; 32], len_bytes: u64) -> [u8; 41] {
    let mut bytes = [0; 41];
    bytes[0] = tag;
    bytes[1..33].copy_from_slice(&handle);
    bytes[33..].copy_from_slice(&len_bytes.to_le_bytes());
    bytes
}
