//! What makes a good file and what a bad one.

use remora_model::nmt1989::Sheet;

use super::*;
use crate::commands::model::example::OFFICE;

const FIG9: &str = include_str!("../../../../../docs/examples/copy89-fig9.toml");

#[test]
fn example_parses_with_and_without_optional_keys() {
    let (_, network) = parse(OFFICE).unwrap();
    let report = network.solve();
    assert_eq!((report.stations, report.copies.len()), (113, 1));
    let all: String = OFFICE
        .lines()
        .map(|l| l.strip_prefix('#').filter(|l| !l.starts_with(' ')).unwrap_or(l).to_owned() + "\n")
        .collect();
    let with_all = parse(&all).unwrap_or_else(|(line, why)| panic!("{line}: {why}")).1;
    assert_eq!(with_all.solve(), report, "what is commented out are the defaults");
}

#[test]
fn the_papers_figures_come_out_to_the_last_digit() {
    const FIG10: &str = include_str!("../../../../../docs/examples/copy89-fig10.toml");
    for (text, words) in [
        (FIG9, ["1.06671584", "6.64%", "65.30", "68493.1507", "73.0627286", "1141.55251"]),
        (FIG10, ["17.1082081", "48.10%", "566.52", "68493.1507", "1171.79507", "1141.55251"]),
    ] {
        let (_, network) = parse(text).unwrap();
        let shown = super::super::tables::sheet(&Sheet::of(&network).unwrap().results().unwrap());
        assert!(words.iter().all(|w| shown.contains(w)), "{shown}");
    }
}

#[test]
fn nmt1989_sheet_takes_one_copy_across_ethernet() {
    let sheet = |text: &str| Sheet::of(&parse(text).unwrap().1);
    let copy = FIG9.split_once("[[copy]]").unwrap().1.split("\n[").next().unwrap();
    assert_eq!(sheet(&format!("{FIG9}\n[[copy]]{copy}")), Err("there is more than one copy"));
    let away = FIG9.to_owned()
        + "[[medium]]\nname = \"far\"\ntype = \"switch\"\nrate = \"1Gbit\"\n\
           [[group]]\nname = \"guests\"\nmedium = \"far\"\nstations = 3\n\
           [[gateway]]\nname = \"door\"\njoins = [\"far\", \"Local_Ethernet\"]\ncost = \"1us\"\n\
           [[flow]]\nfrom = \"guests\"\nto = \"guests\"\nrate = 9000\nsize = \"1000B\"\n";
    assert_eq!(sheet(&away), sheet(FIG9), "what stays elsewhere is no load");
    let across = away.clone() + "[[flow]]\nfrom = \"guests\"\nto = \"TO\"\nrate = 100\nsize = \"1000B\"\n";
    let to = &parse(FIG9).unwrap().0.copies[0].to.clone();
    let more = sheet(&across.replace("TO", to)).unwrap().offered.packets_per_s()
        - sheet(FIG9).unwrap().offered.packets_per_s();
    assert!((more - 300.0).abs() < 1e-9, "{more}");
    let leaves = away.replace(&format!("to = \"{to}\""), "to = \"guests\"");
    assert_eq!(sheet(&leaves), Err("the copy leaves its medium"));
}

#[test]
fn errors_name_line_key_and_expectation() {
    let ethernet = "[[medium]]\nname = \"e\"\ntype = \"ethernet\"\nrate = \"10Mbit\"\n";
    let group = "[[group]]\nname = \"g\"\nmedium = \"e\"\nstations = 2\n";
    let both = format!("{ethernet}{group}");
    for (text, line, words) in [
        ("", 1, &["medium"][..]),
        ("speed = 3\n", 1, &["speed"]),
        (&ethernet.replace("rate", "speed"), 4, &["speed", "unknown", "rate"]),
        (&ethernet.replace("10Mbit", "fast"), 4, &["rate", "'fast' is not a rate"]),
        (&ethernet.replace("10Mbit", "10ms"), 4, &["rate", "'10ms' is not a rate"]),
        (&ethernet.replace("ethernet", "hub"), 3, &["hub", "ethernet", "ring", "switch", "wifi"]),
        (&format!("{ethernet}walk = \"3us\"\n"), 5, &["walk", "only a ring"]),
        (&format!("{ethernet}propagation = \"3 parsecs\"\n"), 5, &["propagation", "length of time"]),
        (&ethernet.replace("ethernet", "ring"), 2, &["walk", "3us"]),
        (&ethernet.replace("\"e\"", "\"b\\n\\u001b[31mred\""), 2, &["name", "\\u{a}"]),
        (&both.replace("\"g\"", "\"g\\u001b[31m\""), 6, &["name", "\\u{1b}", "tables cannot show"]),
        (&format!("{ethernet}{ethernet}"), 6, &["name", "duplicate name 'e'"]),
        (&both.replace("\"e\"\nstations", "\"f\"\nstations"), 7, &["medium", "no medium is called 'f'"]),
        (&both.replace("stations = 2", "stations = 0"), 8, &["stations", "1 to 1000000"]),
        (&both.replace("stations = 2", "stations = -1"), 8, &["stations"]),
        (&format!("{both}[[gateway]]\nname = \"w\"\njoins = [\"e\"]\ncost = \"1us\"\n"), 11, &["joins", "two media"]),
        (&format!("{both}[[gateway]]\nname = \"w\"\njoins = [\"e\", \"e\"]\ncost = \"1us\"\n"), 11, &["tree"]),
        (&format!("{both}[[flow]]\nfrom = \"g\"\nto = \"h\"\nrate = 1\nsize = \"1K\"\n"), 11, &["to", "'h'"]),
        (&format!("{both}[[flow]]\nfrom = \"g\"\nto = \"g\"\nrate = -1\nsize = \"1K\"\n"), 12, &["rate", "0 to"]),
        (&format!("{both}[[flow]]\nfrom = \"g\"\nto = \"g\"\nrate = 1\nsize = \"0\"\n"), 13, &["size", "1 to"]),
        (&FIG9.replace("software", "window = 0\nsoftware"), 41, &["window", "1 to 4096"]),
        (&FIG9.replace("packets = 6", "packets = nan"), 38, &["packets", "more than 0"]),
        (&FIG9.replace("8760B", "0"), 37, &["block", "1 byte"]),
    ] {
        let (at, why) = parse(text).map(|_| ()).unwrap_err();
        assert_eq!(at, line, "{text}\n{why}");
        assert!(words.iter().all(|w| why.contains(w)), "{text:?}: {why}");
    }
}
