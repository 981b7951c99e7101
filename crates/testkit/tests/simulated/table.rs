//! Tables that are kept under git.

/// Compares a table with the file it is kept in; `CCI_BLESS=1` writes the file instead.
pub fn check(name: &str, table: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    if std::env::var_os("CCI_BLESS").is_some() {
        std::fs::write(&path, table).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept != table {
        let differing = kept.lines().zip(table.lines()).filter(|(kept, now)| kept != now);
        let lines: String = differing.map(|(kept, now)| format!("kept {kept}\nnow  {now}\n")).collect();
        panic!(
            "{lines}{name} is not what is measured now; look at it, then CCI_BLESS=1 if the change is meant"
        );
    }
}
