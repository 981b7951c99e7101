//! Where things are: the root, the target directory, and every source file.

use serde_json::Value;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `cargo metadata` knows of this workspace.
pub struct Workspace {
    /// Where the workspace's Cargo.toml is.
    pub root: PathBuf,
    /// Where cargo builds.
    pub target: PathBuf,
    /// Its members.
    pub packages: Vec<Package>,
    /// Set when its tests, libraries and commands were built.
    pub is_built: Cell<bool>,
}

/// One crate of the workspace.
pub struct Package {
    /// Its name.
    pub name: String,
    /// The folder of its Cargo.toml.
    pub folder: PathBuf,
    /// Its dependencies of all kinds.
    pub dependencies: Vec<Dependency>,
}

/// One line of a crate's dependencies.
pub struct Dependency {
    /// The package it names.
    pub name: String,
    /// Only for tests, examples and benches.
    pub dev: bool,
}

impl Workspace {
    /// Asks cargo.
    pub fn load() -> Result<Workspace, String> {
        let output = Command::new("cargo")
            .args(["metadata", "--format-version=1", "--no-deps"])
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
        let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(Workspace {
            root: text(&metadata["workspace_root"]).into(),
            target: text(&metadata["target_directory"]).into(),
            packages: packages.iter().map(package).collect(),
            is_built: Cell::new(false),
        })
    }

    /// Every Rust source file of every crate, sorted, with its path below the root.
    pub fn sources(&self) -> Result<Vec<Source>, String> {
        let mut paths = Vec::new();
        for package in &self.packages {
            walk(&package.folder, &mut paths)?;
        }
        paths.sort();
        paths.dedup();
        paths.into_iter().map(|path| Source::read(&self.root, path)).collect()
    }
}

fn package(value: &Value) -> Package {
    let manifest: PathBuf = text(&value["manifest_path"]).into();
    let dependencies = value["dependencies"].as_array().map(Vec::as_slice).unwrap_or_default();
    Package {
        name: text(&value["name"]),
        folder: manifest.parent().map(Path::to_owned).unwrap_or_default(),
        dependencies: dependencies
            .iter()
            .map(|dependency| Dependency {
                name: text(&dependency["name"]),
                dev: dependency["kind"].as_str() == Some("dev"),
            })
            .collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn walk(folder: &Path, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" {
            walk(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
    Ok(())
}

/// One source file.
pub struct Source {
    /// Path below the workspace's root, with `/`.
    pub path: String,
    /// As it is.
    pub text: String,
    /// The text with comments and literals blanked: what the compiler acts on.
    pub code: String,
}

impl Source {
    fn read(root: &Path, path: PathBuf) -> Result<Source, String> {
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let below = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
        Ok(Source { path: below, code: code_only(&text), text })
    }

    /// The folder below `crates/`.
    pub fn crate_folder(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }

    /// Part of what users get, as opposed to tests, examples and development tools.
    pub fn is_shipped(&self) -> bool {
        self.path.split('/').nth(2) == Some("src")
            && !matches!(self.crate_folder(), "xtask" | "testkit")
            && !self.path.ends_with("/tests.rs")
            && !self.path.contains("/tests/")
    }
}

/// Blanks comments, strings and character literals, keeping the lines, so that a search finds code only.
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let skipped = literal_or_comment(rest, out.chars().next_back());
        if skipped == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..skipped].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[skipped..];
        }
    }
    out
}

/// The length of the comment or literal that `rest` begins with; 0 when it begins with code.
fn literal_or_comment(rest: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let end_of = |needle: &str, from: usize| {
        rest[from..].find(needle).map_or(rest.len(), |at| from + at + needle.len())
    };
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest);
    }
    if !in_word && let Some(raw) = rest.strip_prefix('r').or_else(|| rest.strip_prefix("br")) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let start = rest.len() - raw.len() + hashes + 1;
            return end_of(&format!("\"{}", "#".repeat(hashes)), start);
        }
    }
    if let Some(inner) = rest.strip_prefix('\'') {
        let mut chars = inner.chars();
        return match (chars.next(), chars.next()) {
            (Some('\\'), Some(escaped)) => end_of("'", 2 + escaped.len_utf8()),
            (Some(c), Some('\'')) => 2 + c.len_utf8(),
            // A lifetime.
            _ => 0,
        };
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if tail.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::code_only;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_kept() {
        let text = "let a = \"unsafe \\\" x\"; // unsafe\n/* unsafe /* nested */ */ b('\"', '\\'', 'x') r#\"unsafe\"# fn f<'a>()";
        let code = code_only(text);
        assert!(!code.contains("unsafe"), "{code}");
        assert!(code.contains("let a =") && code.contains("fn f<'a>()"), "{code}");
        assert_eq!(code.lines().count(), text.lines().count());
    }
}
