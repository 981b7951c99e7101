//! `cci perf` as somebody sees it who waits for it: lines as they are measured, Ctrl-C, and the page.

mod common;

use common::*;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

fn started(args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cci"));
    command.arg("perf").args(args).env_remove("CCI_CONFIG").stdin(Stdio::null());
    let mut perf = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let output = BufReader::new(perf.stdout.take().expect("a pipe"));
    (perf, output)
}

/// Reads until a line of figures.
fn first_figures(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    for _ in 0..20 {
        line.clear();
        output.read_line(&mut line).expect("a line");
        if line.trim_start().starts_with("RO ") {
            return line;
        }
    }
    panic!("no figures, last {line:?}");
}

/// What there is is shown and kept, although much more was to come: the second size alone would take a minute.
#[test]
fn ctrl_c_ends_a_run_with_what_was_measured() {
    let folder = folder("perf-interrupted");
    let page = folder.join("page.html");
    let page = page.to_str().expect("UTF-8");
    let (mut perf, mut output) = started(&["--device", "shm", "--seconds", "1", "--html", page]);
    let line = first_figures(&mut output);
    assert!(line.contains("8 B") && line.contains(" ns") | line.contains("s "), "{line}");
    assert!(perf.try_wait().expect("asked").is_none(), "figures are there before the end");
    let id = perf.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    let mut printed = String::new();
    output.read_to_string(&mut printed).expect("the rest");
    let ended = perf.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{printed}{}", String::from_utf8_lossy(&ended.stderr));
    for expected in ["messages verified; interrupted", "noise:", "curves: "] {
        assert!(printed.contains(expected), "{expected} is missing in\n{printed}");
    }
    assert!(!printed.contains("FAILED"), "{printed}");
    let html = std::fs::read_to_string(page).expect("the page");
    assert!(html.contains("Interrupted") && html.contains("viewBox=\"0 0 720"), "{html}");
    std::fs::remove_dir_all(folder).expect("removed");
}

#[test]
fn json_says_what_was_interrupted() {
    let (perf, mut output) = started(&["--device", "shm", "--seconds", "30", "--json"]);
    // Without a line to wait for: the second process is there when the signals are caught.
    let children = format!("/proc/{0}/task/{0}/children", perf.id());
    for _ in 0..1000 {
        if std::fs::read_to_string(&children).is_ok_and(|text| !text.trim().is_empty()) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let id = perf.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill").success());
    let mut printed = String::new();
    output.read_to_string(&mut printed).expect("JSON");
    assert_eq!(perf.wait_with_output().expect("it ends").status.code(), Some(0), "{printed}");
    let results: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(results["interrupted"], true, "{printed}");
    assert_eq!(results["machine"]["measurement_ns"], 30_000_000_000_u64, "{printed}");
}

/// Both comparisons point the same way, the cells that have no value say which kind of none it is, and no line has more
/// columns than its head.
#[test]
fn the_page_and_the_table_can_be_read() {
    if !devices().iter().any(|name| name == "udp-lo") {
        return println!("skipped: no loopback interface is up here");
    }
    let folder = folder("perf-page");
    let page = folder.join("page.html");
    let text = succeeded(&cci(&[
        "perf",
        "--quick",
        "--device",
        "shm",
        "--device",
        "udp-lo",
        "--sizes",
        "0,8",
        "--html",
        page.to_str().expect("UTF-8"),
    ]));
    assert!(
        !text.split_whitespace().any(|word| word == "ratio") && text.contains("above 1 is better"),
        "{text}"
    );
    assert!(text.contains("n/a") && text.contains("in short"), "{text}");
    let mut rows = text.lines().filter(|line| line.starts_with("  ") && !line.starts_with("  ("));
    assert!(rows.all(|line| line.chars().count() <= 120), "{text}");
    assert!(
        !text.lines().any(|line| line.split_whitespace().any(|word| word == "-")),
        "a dash says nothing:\n{text}"
    );
    check_page(&page);
    std::fs::remove_dir_all(folder).expect("removed");
}

fn check_page(page: &Path) {
    let html = std::fs::read_to_string(page).expect("the page");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!html.contains(outside), "the page needs something else: {outside}");
    }
    // Every line of a chart belongs to a device that can be chosen.
    for (index, name) in ["shm", "udp-lo"].into_iter().enumerate() {
        assert!(html.contains(&format!("id=\"dev{index}\" checked")), "{name}");
        assert!(
            html.contains(&format!("body:has(#dev{index}:not(:checked)) .dev{index} {{ display: none }}"))
        );
        assert!(html.contains(&format!("class=\"line dash0 c{index} dev{index} kind kind0\"")), "{name}");
        assert!(html.contains(&format!("<title>{name} RO, 8 B: ")), "{name}");
    }
    let cells = |row: &str| row.matches("<td").count() + row.matches("<th").count();
    for table in html.split("<table>").skip(1) {
        let mut rows = table.split("</table>").next().unwrap_or("").split("<tr").skip(1).map(cells);
        let head = rows.next().expect("a head");
        assert!(head >= 6 && rows.all(|count| count == head), "as many cells as titles: {table}");
    }
    let font = |class: &str| {
        let rule =
            html.split(class).nth(1).and_then(|rest| rest.split("font-size: ").nth(1)).expect("a size");
        rule.split("px").next().and_then(|size| size.parse::<u32>().ok()).expect("pixels")
    };
    assert!(font(".charts text {") >= 16, "an axis that can be read");
    assert!(html.contains("min-width: 540px"), "and that is not made smaller with the window");
}
