//! What callgrind writes: costs by line, in the order of the calls, with names given once and numbers after that.

use std::collections::BTreeMap;
use std::path::Path;

/// What one function, or one source file, cost. Divided by the number of operations: of one operation.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Instructions of its own, without those of functions it calls.
    pub instructions: f64,
    /// Calls of the kernel from its own code.
    pub syscalls: f64,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.instructions += other.instructions;
        self.syscalls += other.syscalls;
    }
}

/// Costs of one run.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// By function; what was inlined into it counts as its own.
    pub functions: BTreeMap<String, Cost>,
    /// By source file, wherever the compiler has put its code; of other projects' code by library.
    pub sources: BTreeMap<String, Cost>,
}

/// Names that are given once with their number, and by the number from then on.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    /// `(3) name` or `(3)`.
    fn resolve(&mut self, text: &str) -> String {
        match text.split_once(' ') {
            Some((number, name)) => {
                self.0.insert(number.to_owned(), name.to_owned());
                name.to_owned()
            }
            None => self.0.get(text).cloned().unwrap_or_else(|| text.to_owned()),
        }
    }
}

impl Profile {
    /// Reads an output file of callgrind's. `root` is where the workspace is.
    pub fn parse(text: &str, root: &Path) -> Result<Profile, String> {
        let root = format!("{}/", root.display());
        let mut profile = Profile::default();
        let (mut files, mut functions, mut objects) = (Names::default(), Names::default(), Names::default());
        let (mut object, mut file, mut function) = (String::new(), String::new(), String::new());
        let mut columns = None;
        // The line after `calls=` has what the call cost, which its own lines have too.
        let mut is_call = false;
        for line in text.lines() {
            if let Some(names) = line.strip_prefix("events: ") {
                columns = Some(Columns::find(names)?);
            } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
                if !std::mem::take(&mut is_call) {
                    let columns = columns.as_ref().ok_or("costs before the line `events:`")?;
                    let cost = columns.read(line)?;
                    profile.functions.entry(tidy_function(&function)).or_default().add(cost);
                    profile.sources.entry(tidy_source(&file, &object, &root)).or_default().add(cost);
                }
            } else if let Some((key, value)) = line.split_once('=') {
                match key {
                    "ob" => object = objects.resolve(value),
                    "fl" | "fi" | "fe" => file = files.resolve(value),
                    "fn" => function = functions.resolve(value),
                    // Remembered for the names only.
                    "cob" => drop(objects.resolve(value)),
                    "cfi" | "cfl" => drop(files.resolve(value)),
                    "cfn" => drop(functions.resolve(value)),
                    "calls" => is_call = true,
                    _ => {}
                }
            }
        }
        if columns.is_none() { Err("no line `events:`".to_owned()) } else { Ok(profile) }
    }

    /// The costs of one operation: of this run with `operations` more than in `before`, whose set-up was the same.
    pub fn of_one(&self, before: &Profile, operations: f64) -> Profile {
        let share = |costs: &BTreeMap<String, Cost>, before: &BTreeMap<String, Cost>| {
            let of_one = costs.iter().map(|(name, cost)| {
                let old = before.get(name).copied().unwrap_or_default();
                let instructions = (cost.instructions - old.instructions) / operations;
                (name.clone(), Cost { instructions, syscalls: (cost.syscalls - old.syscalls) / operations })
            });
            of_one.collect()
        };
        Profile {
            functions: share(&self.functions, &before.functions),
            sources: share(&self.sources, &before.sources),
        }
    }
}

/// Which number on a line is which, behind the line's number.
struct Columns {
    instructions: usize,
    syscalls: usize,
}

impl Columns {
    fn find(names: &str) -> Result<Columns, String> {
        let column = |wanted: &str| {
            let at = names.split_whitespace().position(|name| name == wanted);
            at.map(|at| at + 1).ok_or(format!("callgrind counted no {wanted}"))
        };
        Ok(Columns { instructions: column("Ir")?, syscalls: column("sysCount")? })
    }

    fn read(&self, line: &str) -> Result<Cost, String> {
        let numbers: Vec<&str> = line.split_whitespace().collect();
        // Zeros at a line's end are left out.
        let number = |at: usize| {
            let word = numbers.get(at).copied().unwrap_or("0");
            word.parse::<f64>().map_err(|_| format!("not a line of costs: {line}"))
        };
        Ok(Cost { instructions: number(self.instructions)?, syscalls: number(self.syscalls)? })
    }
}

/// Without what differs between machines: recursion marks, versions of symbols, and which processor a copy was written for.
fn tidy_function(name: &str) -> String {
    let name = name.split('@').next().unwrap_or(name);
    let name = match name.rsplit_once('\'') {
        Some((name, level)) if level.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    };
    let plain = name.trim_start_matches('_');
    for known in ["memcpy", "memmove", "memset", "memcmp"] {
        if let Some(variant) = plain.strip_prefix(known)
            && (variant.is_empty() || variant.starts_with('_'))
        {
            // The C library's copies are one function under two names.
            return if known == "memmove" { "memcpy".to_owned() } else { known.to_owned() };
        }
    }
    if name.starts_with("0x") { "(no name)".to_owned() } else { name.to_owned() }
}

/// A file of the workspace below its root; of others the library.
fn tidy_source(file: &str, object: &str, root: &str) -> String {
    if let Some(own) = file.strip_prefix(root) {
        return own.to_owned();
    }
    if let Some((_, library)) = file.split_once("/library/")
        && file.starts_with("/rustc/")
    {
        return format!("rust: {}", library.split('/').next().unwrap_or(library));
    }
    if let Some((_, krate)) = file.split_once("/registry/src/") {
        // Behind the registry's name: the crate with its version.
        let krate = krate.split('/').nth(1).unwrap_or(krate);
        return krate.rsplit_once('-').map_or(krate, |(name, _)| name).to_owned();
    }
    let object = object.rsplit('/').next().unwrap_or(object);
    object.split(".so").next().unwrap_or(object).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Cost, Profile, tidy_function};
    use std::path::Path;

    const TEXT: &str = "\
# callgrind format
events: Ir sysCount sysTime
summary: 150 1 9

ob=(1) /target/exchanges
fl=(1) /root/crates/cci/src/a.rs
fn=(1) cci::send
10 30
fi=(2) /rustc/0123/library/core/src/slice/mod.rs
+3 20
fe=(1)
cob=(2) /usr/lib/libc.so.6
cfi=(3) ./string/memmove.S
cfn=(2) __memcpy_avx_unaligned_erms
calls=4 0
* 40
-2 10

fn=(3) cci::send'2
12 5 1 9

ob=(2)
fl=(3)
fn=(2)
7 40
";

    #[test]
    fn what_callgrind_writes_is_read() {
        let profile = Profile::parse(TEXT, Path::new("/root")).expect("well formed");
        let of = |name: &str| profile.functions.get(name).copied();
        assert_eq!(of("cci::send"), Some(Cost { instructions: 65.0, syscalls: 1.0 }));
        assert_eq!(of("memcpy"), Some(Cost { instructions: 40.0, syscalls: 0.0 }));
        let of = |name: &str| profile.sources.get(name).map(|cost| cost.instructions);
        assert_eq!(of("crates/cci/src/a.rs"), Some(45.0));
        assert_eq!(of("rust: core"), Some(20.0));
        assert_eq!(of("libc"), Some(40.0));
        assert_eq!(profile.functions.len() + profile.sources.len(), 5);
    }

    #[test]
    fn set_up_is_taken_off() {
        let profile = Profile::parse(TEXT, Path::new("/root")).expect("well formed");
        let none = Profile::default();
        let cost = profile.of_one(&none, 5.0).functions["cci::send"];
        assert_eq!(cost, Cost { instructions: 13.0, syscalls: 0.2 });
        let cost = profile.of_one(&profile, 5.0).functions["cci::send"];
        assert_eq!(cost, Cost::default());
    }

    #[test]
    fn names_are_the_same_on_every_machine() {
        assert_eq!(tidy_function("memcpy@GLIBC_2.2.5"), "memcpy");
        assert_eq!(tidy_function("__memmove_sse2_unaligned"), "memcpy");
        assert_eq!(tidy_function("clock_gettime@@GLIBC_2.17"), "clock_gettime");
        assert_eq!(tidy_function("cci::progress'2"), "cci::progress");
        assert_eq!(tidy_function("<&'a T as X>::f"), "<&'a T as X>::f");
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Profile::parse("", Path::new("/")).is_err());
        assert!(Profile::parse("events: Ir\n1 2\n", Path::new("/")).is_err());
        assert!(Profile::parse("1 2\n", Path::new("/")).is_err());
    }
}
