//! Tables in the documents are what the commands that they name print. Only simulations, which give the
//! same to the last digit everywhere.

use crate::common::Place;
use remora_channel::ErrorModel;
use remora_client::{ClientConfig, Transport};
use remora_sim::copy::{self, CopyConfig, Direction};
use remora_sim::programs::median;
use serde_json::Value;

fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The cells of the rows of a document's tables that begin with one of `first`.
fn rows(name: &str, first: &[&str]) -> Vec<Vec<String>> {
    let text = document(name);
    let row = |line: &str| line.split('|').map(|cell| cell.replace("**", "").trim().to_owned()).collect::<Vec<_>>();
    let is_wanted = |row: &Vec<String>| row.get(1).is_some_and(|cell| first.contains(&&cell[..]));
    text.lines().map(row).filter(is_wanted).collect()
}

fn object(args: &[&str]) -> Value {
    serde_json::from_str(&Place::new().ok(args)).unwrap()
}

#[test]
fn readme_table_equals_lab_wireless_bursts() {
    let systems = ["stock", "papers' settings", "Remora", "Remora + link"];
    let mut args = vec!["lab", "wireless", "bursts", "--json"];
    let levels = ["0 ms", "160 ms", "500 ms", "5 s", "30 s"];
    args.extend(["write"].iter().chain(&levels).chain(&systems).flat_map(|level| ["--only", level]));
    let printed = object(&args);
    let cells = printed["experiments"][0]["cells"].as_array().unwrap();
    let written = rows("README.md", &["none", "160 ms", "500 ms", "5 s", "30 s"]);
    assert_eq!(written.len(), levels.len());
    for row in written {
        let level = if row[1] == "none" { "0 ms" } else { &row[1] };
        for (system, figure) in systems.iter().zip(&row[2..]) {
            let cell = cells.iter().find(|c| c["labels"]["bad mean"] == level && c["labels"]["system"] == *system);
            let cell = cell.unwrap();
            // Where most copies were cut off it is known only what it is above, which is not rounded up.
            let printed = match cell["ratio"]["median"].as_f64() {
                Some(ratio) => format!("{ratio:.2}"),
                None => format!("above {:.1}", (cell["ratio_above"].as_f64().unwrap() * 10.0).floor() / 10.0),
            };
            assert_eq!(*figure, printed, "{system} at {level}");
        }
    }
}

#[test]
fn drc_md_table_equals_lab_drc() {
    let printed = object(&["lab", "drc", "--json", "--seeds", "20"]);
    let printed = printed["rows"].as_array().unwrap();
    let clients = [("Linux over UDP (1.1 s, doubled)", "linux-udp"), ("TCP", "tcp"), ("Remora over UDP", "remora")];
    let written = rows("docs/results/drc.md", &clients.map(|(name, _)| name));
    assert_eq!(written.len(), clients.len(), "a row of each, for the small server");
    for (row, (_, client)) in written.into_iter().zip(clients) {
        let of = |cache: &str, key: &str| {
            let is_it = |r: &&Value| r["group"] == "today" && r["server"] == row[2] && r["client"] == client;
            let found = printed.iter().filter(is_it).find(|r| r["cache"] == cache).unwrap();
            found[key]["mean"].as_f64().or(found[key].as_f64()).unwrap()
        };
        let mean = |cache: &str, key: &str| format!("{:.1}", of(cache, key));
        let figures = [
            mean("off", "sent"),
            mean("juszczak", "sent"),
            mean("full", "sent"),
            mean("off", "duplicates_processed"),
            mean("off", "speed"),
            mean("full", "speed"),
            format!("{:+.0} %", of("full", "change_percent")),
        ];
        assert_eq!(row[3..10], figures, "{client}, {}", row[2]);
    }
}

#[test]
fn predict_md_table_equals_lab_predict() {
    let printed = object(&["lab", "predict", "--json"]);
    let printed = printed["rows"].as_array().unwrap();
    let methods = ["LRU", "last successor", "neighbours", "model", "neighbours + model"];
    let text = document("docs/results/predict.md");
    let is_row = |line: &&str| line.split('|').nth(3).is_some_and(|cell| methods.contains(&cell.trim()));
    let written: Vec<&str> = text.lines().filter(is_row).collect();
    assert_eq!(written.len(), printed.len());
    for (line, row) in written.into_iter().zip(printed) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let whole = |key: &str| row[key].as_f64().map_or(String::new(), |value| format!("{value:.0}"));
        let tenths = |key: &str| row[key].as_f64().unwrap();
        let figures = [
            whole("reads"),
            format!("{:.1}", tenths("hit_percent")),
            format!("{:+.1}", tenths("gain_points")),
            whole("wasted_percent"),
            whole("lead_ms"),
            whole("lead_accesses"),
        ];
        assert_eq!(cells[4..10], figures, "{} {} {line}", row["trace"], row["program"]);
    }
}

/// Times the floor, the median of ten seeds, as the program `copy --hold` of the simulator prints it.
fn held(direction: Direction, bad_mean_ms: u64) -> f64 {
    let errors = ErrorModel::bursts(std::time::Duration::from_millis(bad_mean_ms));
    let channel = remora_channel::Config { errors, hold: true, ..Default::default() };
    let config = CopyConfig { channel, ..CopyConfig::new(ClientConfig::new(Transport::Udp), direction) };
    let ratio = |seed| copy::run(&config, seed).unwrap().copies[0].ratio().unwrap();
    median((0..10).map(ratio).collect())
}

#[test]
fn client_results_match_simulation_of_holding_link() {
    let [read_80, write_80, read_500, write_500] =
        [(Direction::Read, 80), (Direction::Write, 80), (Direction::Read, 500), (Direction::Write, 500)]
            .map(|(direction, bad_mean_ms)| format!("{:.2}", held(direction, bad_mean_ms)));
    assert_eq!(read_80, write_80, "the text has one figure for both");
    let said = format!("{read_80} with bursts of 80 ms and {read_500} / {write_500} with bursts of 500 ms");
    let words = document("docs/results/client.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&said), "{said}");
}

#[test]
fn testbed_md_has_rates_in_the_papers_kilobytes() {
    let at_160 = rows("docs/results/testbed.md", &["read"]).into_iter().filter(|row| row[2] == "160 ms");
    // No changes, linear, retransmit, both: the other tables' cells are more, or not numbers.
    let seconds: Vec<Vec<f64>> =
        at_160.map(|row| row[3..].iter().filter_map(|cell| cell.parse().ok()).collect()).collect();
    let [.., seconds] = &seconds[..] else { panic!("no table of all bad means") };
    let [before, _, _, after] = seconds[..] else { panic!("{seconds:?}") };
    let said = &rows("docs/results/testbed.md", &["one read at 160 ms from 8.4 to 19.2 KB/s"])[0][2];
    let said: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    for (said, seconds) in said.iter().zip([before, after]) {
        // The seconds are rounded.
        assert!((said - 1024.0 / seconds).abs() <= 0.06, "{said} KB/s, 1024 KB in {seconds} s");
    }
    assert_eq!(said.len(), 2);
}

/// The Markdown files of a folder and of those in it.
fn pages(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(format!("{}/../../{folder}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let mut found = Vec::new();
    for entry in entries.map(Result::unwrap) {
        let name = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(pages(&name)),
            false => found.extend(Some(name).filter(|name| name.ends_with(".md"))),
        }
    }
    found
}

/// A machine may run several servers: the documents signal one by its process number.
#[test]
fn documents_signal_no_processes_by_name() {
    let others = ["README.md", "SEMANTICS.md", "ARCHITECTURE.md"].map(str::to_owned);
    for name in pages("docs").into_iter().chain(others) {
        let text = document(&name);
        for program in ["pidof", "pkill", "killall"] {
            assert!(!text.contains(program), "{name} says {program}");
        }
    }
}
