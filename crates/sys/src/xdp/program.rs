//! The program on an interface: shared by all processes that have an endpoint there, and there for as long as one of
//! them lives.
//!
//! It is attached by a link of the kernel's, and every process holds the link and the maps open; so their lifetime is
//! what the kernel counts, and nothing is left when the last process ends, however it ends. Nothing is pinned.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use aya_obj::Object;
use aya_obj::generated::bpf_insn;

use super::bpf::{self, Map, MapShape};
use super::hint;
use super::kinds::{Mode, SteerCounters, Wanted};
use super::netlink::{self, Attached};
use super::refusal::Refusal;
use super::rights::{ADMIN, BPF, SYS};
use crate::error::{SysError, Tried};

/// Built from `steer.c`.
#[repr(align(8))]
struct Aligned<T: ?Sized>(T);
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!("steer.o"));

/// The program's name, with the version of its maps' layout. Another layout must have another name.
const NAME: &str = "cci_steer_v1";
const SOCKETS: &str = "cci_sockets";
const ENDPOINTS: &str = "cci_endpoints";
const CONNECTIONS: &str = "cci_connections";
const COUNTERS: &str = "cci_counters";

/// How often is looked again when others attach and detach at the same time.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(1);

/// The value of an endpoint: slot, queue, then the address of its interface and what is checked.
pub(super) type EndpointValue = [u32; 4];

/// The value of a connection: nonce (low word, high word), generation, zero.
pub(super) type ConnectionValue = [u32; 4];

/// A share in the program on an interface.
#[derive(Debug)]
pub struct Program {
    /// Kept open: the program stays attached.
    _link: OwnedFd,
    mode: Mode,
    interface_index: u32,
    pub(super) sockets: Map<u32, u32>,
    pub(super) endpoints: Map<u32, EndpointValue>,
    pub(super) connections: Map<[u32; 2], ConnectionValue>,
    counters: Map<u32, u64>,
}

impl Program {
    /// Takes a share in the program on that interface, attaching it if there is none. If there is one already, its mode
    /// stays as it is. May wait some milliseconds, 100 at most, while others attach or detach theirs.
    pub fn attach(interface_index: u32, wanted: Wanted) -> Result<Program, Refusal> {
        let mut ours = None;
        for _ in 0..TRIES {
            let found = netlink::attached(interface_index).map_err(Refusal::System)?;
            let shared = match found {
                Some(found) => share(interface_index, found)?,
                None => {
                    let loaded = match &ours {
                        Some(loaded) => loaded,
                        None => ours.insert(Loaded::new()?),
                    };
                    match loaded.attach(interface_index, wanted)? {
                        Some((link, mode)) => Some((link, mode, loaded.maps.try_clone()?)),
                        None => None,
                    }
                }
            };
            if let Some((link, mode, maps)) = shared {
                return maps.into_program(link, mode, interface_index);
            }
            std::thread::sleep(PAUSE);
        }
        Err(Refusal::Busy)
    }

    /// Whether this process could [`attach`](Program::attach) to that interface, changing nothing there: the mode of the
    /// program that is there already, if one is. What the driver can do shows only when it is asked to.
    pub(super) fn probe(interface_index: u32) -> Result<Option<Mode>, Refusal> {
        let found = netlink::attached(interface_index).map_err(Refusal::System)?;
        if let Some(found) = found {
            return Ok(share(interface_index, found)?.map(|(_, mode, _)| mode));
        }
        Loaded::new()?;
        let missing = super::rights::missing(&[ADMIN]);
        if missing.is_empty() {
            return Ok(None);
        }
        let error = io::Error::from_raw_os_error(libc::EPERM);
        Err(Refusal::Rights { missing, error: SysError::new("attach an XDP program to an interface", error) })
    }

    /// Where it runs.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Number of the interface.
    pub fn interface_index(&self) -> u32 {
        self.interface_index
    }

    /// What it has counted until now.
    pub fn counters(&self) -> io::Result<SteerCounters> {
        let mut each = vec![0; bpf::possible_processors()];
        let mut sum = |which| -> io::Result<u64> {
            self.counters.get_each(which, &mut each)?;
            Ok(each.iter().fold(0, |sum, count| sum.wrapping_add(*count)))
        };
        Ok(SteerCounters {
            passed: sum(0)?,
            redirected: sum(1)?,
            wrong_nonce: sum(2)?,
            unknown_connection: sum(3)?,
            no_endpoint: sum(4)?,
            malformed: sum(5)?,
        })
    }
}

/// The program's maps, in the order of their names below.
struct Maps([OwnedFd; 4]);
const MAPS: [&str; 4] = [SOCKETS, ENDPOINTS, CONNECTIONS, COUNTERS];

impl Maps {
    fn try_clone(&self) -> Result<Maps, Refusal> {
        let [a, b, c, d] = &self.0;
        let all =
            || -> io::Result<_> { Ok([a.try_clone()?, b.try_clone()?, c.try_clone()?, d.try_clone()?]) };
        all().tried("keep the maps of an XDP program").map(Maps).map_err(Refusal::System)
    }

    fn into_program(self, link: OwnedFd, mode: Mode, interface_index: u32) -> Result<Program, Refusal> {
        let Maps([sockets, endpoints, connections, counters]) = self;
        let make = || -> io::Result<Program> {
            Ok(Program {
                _link: link,
                mode,
                interface_index,
                sockets: Map::of(sockets)?,
                endpoints: Map::of(endpoints)?,
                connections: Map::of(connections)?,
                counters: Map::of(counters)?,
            })
        };
        make().tried("use the maps of an XDP program").map_err(Refusal::System)
    }
}

/// The program that somebody has attached, if it is one of ours. `None`: it is just going; look again.
fn share(interface_index: u32, found: Attached) -> Result<Option<(OwnedFd, Mode, Maps)>, Refusal> {
    let finding = |error: io::Error| {
        let error = SysError::new("find the XDP program that another process has attached", error);
        Refusal::from_error(error, &[SYS, ADMIN, BPF])
    };
    let program = match bpf::program_by_id(found.program_id) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(finding)?,
    };
    let (_, name, map_ids) = bpf::describe_program(program.as_fd()).map_err(finding)?;
    if name != NAME {
        return Err(Refusal::Foreign { program: name });
    }
    let link = match bpf::link_of(found.program_id, interface_index) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(finding)?,
    };
    let mut maps = [const { None }; 4];
    for id in map_ids {
        let map = bpf::map_by_id(id).map_err(finding)?;
        let name = bpf::map_name(&map).map_err(finding)?;
        if let Some(slot) = MAPS.iter().position(|known| name == *known).and_then(|at| maps.get_mut(at)) {
            *slot = Some(map);
        }
    }
    let [Some(a), Some(b), Some(c), Some(d)] = maps else { return Err(Refusal::Foreign { program: name }) };
    let mode = if found.native { Mode::Native } else { Mode::Generic };
    Ok(Some((link, mode, Maps([a, b, c, d]))))
}

/// A program of our own, not attached yet.
struct Loaded {
    program: OwnedFd,
    maps: Maps,
    /// The instructions it was loaded from, with the maps filled in.
    code: Vec<bpf_insn>,
    license: CString,
}

impl Loaded {
    fn new() -> Result<Loaded, Refusal> {
        let broken = |error: &dyn std::fmt::Display| {
            Refusal::System(SysError::refused("read the XDP program", "the object is broken").on(error))
        };
        let mut object = Object::parse(&OBJECT.0).map_err(|error| broken(&error))?;
        let shapes = std::mem::take(&mut object.maps);
        let make = |called: &'static str| {
            let shape = shapes.get(called).ok_or_else(|| broken(&called))?;
            let shape = MapShape {
                kind: shape.map_type(),
                key_bytes: shape.key_size(),
                value_bytes: shape.value_size(),
                entries: shape.max_entries(),
                flags: shape.map_flags(),
            };
            bpf::create_map(called, shape).map_err(|error| {
                let error = SysError::new("make a map for an XDP program (bpf)", error).on(called);
                Refusal::from_error(error, &[BPF, ADMIN])
            })
        };
        let [a, b, c, d] = MAPS;
        let maps = Maps([make(a)?, make(b)?, make(c)?, make(d)?]);
        let fds = MAPS
            .iter()
            .zip(&maps.0)
            .filter_map(|(name, fd)| Some((*name, fd.as_raw_fd(), shapes.get(*name)?)));
        let sections = std::collections::HashSet::new();
        object.relocate_maps(fds, &sections).map_err(|error| broken(&error))?;
        let key = object.programs.get(NAME).map(|program| program.function_key());
        let function = key.and_then(|key| object.functions.get(&key)).ok_or_else(|| broken(&NAME))?;
        let (code, license) = (function.instructions.clone(), object.license);
        let mut plain = code.clone();
        hint::do_not_ask(&mut plain);
        Ok(Loaded { program: load(&license, &plain)?, maps, code, license })
    }

    /// Loads the program for one interface's driver, which it asks for tags of virtual LANs. None: this kernel does not have that.
    fn asking(&self, interface_index: u32) -> Option<OwnedFd> {
        let mut code = self.code.clone();
        if !hint::ask(&mut code) {
            return None;
        }
        bpf::load_program(NAME, &self.license, &code, Some(interface_index), &mut []).ok()
    }

    /// Attaches it. `None`: somebody was faster.
    fn attach(&self, interface_index: u32, wanted: Wanted) -> Result<Option<(OwnedFd, Mode)>, Refusal> {
        let modes: &[(Mode, u32)] = match wanted {
            Wanted::Auto => &[(Mode::Native, bpf::NATIVE), (Mode::Generic, bpf::GENERIC)],
            Wanted::Native => &[(Mode::Native, bpf::NATIVE)],
            Wanted::Generic => &[(Mode::Generic, bpf::GENERIC)],
        };
        let mut last = Refusal::Busy;
        for (mode, flags) in modes {
            if *mode == Mode::Native
                && let Some(program) = self.asking(interface_index)
                && let Ok(link) = bpf::create_link(&program, interface_index, *flags)
            {
                return Ok(Some((link, *mode)));
            }
            let error = match bpf::create_link(&self.program, interface_index, *flags) {
                Ok(link) => return Ok(Some((link, *mode))),
                Err(error) => error,
            };
            match error.raw_os_error() {
                // There is a program by now, in this mode or in the other.
                Some(libc::EBUSY | libc::EEXIST) => return Ok(None),
                _ => {
                    let error = SysError::new("attach an XDP program to an interface (bpf)", error);
                    let denied = matches!(error.errno(), Some(libc::EPERM | libc::ENODEV));
                    last = Refusal::from_error(error, &[ADMIN, BPF]);
                    if denied {
                        break;
                    }
                }
            }
        }
        Err(last)
    }
}

fn load(license: &CStr, code: &[bpf_insn]) -> Result<OwnedFd, Refusal> {
    const WHAT: &str = "load an XDP program (bpf)";
    let error = match bpf::load_program(NAME, license, code, None, &mut []) {
        Ok(program) => return Ok(program),
        Err(error) => SysError::new(WHAT, error),
    };
    match error.errno() {
        // The verifier's word, from kernels that do not know all of what the program does. Again, to hear why.
        Some(libc::EINVAL | libc::EACCES) if super::rights::missing(&[BPF, ADMIN]).is_empty() => {
            let Some(mut log) = cci_memory::fallible::zeroed(1 << 20) else {
                return Err(Refusal::Unsupported(error));
            };
            let _ = bpf::load_program(NAME, license, code, None, &mut log);
            let text = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default());
            let mut lines = text.lines().filter(|line| !line.starts_with("processed "));
            Err(Refusal::Unsupported(error.on(lines.next_back().unwrap_or("no reason given"))))
        }
        _ => Err(Refusal::from_error(error, &[BPF, ADMIN])),
    }
}
