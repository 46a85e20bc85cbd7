//! The network model for people: tables, curves, sensitivities, a drawing, a page, a spreadsheet,
//! and a network's first description out of a capture. What the figures are is
//! [`remora_model`]'s; nothing here computes one but the spreadsheet's formulas, which are held to it.

pub mod capture;
mod choice;
mod diagram;
#[cfg(test)]
mod examples;
mod input;
mod page;
mod plot;
mod study;
mod tables;
mod workbook;

pub use crate::report::number::digits;
pub use choice::{Choice, choose};
pub use diagram::diagram;
pub use input::{Input, Slider, Unit, inputs};
pub use page::{Study, write_page};
pub use plot::curves;
pub use study::{
    OUTPUTS_MAX, Output, POINTS_MAX, Point, SENSITIVE_MAX, Sensitivities, Sensitivity, at, outputs, sensitivities,
    spaced, sweep,
};
pub use tables::{Doubts, Tables, sheet, tables};
pub use workbook::{Refused, Spreadsheet, write_nmt1989};

/// How reports look (CSS), for pages that show the same tables and figures.
pub const STYLE: &str = crate::report::page::STYLE;
