//! Rules that check themselves. Rules on paper do not hold.

mod arrows;
mod circles;
mod clauses;
mod evidence;
mod links;
mod modules;
mod requirements;
mod sources;
mod words;

use crate::workspace::Workspace;

/// Checks every rule and lists every breach.
pub fn run() -> Result<(), String> {
    let workspace = Workspace::load()?;
    let files = workspace.sources()?;
    let mut breaches = Vec::new();
    arrows::check(&workspace, &mut breaches);
    circles::check(&workspace, &files, &mut breaches)?;
    sources::check(&workspace, &files, &mut breaches)?;
    clauses::check(&workspace, &files, &mut breaches);
    requirements::check(&workspace, &files, &mut breaches);
    links::check(&workspace, &mut breaches)?;
    words::check(&files, &mut breaches);
    evidence::check(&workspace, &files, &mut breaches)?;
    if breaches.is_empty() {
        println!("--- tidy: ok, {} source files", files.len());
        return Ok(());
    }
    println!("--- tidy: FAILED");
    for breach in &breaches {
        println!("{breach}");
    }
    Err(format!("tidy: {} breaches", breaches.len()))
}
