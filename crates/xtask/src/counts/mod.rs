//! Instructions of one operation, counted by callgrind and compared with what is kept under git in `bench/instructions`
//! (docs/adr/0016): time is nowhere asserted, since machines differ and are busy.

mod callgrind;
mod record;

use crate::process::{Tally, cargo, run, run_quietly, succeeds};
use crate::workspace::Workspace;
use callgrind::Profile;
use record::{LIMIT_PERCENT, Record, Verdict};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);
/// Below the root: one file for each scenario.
const FOLDER: &str = "bench/instructions";
/// Rounds that are counted.
const ROUNDS: usize = 1_000;
/// Rounds of the run that is taken off.
const FEW: usize = 100;
/// What the program prints where the machine has not what a scenario needs.
const SKIPPED: &str = "skipped: ";
/// The C library has copies for each kind of processor, and valgrind's is made after the machine's: the plainest ones
/// are on every machine.
const PLAIN_COPIES: &str = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-ERMS,-FSRM,-SSSE3,-SSE4_1,-SSE4_2,-BMI2,-AVX_Fast_Unaligned_Load";

/// What is counted.
struct Scenario {
    /// Its file's name, and the program's argument.
    name: &'static str,
    /// Operations in a round.
    operations: usize,
    program: Program,
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Program {
    Rust,
    C,
    /// Ranks of jobs.
    Ranks,
    /// Services.
    Services,
}

/// The examples of the test kit that are counted.
const EXAMPLES: [(Program, &str); 3] =
    [(Program::Rust, "exchanges"), (Program::Ranks, "ranks"), (Program::Services, "services")];

const fn rust(name: &'static str, operations: usize) -> Scenario {
    Scenario { name, operations, program: Program::Rust }
}

const fn c(name: &'static str, operations: usize) -> Scenario {
    Scenario { name, operations, program: Program::C }
}

const fn ranks(name: &'static str, operations: usize) -> Scenario {
    Scenario { name, operations, program: Program::Ranks }
}

const fn services(name: &'static str, operations: usize) -> Scenario {
    Scenario { name, operations, program: Program::Services }
}

/// A message is one send and receive, with its completion: a round has one each way. A stream has a burst of 32 each way, with one
/// completion, received by a handler. A call is one request and its reply. Active messages (`am`) are compared with the core's, sent in
/// silence and taken by a handler, and so are the two messages of a barrier of two ranks; rows of 32 of both (`am_stream`, `handler_stream`) have each message sent by itself. An allreduce goes through memory that both ranks map. A put and an addition each wait for a fence; what
/// is packed is one block of 8 bytes, there and back. A message between services (`service`) is a short one, and `rpc` is a call of one by another.
/// Operations on global memory (`acp`) are waited for: `rma` is what copies of 8 bytes are compared with, `fetch` is what the addition is, and
/// `message` is what messages of channels are. The map finds and inserts keys and values of 8 bytes in the other rank's memory.
const SCENARIOS: &[Scenario] = &[
    rust("message-shm", 2),
    rust("message-udp4", 2),
    rust("message-tcp4", 2),
    rust("message-eth", 2),
    rust("message-eth-packet", 2),
    rust("message-any", 2),
    rust("stream-shm", 64),
    rust("stream-udp4", 64),
    rust("stream-tcp4", 64),
    c("c-message-shm", 2),
    c("c-message-udp", 2),
    c("c-silent-shm", 2),
    c("c-stream-shm", 64),
    rust("rma-shm", 1),
    rust("silent-shm", 1),
    rust("rma-udp4", 1),
    rust("rma-tcp4", 1),
    rust("poll-shm", 1),
    rust("poll-udp4", 1),
    rust("poll-tcp4", 1),
    rust("call-shm", 1),
    rust("messenger-shm", 2),
    rust("futures-shm", 2),
    rust("messenger_stream-shm", 64),
    rust("futures_stream-shm", 64),
    ranks("handler-shm", 2),
    ranks("handler-udp4", 2),
    ranks("handler_stream-shm", 64),
    ranks("am-shm", 2),
    ranks("am-udp4", 2),
    ranks("am_stream-shm", 64),
    ranks("barrier-shm", 2),
    ranks("allreduce-shm", 2),
    ranks("put-shm", 1),
    ranks("add-shm", 1),
    ranks("pack-vector", 512),
    services("service-shm", 2),
    services("service-udp4", 2),
    services("rpc-shm", 1),
    ranks("fetch-shm", 1),
    ranks("acp_put-shm", 1),
    ranks("acp_get-shm", 1),
    ranks("acp_add-shm", 1),
    ranks("acp_channel-shm", 2),
    ranks("acp_channel-udp4", 2),
    ranks("map_find-shm", 1),
    ranks("map_insert-shm", 1),
];

/// `cargo xtask counts`: prints the table and what differs; with `bless`, writes the files. `only`: the names of those to count; none
/// means all.
pub fn run_task(bless: bool, only: &[String]) -> Result<(), String> {
    let is_known = |name: &&String| SCENARIOS.iter().any(|scenario| scenario.name == name.as_str());
    if let Some(unknown) = only.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        return Err(format!("there is no scenario {unknown}; there are {}", known.join(", ")));
    }
    let workspace = Workspace::load()?;
    let tally = count(&workspace, bless, only)?;
    if tally.failed == 0 { Ok(()) } else { Err(format!("{} scenarios rose", tally.failed)) }
}

/// Checks the counts as tests: one for each scenario.
pub fn test(workspace: &Workspace) -> Tally {
    count(workspace, false, &[]).unwrap_or_else(|reason| {
        println!("--- counts: FAILED: {reason}");
        Tally { failed: 1, ..Tally::default() }
    })
}

fn count(workspace: &Workspace, bless: bool, only: &[String]) -> Result<Tally, String> {
    if let Err(reason) = have_valgrind() {
        println!("--- counts: skipped, {reason}");
        return Ok(Tally::default());
    }
    let is_asked = |scenario: &&Scenario| only.is_empty() || only.iter().any(|name| name == scenario.name);
    let asked: Vec<&Scenario> = SCENARIOS.iter().filter(is_asked).collect();
    let bench = Bench::build(workspace, &asked)?;
    let mut tally = Tally::default();
    for scenario in asked {
        let passed = match bench.count(scenario)? {
            Counted::Skipped(reason) => {
                println!("{}: skipped, {reason}", scenario.name);
                continue;
            }
            Counted::Record(now) if bless => bless_one(workspace, scenario, &now)?,
            Counted::Record(now) => compare_one(workspace, scenario, &now)?,
        };
        if passed {
            tally.passed += 1;
        } else {
            tally.failed += 1;
        }
    }
    println!("--- counts: {tally}");
    Ok(tally)
}

fn file(workspace: &Workspace, scenario: &Scenario) -> PathBuf {
    workspace.root.join(FOLDER).join(scenario.name).with_extension("tsv")
}

fn bless_one(workspace: &Workspace, scenario: &Scenario, now: &Record) -> Result<bool, String> {
    let path = file(workspace, scenario);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(workspace.root.join(FOLDER)).map_err(failed)?;
    fs::write(&path, now.to_tsv()).map_err(failed)?;
    let total = now.total;
    println!("{}: {:.1} instructions, {:.2} system calls", scenario.name, total.instructions, total.syscalls);
    Ok(true)
}

/// Prints how it compares; false when it rose.
fn compare_one(workspace: &Workspace, scenario: &Scenario, now: &Record) -> Result<bool, String> {
    let (name, path) = (scenario.name, file(workspace, scenario));
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("{}: {error}; `cargo xtask counts --bless` writes it", path.display()))?;
    let before = Record::from_tsv(&text).map_err(|reason| format!("{}: {reason}", path.display()))?;
    match before.compare(now) {
        Verdict::Same => println!("{name}: ok: {}", before.in_all(now)),
        Verdict::Fell(words) => {
            println!("{name}: fell: {words}\n    renew the file: cargo xtask counts --bless");
        }
        Verdict::Rose(words) => {
            println!("{name}: FAILED, it rose by more than {LIMIT_PERCENT} %: {words}");
            return Ok(false);
        }
    }
    Ok(true)
}

enum Counted {
    Record(Record),
    Skipped(String),
}

/// The programs to count.
struct Bench {
    root: PathBuf,
    folder: PathBuf,
    rust: PathBuf,
    ranks: PathBuf,
    services: PathBuf,
    c: PathBuf,
    /// The clock that goes on whenever it is read: steady_clock.c.
    clock: PathBuf,
    tools: String,
}

impl Bench {
    /// Builds what these scenarios need.
    fn build(workspace: &Workspace, scenarios: &[&Scenario]) -> Result<Bench, String> {
        let mut build =
            cargo(&["build", "--locked", "--profile", "profiling", "-p", "cci-testkit", "-p", "cci-capi"]);
        // Simulated memory and calls cost instructions.
        build.args(["--no-default-features", "--features", "cci-capi/default"]);
        let needs = |program| scenarios.iter().any(|scenario| scenario.program == program);
        if needs(Program::C) {
            build.arg("--lib");
        }
        for (_, example) in EXAMPLES.into_iter().filter(|&(program, _)| needs(program)) {
            build.arg(format!("--example={example}"));
        }
        run("building what is counted", &mut build)?;
        let built = workspace.target.join("profiling");
        let folder = workspace.target.join("counts");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let bench = Bench {
            root: workspace.root.clone(),
            rust: built.join("examples/exchanges"),
            ranks: built.join("examples/ranks"),
            services: built.join("examples/services"),
            c: folder.join("exchanges"),
            clock: folder.join("steady_clock.so"),
            folder,
            tools: tools()?,
        };
        if needs(Program::C) {
            bench.compile_c(&built)?;
        }
        bench.write_config()?;
        bench.compile_clock()?;
        Ok(bench)
    }

    fn compile_clock(&self) -> Result<(), String> {
        let source = self.root.join("crates/xtask/src/counts/steady_clock.c");
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]);
        run("compiling its clock", cc.arg(source).arg("-o").arg(&self.clock).arg("-ldl"))
    }

    /// Against the shared library, as a program outside this workspace would be.
    fn compile_c(&self, built: &Path) -> Result<(), String> {
        let capi = self.root.join("crates/capi");
        // Under the names that an installed library has.
        for name in ["libcci.so", "libcci.so.2"] {
            let link = self.folder.join(name);
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(built.join("libcci_capi.so"), &link)
                .map_err(|error| format!("{}: {error}", link.display()))?;
        }
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(capi.join("include"))
            .arg(capi.join("tests/c/exchanges.c"))
            .arg("-o")
            .arg(&self.c)
            .arg("-L")
            .arg(&self.folder)
            .arg("-lcci")
            .arg(format!("-Wl,-rpath,{}", self.folder.display()));
        run("compiling what is counted", &mut cc)
    }

    fn write_config(&self) -> Result<(), String> {
        let config = "[shm]\ntransport = shm\n[udp]\ntransport = udp\nip = 127.0.0.1\n";
        let path = self.folder.join("cci.ini");
        fs::write(&path, config).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// With few rounds, then with [`ROUNDS`] more: the difference is theirs alone, without set-up and warm-up. (Not with
    /// none at first: callgrind reports nothing of functions in which it never counted, not even their system calls.)
    fn count(&self, scenario: &Scenario) -> Result<Counted, String> {
        let mut profiles = Vec::new();
        for rounds in [FEW, FEW + ROUNDS] {
            match self.profile(scenario, rounds)? {
                Ok(profile) => profiles.push(profile),
                Err(reason) => return Ok(Counted::Skipped(reason)),
            }
        }
        let [before, all] = &profiles[..] else { return Err("two runs".to_owned()) };
        let of_one = all.of_one(before, (ROUNDS * scenario.operations) as f64);
        Ok(Counted::Record(Record::new(&self.tools, &of_one)))
    }

    /// One run. The inner error says why this machine can't.
    fn profile(&self, scenario: &Scenario, rounds: usize) -> Result<Result<Profile, String>, String> {
        let out = self.folder.join(format!("{}.out", scenario.name));
        let _ = fs::remove_file(&out);
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--tool=callgrind", "--quiet", "--collect-systime=yes"])
            .arg(format!("--callgrind-out-file={}", out.display()))
            // It knows few of the calls that raw Ethernet makes, and says so.
            .arg(format!("--log-file={}", out.with_extension("log").display()))
            .env("GLIBC_TUNABLES", PLAIN_COPIES)
            .env("LD_PRELOAD", &self.clock)
            .env("CCI_CONFIG", self.folder.join("cci.ini"));
        match scenario.program {
            Program::Rust => valgrind.arg("--toggle-collect=exchanges::counted").arg(&self.rust),
            Program::Ranks => valgrind.arg("--toggle-collect=ranks::counted").arg(&self.ranks),
            Program::Services => valgrind.arg("--toggle-collect=services::counted").arg(&self.services),
            Program::C => valgrind.arg("--toggle-collect=counted*").arg(&self.c),
        };
        valgrind.args([scenario.name, &rounds.to_string()]);
        let lines = run_quietly(scenario.name, &mut valgrind, MINUTE.saturating_mul(2))?;
        if let Some(reason) = lines.iter().find_map(|line| line.strip_prefix(SKIPPED)) {
            return Ok(Err(reason.to_owned()));
        }
        // Where a machine is so busy that much comes late, there is nothing to compare.
        let late = lines.iter().find_map(|line| line.strip_prefix("late\t")?.parse::<usize>().ok());
        let late = late.ok_or("the program did not say how much was late")?;
        if late * 100 > ROUNDS * scenario.operations {
            return Ok(Err(format!("of {rounds} rounds {late} were late: the machine is too busy")));
        }
        let text = fs::read_to_string(&out).map_err(|error| format!("{}: {error}", out.display()))?;
        Profile::parse(&text, &self.root).map(Ok)
    }
}

/// What decides how many instructions there are, beside the code.
fn tools() -> Result<String, String> {
    let printed = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.map_err(|error| format!("{program}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let words: Vec<&str> = text.split_whitespace().take(2).collect();
        Ok::<_, String>(words.join(" "))
    };
    let rustc = printed("rustc", &["--version"])?;
    Ok(format!(
        "{rustc}, {}, {}",
        printed("getconf", &["GNU_LIBC_VERSION"])?,
        printed("valgrind", &["--version"])?
    ))
}

/// Installs it where that is allowed.
fn have_valgrind() -> Result<(), &'static str> {
    let works = || succeeds(Command::new("valgrind").arg("--version"), MINUTE);
    if works() {
        return Ok(());
    }
    let mut install = Command::new("apt-get");
    install.args(["install", "-y", "-qq", "--no-install-recommends", "valgrind"]);
    install.env("DEBIAN_FRONTEND", "noninteractive");
    let installed = succeeds(Command::new("apt-get").args(["update", "-qq"]), MINUTE.saturating_mul(3))
        && succeeds(&mut install, MINUTE.saturating_mul(5));
    if installed && works() { Ok(()) } else { Err("no valgrind, and apt could not install it") }
}
