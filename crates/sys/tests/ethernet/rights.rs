//! What is missing is said by name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cci_sys::packet;
use cci_sys::xdp::{Mode, Program, Refusal, Socket, Wanted, probe};

use crate::net::{End, Veth};
use crate::support::*;

const NET_ADMIN: u32 = 12;
const NET_RAW: u32 = 13;
const IPC_LOCK: u32 = 14;
const SYS_ADMIN: u32 = 21;
const BPF: u32 = 39;

/// Takes capabilities from the calling thread's effective set.
fn without(capabilities: &[u32]) {
    let mut head: [u32; 2] = [0x2008_0522, 0];
    // Effective, permitted, inheritable; low words, then high ones.
    let mut sets = [0u32; 6];
    // SAFETY: reads the header and writes six words, of which version 3 has as many.
    let read = unsafe { libc::syscall(libc::SYS_capget, head.as_mut_ptr(), sets.as_mut_ptr()) };
    assert_eq!(read, 0);
    for capability in capabilities {
        sets[(capability / 32 * 3) as usize] &= !(1 << (capability % 32));
    }
    // SAFETY: reads what capget has written, a little changed.
    let written = unsafe { libc::syscall(libc::SYS_capset, head.as_mut_ptr(), sets.as_ptr()) };
    assert_eq!(written, 0);
}

/// Runs `test` on a thread in the pair's namespace that lacks capabilities.
fn lacking<T: Send>(veth: &Veth, capabilities: &[u32], test: impl FnOnce() -> T + Send) -> T {
    let namespace = veth.namespace(End::B);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let inside = namespace.enter().unwrap();
            without(capabilities);
            let result = test();
            // It ends here: going back takes a capability.
            std::mem::forget(inside);
            result
        });
        thread.join().unwrap()
    })
}

#[track_caller]
fn missing<T: std::fmt::Debug>(result: Result<T, Refusal>) -> Vec<&'static str> {
    match result.unwrap_err() {
        refusal @ Refusal::Rights { .. } => {
            let (said, remedy) = (refusal.to_string(), refusal.remedy());
            let Refusal::Rights { missing, .. } = refusal else { unreachable!() };
            for name in &missing {
                assert!(said.contains(name), "{said}");
                assert!(remedy.contains(&name.to_lowercase()), "{remedy}");
            }
            missing
        }
        other => panic!("{other}"),
    }
}

#[test]
fn missing_capabilities_are_named() {
    let Some(veth) = pair(1_500) else { return };
    let options = crate::xdp::options(&veth, End::B);
    let index = options.interface_index;
    let plain = crate::packet::options(&link(&veth, End::B), 9);
    match probe(&options) {
        Ok(mode) => assert_eq!(mode, None),
        Err(refusal) => return println!("skipped: {refusal}; {}", refusal.remedy()),
    }
    lacking(&veth, &[NET_RAW], || {
        assert_eq!(missing(Socket::open(&options)), ["CAP_NET_RAW"]);
        assert_eq!(missing(probe(&options)), ["CAP_NET_RAW"]);
        let refused = packet::Socket::open(&plain).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::EPERM), "{refused}");
    });
    lacking(&veth, &[BPF, SYS_ADMIN], || {
        assert_eq!(missing(Program::attach(index, Wanted::Auto)), ["CAP_BPF"]);
        assert_eq!(missing(probe(&options)), ["CAP_BPF"]);
        packet::Socket::open(&plain).unwrap();
    });
    lacking(&veth, &[NET_ADMIN, SYS_ADMIN], || {
        assert_eq!(missing(Program::attach(index, Wanted::Auto)), ["CAP_NET_ADMIN"]);
        assert_eq!(missing(probe(&options)), ["CAP_NET_ADMIN"]);
    });
    // Sharing takes more than being the first.
    lacking(&veth, &[SYS_ADMIN], || {
        assert_eq!(probe(&options).unwrap(), None);
        let first = Program::attach(index, Wanted::Auto).unwrap();
        assert_eq!(missing(Program::attach(index, Wanted::Auto)), ["CAP_SYS_ADMIN"]);
        assert_eq!(missing(probe(&options)), ["CAP_SYS_ADMIN"]);
        drop(first);
    });
    // Another test may start a process at this moment, which has a copy of the program's link until it executes its own program.
    let start = Instant::now();
    while probe(&options).unwrap().is_some() {
        assert!(start.elapsed() < PATIENCE, "the program stays");
        std::thread::sleep(Duration::from_millis(1));
    }
    let program = Program::attach(index, Wanted::Generic).unwrap();
    assert_eq!(probe(&options).unwrap(), Some(Mode::Generic));
    drop(program);
}

#[test]
fn memory_that_may_not_be_locked_is_told() {
    let Some(veth) = pair(1_500) else { return };
    let plain = crate::xdp::options(&veth, End::B);
    if let Err(refusal) = probe(&plain) {
        return println!("skipped: {refusal}; {}", refusal.remedy());
    }
    let Some(limit) = cci_sys::limits::read().locked_bytes else {
        return println!("skipped: no limit on locked memory");
    };
    let frames = (limit / 2_048 + 64) as usize;
    let large = cci_sys::xdp::Options { recv_frames: frames, ..plain };
    if limit > 1 << 28 {
        return println!("skipped: {limit} bytes may be locked");
    }
    lacking(&veth, &[IPC_LOCK], || {
        let refused = probe(&large).unwrap_err();
        assert!(matches!(refused, Refusal::Locked { .. }), "{refused}");
        let refused = Socket::open(&large).unwrap_err();
        assert!(matches!(refused, Refusal::Locked { bytes } if bytes as u64 > limit), "{refused}");
    });
}

#[test]
fn an_interface_that_is_not_there_is_told() {
    let Some(veth) = pair(1_500) else { return };
    let nowhere = cci_sys::xdp::Options { interface_index: 4_242, ..crate::xdp::options(&veth, End::B) };
    let gone = Program::attach(4_242, Wanted::Auto).unwrap_err();
    assert!(matches!(&gone, Refusal::System(error) if error.errno() == Some(libc::ENODEV)), "{gone}");
    match Socket::open(&nowhere).unwrap_err() {
        Refusal::System(error) => assert_eq!(error.errno(), Some(libc::ENODEV)),
        refusal @ (Refusal::Unsupported(_) | Refusal::Rights { .. }) => println!("skipped: {refusal}"),
        other => panic!("{other}"),
    }
}

extern "C" fn nothing_to_do(_signal: libc::c_int) {}

/// The kernel's verifier gives up when a signal comes, which has nothing to do with the program.
#[test]
fn signals_do_not_keep_the_program_from_being_loaded() {
    const SIGNAL_PERIOD: Duration = Duration::from_millis(5);
    let Some(veth) = pair(1_500) else { return };
    let options = crate::xdp::options(&veth, End::B);
    if let Err(refusal) = probe(&options) {
        return println!("skipped: {refusal}; {}", refusal.remedy());
    }
    // SAFETY: zeros are a valid value of this type.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing_to_do as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: a handler that does nothing, and a complete structure.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
    // SAFETY: always succeeds.
    let loader = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                // SAFETY: that thread waits for this one before it ends.
                assert_eq!(unsafe { libc::pthread_kill(loader, libc::SIGUSR1) }, 0);
                std::thread::sleep(SIGNAL_PERIOD);
            }
        });
        let loaded: Vec<_> = (0..200).map(|_| probe(&options)).collect();
        is_over.store(true, Ordering::Relaxed);
        for result in loaded {
            assert_eq!(result.unwrap(), None);
        }
    });
}
