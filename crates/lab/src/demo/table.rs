//! The results as text.

use std::fmt::Write;

use super::{Finish, LegResult, Outcome, Way};

pub(super) fn render(outcome: &Outcome) -> String {
    let mut out = String::new();
    for (way, title) in [(Way::Write, "write"), (Way::Read, "read")] {
        let legs: Vec<&LegResult> = outcome.legs.iter().filter(|l| l.way == way).collect();
        let floor = legs.iter().find_map(|l| l.floor_seconds).unwrap_or(0.0);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{title}: {} bytes; the channel's floor is {floor:.2} s", outcome.bytes);
        let _ = writeln!(out, "  {:<22} {:>9} {:>9} {:>12}  copy", "", "seconds", "x floor", "sent again");
        for leg in legs {
            let _ = writeln!(out, "  {}", line(leg, outcome.bytes));
        }
    }
    out
}

fn line(leg: &LegResult, bytes: u64) -> String {
    let (ratio, copy) = match (leg.finish, leg.intact) {
        (Finish::Stopped, _) => {
            let percent = leg.bytes as f64 / bytes.max(1) as f64 * 100.0;
            ("-".to_owned(), format!("stopped at {percent:.0} %"))
        }
        (Finish::Done, intact) => {
            let ratio = leg.ratio.map_or("-".to_owned(), |r| format!("{r:.2}"));
            (ratio, if intact == Some(true) { "intact".to_owned() } else { "DAMAGED".to_owned() })
        }
    };
    format!("{:<22} {:>9.2} {ratio:>9} {:>12}  {copy}", leg.racer, leg.seconds, leg.retransmissions)
}
