//! Datagrams to groups: from the bytes to messages, and the table of senders.

use cci_proto::{Address, Arrival, GroupBundle, GroupDatagram, Senders};
use std::collections::HashSet;
use std::net::SocketAddr;

/// The first byte says how the rest is cut into datagrams. No sender's number is delivered twice while it is remembered, and
/// its numbers did not begin anew.
pub fn group_datagrams(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else { return };
    let each = 8 * (1 + usize::from(how));
    let mut senders = Senders::new(1).expect("there is memory");
    let mut delivered = HashSet::new();
    for (at, bytes) in data.chunks(each).enumerate() {
        let Ok(datagram) = GroupDatagram::parse(bytes) else { continue };
        again(&datagram);
        let source = Address::from(SocketAddr::from(([10, 0, 0, 1], 1 + (at % 3) as u16)));
        match senders.note(source, datagram.sender, datagram.number) {
            Arrival::New { .. } | Arrival::Late { .. } => {
                let is_first = delivered.insert((source, datagram.sender, datagram.number));
                let is_known = senders.forgotten() == 0 && senders.restarted() == 0;
                assert!(is_first || !is_known, "{datagram:?} came twice");
            }
            Arrival::Repeat | Arrival::TooLate | Arrival::TooEarly => {}
        }
    }
}

/// Messages that are written again are read as before.
fn again(datagram: &GroupDatagram<'_>) {
    let mut bundle = GroupBundle::new(u16::MAX).expect("there is memory");
    for message in datagram.messages() {
        assert!(bundle.push(&[message], message.len()), "they fitted into a datagram before");
    }
    let name = datagram.group;
    let bytes = bundle.finish(name, datagram.sender, datagram.number);
    let read = GroupDatagram::parse(bytes).expect("it was just written");
    assert!(read.messages().eq(datagram.messages()));
    assert_eq!((read.group, read.sender, read.number), (name, datagram.sender, datagram.number));
}
