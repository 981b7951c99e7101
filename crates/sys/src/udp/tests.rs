use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::*;

const PATIENCE: Duration = Duration::from_secs(5);

/// A socket on each loopback address there is.
fn loopbacks() -> Vec<SocketAddr> {
    let all = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), SocketAddr::from((Ipv6Addr::LOCALHOST, 0))];
    all.into_iter()
        .filter(|&addr| match UdpSocket::bind(addr) {
            Ok(_) => true,
            Err(error) => {
                println!("skipped: {error}");
                false
            }
        })
        .collect()
}

fn socket(at: SocketAddr) -> UdpSocket {
    UdpSocket::bind(at).unwrap()
}

fn put(batch: &mut SendBatch, to: SocketAddr, bytes: &[u8]) -> bool {
    let Some(space) = batch.next(&to, bytes.len()) else { return false };
    space.copy_from_slice(bytes);
    batch.commit(bytes.len());
    true
}

/// Receives until `count` datagrams have come, and no more.
fn take(batch: &mut RecvBatch, socket: &UdpSocket, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let (mut got, start) = (Vec::new(), Instant::now());
    while got.len() < count {
        assert!(start.elapsed() < PATIENCE, "{} of {count} came", got.len());
        let announced = batch.recv(socket).unwrap();
        assert_eq!(batch.iter().count(), announced);
        got.extend(batch.iter().map(|(from, bytes)| (from, bytes.to_vec())));
    }
    assert_eq!(batch.recv(socket).unwrap(), 0, "more came than was sent");
    assert_eq!(got.len(), count);
    got
}

fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number * 31 + at) as u8).collect()
}

#[test]
fn what_a_panic_leaves_is_taken_by_the_next_call() {
    let at = loopbacks().into_iter().next().expect("IPv4 at least");
    let (a, b) = (socket(at), socket(at));
    let (mut send, mut recv) = (SendBatch::new(&a, 64, 1 << 16), RecvBatch::new(16));
    assert!((0..9).all(|number| put(&mut send, b.local_addr(), &pattern(number, 64))));
    assert_eq!(send.flush(&a).unwrap(), 9);
    let (start, mut taken) = (Instant::now(), 0);
    while taken < 9 {
        assert!(start.elapsed() < PATIENCE, "{taken} of 9 came");
        let mut remaining = recv.recv(&b).unwrap();
        while recv.has_left() {
            assert_eq!(recv.left(), remaining);
            let step = std::panic::AssertUnwindSafe(|| {
                recv.take_each(|from, bytes| {
                    assert_eq!((from, bytes), (a.local_addr(), pattern(taken, 64).as_slice()));
                    taken += 1;
                    remaining -= 1;
                    std::panic::resume_unwind(Box::new(taken))
                })
            });
            assert_eq!(std::panic::catch_unwind(step).unwrap_err().downcast_ref(), Some(&taken));
        }
    }
    assert_eq!((taken, recv.left()), (9, 0));
}

#[test]
fn forty_equal_datagrams_go_and_come_in_one_piece() {
    for at in loopbacks() {
        let (a, b) = (socket(at), socket(at));
        let (mut send, mut recv) = (SendBatch::new(&a, 64, 1 << 16), RecvBatch::new(16));
        let sent: Vec<_> = (0..40).map(|number| pattern(number, 1_200)).collect();
        assert!(sent.iter().all(|bytes| put(&mut send, b.local_addr(), bytes)));
        assert_eq!(send.pending(), 40);
        assert_eq!(send.flush(&a).unwrap(), 40);
        assert!(send.is_empty());
        let got = take(&mut recv, &b, 40);
        for (number, ((from, bytes), sent)) in got.iter().zip(&sent).enumerate() {
            assert_eq!(*from, a.local_addr());
            assert_eq!(bytes, sent, "datagram {number}");
        }
        let (out, came) = (send.stats(), recv.stats());
        assert_eq!((out.datagrams, out.bytes), (40, 48_000));
        assert_eq!((came.datagrams, came.bytes, came.skipped), (40, 48_000, 0));
        if a.gso().is_ok() && b.gro().is_ok() {
            assert_eq!((out.syscalls, out.gso_batches), (1, 1), "{out:?}");
            assert_eq!(came.gro_batches, 1, "{came:?}");
        }
    }
}

#[test]
fn datagrams_that_tell_their_length_need_no_control_message() {
    for at in loopbacks() {
        let (a, b) = (socket(at), socket(at));
        let (mut send, mut recv) = (SendBatch::new(&a, 64, 1 << 16), RecvBatch::new(16));
        let own_len = |bytes: &[u8]| bytes.first().map_or(0, |len| usize::from(*len));
        for count in [1, 40, 2] {
            // All alike but the last, which is shorter.
            let sent: Vec<_> = (0..count).map(|n| vec![200 - u8::from(n + 1 == count) * 100; 200]).collect();
            let sent: Vec<_> = sent.iter().map(|bytes| &bytes[..usize::from(bytes[0])]).collect();
            assert!(sent.iter().all(|bytes| put(&mut send, b.local_addr(), bytes)));
            send.flush(&a).unwrap();
            let (mut got, start) = (Vec::new(), Instant::now());
            while got.len() < count {
                assert!(start.elapsed() < PATIENCE, "{} of {count} came", got.len());
                recv.recv_framed(&b, own_len).unwrap();
                got.extend(recv.iter().map(|(from, bytes)| (from, bytes.to_vec())));
            }
            assert!(got.iter().all(|(from, _)| *from == a.local_addr()));
            assert!(got.iter().map(|(_, bytes)| &bytes[..]).eq(sent), "{count} datagrams");
            assert_eq!(recv.recv_framed(&b, own_len).unwrap(), 0);
        }
        assert_eq!(recv.stats().datagrams, 43);
        // One that errs does no harm beyond its own datagrams.
        assert!(put(&mut send, b.local_addr(), &[9; 100]));
        send.flush(&a).unwrap();
        let start = Instant::now();
        while recv.recv_framed(&b, |_| 0).unwrap() == 0 {
            assert!(start.elapsed() < PATIENCE);
        }
        assert_eq!(recv.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), 100);
    }
}

#[test]
fn lengths_that_differ_keep_their_bounds_and_order() {
    for at in loopbacks() {
        let (a, b) = (socket(at), socket(at));
        let (mut send, mut recv) = (SendBatch::new(&a, 512, 1 << 20), RecvBatch::new(4));
        let lens = [1_200, 1_200, 700, 700, 13, 13, 13, 14, 1, 9_000, 8, 1_472, 1_472, 1_472, 65_000, 1, 1];
        let sent: Vec<_> = lens.iter().enumerate().map(|(number, &len)| pattern(number, len)).collect();
        for _ in 0..3 {
            assert!(sent.iter().all(|bytes| put(&mut send, b.local_addr(), bytes)));
            assert_eq!(send.flush(&a).unwrap(), lens.len());
            let got = take(&mut recv, &b, lens.len());
            for (number, ((_, bytes), sent)) in got.iter().zip(&sent).enumerate() {
                assert!(bytes == sent, "datagram {number}: {} bytes, sent {}", bytes.len(), sent.len());
            }
        }
        assert_eq!(send.stats().too_big + send.stats().gso_refused, 0);
    }
}

#[test]
fn the_largest_gso_batch_is_taken() {
    for at in loopbacks() {
        let (a, b) = (socket(at), socket(at));
        let (mut send, mut recv) = (SendBatch::new(&a, 512, 1 << 18), RecvBatch::new(16));
        for len in [1_023, 1_024, 1_452, 7, 8_960, 32_753, 32_754] {
            let count = if len > 10_000 { 4 } else { 130 };
            for number in 0..count {
                let bytes = pattern(number, len);
                if !put(&mut send, b.local_addr(), &bytes) {
                    send.flush(&a).unwrap();
                    take(&mut recv, &b, number);
                    break;
                }
            }
            let remainder = send.flush(&a).unwrap();
            take(&mut recv, &b, remainder);
            assert!(send.is_empty());
        }
        assert_eq!(send.stats().gso_refused, 0, "{at}: {:?}", send.stats());
    }
}

#[test]
fn destinations_go_by_one_call_and_reach_each() {
    for at in loopbacks() {
        let (a, all) = (socket(at), [socket(at), socket(at), socket(at)]);
        let mut send = SendBatch::new(&a, 64, 1 << 16);
        for round in 0..10 {
            for (number, to) in all.iter().enumerate() {
                assert!(put(&mut send, to.local_addr(), &pattern(number, 100 + round)));
            }
        }
        assert_eq!(send.flush(&a).unwrap(), 30);
        assert_eq!(send.stats().syscalls, 1);
        for (number, to) in all.iter().enumerate() {
            let got = take(&mut RecvBatch::new(16), to, 10);
            for (round, (from, bytes)) in got.iter().enumerate() {
                assert_eq!((*from, bytes), (a.local_addr(), &pattern(number, 100 + round)));
            }
        }
    }
}

#[test]
fn without_gso_the_same_arrives() {
    for at in loopbacks() {
        let a = socket(at);
        let b = UdpSocket::bind_with(at, Options { gro: false, ..Options::default() }).unwrap();
        assert!(b.gro().is_err());
        let (mut send, mut recv) = (SendBatch::new(&a, 64, 1 << 17), RecvBatch::new(16));
        // Joined first, then split: what a device that cannot would make of it.
        for number in 0..40 {
            assert!(put(&mut send, b.local_addr(), &pattern(number, 1_000 - number / 39)));
        }
        send.disable_gso();
        assert_eq!(send.flush(&a).unwrap(), 40);
        for (number, (_, bytes)) in take(&mut recv, &b, 40).iter().enumerate() {
            assert_eq!(*bytes, pattern(number, 1_000 - number / 39));
        }
        assert!(put(&mut send, b.local_addr(), b"x") && put(&mut send, b.local_addr(), b"y"));
        assert_eq!(send.flush(&a).unwrap(), 2);
        take(&mut recv, &b, 2);
        assert_eq!((send.stats().gso_batches, send.gso()), (0, false));
        assert_eq!(send.stats().syscalls, 2);
    }
}

#[test]
fn a_full_batch_says_so_and_is_reused() {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (a, b) = (socket(at), socket(at));
    let mut send = SendBatch::new(&a, 3, 1);
    assert!(send.next(&b.local_addr(), DATAGRAM_BYTES_MAX + 1).is_none());
    assert!(send.next(&b.local_addr(), DATAGRAM_BYTES_MAX).is_some());
    for _ in 0..2 {
        for _ in 0..3 {
            // The reservation is generous, the datagram short: room is taken for what is committed.
            send.next(&b.local_addr(), 60_000).unwrap()[..8].copy_from_slice(b"8 bytes!");
            send.commit(8);
        }
        assert!(send.next(&b.local_addr(), 1).is_none(), "three datagrams are the most");
        assert_eq!(send.flush(&a).unwrap(), 3);
        take(&mut RecvBatch::new(1), &b, 3);
    }
    send.next(&b.local_addr(), 8).unwrap();
    send.commit(0);
    send.next(&b.local_addr(), 8).unwrap();
    assert_eq!(send.flush(&a).unwrap(), 0, "nothing was committed");
}

#[test]
fn rooms_are_aligned_while_lengths_are() {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (a, b, c) = (socket(at), socket(at), socket(at));
    let mut send = SendBatch::new(&a, 64, 1 << 16);
    let mut next = |to: &UdpSocket, len: usize| {
        let space = send.next(&to.local_addr(), len).unwrap();
        let aligned = space.as_ptr().addr().is_multiple_of(8);
        send.commit(len);
        aligned
    };
    assert!(next(&b, 1_200) && next(&b, 1_200) && next(&b, 40) && next(&b, 8));
    assert!(next(&b, 13) && next(&c, 13) && next(&b, 8), "another destination starts aligned again");
    assert!(!next(&b, 5) || next(&b, 5), "joined ones need not be");
}

#[test]
fn a_bad_destination_takes_no_other_down() {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (a, b) = (socket(at), socket(at));
    let (mut send, mut recv) = (SendBatch::new(&a, 64, 1 << 18), RecvBatch::new(16));
    let nobody = socket(at).local_addr();
    let port_0 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let other_family = SocketAddr::from((Ipv6Addr::LOCALHOST, 9));
    for to in [port_0, other_family, nobody, port_0, port_0] {
        assert!(put(&mut send, to, b"lost") && put(&mut send, b.local_addr(), b"kept"));
        assert!(put(&mut send, to, b"lost") && put(&mut send, to, b"lost"));
    }
    let sent = send.flush(&a).unwrap();
    assert!((5..=5 + 3).contains(&sent), "{sent} {:?}", send.stats());
    assert!(send.is_empty());
    assert!(send.stats().unreachable >= 9 && send.stats().failed == 0, "{:?}", send.stats());
    assert!(send.gso() == a.gso().is_ok(), "a bad destination says nothing about GSO");
    take(&mut recv, &b, 5);
    assert_eq!(recv.recv(&a).unwrap(), 0, "and the refusal is no error for the receiver");
}

#[test]
fn a_datagram_larger_than_the_interface_is_given_up_and_reported() {
    let at = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
    let Ok(a) = UdpSocket::bind(at) else {
        println!("skipped: no IPv6 loopback here");
        return;
    };
    let to = a.local_addr();
    let mut send = SendBatch::new(&a, 8, 1 << 18);
    // The loopback interface carries packets of 65,536 bytes: 48 bytes of headers leave 65,488.
    let mtu_bytes = a.interface_mtu("lo").unwrap();
    if mtu_bytes != 65_536 {
        println!("skipped: loopback MTU is {mtu_bytes}");
        return;
    }
    assert!(put(&mut send, to, &[1; DATAGRAM_BYTES_MAX]) && put(&mut send, to, b"small"));
    assert_eq!(send.flush(&a).unwrap(), 1);
    assert_eq!(send.take_too_big(), Some(TooBig { to, len: DATAGRAM_BYTES_MAX }));
    assert_eq!(send.take_too_big(), None);
    assert_eq!(send.stats().too_big, 1);
    assert_eq!(take(&mut RecvBatch::new(2), &a, 1)[0].1, b"small");
    a.set_fragment(true).unwrap();
    assert!(put(&mut send, to, &[2; DATAGRAM_BYTES_MAX]));
    assert_eq!(send.flush(&a).unwrap(), 1, "in fragments it goes");
    assert_eq!(take(&mut RecvBatch::new(2), &a, 1)[0].1.len(), DATAGRAM_BYTES_MAX);
}

#[test]
fn an_empty_poll_is_one_call_and_an_empty_datagram_is_one() {
    for at in loopbacks() {
        let (a, b) = (socket(at), socket(at));
        let mut recv = RecvBatch::new(16);
        for _ in 0..10 {
            assert_eq!(recv.recv(&b).unwrap(), 0);
        }
        assert_eq!((recv.stats().syscalls, recv.stats().empty), (10, 10));
        rustix::net::sendto(&a, &[], rustix::net::SendFlags::empty(), &b.local_addr()).unwrap();
        assert_eq!(take(&mut recv, &b, 1), [(a.local_addr(), vec![])]);
    }
}

#[test]
fn what_the_kernel_drops_is_counted() {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let small = Options { recv_buffer_bytes: 16_384, ..Options::default() };
    let (a, b) = (socket(at), UdpSocket::bind_with(at, small).unwrap());
    assert!(b.recv_buffer_bytes() < a.recv_buffer_bytes() && a.send_buffer_bytes() > 0);
    let (mut send, mut recv) = (SendBatch::new(&a, 256, 1 << 20), RecvBatch::new(16));
    send.disable_gso();
    for number in 0..200 {
        assert!(put(&mut send, b.local_addr(), &pattern(number, 1_400)));
    }
    assert_eq!(send.flush(&a).unwrap(), 200);
    while recv.recv(&b).unwrap() > 0 {}
    let stats = recv.stats();
    assert_eq!(stats.datagrams + b.kernel_drops(), 200, "{stats:?}");
    assert!(b.kernel_drops() > 0);
}

#[test]
fn interfaces_and_sources_are_told() {
    for at in loopbacks() {
        let at = socket(at);
        let to = at.local_addr();
        assert!(at.interface_mtu("lo").is_none_or(|mtu_bytes| mtu_bytes >= 1_280));
        assert_eq!(at.interface_mtu("no such one"), None);
        assert_eq!(source_for(to).map(|from| (from.ip(), from.port())), Some((to.ip(), 0)));
    }
    let taken = socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let error = UdpSocket::bind(taken.local_addr()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("127.0.0.1:"), "{error}");
}

/// Random lengths, destinations, reservations and flushes: every receiver gets exactly its datagrams, in order
/// (loopback neither loses nor reorders what fits the buffers). Seeded: the same every time.
#[test]
fn any_mix_arrives_as_it_was_sent() {
    for (at, gso) in loopbacks().into_iter().flat_map(|at| [(at, true), (at, false)]) {
        let (a, all) = (socket(at), [socket(at), socket(at), socket(at)]);
        let mut send = SendBatch::new(&a, 100, 1 << 17);
        if !gso {
            send.disable_gso();
        }
        let mut recv = RecvBatch::new(5);
        let mut expected = [const { Vec::new() }; 3];
        let mut seed: u64 = 0x1234_5678_9abc_def1;
        let mut random = move |below: usize| {
            // xorshift64
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        let (mut to, mut len) = (0, 1);
        for number in 0..6_000 {
            // Runs of one destination and one length are what gets joined, so make them likely.
            if random(4) == 0 {
                to = random(all.len());
            }
            len = match random(8) {
                0 => 1 + random(3_000),
                1 => 1 + random(len),
                2 => 1 + random(40_000),
                _ => len,
            };
            let bytes = pattern(number, len);
            let reserve = (len + random(3_000)).min(DATAGRAM_BYTES_MAX);
            let full = match send.next(&all[to].local_addr(), reserve) {
                Some(space) => {
                    space[..len].copy_from_slice(&bytes);
                    send.commit(len);
                    expected[to].push(bytes);
                    false
                }
                None => true,
            };
            if full || random(50) == 0 {
                let pending = send.pending();
                assert_eq!(send.flush(&a).unwrap(), pending);
                for (socket, expected) in all.iter().zip(&mut expected) {
                    let got = take(&mut recv, socket, expected.len());
                    assert!(got.iter().map(|(_, bytes)| bytes).eq(expected.iter()), "at {number}");
                    expected.clear();
                }
            }
        }
        let stats = send.stats();
        assert_eq!(stats.gso_batches > 0, gso && a.gso().is_ok(), "{stats:?}");
        assert_eq!(stats.gso_refused + stats.unreachable + stats.too_big + stats.failed, 0, "{stats:?}");
    }
}

mod groups {
    use super::*;
    use crate::udp::Outgoing;
    use std::num::NonZeroU32;

    /// The loopback interface's number, or why the test can't run.
    fn loopback() -> Option<NonZeroU32> {
        let all = crate::net::interfaces().unwrap();
        let found = all.iter().find(|interface| interface.loopback && interface.up);
        let index = found.and_then(|interface| NonZeroU32::new(interface.index));
        if index.is_none() {
            println!("skipped: no loopback interface here");
        }
        index
    }

    fn sender(interface: NonZeroU32, this_host: bool) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.set_outgoing(Outgoing { interface, hops: 1, this_host }).unwrap();
        socket
    }

    fn send(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) {
        let mut batch = SendBatch::new(socket, 4, 4096);
        batch.next(&to, bytes.len()).unwrap().copy_from_slice(bytes);
        batch.commit(bytes.len());
        assert_eq!(batch.flush(socket).unwrap(), 1);
    }

    /// What a socket has got; loopback delivers before the send returns.
    fn got(socket: &UdpSocket) -> Vec<Vec<u8>> {
        let mut batch = RecvBatch::new(4);
        let mut all = Vec::new();
        while batch.recv(socket).unwrap() > 0 {
            all.extend(batch.iter().map(|(_, bytes)| bytes.to_vec()));
        }
        all
    }

    #[test]
    fn each_member_gets_its_group_and_nothing_else() {
        let Some(lo) = loopback() else { return };
        let (one, two): (SocketAddr, SocketAddr) =
            ("239.77.0.1:47801".parse().unwrap(), "239.77.0.2:47801".parse().unwrap());
        let join = |group| UdpSocket::join(group, lo, Options::default()).unwrap();
        let members = [join(one), join(one), join(two)];
        let from = sender(lo, true);
        send(&from, one, b"one");
        send(&from, two, b"two");
        send(&from, "239.77.0.3:47801".parse().unwrap(), b"nobody's");
        send(&from, "239.77.0.1:47802".parse().unwrap(), b"another port's");
        assert_eq!(got(&members[0]), [b"one"]);
        assert_eq!(got(&members[1]), [b"one"]);
        assert_eq!(got(&members[2]), [b"two"]);
        let [remaining, stays, _] = members;
        drop(remaining);
        send(&from, one, b"more");
        assert_eq!(got(&stays), [b"more"]);
    }

    #[test]
    fn groups_need_a_group() {
        let Some(lo) = loopback() else { return };
        let error = UdpSocket::join("127.0.0.1:47803".parse().unwrap(), lo, Options::default()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("127.0.0.1:47803"), "{error}");
        let none = NonZeroU32::new(4_000_000).unwrap();
        UdpSocket::join("239.77.0.1:47803".parse().unwrap(), none, Options::default()).unwrap_err();
    }
}
