//! `cci run` as users run it: what ranks write and read, how jobs end, and that nothing of them is left.

mod common;

use common::*;
use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn command(args: &[&str], script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.arg("run").args(args).args(["sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn job(args: &[&str], script: &str) -> Output {
    command(args, script).output().expect("the command starts")
}

/// A job of two ranks, each with a child in a session of its own that ignores every signal it can.
struct Stubborn {
    process: Child,
    mark: String,
}

impl Stubborn {
    /// Guard and launcher; and for each rank its shell and two `sleep`, one of which has left.
    const PROCESSES: usize = 8;

    fn start(name: &str) -> Stubborn {
        let mark = format!("CCI_TEST_MARK={name}-{}", std::process::id());
        let (key, value) = mark.split_once('=').expect("a variable");
        let script = "trap '' INT TERM HUP; setsid sleep 600 & while :; do sleep 600; done";
        let process = command(&["-n", "2"], script).env(key, value).spawn().expect("the command starts");
        let job = Stubborn { process, mark };
        wait_until("the job starts", || marked(&job.mark).len() == Stubborn::PROCESSES);
        job
    }

    fn guard(&self) -> i32 {
        i32::try_from(self.process.id()).expect("a number of a process")
    }

    fn launcher(&self) -> i32 {
        let is_launcher = |pid: &&i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.contains(&format!(") S {} ", self.guard()))
        };
        let pids = marked(&self.mark);
        *pids.iter().find(is_launcher).expect("the guard has one child")
    }

    fn ends(mut self) -> Option<i32> {
        wait_until("everything ends", || self.process.try_wait().expect("a child").is_some());
        wait_until("nothing is left", || marked(&self.mark).is_empty());
        self.process.wait().expect("a child").code()
    }
}

#[test]
fn lines_come_whole_and_labelled() {
    let output = job(&["-n", "3", "--label"], "echo of $CCI_JOB_RANK in $CCI_JOB_SIZE; printf part >&2");
    assert_eq!(sorted_lines(&succeeded(&output)), ["0: of 0 in 3", "1: of 1 in 3", "2: of 2 in 3"]);
    assert_eq!(sorted_lines(&stderr(&output)), ["0: part", "1: part", "2: part"]);

    let output =
        job(&["-n", "4"], "i=0; while [ $i -lt 500 ]; do printf 'abc'; echo 'def'; i=$((i+1)); done");
    assert_eq!(succeeded(&output), "abcdef\n".repeat(2000));
    assert_eq!(succeeded(&job(&["-n", "1"], "printf part")), "part", "one rank's output stays as it is");
}

#[test]
fn rank_0_reads_standard_input() {
    let script = "echo given | \"$1\" run -n 3 --label cat";
    let output = Command::new("sh").args(["-c", script, "sh", env!("CARGO_BIN_EXE_cci")]).output();
    assert_eq!(succeeded(&output.expect("a shell")), "0: given\n");
}

#[test]
fn the_first_failure_ends_the_job_and_gives_its_code() {
    let output = job(&["-n", "3"], "[ $CCI_JOB_RANK = 1 ] && exit 7; sleep 600");
    assert_eq!(output.status.code(), Some(7));
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("rank 1 (process ") && said.contains(" exited with code 7; "), "{said}");

    let output = job(&["-n", "2"], "[ $CCI_JOB_RANK = 1 ] && kill -SEGV $$; sleep 600");
    assert_eq!(output.status.code(), Some(128 + 11));
    assert!(stderr(&output).contains(" was ended by SIGSEGV"), "{}", stderr(&output));
}

#[test]
fn with_keep_going_the_others_go_on() {
    let output = job(&["-n", "3", "--keep-going"], "[ $CCI_JOB_RANK = 0 ] && exit 5; sleep 0.2; echo done");
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(stdout(&output), "done\ndone\n");
}

#[test]
fn a_job_ends_at_its_timeout() {
    let output = job(&["-n", "2", "--timeout", "200ms"], "sleep 600");
    assert_eq!(output.status.code(), Some(124));
    assert!(stderr(&output).contains("--timeout"), "{}", stderr(&output));
}

#[test]
fn what_ranks_leave_behind_ends_with_the_job() {
    let mark = format!("left-{}", std::process::id());
    let left = command(&["-n", "2"], "setsid sleep 600 &").env("CCI_TEST_MARK", &mark).output();
    succeeded(&left.expect("the command starts"));
    assert_eq!(marked(&format!("CCI_TEST_MARK={mark}")), [0; 0]);
}

#[test]
fn signals_reach_every_rank() {
    let script = "trap 'echo got; exit 0' USR1; echo ready >&2; while :; do sleep 0.01; done";
    let mut process = command(&["-n", "2"], script).spawn().expect("the command starts");
    let mut ready = std::io::BufReader::new(process.stderr.take().expect("a pipe"));
    for _ in 0..2 {
        std::io::BufRead::read_line(&mut ready, &mut String::new()).expect("a line");
    }
    signal(i32::try_from(process.id()).expect("a number"), "-USR1");
    assert_eq!(succeeded(&process.wait_with_output().expect("it ends")), "got\ngot\n");
}

#[test]
fn a_second_interrupt_kills() {
    let mut job = Stubborn::start("interrupt");
    // Signals of one kind that come together are one: the second one comes until it has.
    wait_until("an interrupt kills", || {
        signal(job.guard(), "-INT");
        std::thread::sleep(Duration::from_millis(20));
        job.process.try_wait().expect("a child").is_some()
    });
    assert_eq!(job.ends(), Some(128 + 9));
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    let job = Stubborn::start("launcher");
    signal(job.launcher(), "-KILL");
    assert_eq!(job.ends(), Some(128 + 9));

    let job = Stubborn::start("guard");
    signal(job.guard(), "-KILL");
    assert_eq!(job.ends(), None);
}

#[test]
fn what_makes_no_sense_is_said() {
    for ranks in ["0", "1000000", "-1", "x", ""] {
        assert_eq!(cci(&["run", "-n", ranks, "true"]).status.code(), EXIT_USAGE, "{ranks:?}");
    }
    assert_eq!(cci(&["run", "-n", "2"]).status.code(), EXIT_USAGE);
    let output = cci(&["run", "-n", "2", "./no-such-program"]);
    assert_eq!(output.status.code(), EXIT_FAILED);
    assert!(stderr(&output).contains("./no-such-program"), "{}", stderr(&output));
    let output = cci(&["run", "-n", "1000", "--bind", "core", "true"]);
    assert_eq!(output.status.code(), EXIT_USAGE);
    assert!(stderr(&output).contains("--bind none"), "{}", stderr(&output));
    assert_eq!(cci(&["run", "-n", "1", "--guard", "1", "true"]).status.code(), EXIT_USAGE);
}

/// By the subcommand, and by a link with the name of ACP's launcher.
#[test]
fn acprun_starts_jobs_by_its_own_options() {
    let link = std::env::temp_dir().join(format!("cci-test-{}", std::process::id())).join("acprun");
    fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_cci"), &link).expect("a link");
    let script = "echo $CCI_JOB_RANK of $CCI_JOB_SIZE: $*; exit $CCI_JOB_RANK";
    let options = ["-np", "2", "-ndev", "udp", "-smemsize", "4096", "sh", "-c", script, "sh", "own"];
    let named = Command::new(env!("CARGO_BIN_EXE_cci")).arg("acprun").args(options).output();
    let linked = Command::new(&link).args(options).output();
    fs::remove_dir_all(link.parent().expect("a folder")).expect("the folder goes");
    for output in [named, linked] {
        let output = output.expect("the command starts");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 of 2: own --acp-size-smem 4096\n"), "{output:?}");
        assert_eq!(output.status.code(), Some(1), "that of the job: {output:?}");
    }
    let wrong =
        Command::new(env!("CARGO_BIN_EXE_cci")).args(["acprun", "-np", "2", "-ndev", "ib", "true"]).output();
    let wrong = wrong.expect("the command starts");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("-ndev udp"), "{wrong:?}");
    let help = Command::new(env!("CARGO_BIN_EXE_cci")).args(["acprun", "-help"]).output().expect("it starts");
    assert!(succeeded(&help).contains("-smemsize-dl B"));
}

/// With them, a rank that is a cargo command would compile again what build scripts decide by them.
#[test]
fn ranks_do_not_see_what_cargo_says_of_this_command() {
    let said = |package: &str| {
        let mut command = command(&["-n", "1"], "echo \"<$CARGO_MANIFEST_DIR>\"");
        command.env("CARGO_PKG_NAME", package).env("CARGO_MANIFEST_DIR", "/of/it");
        succeeded(&command.output().expect("the command starts"))
    };
    assert!(said("cci-cli").contains("<>"));
    assert!(said("of-a-user").contains("</of/it>"), "it may be meant for the rank");
}
