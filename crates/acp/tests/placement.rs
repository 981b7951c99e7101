//! Long messages that go past the slots of a channel, among real processes.
#![allow(clippy::unwrap_used, reason = "a rank that can't go on fails")]

mod roles;

use cci::Memory;
use cci_acp::{AcpError, ChannelRequest, GlobalMemory, Receiver, RegionKey, Sender, Slots};
use roles::{ROLE, all_ranks_do, close, heap, launch, pattern, role};
use std::env;

const STARTER_BYTES: usize = 64 << 10;
const SLOTS: Slots = Slots { count: 4, bytes: 8_192 };
/// What memory holds before a message comes.
const BEFORE: u8 = 0xee;

fn open() -> GlobalMemory {
    roles::open(STARTER_BYTES, 0).1
}

/// Not a test where nothing has started it: what ranks do.
#[test]
fn as_a_rank() {
    match env::var(ROLE).as_deref() {
        Ok("all lengths") => all_lengths(),
        Ok("stream") => stream(),
        Ok("unregistered") => unregistered(),
        Ok("freed in flight") => freed_in_flight(),
        Ok("reset") => reset(),
        Ok("one dies") => one_dies(),
        _ => {}
    }
}

fn bytes(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    assert!(memory.read(0, &mut bytes));
    bytes
}

/// Memory that a sender on this host may write to.
fn shared(global: &mut GlobalMemory, len: usize) -> (Memory, RegionKey) {
    let memory = global.allocate(len).unwrap();
    let key = global.register(&memory, 0).unwrap();
    (memory, key)
}

/// Whether the ranks of this test share memory.
fn is_one_host() -> bool {
    matches!(env::var("CCI_TEST_DEVICE").as_deref(), Ok("shm" | "any"))
}

/// What a request has got of a message.
fn check(result: cci_acp::Result<usize>, memory: &Memory, message: &[u8]) {
    let received = bytes(memory);
    let fitting = message.len().min(received.len());
    match result {
        Ok(len) => assert_eq!(len, message.len()),
        Err(AcpError::Truncated { len_bytes, space_bytes }) => {
            assert_eq!((len_bytes, space_bytes), (message.len() as u64, received.len()));
        }
        Err(error) => panic!("{error}"),
    }
    assert!(received[..fitting] == message[..fitting], "{} bytes into {}", message.len(), received.len());
    assert!(received[fitting..].iter().all(|&byte| byte == BEFORE), "only the message was written");
}

/// Messages of all lengths to memory of all kinds, longer and shorter, by requests and by calls that block.
fn all_lengths() {
    const LENS: [usize; 9] = [0, 8, 1_024, 1_025, 5_000, 8_176, 8_177, 20_000, 300_000];
    const SPACES: [usize; 5] = [1, 2_000, 8_000, 65_536, 400_000];
    const ROUNDS: usize = 60;
    let mut global = open();
    let len = |round: usize, number: usize| LENS[(round * 5 + number * 7) % LENS.len()];
    if global.rank() == 0 {
        let sender = Sender::create(&mut global, 1, SLOTS).unwrap();
        for round in 0..ROUNDS {
            global.sync().unwrap();
            let requests: Vec<ChannelRequest> = (0..10)
                .filter_map(|number| {
                    let message = pattern(round + number, len(round, number));
                    if message.is_empty() || number % 2 == 0 {
                        sender.send(&mut global, &message).unwrap();
                        return None;
                    }
                    Some(sender.start(&mut global, &heap(message)).unwrap())
                })
                .collect();
            for request in requests {
                request.wait(&mut global).unwrap();
            }
        }
        assert_eq!(sender.placed_messages(&global) > 0, is_one_host());
        sender.free(&mut global).unwrap().wait(&mut global).unwrap();
    } else {
        let receiver = Receiver::create(&mut global, 0, SLOTS).unwrap();
        let spaces = SPACES.map(|len| shared(&mut global, len).0);
        for round in 0..ROUNDS {
            let mut into: Vec<Memory> = spaces.to_vec();
            into.push(global.starter_memory().clone());
            into.push(heap(vec![0; 300_000]));
            into.rotate_left(round % 7);
            for memory in &into {
                assert!(memory.write(0, &vec![BEFORE; memory.len()]));
            }
            let requests: Vec<ChannelRequest> =
                into.iter().map(|memory| receiver.start(&mut global, memory).unwrap()).collect();
            global.sync().unwrap();
            for (number, (request, memory)) in requests.into_iter().zip(&into).enumerate() {
                let result = request.wait(&mut global);
                check(result, memory, &pattern(round + number, len(round, number)));
            }
            let mut buffer = vec![BEFORE; 300_000];
            for number in into.len()..10 {
                let received = receiver.receive(&mut global, &mut buffer).unwrap();
                assert!(buffer[..received] == pattern(round + number, len(round, number)));
            }
        }
        receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
    }
    close(global);
}

/// As many messages as can be, in both directions, with as many requests under way as there are slots, and fewer, and more.
fn stream() {
    const LEN: usize = 40_000;
    const MESSAGES: usize = 600;
    let mut global = open();
    let other = 1 - global.rank();
    for under_way in [1, 4, 9] {
        let sender = Sender::create(&mut global, other, SLOTS).unwrap();
        let receiver = Receiver::create(&mut global, other, SLOTS).unwrap();
        let memory: Vec<_> = (0..under_way).map(|_| shared(&mut global, LEN)).collect();
        let mut requests: Vec<ChannelRequest> =
            memory.iter().map(|(memory, _)| receiver.start(&mut global, memory).unwrap()).collect();
        global.sync().unwrap();
        for number in 0..MESSAGES {
            let message = heap(pattern(number, LEN - number % 7));
            let sent = sender.start(&mut global, &message).unwrap();
            let (memory, _) = &memory[number % under_way];
            let request = &mut requests[number % under_way];
            assert_eq!(request.wait(&mut global).unwrap(), LEN - number % 7);
            assert!(bytes(memory)[..LEN - number % 7] == bytes(&message), "message {number}");
            assert!(memory.write(0, &[BEFORE; LEN]), "what comes too late would be seen");
            *request = receiver.start(&mut global, memory).unwrap();
            sent.wait(&mut global).unwrap();
        }
        // With one request, every message may come before it.
        let is_placed = sender.placed_messages(&global) > 0;
        assert!(is_placed == is_one_host() || under_way == 1 && !is_placed, "{under_way} requests");
        // Requests that are left end with the sender.
        let freed = [sender.free(&mut global).unwrap(), receiver.free(&mut global).unwrap()];
        for request in freed {
            request.wait(&mut global).unwrap();
        }
        for request in requests {
            assert!(request.wait(&mut global).is_err());
        }
        for (memory, key) in memory {
            assert!(bytes(&memory).iter().all(|&byte| byte == BEFORE));
            global.unregister(key).unwrap();
        }
    }
    close(global);
}

/// Memory whose registration ends while a request waits gets its message, too, and only that.
fn unregistered() {
    const LEN: usize = 30_000;
    let mut global = open();
    if global.rank() == 0 {
        let sender = Sender::create(&mut global, 1, SLOTS).unwrap();
        for round in 0..20 {
            for number in 0..4 {
                global.sync().unwrap();
                sender.send(&mut global, &pattern(round + number, LEN)).unwrap();
            }
        }
        sender.free(&mut global).unwrap().wait(&mut global).unwrap();
    } else {
        let receiver = Receiver::create(&mut global, 0, SLOTS).unwrap();
        for round in 0..20 {
            let (memory, key) = shared(&mut global, LEN);
            for number in 0..4 {
                let request = receiver.start(&mut global, &memory).unwrap();
                if number == 3 {
                    global.unregister(key).unwrap();
                }
                global.sync().unwrap();
                assert_eq!(request.wait(&mut global).unwrap(), LEN);
                assert!(bytes(&memory) == pattern(round + number, LEN), "message {number} of {round}");
            }
        }
        receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
    }
    close(global);
}

/// An end that is freed while messages are under way, whichever it is, loses none that a request waits for.
fn freed_in_flight() {
    const LEN: usize = 50_000;
    const MESSAGES: usize = 12;
    let mut global = open();
    for round in 0..10 {
        if global.rank() == 0 {
            let sender = Sender::create(&mut global, 1, SLOTS).unwrap();
            // So many that memory of requests is known.
            for number in 0..MESSAGES {
                sender.send(&mut global, &pattern(number, LEN)).unwrap();
            }
            let requests: Vec<ChannelRequest> = (0..MESSAGES)
                .map(|number| sender.start(&mut global, &heap(pattern(number, LEN))).unwrap())
                .collect();
            let freed = sender.free(&mut global).unwrap();
            for request in requests {
                request.wait(&mut global).unwrap();
            }
            freed.wait(&mut global).unwrap();
        } else {
            let receiver = Receiver::create(&mut global, 0, SLOTS).unwrap();
            let memory: Vec<_> = (0..MESSAGES).map(|_| shared(&mut global, LEN)).collect();
            // The second time, the last messages are dropped with the receiver.
            for count in [MESSAGES, MESSAGES - round % 3] {
                let requests: Vec<ChannelRequest> = memory[..count]
                    .iter()
                    .map(|(memory, _)| receiver.start(&mut global, memory).unwrap())
                    .collect();
                for (number, (request, (memory, _))) in requests.into_iter().zip(&memory).enumerate() {
                    assert_eq!(request.wait(&mut global).unwrap(), LEN);
                    assert!(bytes(memory) == pattern(number, LEN), "message {number} of round {round}");
                }
            }
            let requests: Vec<ChannelRequest> =
                memory.iter().map(|(memory, _)| receiver.start(&mut global, memory).unwrap()).collect();
            receiver.free(&mut global).unwrap().wait(&mut global).unwrap();
            for (number, request) in requests.into_iter().enumerate() {
                assert_eq!(request.wait(&mut global).is_ok(), number < round % 3, "{number} in {round}");
            }
            for (_, key) in memory {
                global.unregister(key).unwrap();
            }
        }
    }
    close(global);
}

/// Behind a reset no message of before comes to starter memory, although requests waited for it and messages were under way.
fn reset() {
    const LEN: usize = STARTER_BYTES;
    let mut global = open();
    for round in 0..30 {
        let rank = global.rank();
        if rank == 0 {
            let sender = Sender::create(&mut global, 1, SLOTS).unwrap();
            for number in 0..4 {
                sender.send(&mut global, &pattern(number, LEN)).unwrap();
            }
            global.sync().unwrap();
            for number in 0..20 {
                // They end by the reset.
                sender.start(&mut global, &heap(pattern(number, LEN))).unwrap();
            }
        } else {
            let receiver = Receiver::create(&mut global, 0, SLOTS).unwrap();
            let starter = global.starter_memory().clone();
            for number in 0..4 {
                let request = receiver.start(&mut global, &starter).unwrap();
                assert_eq!(request.wait(&mut global).unwrap(), LEN);
                assert!(bytes(&starter) == pattern(number, LEN), "message {number} of round {round}");
            }
            for _ in 0..24 {
                receiver.start(&mut global, &starter).unwrap();
            }
            global.sync().unwrap();
        }
        global.reset(1 - rank).unwrap();
        for _ in 0..3 {
            assert!(bytes(global.starter_memory()).iter().all(|&byte| byte == 0), "round {round}");
            global.sync().unwrap();
        }
    }
    close(global);
}

/// Rank 1 dies while messages are placed directly in both directions: what waits for it ends, its memory is the program's again, and other channels go on.
fn one_dies() {
    const LEN: usize = 200_000;
    let (mut job, mut global) = roles::open(STARTER_BYTES, 0);
    // Over UDP nobody else says so.
    job.survive().unwrap();
    let rank = global.rank();
    let ends = |global: &mut GlobalMemory, other| {
        let sender = Sender::create(global, other, SLOTS).unwrap();
        (sender, Receiver::create(global, other, SLOTS).unwrap())
    };
    let memory: Vec<Memory> = (0..6).map(|_| shared(&mut global, LEN).0).collect();
    if rank < 2 {
        let (sender, receiver) = ends(&mut global, 1 - rank);
        let requests = |global: &mut GlobalMemory| -> Vec<ChannelRequest> {
            memory.iter().map(|memory| receiver.start(global, memory).unwrap()).collect()
        };
        for round in 0..5 {
            let waiting = requests(&mut global);
            for number in 0..memory.len() {
                sender.start(&mut global, &heap(pattern(round + number, LEN))).unwrap();
            }
            for (number, (request, memory)) in waiting.into_iter().zip(&memory).enumerate() {
                assert_eq!(request.wait(&mut global).unwrap(), LEN);
                assert!(bytes(memory) == pattern(round + number, LEN), "message {number} of round {round}");
            }
        }
        let waiting = requests(&mut global);
        global.sync().unwrap();
        if rank == 1 {
            // In the middle of what both send.
            sender.start(&mut global, &heap(pattern(0, LEN))).unwrap();
            global.progress();
            roles::die();
        }
        let gone = loop {
            if let Err(gone) = sender.send(&mut global, &pattern(1, LEN)) {
                break gone;
            }
        };
        assert!(matches!(gone, AcpError::Gone { rank: 1, .. }), "{gone:?}");
        let mut ended: Vec<_> = waiting.into_iter().map(|request| request.wait(&mut global)).collect();
        let first = ended.remove(0);
        assert!(first.is_err() || bytes(&memory[0]) == pattern(0, LEN), "{first:?}");
        assert!(ended.iter().all(Result::is_err), "{ended:?}");
        for request in [sender.free(&mut global).unwrap(), receiver.free(&mut global).unwrap()] {
            request.wait(&mut global).unwrap();
        }
    } else {
        global.sync().unwrap();
    }
    let (sender, receiver) = ends(&mut global, 2 - rank);
    let waiting: Vec<ChannelRequest> =
        memory.iter().map(|memory| receiver.start(&mut global, memory).unwrap()).collect();
    for number in 0..memory.len() {
        sender.send(&mut global, &pattern(number, LEN)).unwrap();
    }
    for (number, (request, memory)) in waiting.into_iter().zip(&memory).enumerate() {
        assert_eq!(request.wait(&mut global).unwrap(), LEN);
        assert!(bytes(memory) == pattern(number, LEN), "message {number} of the other channel");
    }
    let freed = [sender.free(&mut global).unwrap(), receiver.free(&mut global).unwrap()];
    for request in freed {
        request.wait(&mut global).unwrap();
    }
}

#[test]
fn messages_of_all_lengths_come_to_memory_of_all_kinds() {
    all_ranks_do("all lengths", 2);
}

#[test]
fn streams_are_placed_on_one_host() {
    all_ranks_do("stream", 2);
}

#[test]
fn memory_that_is_unregistered_meanwhile_gets_its_message() {
    all_ranks_do("unregistered", 2);
}

#[test]
fn ends_that_are_freed_in_flight_lose_nothing() {
    all_ranks_do("freed in flight", 2);
}

#[test]
fn a_reset_lets_nothing_come_late() {
    all_ranks_do("reset", 2);
}

#[test]
fn whoever_dies_ends_what_waits_for_it() {
    for device in ["shm", "tcp-lo", "udp-lo", "any"] {
        let ranks = launch(3, role("one dies", device));
        assert_eq!(ranks[1].status.code(), None, "{device}: {:?}", ranks[1]);
        assert!(ranks[0].status.success() && ranks[2].status.success(), "{device}: {ranks:?}");
    }
}
