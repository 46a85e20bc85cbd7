//! The model's solution as a spreadsheet (OOXML) with live formulas; cells also hold the current values.
//!
//! [`write_nmt1989`] writes the sheet of Copy 89; a [`Spreadsheet`] has the current formulas for any network that
//! fits, and beside them the simulated figures for the inputs as they are. Read `expr` (formulas), `book` (sheets), `traffic` (inputs and loads), `access` and `medium` (delays),
//! `round` and `copy` (copies), `network` (everything together) and `results`.

mod access;
mod book;
mod copy;
mod expr;
mod medium;
mod network;
mod nmt1989;
mod results;
mod round;
#[cfg(test)]
mod tests;
mod traffic;

use std::io;
use std::path::Path;

use book::{Book, CELLS_MAX};
use remora_model::{Network, Report, Topology};
use round::WINDOW_ROWS;
use rust_xlsxwriter::{Workbook, XlsxError};
use traffic::COLUMNS_MAX;

use crate::report::page::ReservedFile;

/// Writes the sheet of Copy 89 for a topology. An error of kind `InvalidInput` says what it does not support.
pub fn write_nmt1989(path: &Path, network: &Network) -> io::Result<()> {
    let model = nmt1989::Model::of(network).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    write(path, |book| model.write(book))
}

/// A network's workbook: inputs, and the formulas of [`Network::solve`] in cells.
pub struct Spreadsheet(book::Book);

/// Why a network does not fit in a spreadsheet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl Spreadsheet {
    /// The workbook of a network, with the simulated figures of `answered` as constants. An error names the element
    /// that does not fit.
    pub fn of(network: &Network, answered: &Report) -> Result<Spreadsheet, Refused> {
        refuse_network(network).map_err(Refused)?;
        let mut book = book::Book::default();
        network::fill(network, answered, &mut book);
        refuse_book(&book).map_err(Refused)?;
        Ok(Spreadsheet(book))
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        write(path, |book| self.0.write(book))
    }
}

fn write(path: &Path, fill: impl FnOnce(&mut Workbook) -> Result<(), XlsxError>) -> io::Result<()> {
    let place = ReservedFile::reserve(path)?;
    let mut book = Workbook::new();
    fill(&mut book).map_err(io::Error::other)?;
    place.write(book.save_to_buffer().map_err(io::Error::other)?)
}

/// Checks the network's size.
fn refuse_network(network: &Network) -> Result<(), String> {
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

/// Most media, groups, gateways or flows: formulas that sum them have a length limit.
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

fn refuse_book(book: &Book) -> Result<(), String> {
    let cells = book.cells();
    if cells > CELLS_MAX {
        return Err(format!("all of the network: {cells} cells, {CELLS_MAX} at most"));
    }
    let long = |sheet| Err(format!("sheet '{sheet}': more flows meet than a formula can name"));
    book.too_long().map_or(Ok(()), long)
}
