//! Tables in the documents are what the commands that they name print. Only simulations, which give the
//! same to the last digit everywhere.

mod common;

use common::Place;
use serde_json::Value;

/// The cells of the rows of a document's tables that begin with one of `first`.
fn rows(document: &str, first: &[&str]) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(format!("{}/../../{document}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let row = |line: &str| line.split('|').map(|cell| cell.replace("**", "").trim().to_owned()).collect::<Vec<_>>();
    let is_wanted = |row: &Vec<String>| row.get(1).is_some_and(|cell| first.contains(&&cell[..]));
    text.lines().map(row).filter(is_wanted).collect()
}

fn object(args: &[&str]) -> Value {
    serde_json::from_str(&Place::new().ok(args)).unwrap()
}

#[test]
fn readme_has_what_lab_wireless_bursts_says() {
    let systems = ["stock", "papers' settings", "Remora", "Remora + link"];
    let mut args = vec!["lab", "wireless", "bursts", "--json"];
    args.extend(["write", "0 ms", "160 ms"].iter().chain(&systems).flat_map(|level| ["--only", level]));
    let printed = object(&args);
    let cells = printed["experiments"][0]["cells"].as_array().unwrap();
    let written = rows("README.md", &["none", "160 ms"]);
    assert_eq!(written.len(), 2);
    for row in written {
        let level = if row[1] == "none" { "0 ms" } else { &row[1] };
        for (system, figure) in systems.iter().zip(&row[2..]) {
            let cell = cells.iter().find(|c| c["labels"]["bad mean"] == level && c["labels"]["system"] == *system);
            let ratio = cell.unwrap()["ratio"]["median"].as_f64().unwrap();
            assert_eq!(*figure, format!("{ratio:.2}"), "{system} at {level}");
        }
    }
}

#[test]
fn drc_md_has_what_lab_drc_says_of_the_clients_of_today() {
    let printed = object(&["lab", "drc", "--json"]);
    let printed = printed["rows"].as_array().unwrap();
    let clients = [("Linux over UDP (1.1 s, doubled)", "linux-udp"), ("TCP", "tcp"), ("Remora over UDP", "remora")];
    let written = rows("docs/drc.md", &clients.map(|(name, _)| name));
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
