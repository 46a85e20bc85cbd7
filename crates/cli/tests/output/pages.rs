//! The page that a command was asked for is there when its runs are, whatever becomes of standard output.
//! `lab copy` with real programs takes root: see `copy_lab`.

use crate::common::Place;

/// `words` write `page.html`.
fn whoever_reads(words: &str) {
    let args: Vec<&str> = words.split_whitespace().collect();
    Place::new().page_is_written_whoever_reads(&args, "page.html");
}

#[test]
fn lab_wireless_writes_its_page_without_reader() {
    whoever_reads("lab wireless zero-errors --seeds 1 --html page.html");
    whoever_reads("lab wireless zero-errors --seeds 1 --json --html page.html");
}

#[test]
fn lab_drc_writes_its_page_without_reader() {
    whoever_reads("lab drc --seeds 1 --html page.html");
}

#[test]
fn lab_atp_writes_its_page_without_reader() {
    whoever_reads("lab atp deadlines --workload equal --scheme tcp --seeds 1 --html page.html");
}

#[test]
fn simulated_lab_copy_writes_its_page_without_reader() {
    whoever_reads("lab copy media --medium turns --seeds 1 --html page.html");
}

#[test]
fn demo_writes_its_page_without_reader() {
    let p = Place::new();
    std::fs::write(p.here("small"), [0; 2000]).unwrap();
    p.run(&["demo", "small", "--limit", "0"]).expect(2, &["--limit", "must be above 0"]);
    p.page_is_written_whoever_reads(&["demo", "small", "--report", "page.html"], "page.html");
}

#[test]
fn model_writes_its_page_without_reader() {
    let p = Place::new();
    std::fs::write(p.here("office.toml"), p.ok(&["model", "--example"])).unwrap();
    p.page_is_written_whoever_reads(&["model", "office.toml", "--html", "page.html"], "page.html");
}
