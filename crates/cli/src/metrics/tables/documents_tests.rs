//! The guide and the dashboard name the metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use remora_host::forward::ForwardStatus;
use remora_host::gateway::GatewayStatus;

use super::recv::ReceiveCounts;
use super::{build, forwarding, link, mount, recv, serve};
use crate::metrics::table::{Family, Format};

/// The metrics of each command.
fn families() -> Vec<Vec<Family>> {
    vec![
        vec![build()],
        serve::families(&serve::tests::snapshot(), &BTreeMap::new()),
        link::families(&link::tests::report(100)),
        forwarding::gateway(&GatewayStatus::default()),
        forwarding::forward(&ForwardStatus::default()),
        recv::families(&ReceiveCounts::default()),
        mount::families(&mount::tests::report()),
    ]
}

/// The names and help texts of all metrics.
fn described() -> BTreeMap<String, &'static str> {
    let all: Vec<_> = families().iter().flatten().map(Family::described).collect();
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

#[test]
fn promtool_accepts_the_page_of_every_command() {
    for families in families() {
        let page = Format::Prometheus.page(families).unwrap();
        let mut command = Command::new("promtool");
        command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut promtool = match command.spawn() {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return skip::skipped(&skip::this_test(), "promtool is not installed (Debian: prometheus)");
            }
            started => started.unwrap(),
        };
        promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let said = promtool.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && text.is_empty(), "{text}\n{page}");
    }
}
