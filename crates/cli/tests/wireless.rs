//! `remora lab wireless` from the outside.

mod common;

use common::Place;

#[test]
fn an_unknown_experiment_is_2_and_the_list_is_shown() {
    let p = Place::new();
    p.run(&["lab", "wireless", "frobnicate"]).expect(2, &["frobnicate", "block-size", "saturation"]);
    p.run(&["lab", "wireless", "--seeds", "0"]).expect(2, &["1..=1000"]);
    p.run(&["lab", "wireless", "--quick", "--seeds", "5"]).expect(2, &["--seeds"]);
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
