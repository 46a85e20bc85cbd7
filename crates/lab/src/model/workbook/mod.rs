//! The model's answer as a spreadsheet (OOXML) whose results are formulas: change an input cell in
//! any spreadsheet program and they follow. Cells carry the values that the model computed, too, for
//! programs that only show.
//!
//! [`write_nmt1989`] writes the paper's sheet, a [`Spreadsheet`] has the formulas of today for any network
//! that fits. Those are laid out as the model is: a module here for each of its modules.

mod book;
mod cells;
mod copy;
mod ethernet;
mod expr;
mod formulas;
mod gateway;
mod inputs;
mod loads;
mod medium;
mod need;
mod network;
mod nmt1989;
mod pace;
mod queue;
mod refuse;
mod regular;
mod results;
mod ring;
mod spacing;
#[cfg(test)]
mod tests;
mod traffic;
mod wifi;

use std::io;
use std::path::Path;

use remora_model::Network;
use rust_xlsxwriter::{Workbook, XlsxError};

use crate::report::page::ReservedFile;

/// Writes the sheet of Copy 89 for a topology; an error of kind `InvalidInput` says what it cannot do.
pub fn write_nmt1989(path: &Path, network: &Network) -> io::Result<()> {
    let model = nmt1989::Model::of(network).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    write(path, |book| model.write(book))
}

/// A network's workbook: inputs, and the formulas of [`Network::solve`] in cells.
pub struct Spreadsheet(book::Book);

/// What of a network a spreadsheet cannot hold, and why.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

impl Spreadsheet {
    /// The workbook of a network; an error names what in the network does not fit.
    pub fn of(network: &Network) -> Result<Spreadsheet, Refused> {
        refuse::network(network).map_err(Refused)?;
        let mut book = book::Book::default();
        network::fill(network, &mut book);
        refuse::book(&book).map_err(Refused)?;
        Ok(Spreadsheet(book))
    }

    /// Writes it to a file.
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
