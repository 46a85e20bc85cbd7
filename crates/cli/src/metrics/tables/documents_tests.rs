//! The guide and the dashboard name the metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use remora_host::forward::ForwardStatus;
use remora_host::gateway::GatewayStatus;

use super::recv::ReceiveCounts;
use super::{build, forwarding, link, mount, recv, serve};

/// The names and help texts of all metrics.
fn described() -> BTreeMap<String, &'static str> {
    let families = [
        vec![build()],
        serve::families(&serve::tests::snapshot(), &BTreeMap::new()),
        link::families(&link::tests::report(1)),
        forwarding::gateway(&GatewayStatus::default()),
        forwarding::forward(&ForwardStatus::default()),
        recv::families(&ReceiveCounts::default()),
        mount::families(&mount::tests::report()),
    ];
    let all: Vec<_> = families.iter().flatten().map(|family| family.described()).collect();
    let described: BTreeMap<_, _> = all.iter().cloned().collect();
    assert_eq!(described.len(), all.len(), "a name stands for one metric");
    described
}

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The words of a text that are names of metrics.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("remora_")).collect()
}

#[test]
fn guide_describes_every_metric_and_no_other() {
    let (guide, described) = (file("docs/guide/metrics.md"), described());
    let rows: BTreeMap<&str, &str> = guide
        .lines()
        .filter_map(|line| Some((line.strip_prefix("| `")?.split_once('`')?.0, line)))
        .filter(|(name, _)| name.starts_with("remora_"))
        .collect();
    for (name, help) in &described {
        let row = rows.get(name.as_str()).unwrap_or_else(|| panic!("no row of {name} | {help} |"));
        assert!(row.contains(help), "{name}: {help}\n{row}");
    }
    let unknown: Vec<_> = rows.keys().filter(|name| !described.contains_key(**name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn dashboard_shows_only_metrics_that_exist() {
    let described = described();
    let text = file("contrib/grafana/remora.json");
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(dashboard["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    let shown = names(&text);
    let is_known = |name: &&str| {
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
        described.contains_key(*name) || (family.ends_with("_seconds") && described.contains_key(family))
    };
    let unknown: Vec<_> = shown.iter().filter(|name| !is_known(name)).collect();
    assert!(unknown.is_empty() && shown.len() > 20, "{unknown:?}");
}
