//! The spreadsheet in LibreOffice: it computes the paper's cells, and other ones when an input is
//! changed in the file.

use std::fs;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};

use super::common::trials::program;
use super::common::{Place, Running};
use super::example;

/// Formulas are computed when a file is opened, whatever values stand in it.
const ALWAYS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop></item></oor:items>"#;
/// Tab, quotation mark, UTF-8, from line 1, and values in full rather than as shown.
const CSV: &str = "csv:Text - txt - csv (StarCalc):9,34,76,1,,0,false,false,false";

pub(crate) fn follows_its_inputs() {
    let p = Place::new();
    p.ok(&["model", &example("copy89-fig9.toml"), "--compat", "nmt1989", "--xlsx", "fig9.xlsx"]);
    let fig9 = p.here("fig9.xlsx");
    compare(&p, &fig9, "copy89-fig9.toml", &["1.06671584", "6.64", "65.30", "73.06", "1141.55"]);
    // The one number that figure 10 differs in: the background's packets a second.
    let fig10 = p.here("changed.xlsx");
    fs::write(&fig10, with_input(&fs::read(&fig9).unwrap(), "0", "1034")).unwrap();
    compare(&p, &fig10, "copy89-fig10.toml", &["17.1082081", "48.10", "566.52", "1171.80", "1171.80"]);
}

/// Holds the sheet to what the model says about `example_name`, and to the paper: delay, utilisation,
/// throughput, aggregate delay, total.
fn compare(place: &Place, sheet: &Path, example_name: &str, paper: &[&str; 5]) {
    let object = place.ok(&["model", &example(example_name), "--compat", "nmt1989", "--json"]);
    let model: serde_json::Value = serde_json::from_str(&object).unwrap();
    let csv = recalculated(place, sheet);
    let cells: Vec<Vec<&str>> = csv.lines().map(|l| l.split('\t').map(|c| c.trim_matches('"')).collect()).collect();
    let cell = |label: &str| -> f64 {
        let row = cells.iter().find(|r| r[0].starts_with(label)).unwrap_or_else(|| panic!("no {label} in {csv}"));
        // A cell that shows per cent is written so.
        let (digits, scale) = row[1].strip_suffix('%').map_or((row[1], 1.0), |digits| (digits, 0.01));
        scale * digits.parse::<f64>().unwrap_or_else(|_| panic!("{label} is {row:?}"))
    };
    for (label, key, times) in [
        ("Per-packet delay (ms)", "delay_s", 1e3),
        ("Total number of packets", "packets", 1.0),
        ("Aggregate delay", "aggregate_s", 1.0),
        ("Simple delay", "simple_s", 1.0),
        ("Total delay", "total_s", 1.0),
        ("Utilization of", "utilisation", 1.0),
        ("Effective throughput", "throughput_packets_per_s", 1.0),
    ] {
        let expected = model[key].as_f64().unwrap() * times;
        assert!((cell(label) / expected - 1.0).abs() < 1e-9, "{label}: {} {expected}", cell(label));
    }
    let labels = ["Per-packet", "Utilization of", "Effective", "Aggregate", "Total delay"];
    for (label, figure) in labels.into_iter().zip(paper) {
        let digits = figure.len() - figure.find('.').unwrap() - 1;
        let times = if label.starts_with("Util") { 100.0 } else { 1.0 };
        assert_eq!(format!("{:.digits$}", cell(label) * times), *figure, "{label}");
    }
}

/// The first sheet as LibreOffice computes it.
fn recalculated(place: &Place, sheet: &Path) -> String {
    recalculate(place, &[sheet.to_owned()]);
    fs::read_to_string(sheet.with_extension("csv")).unwrap()
}

/// Has LibreOffice compute all these workbooks, and write their first sheets beside them.
pub(crate) fn recalculate(place: &Place, sheets: &[PathBuf]) {
    let profile: PathBuf = place.here("profile");
    fs::create_dir_all(profile.join("user")).unwrap();
    fs::write(profile.join("user/registrymodifications.xcu"), ALWAYS).unwrap();
    let mut soffice = program("soffice");
    soffice.arg(format!("-env:UserInstallation=file://{}", profile.display()));
    soffice.args(["--headless", "--norestore", "--convert-to", CSV, "--outdir"]).arg(place.here("")).args(sheets);
    soffice
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let out = Running::start(soffice).finish();
    assert_eq!(out.code, 0, "{out:?}");
    for sheet in sheets {
        let csv = sheet.with_extension("csv");
        assert!(csv.exists(), "no {}: {out:?}", csv.display());
    }
}

/// The paper's workbook with the one input cell that is `old` at `new`; all values that formulas had stay.
fn with_input(workbook: &[u8], old: &str, new: &str) -> Vec<u8> {
    with_first_sheet(workbook, |mut text| {
        // A formula's value stands behind the formula, an input's behind its cell's attributes, of
        // which t="s" says that it is the number of a text.
        let (old, new) = (format!("\"><v>{old}</v>"), format!("\"><v>{new}</v>"));
        let inputs = text.match_indices(&old).map(|(at, _)| at).filter(|at| !text[..*at].ends_with("t=\"s"));
        let [at] = inputs.collect::<Vec<_>>()[..] else { panic!("not one {old} in {text}") };
        text.replace_range(at..at + old.len(), &new);
        text
    })
}

/// The first sheet of every workbook.
const FIRST: &str = "xl/worksheets/sheet1.xml";

pub(crate) fn with_first_sheet(workbook: &[u8], change: impl Fn(String) -> String) -> Vec<u8> {
    let mut from = zip::ZipArchive::new(Cursor::new(workbook)).unwrap();
    let mut to = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for i in 0..from.len() {
        let mut part = from.by_index(i).unwrap();
        let (name, mut bytes) = (part.name().unwrap().into_owned(), Vec::new());
        part.read_to_end(&mut bytes).unwrap();
        if name == FIRST {
            bytes = change(String::from_utf8(bytes).unwrap()).into_bytes();
        }
        to.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        to.write_all(&bytes).unwrap();
    }
    to.finish().unwrap().into_inner()
}

pub(crate) fn first_sheet(workbook: &[u8]) -> String {
    let mut text = String::new();
    zip::ZipArchive::new(Cursor::new(workbook)).unwrap().by_name(FIRST).unwrap().read_to_string(&mut text).unwrap();
    text
}
