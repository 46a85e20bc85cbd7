//! The wireless laboratory: what it reports of runs, and that the runs are what they should be.

use std::num::NonZeroUsize;
use std::time::Duration;

use remora_base::Rng;
use remora_lab::wireless::{
    Job, Measure, Options, Page, Report, RunError, Runner, Sample, Simulator, Source, Treatment, named, run,
};
use serde_json::Value;

/// Gives figures of its own, at once: those with no changes take twice as long, seed 3 is cut
/// off, seed 4 fails.
struct Made;

impl Runner for Made {
    fn source(&self) -> Source {
        Source::Simulated
    }

    fn run(&self, job: &Job, seed: u64, limit: Duration) -> Result<Sample, RunError> {
        assert!(limit >= Duration::from_secs(300));
        let factor = match job {
            Job::Testbed(t) if t.treatment == Treatment::NoChanges => 2.0,
            _ => 1.0,
        };
        let seconds = match seed {
            3 => f64::INFINITY,
            4 => return Err(RunError::Failed("as told".into())),
            _ => factor * (10.0 + Rng::stream(seed, "made").unit()),
        };
        let measures = [Measure::Seconds, Measure::Resume, Measure::Latency95, Measure::Utilisation];
        let values = measures.map(|m| (m, seconds)).into();
        Ok(Sample { values, floor_seconds: Some(5.0), ..Sample::default() })
    }
}

fn options(names: &[&str], first_seed: u64, seeds: u64, threads: usize) -> Options {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    Options {
        experiments: named(&names).unwrap(),
        first_seed,
        seeds,
        threads: NonZeroUsize::new(threads).unwrap(),
        only: Vec::new(),
        peers: Vec::new(),
        bar: false,
        command: "remora lab wireless --test".into(),
    }
}

fn json(report: &Report) -> Value {
    serde_json::to_value(report).unwrap()
}

/// The only cell at these levels.
fn cell<'a>(report: &'a Value, experiment: &str, levels: &[&str]) -> &'a Value {
    let of = report["experiments"].as_array().unwrap().iter().find(|e| e["name"] == experiment).unwrap();
    let is_there = |c: &&Value| levels.iter().all(|l| c["labels"].as_object().unwrap().values().any(|v| v == l));
    let found: Vec<&Value> = of["cells"].as_array().unwrap().iter().filter(is_there).collect();
    assert_eq!(found.len(), 1, "{levels:?}");
    found[0]
}

#[test]
fn json_has_what_the_help_says() {
    let report = json(&run(&options(&["treatments", "bursts"], 1, 2, 2), &Made));
    for key in ["version", "command", "first_seed", "seeds", "experiments"] {
        assert!(!report[key].is_null(), "{key}");
    }
    let linear = cell(&report, "treatments", &["read", "80 ms", "linear"]);
    for key in
        ["labels", "source", "settings", "limit_seconds", "seeds", "results", "floor_seconds", "ratio", "failures"]
    {
        assert!(!linear[key].is_null(), "{key}");
    }
    assert_eq!(linear["source"], "simulated");
    assert_eq!(linear["seeds"], serde_json::json!([1, 2]));
    assert_eq!(linear["reduction_percent"].as_f64().map(f64::round), Some(50.0));
    let result = &linear["results"][0];
    assert_eq!((&result["measure"], result["values"].as_array().map(Vec::len)), (&Value::from("seconds"), Some(2)));
    for key in ["runs", "censored", "median", "low", "high", "min", "max", "mean"] {
        assert!(result["summary"].get(key).is_some(), "{key}");
    }
    let settings = &cell(&report, "bursts", &["write", "500 ms", "Remora"])["settings"];
    assert_eq!((&settings["kind"], &settings["channel"]["errors"]["bad_mean_ms"]), (&"copy".into(), &500.0.into()));
}

#[test]
fn the_papers_numbers_stand_beside_ours() {
    let report = json(&run(&options(&["treatments", "zero-errors", "two-mobiles", "block-size"], 1, 1, 2), &Made));
    for (experiment, levels, mean) in [
        ("treatments", &["read", "40 ms", "no changes"][..], 49.2),
        ("treatments", &["write", "80 ms", "linear + retransmit"], 14.8),
        ("zero-errors", &["write"], 14.2),
        ("two-mobiles", &["write", "80 ms", "no changes"], 45.0),
        ("block-size", &["read", "80 ms", "4 KiB"], 67.7),
    ] {
        assert_eq!(cell(&report, experiment, levels)["paper"]["mean"], mean, "{experiment} {levels:?}");
    }
    assert!(cell(&report, "treatments", &["read", "160 ms", "linear"])["paper"].is_null());
    let both = cell(&report, "treatments", &["write", "80 ms", "linear + retransmit"]);
    assert_eq!(both["paper_reduction_percent"].as_f64().map(f64::round), Some(67.0));
}

#[test]
fn runs_that_were_cut_off_or_failed_are_shown() {
    let report = run(&options(&["outages"], 2, 2, 1), &Made);
    let text = report.to_text();
    assert!(text.contains(">300") && !text.contains("inf"), "{text}");
    let resumed = &json(&report)["experiments"][0]["cells"][0]["results"][0];
    assert_eq!((&resumed["summary"]["censored"], &resumed["values"][1]), (&1.into(), &Value::Null));

    let report = run(&options(&["zero-errors"], 4, 1, 1), &Made);
    assert_eq!(report.failures(), 2);
    assert!(report.to_text().contains("failed: read, seed 4: as told"), "{}", report.to_text());
    assert!(report.to_html().unwrap().contains("Failed: write, seed 4: as told"));
}

#[test]
fn a_page_has_every_figure_and_needs_nothing_from_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wireless.html");
    let page = Page::reserve(&path).unwrap();
    let report = run(&options(&[], 1, 3, 2), &Made);
    page.write(&report).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("<strong>simulated</strong>") && text.contains("remora lab wireless --test"));
    assert!(text.matches("<svg").count() > 20);
    assert!(!text.contains("src=") && !text.contains("href=\"http"), "it needs something from elsewhere");
    assert!(!text.contains("NaN") && !text.contains(">inf"), "a figure is none");
    assert!(Page::reserve(&directory.path().join("nowhere/x.html")).is_err());
}

#[test]
fn the_simulator_gives_the_same_on_any_number_of_threads() {
    let names = ["zero-errors", "packets"];
    let [one, two] = [1, 2].map(|threads| json(&run(&options(&names, 1, 2, threads), &Simulator)));
    assert_eq!(one, two);
    for experiment in one["experiments"].as_array().unwrap() {
        for cell in experiment["cells"].as_array().unwrap() {
            assert_eq!(cell["failures"], Value::Array(Vec::new()), "{cell}");
            assert!(cell["results"][0]["summary"]["median"].as_f64().is_some_and(|s| s > 9.0), "{cell}");
        }
    }
    let packets = cell(&one, "packets", &["write", "no changes"])["packets"].as_array().unwrap();
    assert!(packets.len() > 256 && packets.iter().any(|p| p["again"] == true), "{} packets", packets.len());
}

#[test]
fn every_kind_of_job_can_be_simulated() {
    for name in ["bursts", "outages", "handoff", "small-operations", "saturation"] {
        let experiment = named(&[name.to_owned()]).unwrap()[0];
        let cells = (experiment.cells)();
        // The first and the last: from the oldest client to the newest on the link layer.
        for cell in [&cells[0], &cells[cells.len() - 1]] {
            let mut cell = cell.clone();
            if let Job::Saturation(saturation) = &mut cell.job {
                saturation.length = Duration::from_secs(3);
            }
            let sample = Simulator.run(&cell.job, 1, Duration::from_secs(60)).unwrap();
            let main = sample.value(experiment.measures[0]);
            assert!(main.is_some_and(|v| v > 0.0), "{name}: {:?}", cell.labels);
        }
    }
}
