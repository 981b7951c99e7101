//! Partners that lie, flood and guess, with an encoder of their own, beside honest ones.

mod forged;

use cci::{Access, Attribute, Connection, Context, Device, Endpoint, Event as Core, SendFlags};
use cci_ripc::{
    CallError, CallOptions, Content, Event, Node, Options, Part, Partner, Service, ServiceName, directory,
};
use forged::{frame, hello, long_item};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A service, an honest partner of it, and a liar that is connected to it.
struct Scene {
    _folder: tempfile::TempDir,
    victim: Node,
    service: Service,
    honest: Node,
    bank: Service,
    /// The victim, as the honest one sees it.
    to_victim: Partner,
    liar: Endpoint,
    lie: Connection,
}

fn device(name: &str) -> Device {
    Context::from_text(&format!("[{name}]\ntransport = {name}\n"), "test".as_ref())
        .unwrap()
        .default_device()
        .clone()
}

fn name(name: &str) -> ServiceName {
    ServiceName::new(name).unwrap()
}

impl Scene {
    fn new(device_name: &str, from: &str) -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let device = device(device_name);
        let node = || {
            let directory = directory::open(&format!("host:{}", folder.path().display())).unwrap();
            Node::open(Options::default().directory(directory).device(&device)).unwrap()
        };
        let (mut victim, mut honest) = (node(), node());
        let service = victim.register(&name("victim")).unwrap();
        let bank = honest.register(&name("bank")).unwrap();
        let to_victim = honest.partner(bank, &name("victim")).unwrap();
        let mut liar = Endpoint::create(&device, cci::Options::default()).unwrap();
        liar.connect(
            victim.uri(),
            &hello(from, "victim", true),
            Attribute::ReliableOrdered,
            0,
            Some(PATIENCE),
        )
        .unwrap();
        let began = Instant::now();
        let lie = loop {
            victim.progress();
            if let Some(Core::Connect { result, .. }) = liar.next_event() {
                break result.unwrap();
            }
            assert!(began.elapsed() < PATIENCE, "the liar is not connected");
        };
        Scene { _folder: folder, victim, service, honest, bank, to_victim, liar, lie }
    }

    fn says(&mut self, frame: &[u8]) {
        self.liar.send(self.lie, frame, 0, SendFlags::SILENT).unwrap();
    }

    /// Turns everybody until `look` finds something.
    fn until<T>(&mut self, mut look: impl FnMut(&mut Scene) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            self.liar.progress();
            self.victim.progress();
            self.honest.progress();
            assert!(began.elapsed() < PATIENCE, "nothing came");
        }
    }

    /// The honest partner's message still comes, and what the victim got before it.
    fn honest_is_heard(&mut self) -> Vec<Event> {
        let (to, mut before) = (self.to_victim, Vec::new());
        self.honest.send(to, b"honest").unwrap();
        self.until(|scene| {
            while let Some(event) = scene.victim.next_event(scene.service) {
                match event {
                    Event::Message(message) if message.item(0) == b"honest" => return Some(()),
                    other => before.push(other),
                }
            }
            None
        });
        before
    }
}

fn on_all(test: impl Fn(&str)) {
    for device in ["shm", "udp", "tcp"] {
        eprintln!("over {device}");
        test(device);
    }
}

#[test]
fn frames_that_are_none_close_the_connection_and_no_other() {
    let good = frame(1, [0; 3], &[b"text"], &[]);
    let mut wrong =
        vec![good[..20].to_vec(), good[..good.len() - 1].to_vec(), [&good[..], b"x"].concat(), Vec::new()];
    for (at, byte) in [(0, 0), (0, 99), (1, 9), (2, 1), (2, 33), (3, 1), (4, 1), (32, 0xff)] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        wrong.push(bytes);
    }
    wrong.push(frame(1, [0; 3], &[], &[long_item(2, [0; 32], 1)]));
    wrong.push(frame(1, [0; 3], &[], &[long_item(0, [0; 32], 0)]));
    wrong.push(frame(1, [0; 3], &[], &[long_item(0, [0; 32], u64::MAX)]));
    for bytes in wrong {
        let mut scene = Scene::new("shm", "liar");
        scene.says(&bytes);
        scene.until(|scene| (scene.victim.counters().malformed == 1).then_some(()));
        assert!(scene.honest_is_heard().is_empty(), "{bytes:?}");
    }
}

#[test]
fn hellos_that_are_none_are_refused() {
    let mut scene = Scene::new("shm", "liar");
    let good = hello("liar", "victim", false);
    let mut trailing = good.clone();
    trailing.push(0);
    let wrong = [
        Vec::new(),
        good[..good.len() - 1].to_vec(),
        trailing,
        hello("liar", "nobody", false),
        hello("../x", "victim", false),
    ];
    for bytes in wrong {
        let uri = scene.victim.uri().to_owned();
        scene.liar.connect(&uri, &bytes, Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
        let result = scene.until(|scene| match scene.liar.next_event() {
            Some(Core::Connect { context: 7, result }) => Some(result),
            _ => None,
        });
        assert!(result.is_err(), "{bytes:?}");
    }
}

#[test]
fn a_flood_costs_nobody_else_their_share() {
    on_all(|device| {
        let mut scene = Scene::new(device, "liar");
        let (message, mut sent) = (frame(1, [0; 3], &[b"flood"], &[]), 0);
        // The victim's program receives nothing meanwhile; its library does.
        while sent < 5_000 {
            if scene.liar.send(scene.lie, &message, 0, SendFlags::SILENT).is_ok() {
                sent += 1;
            } else {
                scene.liar.progress();
                scene.victim.progress();
            }
        }
        scene.until(|scene| (scene.victim.counters().dropped >= 5_000 - 128).then_some(()));
        let before = scene.honest_is_heard();
        assert_eq!(before.len(), 128, "what one partner may have in the queue");
    });
}

#[test]
fn requests_without_end_are_told_to_come_later() {
    on_all(|device| {
        let mut scene = Scene::new(device, "liar");
        for number in 1..=2_000_u64 {
            let request = frame(2, [number, 1, 0], &[b"request"], &[]);
            while scene.liar.send(scene.lie, &request, 0, SendFlags::SILENT).is_err() {
                scene.liar.progress();
                scene.victim.progress();
            }
        }
        // Each beyond the share is answered by `busy`.
        let mut busy = 0;
        scene.until(|scene| {
            while let Some(event) = scene.liar.next_event() {
                if let Core::Recv(message) = event {
                    assert_eq!(message[0], 5);
                    busy += 1;
                }
            }
            (busy == 2_000 - 128).then_some(())
        });
        assert_eq!(scene.honest_is_heard().len(), 128);
    });
}

#[test]
fn nobody_answers_the_calls_of_others() {
    on_all(|device| {
        let mut scene = Scene::new(device, "liar");
        let to_bank = scene.victim.partner(scene.service, &name("bank")).unwrap();
        scene.victim.call(to_bank, b"balance?", CallOptions::default()).unwrap();
        let request = scene.until(|scene| match scene.honest.next_event(scene.bank) {
            Some(Event::Request(request)) => Some(request),
            _ => None,
        });
        for kind in [3, 4, 5, 6] {
            for number in 0..4 {
                scene.says(&frame(kind, [number, 0, 0], &[b"nothing"], &[]));
            }
        }
        assert!(scene.honest_is_heard().is_empty(), "the call has not ended");
        scene.honest.answer(request.ticket(), b"a million").unwrap();
        let answer = scene.until(|scene| match scene.victim.next_event(scene.service) {
            Some(Event::Answer { result, .. }) => Some(result),
            _ => None,
        });
        assert_eq!(answer.unwrap().item(0), b"a million");
    });
}

#[test]
fn who_says_that_it_is_another_gets_nothing_of_what_that_one_is_sent() {
    on_all(|device| {
        let mut scene = Scene::new(device, "liar");
        let to_bank = scene.victim.partner(scene.service, &name("bank")).unwrap();
        scene.victim.send(to_bank, b"first").unwrap();
        scene.until(|scene| scene.honest.next_event(scene.bank));
        // Now somebody else says that it is the bank.
        let uri = scene.victim.uri().to_owned();
        let bytes = hello("bank", "victim", true);
        scene.liar.connect(&uri, &bytes, Attribute::ReliableOrdered, 7, Some(PATIENCE)).unwrap();
        scene.until(|scene| match scene.liar.next_event() {
            Some(Core::Connect { context: 7, result }) => Some(result.unwrap()),
            _ => None,
        });
        scene.victim.send(to_bank, b"second").unwrap();
        let event = scene.until(|scene| scene.honest.next_event(scene.bank));
        assert!(matches!(&event, Event::Message(message) if message.item(0) == b"second"), "{event:?}");
        for _ in 0..100 {
            assert!(scene.liar.next_event().is_none(), "the liar got something");
        }
    });
}

#[test]
fn who_says_that_it_is_another_before_that_one_comes_takes_none_of_its_calls() {
    on_all(|device| {
        let mut scene = Scene::new(device, "bank");
        let next_request = |scene: &mut Scene| {
            scene.until(|scene| match scene.victim.next_event(scene.service) {
                Some(Event::Request(request)) => Some(request),
                other => {
                    assert!(other.is_none(), "{other:?}");
                    None
                }
            })
        };
        // The liar's calls have the numbers that those of the bank will have.
        for number in 1..=3 {
            scene.says(&frame(2, [number, 1, 0], &[b"posed"], &[]));
            let request = next_request(&mut scene);
            scene.victim.answer(request.ticket(), b"for the liar").unwrap();
        }
        let to_victim = scene.to_victim;
        scene.honest.call(to_victim, b"real", CallOptions::default()).unwrap();
        let request = next_request(&mut scene);
        assert_eq!(request.message().item(0), b"real");
        scene.victim.answer(request.ticket(), b"for the bank").unwrap();
        let result = scene.until(|scene| match scene.honest.next_event(scene.bank) {
            Some(Event::Answer { result, .. }) => Some(result),
            _ => None,
        });
        assert_eq!(result.unwrap().item(0), b"for the bank");
        while let Some(event) = scene.liar.next_event() {
            assert!(
                !matches!(&event, Core::Recv(message) if !message.ends_with(b"for the liar")),
                "{event:?}"
            );
        }
    });
}

#[test]
fn leases_and_return_buffers_of_others_are_out_of_reach() {
    on_all(|device| {
        let mut scene = Scene::new(device, "liar");
        let to_bank = scene.victim.partner(scene.service, &name("bank")).unwrap();
        let (lent, offered) =
            (scene.victim.allocate(10_000).unwrap(), scene.victim.allocate(10_000).unwrap());
        assert!(lent.write(0, &[9; 10_000]));
        let (long_items, buffers) = ([Part::all(&lent)], [Part::all(&offered)]);
        let content = Content::from(b"both").long_items(&long_items).return_buffers(&buffers);
        scene.victim.send(to_bank, content).unwrap();
        // The honest one has not looked yet. The liar guesses numbers, as they are: small, with a generation.
        scene.until(|scene| {
            let counters = scene.victim.counters();
            ((counters.leases, counters.return_buffers) == (1, 1)).then_some(())
        });
        let mut guesses = 0;
        for index in 0..8_u64 {
            for generation in 0..8_u64 {
                let number = generation << 32 | index;
                scene.says(&frame(7, [1, 0, number], &[], &[]));
                let mut handle = [0; 32];
                handle[..8].copy_from_slice(&number.to_le_bytes());
                scene.says(&frame(1, [0; 3], &[], &[long_item(1, handle, 10)]));
                guesses += 1;
            }
        }
        let mut lies = 0;
        scene.until(|scene| {
            while let Some(event) = scene.victim.next_event(scene.service) {
                // The honest one's library may have fetched what was lent meanwhile.
                if matches!(event, Event::Returned { partner, fetched: true, .. } if partner == to_bank) {
                    continue;
                }
                let Event::Message(message) = event else { panic!("{event:?}") };
                assert!(matches!(message.long_items(), [None]), "a return buffer of another's was believed");
                lies += 1;
            }
            // Only now may the honest one work.
            (lies == guesses).then_some(())
        });
        let asked = scene.until(|scene| match scene.honest.next_event(scene.bank) {
            Some(Event::Message(message)) => Some(message),
            _ => None,
        });
        assert_eq!(asked.long_items()[0].as_ref().map(|item| item.to_vec()), Some(vec![9; 10_000]));
        let data = scene.honest.allocate(500).unwrap();
        assert!(data.write(0, &[5; 500]));
        scene.honest.send(asked.partner(), Content::default().long_items(&[Part::all(&data)])).unwrap();
        let answer = scene.until(|scene| match scene.victim.next_event(scene.service) {
            Some(Event::Message(message)) => Some(message),
            _ => None,
        });
        let item = answer.long_items()[0].as_ref().unwrap();
        assert_eq!((item.place().unwrap().0.as_ptr(), item.to_vec()), (offered.as_ptr(), vec![5; 500]));
    });
}

#[test]
fn long_items_that_are_not_there_or_are_taken_back_cost_one_message() {
    on_all(|device| {
        let mut scene = Scene::new(device, "liar");
        // A handle that names nothing, one of a region that ends, and one that is shorter than it says.
        let memory = scene.liar.allocate(100).unwrap();
        let only = cci::Registration { range: None, access: Access::READ, only: Some(scene.lie) };
        let ended = scene.liar.register(&memory, only.clone()).unwrap();
        scene.liar.deregister(&ended).unwrap();
        let short = scene.liar.register(&memory, only).unwrap();
        for (handle, len_bytes) in [([7; 32], 50), (ended.to_bytes(), 50), (short.to_bytes(), 101)] {
            scene.says(&frame(1, [0, 0, 1], &[b"look"], &[long_item(0, handle, len_bytes)]));
            let message = scene.until(|scene| match scene.victim.next_event(scene.service) {
                Some(Event::Message(message)) => Some(message),
                _ => None,
            });
            assert!(matches!(message.long_items(), [None]), "{message:?}");
        }
        // More than the victim may hold.
        scene.says(&frame(1, [0, 0, 1], &[b"look"], &[long_item(0, short.to_bytes(), 1 << 40)]));
        let message = scene.until(|scene| match scene.victim.next_event(scene.service) {
            Some(Event::Message(message)) => Some(message),
            _ => None,
        });
        assert!(matches!(message.long_items(), [None]));
        assert!(scene.honest_is_heard().is_empty());
    });
}

#[test]
fn a_service_that_never_answers_costs_a_caller_its_deadline_only() {
    let mut scene = Scene::new("shm", "liar");
    let to_victim = scene.to_victim;
    let options = CallOptions::default().timeout(Duration::from_millis(50));
    scene.honest.call(to_victim, b"hello?", options).unwrap();
    let end = scene.until(|scene| scene.honest.next_event(scene.bank));
    let Event::Answer { result, .. } = end else { panic!("{end:?}") };
    assert!(matches!(result, Err(CallError::TimedOut { reached: true, .. })), "{result:?}");
}
