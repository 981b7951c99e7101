//! Rules on each source file: unsafe code at home only, atomics through one door, lengths, nothing left undone.

use crate::workspace::{Source, Workspace};

/// Folders below `crates/` that may hold unsafe code.
const UNSAFE_HOMES: &[&str] = &["memory", "sys", "capi"];

/// Lines of a file, unless waived.
const LINES_MAX: usize = 800;

/// Paths that may be longer, one a line: `path lines reason`. A waiver holds exactly the file's length, so that it
/// can only shrink; new ones are for a reviewer to refuse.
const WAIVERS: &str = "crates/xtask/tidy-waivers.txt";

/// Lists breaches.
pub fn check(workspace: &Workspace, files: &[Source], breaches: &mut Vec<String>) -> Result<(), String> {
    let waivers = waivers(workspace)?;
    for file in files {
        unsafe_at_home(file, breaches);
        atomics_by_the_door(file, breaches);
        proto_is_pure(file, breaches);
        library_is_quiet(file, breaches);
        nothing_undone(file, breaches);
        length(file, &waivers, breaches);
    }
    for waiver in &waivers {
        if !files.iter().any(|file| file.path == waiver.path) {
            breaches.push(format!("{WAIVERS}: {} does not exist; remove its line", waiver.path));
        }
    }
    Ok(())
}

fn unsafe_at_home(file: &Source, breaches: &mut Vec<String>) {
    if UNSAFE_HOMES.contains(&file.crate_folder()) {
        return;
    }
    if let Some(line) = line_of_word(&file.code, "unsafe") {
        breaches.push(format!("{}:{line}: unsafe code belongs in {}", file.path, UNSAFE_HOMES.join(", ")));
    }
    let is_root = file.path.ends_with("/src/lib.rs") || file.path.ends_with("/src/main.rs");
    if is_root && !file.code.contains("#![forbid(unsafe_code)]") {
        breaches.push(format!("{}: add #![forbid(unsafe_code)]", file.path));
    }
}

/// Loom sees only what goes through its own types.
fn atomics_by_the_door(file: &Source, breaches: &mut Vec<String>) {
    const HOMES: [&str; 2] = ["crates/memory/src/atomic.rs", "crates/memory/src/raw_atomic.rs"];
    if !file.path.starts_with("crates/memory/src/") || HOMES.contains(&&*file.path) {
        return;
    }
    for (line, text) in (1..).zip(file.code.lines()) {
        if ["core", "std", "loom"].iter().any(|home| text.contains(&format!("{home}::sync::atomic"))) {
            breaches.push(format!("{}:{line}: atomics come from crate::atomic only", file.path));
        }
    }
}

/// Time and bytes are arguments of the protocol.
fn proto_is_pure(file: &Source, breaches: &mut Vec<String>) {
    const IMPURE: &[&str] = &[
        "std::time",
        "std::thread",
        "std::fs",
        "std::env",
        "std::io",
        "UdpSocket",
        "TcpStream",
        "Instant::now",
    ];
    if !file.path.starts_with("crates/proto/src/") {
        return;
    }
    // Its tests may read files.
    let code = file.code.split("#[cfg(test)]").next().unwrap_or_default();
    for (line, text) in (1..).zip(code.lines()) {
        if let Some(found) = IMPURE.iter().find(|word| text.contains(**word)) {
            breaches.push(format!("{}:{line}: {found} has no place in the protocol", file.path));
        }
    }
}

/// What programs link never prints and has no `unwrap`: clippy holds it to that where its lints are set.
fn library_is_quiet(file: &Source, breaches: &mut Vec<String>) {
    const LINTS: &str = "#![warn(clippy::unwrap_used, clippy::print_stdout, clippy::print_stderr)]";
    let is_library = file.is_shipped() && file.path.ends_with("/src/lib.rs");
    if is_library && !file.code.contains(LINTS) {
        breaches.push(format!("{}: add {LINTS}", file.path));
    }
}

fn nothing_undone(file: &Source, breaches: &mut Vec<String>) {
    if !file.is_shipped() {
        return;
    }
    for word in ["todo!", "unimplemented!"] {
        if let Some(at) = file.code.find(word) {
            breaches.push(format!("{}:{}: {word} in shipped code", file.path, line_at(&file.code, at)));
        }
    }
    for word in ["FIXME", "XXX", "HACK", "TODO"] {
        if let Some(line) = line_of_word(&file.text, word) {
            breaches.push(format!("{}:{line}: {word}: finish it, or write an issue", file.path));
        }
    }
}

fn length(file: &Source, waivers: &[Waiver], breaches: &mut Vec<String>) {
    let lines = file.text.lines().count();
    match waivers.iter().find(|waiver| waiver.path == file.path) {
        None if lines > LINES_MAX => {
            breaches.push(format!("{}: {lines} lines, limit {LINES_MAX}; split it", file.path));
        }
        Some(waiver) if lines > waiver.lines => {
            breaches.push(format!("{}: {lines} lines, waived up to {}; split it", file.path, waiver.lines));
        }
        Some(waiver) if lines < waiver.lines => {
            breaches.push(format!("{WAIVERS}: {} has shrunk to {lines} lines; lower its waiver", file.path));
        }
        _ => {}
    }
}

struct Waiver {
    path: String,
    lines: usize,
}

fn waivers(workspace: &Workspace) -> Result<Vec<Waiver>, String> {
    let path = workspace.root.join(WAIVERS);
    let text = std::fs::read_to_string(path).map_err(|error| format!("{WAIVERS}: {error}"))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| waiver(line).ok_or(format!("{WAIVERS}:{number}: not `path lines reason`")))
        .collect()
}

fn waiver(line: &str) -> Option<Waiver> {
    let mut words = line.split_whitespace();
    let waiver = Waiver { path: words.next()?.to_owned(), lines: words.next()?.parse().ok()? };
    words.next()?;
    Some(waiver)
}

/// The line, from 1, where `word` stands as a word of its own.
fn line_of_word(text: &str, word: &str) -> Option<usize> {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    let stands_alone =
        |at: usize| !text[..at].ends_with(part_of_word) && !text[at + word.len()..].starts_with(part_of_word);
    text.match_indices(word).find(|(at, _)| stands_alone(*at)).map(|(at, _)| line_at(text, at))
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::{line_of_word, waiver};

    #[test]
    fn words_are_whole_words() {
        assert_eq!(line_of_word("forbid(unsafe_code)\nunsafe {}", "unsafe"), Some(2));
        assert_eq!(line_of_word("unsafely, unsafe_code", "unsafe"), None);
    }

    #[test]
    fn a_waiver_needs_its_reason() {
        assert!(waiver("a/b.rs 900 one table").is_some());
        assert!(waiver("a/b.rs 900").is_none() && waiver("a/b.rs many why").is_none());
    }
}
