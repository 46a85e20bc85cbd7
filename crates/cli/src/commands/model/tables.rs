//! A report on a terminal: columns to the right go first where it is narrow; the reasons to doubt
//! come below, once each.

use remora_lab::model::Tables;
use remora_lab::{Table, model};
use remora_model::Report;
use remora_model::nmt1989::Results;

/// Columns that a table keeps however narrow the terminal is.
const COLUMNS_MIN: usize = 3;

/// The report for a terminal `width` characters wide.
pub(crate) fn text(report: &Report, width: usize) -> String {
    let Tables { verdict, tables, doubts } = model::tables(report);
    let tables = tables.into_iter().map(|t| fitted(t, width));
    format!("{verdict}\n\n") + &tables.collect::<Vec<_>>().join("\n") + &reasons(&doubts)
}

/// What the marks stand for.
pub(crate) fn reasons(doubts: &[String]) -> String {
    let mut text = String::new();
    for (i, reason) in doubts.iter().enumerate() {
        let start = if i == 0 { "\n" } else { "" };
        text += &format!("{start}  [{}] {reason}\n", i + 1);
    }
    text
}

/// The sheet of Copy 89, with the digits printed there.
pub(crate) fn sheet(results: &Results) -> String {
    model::sheet(results).to_text()
}

pub(crate) fn fitted(mut table: Table, width: usize) -> String {
    loop {
        let text = table.to_text();
        let widest = text.lines().map(|l| l.chars().count()).max().unwrap_or(0);
        if widest <= width || table.head.len() <= COLUMNS_MIN {
            return text;
        }
        table.head.pop();
        table.rows.iter_mut().for_each(|row| drop(row.pop()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminals_get_fewer_columns() {
        let row = |texts: [&str; 4]| texts.map(str::to_owned).to_vec();
        let wide = Table { left: 1, head: row(["a", "b", "c", "d"]), rows: vec![row(["x", "1", "2", "a long text"])] };
        assert!(fitted(wide.clone(), 80).contains("long"));
        let narrow = fitted(wide, 12);
        assert!(!narrow.contains("long") && narrow.contains('2'), "{narrow}");
    }
}
