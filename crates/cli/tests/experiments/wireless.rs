//! `remora lab wireless` from the outside.

use crate::common::Place;

#[test]
fn an_unknown_experiment_is_2_and_the_list_is_shown() {
    let p = Place::new();
    p.run(&["lab", "wireless", "frobnicate"]).expect(2, &["frobnicate", "block-size", "saturation"]);
    p.run(&["lab", "wireless", "--seeds", "0"]).expect(2, &["1..=1000"]);
    p.run(&["lab", "wireless", "--quick", "--seeds", "5"]).expect(2, &["--seeds"]);
    p.run(&["lab", "wireless", "loss", "--only", "10%"]).expect(2, &["'10%'", "loss: 0 %, 1 %", "system: stock"]);
}

#[test]
fn seeds_beyond_the_last_are_2() {
    let p = Place::new();
    let last = u64::MAX.to_string();
    for words in [&["wireless", "zero-errors"][..], &["drc"], &["atp", "bulk"], &["copy"]] {
        let args = [&["lab"], words, &["--seed", &last, "--seeds", "3"]].concat();
        p.run(&args).expect(2, &["--seed 18446744073709551615: fewer than 3 seeds remain"]);
    }
    p.ok(&["lab", "drc", "--seed", &last, "--seeds", "1"]);
}

#[test]
fn the_list_has_a_line_for_each_experiment() {
    let list = Place::new().ok(&["lab", "wireless", "--list"]);
    for name in ["treatments", "two-mobiles", "bursts", "handoff"] {
        assert_eq!(list.lines().filter(|l| l.trim_start().starts_with(&format!("{name} "))).count(), 1, "{list}");
    }
}

#[test]
fn tables_json_and_a_page() {
    let p = Place::new();
    let args = ["lab", "wireless", "zero-errors", "--quick", "--threads", "1"];
    let text = p.ok(&[&args[..], &["--html", "page.html"]].concat());
    for words in ["zero-errors", "read", "Simulated", "page.html"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let page = std::fs::read_to_string(p.here("page.html")).unwrap();
    assert!(page.contains("remora lab wireless zero-errors --seeds 3 --seed 1"), "the command that gives it again");
    let object: serde_json::Value = serde_json::from_str(&p.ok(&[&args[..], &["--json"]].concat())).unwrap();
    assert_eq!(object["experiments"][0]["cells"].as_array().map(Vec::len), Some(2));
    p.run(&["lab", "wireless", "zero-errors", "--html", "nowhere/page.html"]).expect(1, &["nowhere/page.html"]);
}

/// All names in an object and in what is in it, but those of axes.
fn names(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Object(all) => {
            let inside = all.iter().filter(|(name, _)| *name != "labels" && *name != "settings");
            all.keys().cloned().chain(inside.flat_map(|(_, v)| names(v))).collect()
        }
        serde_json::Value::Array(all) => all.iter().flat_map(names).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn help_names_all_json_fields() {
    let p = Place::new();
    let object = p.ok(&["lab", "wireless", "zero-errors", "--quick", "--json"]);
    let help = p.ok(&["lab", "wireless", "--help"]);
    let named: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    for name in names(&serde_json::from_str(&object).unwrap()) {
        // The papers' figures: see docs/results/wireless.md.
        assert!(named.contains(&name.as_str()) || name == "place", "{name} is not in the help");
    }
}
