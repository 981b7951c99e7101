//! Links between our documents lead somewhere.

use crate::workspace::Workspace;
use std::path::{Path, PathBuf};

/// Lists links to files that are not there.
pub fn check(workspace: &Workspace, breaches: &mut Vec<String>) -> Result<(), String> {
    let mut documents = Vec::new();
    collect(&workspace.root, false, &mut documents)?;
    collect(&workspace.root.join("docs"), true, &mut documents)?;
    for document in documents {
        let text =
            std::fs::read_to_string(&document).map_err(|error| format!("{}: {error}", document.display()))?;
        let folder = document.parent().unwrap_or(Path::new("."));
        for target in targets(&text) {
            if !folder.join(target).exists() {
                let name = document.strip_prefix(&workspace.root).unwrap_or(&document);
                breaches.push(format!("{}: the link to {target} leads nowhere", name.display()));
            }
        }
    }
    Ok(())
}

fn collect(folder: &Path, deep: bool, into: &mut Vec<PathBuf>) -> Result<(), String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        } else if deep && path.is_dir() {
            collect(&path, deep, into)?;
        }
    }
    Ok(())
}

/// The files that `[text](file#part)` links name; other schemes and links within the document are left out.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    let files = links.map(|link| link.split('#').next().unwrap_or_default());
    files.filter(|file| !file.is_empty() && !file.contains(':') && !file.contains(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::targets;

    #[test]
    fn only_files_are_targets() {
        let found: Vec<_> = targets("[a](docs/a.md#b) [c](https://x.y) [d](#here) `x[1](2 3)`").collect();
        assert_eq!(found, ["docs/a.md"]);
    }
}
