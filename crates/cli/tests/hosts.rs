//! `cci run` on several hosts, which the test makes.

mod common;

use common::ssh::Hosts;
use common::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Hosts of one test, and the mark of all that runs there.
struct Bench {
    hosts: Hosts,
    mark: String,
}

impl Bench {
    fn new() -> Bench {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("hosts-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mark = format!("CCI_TEST_MARK={name}-{}", std::process::id());
        Bench { hosts: Hosts::start(&name, &mark), mark }
    }

    fn command(&self, hosts: &str, args: &[&str], program: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
        command.arg("run").args(self.hosts.args(hosts)).args(args).args(program);
        let (name, value) = self.mark.split_once('=').expect("a variable");
        command.env(name, value).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn job(&self, hosts: &str, args: &[&str], script: &str) -> Output {
        let output = self.command(hosts, args, &["sh", "-c", script]).output().expect("the command starts");
        // Before the command returns, not some time after it.
        assert_eq!(marked(&self.mark), [0; 0], "{}", stderr(&output));
        output
    }
}

#[test]
fn ranks_are_placed_on_hosts_and_keep_folder_environment_and_arguments() {
    let bench = Bench::new();
    let output =
        bench.job("one,two:2", &["--label"], "echo $CCI_JOB_RANK of $CCI_JOB_SIZE on $(uname -n) in $PWD");
    let here = std::env::current_dir().expect("a folder");
    let here = here.display();
    let expected = ["0", "1", "2"]
        .map(|rank| format!("{rank}: {rank} of 3 on {} in {here}", if rank == "0" { "one" } else { "two" }));
    assert_eq!(sorted_lines(&succeeded(&output)), expected);

    let odd = ["", " ", "a b", "'", "\"$HOME\"", "new\nline", "*", "\\", "é", "-n", ";exit 3"];
    let print = ["sh", "-c", "printf '<%s>' \"$@\" \"$ODD\"", "sh"];
    let mut command = bench.command("one", &["--"], &[&print[..], &odd[..]].concat());
    let output = command.env("ODD", "a\n'b' \"").output().expect("the command starts");
    let expected: String = odd.iter().chain(["a\n'b' \""].iter()).map(|word| format!("<{word}>")).collect();
    assert_eq!(succeeded(&output), expected);
}

#[test]
fn rank_0_reads_standard_input_of_any_length() {
    let bench = Bench::new();
    let mut command = bench.command("one,two", &[], &["sh", "-c", "cat | cksum"]);
    let mut process = command.stdin(Stdio::piped()).spawn().expect("the command starts");
    let mut input = process.stdin.take().expect("a pipe");
    input.write_all(&vec![b'x'; 1_000_000]).expect("it reads");
    drop(input);
    let output = process.wait_with_output().expect("it ends");
    // What cksum says of a million x, and of nothing.
    assert_eq!(sorted_lines(&succeeded(&output)), ["1459561774 1000000", "4294967295 0"]);

    let mut command = bench.command("one", &[], &["true"]);
    let process = command.stdin(Stdio::piped()).spawn().expect("the command starts");
    // Its input stays open, and nobody reads it.
    succeeded(&process.wait_with_output().expect("it ends"));
    bench.hosts.assert_empty();
}

#[test]
fn the_first_failure_on_any_host_ends_all() {
    let bench = Bench::new();
    let output =
        bench.job("one,two:2", &[], "[ $CCI_JOB_RANK = 1 ] && kill -SEGV $$; setsid sleep 600 & sleep 600");
    assert_eq!(output.status.code(), Some(128 + 11));
    let said = stderr(&output);
    assert!(
        said.contains("cci run: rank 1 (process ") && said.contains(" on two) was ended by SIGSEGV; "),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");

    let output =
        bench.job("one,two", &["--keep-going"], "[ $CCI_JOB_RANK = 0 ] && exit 5; sleep 0.2; echo done");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(5), "done\n"));

    let output = bench.job("one,two", &["--timeout", "1s"], "trap '' TERM; sleep 600 & wait; sleep 600");
    assert_eq!(output.status.code(), Some(124), "{}", stderr(&output));
}

/// What `--ssh COMMAND` gives where nobody gets to the host.
fn unreachable(command: &str, args: &[&str]) -> Output {
    let mut run = Command::new(env!("CARGO_BIN_EXE_cci"));
    run.args(["run", "--hosts", "far", "--ssh", command]).args(args).arg("true");
    run.stdin(Stdio::null()).output().expect("the command starts")
}

#[test]
fn hosts_that_cannot_be_reached_are_named_with_the_reason() {
    for (command, why) in [
        ("sh -c 'echo refused >&2; exit 255'", "far: refused\n"),
        (
            "sh -c 'exit 255'",
            "far: the connection has ended before cci answered; what should reach it exited with code 255",
        ),
        ("sh -c 'exit 127'", "cci there under the same path: /"),
        (
            "sh -c 'echo Welcome to far!; exec sleep 600'",
            "far: \"Welcome to far!\" came where cci should answer",
        ),
        ("sh -c 'head -c 1000000 /dev/zero; sleep 600'", "came where cci should answer"),
        ("sh -c 'echo CCI agent 9.1.0'", "far: cci there has version 9.1.0"),
        (
            "sh -c \"printf 'CCI agent %s\\nxxxxxxxxxxxxxx' $CCI_VERSION\"",
            "far: cci there says what no agent says",
        ),
        ("no-such-ssh", "reaching far: no-such-ssh: "),
    ] {
        let command = command.replace("$CCI_VERSION", env!("CARGO_PKG_VERSION"));
        let output = unreachable(&command, &[]);
        assert_eq!(output.status.code(), EXIT_FAILED, "{command}");
        assert!(stderr(&output).contains(why), "{command}: {}", stderr(&output));
    }
    // One that asks for a password waits for an answer that never comes; so does one that hangs.
    let output = unreachable("sh -c 'cat >/dev/null'", &["--timeout", "500ms"]);
    assert_eq!(output.status.code(), EXIT_FAILED);
    assert!(stderr(&output).contains("no answer from far within 0.5 s"), "{}", stderr(&output));
    for (args, why) in [
        (&["--hosts", "-oProxyCommand=x"][..], "names no host"),
        (&["--hosts", "a,b", "-n", "3"], "take 2"),
        (&["--hostfile", "/no/such/file"], "the host file /no/such/file"),
        (&["--hosts", "a", "--ssh", "'"], "a quote that does not end"),
    ] {
        let output = cci(&[&["run"], args, &["true"]].concat());
        assert_eq!(output.status.code(), EXIT_USAGE, "{args:?}");
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

#[test]
fn what_a_host_does_not_have_is_said_by_its_name() {
    let bench = Bench::new();
    let run = |folder: &std::path::Path, program: &str| {
        let mut command = bench.command("one,two", &[], &[program]);
        command.current_dir(folder).output().expect("the command starts")
    };
    let output = run(std::path::Path::new("/"), "./no-such-program");
    assert_eq!(output.status.code(), EXIT_FAILED);
    assert!(
        stderr(&output).contains(": starting rank ") && stderr(&output).contains("./no-such-program"),
        "{}",
        stderr(&output)
    );
    bench.hosts.assert_empty();
}

#[test]
fn a_host_file_says_where_ranks_run() {
    let bench = Bench::new();
    let path = folder("hostfile").join("hosts");
    std::fs::write(&path, "# mine\none slots=2\n\ntwo:1 # the other\n").expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    let ssh = bench.hosts.ssh();
    command.args(["run", "--label", "--hostfile"]).arg(path).arg("--ssh").arg(ssh).args(["uname", "-n"]);
    let output = command.stdin(Stdio::null()).output().expect("the command starts");
    assert_eq!(sorted_lines(&succeeded(&output)), ["0: one", "1: one", "2: two"]);
}

/// Whether a process is on that host.
fn on_host(pid: i32, host: &str) -> bool {
    let mut command = Command::new("nsenter");
    let output = command.args(["--uts", "--target", &pid.to_string(), "hostname"]).output().expect("nsenter");
    stdout(&output).trim() == host
}

/// A job of three ranks on two hosts, each with a child in a session of its own that ignores every signal it can.
struct Stubborn {
    process: Child,
    bench: Bench,
}

impl Stubborn {
    fn start() -> Stubborn {
        let bench = Bench::new();
        let script = "trap '' INT TERM HUP; setsid sleep 600 & echo up; while :; do sleep 600; done";
        let mut process =
            bench.command("one,two:2", &[], &["sh", "-c", script]).spawn().expect("the command starts");
        let mut up = BufReader::new(process.stdout.take().expect("a pipe"));
        for _ in 0..3 {
            let mut line = String::new();
            up.read_line(&mut line).expect("a line");
            assert_eq!(line, "up\n");
        }
        Stubborn { process, bench }
    }

    /// Processes whose command line has `words`.
    fn with(&self, words: &str) -> Vec<i32> {
        let has_words = |pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).replace('\0', " ").contains(words)
        };
        marked(&self.bench.mark).into_iter().filter(has_words).collect()
    }

    fn ends(mut self) -> (Option<i32>, String) {
        wait_until("everything ends", || self.process.try_wait().expect("a child").is_some());
        self.bench.hosts.assert_empty();
        let mut said = String::new();
        self.process.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        (self.process.wait().expect("a child").code(), said)
    }
}

impl Drop for Stubborn {
    /// A test that fails leaves nothing that ignores every signal it can.
    fn drop(&mut self) {
        for pid in marked(&self.bench.mark) {
            // It may have ended meanwhile.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).stderr(Stdio::null()).status();
        }
        let _ = self.process.wait();
    }
}

#[test]
fn nothing_is_left_where_a_launcher_is_killed() {
    let job = Stubborn::start();
    for pid in marked(&job.bench.mark) {
        // Only ranks and what they start have the key: not ssh, not the launchers, and no command line.
        let of = |what: &str| {
            String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{what}")).expect("a process"))
                .into_owned()
        };
        let (line, environment) = (of("cmdline"), of("environ"));
        // One that starts is `setsid` before it is `sleep`.
        let ranks = ["sh\0-c\0trap", "setsid\0sleep\x00600", "sleep\x00600"];
        let is_rank = ranks.iter().any(|rank| line.starts_with(rank));
        assert_eq!(is_rank, environment.contains("CCI_JOB_KEY="), "{line:?}");
    }
    let guard = i32::try_from(job.process.id()).expect("a number");
    let launcher = job.with(&format!("run --guard {guard} "))[0];
    signal(launcher, "-KILL");
    assert_eq!(job.ends().0, Some(128 + 9));

    let job = Stubborn::start();
    signal(i32::try_from(job.process.id()).expect("a number"), "-KILL");
    assert_eq!(job.ends().0, None);
}

#[test]
fn nothing_is_left_where_a_connection_or_an_agent_ends() {
    let job = Stubborn::start();
    // The command that stands for ssh to the second host.
    let ssh = job.with("/ssh two exec")[0];
    let children = std::fs::read_to_string(format!("/proc/{ssh}/task/{ssh}/children")).expect("a process");
    signal(ssh, "-KILL");
    for child in children.split_whitespace() {
        signal(child.parse().expect("a number"), "-KILL");
    }
    let (code, said) = job.ends();
    assert_eq!(code, EXIT_FAILED, "{said}");
    assert!(said.contains("two, with ranks 1, 2, is lost: the connection has ended"), "{said}");

    // The agent's own guard, and the agent that it guards.
    for agent in ["run --agent", "run --guard"] {
        let job = Stubborn::start();
        let agents: Vec<i32> = job.with(agent).into_iter().filter(|&pid| on_host(pid, "two")).collect();
        signal(agents[0], "-KILL");
        let (code, said) = job.ends();
        assert_eq!(code, EXIT_FAILED, "{agent}: {said}");
        assert!(said.contains("two, with ranks 1, 2, is lost"), "{agent}: {said}");
    }
}

#[test]
fn signals_reach_ranks_of_all_hosts_and_a_second_interrupt_kills() {
    let bench = Bench::new();
    let script = "trap 'echo got; exit 0' USR1; echo ready >&2; while :; do sleep 0.01; done";
    let mut process =
        bench.command("one,two", &[], &["sh", "-c", script]).spawn().expect("the command starts");
    let mut ready = BufReader::new(process.stderr.take().expect("a pipe"));
    let mut said = String::new();
    while said.matches("ready").count() < 2 {
        assert_ne!(ready.read_line(&mut said).expect("a line"), 0, "{said}");
    }
    signal(i32::try_from(process.id()).expect("a number"), "-USR1");
    let mut output = process.wait_with_output().expect("it ends");
    ready.read_to_end(&mut output.stderr).expect("it can be read");
    assert_eq!(succeeded(&output), "got\ngot\n");

    let mut job = Stubborn::start();
    let guard = i32::try_from(job.process.id()).expect("a number");
    // Signals of one kind that come together are one: the second one comes until it has.
    wait_until("an interrupt kills", || {
        signal(guard, "-INT");
        std::thread::sleep(std::time::Duration::from_millis(20));
        job.process.try_wait().expect("a child").is_some()
    });
    assert_eq!(job.ends().0, Some(128 + 9));
}

#[test]
fn a_signal_that_comes_before_all_hosts_answer_reaches_the_ranks() {
    let bench = Bench::new();
    let folder = folder("early-signal");
    let (reached, free) = (folder.join("reached"), folder.join("free"));
    let ssh = format!(
        "sh -c ': > {}; while [ ! -e {} ]; do sleep 0.01; done; exec {} \"$@\"' sh",
        reached.display(),
        free.display(),
        bench.hosts.ssh().display()
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.args(["run", "--hosts", "one", "--ssh", &ssh, "sleep", "600"]);
    let process = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
    wait_until("the host is being reached", || reached.exists());
    signal(i32::try_from(process.id()).expect("a number"), "-USR1");
    // The launcher has it some time later; were it to come late, it would reach the ranks all the same.
    std::thread::sleep(std::time::Duration::from_millis(100));
    std::fs::write(free, "").expect("a file");
    let output = process.wait_with_output().expect("it ends");
    assert!(stderr(&output).contains("was ended by SIGUSR1"), "{}: {}", output.status, stderr(&output));
    assert_eq!(output.status.code(), Some(128 + 10));
    bench.hosts.assert_empty();
}

/// SIGKILL for any one process of a job, at any instant of start, run and end. Nothing is left, and the command ends.
#[test]
fn any_process_may_be_killed_at_any_instant() {
    let rounds = std::env::var("CCI_LAUNCHER_ROUNDS").map_or(12, |rounds| rounds.parse().expect("a number"));
    for number in 0..rounds {
        let chance = u64::wrapping_mul(number + 1, 0x9e37_79b9_7f4a_7c15) >> 16;
        let bench = Bench::new();
        let script = "trap '' TERM; setsid sleep 600 & sleep 0.1; [ $CCI_JOB_RANK = 0 ] || sleep 0.1";
        let mut process =
            bench.command("one,two:2", &[], &["sh", "-c", script]).spawn().expect("the command starts");
        std::thread::sleep(std::time::Duration::from_micros(chance % 400_000));
        let running = marked(&bench.mark);
        if let Some(&victim) = running.get((chance >> 20) as usize % running.len().max(1)) {
            // It may have ended meanwhile.
            let _ = Command::new("kill").args(["-KILL", &victim.to_string()]).stderr(Stdio::null()).status();
        }
        wait_until("the command ends", || process.try_wait().expect("a child").is_some());
        bench.hosts.assert_empty();
    }
}
