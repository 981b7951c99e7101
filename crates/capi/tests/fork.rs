//! A program that forks without exec while it has endpoints: the child's every call is refused, whatever it drops and
//! however it ends, and its parent does not notice. From Rust and from C, on every device.

use cci::{
    Access, Attribute, Connection, Context, Device, Endpoint, Event, Memory, Options, RegionAddress,
    RegionHandle, RmaError, RmaFlags, SendError, SendFlags, SharedEndpoint, Status,
};
use cci_capi::types::*;
use cci_capi::*;
use cci_testkit::conformance::{self, DeviceUnderTest};
use cci_testkit::figures;
use cci_testkit::net::{End, Veth};
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const LEN: usize = 64 << 10;

const DEVICES: [DeviceUnderTest; 10] = [
    conformance::SHM,
    conformance::SHM_RING,
    conformance::UDP4,
    conformance::TCP4,
    conformance::ANY,
    conformance::ANY_FAR,
    conformance::UDP_BONDED,
    conformance::ETH,
    conformance::ETH_PACKET,
    conformance::ETH_DRIVER,
];

/// Forks; the child runs `act`, which says what went wrong, and ends: at once, or as a program that returns from `main`.
fn in_child(plain_exit: bool, act: impl FnOnce() -> Result<(), String>) {
    // SAFETY: what the child runs is what is tested. Of what it needs of the C library, that puts its allocator in order for
    // a child; and it ends by `_exit` or `exit` and never returns to the test runner.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: a child that hangs is ended by the signal, which the parent sees.
        unsafe { libc::alarm(20) };
        let code = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(act)) {
            Ok(Ok(())) => 0,
            Ok(Err(what)) => {
                eprintln!("in the child: {what}");
                1
            }
            Err(_) => 2,
        };
        // SAFETY: ends the child.
        unsafe { if plain_exit { libc::exit(code) } else { libc::_exit(code) } };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "how the child ended");
}

fn expect(what: &str, holds: bool) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.to_owned()) }
}

fn device(name: &str) -> Device {
    let context = Context::from_text(&conformance::config_of(name), Path::new("fork.ini")).unwrap();
    context.device(name).expect("its section was read").clone()
}

/// Two endpoints that are connected, and memory of one that the other writes to.
struct Two {
    near: SharedEndpoint,
    far: SharedEndpoint,
    to_far: Connection,
    from: Memory,
    local: RegionHandle,
    into: Memory,
    remote: RegionHandle,
    round: u8,
}

impl Two {
    fn open(about: &DeviceUnderTest, network: Option<&Veth>, thread: bool) -> Two {
        let open = |name: &str| {
            let device = device(name);
            if thread {
                SharedEndpoint::with_progress_thread(&device, Options::default()).expect("an endpoint")
            } else {
                SharedEndpoint::new(Endpoint::create(&device, Options::default()).expect("an endpoint"))
            }
        };
        let near = open(about.name);
        let far = {
            let there = network.map(|veth| veth.enter(End::B));
            let far = open(about.peer.unwrap_or(about.name));
            drop(there);
            far
        };
        near.connect(&far.uri(), b"", Attribute::ReliableOrdered, 1, Some(PATIENCE)).unwrap();
        let (mut to_far, mut accepted) = (None, false);
        let start = Instant::now();
        while to_far.is_none() || !accepted {
            assert!(start.elapsed() < PATIENCE, "{}: not connected", about.name);
            match far.next_event() {
                Some(Event::ConnectRequest(request)) => far.accept(request, 2).unwrap(),
                Some(Event::Accept { result, .. }) => accepted = result.is_ok(),
                _ => {}
            }
            if let Some(Event::Connect { result, .. }) = near.next_event() {
                to_far = Some(result.unwrap());
            }
        }
        let (from, into) = (near.allocate(LEN).unwrap(), far.allocate(LEN).unwrap());
        let local = near.register(&from, Access::LOCAL).unwrap();
        let remote = far.register(&into, Access::ALL).unwrap();
        let to_far = to_far.unwrap();
        Two { near, far, to_far, from, local, into, remote, round: 0 }
    }

    /// Begins what `finish` ends: a fork in between is in the middle of it.
    fn begin(&mut self) {
        self.round += 1;
        assert!(self.from.write(0, &[self.round; LEN]));
        let (from, into) = (RegionAddress::new(self.local, 0), RegionAddress::new(self.remote, 0));
        for number in 0..20u8 {
            self.near
                .send(self.to_far, &[self.round, number], 100 + u64::from(number), SendFlags::NONE)
                .unwrap();
        }
        self.near.rma_write(self.to_far, from, into, LEN as u64, 7, RmaFlags::NONE).unwrap();
    }

    fn finish(&mut self) {
        let (mut ended, mut came) = (0, 0);
        let start = Instant::now();
        while ended < 21 || came < 20 {
            assert!(start.elapsed() < PATIENCE, "{ended} ended, {came} came");
            match self.far.next_event() {
                Some(Event::Recv(message)) => {
                    assert_eq!(&*message, &[self.round, came]);
                    came += 1;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
            match self.near.next_event() {
                Some(Event::Send { status, .. }) => {
                    assert_eq!(status, Status::Success);
                    ended += 1;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
        let mut bytes = vec![0; LEN];
        assert!(self.into.read(0, &mut bytes) && bytes.iter().all(|byte| *byte == self.round));
    }
}

/// What a child may try.
fn every_call_is_refused(two: &Two) -> Result<(), String> {
    let (near, to_far) = (&two.near, two.to_far);
    let sent = near.send(to_far, b"x", 0, SendFlags::NONE);
    expect("send", sent == Err(SendError::OtherProcess))?;
    expect("send_blocking", near.send_blocking(to_far, &[b"x"]) == Err(SendError::OtherProcess))?;
    expect("connect", near.connect("nobody", b"", Attribute::Unreliable, 0, None).is_err())?;
    expect("next_event", near.next_event().is_none())?;
    expect("wait", near.wait(None).is_err())?;
    expect("try_with", near.try_with(|_| ()).is_err() && near.check_process().is_err())?;
    let (from, into) = (RegionAddress::new(two.local, 0), RegionAddress::new(two.remote, 0));
    let written = near.rma_write(to_far, from, into, 8, 0, RmaFlags::NONE);
    expect("rma_write", written == Err(RmaError::OtherProcess))?;
    expect("register", near.register(&two.from, Access::LOCAL).is_err())?;
    expect("deregister", near.deregister(&two.local).is_err())?;
    expect("allocate", near.allocate(1).is_err())?;
    expect("memory", !two.from.read(0, &mut [0]) && !two.from.write(0, &[0]))?;
    expect("counters", near.counters().memory.kinds.is_empty())?;
    expect("explain", near.explain(to_far).is_none() && near.connection_counters(to_far).is_none())?;
    near.disconnect(to_far);
    Ok(())
}

/// The plain endpoint under the lock, where nobody holds that.
fn plain_calls_are_refused(two: &Two) -> Result<(), String> {
    two.near.with(|near| {
        let to_far = two.to_far;
        expect("check_process", near.check_process().is_err())?;
        expect("send", near.send(to_far, b"x", 0, SendFlags::NONE) == Err(SendError::OtherProcess))?;
        expect("wait", near.wait(None).is_err() && near.wait_any(None).is_err())?;
        expect("is_open", !near.is_open(to_far) && near.timeouts(to_far).is_none())?;
        expect("options", near.set_send_timeout(to_far, PATIENCE).is_err())?;
        expect("buffers", near.set_recv_buffers(4_000).is_err() && near.set_send_buffers(1).is_err())?;
        near.set_default_send_timeout(PATIENCE);
        expect("arm", !near.arm())?;
        near.progress();
        near.os_handle();
        Ok(())
    })
}

fn a_child_opens_its_own(about: &DeviceUnderTest) -> Result<(), String> {
    // Where both ends are one device.
    if about.peer.is_some() {
        return Ok(());
    }
    let mut own = Two::open(about, None, false);
    own.begin();
    own.finish();
    Ok(())
}

fn fork_on(about: &DeviceUnderTest, thread: bool) {
    let network = match about.network() {
        Ok(network) => network,
        Err(reason) => return println!("skipped: {}: {reason}", about.name),
    };
    let across = network.as_ref().filter(|_| about.name == "any-far" || about.name == "udp-bonded");
    let mut two = Two::open(about, across, thread);
    two.begin();
    two.finish();
    for round in 0..9 {
        two.begin();
        let plain_exit = round % 3 == 2;
        // As it is, and with all of it dropped.
        let copy = (two.near.clone(), two.far.clone(), two.from.clone(), two.into.clone());
        in_child(plain_exit, || every_call_is_refused(&two));
        if !thread {
            in_child(plain_exit, || plain_calls_are_refused(&two));
        }
        let kept = std::mem::ManuallyDrop::new(two);
        in_child(plain_exit, || {
            drop(copy);
            // SAFETY: of a value that the child does not use again, nor drop: it leaves without.
            drop(unsafe { std::ptr::read(&*kept) });
            a_child_opens_its_own(about)
        });
        two = std::mem::ManuallyDrop::into_inner(kept);
        two.finish();
    }
    figures::note("faults.forks", 27 - if thread { 9 } else { 0 });
    println!("{}: forked, with{} progress thread", about.name, if thread { "" } else { "out" });
}

#[test]
fn a_fork_child_can_do_nothing_and_harms_nobody() {
    for about in &DEVICES {
        for thread in [false, true] {
            fork_on(about, thread);
        }
    }
}

/// What C programs have.
struct CTwo {
    near: *const cci_endpoint_t,
    far: *const cci_endpoint_t,
    to_far: *const cci_connection_t,
    round: u8,
}

fn c_uri(endpoint: *const cci_endpoint_t) -> CString {
    let mut uri: *mut libc::c_char = null_mut();
    // SAFETY: an open endpoint and a place for a pointer; what comes is a C string from `malloc`.
    unsafe {
        assert_eq!(cci_get_opt(endpoint.cast(), CCI_OPT_ENDPT_URI, (&raw mut uri).cast()), CCI_SUCCESS);
        let copy = CStr::from_ptr(uri).to_owned();
        libc::free(uri.cast());
        copy
    }
}

/// The next event, returned at once: its type, status, connection, and first two bytes.
fn c_event(
    endpoint: *const cci_endpoint_t,
) -> Option<(cci_event_type_t, i32, *const cci_connection_t, [u8; 2])> {
    let mut event = null();
    // SAFETY: an open endpoint; an event that was given out, read as its type says, and returned.
    unsafe {
        match cci_get_event(endpoint, &mut event) {
            CCI_SUCCESS => {}
            CCI_EAGAIN | CCI_ENOBUFS => return None,
            other => panic!("cci_get_event: {other}"),
        }
        let kind = (*event).r#type;
        let statuses = match kind {
            CCI_EVENT_CONNECT_REQUEST => {
                assert_eq!(cci_accept(event, null()), CCI_SUCCESS);
                (kind, 0, null(), [0; 2])
            }
            CCI_EVENT_CONNECT => (kind, (*event).connect.status, (*event).connect.connection, [0; 2]),
            CCI_EVENT_SEND => (kind, (*event).send.status, (*event).send.connection, [0; 2]),
            CCI_EVENT_RECV => (kind, 0, (*event).recv.connection, (*event).recv.ptr.cast::<[u8; 2]>().read()),
            other => (other, 0, null(), [0; 2]),
        };
        assert_eq!(cci_return_event(event), CCI_SUCCESS);
        Some(statuses)
    }
}

impl CTwo {
    fn open(device: *const cci_device_t, progress_thread: bool) -> CTwo {
        let open = || {
            let options = cci_endpoint_options_t {
                size: size_of::<cci_endpoint_options_t>() as u32,
                recv_buf_count: 0,
                send_buf_count: 0,
                send_timeout_us: 0,
                keepalive_timeout_us: 0,
                rma_op_count: 0,
                memory_cap_bytes: 0,
                progress_thread: progress_thread.into(),
                reserved: 0,
                security: std::ptr::null(),
            };
            let (mut endpoint, mut fd) = (null(), -1);
            // SAFETY: a device of the list, options, and places for the results.
            let status =
                unsafe { cci_create_endpoint_with(device, null(), &options, 0, &mut endpoint, &mut fd) };
            assert_eq!(status, CCI_SUCCESS);
            endpoint
        };
        let (near, far) = (open(), open());
        let uri = c_uri(far);
        // SAFETY: an open endpoint and a C string.
        let status =
            unsafe { cci_connect(near, uri.as_ptr(), null(), 0, CCI_CONN_ATTR_RO, null(), 0, null()) };
        assert_eq!(status, CCI_SUCCESS);
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "not connected");
            c_event(far);
            if let Some((CCI_EVENT_CONNECT, status, to_far, _)) = c_event(near) {
                assert_eq!(status, CCI_SUCCESS);
                return CTwo { near, far, to_far, round: 0 };
            }
        }
    }

    fn begin(&mut self) {
        self.round += 1;
        for number in 0..10u8 {
            let message = [self.round, number];
            // SAFETY: an open connection and two bytes.
            let status = unsafe { cci_send(self.to_far, message.as_ptr().cast(), 2, null(), 0) };
            assert_eq!(status, CCI_SUCCESS);
        }
    }

    fn finish(&self) {
        let (mut ended, mut came) = (0, 0u8);
        let start = Instant::now();
        while ended < 10 || came < 10 {
            assert!(start.elapsed() < PATIENCE, "{ended} ended, {came} came");
            if let Some((CCI_EVENT_RECV, _, _, bytes)) = c_event(self.far) {
                assert_eq!(bytes, [self.round, came]);
                came += 1;
            }
            if let Some((CCI_EVENT_SEND, status, ..)) = c_event(self.near) {
                assert_eq!(status, CCI_SUCCESS);
                ended += 1;
            }
        }
    }

    fn every_call_is_refused(&self) -> Result<(), String> {
        let (near, mut event, mut handle, mut memory) = (self.near, null(), null(), null_mut());
        let mut json = null_mut();
        let uri = c_uri_known();
        let mut bytes = [0u8; 64];
        // SAFETY: as in the parent; the pointers lead to the child's copies.
        let statuses = unsafe {
            [
                ("cci_send", cci_send(self.to_far, b"xx".as_ptr().cast(), 2, null(), 0)),
                ("blocking", cci_send(self.to_far, b"xx".as_ptr().cast(), 2, null(), CCI_FLAG_BLOCKING)),
                ("cci_get_event", cci_get_event(near, &mut event)),
                ("cci_wait_event", cci_wait_event(near, null(), &mut event)),
                ("cci_arm", cci_arm_os_handle(near, 0)),
                (
                    "cci_connect",
                    cci_connect(near, uri.as_ptr(), null(), 0, CCI_CONN_ATTR_RO, null(), 0, null()),
                ),
                ("cci_disconnect", cci_disconnect(self.to_far)),
                ("cci_rma_register", cci_rma_register(near, bytes.as_mut_ptr().cast(), 64, 0, &mut handle)),
                ("cci_rma_alloc", cci_rma_alloc(near, 64, &mut memory)),
                ("cci_get_counters", cci_get_counters(near, null(), &mut json)),
                ("cci_explain", cci_explain(self.to_far, &mut json)),
            ]
        };
        for (name, status) in statuses {
            expect(&format!("{name}: {status}"), status == CCI_ERROR)?;
        }
        Ok(())
    }
}

fn c_uri_known() -> CString {
    CString::new("udp://127.0.0.1:9").unwrap()
}

#[test]
fn a_fork_child_of_a_c_program_can_do_nothing_and_harms_nobody() {
    let mut caps = 0;
    let mut list = null();
    // SAFETY: places for a number and a pointer; the list ends with NULL, and its devices have names.
    unsafe {
        assert_eq!(cci_init(CCI_ABI_VERSION, 0, &mut caps), CCI_SUCCESS);
        assert_eq!(cci_get_devices(&mut list), CCI_SUCCESS);
        while !(*list).is_null() {
            let name = CStr::from_ptr((**list).name).to_str().unwrap().to_owned();
            if ["shm", "udp-lo", "tcp-lo"].contains(&name.as_str()) {
                for progress_thread in [false, true] {
                    fork_c(*list, progress_thread);
                    println!("{name}, C: forked, progress thread: {progress_thread}");
                }
            }
            list = list.add(1);
        }
        assert_eq!(cci_finalize(), CCI_SUCCESS);
    }
}

fn fork_c(device: *const cci_device_t, progress_thread: bool) {
    let mut two = CTwo::open(device, progress_thread);
    for round in 0..6 {
        two.begin();
        let plain_exit = round % 2 == 1;
        in_child(plain_exit, || two.every_call_is_refused());
        in_child(plain_exit, || {
            // SAFETY: open, destroyed once in this process.
            let statuses = unsafe { (cci_destroy_endpoint(two.near), cci_destroy_endpoint(two.far)) };
            expect("cci_destroy_endpoint", statuses == (CCI_SUCCESS, CCI_SUCCESS))?;
            let mut own = CTwo::open(device, false);
            own.begin();
            own.finish();
            // SAFETY: the last call of the child's.
            expect("cci_finalize", unsafe { cci_finalize() } == CCI_SUCCESS)
        });
        two.finish();
        figures::note("faults.forks", 2);
    }
    // SAFETY: open, and not used after this.
    unsafe {
        assert_eq!(cci_destroy_endpoint(two.near), CCI_SUCCESS);
        assert_eq!(cci_destroy_endpoint(two.far), CCI_SUCCESS);
    }
}
