//! A sheet that names each formula, where it is from and where it holds.

use remora_model::{Formula, Kind, Quantity, Topology, ethernet, pipeline, queue, ring, wifi};

use super::book::Book;

/// Writes what is used for a network.
pub(super) fn write(book: &mut Book, sheet: usize, topology: &Topology) {
    book.title(sheet, (0, 0), "Formulas");
    for (column, head) in [(0, "formula"), (2, "holds for"), (8, "source")] {
        book.head(sheet, (2, column), head);
    }
    let has = |of: fn(&Kind) -> bool| topology.media.iter().any(|m| of(&m.kind));
    let mut notes = Vec::new();
    if has(|k| matches!(k, Kind::Switch { .. })) {
        notes.extend([note(&queue::MG1_WAIT), note(&queue::PORT_WAIT)]);
    }
    if has(|k| matches!(k, Kind::Ethernet { .. })) {
        notes.extend([note(&ethernet::ACCESS), note(&ethernet::DELAY), note(&ethernet::CAPACITY)]);
    }
    if has(|k| matches!(k, Kind::Ring { .. })) {
        notes.extend([note(&ring::WAIT), note(&ring::TOKEN)]);
    }
    if has(|k| matches!(k, Kind::Wifi { .. })) {
        notes.extend([note(&wifi::DELAY), note(&wifi::COMPLETION)]);
    }
    if !topology.gateways.is_empty() {
        notes.extend([note(&queue::GG1_WAIT), note(&queue::MM1_P95)]);
        notes.extend([note(&queue::BURSTS), note(&queue::BEHIND)]);
    }
    notes.extend([note(&queue::POISSON), note(&queue::SPACED), note(&queue::PROCESSOR)]);
    if !topology.copies.is_empty() {
        notes.push(note(&pipeline::PACE));
    }
    let mut row = 3;
    for (name, source, bands) in notes {
        book.text(sheet, (row, 0), name);
        book.soft(sheet, (row, 8), source);
        for band in &bands {
            book.text(sheet, (row, 2), band.as_str());
            row += 1;
        }
        row += u32::from(bands.is_empty());
    }
    let others = "CSMA/CD delay also holds in other bands: little traffic, much traffic of stations that are alike. \
                  What remora model FILE says decides.";
    book.soft(sheet, (row + 1, 0), others);
}

/// How far a formula holds in one of its quantities.
pub(super) fn high<I, O>(formula: &'static Formula<I, O>, quantity: Quantity) -> f64 {
    let band = formula.bands.iter().find(|band| band.quantity == quantity);
    band.map_or(f64::MAX, |band| band.high)
}

/// A formula's name, source and bands.
fn note<I, O>(formula: &'static Formula<I, O>) -> (&'static str, &'static str, Vec<String>) {
    let bands = formula.bands.iter().map(|b| format!("{}: {} to {}", b.quantity, b.low, b.high));
    (formula.name, formula.source, bands.collect())
}
