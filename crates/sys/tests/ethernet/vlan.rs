//! Frames of a virtual LAN (802.1Q) are not for endpoints of the interface that they pass: on no way, whether the tag is still
//! in the frame or was taken out of it.

use cci_sys::ethernet::{FrameHeader, FrameSocket, Link};
use cci_sys::packet::Socket;
use cci_sys::xdp::Wanted;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::net::{End, Veth};
use crate::support::*;

/// A socket whose frames pass the kernel's queues on their way out, where tags are put on.
fn sender(veth: &Veth, end: End) -> OwnedFd {
    // SAFETY: no memory is passed; the descriptor is new.
    let fd = unsafe { OwnedFd::from_raw_fd(libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)) };
    // SAFETY: zeros are a valid sockaddr_ll.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    to.sll_ifindex = link(veth, end).index as i32;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: reads `len` bytes of `to`, which outlives the call.
    assert_eq!(unsafe { libc::bind(fd.as_raw_fd(), (&raw const to).cast(), len) }, 0);
    fd
}

fn put_frame(fd: &OwnedFd, frame: &[u8]) {
    // SAFETY: reads the frame, which outlives the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
}

fn bpf(command: libc::c_long, attr: &mut [u64; 16]) -> std::io::Result<OwnedFd> {
    // SAFETY: the structures of the two commands used below are shorter than this, and their addresses are valid meanwhile.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), size_of_val(attr)) };
    if done < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: both commands give a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(done as i32) })
}

/// From now on what leaves the interface by the kernel's queues bears this tag, which the kernel keeps beside the frame. Until the
/// descriptor is closed. None: this kernel can't, which is said.
fn tag_all(veth: &Veth, end: End, tci: u16) -> Option<OwnedFd> {
    const PROG_LOAD: libc::c_long = 5;
    const LINK_CREATE: libc::c_long = 28;
    const SCHED_CLS: u64 = 3;
    const TCX_EGRESS: u64 = 47;
    // bpf_skb_vlan_push(skb, 802.1Q, tci); return TCX_NEXT.
    let code: [[u8; 8]; 6] = [
        [0xb7, 2, 0, 0, 0x81, 0, 0, 0],
        [0xb7, 3, 0, 0, tci as u8, (tci >> 8) as u8, 0, 0],
        [0x85, 0, 0, 0, 18, 0, 0, 0],
        [0xb7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
        [0x95, 0, 0, 0, 0, 0, 0, 0],
        [0; 8],
    ];
    let mut attr = [0; 16];
    attr[0] = SCHED_CLS | 5 << 32;
    attr[1] = code.as_ptr() as u64;
    attr[2] = c"GPL".as_ptr() as u64;
    let program = bpf(PROG_LOAD, &mut attr).unwrap();
    let mut attr = [0; 16];
    attr[0] = program.as_raw_fd() as u64 | u64::from(link(veth, end).index) << 32;
    attr[1] = TCX_EGRESS;
    bpf(LINK_CREATE, &mut attr).map_err(|error| println!("skipped: no program can tag frames: {error}")).ok()
}

/// The frame with a tag put into it.
fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let [high, low] = tci.to_be_bytes();
    [&frame[..12], &[0x81, 0x00, high, low], &frame[12..]].concat()
}

/// The virtual LAN.
const LAN: u16 = 5;
/// Tags that name no virtual LAN: none, and a priority only.
const PRIORITIES: [u16; 2] = [0, 0x2000];

/// Sends frames for endpoint 2 on b, numbered.
struct Sender<'a> {
    veth: &'a Veth,
    socket: OwnedFd,
    number: u8,
}

impl Sender<'_> {
    fn frame(&mut self) -> Vec<u8> {
        self.number += 1;
        let payload = [0x10, self.number, 0, 0, 0, 0, 0, 0];
        [&header(self.veth, 2).emit(8)[..], &payload].concat()
    }

    /// With a tag in the frame; what is in it.
    fn inside(&mut self, tci: u16) -> u8 {
        let frame = tagged(&self.frame(), tci);
        put_frame(&self.socket, &frame);
        self.number
    }

    /// With a tag beside it. None: this kernel can't.
    fn beside(&mut self, tci: u16) -> Option<u8> {
        let _tagging = tag_all(self.veth, End::A, tci)?;
        let frame = self.frame();
        put_frame(&self.socket, &frame);
        Some(self.number)
    }

    fn plain(&mut self) -> u8 {
        let frame = self.frame();
        put_frame(&self.socket, &frame);
        self.number
    }
}

/// The numbers of all frames that have come by the sockets of an endpoint, `last` being the last that was sent.
fn came(sockets: &mut [&mut dyn FrameSocket], last: u8) -> Vec<u8> {
    let (mut numbers, start) = (Vec::new(), Instant::now());
    while !numbers.contains(&last) {
        assert!(start.elapsed() < PATIENCE, "{numbers:?} came, and not {last}");
        for socket in &mut *sockets {
            while let Some((_, payload)) = take_within(*socket, Duration::ZERO) {
                numbers.push(payload[1]);
            }
        }
    }
    numbers.sort_unstable();
    numbers
}

/// Sends frames of a virtual LAN, and others; of the LAN none may come, of the others all, and once.
fn is_deaf_to_lans(sender: &mut Sender<'_>, sockets: &mut [&mut dyn FrameSocket], what: &str) {
    let mut expected = vec![sender.plain()];
    sender.inside(LAN);
    sender.beside(LAN);
    for tci in PRIORITIES {
        expected.push(sender.inside(tci));
        expected.extend(sender.beside(tci));
    }
    let last = sender.plain();
    expected.push(last);
    assert_eq!(came(sockets, last), expected, "{what}");
    for socket in sockets {
        nothing(*socket);
    }
}

#[test]
fn frames_of_a_virtual_lan_are_for_nobody_on_the_interface() {
    let Some(veth) = pair(1_500) else { return };
    let mut sender = Sender { veth: &veth, socket: sender(&veth, End::A), number: 0 };
    {
        let mut packet = crate::packet::open(&veth, End::B, 2);
        is_deaf_to_lans(&mut sender, &mut [&mut packet], "packet sockets");
    }
    let Some(mut ring) = crate::xdp::open(&veth, End::B, 2, Wanted::Native) else { return };
    if !asks_for_tags() {
        return println!("skipped: this kernel's drivers can't be asked for tags");
    }
    let mut beside = crate::packet::open(&veth, End::B, 2);
    is_deaf_to_lans(&mut sender, &mut [&mut ring.socket, &mut beside], "in the driver");
}

/// The kernel has the function that the program asks by since 6.8.
fn asks_for_tags() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(8))
}

/// Behind the driver a program sees the tags that are in frames, and no others.
#[test]
fn behind_the_driver_frames_with_a_tag_in_them_are_for_nobody() {
    let Some(veth) = pair(1_500) else { return };
    let mut sender = Sender { veth: &veth, socket: sender(&veth, End::A), number: 0 };
    let Some(mut ring) = crate::xdp::open(&veth, End::B, 2, Wanted::Generic) else { return };
    let mut beside = crate::packet::open(&veth, End::B, 2);
    sender.inside(LAN);
    let priority = sender.inside(PRIORITIES[1]);
    let last = sender.plain();
    assert_eq!(came(&mut [&mut ring.socket, &mut beside], last), [priority, last]);
}

#[test]
fn frames_for_an_interface_on_top_are_not_for_endpoints_below() {
    let Some(veth) = pair(1_500) else { return };
    let mac = [2, 0, 0, 0, 7, 7];
    let ip = |arguments: &str| Command::new("ip").args(arguments.split(' ')).status().unwrap().success();
    if !ip("link add link b0 name m0 address 02:00:00:00:07:07 type macvlan mode private") {
        return println!("skipped: no interfaces on top of others here");
    }
    assert!(ip("link set m0 up"));
    let mut below = crate::packet::open(&veth, End::B, 2);
    let top = Link::of("m0").unwrap();
    let mut above = Socket::open(&crate::packet::options(&top, 2)).unwrap();
    let mut a = crate::packet::open(&veth, End::A, 1);
    let good = header(&veth, 2);
    send(&mut a, &FrameHeader { to: mac, ..good }, b"above");
    assert_eq!(take(&mut above).1, b"above");
    send(&mut a, &good, b"below");
    assert_eq!(take(&mut below).1, b"below", "and nothing before it");
    nothing(&mut above);
}
