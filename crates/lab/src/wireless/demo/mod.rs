//! `remora demo`: a real file over an emulated bursty wireless link, by three clients.
//!
//! A server, three relays with the same bad periods and three clients run in this process on loopback, without root:
//! a stock client of the 1990s, the papers' settings (NFS/W 97) and Remora's defaults. Each writes the file and
//! reads it back; one that takes longer than [`Options::limit`] is stopped. Read `options`, `race`, then
//! `report`.

mod options;
mod race;
mod report;

pub use options::{CopyDirection, Options, Racer, racers};
pub use race::{DemoError, Finish, LegResult};
pub use report::Outcome;

/// Runs the demonstration and writes its report.
pub async fn run(options: Options) -> Result<Outcome, DemoError> {
    let page = report::reserve(&options.report)?;
    let stage = race::RaceStage::set_up(&options)?;
    let mut legs = Vec::new();
    for way in [CopyDirection::Write, CopyDirection::Read] {
        legs.extend(stage.race(way, &options).await?);
    }
    let bad_mean_ms = options.bad_mean.as_millis() as u64;
    let outcome = Outcome { seed: options.seed, bad_mean_ms, bytes: stage.len(), legs, report: options.report.clone() };
    report::write(page, &outcome)?;
    Ok(outcome)
}
