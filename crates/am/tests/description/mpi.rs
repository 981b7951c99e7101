//! MPI's own packing and unpacking as an oracle: Debian's MPICH and Open MPI, where they are installed.

use crate::recipe::{Recipe, recipes};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// How much memory the oracle has; elements lie around its middle.
const MEMORY_BYTES: usize = 1 << 22;

/// MPICH 4.0 lets bounds that were not set count beside those that were, against section 5.1.7 of the standard.
#[test]
fn mpich_packs_the_same() {
    compare("mpicc.mpich", Recipe::mixes_resized);
}

/// Open MPI 4.1 takes a stride of -1 for none.
#[test]
fn open_mpi_packs_the_same() {
    compare("mpicc.openmpi", Recipe::has_stride_of_minus_1);
}

/// Has the MPI library of this compiler pack random data types, but those that it is known to get wrong.
fn compare(compiler: &str, is_known_to_fail: impl Fn(&Recipe) -> bool) {
    if Command::new(compiler).arg("--version").output().is_err() {
        // Past what the test runner keeps to itself: a comparison that is left out must be seen.
        let missing = format!("skipped: there is no {compiler} (Debian: libmpich-dev, libopenmpi-dev)\n");
        std::io::stderr().write_all(missing.as_bytes()).unwrap();
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("oracle-{compiler}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/description/oracle.c");
    let built = Command::new(compiler).args(["-O1", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(built.success(), "{compiler} could not build the oracle");

    let cases = std::env::var("CCI_DATA_TYPES").map_or(3_000, |cases| cases.parse().unwrap());
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[29; 32]));
    let mut tried = Vec::new();
    let mut input = String::new();
    while tried.len() < cases {
        let recipe = recipes().new_tree(&mut runner).unwrap().current();
        let count = tried.len() % 4;
        let model = recipe.model();
        let mut line = format!("{count}");
        let known = write_prefix(&recipe, &mut line);
        // What bounds a data type without bytes has, the two do not agree on.
        if known
            && !recipe.has_empty()
            && !is_known_to_fail(&recipe)
            && model.bytes.len() < 20_000
            && model.extent().abs() < 100_000
        {
            writeln!(input, "{line}").unwrap();
            tried.push((recipe, count, line));
        }
    }

    // Alone, as a job of one. Open MPI asks to be allowed for root.
    let mut oracle = Command::new(&program)
        .envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")])
        .envs([("OMPI_MCA_btl", "self"), ("OMPI_MCA_pml", "ob1"), ("OMPI_MCA_rmaps_base_oversubscribe", "1")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = oracle.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = oracle.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "the oracle of {compiler}: {}", output.status);

    let memory: Vec<u8> = (0..MEMORY_BYTES as i32).map(|at| (at.wrapping_mul(31) + at / 253) as u8).collect();
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), tried.len());
    for ((recipe, count, line), answer) in tried.iter().zip(answers.lines()) {
        let description = recipe.description().unwrap();
        let true_bounds = description.true_bounds();
        let mut ours = format!(
            "{} {} {} {} {} ",
            description.size(),
            description.lower_bound(),
            description.extent(),
            true_bounds.start,
            true_bounds.end - true_bounds.start
        );
        let mut packed = vec![0; description.size() * count];
        let origin = MEMORY_BYTES as isize / 2;
        let done = description.pack(memory.as_slice().into(), origin, *count, 0, &mut packed);
        assert_eq!(done, Ok(packed.len()));
        packed.iter().for_each(|byte| write!(ours, "{byte:02x}").unwrap());
        let mut unpacked = vec![0; MEMORY_BYTES];
        description.unpack((&mut unpacked[..]).into(), origin, *count, 0, &packed).unwrap();
        let span = description.span(*count).unwrap();
        let place = |at: isize| (origin + at) as usize;
        let used = if packed.is_empty() { &[] } else { &unpacked[place(span.start)..place(span.end)] };
        write!(ours, " {:016x}.", hash(used)).unwrap();
        assert_eq!(ours, answer, "{compiler}, {line}, {recipe:?}");
    }
}

/// FNV-1a, as the oracle has it.
fn hash(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes a recipe for the oracle. `false`: MPI has no such constructor.
fn write_prefix(recipe: &Recipe, line: &mut String) -> bool {
    let letter = |letter: char, in_bytes: bool| if in_bytes { letter.to_ascii_uppercase() } else { letter };
    match recipe {
        Recipe::Bytes(len) => write!(line, " b {len}").unwrap(),
        Recipe::Vector { count, block_len, stride, in_bytes, of } => {
            write!(line, " {} {count} {block_len} {stride}", letter('v', *in_bytes)).unwrap();
            return write_prefix(of, line);
        }
        Recipe::Indexed { blocks, in_bytes, of } => {
            write!(line, " {} {}", letter('i', *in_bytes), blocks.len()).unwrap();
            blocks.iter().for_each(|(len, at)| write!(line, " {len} {at}").unwrap());
            return write_prefix(of, line);
        }
        Recipe::BlockIndexed { len, at, in_bytes, of } => {
            write!(line, " {} {len} {}", letter('k', *in_bytes), at.len()).unwrap();
            at.iter().for_each(|at| write!(line, " {at}").unwrap());
            return write_prefix(of, line);
        }
        Recipe::Structure(parts) => {
            write!(line, " s {}", parts.len()).unwrap();
            return parts.iter().all(|(len, at, of)| {
                write!(line, " {len} {at}").unwrap();
                write_prefix(of, line)
            });
        }
        Recipe::Resized { lower, extent, of } => {
            write!(line, " r {lower} {extent}").unwrap();
            return write_prefix(of, line);
        }
        Recipe::Strided { .. } => return false,
    }
    true
}
