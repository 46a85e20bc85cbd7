//! The wireless laboratory: what it reports of runs, and that the runs are what they should be.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::time::Duration;

use remora_base::Rng;
use remora_channel::Distribution;
use remora_lab::wireless::{
    self, Cell, Experiment, ExperimentFigure, ExperimentOutcome, Job, Label, Measure, Options, PlanError, RunError,
    Runner, Sample, Simulator, Source, System, Treatment, WirelessReport, Work, named, real,
};
use remora_lab::{Html as _, Page};
use serde_json::Value;

/// Gives figures of its own, at once: those with no changes take twice as long, seed 3 is cut
/// off, seed 4 fails.
#[derive(Debug)]
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

fn run(options: Options, runner: impl Runner) -> WirelessReport {
    wireless::run(options, runner).unwrap()
}

fn options(names: &[&str], first_seed: u64, seeds: u64, threads: usize) -> Options {
    let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
    Options {
        experiments: named(&names).unwrap(),
        first_seed,
        seeds: Some(seeds),
        threads: NonZeroUsize::new(threads).unwrap(),
        only: Vec::new(),
        distribution: None,
        peers: Vec::new(),
        conditions: None,
        bar: false,
        command: "remora lab wireless --test".into(),
    }
}

fn json(report: &WirelessReport) -> Value {
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
fn json_has_runs_and_summaries() {
    let report = json(&run(options(&["treatments", "bursts"], 1, 2, 2), Made));
    assert_eq!((&report["source"], &report["complete"]), (&"simulated".into(), &true.into()));
    let linear = cell(&report, "treatments", &["read", "80 ms", "linear"]);
    assert_eq!(linear["seeds"], serde_json::json!([1, 2]));
    assert_eq!(linear["reduction_percent"].as_f64().map(f64::round), Some(50.0));
    let result = &linear["results"][0];
    assert_eq!((&result["measure"], result["values"].as_array().map(Vec::len)), (&Value::from("seconds"), Some(2)));
    let settings = &cell(&report, "bursts", &["write", "500 ms", "Remora"])["settings"];
    assert_eq!((&settings["kind"], &settings["channel"]["errors"]["bad_mean_ms"]), (&"copy".into(), &500.0.into()));
}

#[test]
fn paper_values_are_shown_beside_ours() {
    let report = json(&run(options(&["treatments", "zero-errors", "two-mobiles", "block-size"], 1, 1, 2), Made));
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
fn cut_off_and_failed_runs_are_shown() {
    let report = run(options(&["outages"], 2, 2, 1), Made);
    let text = report.to_text(usize::MAX);
    assert!(text.contains(">300") && !text.contains("inf"), "{text}");
    let resumed = &json(&report)["experiments"][0]["cells"][0]["results"][0];
    assert_eq!((&resumed["summary"]["censored"], &resumed["values"][1]), (&1.into(), &Value::Null));

    let report = run(options(&["zero-errors"], 4, 1, 1), Made);
    assert_eq!(report.failures(), 2);
    assert!(report.to_text(usize::MAX).contains("failed: read, seed 4: as told"), "{}", report.to_text(usize::MAX));
    assert!(report.to_html().unwrap().contains("Failed: write, seed 4: as told"));
}

/// How many panels its figures have: one for each combination of levels on the axes that a figure
/// does not name.
fn panels(experiment: &Experiment) -> usize {
    let of = |figure: &ExperimentFigure| {
        let rest = |cell: &Cell| -> String {
            let others = cell.labels.iter().filter(|l| l.axis != figure.x && l.axis != figure.lines);
            others.map(|l| format!("{}={};", l.axis, l.level)).collect()
        };
        (experiment.cells)().iter().map(rest).collect::<BTreeSet<_>>().len()
    };
    experiment.figures.iter().map(of).sum()
}

#[test]
fn page_has_every_figure_and_no_external_resource() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("wireless.html");
    let page = Page::reserve(&path).unwrap();
    let report = run(options(&[], 1, 3, 2), Made);
    page.write(&report).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("<strong>simulated</strong>") && text.contains("remora lab wireless --test"));
    assert_eq!(text.matches("<figure").count(), wireless::all().into_iter().map(panels).sum::<usize>());
    assert!(!text.contains("src=") && !text.contains("href=\"http"), "it needs something from elsewhere");
    assert!(!text.contains("NaN") && !text.contains(">inf"), "a figure is none");
    assert!(Page::reserve(&directory.path().join("nowhere/x.html")).is_err());
}

#[test]
fn simulator_does_not_depend_on_threads() {
    let names = ["zero-errors", "packets", "overflow"];
    let [one, two] = [1, 2].map(|threads| json(&run(options(&names, 1, 2, threads), Simulator)));
    assert_eq!(one, two);
    for experiment in one["experiments"].as_array().unwrap() {
        for cell in experiment["cells"].as_array().unwrap() {
            assert_eq!(cell["failures"], Value::Array(Vec::new()), "{cell}");
            assert!(cell["results"][0]["summary"]["median"].as_f64().is_some_and(|s| s > 9.0), "{cell}");
        }
    }
    let runs = cell(&one, "packets", &["write", "160 ms", "no changes"])["packets"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    let packets = runs[0].as_array().unwrap();
    assert!(packets.len() > 256 && packets.iter().any(|p| p["again"] == true), "{} packets", packets.len());
}

#[test]
fn simulator_runs_every_kind_of_job() {
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

fn plan(names: &[&str], only: &[&str]) -> Result<Work<Made>, PlanError> {
    let only = only.iter().map(|o| (*o).to_owned()).collect();
    Work::plan(Options { only, ..options(names, 1, 2, 2) }, Made)
}

/// The text of each cell's place, of the experiments that are left.
fn places(work: &Work<Made>) -> Vec<String> {
    work.run(|_| ());
    let report = work.report();
    let levels = |labels: &[Label]| labels.iter().map(|l| l.level.clone()).collect::<Vec<_>>().join(", ");
    let of = |e: &ExperimentOutcome| e.cells.iter().map(|c| format!("{}: {}", e.name, levels(&c.labels))).collect();
    report.experiments.iter().flat_map(|e| -> Vec<String> { of(e) }).collect()
}

#[test]
fn only_levels_select_cells() {
    let some = plan(&["bursts", "loss"], &["write", "Remora", "stock", "80 ms", "5 %"]).unwrap();
    let expected = [
        "bursts: write, 80 ms, stock",
        "bursts: write, 80 ms, Remora",
        "loss: write, 5 %, stock",
        "loss: write, 5 %, Remora",
    ];
    assert_eq!(places(&some), expected);
    // An experiment that has the axis and not the level has nothing to offer.
    assert_eq!(places(&plan(&["bursts", "treatments"], &["read", "500 ms", "stock"]).unwrap()).len(), 1);
}

#[test]
fn unknown_level_is_an_error_that_lists_levels() {
    let error = plan(&["bursts", "loss"], &["write", "80ms"]).unwrap_err();
    assert!(matches!(&error, PlanError::Level { level, .. } if level == "80ms"));
    let text = error.to_string();
    for words in ["'80ms'", "direction: read, write", "bad mean: 0 ms, 40 ms, 80 ms", "loss: 0 %, 1 %"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Each is there, but nothing is at both.
    let error = plan(&["treatments", "loss"], &["linear", "5 %", "write", "stock", "80 ms"]).map(|work| places(&work));
    assert!(error.is_ok(), "alternatives on different axes of different experiments");
    assert!(plan(&["handoff"], &["announced", "Remora"]).is_ok());
    let others = Options {
        only: vec!["scp".into()],
        experiments: real::named(&["check".into()]).unwrap(),
        ..options(&[], 1, 1, 1)
    };
    assert!(matches!(Work::plan(others, NoPeers).map(|_| ()), Err(PlanError::Nothing(_))));
}

/// Has only what is ours.
struct NoPeers;

impl Runner for NoPeers {
    fn source(&self) -> Source {
        Source::Real
    }

    fn takes(&self, job: &Job) -> bool {
        matches!(job, Job::Copy(copy) if copy.system.is_ours())
    }

    fn run(&self, _: &Job, _: u64, _: Duration) -> Result<Sample, RunError> {
        Err(RunError::Unsupported)
    }
}

#[test]
fn interrupted_work_reports_its_finished_runs() {
    let work = plan(&["zero-errors", "bursts"], &[]).unwrap();
    let none = work.report();
    assert!(!none.complete && none.experiments.is_empty());
    let told = std::sync::Mutex::new(Vec::new());
    work.run(|ended| {
        // The first has ended, the second may be under way.
        let report = work.report();
        assert_eq!(report.experiments[0].cells.iter().map(|c| c.seeds.len()).sum::<usize>(), 4);
        told.lock().unwrap().push(ended.name);
    });
    assert_eq!(told.into_inner().unwrap(), ["zero-errors", "bursts"], "in the table's order");
    let report = work.report();
    assert!(report.complete && !work.rest(&report, usize::MAX).contains("zero-errors:"), "nothing is told twice");
}

/// A race of which one system lacks a seed.
struct Race;

impl Runner for Race {
    fn source(&self) -> Source {
        Source::Real
    }

    fn run(&self, job: &Job, seed: u64, _: Duration) -> Result<Sample, RunError> {
        let Job::Copy(copy) = job else { return Err(RunError::Unsupported) };
        let seconds = match (copy.system, seed) {
            // Slow where it is compared, fast where the other is not there.
            (System::Adaptive, 1 | 2) => 12.0,
            (System::Adaptive, _) => 1.0,
            (System::Scp, 1 | 2) => 11.0,
            (System::Libnfs, _) => 20.0,
            _ => return Err(RunError::Failed("as told".into())),
        };
        Ok(Sample { values: vec![(Measure::Seconds, seconds)], ..Sample::default() })
    }
}

#[test]
fn fastest_system_is_judged_by_shared_seeds() {
    let race = |only: &[&str], seeds| {
        let only = ["read"].iter().chain(only).map(|o| (*o).to_owned()).collect();
        let experiments = real::named(&["check".into()]).unwrap();
        let report = json(&run(Options { only, experiments, ..options(&[], 1, seeds, 1) }, Race));
        let cells = report["experiments"][0]["cells"].as_array().unwrap().clone();
        cells.iter().map(|c| c["fastest"].as_bool()).collect::<Vec<_>>()
    };
    assert_eq!(race(&["Remora", "libnfs", "scp"], 9), [Some(false), Some(false), Some(true)]);
    assert_eq!(race(&["Remora", "libnfs"], 9), [Some(true), Some(false)]);
    assert_eq!(race(&["Remora", "rsync"], 9), [None, None], "no run of rsync's");
    assert_eq!(race(&["Remora"], 9), [None], "no race");
}

#[test]
fn missing_measure_is_null_in_its_place() {
    struct Early;
    impl Runner for Early {
        fn source(&self) -> Source {
            Source::Simulated
        }

        fn run(&self, _: &Job, seed: u64, _: Duration) -> Result<Sample, RunError> {
            let resume = (seed != 2).then_some((Measure::Resume, seed as f64));
            let values = resume.into_iter().chain([(Measure::Seconds, 9.0)]).collect();
            Ok(Sample { values, ..Sample::default() })
        }
    }
    let report = json(&run(options(&["outages"], 1, 3, 1), Early));
    let cell = &report["experiments"][0]["cells"][0];
    assert_eq!(cell["seeds"], serde_json::json!([1, 2, 3]));
    assert_eq!(cell["results"][0]["values"], serde_json::json!([1.0, null, 3.0]));
    assert_eq!(cell["results"][1]["values"], serde_json::json!([9.0, 9.0, 9.0]));
}

#[test]
fn footer_names_experiments_with_other_seeds() {
    let footer = |names: &[&str]| run(options(names, 7, 2, 1), Made).footer();
    assert!(footer(&["zero-errors", "two-mobiles"]).contains("; 2 seeds from 7."));
    let usual = |names: &[&str]| run(Options { seeds: None, ..options(names, 7, 0, 1) }, Made).footer();
    assert!(usual(&["zero-errors", "two-mobiles"]).contains("; 10 seeds from 7 (two-mobiles: 40)."));
    assert!(usual(&["two-mobiles"]).contains("; 40 seeds from 7."));
}

#[test]
fn distribution_replaces_that_of_every_job() {
    let plan = |names: &[&str], distribution| {
        let work = Work::plan(Options { distribution, ..options(names, 1, 1, 1) }, Made).unwrap();
        work.run(|_| ());
        json(&work.report())
    };
    let all = plan(&["treatments", "bursts", "distributions"], Some(Distribution::Deterministic));
    let read = cell(&all, "treatments", &["read", "80 ms", "no changes"]);
    assert_eq!((&read["settings"]["distribution"], &read["paper"]), (&"fixed".into(), &Value::Null));
    let errors = &cell(&all, "bursts", &["read", "80 ms", "Remora"])["settings"]["channel"]["errors"];
    assert_eq!((&errors["distribution"], &errors["bad_mean_ms"]), (&"fixed".into(), &80.0.into()));
    // Where it is an axis, only its level is left.
    let cells = all["experiments"][1]["cells"].as_array().unwrap();
    assert!(cells.iter().all(|c| c["labels"]["distribution"] == "fixed") && cells.len() == 12, "{}", cells.len());
    let none = plan(&["treatments"], None);
    assert_eq!(cell(&none, "treatments", &["read", "80 ms", "no changes"])["paper"]["mean"], 67.7);
}

#[test]
fn mobiles_in_a_cell_share_the_medium() {
    let work = named(&["mobiles".into()]).unwrap()[0];
    let at = |levels: &[&str]| {
        let cell = (work.cells)().into_iter().find(|c| levels.iter().all(|l| c.labels.iter().any(|x| x.level == *l)));
        let sample = Simulator.run(&cell.unwrap().job, 5001, Duration::from_secs(3000)).unwrap();
        move |measure| sample.value(measure).unwrap()
    };
    let [one, four] = ["1", "4"].map(|n| at(&["write", "0 ms", n, "linear + retransmit"]));
    assert_eq!((one(Measure::Fairness), one(Measure::Slowest)), (1.0, one(Measure::Seconds)));
    assert!(four(Measure::Slowest) > one(Measure::Slowest), "four files take longer than one");
    assert!(four(Measure::Goodput) > one(Measure::Goodput), "the hosts, not the medium, limit one");
    for load in [&one, &four] {
        let (goodput, busy) = (load(Measure::Goodput), load(Measure::Busy));
        assert!(0.0 < goodput && goodput < busy && busy <= 1.0, "{goodput} of {busy}");
    }
    assert!((0.25..=1.0).contains(&four(Measure::Fairness)));
}

#[test]
fn fewer_receive_frames_overflow_more_often() {
    let overflow = named(&["overflow".into()]).unwrap()[0];
    let overflows = |buffer: &str| {
        let is_it = |c: &Cell| c.level("direction") == Some("read") && c.level("receive buffer") == Some(buffer);
        let cell = (overflow.cells)().into_iter().find(is_it).unwrap();
        let sample = Simulator.run(&cell.job, 5001, cell.limit).unwrap();
        (sample.value(Measure::Overflows).unwrap(), sample.value(Measure::Retransmissions).unwrap())
    };
    let (few, never) = (overflows("4 frames"), overflows("never full"));
    assert!(few.0 > 0.0 && few.1 > 0.0, "{few:?}");
    assert_eq!(never, (0.0, 0.0));
}
