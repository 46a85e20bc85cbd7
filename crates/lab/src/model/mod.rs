//! The network model for people: tables, curves, sensitivities, a drawing, a page, a spreadsheet,
//! and a network's first description out of a capture. What the figures are is
//! [`remora_model`]'s; nothing here computes one but the spreadsheet's formulas, which are held to it.

pub mod capture;
mod diagram;
#[cfg(test)]
mod examples;
mod input;
mod page;
pub mod study;
mod tables;
mod workbook;

pub use diagram::diagram;
pub use input::{Input, Slider, Unit, inputs};
pub use page::{Study, curves, write_page};
pub use study::{
    Choice, OUTPUTS_MAX, Output, POINTS_MAX, Point, SENSITIVE_MAX, Sensitivities, Sensitivity, at, choose, grid,
    grid_size, outputs, sensitivities, simulate, spaced, sweep,
};
pub use tables::{Doubts, Tables, sheet, tables};
pub use workbook::{Refused, Spreadsheet, write_nmt1989};

pub use super::report::number::digits;

/// The style sheet (CSS) of reports, for other pages with the same tables and figures.
pub const STYLE: &str = super::report::page::STYLE;
