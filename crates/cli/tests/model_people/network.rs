//! The spreadsheet of a network in LibreOffice: its cells are what `remora model FILE` says, and when all
//! its inputs are changed, what `remora model` says of the file with these numbers.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::common::Place;
use super::sheet::{first_sheet, recalculate, with_first_sheet};
use super::{draw, example};

/// Structures that are drawn.
const DRAWN: u64 = 6;

/// A file, and the same one with other numbers.
struct Pair {
    name: String,
    first: String,
    second: String,
}

/// The office without its copy, and networks that were drawn.
fn pairs() -> Vec<Pair> {
    let office = fs::read_to_string(example("office.toml")).unwrap();
    let first = office.split("[[copy]]").next().unwrap().to_owned();
    let mut second = first.clone();
    for (old, new) in [
        ("stations = 40", "stations = 25"),
        ("rate = \"11Mbit\"", "rate = \"24Mbit\""),
        ("cost = \"300us\"", "cost = \"500us\""),
        ("rate = 2\n", "rate = 17\n"),
        ("variation = 0.5", "variation = 1.25"),
        ("bad = \"80ms\"", "bad = \"35ms\""),
    ] {
        assert!(second.contains(old), "{old}");
        second = second.replace(old, new);
    }
    let drawn = (0..DRAWN).map(|structure| Pair {
        name: format!("drawn{structure}"),
        first: draw::network(structure, structure),
        second: draw::network(structure, 1000 + structure),
    });
    std::iter::once(Pair { name: "office".into(), first, second }).chain(drawn).collect()
}

/// Writes the workbooks of both files; the second one is the first one's with the second one's inputs.
fn books(p: &Place, Pair { name, first, second }: &Pair) -> [PathBuf; 2] {
    let made = [(1, first), (2, second)].map(|(i, text)| {
        let (file, book) = (format!("{name}-{i}.toml"), format!("{name}-{i}.xlsx"));
        fs::write(p.here(&file), text).unwrap();
        p.ok(&["model", &file, "--xlsx", &book]);
        p.here(&book)
    });
    let inputs = first_sheet(&fs::read(&made[1]).unwrap());
    let changed = with_first_sheet(&fs::read(&made[0]).unwrap(), |sheet| exchanged(&sheet, &inputs));
    fs::write(&made[1], changed).unwrap();
    made
}

/// Has LibreOffice compute workbooks, and holds each to what the model says of the file beside it.
fn check(p: &Place, books: &[PathBuf]) {
    recalculate(p, books);
    for book in books {
        let file = book.with_extension("toml");
        let object = p.ok(&["model", file.to_str().unwrap(), "--within", "0", "--json"]);
        let csv = fs::read_to_string(book.with_extension("csv")).unwrap();
        let cells: Vec<Vec<&str>> = csv.lines().map(|l| l.split('\t').map(|c| c.trim_matches('"')).collect()).collect();
        let name = book.file_stem().unwrap().to_string_lossy();
        compare(&name, &cells, &serde_json::from_str(&object).unwrap());
    }
}

pub(crate) fn follows_its_inputs() {
    let p = Place::new();
    let all: Vec<PathBuf> = pairs().iter().flat_map(|pair| books(&p, pair)).collect();
    check(&p, &all);
}

/// A copy over a shared Ethernet, which is many cells: the formulas of figure 9 with the inputs of figure 10.
pub(crate) fn follows_its_inputs_with_a_copy() {
    let p = Place::new();
    let read = |name: &str| fs::read_to_string(example(name)).unwrap();
    let (first, second) = (read("copy89-fig9.toml"), read("copy89-fig10.toml"));
    let [_, changed] = books(&p, &Pair { name: "figure".into(), first, second });
    check(&p, &[changed]);
}

pub(crate) fn refuses_what_it_cannot_hold() {
    let p = Place::new();
    let office = example("office.toml");
    let text = fs::read_to_string(&office).unwrap();
    let copy = text.split_once("[[copy]]").unwrap().1;
    fs::write(p.here("two.toml"), format!("{text}\n[[copy]]{copy}")).unwrap();
    let two = p.run(&["model", "two.toml", "--xlsx", "two.xlsx"]);
    two.expect(2, &["two.toml", "the spreadsheet cannot hold", "copy 2 (archive > studio)"]);
    assert!(!p.here("two.xlsx").exists() && two.stdout.is_empty(), "nothing is written: {}", two.stdout);
    p.run(&["model", &office, "--xlsx", "x.xlsx", "--sweep", "flow.1.rate=0..1/2"]).expect(2, &["--sweep"]);
}

/// Column of the results' names on the first sheet.
const NAMES: usize = 4;

/// Holds the first sheet's results to what the model says.
fn compare(name: &str, cells: &[Vec<&str>], model: &Value) {
    let rows = |table: &str| {
        let head = cells.iter().position(|row| row.get(NAMES) == Some(&table));
        head.map_or(&cells[..0], |at| &cells[at + 1..])
    };
    let list = |key: &str| model[key].as_array().unwrap().clone();
    let near = |what: &str, cell: &str, expected: &Value, times: f64| match expected.as_f64() {
        None => assert!(cell.parse::<f64>().is_err(), "{name}: {what} is {cell}, the model has none"),
        Some(expected) => {
            let got: f64 = cell.parse().unwrap_or_else(|_| panic!("{name}: {what} is '{cell}', not {expected}"));
            let close = (got - expected * times).abs() <= 1e-6 * (expected * times).abs() + 1e-12;
            assert!(close, "{name}: {what} is {got}, the model says {}", expected * times);
        }
    };
    let mut checked = 0;
    let mut row = |what: String, cells: &[&str], figures: &[(usize, &Value, f64)]| {
        for (column, expected, times) in figures {
            near(&format!("{what}, column {column}"), cells[NAMES + column], expected, *times);
            checked += 1;
        }
    };
    for (cells, medium) in rows("medium").iter().zip(list("media")) {
        assert_eq!(cells[NAMES], medium["name"]);
        let figures = [
            (1, &medium["load"], 100.0),
            (2, &medium["delay_s"]["value"], 1e3),
            (3, &medium["busy"], 100.0),
            (4, &medium["offered_packets_per_s"], 1.0),
            (5, &medium["carried_packets_per_s"], 1.0),
            (6, &medium["mean_bits"], 0.125),
        ];
        row(medium["name"].to_string(), cells, &figures);
    }
    for (cells, gateway) in rows("gateway").iter().zip(list("gateways")) {
        let figures = [
            (1, &gateway["utilisation"], 100.0),
            (2, &gateway["delay_s"]["value"], 1e3),
            (3, &gateway["packets_per_s"], 1.0),
            (4, &gateway["p95_s"]["value"], 1e3),
        ];
        row(gateway["name"].to_string(), cells, &figures);
    }
    for (i, (cells, flow)) in rows("flow").iter().zip(list("flows")).enumerate() {
        row(format!("flow {i}"), cells, &[(1, &flow["packets_per_s"], 1.0), (2, &flow["delay_s"]["value"], 1e3)]);
        for (at, part) in flow["parts"].as_array().unwrap().iter().enumerate() {
            assert_eq!(cells[NAMES + 3 + 2 * at], part["name"], "{name}: flow {i}");
            row(format!("flow {i}, part {at}"), cells, &[(4 + 2 * at, &part["delay_s"], 1e3)]);
        }
    }
    for (cells, copy) in rows("copy").iter().zip(list("copies")) {
        let outcome = &copy["outcome"]["value"];
        let figures =
            [(1, &outcome["seconds"], 1.0), (2, &outcome["bits_per_s"], 1e-6), (3, &outcome["response_s"], 1e3)];
        row("copy".into(), cells, &figures);
    }
    assert!(checked > 8, "{name}: only {checked} figures were found");
}

/// A sheet with the numbers of another one in its input cells, which are all numbers of column C.
fn exchanged(sheet: &str, other: &str) -> String {
    let mut changed = String::new();
    let mut count = 0;
    for (i, piece) in sheet.split("<c r=\"C").enumerate() {
        if i > 0 {
            changed.push_str("<c r=\"C");
        }
        let head = piece.split('>').next().unwrap();
        let row = head.split('"').next().unwrap();
        // A text's number is that of the text.
        if i == 0 || head.contains("t=\"s\"") {
            changed.push_str(piece);
            continue;
        }
        let value = |text: &str, cell: &str| {
            let at = text.find(cell).unwrap_or_else(|| panic!("no {cell}"));
            let from = at + text[at..].find("<v>").unwrap() + 3;
            text[from..from + text[from..].find("</v>").unwrap()].to_owned()
        };
        let (was, is) = (value(piece, ""), value(other, &format!("<c r=\"C{row}\"")));
        count += usize::from(was != is);
        changed.push_str(&piece.replacen(&format!("<v>{was}</v>"), &format!("<v>{is}</v>"), 1));
    }
    assert!(count > 0, "no input was changed");
    changed
}
