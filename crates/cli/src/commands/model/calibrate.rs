//! `remora model calibrate`: what a capture says about the stations in it.

use remora_lab::Table;
use remora_lab::model::capture::{Calibration, CaptureError, calibrate, skeleton};
use remora_lab::model::digits;

use crate::commands::model::environment::width;
use crate::commands::model::flags::Calibrate;
use crate::commands::model::tables::fitted;
use crate::output::exit::{Error, Result};
use crate::output::stdio;

/// Stations on the terminal at most; `--json` has all.
const ROWS_MAX: usize = 50;

pub(crate) fn run(args: &Calibrate) -> Result {
    let found = calibrate(&args.file, args.bin).map_err(|e| match e {
        CaptureError::Io(source) => Error::local(args.file.display())(source),
        other => Error::refused(args.file.display(), other.to_string()),
    })?;
    if found.cut_short {
        let file = args.file.display();
        stdio::eprint(format_args!("{file} is truncated or damaged: the figures cover the packets before that point"));
    }
    if args.json {
        stdio::print_json(&found)
    } else if args.topology {
        stdio::print(&skeleton(&found))
    } else {
        stdio::print(&text(&found))
    }
}

fn text(found: &Calibration) -> String {
    let head = ["station", "pps", "mean B", "variation", "E[B^2]", "dispersion", "peak/mean", "packets"];
    let row = |s: &remora_lab::model::capture::Station| {
        let figures = [s.packets_per_s, s.mean_bytes, s.variation, s.second_moment_bytes2].map(digits);
        let burstiness = [s.dispersion, s.peak_to_mean].map(|known| known.map_or("-".to_owned(), digits));
        let packets = [s.packets.to_string()];
        [s.name.clone()].into_iter().chain(figures).chain(burstiness).chain(packets).collect()
    };
    let rows: Vec<Vec<String>> = found.stations.iter().take(ROWS_MAX).map(row).collect();
    let more = found.stations.len() - rows.len();
    let table = Table { left: 1, head: head.map(str::to_owned).to_vec(), rows };
    let mut text = fitted(table, width());
    if more > 0 {
        text += &format!("  and {more} more: --json lists all\n");
    }
    if found.packets_of_others > 0 {
        text += &format!("  {} packets belong to further stations\n", found.packets_of_others);
    }
    let (packets, seconds, bin) = (found.packets, digits(found.seconds), digits(found.bin_s * 1e3));
    text += &format!("\n  {packets} packets in {seconds} s; ");
    text += &if found.seconds < 2.0 * found.bin_s {
        format!("too short for dispersion and peak: they need two complete bins of {bin} ms (--bin)\n")
    } else {
        format!("dispersion and peak of counts in complete bins of {bin} ms (dispersion 1: Poisson)\n")
    };
    text
}
