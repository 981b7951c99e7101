//! Modules that use each other in a circle can only be read, changed and tested together. There are to be none among
//! the modules beside each other in one folder, at any depth; each of those still there is in a list that only shrinks.

use super::modules::Modules;
use crate::workspace::{Source, Workspace};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use std::collections::{BTreeMap, BTreeSet};

/// Crate and folder of modules, and those of them that form a circle.
const KNOWN: &[(&str, &[&str])] = &[];

/// Lists circles that are not known, and known ones that are gone.
pub fn check(workspace: &Workspace, files: &[Source], breaches: &mut Vec<String>) -> Result<(), String> {
    let mut found = BTreeMap::new();
    for package in &workspace.packages {
        let folder = package.folder.strip_prefix(&workspace.root).unwrap_or(&package.folder);
        let modules = Modules::read(files, &format!("{}/src", folder.display()))?;
        for (level, circle, why) in circles(&modules) {
            let folder = [vec![package.name.clone()], level].concat().join("::");
            found.insert((folder, circle), why);
        }
    }
    let known: BTreeSet<(String, BTreeSet<String>)> = KNOWN
        .iter()
        .map(|(folder, circle)| ((*folder).to_owned(), circle.iter().map(|&name| name.to_owned()).collect()))
        .collect();
    for ((folder, circle), why) in &found {
        if !known.iter().any(|(at, all)| at == folder && circle.is_subset(all)) {
            let names: Vec<_> = circle.iter().map(String::as_str).collect();
            breaches.push(format!("{folder}: a circle of modules, {}: {why}", names.join(" <-> ")));
        }
    }
    for (folder, circle) in known.iter().filter(|circle| !found.contains_key(circle)) {
        breaches.push(format!("{folder}: {circle:?} is no such circle any more: correct KNOWN in xtask"));
    }
    Ok(())
}

/// Each circle: the folder it is in, the modules, and one example for each of its arrows.
fn circles(modules: &Modules) -> Vec<(Vec<String>, BTreeSet<String>, String)> {
    let mut levels: BTreeMap<Vec<String>, BTreeMap<(String, String), String>> = BTreeMap::new();
    for (user, used) in modules.uses() {
        let common = user.iter().zip(&used).take_while(|(one, other)| one == other).count();
        let (Some(from), Some(to)) = (user.get(common), used.get(common)) else { continue };
        let arrows = levels.entry(user[..common].to_vec()).or_default();
        let example = || format!("{} uses {}", user.join("::"), used.join("::"));
        arrows.entry((from.clone(), to.clone())).or_insert_with(example);
    }
    let mut all = Vec::new();
    for (level, arrows) in levels {
        let graph: DiGraphMap<&str, ()> =
            arrows.keys().map(|(from, to)| (from.as_str(), to.as_str(), ())).collect();
        for circle in tarjan_scc(&graph).into_iter().filter(|circle| circle.len() > 1) {
            let inside = |(from, to): &(String, String)| {
                circle.contains(&from.as_str()) && circle.contains(&to.as_str())
            };
            let why: Vec<_> = arrows
                .iter()
                .filter(|(arrow, _)| inside(arrow))
                .map(|(_, example)| example.as_str())
                .collect();
            let names = circle.iter().map(|&name| name.to_owned()).collect();
            all.push((level.clone(), names, why.join("; ")));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned(), code: String::new() }
    }

    #[test]
    fn a_circle_is_found_through_names_handed_on_and_not_in_tests() {
        let files = [
            source("src/lib.rs", "mod one; mod three; mod two; pub use two::Two;"),
            source("src/one.rs", "use crate::Two; #[cfg(test)] mod tests { use crate::three::Three; }"),
            source("src/two.rs", "pub struct Two; fn f() { super::one::go(); crate::three::go() }"),
            source("src/three.rs", "mod below; use below::Below; pub struct Three(Below);"),
            source("src/three/below.rs", "pub struct Below; use super::Three;"),
        ];
        let found = circles(&Modules::read(&files, "src").unwrap());
        let names: Vec<_> = found.iter().map(|(level, circle, _)| (level.len(), circle.len())).collect();
        assert_eq!(names, [(0, 2)], "{found:?}");
        assert!(found[0].2.contains("one uses two") && found[0].2.contains("two uses one"), "{found:?}");
    }
}
