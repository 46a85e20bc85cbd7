//! The network model for people: tables, curves, sensitivities, a diagram, a page, a spreadsheet, and captures.
//!
//! [`remora_model`] computes all figures; the spreadsheet's formulas are tested against it. Read `input` (the
//! numbers of a topology), `study` (sweeps, sensitivities, simulations), `tables`, `diagram` and `page`; then
//! [`capture`] (a network file from a capture) and `workbook` (the spreadsheet).

mod answer;
pub mod capture;
mod diagram;
#[cfg(test)]
mod examples;
mod input;
mod page;
pub mod study;
mod tables;
mod workbook;

pub use answer::{Effort, Judged, answer, check};
pub use diagram::diagram;
pub use input::{Input, Slider, Unit, inputs};
pub use page::{Study, curves, write_page};
pub use study::{
    Choice, OUTPUTS_MAX, Output, POINTS_MAX, Point, SENSITIVE_MAX, Sensitivities, Sensitivity, at, choose, outputs,
    sensitivities, simulate, spaced, sweep,
};
pub use tables::{Doubts, Tables, sheet, tables};
pub use workbook::{Refused, Spreadsheet, write_nmt1989};

pub use super::report::number::digits;

/// The style sheet (CSS) of reports, for other pages with the same tables and figures.
pub const STYLE: &str = super::report::page::STYLE;
