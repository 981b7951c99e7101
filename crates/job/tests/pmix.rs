//! Ranks of a PMIx server that answers nonsense: each answer is a clear error.
#![allow(clippy::unwrap_used, reason = "tests")]

use cci_job::Job;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, exit};

/// Set in ranks: what is wrong with their server's answers.
const NONSENSE: &str = "NONSENSE";

/// Not a test where no server stands for it: what a rank does.
#[test]
fn as_a_rank() {
    if env::var(NONSENSE).is_err() {
        return;
    }
    let meet = || {
        let mut job = Job::join()?;
        job.barrier()
    };
    if let Err(error) = meet() {
        eprintln!("{error}");
        exit(3);
    }
}

/// The folder with a library of PMIx that speaks to no server.
fn library(name: &str, options: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nonsense_pmix.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(folder.join("libpmix.so.2")).arg(source).args(options);
    let output = compiler.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    folder
}

fn rank(library: &Path, nonsense: &str) -> Output {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "as_a_rank", "--nocapture"]).env("LD_LIBRARY_PATH", library);
    command.env("PMIX_RANK", "0").env("PMIX_NAMESPACE", "job").env(NONSENSE, nonsense).output().unwrap()
}

#[test]
fn nonsense_of_a_server_is_a_clear_error() {
    let library = library("pmix", &[]);
    for (nonsense, said) in [
        ("init", "PMIx_Init"),
        ("rank", "the rank is none of the job"),
        ("no size", "the size of the job"),
        ("size nowhere", "a value is nowhere"),
        ("size is text", "a value is of another kind"),
        ("no ranks", "the rank is none of the job"),
        ("put", "PMIx_Put"),
        ("commit", "PMIx_Commit"),
        ("fence", "PMIx_Fence"),
        ("no value", "has lost the value of rank 0"),
        ("value nowhere", "a value is nowhere"),
        ("value is a number", "a value is of another kind"),
        ("value has no bytes", "a value is of another kind, or too long"),
        ("value is too long", "a value is of another kind, or too long"),
        ("value is empty", "has lost the value of rank 0"),
        ("no rank of CCI", "rank 0 says what no rank of CCI says"),
        ("another version", "rank 0 has CCI 0.0.1"),
    ] {
        let output = rank(&library, nonsense);
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{nonsense}: {printed}");
        assert!(printed.contains(said), "{nonsense}: {printed}");
    }
    let output = rank(&library, "nothing");
    assert!(
        output.status.success(),
        "a server that answers well: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_library_that_lacks_a_call_is_an_error() {
    let output = rank(&library("pmix-lacks", &["-DLACKS_A_CALL"]), "nothing");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(printed.contains("PMIx_Abort"), "{printed}");
}
