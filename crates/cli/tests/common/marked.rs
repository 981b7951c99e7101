//! Finds processes by a mark in their environment, whoever their parents are.

/// Processes that have `mark` in their environment.
pub fn marked(mark: &str) -> Vec<i32> {
    let has_mark = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|entry| entry == mark.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(has_mark).collect()
}
