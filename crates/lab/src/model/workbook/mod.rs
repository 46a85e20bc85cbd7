//! The model's answer as a spreadsheet (OOXML) whose results are formulas: change an input cell in
//! any spreadsheet program and they follow. Cells carry the values that the model computed, too, for
//! programs that only show.

mod cells;
mod nmt1989;

use std::io;
use std::path::Path;

use remora_model::Topology;
use rust_xlsxwriter::{Workbook, XlsxError};

use crate::report::page::Place;

/// Writes the sheet of Copy 89 for a topology; an error of kind `InvalidInput` says what it cannot do.
pub fn write_nmt1989(path: &Path, topology: &Topology) -> io::Result<()> {
    let model = nmt1989::Model::of(topology).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    write(path, |book| model.write(book))
}

fn write(path: &Path, fill: impl FnOnce(&mut Workbook) -> Result<(), XlsxError>) -> io::Result<()> {
    let place = Place::reserve(path)?;
    let mut book = Workbook::new();
    fill(&mut book).map_err(io::Error::other)?;
    place.write(book.save_to_buffer().map_err(io::Error::other)?)
}
