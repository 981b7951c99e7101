//! CCI through its C interface: a program in C, built against the shared library as any C program would be, so that
//! nothing is inlined across the border.

use crate::child;
use crate::contestant::{Contestant, Role, this_program};
use crate::reading::Reading;
use crate::work::Work;
use crate::worker::partner::cores;
use cci_measure::failure::{Failure, Outcome};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const COMPILE_LIMIT: Duration = Duration::from_secs(60);

/// A contestant that is a C program on the C interface.
pub struct CProgram {
    device: &'static str,
}

impl CProgram {
    /// On this machine, over shared memory (`shm`) or UDP on loopback (`udp`).
    pub const fn over(device: &'static str) -> CProgram {
        CProgram { device }
    }

    /// Compiles it, once for each build of the library.
    fn program() -> Outcome<PathBuf> {
        let failed =
            |what: &Path, error: std::io::Error| Failure::new(format!("{}: {error}", what.display()));
        let own = this_program()?;
        // Tests are one folder below.
        let folder = own.ancestors().skip(1).find(|folder| folder.join("libcci_capi.so").exists());
        let folder = folder.ok_or_else(|| {
            Failure::new("no libcci_capi.so beside this program").remedy("cargo build --release -p cci-capi")
        })?;
        let library = folder.join("libcci_capi.so");
        let work = folder.join("bench-c");
        fs::create_dir_all(&work).map_err(|error| failed(&work, error))?;
        for name in ["libcci.so.2", "libcci.so"] {
            let link = work.join(name);
            if fs::read_link(&link).ok().as_deref() != Some(&library) {
                let _ = fs::remove_file(&link);
                std::os::unix::fs::symlink(&library, &link).map_err(|error| failed(&link, error))?;
            }
        }
        let program = work.join("messages");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/messages.c");
        let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
        if changed(&program).is_none_or(|made| changed(&source).is_some_and(|written| written > made)) {
            let mut cc = Command::new("cc");
            cc.args(["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
                .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/capi/include"))
                .arg(&source)
                .arg("-L")
                .arg(&work)
                .arg(format!("-Wl,-rpath,{}", work.display()))
                .args(["-lcci", "-o"])
                .arg(&program);
            child::output(cc, COMPILE_LIMIT)?;
        }
        Ok(program)
    }
}

impl Contestant for CProgram {
    fn name(&self) -> String {
        "C".to_owned()
    }

    fn role(&self) -> Role {
        Role::Ours
    }

    fn about(&self) -> Outcome<String> {
        CProgram::program()?;
        let version = env!("CARGO_PKG_VERSION");
        Ok(format!("libcci.so {version}, shared, without locks; bench/c/messages.c, cc -O2"))
    }

    fn turn(&self, work: Work, count: u64) -> Outcome<Reading> {
        let (what, len) = match work {
            Work::HalfTrip { len } => ("half-trip", len),
            Work::Rate { len } => ("rate", len),
            Work::Stream { len } => ("stream", len),
            _ => return Err(Failure::new(format!("C does not do {work}"))),
        };
        let device = if self.device == "udp" { "udp-lo" } else { self.device };
        let cores = cores()?;
        let mut command = Command::new(CProgram::program()?);
        command.args([device, what, &len.to_string(), &count.to_string()]);
        command.args([cores.first.to_string(), cores.second.to_string()]);
        child::reading(command)
    }
}
