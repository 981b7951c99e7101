//! Several processes on one interface, and what is left when they are killed.

use cci_sys::ethernet::{EndpointLock, FrameHeader, FrameSocket};
use cci_sys::packet;
use cci_sys::xdp::{Attachment, Check, Mode, Program, Refusal, Wanted};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::net::{End, Veth};
use crate::support::*;
use crate::xdp::Ring;

/// Set in the processes that are `echo`.
const ENDPOINT: &str = "CCI_SYS_TEST_ENDPOINT";

/// Not a test by itself: run by others as a process of its own, an endpoint on b0 that sends everything back until it is
/// killed.
#[test]
fn echo() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    let link = cci_sys::ethernet::Link::of("b0").unwrap();
    let lock = EndpointLock::take(link.mac, endpoint.parse().unwrap()).unwrap();
    let mut beside = packet::Socket::open(&crate::packet::options(&link, lock.endpoint())).unwrap();
    let options = cci_sys::xdp::Options {
        interface_index: link.index,
        frame_bytes_max: link.mtu_bytes + 14,
        recv_frames: 64,
        send_frames: 64,
    };
    let program = Program::attach(link.index, Wanted::Auto).unwrap();
    let mut ring = match cci_sys::xdp::Socket::open(&options) {
        Ok(socket) => Some(socket),
        Err(Refusal::NoQueue { .. }) => None,
        Err(refusal) => panic!("{refusal}"),
    };
    let mut attachment = Attachment::create(program, &lock, link.mac, ring.as_ref()).unwrap();
    attachment.connected(1, 1, 1).unwrap();
    attachment.set_check(Check::Nonce).unwrap();
    println!("\n{}", if ring.is_some() { "ring" } else { "packets" });
    let start = Instant::now();
    // The parent kills us long before.
    while start.elapsed() < Duration::from_secs(60) {
        if let Some(ring) = &mut ring {
            give_back(ring);
        }
        give_back(&mut beside);
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn give_back(socket: &mut dyn FrameSocket) {
    while let Some((header, payload)) = take_within(socket, Duration::ZERO) {
        send(socket, &back(&header), &payload);
    }
    socket.release();
}

/// A running `echo`, killed when dropped.
struct Echo {
    child: Child,
    has_ring: bool,
}

impl Echo {
    /// Starts one in the namespace of the calling thread.
    fn start(endpoint: u32) -> Echo {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sharing::echo", "--nocapture", "--test-threads=1"])
            .env(ENDPOINT, endpoint.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find_map(|line| match line.as_str() {
            "ring" => Some(true),
            "packets" => Some(false),
            _ => None,
        });
        let has_ring = said.expect("it says what it has");
        Echo { child, has_ring }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn answers(a: &mut dyn FrameSocket, there: &FrameHeader) -> bool {
    (0..20).any(|round| {
        let payload = pattern(40, round);
        send(a, there, &payload);
        take_within(a, Duration::from_millis(100)).is_some_and(|(_, came)| came == payload)
    })
}

/// Whether iproute2 sees a program on an interface.
fn has_program(name: &str) -> bool {
    let said = Command::new("ip").args(["-d", "link", "show", "dev", name]).output().unwrap();
    assert!(said.status.success());
    String::from_utf8_lossy(&said.stdout).contains("xdp")
}

fn wait_for_no_program(name: &str) {
    let start = Instant::now();
    while has_program(name) {
        assert!(start.elapsed() < PATIENCE, "something is left on {name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn has_xdp(veth: &Veth) -> bool {
    crate::xdp::open(veth, End::A, 99, Wanted::Auto).is_some()
}

#[test]
fn processes_share_an_interface_and_killed_ones_leave_nothing() {
    let Some(veth) = pair(1_500) else { return };
    if !has_xdp(&veth) {
        return;
    }
    let mut a = crate::packet::open(&veth, End::A, 1);
    let [two, three] = [2, 3].map(|to| header(&veth, to));
    let first = Echo::start(2);
    let second = Echo::start(3);
    assert!(first.has_ring && !second.has_ring, "there is one queue");
    assert!(answers(&mut a, &two) && answers(&mut a, &three));
    assert!(has_program("b0"));
    first.kill();
    assert!(answers(&mut a, &three), "the other goes on");
    send(&mut a, &two, b"to nobody");
    nothing(&mut a);
    // Somebody else is endpoint 2 now, with the ring, and knows nothing of the connections of the one before.
    // (The kernel may take a while to free the queue.)
    let again = (0..10).map(|_| Echo::start(2)).find(|echo| echo.has_ring).expect("the queue is free");
    assert!(answers(&mut a, &two) && answers(&mut a, &three));
    second.kill();
    assert!(answers(&mut a, &two));
    again.kill();
    wait_for_no_program("b0");
}

#[test]
fn all_who_attach_at_once_share_one_program() {
    let Some(veth) = pair(1_500) else { return };
    if !has_xdp(&veth) {
        return;
    }
    let (index, mac) = (link(&veth, End::B).index, link(&veth, End::B).mac);
    for round in 0..10 {
        let namespace = veth.namespace(End::B);
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let namespace = namespace.clone();
                std::thread::spawn(move || {
                    let _inside = namespace.enter().unwrap();
                    // Some come while others go.
                    for _ in 0..3 {
                        drop(Program::attach(index, Wanted::Auto).unwrap());
                    }
                    let lock = EndpointLock::take(mac, 100 + number).unwrap();
                    let program = Program::attach(index, Wanted::Auto).unwrap();
                    (Attachment::create(program, &lock, mac, None).unwrap(), lock)
                })
            })
            .collect();
        let seats: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        // Each sees what comes for the others.
        let mut a = crate::packet::open(&veth, End::A, 1);
        let before = seats[0].0.counters().unwrap().passed;
        send(&mut a, &header(&veth, 103), b"x");
        let counts: Vec<u64> =
            seats.iter().map(|(attachment, _)| attachment.counters().unwrap().passed - before).collect();
        assert_eq!(counts, [1; 6], "round {round}");
        drop(seats);
        wait_for_no_program("b0");
    }
}

#[test]
fn each_queue_has_a_ring_and_frames_of_other_queues_pass() {
    let Some(veth) = pair(1_500) else { return };
    let queues = "numtxqueues 2 numrxqueues 2";
    let made = Command::new("ip")
        .args(format!("link add c0 {queues} address 02:00:00:00:09:01 type veth peer name d0 {queues} address 02:00:00:00:09:02").split(' '))
        .status()
        .unwrap();
    assert!(made.success());
    for name in ["c0", "d0"] {
        assert!(Command::new("ip").args(["link", "set", name, "up"]).status().unwrap().success());
    }
    let (c, d) = (cci_sys::ethernet::Link::of("c0").unwrap(), cci_sys::ethernet::Link::of("d0").unwrap());
    let open = |link: &cci_sys::ethernet::Link, endpoint| -> Result<Ring, Refusal> {
        let lock = EndpointLock::take(link.mac, endpoint).unwrap();
        let program = Program::attach(link.index, Wanted::Auto)?;
        let options =
            cci_sys::xdp::Options { interface_index: link.index, ..crate::xdp::options(&veth, End::A) };
        let socket = cci_sys::xdp::Socket::open(&options)?;
        let attachment = Attachment::create(program, &lock, link.mac, Some(&socket))?;
        Ok(Ring { socket, attachment, _lock: lock })
    };
    let mut senders = match [open(&c, 1), open(&c, 2)] {
        [Ok(one), Ok(two)] => [one, two],
        [Err(refusal @ (Refusal::Unsupported(_) | Refusal::Rights { .. })), _] => {
            return println!("skipped: {refusal}");
        }
        [one, two] => panic!("{:?} {:?}", one.err(), two.err()),
    };
    let mut receivers = [open(&d, 3).unwrap(), open(&d, 4).unwrap()];
    assert!(matches!(open(&d, 5), Err(Refusal::NoQueue { queues: 2 })));
    let options = |endpoint| crate::packet::options(&d, endpoint);
    let mut beside = [3, 4].map(|endpoint| packet::Socket::open(&options(endpoint)).unwrap());
    for (from, sender) in senders.iter_mut().enumerate() {
        for to in 0..2 {
            let there = FrameHeader {
                to: d.mac,
                from: c.mac,
                to_endpoint: 3 + to as u32,
                from_endpoint: 1 + from as u32,
            };
            send(&mut sender.socket, &there, b"hello");
            // A pair joins queues of one number; the frame arrives on the other queue than the ring's otherwise.
            let (ring, beside) = (&mut receivers[to], &mut beside[to]);
            let same = sender.socket.queue() == ring.socket.queue();
            let came = take(if same { &mut ring.socket } else { beside });
            assert_eq!(came, (there, b"hello".to_vec()));
        }
    }
}

#[test]
fn a_program_of_somebody_else_is_left_alone() {
    let Some(veth) = pair(1_500) else { return };
    if !has_xdp(&veth) {
        return;
    }
    let index = link(&veth, End::B).index;
    // r0 = XDP_PASS; exit.
    let code: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    let license = c"GPL";
    #[repr(C)]
    struct Load {
        kind_and_count: [u32; 2],
        code: u64,
        license: u64,
        log: [u64; 2],
        kernel_and_flags: [u32; 2],
        name: [u8; 16],
        interface_and_attach: [u32; 2],
    }
    let mut load = Load {
        kind_and_count: [6, 2],
        code: code.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log: [0; 2],
        kernel_and_flags: [0; 2],
        name: *b"somebody_else\0\0\0",
        interface_and_attach: [0, 37],
    };
    // SAFETY: the structure of BPF_PROG_LOAD; what it points to outlives the call.
    let program = unsafe { libc::syscall(libc::SYS_bpf, 5, &raw mut load, size_of::<Load>()) };
    assert!(program > 0, "{}", std::io::Error::last_os_error());
    let mut attach: [u32; 4] = [program as u32, index, 37, 1 << 1];
    // SAFETY: the structure of BPF_LINK_CREATE: four numbers.
    let their_link = unsafe { libc::syscall(libc::SYS_bpf, 28, &raw mut attach, 16) };
    assert!(their_link > 0, "{}", std::io::Error::last_os_error());
    for wanted in [Wanted::Auto, Wanted::Generic, Wanted::Native] {
        let refused = Program::attach(index, wanted).unwrap_err();
        assert!(matches!(&refused, Refusal::Foreign { program } if program == "somebody_else"), "{refused}");
    }
    // SAFETY: descriptors that the kernel has just given us, closed once.
    unsafe { (libc::close(their_link as i32), libc::close(program as i32)) };
    wait_for_no_program("b0");
    let mode = Program::attach(index, Wanted::Generic).unwrap().mode();
    assert_eq!(mode, Mode::Generic);
}
