//! Peers that are let in and ask for as much as they can, all the time: reads, and notifications.

use super::soon;
use cci::Options;
use cci_testkit::figures;
use cci_testkit::hostile::{Act, REGION_BYTES, Scene, Script, Wire, act, datagram, shm, tcp};

/// Requests that the peer has under way.
const UNDER_WAY: u16 = 64;
/// Of each read: the longest request there is.
const READ_BYTES: u64 = 256 << 10;
const _: () = assert!(READ_BYTES as usize <= REGION_BYTES);
/// Messages that the honest peer has to get.
const MESSAGES: u64 = 2_000;

/// The honest peer gets as much as the greedy one, about, and is never refused while it has nothing under way.
fn greed_takes_its_share<W: Wire>(name: &str, what: &str, script: Script<W>) {
    let options = Options::default().recv_buffers(64).send_buffers(192);
    let Some(mut scene) = Scene::open(name, options) else { return };
    let peer = scene.join(script);
    let [honest, greedy] = scene.race(peer, MESSAGES);
    let received = scene.victim.received.get(&scene.connection(peer)).copied().unwrap_or(0);
    println!(
        "{name}, {what}: {honest} sends to the honest peer, {greedy} to the greedy one, {received} messages of it"
    );
    assert!(greedy <= 10 * honest, "the greedy one gets more: {greedy}, and the honest one {honest}");
    scene.exchange(50);
    let connection = scene.connection(peer);
    let _ = scene.victim.endpoint.set_send_timeout(connection, soon().send_timeout);
    scene.until_ended(peer);
    scene.judge();
    figures::note("hostile.lies", 1);
}

/// Makes a request in each slot at once.
fn in_each_slot<W: Wire>(script: Script<W>, ask: impl Fn(u16) -> Act<W>) -> Script<W> {
    (0..UNDER_WAY).fold(script, |script, slot| script.now(ask(slot)))
}

fn datagram_client() -> Script<datagram::Datagrams> {
    use datagram::{Kind, ack, client, honestly};
    client().on(Kind::Data, ack(honestly))
}

fn datagram_reads() -> Script<datagram::Datagrams> {
    use datagram::{Datagrams, Kind, Record, data, honestly};
    let ask = |slot| {
        data(
            move |peer| {
                vec![Record::new(Kind::Read, slot, &[peer.region[0], peer.region[1], 0, READ_BYTES], &[])]
            },
            honestly,
        )
    };
    let again = act(move |peer: &mut Datagrams| {
        let offset = peer.record.payload.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        if offset + peer.record.payload.len() as u64 - 8 == READ_BYTES {
            ask(peer.record.slot)(peer);
        }
    });
    in_each_slot(datagram_client().on(Kind::RmaData, again), ask)
}

fn datagram_notifies() -> Script<datagram::Datagrams> {
    use datagram::{Datagrams, Kind, Record, data, honestly};
    let ask = |slot| data(move |_| vec![Record::new(Kind::Notify, slot, &[], &[9; 8])], honestly);
    let again = act(move |peer: &mut Datagrams| ask(peer.record.slot)(peer));
    in_each_slot(datagram_client().on(Kind::Done, again), ask)
}

fn tcp_client() -> Script<tcp::Tcp> {
    use tcp::{Kind, bulk, client, honestly, send};
    client().on(Kind::Message, send(Kind::Ack, honestly)).now(bulk(honestly))
}

fn tcp_reads() -> Script<tcp::Tcp> {
    use tcp::{Kind, Tcp, rma};
    let ask = |slot| {
        rma(Kind::Read, move |read| {
            read.slot = slot;
            read.words[3] = READ_BYTES;
        })
    };
    let again = act(move |peer: &mut Tcp| {
        if peer.words[0] + peer.rest_bytes as u64 - 8 == READ_BYTES {
            ask(peer.slot)(peer);
        }
    });
    in_each_slot(tcp_client().on(Kind::Data, again), ask)
}

fn tcp_notifies() -> Script<tcp::Tcp> {
    use tcp::{Kind, Tcp, rma};
    let ask = |slot| rma(Kind::Notify, move |notify| (notify.slot, notify.data) = (slot, vec![9; 8]));
    let again = act(move |peer: &mut Tcp| ask(peer.slot)(peer));
    in_each_slot(tcp_client().on(Kind::Done, again.clone()).on(Kind::Again, again), ask)
}

fn shm_notifies() -> Script<shm::Shm> {
    use shm::{Shm, client, rma, send};
    let ask = |slot: u16| {
        send(rma::NOTIFY, move |notify| {
            notify.payload[2..4].copy_from_slice(&slot.to_le_bytes());
            notify.payload.extend([9; 8]);
        })
    };
    let again = act(move |peer: &mut Shm| {
        let slot = u16::from_le_bytes([peer.record.payload[2], peer.record.payload[3]]);
        ask(slot)(peer);
    });
    in_each_slot(client().on(rma::DONE, again.clone()).on(rma::AGAIN, again), ask)
}

tests! {
    fn reads_udp() = greed_takes_its_share("udp", "reads", datagram_reads());
    fn reads_tcp() = greed_takes_its_share("tcp", "reads", tcp_reads());
    fn reads_eth() = greed_takes_its_share("eth", "reads", datagram_reads());
    fn notifications_udp() = greed_takes_its_share("udp", "notifications", datagram_notifies());
    fn notifications_tcp() = greed_takes_its_share("tcp", "notifications", tcp_notifies());
    fn notifications_eth() = greed_takes_its_share("eth", "notifications", datagram_notifies());
    fn notifications_shm() = greed_takes_its_share("shm", "notifications", shm_notifies());
}
