//! What the spreadsheet cannot hold, by the name of the element of the file.

use remora_model::{Network, Topology};

use super::book::{Book, CELLS_MAX};
use super::loads::COLUMNS_MAX;
use super::pace::WINDOW_ROWS;

/// Why no workbook can be made of a network.
pub(super) fn network(network: &Network) -> Result<(), String> {
    let topology = network.topology();
    let counts = [
        ("media", topology.media.len()),
        ("groups", topology.groups.len()),
        ("gateways", topology.gateways.len()),
        ("flows", topology.flows.len()),
    ];
    if let Some((what, count)) = counts.into_iter().find(|(_, count)| *count > ELEMENTS_MAX) {
        return Err(format!("{count} {what}, {ELEMENTS_MAX} at most"));
    }
    copies(topology)
}

/// Media, groups, gateways or flows at most: formulas that sum them up have a length that spreadsheet
/// programs take.
const ELEMENTS_MAX: usize = if COLUMNS_MAX < 100 { COLUMNS_MAX } else { 100 };

fn copies(topology: &Topology) -> Result<(), String> {
    let about = |i: usize| topology.copies.get(i).map_or(String::new(), |c| format!("{} > {}", c.from, c.to));
    if topology.copies.len() > 1 {
        return Err(format!("copy 2 ({}): the rates of several copies hang on one another", about(1)));
    }
    if let Some(copy) = topology.copies.first().filter(|c| c.window > WINDOW_ROWS) {
        return Err(format!("copy 1 ({}): a window of {}, {WINDOW_ROWS} at most", about(0), copy.window));
    }
    Ok(())
}

/// Why a workbook is too large.
pub(super) fn book(book: &Book) -> Result<(), String> {
    let cells = book.cells();
    if cells > CELLS_MAX {
        return Err(format!("all of the network: {cells} cells, {CELLS_MAX} at most"));
    }
    let long = |sheet| Err(format!("sheet '{sheet}': more flows meet than a formula can name"));
    book.too_long().map_or(Ok(()), long)
}
