//! Data of remote operations that come faster than they are taken.

use super::*;
use crate::{Access, RegionAddress, Registration, RmaFlags};

const LEN_BYTES: usize = 4 << 20;

fn counter(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).unwrap().1
}

/// A sender must not wait until its whole window is handled.
#[test]
fn what_has_come_at_once_is_acknowledged_bit_by_bit() {
    let Some(device) = device_with("127.0.0.1", "mtu = 1500") else { return };
    let mut pair = Pair::of(&device, Attribute::ReliableOrdered, Options::default());
    let to_server = pair.to_server;
    let region = |endpoint: &mut Endpoint| {
        let memory = endpoint.allocate(LEN_BYTES).unwrap();
        let what = Registration { range: None, access: Access::WRITE, only: None };
        let handle = endpoint.register(&memory, what).unwrap();
        (memory, RegionAddress::new(handle, 0))
    };
    let (from, local) = region(&mut pair.client);
    let (to, remote) = region(&mut pair.server);
    let data = fill(1, LEN_BYTES);
    assert!(from.write(0, &data));
    // The first writes make the window as large as it gets, which takes more of them on a busy machine.
    let mut most = 0;
    for nth in 0..40 {
        if most >= 128 {
            break;
        }
        pair.client.rma_write(to_server, local, remote, LEN_BYTES as u64, nth, RmaFlags::NONE).unwrap();
        if nth > 0 {
            let before = ["bundles_received", "acks_sent"].map(|name| counter(&pair.server, name));
            for _ in 0..8 {
                pair.client.progress();
            }
            pair.server.progress();
            let after = ["bundles_received", "acks_sent"].map(|name| counter(&pair.server, name));
            let (came, acks) = (after[0] - before[0], after[1] - before[1]);
            most = came.max(most);
            assert!(came < 128 || acks >= came / 64, "{acks} acknowledgements of {came} bundles");
        }
        pair.run(|_, _, side, event| match (side, event) {
            (Side::Client, Some(Event::Send { status, .. })) => {
                assert_eq!(status, Status::Success);
                true
            }
            (_, None) => false,
            (side, other) => panic!("{side:?} {other:?}"),
        });
    }
    assert!(most >= 128, "{most} bundles came at once at most, too few to show anything");
    let mut came = vec![0; LEN_BYTES];
    assert!(to.read(0, &mut came));
    assert!(came == data);
}
