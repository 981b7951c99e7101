//! The features of the crate `cci`: each builds alone, and none of them brings crates that it does not need.

use crate::process::{self, cargo};

/// A choice of features, and the crates that it must not bring.
struct Choice {
    features: &'static str,
    absent: &'static [&'static str],
}

const CHOICES: [Choice; 4] = [
    Choice {
        features: "",
        absent: &["ring", "rustls", "rustls-webpki", "snow", "aya-obj", "futures-core", "tokio"],
    },
    Choice { features: "sealing", absent: &["aya-obj", "futures-core", "tokio"] },
    Choice { features: "xdp", absent: &["ring", "rustls", "rustls-webpki", "snow", "futures-core", "tokio"] },
    Choice { features: "sealing,xdp", absent: &["futures-core", "tokio"] },
];
/// Features for Rust programs alone, which nothing else is linted with. All of the workspace is linted with `tokio`.
const OF_RUST: [(&str, &str); 2] = [("cci", "futures"), ("cci-ripc", "futures")];

/// Checks every choice; the first that fails ends it.
pub fn check() -> Result<(), String> {
    for choice in &CHOICES {
        let select = ["--no-default-features", "--features", choice.features, "--locked"];
        let what = format!("features [{}]", choice.features);
        // The C interface hands its features on to `cci`, which is checked with it.
        let mut clippy = cargo(&["clippy", "-p", "cci-capi", "--lib"]);
        process::run(&what, clippy.args(select).args(["--", "-D", "warnings"]))?;
        let mut tree = cargo(&["tree", "-p", "cci-capi", "-e", "normal", "--prefix", "none", "-f", "{p}"]);
        let output = tree.args(select).output().map_err(|error| format!("cargo tree: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let found = brought(&text, choice.absent);
        if !found.is_empty() {
            return Err(format!("{what} brings {}, which it must not", found.join(", ")));
        }
    }
    for (package, feature) in OF_RUST {
        let arguments =
            ["clippy", "-p", package, "--lib", "--features", feature, "--locked", "--", "-D", "warnings"];
        process::run(&format!("{package}, feature {feature}"), &mut cargo(&arguments))?;
    }
    // What is said to whoever asks for something that was not built.
    for package in ["cci-secure", "cci-sys"] {
        let what = format!("{package} without its feature");
        process::run(
            &what,
            &mut cargo(&["test", "-p", package, "--lib", "--no-default-features", "--locked", "refused"]),
        )?;
    }
    Ok(())
}

/// Those of `crates` that a tree has, whose lines begin with names.
fn brought<'a>(tree: &str, crates: &[&'a str]) -> Vec<&'a str> {
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    crates.iter().copied().filter(|name| names.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tree_has_is_found() {
        let tree = "cci v0.1.0 (/x)\ncci-memory v0.1.0\nring v0.17.14\nlibc v0.2.0 (*)\n";
        assert_eq!(brought(tree, &["ring", "rustls"]), ["ring"]);
        assert!(brought(tree, &["aya-obj"]).is_empty());
    }
}
