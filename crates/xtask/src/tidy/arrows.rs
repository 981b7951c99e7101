//! Which crate may depend on which. A new arrow needs a reason; ARCHITECTURE.md is changed in the same commit.

use crate::workspace::{Package, Workspace};

/// Crate, and the crates of this workspace it may use.
const ARROWS: &[(&str, &[&str])] = &[
    ("cci-proto", &[]),
    ("cci-memory", &[]),
    ("cci-secure", &["cci-memory"]),
    ("cci-sys", &["cci-memory"]),
    ("cci", &["cci-proto", "cci-sys", "cci-memory", "cci-secure"]),
    ("cci-job", &["cci", "cci-sys"]),
    ("cci-capi", &["cci", "cci-acp", "cci-am", "cci-job", "cci-memory", "cci-ripc"]),
    ("cci-am", &["cci", "cci-job", "cci-memory"]),
    ("cci-acp", &["cci", "cci-job", "cci-sys"]),
    ("cci-ripc", &["cci", "cci-sys"]),
    ("cci-measure", &["cci-sys"]),
    ("cci-cli", &["cci", "cci-job", "cci-ripc", "cci-sys", "cci-measure"]),
    ("cci-bench", &["cci", "cci-acp", "cci-am", "cci-job", "cci-ripc", "cci-sys", "cci-measure"]),
    (
        "cci-testkit",
        &[
            "cci",
            "cci-acp",
            "cci-am",
            "cci-job",
            "cci-measure",
            "cci-proto",
            "cci-ripc",
            "cci-secure",
            "cci-sys",
        ],
    ),
    ("xtask", &[]),
];

/// The crate that only exists for tests: any crate's tests may use it, except those it is built on with which it
/// shares types, which would then see two of themselves.
const TEST_ONLY: (&str, &[&str]) = ("cci-testkit", &["cci-proto"]);

/// The protocol knows no system: what it uses must not either.
const PROTO_OUTSIDE: &[&str] = &["siphasher"];

/// Lists arrows that are not allowed.
pub fn check(workspace: &Workspace, breaches: &mut Vec<String>) {
    let is_ours = |name: &str| workspace.packages.iter().any(|package| package.name == name);
    for package in &workspace.packages {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            breaches
                .push(format!("crate {} is not in xtask's ARROWS; a new crate needs a reason", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            let for_tests =
                dependency.dev && name == TEST_ONLY.0 && !TEST_ONLY.1.contains(&package.name.as_str());
            // A crate's tests may need features of the crate that are off otherwise.
            let is_itself = dependency.dev && name == package.name;
            if is_ours(name) && !allowed.contains(&name) && !for_tests && !is_itself {
                breaches.push(format!("{} -> {name} is not in xtask's ARROWS", package.name));
            }
        }
        outside(package, breaches);
    }
}

fn outside(package: &Package, breaches: &mut Vec<String>) {
    if package.name != "cci-proto" {
        return;
    }
    for dependency in package.dependencies.iter().filter(|dependency| !dependency.dev) {
        if !PROTO_OUTSIDE.contains(&dependency.name.as_str()) {
            breaches.push(format!(
                "cci-proto -> {}: the protocol has no I/O, clock or randomness",
                dependency.name
            ));
        }
    }
}
