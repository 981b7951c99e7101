//! Sealed datagrams over real sockets, as far as a test has to look inside. Other tests are in
//! `crates/testkit/tests/hostile/sealed_udp`.

use super::*;
use crate::Security;
use cci_secure::UpdateLimits;
use std::cell::Cell;

thread_local! {
    /// How many datagrams are sealed with one key by endpoints that this thread opens; 0 means the default.
    static RECORDS_MAX: Cell<u64> = const { Cell::new(0) };
}

pub(in super::super) fn update_limits() -> UpdateLimits {
    match RECORDS_MAX.get() {
        0 => UpdateLimits::default(),
        records => UpdateLimits { records, ..UpdateLimits::default() },
    }
}

const KEYS: &[u8] = b"node1 = 0b4a1f2e3d5c6b7a8998a7b6c5d4e3f20112233445566778899aabbccddeeff0\n";

#[test]
fn keys_change_under_load_and_nothing_is_lost() {
    const COUNT: u64 = 20_000;
    RECORDS_MAX.set(50);
    let Some(device) = device_with("127.0.0.1", "mtu = 1500") else { return };
    let security = Some(Security::psk(KEYS).unwrap());
    let options = Options { security, ..Options::default() };
    let mut pair = Pair::of(&device, Attribute::ReliableOrdered, options);
    let (mut sent, mut got, mut done) = (0, 0, 0);
    pair.run(|client, server, side, event| {
        note(side, event, &mut got, &mut done);
        while sent < COUNT && sent < done + 64 {
            let message = fill(sent, 1 + (sent % 1300) as usize);
            let to_server = client.core_mut().connections()[0];
            if client.send(to_server, &message, sent, crate::SendFlags::NONE).is_err() {
                break;
            }
            sent += 1;
        }
        let _ = server;
        got == COUNT && done == COUNT
    });
    let counters = pair.server.counters();
    let of = |name| counters.drops.iter().find(|drop| drop.name == name).map_or(0, |drop| drop.count);
    assert_eq!((of("sealed-forged"), of("sealed-unknown")), (0, 0), "{counters:?}");
    let received = counters.device.iter().find(|(name, _)| *name == "datagrams_received").unwrap().1;
    assert!(received > 40 * 50, "{received} datagrams: some forty keys");
}
