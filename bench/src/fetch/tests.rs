//! On a few readings; and the page in the repository.

use super::readings::{By, Site, parse};
use super::{FOLDER, PAGE, drawn, emit, read};
use crate::args::repository;
use std::fs;

const READINGS: &str = r#"{"site":"host","date":"2026-11-26T20:00:00Z","java":"25","jetty":"12.1.14","cores":2,"turn_ms":150,
"lines":[
{"bytes":1024,"at_once":1,"is_cached":true,"rates":[[9000,100,50],[9000,120,100],[9000,90,100]]},
{"bytes":1048576,"at_once":1,"is_cached":true,"rates":[[100,90,50]]},
{"bytes":1024,"at_once":1,"is_cached":false,"rates":[[9000,200,50,100]]},
{"bytes":4096,"at_once":64,"is_cached":false,"rates":[[9000,20,5,10]]}
]}"#;

#[test]
fn a_ratio_is_of_one_round_and_tcp_has_its_faster_handler() {
    let readings = parse(READINGS).unwrap();
    let [first, _, plain, many] = &readings.lines[..] else { panic!("{readings:?}") };
    let ratio = first.ratio_to(By::Tcp);
    assert_eq!((ratio.low, ratio.median, ratio.high), (1.05, 1.2, 1.6));
    assert_eq!(plain.ratio_to(By::Tcp).median, 2.0);
    assert_eq!(plain.bytes_per_second(By::Tcp), 102_400.0);
    assert_eq!(many.bytes_per_second(By::Ripc), 5_242_880.0);
}

#[test]
fn the_page_tells_which_goals_are_met() {
    let files = drawn(&[parse(READINGS).unwrap()]).unwrap();
    let [(_, page), (_, svg)] = &files[..] else { panic!("{files:?}") };
    for row in [
        "| 1 KiB | yes | 102 kB/s | 102 kB/s | 1.20 (1.05–1.60) | – | met |",
        "| 1 MiB | yes | 94.4 MB/s | 52.4 MB/s | 1.80 | 0.90 | met |",
        "| 1 KiB | no | 205 kB/s | 102 kB/s | 2.00 | – | met |",
        "| 64 at once of 4 KiB | no | 5.24 MB/s | 2.62 MB/s | 2.00 | – | **not met** |",
    ] {
        assert!(page.contains(row), "{row}\n{page}");
    }
    assert!(page.contains("3 of 4 met."), "{page}");
    assert!(svg.contains("RIPC, no cache") && svg.contains("memcpy"), "{svg}");
}

#[test]
fn files_that_are_not_whole_are_refused() {
    for wrong in [
        "",
        "{}",
        &READINGS.replace("host", "moon"),
        &READINGS.replace("[[100,90,50]]", "[]"),
        &READINGS.replace("[[100,90,50]]", "[[100,90]]"),
        &READINGS.replace("[[100,90,50]]", "[[100,90,0]]"),
    ] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn everything_is_written_into_a_folder() {
    let folder = std::env::temp_dir().join(format!("cci-fetch-page-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("readings.json");
    fs::write(&file, READINGS).unwrap();
    emit(std::slice::from_ref(&file), Some(&folder)).unwrap();
    for name in ["jetty.md", "jetty/host.svg", "jetty/host.json"] {
        assert!(folder.join(name).exists(), "{name}");
    }
    // The kept readings, by another path than they are written to.
    emit(&[folder.join("jetty/../jetty/host.json")], Some(&folder)).unwrap();
    assert_eq!(fs::read_to_string(folder.join("jetty/host.json")).unwrap(), READINGS);
    fs::remove_dir_all(&folder).unwrap();
}

/// The page is generated.
#[test]
fn the_page_in_the_repository_is_that_of_its_readings() {
    let docs = repository().join("docs");
    let kept = [Site::Host, Site::Wire].map(|site| docs.join(FOLDER).join(site.file("json")));
    let readings: Vec<_> = kept.iter().filter(|file| file.exists()).map(|file| read(file).unwrap()).collect();
    if readings.is_empty() {
        assert!(!docs.join(PAGE).exists(), "docs/{PAGE} without readings in docs/{FOLDER}");
        return;
    }
    for (name, content) in drawn(&readings).unwrap() {
        let written = fs::read_to_string(docs.join(&name)).unwrap();
        assert!(written == content, "{}: run cargo xtask bench fetch --write again", name.display());
    }
}
