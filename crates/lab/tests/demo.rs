//! The demonstration at a small scale: real sockets, real time, a small file.

use std::path::Path;
use std::time::Duration;

use remora_base::Time;
use remora_lab::wireless::demo::{Finish, Options, run};

fn options(directory: &Path, bytes: usize, limit: Duration) -> Options {
    let file = directory.join("file");
    std::fs::write(&file, (0..bytes).map(|i| (i / 7) as u8).collect::<Vec<u8>>()).unwrap();
    let bad_mean = Duration::from_millis(80);
    Options { file: Some(file), seed: 1, bad_mean, report: directory.join("report.html"), limit, bars: false }
}

#[tokio::test]
async fn all_racers_arrive_and_the_page_is_self_contained() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = run(options(directory.path(), 30_000, Duration::from_secs(30))).await.unwrap();
    assert_eq!(outcome.legs.len(), 6);
    for leg in &outcome.legs {
        assert_eq!((leg.finish, leg.intact, leg.bytes), (Finish::Done, Some(true), 30_000), "{leg:?}");
        // MOUNT comes before; the stock client would wait 0.7 s for a first datagram that is lost.
        assert!(leg.began < Time::from_millis(600), "{leg:?}");
        assert!(leg.ratio.is_some_and(|r| r > 1.0), "faster than the floor: {leg:?}");
    }
    assert_eq!(outcome.table().matches("intact").count(), 6);
    let page = std::fs::read_to_string(&outcome.report).unwrap();
    assert_eq!(page.matches("<figure").count(), 2);
    assert!(!page.contains("src=") && !page.contains("href="), "it needs something from elsewhere");
}

#[tokio::test]
async fn slow_racer_is_stopped_and_shown_as_such() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = run(options(directory.path(), 1 << 20, Duration::from_secs(2))).await.unwrap();
    for leg in &outcome.legs {
        assert_eq!((leg.finish, leg.intact, leg.ratio), (Finish::Stopped, None, None), "{leg:?}");
        assert!(leg.bytes < 1 << 20, "{leg:?}");
        // The stock client may lose its first datagrams, and then waits 0.7 s and 1.4 s.
        assert!(leg.bytes > 0 || leg.racer == "stock 1990s client", "{leg:?}");
    }
    assert_eq!(outcome.table().matches("stopped at").count(), 6);
    assert!(outcome.all_intact(), "what did not arrive is not damaged");
}

#[tokio::test]
async fn unwritable_report_fails_before_the_race() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(directory.path(), 1 << 20, Duration::from_secs(60));
    options.report = directory.path().join("nowhere/report.html");
    let began = std::time::Instant::now();
    let error = run(options).await.unwrap_err().to_string();
    assert!(error.contains("nowhere/report.html"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}
