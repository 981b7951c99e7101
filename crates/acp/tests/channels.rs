//! Channels among real processes.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

#[path = "../examples/stencil.rs"]
mod stencil;

mod roles;

use cci::Memory;
use cci_acp::{AcpError, ChannelRequest, GlobalMemory, Receiver, Sender, Slots};
use roles::{ROLE, all_ranks_do, close, heap, launch, pattern, role};
use std::env;

const STARTER_BYTES: usize = 4_096;
const SLOTS: Slots = Slots { count: 8, bytes: 2_048 };

fn open() -> GlobalMemory {
    roles::open(STARTER_BYTES, 0).1
}

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    match env::var(ROLE).as_deref() {
        Ok("sizes") => sizes(),
        Ok("ring") => ring(),
        Ok("all to all") => all_to_all(),
        Ok("one before the other") => one_before_the_other(),
        Ok("truncates") => truncates(),
        Ok("cycles") => cycles(),
        Ok("frees unread") => frees_unread(),
        Ok("one dies") => one_dies(),
        Ok("wrong") => wrong(),
        Ok("stencil") => stencil::run(),
        _ => {}
    }
}

fn bytes(memory: &Memory, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert!(memory.read(0, &mut bytes));
    bytes
}

/// Messages of all lengths through slots of all shapes, which are others at the other end, by calls that block and by requests.
fn sizes() {
    const SHAPES: [(u32, u32); 4] = [(1, 32), (2, 2_048), (8, 4_096), (3, 70_000)];
    const LENS: [usize; 12] = [0, 1, 8, 16, 17, 100, 1_024, 1_025, 4_096, 16_000, 100_000, 1_000_000];
    let mut global = open();
    let shapes = SHAPES.iter().flat_map(|&sender| SHAPES.map(|receiver| [sender, receiver]));
    for (turn, shapes) in shapes.enumerate() {
        let [of_sender, of_receiver] = shapes.map(|(count, bytes)| Slots { count, bytes });
        // The smallest slots take a message in thousands of segments.
        let len_max = if shapes.contains(&SHAPES[0]) { 16_000 } else { 1_000_000 };
        let lens = LENS.iter().copied().filter(|&len| len <= len_max);
        if global.rank() == 0 {
            let sender = Sender::create(&mut global, 1, of_sender).unwrap();
            for (number, len) in lens.clone().enumerate() {
                sender.send(&mut global, &pattern(number, len)).unwrap();
            }
            let requests: Vec<ChannelRequest> = lens
                .enumerate()
                .filter(|&(_, len)| len > 0)
                .map(|(number, len)| sender.start(&mut global, &heap(pattern(number, len))).unwrap())
                .collect();
            sender.send(&mut global, b"behind them").unwrap();
            for request in requests {
                assert_eq!(request.wait(&mut global).unwrap(), 0);
                assert!(request.wait(&mut global).is_err(), "twice");
            }
            sender.free(&mut global).unwrap().wait(&mut global).unwrap();
        } else {
            let receiver = Receiver::create(&mut global, 0, of_receiver).unwrap();
            let mut buffer = vec![0; 1_000_100];
            for (number, len) in lens.clone().enumerate() {
                buffer.fill(0xee);
                // Sometimes there is just enough space, sometimes more.
                let space = len + if (turn + number) % 2 == 0 { 0 } else { 100 };
                assert_eq!(receiver.receive(&mut global, &mut buffer[..space]).unwrap(), len);
                assert!(buffer[..len] == pattern(number, len), "{shapes:?}: {len} bytes");
                assert!(buffer[len..].iter().all(|&byte| byte == 0xee), "no byte behind the message");
            }
            let requests: Vec<_> = lens
                .enumerate()
                .filter(|&(_, len)| len > 0)
                .map(|(number, len)| {
                    let into = heap(vec![0xee; len + 1]);
                    (number, len, receiver.start(&mut global, &into).unwrap(), into)
                })
                .collect();
            assert_eq!(receiver.receive(&mut global, &mut buffer).unwrap(), 11);
            assert_eq!(buffer[..11], *b"behind them");
            for (number, len, request, into) in requests {
                assert!(request.has_ended(&mut global));
                assert_eq!(request.wait(&mut global).unwrap(), len);
                let received = bytes(&into, len + 1);
                assert!(received[..len] == pattern(number, len) && received[len] == 0xee);
            }
            receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
        }
    }
    close(global);
}

/// The paper's example: each rank sends to the next one and receives from the one before, and no order of calls blocks.
fn ring() {
    const TURNS: usize = 300;
    let mut global = open();
    let (rank, size) = (global.rank(), global.size());
    let sender = Sender::create(&mut global, (rank + 1) % size, SLOTS).unwrap();
    let receiver = Receiver::create(&mut global, (rank + size - 1) % size, SLOTS).unwrap();
    assert_eq!((sender.receiver(), receiver.sender()), ((rank + 1) % size, (rank + size - 1) % size));
    let mut token = pattern(rank as usize, 5_000);
    for turn in 1..=TURNS {
        let into = heap(vec![0; token.len()]);
        let received = receiver.start(&mut global, &into).unwrap();
        let sent = sender.start(&mut global, &heap(token)).unwrap();
        assert_eq!(received.wait(&mut global).unwrap(), 5_000);
        sent.wait(&mut global).unwrap();
        token = bytes(&into, 5_000);
        let from = (rank as usize + turn * (size as usize - 1)) % size as usize;
        assert!(token == pattern(from, 5_000), "turn {turn}");
    }
    let freed = [sender.free(&mut global), receiver.free(&mut global)];
    for request in freed {
        request.unwrap().wait(&mut global).unwrap();
    }
    close(global);
}

/// A channel between every pair of ranks in each direction, all in use at once.
fn all_to_all() {
    let mut global = open();
    let (rank, size) = (global.rank() as usize, global.size());
    let others: Vec<u32> = (0..size).filter(|&other| other as usize != rank).collect();
    let senders: Vec<_> =
        others.iter().map(|&other| Sender::create(&mut global, other, SLOTS).unwrap()).collect();
    let receivers: Vec<_> =
        others.iter().rev().map(|&other| Receiver::create(&mut global, other, SLOTS).unwrap()).collect();
    let mut requests = vec![];
    for number in 0..200 {
        for sender in &senders {
            let message = heap(pattern(rank * 1_000 + number, 1 + number * 97 % 9_000));
            requests.push(sender.start(&mut global, &message).unwrap());
        }
    }
    let mut buffer = vec![0; 9_001];
    for number in 0..200 {
        for receiver in &receivers {
            let len = receiver.receive(&mut global, &mut buffer).unwrap();
            let expected = pattern(receiver.sender() as usize * 1_000 + number, 1 + number * 97 % 9_000);
            assert!(buffer[..len] == expected, "message {number} of rank {}", receiver.sender());
        }
    }
    for request in requests {
        request.wait(&mut global).unwrap();
    }
    let mut freed: Vec<_> = senders.into_iter().map(|sender| sender.free(&mut global).unwrap()).collect();
    freed.extend(receivers.into_iter().map(|receiver| receiver.free(&mut global).unwrap()));
    for request in freed {
        request.wait(&mut global).unwrap();
    }
    close(global);
}

/// Two channels of a pair are independent, and what a sender does before its receiver is there counts.
fn one_before_the_other() {
    let mut global = open();
    if global.rank() == 0 {
        let senders = [0; 3].map(|_| Sender::create(&mut global, 1, SLOTS).unwrap());
        let requests =
            [0, 1, 2].map(|at: usize| senders[at].start(&mut global, &heap(pattern(at, 50))).unwrap());
        // The other rank makes nothing before this.
        global.sync().unwrap();
        let [first, second, third] = senders;
        requests[1].wait(&mut global).unwrap();
        let freed = [first, second, third].map(|sender| sender.free(&mut global).unwrap());
        for request in freed {
            request.wait(&mut global).unwrap();
        }
        // One that was never used, and is gone before the receiver comes.
        Sender::create(&mut global, 1, SLOTS).unwrap().free(&mut global).unwrap().wait(&mut global).unwrap();
        global.sync().unwrap();
    } else {
        global.sync().unwrap();
        let receivers = [0; 3].map(|_| Receiver::create(&mut global, 0, SLOTS).unwrap());
        for at in [1, 2, 0] {
            let mut buffer = [0; 50];
            assert_eq!(receivers[at].receive(&mut global, &mut buffer).unwrap(), 50);
            assert_eq!(buffer, *pattern(at, 50));
        }
        let end = receivers[0].receive(&mut global, &mut [0; 50]);
        assert!(matches!(end, Err(AcpError::Argument(why)) if why.contains("freed")));
        for receiver in receivers {
            receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
        }
        global.sync().unwrap();
        let late = Receiver::create(&mut global, 0, SLOTS).unwrap();
        assert!(late.receive(&mut global, &mut [0; 50]).is_err(), "nothing will ever come");
        late.free(&mut global).unwrap().wait(&mut global).unwrap();
    }
    close(global);
}

/// Whoever gives too little space loses the rest of that message, and nothing else.
fn truncates() {
    const LENS: [(usize, usize); 6] =
        [(100, 10), (5_000, 3_000), (100_000, 1), (100_000, 0), (1, 0), (20_000, 19_999)];
    let mut global = open();
    if global.rank() == 0 {
        let sender = Sender::create(&mut global, 1, SLOTS).unwrap();
        for (number, (len, _)) in LENS.into_iter().enumerate() {
            sender.send(&mut global, &pattern(number, len)).unwrap();
            sender.send(&mut global, b"whole").unwrap();
        }
        sender.free(&mut global).unwrap().wait(&mut global).unwrap();
    } else {
        let receiver = Receiver::create(&mut global, 0, SLOTS).unwrap();
        for (number, (len, space)) in LENS.into_iter().enumerate() {
            let (result, received) = if number % 2 == 0 {
                let mut buffer = vec![0; space];
                (receiver.receive(&mut global, &mut buffer), buffer)
            } else {
                let into = heap(vec![0; space.max(1)]);
                let request = receiver.start(&mut global, &into).unwrap();
                (request.wait(&mut global), bytes(&into, space.max(1)))
            };
            match result {
                Err(AcpError::Truncated { len_bytes, space_bytes }) => {
                    assert_eq!((len_bytes, space_bytes), (len as u64, received.len()));
                }
                // Memory has a byte at least.
                other => assert_eq!(other.unwrap(), received.len()),
            }
            assert!(received == pattern(number, len)[..received.len()], "{len} bytes into {space}");
            let mut buffer = [0; 10];
            assert_eq!(receiver.receive(&mut global, &mut buffer).unwrap(), 5);
            assert_eq!(buffer[..5], *b"whole");
        }
        receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
    }
    close(global);
}

/// Channels that come and go, whoever of the two is first, leave nothing.
fn cycles() {
    const WARM_UP: u32 = 500;
    const CYCLES: u32 = 10_000;
    let mut global = open();
    let other = 1 - global.rank();
    let mut before = (0, 0);
    for cycle in 0..WARM_UP + CYCLES {
        if cycle == WARM_UP {
            before = roles::held();
        }
        if (cycle + global.rank()).is_multiple_of(2) {
            let sender = Sender::create(&mut global, other, SLOTS).unwrap();
            assert_eq!(sender.held_bytes(&global) / 2_048, 8, "16 KiB and less than one slot more");
            sender.send(&mut global, &cycle.to_ne_bytes()).unwrap();
            sender.free(&mut global).unwrap().wait(&mut global).unwrap();
        } else {
            let receiver = Receiver::create(&mut global, other, SLOTS).unwrap();
            let mut buffer = [0; 4];
            if cycle % 3 > 0 {
                receiver.receive(&mut global, &mut buffer).unwrap();
                assert_eq!(u32::from_ne_bytes(buffer), cycle);
            }
            receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
        }
    }
    let after = roles::held();
    // A page for each eighth cycle would be more.
    assert!(after.0 < before.0 + (1 << 20) && after.1 <= before.1 + 2, "{before:?}, then {after:?}");
    close(global);
}

/// A receiver that wants no more lets the sender end.
fn frees_unread() {
    let mut global = open();
    if global.rank() == 0 {
        let sender = Sender::create(&mut global, 1, SLOTS).unwrap();
        let requests: Vec<_> = (0..100)
            .map(|number| sender.start(&mut global, &heap(pattern(number, 10_000))).unwrap())
            .collect();
        let freed = sender.free(&mut global).unwrap();
        for request in requests {
            request.wait(&mut global).unwrap();
        }
        freed.wait(&mut global).unwrap();
    } else {
        let receiver = Receiver::create(&mut global, 0, SLOTS).unwrap();
        let mut buffer = vec![0; 10_000];
        for number in 0..3 {
            receiver.receive(&mut global, &mut buffer).unwrap();
            assert!(buffer == pattern(number, 10_000));
        }
        receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
    }
    close(global);
}

/// Rank 1 ends in the middle: whoever waits for it gets an error, and keeps its other channel.
fn one_dies() {
    let (mut job, mut global) = roles::open(STARTER_BYTES, 0);
    // Over UDP nobody else says so.
    job.survive().unwrap();
    let rank = global.rank();
    let to = |global: &mut GlobalMemory, other| Sender::create(global, other, SLOTS).unwrap();
    let from = |global: &mut GlobalMemory, other| Receiver::create(global, other, SLOTS).unwrap();
    if rank == 1 {
        let sender = to(&mut global, 0);
        let _receiver = from(&mut global, 0);
        sender.send(&mut global, b"the last word").unwrap();
        global.sync().unwrap();
        roles::die();
    }
    if rank == 0 {
        let (receiver, sender) = (from(&mut global, 1), to(&mut global, 1));
        let mut buffer = [0; 20];
        assert_eq!(receiver.receive(&mut global, &mut buffer).unwrap(), 13);
        global.sync().unwrap();
        let gone = receiver.receive(&mut global, &mut buffer);
        assert!(matches!(gone, Err(AcpError::Gone { rank: 1, .. })), "{gone:?}");
        let gone = loop {
            if let Err(gone) = sender.send(&mut global, &[0; 5_000]) {
                break gone;
            }
        };
        assert!(matches!(gone, AcpError::Gone { rank: 1, .. }), "{gone:?}");
        let message = heap(vec![0; 10]);
        assert!(sender.start(&mut global, &message).unwrap().wait(&mut global).is_err());
        for request in [sender.free(&mut global).unwrap(), receiver.free(&mut global).unwrap()] {
            request.wait(&mut global).unwrap();
        }
    } else {
        global.sync().unwrap();
    }
    let other = 2 - rank;
    let (sender, receiver) = (to(&mut global, other), from(&mut global, other));
    sender.send(&mut global, b"still here").unwrap();
    let mut buffer = [0; 10];
    receiver.receive(&mut global, &mut buffer).unwrap();
    assert_eq!(buffer, *b"still here");
    // Not before the other one has it.
    let freed = [sender.free(&mut global).unwrap(), receiver.free(&mut global).unwrap()];
    for request in freed {
        request.wait(&mut global).unwrap();
    }
}

/// What can't be right is refused, and changes nothing.
fn wrong() {
    let mut global = open();
    let (rank, size) = (global.rank(), global.size());
    for (other, slots) in [
        (rank, SLOTS),
        (size, SLOTS),
        (u32::MAX, SLOTS),
        (1 - rank, Slots { count: 0, ..SLOTS }),
        (1 - rank, Slots { count: 65_537, ..SLOTS }),
        (1 - rank, Slots { bytes: 0, ..SLOTS }),
        (1 - rank, Slots { bytes: 31, ..SLOTS }),
        (1 - rank, Slots { count: 65_536, bytes: u32::MAX }),
    ] {
        assert!(Sender::create(&mut global, other, slots).is_err(), "{other}, {slots:?}");
        assert!(Receiver::create(&mut global, other, slots).is_err(), "{other}, {slots:?}");
    }
    // A reset ends channels.
    let sender = Sender::create(&mut global, 1 - rank, SLOTS).unwrap();
    let receiver = Receiver::create(&mut global, 1 - rank, SLOTS).unwrap();
    let request = receiver.start(&mut global, &heap(vec![0; 10])).unwrap();
    global.reset(1 - rank).unwrap();
    assert!(request.wait(&mut global).is_err() && sender.send(&mut global, b"lost").is_err());
    assert!(receiver.receive(&mut global, &mut [0; 4]).is_err());
    sender.free(&mut global).unwrap().wait(&mut global).unwrap();
    receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
    global.sync().unwrap();
    let (sender, receiver) = (
        Sender::create(&mut global, rank, SLOTS).unwrap(),
        Receiver::create(&mut global, rank, SLOTS).unwrap(),
    );
    sender.send(&mut global, b"anew").unwrap();
    assert_eq!(receiver.receive(&mut global, &mut [0; 4]).unwrap(), 4);
    close(global);
}

#[test]
fn messages_of_all_lengths_go_through_all_slots() {
    all_ranks_do("sizes", 2);
}

#[test]
fn a_ring_of_ranks_passes_messages_on() {
    all_ranks_do("ring", 4);
}

#[test]
fn channels_of_all_pairs_work_at_once() {
    all_ranks_do("all to all", 3);
}

#[test]
fn channels_of_a_pair_are_independent_and_either_end_may_come_first() {
    all_ranks_do("one before the other", 2);
}

#[test]
fn too_little_space_costs_one_message_its_end() {
    all_ranks_do("truncates", 2);
}

#[test]
fn channels_that_come_and_go_leave_nothing() {
    all_ranks_do("cycles", 2);
}

#[test]
fn a_receiver_that_wants_no_more_lets_the_sender_end() {
    all_ranks_do("frees unread", 2);
}

#[test]
fn whoever_waits_for_a_rank_that_dies_is_told() {
    for device in ["shm", "tcp-lo", "udp-lo", "any"] {
        let ranks = launch(3, role("one dies", device));
        assert_eq!(ranks[1].status.code(), None, "{device}: {:?}", ranks[1]);
        assert!(ranks[0].status.success() && ranks[2].status.success(), "{device}: {ranks:?}");
    }
}

#[test]
fn the_stencil_is_what_one_process_computes() {
    for size in [1, 2, 4] {
        for rank in launch(size, role("stencil", "any")) {
            assert!(rank.status.success(), "{rank:?}");
        }
    }
}

#[test]
fn what_cannot_be_right_is_refused() {
    all_ranks_do("wrong", 2);
}
