//! `remora df`: a file system's size and free space.

use serde::Serialize;

use crate::args::Df;
use crate::exit::{Error, Result};
use crate::servers::Servers;
use crate::{out, units};

/// What `--json` prints; sizes in bytes.
#[derive(Serialize)]
struct Room {
    total: u64,
    free: u64,
    available: u64,
    files: u64,
    files_free: u64,
    files_available: u64,
}

pub(crate) async fn run(args: Df) -> Result {
    let place = Servers::new(args.link).place(&args.url).await?;
    let failed = |e| Error::remote(&args.url)(e);
    let node = place.look(true).await.map_err(failed)?;
    let s = place.remote.fsstat(&node.fh).await.map_err(failed)?;
    if args.json {
        return out::json(&Room {
            total: s.total,
            free: s.free,
            available: s.avail,
            files: s.files,
            files_free: s.files_free,
            files_available: s.files_avail,
        });
    }
    out::text(&format!("{:>8} {:>8} {:>8} {:>5}\n", "size", "used", "free", "use"))?;
    out::text(&line(s.total, s.free, s.avail))
}

/// The figures as a line. A file system of 0 bytes in all is one that knows none.
fn line(total: u64, free: u64, avail: u64) -> String {
    if total == 0 {
        return format!("{0:>8} {0:>8} {0:>8} {0:>5}\n", "-");
    }
    let used = total.saturating_sub(free);
    // The share of what the caller may use, as df(1) prints it: without root's reserve.
    let share = (used as f64 / (used.saturating_add(avail)).max(1) as f64 * 100.0).ceil();
    let [total, used, avail] = [total, used, avail].map(units::human);
    format!("{total:>8} {used:>8} {avail:>8} {share:>4}%\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_a_file_system_does_not_know_are_dashes() {
        assert_eq!(line(0, 0, 0).split_whitespace().collect::<Vec<_>>(), ["-"; 4]);
        assert!(line(1000, 500, 400).ends_with("56%\n"));
    }
}
