//! An endpoint number has one owner, which is somebody who may send raw frames, and is free when its process has ended.

use cci_sys::ethernet::EndpointLock;
use std::io::{BufRead, BufReader};
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::net::End;
use crate::support::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
/// Set in the process that is `holder`.
const NUMBER: &str = "CCI_SYS_TEST_NUMBER";
/// The user nobody.
const NOBODY: libc::c_long = 65_534;

fn errno(taken: Result<EndpointLock, cci_sys::SysError>) -> Option<i32> {
    taken.err().and_then(|error| error.errno())
}

/// Not a test by itself: run by others as a process of its own, which holds a number until it is killed.
#[test]
fn holder() {
    let Ok(number) = std::env::var(NUMBER) else { return };
    let _lock = EndpointLock::take(MAC, number.parse().unwrap()).unwrap();
    println!("\nheld");
    std::thread::sleep(Duration::from_secs(60));
}

/// A running `holder`.
fn hold(number: u32) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "owners::holder", "--nocapture", "--test-threads=1"])
        .env(NUMBER, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "held"), "it says so");
    child
}

#[test]
fn a_number_has_one_owner_at_a_time() {
    let Some(veth) = pair(1_500) else { return };
    let held = EndpointLock::take(MAC, 7).unwrap();
    assert_eq!(held.endpoint(), 7);
    assert_eq!(errno(EndpointLock::take(MAC, 7)), Some(libc::EADDRINUSE));
    let _others = [EndpointLock::take(MAC, 8).unwrap(), EndpointLock::take([2, 0, 0, 0, 0, 8], 7).unwrap()];
    assert!(EndpointLock::take(MAC, 0).is_err());
    // In another network namespace there are other interfaces, and other owners.
    let elsewhere = crate::net::Veth::across(&[crate::net::Wire::default()]).unwrap();
    let there = EndpointLock::take(MAC, 7).unwrap();
    drop(elsewhere);
    drop(held);
    EndpointLock::take(MAC, 7).unwrap();
    drop(there);
    EndpointLock::take(MAC, 7).unwrap();
    drop(veth);
}

#[test]
fn a_number_is_free_when_its_owner_was_killed() {
    let Some(_veth) = pair(1_500) else { return };
    for _ in 0..3 {
        let mut owner = hold(7);
        assert_eq!(errno(EndpointLock::take(MAC, 7)), Some(libc::EADDRINUSE));
        owner.kill().unwrap();
        owner.wait().unwrap();
        EndpointLock::take(MAC, 7).unwrap();
    }
}

#[test]
fn many_who_want_a_number_at_once_get_it_one_at_a_time() {
    let Some(veth) = pair(1_500) else { return };
    let owners = std::sync::atomic::AtomicU32::new(0);
    let taken = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let namespace = veth.namespace(End::A);
            scope.spawn(|| {
                let _inside = namespace.enter().unwrap();
                drop(namespace);
                for _ in 0..10 {
                    match EndpointLock::take(MAC, 5) {
                        Ok(_lock) => {
                            use std::sync::atomic::Ordering::SeqCst;
                            assert_eq!(owners.fetch_add(1, SeqCst), 0, "two owners");
                            taken.fetch_add(1, SeqCst);
                            std::thread::yield_now();
                            owners.fetch_sub(1, SeqCst);
                        }
                        Err(error) => assert_eq!(error.errno(), Some(libc::EADDRINUSE), "{error}"),
                    }
                }
            });
        }
    });
    assert!(taken.into_inner() >= 10, "each round somebody gets it");
}

/// Runs `test` on a thread in the pair's namespace that is the user nobody.
fn as_nobody<T: Send>(veth: &crate::net::Veth, test: impl FnOnce() -> T + Send) -> T {
    let namespace = veth.namespace(End::A);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let inside = namespace.enter().unwrap();
            // SAFETY: system calls without memory, which concern this thread only; capabilities go with the user's number.
            unsafe {
                assert_eq!(libc::syscall(libc::SYS_setresgid, NOBODY, NOBODY, NOBODY), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY), 0);
            }
            let result = test();
            // It ends here: going back takes a capability.
            std::mem::forget(inside);
            result
        });
        thread.join().unwrap()
    })
}

/// An abstract UNIX socket, as anybody can make one.
fn abstract_name(name: &str) -> OwnedFd {
    // SAFETY: no memory is passed; the descriptor is new.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0) };
    // SAFETY: zeros are a valid sockaddr_un.
    let mut at: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    at.sun_family = libc::AF_UNIX as u16;
    for (place, byte) in at.sun_path.iter_mut().skip(1).zip(name.bytes()) {
        *place = byte as libc::c_char;
    }
    let len = (size_of::<libc::sa_family_t>() + 1 + name.len()) as libc::socklen_t;
    // SAFETY: reads `len` bytes of the address, which outlives the call.
    assert_eq!(unsafe { libc::bind(fd, (&raw const at).cast(), len) }, 0);
    // SAFETY: opened above, and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

#[test]
fn who_may_not_send_frames_takes_no_number_and_keeps_none_from_others() {
    let Some(veth) = pair(1_500) else { return };
    let link = link(&veth, End::A);
    let (names, taken) = as_nobody(&veth, || {
        // The names that numbers were held by once.
        let names: Vec<OwnedFd> =
            (1..20).map(|number| abstract_name(&format!("cci-eth-{}-{number}", link.index))).collect();
        (names, EndpointLock::take(link.mac, 21))
    });
    assert_eq!(errno(taken), Some(libc::EPERM));
    let start = Instant::now();
    for number in 1..22 {
        let taken = EndpointLock::take(link.mac, number);
        assert!(taken.is_ok(), "{number}: {}", taken.unwrap_err());
    }
    assert!(start.elapsed() < PATIENCE);
    drop(names);
}
