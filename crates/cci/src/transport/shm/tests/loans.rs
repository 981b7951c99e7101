//! Messages that are lent: between honest endpoints, to receivers that lie, and by senders that do.

use super::*;
use crate::limits::LOANS_MAX;
use crate::loan::{Loan, Loans};
use crate::transport::shm::offer::Offer;
use crate::{MappedMessage, SendError};
use cci_sys::shared_memory::{Lending, LendingSlot, SharedMemoryReader};

const LEN: usize = 4096;

fn counter(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint.counters().device.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name}")).1
}

fn memory(endpoint: &Endpoint, name: &str) -> u64 {
    endpoint
        .counters()
        .memory
        .kinds
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("{name}"))
        .1
}

/// Connects two endpoints of this process: the connections of each.
fn join(client: &mut Endpoint, server: &mut Endpoint) -> (Connection, Connection) {
    client.connect(server.uri(), b"", Attribute::ReliableOrdered, 0, Some(PATIENCE)).unwrap();
    let (mut here, mut there) = (None, None);
    let start = Instant::now();
    while here.is_none() || there.is_none() {
        assert!(start.elapsed() < PATIENCE);
        match server.next_event() {
            Some(Event::ConnectRequest(request)) => server.accept(request, 0).unwrap(),
            Some(Event::Accept { result, .. }) => there = Some(result.unwrap()),
            _ => {}
        }
        if let Some(Event::Connect { result, .. }) = client.next_event() {
            here = Some(result.unwrap());
        }
    }
    (here.unwrap(), there.unwrap())
}

/// Two honest endpoints of one process.
struct Honest {
    client: Endpoint,
    server: Endpoint,
    to_server: Connection,
    to_client: Connection,
}

impl Honest {
    fn connect(server: Endpoint) -> Honest {
        let (mut client, mut server) = (endpoint(), server);
        let (to_server, to_client) = join(&mut client, &mut server);
        Honest { client, server, to_server, to_client }
    }

    /// Waits until a loan is handed over mapped.
    fn mapped(&mut self) -> Loan {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "no mapped loan");
            let loan = self.client.loan(self.to_server, LEN).unwrap();
            if loan.is_mapped() {
                return loan;
            }
            assert!(self.server.next_event().is_none() && self.client.next_event().is_none());
        }
    }

    fn send(&mut self, mut loan: Loan, byte: u8, context: u64) {
        loan.fill(byte);
        self.client.send_loan(loan, context, SendFlags::NONE).unwrap();
    }

    fn receive(&mut self) -> Event {
        until(&mut self.server, "a message", |_, event| event)
    }

    /// The contexts of sends that complete, as many as are wanted.
    fn completed(&mut self, count: usize) -> Vec<u64> {
        let (mut contexts, start) = (Vec::new(), Instant::now());
        while contexts.len() < count {
            assert!(start.elapsed() < PATIENCE, "{contexts:?}");
            assert!(self.server.next_event().is_none());
            if let Some(event) = self.client.next_event() {
                let Event::Send { context, status: Status::Success, .. } = event else { panic!("{event:?}") };
                contexts.push(context);
            }
        }
        contexts
    }
}

#[test]
fn a_message_is_handed_over_kept_in_any_order_and_returned() {
    let mut pair = Honest::connect(endpoint());
    pair.server.set_loans(pair.to_client, Loans::Mapped).unwrap();
    let first = pair.mapped();
    pair.send(first, 1, 1);
    for number in 2..=5 {
        let loan = pair.client.loan(pair.to_server, LEN).unwrap();
        assert!(loan.is_mapped());
        pair.send(loan, number, number.into());
        // Messages that are not lent keep their places among them.
        pair.client.send(pair.to_server, &[number], 100 + u64::from(number), SendFlags::NONE).unwrap();
    }
    let mut kept: Vec<MappedMessage> = Vec::new();
    let mut order = Vec::new();
    while order.len() < 9 {
        match pair.receive() {
            Event::Mapped(message) => {
                assert_eq!((message.len(), message.connection()), (LEN, pair.to_client));
                assert!(message.trusted().is_none(), "nobody said so");
                order.push((true, message.to_vec()[0]));
                kept.push(message);
            }
            Event::Recv(message) => order.push((false, message[0])),
            other => panic!("{other:?}"),
        }
    }
    let expected =
        [(true, 1)].into_iter().chain((2..=5).flat_map(|number| [(true, number), (false, number)]));
    assert_eq!(order, expected.collect::<Vec<_>>());
    assert_eq!((counter(&pair.client, "loans_lent"), counter(&pair.server, "loans_held")), (5, 5));
    // Only what was copied completes before it is returned.
    assert_eq!(pair.completed(4), [102, 103, 104, 105]);
    for (at, context) in [(2, 3), (0, 1), (2, 5), (1, 4)] {
        let message = kept.remove(at);
        // On any thread.
        std::thread::spawn(move || drop(message)).join().unwrap();
        assert_eq!(pair.completed(1), [context]);
    }
    assert!(kept.iter().all(|message| message.to_vec() == [2; LEN]));
    let mut part = [0; 3];
    assert!(kept[0].read(LEN - 3, &mut part) && !kept[0].read(LEN - 2, &mut part));
    assert!(!kept[0].read(usize::MAX, &mut part));
    drop(kept);
    assert_eq!(pair.completed(1), [2]);
    assert_eq!((counter(&pair.client, "loans_lent"), counter(&pair.server, "loans_held")), (0, 0));
}

#[test]
fn who_asks_for_nothing_gets_copies_and_a_short_loan_is_copied() {
    let mut pair = Honest::connect(endpoint());
    let first = pair.mapped();
    pair.send(first, 7, 1);
    let Event::Recv(message) = pair.receive() else { panic!() };
    assert_eq!(*message, [7; LEN]);
    // It was copied, so the memory is back although the message is kept.
    assert_eq!(pair.completed(1), [1]);
    let mut short = pair.client.loan(pair.to_server, 100).unwrap();
    assert!(!short.is_mapped());
    short.fill(8);
    short.truncate(50);
    pair.client.send_loan(short, 2, SendFlags::NONE).unwrap();
    let Event::Recv(message) = pair.receive() else { panic!() };
    assert_eq!(*message, [8; 50]);
    assert_eq!(pair.completed(1), [2]);
    assert!(matches!(pair.client.loan(pair.to_server, 8193), Err(SendError::TooLong { .. })));
}

#[test]
fn all_slots_that_are_out_are_waited_for_and_the_cap_holds() {
    let mut pair = Honest::connect(endpoint());
    pair.server.set_loans(pair.to_client, Loans::Mapped).unwrap();
    let first = pair.mapped();
    pair.send(first, 0, 0);
    for number in 1..LOANS_MAX {
        let loan = pair.client.loan(pair.to_server, LEN).unwrap();
        assert!(loan.is_mapped());
        pair.send(loan, number as u8, number.into());
    }
    let mut kept = Vec::new();
    while kept.len() < LOANS_MAX as usize {
        let Event::Mapped(message) = pair.receive() else { panic!() };
        kept.push(message);
    }
    // More are copied, as others are.
    let loan = pair.client.loan(pair.to_server, LEN).unwrap();
    assert!(!loan.is_mapped());
    pair.send(loan, 99, 99);
    let Event::Recv(message) = pair.receive() else { panic!() };
    assert_eq!(*message, [99; LEN]);
    for endpoint in [&pair.client, &pair.server] {
        let memory = endpoint.counters().memory;
        assert!(memory.total_bytes <= memory.cap_bytes, "{memory:?}");
    }
    assert_eq!(memory(&pair.client, "memory lent to peers"), u64::from(LOANS_MAX) * 8192);
    // The sender disconnects. What is kept was delivered, and stays as it is.
    pair.client.disconnect(pair.to_server);
    let (client, mut completed) = (&mut pair.client, 0);
    until(&mut pair.server, "the end", |_, event| {
        if let Some(Event::Send { status, .. }) = client.next_event() {
            assert_eq!(status, Status::Success);
            completed += 1;
        }
        matches!(event, Some(Event::Disconnected { .. })).then_some(())
    });
    drop(pair);
    assert!(kept.iter().enumerate().all(|(number, message)| message.to_vec() == [number as u8; LEN]));
}

#[test]
fn where_there_is_no_space_for_the_mapping_everything_is_copied() {
    let options =
        Options { memory_bytes_max: 1 << 20, recv_buffers: 64, send_buffers: 16, ..Options::default() };
    let mut pair = Honest::connect(Endpoint::create(&builtin::shm("shm"), options).unwrap());
    pair.server.set_loans(pair.to_client, Loans::Mapped).unwrap();
    for number in 0..200 {
        let loan = pair.client.loan(pair.to_server, LEN).unwrap();
        assert!(!loan.is_mapped());
        pair.send(loan, number as u8, number);
        let Event::Recv(message) = pair.receive() else { panic!() };
        assert_eq!(*message, [number as u8; LEN]);
        drop(message);
        assert_eq!(pair.completed(1), [number]);
    }
    assert_eq!(
        (memory(&pair.client, "memory lent to peers"), memory(&pair.server, "loans of peers, mapped")),
        (0, 0)
    );
}

fn few_buffers(recv_buffers: u32) -> Endpoint {
    let options = Options { recv_buffers, ..Options::default() };
    Endpoint::create(&builtin::shm("shm"), options).unwrap()
}

/// Keeps the messages that come until there is no receive buffer for more.
fn keeps_until_it_stalls(server: &mut Endpoint) -> Vec<MappedMessage> {
    let (mut kept, start) = (Vec::new(), Instant::now());
    loop {
        assert!(start.elapsed() < PATIENCE, "{} kept", kept.len());
        match server.next_event() {
            Some(Event::Mapped(message)) => kept.push(message),
            None if counter(server, "stalls") > 0 => return kept,
            None => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_loan_that_finds_no_buffer_in_time_is_taken_back_and_its_slot_lent_again() {
    const BUFFERS: usize = 2;
    let mut pair = Honest::connect(few_buffers(BUFFERS as u32));
    pair.server.set_loans(pair.to_client, Loans::Mapped).unwrap();
    let mut loan = pair.mapped();
    pair.client.set_send_timeout(pair.to_server, Duration::from_millis(20)).unwrap();
    for number in 0..LOANS_MAX {
        pair.send(loan, number as u8, number.into());
        loan = pair.client.loan(pair.to_server, LEN).unwrap();
    }
    assert!(!loan.is_mapped(), "all slots are out");
    drop(loan);
    let kept = keeps_until_it_stalls(&mut pair.server);
    assert_eq!(kept.len(), BUFFERS);
    let mut taken_back = Vec::new();
    let start = Instant::now();
    while taken_back.len() < LOANS_MAX as usize - BUFFERS {
        assert!(start.elapsed() < PATIENCE, "{taken_back:?}");
        assert!(pair.server.next_event().is_none());
        match pair.client.next_event() {
            Some(Event::Send { context, status: Status::ReceiverNotReady, .. }) => taken_back.push(context),
            None => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(taken_back, (BUFFERS as u64..LOANS_MAX.into()).collect::<Vec<_>>());
    assert_eq!(counter(&pair.client, "loans_lent"), BUFFERS as u64);
    // Their slots are free, and what is kept is not touched.
    pair.client.set_send_timeout(pair.to_server, PATIENCE).unwrap();
    for number in 100..100 + LOANS_MAX - BUFFERS as u32 {
        let loan = pair.client.loan(pair.to_server, LEN).unwrap();
        assert!(loan.is_mapped());
        pair.send(loan, number as u8, number.into());
    }
    assert!(kept.iter().enumerate().all(|(number, message)| message.to_vec() == [number as u8; LEN]));
    drop(kept);
    for number in 100..100 + LOANS_MAX - BUFFERS as u32 {
        let Event::Mapped(message) = pair.receive() else { panic!() };
        assert_eq!(message.to_vec(), [number as u8; LEN]);
    }
    let mut all = pair.completed(LOANS_MAX as usize);
    all.sort_unstable();
    let expected = (0..BUFFERS as u64).chain(100..100 + u64::from(LOANS_MAX) - BUFFERS as u64);
    assert_eq!(all, expected.collect::<Vec<_>>());
}

#[test]
fn loans_that_are_kept_leave_half_of_the_receive_buffers() {
    const BUFFERS: usize = 16;
    let mut pair = Honest::connect(few_buffers(BUFFERS as u32));
    pair.server.set_loans(pair.to_client, Loans::Mapped).unwrap();
    let mut other = endpoint();
    let (to_server, from_other) = join(&mut other, &mut pair.server);
    let mut loan = pair.mapped();
    for number in 0..LOANS_MAX {
        pair.send(loan, number as u8, number.into());
        loan = pair.client.loan(pair.to_server, LEN).unwrap();
    }
    drop(loan);
    let kept = keeps_until_it_stalls(&mut pair.server);
    assert_eq!(kept.len(), BUFFERS / 2);
    other.send(to_server, &[1], 1, SendFlags::NONE).unwrap();
    let Event::Recv(message) = pair.receive() else { panic!() };
    assert_eq!((message.connection(), &*message), (from_other, &[1][..]));
    drop((kept, message));
    for _ in BUFFERS / 2..LOANS_MAX as usize {
        let Event::Mapped(message) = pair.receive() else { panic!() };
        drop(message);
    }
    assert_eq!(pair.completed(LOANS_MAX as usize).len(), LOANS_MAX as usize);
}

/// Waits asleep, while another thread drops the message on which the sender waits.
#[test]
fn a_sleeping_receiver_returns_what_another_thread_drops() {
    let mut pair = Honest::connect(endpoint());
    pair.server.set_loans(pair.to_client, Loans::Mapped).unwrap();
    let first = pair.mapped();
    pair.send(first, 1, 1);
    let Event::Mapped(message) = pair.receive() else { panic!() };
    let Honest { mut client, mut server, .. } = pair;
    let receiver = std::thread::spawn(move || {
        while let Some(event) = server.wait(Some(PATIENCE)).unwrap() {
            if matches!(event, Event::Disconnected { .. }) {
                return;
            }
        }
        panic!("not woken");
    });
    std::thread::sleep(Duration::from_millis(20));
    assert!(client.next_event().is_none());
    drop(message);
    until(&mut client, "the return", |_, event| match event {
        Some(Event::Send { context: 1, status: Status::Success, .. }) => Some(()),
        Some(other) => panic!("{other:?}"),
        None => None,
    });
    drop(client);
    receiver.join().unwrap();
}

/// A receiver that maps what it is offered, and then does as it likes.
struct Borrower {
    lie: Joined,
    reader: SharedMemoryReader,
}

impl Borrower {
    fn new(server: &mut Endpoint, endpoint: u64) -> Borrower {
        let attacker = ask(server, endpoint, Attribute::ReliableOrdered);
        let mut lie = confirm(server, attacker);
        assert!(!server.loan(lie.connection, LEN).unwrap().is_mapped(), "nothing is mapped yet");
        let mut buffer = [0; 96];
        let mut got = lie.stream.recv(&mut buffer, 2).unwrap();
        let offer = Offer::parse(&buffer[..got.len]).unwrap();
        assert_eq!(offer, Offer { slots: LOANS_MAX, slot_bytes: 8192 });
        let reader =
            SharedMemory::open_read_only(got.fds.take(0).unwrap(), offer.len_bytes() as usize).unwrap();
        push(&mut lie, kind::LOANS, &[1, 0, 0], 0);
        server.progress();
        Borrower { lie, reader }
    }

    /// Has the endpoint send a loan, and takes its record. Answers the slot.
    fn take(&mut self, server: &mut Endpoint, byte: u8) -> u32 {
        let mut loan = server.loan(self.lie.connection, LEN).unwrap();
        assert!(loan.is_mapped());
        loan.fill(byte);
        server.send_loan(loan, byte.into(), SendFlags::NONE).unwrap();
        let record = self.lie.consumer.peek().unwrap().unwrap();
        assert_eq!((record.header().kind, record.header().conn), (kind::LOAN, OWN.index));
        let mut words = [[0; 4]; 2];
        record.copy_to(words.as_flattened_mut());
        let [slot, len] = words.map(u32::from_ne_bytes);
        self.lie.consumer.consume();
        self.lie.consumer.publish_head();
        let mut read = [0; LEN];
        assert!(
            len == LEN as u32 && self.reader.read(slot as usize * 8192, &mut read) && read == [byte; LEN]
        );
        slot
    }

    fn give_back(&mut self, slots: u64) {
        let ack = (self.lie.consumer.head() / 64) as u32;
        push(&mut self.lie, kind::RETURN, &[slots], ack);
    }
}

fn push(lie: &mut Joined, kind: u8, words: &[u64], ack: u32) {
    let words: Vec<[u8; 8]> = words.iter().map(|word| word.to_ne_bytes()).collect();
    lie.producer.push(RecordHeader { kind, flags: 0, conn: u32::MAX, ack }, &[words.as_flattened()]).unwrap();
}

fn completions(server: &mut Endpoint, count: usize) -> Vec<(u64, Status)> {
    let mut all = Vec::new();
    until(server, "completions", |_, event| {
        if let Some(Event::Send { context, status, .. }) = event {
            all.push((context, status));
        }
        (all.len() >= count).then_some(())
    });
    all
}

/// Polls until the link has ended because of what its peer wrote.
fn ends_as_corrupt(server: &mut Endpoint, connection: Connection) {
    until(server, "the end", |server, _| (!server.is_open(connection)).then_some(()));
    assert_eq!(dropped(server, "link_corrupt"), 1);
}

#[test]
fn an_honest_return_completes_and_a_false_one_ends_the_link() {
    // Twice; what was not lent; no such slot; what is still in the ring.
    for case in 0..4 {
        let mut server = endpoint();
        let mut borrower = Borrower::new(&mut server, 1);
        let (first, second) = (borrower.take(&mut server, 1), borrower.take(&mut server, 2));
        borrower.give_back(1 << second | 1 << first);
        assert_eq!(
            completions(&mut server, 2).iter().filter(|(_, status)| *status == Status::Success).count(),
            2
        );
        let slot = borrower.take(&mut server, 3);
        match case {
            0 => {
                borrower.give_back(1 << slot);
                assert_eq!(completions(&mut server, 1), [(3, Status::Success)]);
                borrower.give_back(1 << slot);
            }
            1 => borrower.give_back(1 << (slot + 1)),
            2 => borrower.give_back(1 << 63),
            _ => {
                let mut loan = server.loan(borrower.lie.connection, LEN).unwrap();
                loan.fill(4);
                server.send_loan(loan, 4, SendFlags::NONE).unwrap();
                borrower.give_back(1 << 1);
            }
        }
        ends_as_corrupt(&mut server, borrower.lie.connection);
        assert_eq!((counter(&server, "loans_lent"), memory(&server, "memory lent to peers")), (0, 0));
    }
}

#[test]
fn a_receiver_that_never_returns_keeps_its_slots_and_loses_them_when_it_dies() {
    let mut server = endpoint();
    let mut borrower = Borrower::new(&mut server, 1);
    let mut honest = Borrower::new(&mut server, 2);
    for number in 0..LOANS_MAX as u8 - 1 {
        borrower.take(&mut server, number);
    }
    // One that it has not even taken.
    let mut loan = server.loan(borrower.lie.connection, LEN).unwrap();
    loan.fill(200);
    server.send_loan(loan, 200, SendFlags::NONE).unwrap();
    assert!(!server.loan(borrower.lie.connection, LEN).unwrap().is_mapped(), "it has all that there are");
    assert_eq!(counter(&server, "loans_lent"), u64::from(LOANS_MAX));
    // Others have slots of their own.
    let slot = honest.take(&mut server, 77);
    honest.give_back(1 << slot);
    assert_eq!(completions(&mut server, 1), [(77, Status::Success)]);
    drop(borrower);
    let ended = completions(&mut server, LOANS_MAX as usize);
    let of = |status| ended.iter().filter(|(_, other)| *other == status).count();
    assert_eq!((of(Status::Success), of(Status::Disconnected)), (LOANS_MAX as usize - 1, 1));
    assert_eq!(memory(&server, "memory lent to peers"), u64::from(LOANS_MAX) * 8192, "the other's");
}

/// A sender that offers memory, and then lends what it likes.
struct Liar {
    lie: Joined,
    memory: Lending,
    out: Vec<LendingSlot>,
}

impl Liar {
    fn new(server: &mut Endpoint, loans: Loans) -> Liar {
        let attacker = ask(server, 1, Attribute::ReliableOrdered);
        let lie = confirm(server, attacker);
        server.set_loans(lie.connection, loans).unwrap();
        let (offer, memory) = (Offer { slots: 4, slot_bytes: 4096 }, Lending::create(4, 4096).unwrap());
        lie.stream.send(&offer.to_bytes(), &[memory.fd().unwrap()]).unwrap();
        let mut liar = Liar { lie, memory, out: Vec::new() };
        liar.awaits(server, kind::LOANS, 1);
        liar
    }

    /// Takes the next record, whose first word is as expected.
    fn awaits(&mut self, server: &mut Endpoint, kind: u8, word: u64) {
        until(server, "a record", |_, event| {
            assert!(event.is_none());
            let record = self.lie.consumer.peek().unwrap()?;
            let mut first = [0; 8];
            record.copy_to(&mut first);
            assert_eq!((record.header().kind, u64::from_ne_bytes(first)), (kind, word));
            Some(())
        });
        self.lie.consumer.consume();
        self.lie.consumer.publish_head();
    }

    fn lend(&mut self, slot: u32, len: u32) {
        let header = RecordHeader {
            kind: kind::LOAN,
            flags: self.lie.conn.generation as u8,
            conn: self.lie.conn.index,
            ack: (self.lie.consumer.head() / 64) as u32,
        };
        let words = [slot.to_ne_bytes(), len.to_ne_bytes()];
        self.lie.producer.push(header, &[words.as_flattened()]).unwrap();
    }
}

#[test]
fn a_sender_that_lends_what_it_has_not_ends_the_link() {
    for (slot, len) in [(4, 1), (u32::MAX, 1), (0, 4097), (1, 8192), (2, u32::MAX)] {
        let mut server = endpoint();
        let mut liar = Liar::new(&mut server, Loans::Mapped);
        liar.lend(slot, len);
        ends_as_corrupt(&mut server, liar.lie.connection);
    }
    // A slot is lent a second time, while the first message in it is kept.
    let mut server = endpoint();
    let mut liar = Liar::new(&mut server, Loans::Mapped);
    liar.lend(3, 10);
    let kept = until(&mut server, "a message", |_, event| event);
    liar.lend(3, 10);
    ends_as_corrupt(&mut server, liar.lie.connection);
    drop(kept);
    // Without any offer.
    let mut server = endpoint();
    let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
    let lie = confirm(&mut server, attacker);
    let mut liar = Liar { lie, memory: Lending::create(1, 64).unwrap(), out: Vec::new() };
    liar.lend(0, 10);
    ends_as_corrupt(&mut server, liar.lie.connection);
}

#[test]
fn what_a_sender_offers_has_to_be_what_it_says() {
    for case in 0..3 {
        let mut server = endpoint();
        let attacker = ask(&mut server, 1, Attribute::ReliableOrdered);
        let lie = confirm(&mut server, attacker);
        let offer = Offer { slots: 4, slot_bytes: 4096 };
        let memory = Lending::create(3, 4096).unwrap();
        let fds = if case == 1 { vec![] } else { vec![memory.fd().unwrap()] };
        lie.stream.send(&offer.to_bytes(), &fds).unwrap();
        let mut liar = Liar { lie, memory, out: Vec::new() };
        if case == 1 {
            until(&mut server, "the end", |server, _| (!server.is_open(liar.lie.connection)).then_some(()));
            continue;
        }
        // Too short for its slots: it is not mapped, and that is said.
        liar.awaits(&mut server, kind::LOANS, 0);
        if case == 2 {
            liar.lend(0, 10);
            ends_as_corrupt(&mut server, liar.lie.connection);
        }
    }
    // Twice.
    let mut server = endpoint();
    let liar = Liar::new(&mut server, Loans::Mapped);
    let offer = Offer { slots: 4, slot_bytes: 4096 };
    liar.lie.stream.send(&offer.to_bytes(), &[liar.memory.fd().unwrap()]).unwrap();
    until(&mut server, "the end", |server, _| (!server.is_open(liar.lie.connection)).then_some(()));
}

#[test]
fn what_a_sender_has_lent_outlives_it() {
    let mut server = endpoint();
    let mut liar = Liar::new(&mut server, Loans::Mapped);
    let mut slot = liar.memory.take().unwrap();
    slot.bytes_mut()[..5].copy_from_slice(b"hello");
    liar.out.push(slot);
    liar.lend(0, 5);
    let Event::Mapped(message) = until(&mut server, "a message", |_, event| event) else { panic!() };
    assert_eq!(message.to_vec(), b"hello");
    // It writes to what it has lent: the program sees that, and nothing worse.
    liar.out[0].bytes_mut()[..5].copy_from_slice(b"other");
    assert_eq!(message.to_vec(), b"other");
    let connection = liar.lie.connection;
    drop(liar);
    until(&mut server, "the end", |server, _| (!server.is_open(connection)).then_some(()));
    assert_eq!(message.to_vec(), b"other");
    assert_eq!(memory(&server, "loans of peers, mapped"), 4 * 4096, "as long as it is kept");
    drop(message);
    assert_eq!(memory(&server, "loans of peers, mapped"), 0);
}

/// The memory that one offer is about.
const OFFER: Offer = Offer { slots: 64, slot_bytes: 8 << 10 };

/// A process that offers memory for loans on a link of its own.
struct Offering {
    lie: Joined,
    _memory: Lending,
    is_mapped: bool,
}

impl Offering {
    fn new(server: &mut Endpoint, endpoint: u64, pid: u32) -> Offering {
        let attacker = ask_as(server, endpoint, Attribute::ReliableOrdered, pid);
        let mut lie = confirm(server, attacker);
        server.set_loans(lie.connection, Loans::Mapped).unwrap();
        let memory = Lending::create(OFFER.slots, OFFER.slot_bytes as usize).unwrap();
        lie.stream.send(&OFFER.to_bytes(), &[memory.fd().unwrap()]).unwrap();
        let is_mapped = until(server, "the answer", |_, event| {
            assert!(event.is_none(), "{event:?}");
            let record = lie.consumer.peek().unwrap()?;
            let mut word = [0; 8];
            record.copy_to(&mut word);
            assert_eq!(record.header().kind, kind::LOANS);
            Some(u64::from_ne_bytes(word) != 0)
        });
        lie.consumer.consume();
        lie.consumer.publish_head();
        Offering { lie, _memory: memory, is_mapped }
    }

    /// Lends one message, and ends. The message, which the program keeps.
    fn lends_and_dies(mut self, server: &mut Endpoint) -> MappedMessage {
        let header = RecordHeader {
            kind: kind::LOAN,
            flags: self.lie.conn.generation as u8,
            conn: self.lie.conn.index,
            ack: (self.lie.consumer.head() / 64) as u32,
        };
        let words = [0u32.to_ne_bytes(), 10u32.to_ne_bytes()];
        self.lie.producer.push(header, &[words.as_flattened()]).unwrap();
        let Event::Mapped(message) = until(server, "a message", |_, event| event) else { panic!() };
        let connection = self.lie.connection;
        drop(self);
        until(server, "the end", |server, _| (!server.is_open(connection)).then_some(()));
        message
    }
}

/// Half of 12 MiB may be mapped: twelve offers.
fn with_twelve_offers() -> Endpoint {
    assert_eq!(OFFER.len_bytes(), 512 << 10);
    let options =
        Options { memory_bytes_max: 12 << 20, recv_buffers: 64, send_buffers: 64, ..Options::default() };
    Endpoint::create(&builtin::shm("shm"), options).unwrap()
}

fn loan_path(server: &Endpoint, connection: Connection) -> (bool, String) {
    let paths = server.explain(connection).unwrap().paths;
    let path = paths.into_iter().find(|path| path.path == "loans of the peer's, mapped").unwrap();
    (path.chosen, path.reason)
}

#[test]
fn what_a_process_lends_on_all_of_its_links_leaves_some_to_others() {
    let mut server = with_twelve_offers();
    let honest = Offering::new(&mut server, 1, 4712);
    assert!(honest.is_mapped && loan_path(&server, honest.lie.connection).0);
    let greedy: Vec<Offering> = (2..14).map(|number| Offering::new(&mut server, number, 4711)).collect();
    let mapped = greedy.iter().filter(|offering| offering.is_mapped).count();
    assert_eq!(mapped, 5, "of eleven that were left");
    assert_eq!(counter(&server, "loan_offers_refused"), 7);
    assert_eq!(counter(&server, "loans_mapped_bytes"), 6 * OFFER.len_bytes());
    assert_eq!(memory(&server, "loans of peers, mapped"), 6 * OFFER.len_bytes());
    let (chosen, reason) = loan_path(&server, greedy[11].lie.connection);
    assert!(!chosen && reason.contains("memory_bytes_max"), "{reason}");
    // Whoever comes later has space, too.
    assert!(Offering::new(&mut server, 14, 4713).is_mapped);
    // What a process no longer lends, it may lend anew.
    drop(greedy);
    until(&mut server, "the end", |server, _| {
        (counter(server, "loans_mapped_bytes") == OFFER.len_bytes()).then_some(())
    });
    assert!(Offering::new(&mut server, 15, 4711).is_mapped);
}

#[test]
fn what_is_kept_of_links_that_have_ended_counts_for_their_process() {
    let mut server = with_twelve_offers();
    let honest = Offering::new(&mut server, 1, 4712);
    let (mut kept, mut last) = (Vec::new(), None);
    for number in 2..14 {
        let life = Offering::new(&mut server, number, 4711);
        if !life.is_mapped {
            last = Some(life);
            break;
        }
        kept.push(life.lends_and_dies(&mut server));
    }
    assert_eq!((kept.len(), last.is_some()), (5, true));
    assert_eq!(counter(&server, "loans_mapped_bytes"), 6 * OFFER.len_bytes(), "five of them without a link");
    // Also when nobody else has a link any more.
    drop((honest, last));
    until(&mut server, "the end", |server, _| (server.counters().connections_open == 0).then_some(()));
    let sixth = Offering::new(&mut server, 20, 4711);
    assert!(sixth.is_mapped, "what the honest process has given up");
    assert!(!Offering::new(&mut server, 21, 4711).is_mapped);
    assert!(Offering::new(&mut server, 22, 4713).is_mapped);
    drop(kept);
    assert!(Offering::new(&mut server, 23, 4711).is_mapped);
}
