//! A workbook before it is written: sheets of labelled rows, whose columns are what a formula is worked out
//! for (ports, flows, rounds).

use std::collections::BTreeMap;

use rust_xlsxwriter::{DataValidation, DataValidationRule, Formula, Workbook, Worksheet, XlsxError};

use super::cells::{Styles, name};
use super::expr::{Cond, Expr};
use crate::model::Unit;

/// Columns of labels, units and the first value.
const LABEL: u16 = 0;
const UNIT: u16 = 1;
pub(super) const VALUE: u16 = 2;
/// On the first sheet: what inputs belong to, then the results' names.
pub(super) const ABOUT: u16 = VALUE + 1;
pub(super) const RESULTS: u16 = VALUE + 2;
/// Its first row below the notes.
pub(super) const FIRST: u32 = 4;
/// Columns that are made wide enough for numbers.
const COLUMNS: u16 = 200;

/// Cells that a workbook holds at most.
pub(super) const CELLS_MAX: usize = 400_000;
/// Characters of a formula that spreadsheet programs take.
const FORMULA_MAX: usize = 8192;

/// What stands in a cell.
enum Content {
    Title(String),
    Head(String),
    /// The head of a column of numbers.
    Right(String),
    Text(String),
    Soft(String),
    /// Words beside a number.
    Aside(String),
    Input(f64, Unit),
    Number(Expr),
    /// A number, or what is said where it has none.
    Shown(Expr, &'static str),
    /// What holds of these is told, one behind the other.
    Told(Vec<(Cond, String)>),
}

struct Sheet {
    name: String,
    cells: BTreeMap<(u32, u16), Content>,
}

/// Sheets of cells.
#[derive(Default)]
pub(super) struct Book {
    sheets: Vec<Sheet>,
    /// Of all sheets; beyond [`CELLS_MAX`] they are only counted.
    cells: usize,
}

/// Rows on a sheet whose columns are the same for different things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    sheet: usize,
    row: u32,
}

impl Book {
    /// A new sheet at the end; names are cut to what spreadsheets take and must differ.
    pub(super) fn sheet(&mut self, name: &str) -> usize {
        let plain = name.chars().map(|c| if "[]:*?/\\'".contains(c) || c.is_control() { '_' } else { c });
        self.sheets.push(Sheet { name: plain.take(31).collect(), cells: BTreeMap::new() });
        self.sheets.len() - 1
    }

    fn set(&mut self, sheet: usize, at: (u32, u16), content: Content) {
        let Some(sheet) = self.sheets.get_mut(sheet) else { return };
        if self.cells < CELLS_MAX || sheet.cells.contains_key(&at) {
            self.cells += usize::from(sheet.cells.insert(at, content).is_none());
        } else {
            self.cells += 1;
        }
    }

    pub(super) fn title(&mut self, sheet: usize, at: (u32, u16), text: impl Into<String>) {
        self.set(sheet, at, Content::Title(text.into()));
    }

    pub(super) fn head(&mut self, sheet: usize, at: (u32, u16), text: impl Into<String>) {
        self.set(sheet, at, Content::Head(text.into()));
    }

    pub(super) fn right(&mut self, sheet: usize, at: (u32, u16), text: impl Into<String>) {
        self.set(sheet, at, Content::Right(text.into()));
    }

    pub(super) fn aside(&mut self, sheet: usize, at: (u32, u16), text: impl Into<String>) {
        self.set(sheet, at, Content::Aside(text.into()));
    }

    pub(super) fn text(&mut self, sheet: usize, at: (u32, u16), text: impl Into<String>) {
        self.set(sheet, at, Content::Text(text.into()));
    }

    pub(super) fn soft(&mut self, sheet: usize, at: (u32, u16), text: impl Into<String>) {
        self.set(sheet, at, Content::Soft(text.into()));
    }

    /// A yellow cell.
    pub(super) fn input(&mut self, sheet: usize, at: (u32, u16), value: f64, unit: Unit) -> Expr {
        self.set(sheet, at, Content::Input(value, unit));
        Expr::cell(sheet, &name(at.0, at.1), value)
    }

    /// A result, or `instead` where it has no value.
    pub(super) fn shown(&mut self, sheet: usize, at: (u32, u16), result: Expr, instead: &'static str) {
        self.set(sheet, at, Content::Shown(result, instead));
    }

    /// Which of these hold.
    pub(super) fn told(&mut self, sheet: usize, at: (u32, u16), all: Vec<(Cond, String)>) {
        self.set(sheet, at, Content::Told(all));
    }

    /// The first row of a sheet below all that it has.
    pub(super) fn below(&self, sheet: usize) -> u32 {
        let cells = self.sheets.get(sheet).map(|s| &s.cells);
        cells.and_then(BTreeMap::last_key_value).map_or(0, |((row, _), _)| row + 1)
    }

    /// Rows below all others under a title, with a head for each column.
    pub(super) fn block(&mut self, sheet: usize, title: &str, heads: &[String]) -> Block {
        let row = self.below(sheet) + 1;
        self.head(sheet, (row, LABEL), title);
        self.head(sheet, (row, UNIT), "unit");
        for (column, head) in (VALUE..).zip(heads) {
            self.right(sheet, (row, column), head);
        }
        Block { sheet, row: row + 1 }
    }

    /// The column of a block, from 0, to be filled from its first row.
    pub(super) fn pad(&mut self, block: Block, column: usize) -> Pad<'_> {
        Pad { book: self, block, row: block.row, column: VALUE + column.min(4096) as u16 }
    }

    /// Cells of all sheets, those that there is no room for too.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// The sheet of a formula that is longer than spreadsheet programs take.
    pub(super) fn too_long(&self) -> Option<&str> {
        let names = self.names();
        let long = |i: usize, c: &Content| c.formula(i, &names).is_some_and(|(text, _)| text.len() > FORMULA_MAX);
        let found = self.sheets.iter().enumerate().find(|(i, s)| s.cells.values().any(|c| long(*i, c)));
        found.map(|(_, s)| s.name.as_str())
    }

    fn names(&self) -> Vec<String> {
        self.sheets.iter().map(|s| s.name.clone()).collect()
    }

    /// Puts all sheets into `book`.
    pub(super) fn write(&self, book: &mut Workbook) -> Result<(), XlsxError> {
        let (styles, names) = (Styles::new(), self.names());
        for (i, sheet) in self.sheets.iter().enumerate() {
            let page = book.add_worksheet().set_name(&sheet.name)?;
            page.set_column_width(LABEL, 44.0)?;
            page.set_column_width(UNIT, 9.0)?;
            page.set_column_range_width(VALUE, COLUMNS, 15.0)?;
            if i == 0 {
                page.set_column_width(ABOUT, 24.0)?.set_column_width(RESULTS, 30.0)?;
                page.set_freeze_panes(FIRST, 0)?.set_landscape().set_print_fit_to_pages(1, 0);
            } else {
                page.set_freeze_panes(0, VALUE)?;
            }
            for (at, content) in &sheet.cells {
                content.write(page, *at, &styles, (i, &names))?;
            }
        }
        Ok(())
    }
}

impl Content {
    /// Text and value of a formula; nothing of what is none.
    fn formula(&self, sheet: usize, names: &[String]) -> Option<(String, String)> {
        let number = |e: &Expr, none: &str| if e.value().is_nan() { none.to_owned() } else { e.value().to_string() };
        match self {
            Content::Number(e) => Some((format!("={}", e.text_on(sheet, names)), number(e, "#N/A"))),
            Content::Shown(e, none) => {
                Some((format!("=IFERROR({},\"{none}\")", e.text_on(sheet, names)), number(e, none)))
            }
            Content::Told(all) => {
                let parts = all.iter().map(|(cond, text)| {
                    format!("IFERROR(IF({},\"{}; \",\"\"),\"\")", cond.text_on(sheet, names), text.replace('"', "\"\""))
                });
                let told = all.iter().filter(|(cond, _)| cond.value() == Some(true));
                let told: String = told.map(|(_, text)| format!("{text}; ")).collect();
                // An empty value would be shown as 0.
                let told = if told.is_empty() { " ".to_owned() } else { told };
                (!all.is_empty()).then(|| (format!("={}", parts.collect::<Vec<_>>().join("&")), told))
            }
            _ => None,
        }
    }

    fn write(
        &self,
        page: &mut Worksheet,
        at @ (row, column): (u32, u16),
        styles: &Styles,
        (sheet, names): (usize, &[String]),
    ) -> Result<(), XlsxError> {
        match self {
            Content::Title(text) => page.write_with_format(row, column, text, &styles.title)?,
            Content::Head(text) => page.write_with_format(row, column, text, &styles.head)?,
            Content::Right(text) => page.write_with_format(row, column, text, &styles.right)?,
            Content::Aside(text) => page.write_with_format(row, column, text, &styles.aside)?,
            Content::Text(text) => page.write(row, column, text)?,
            Content::Soft(text) => page.write_with_format(row, column, text, &styles.soft)?,
            Content::Input(value, unit) => {
                page.add_data_validation(row, column, row, column, &range(*unit))?;
                page.write_with_format(row, column, *value, &styles.input)?
            }
            Content::Number(_) | Content::Shown(..) | Content::Told(_) => {
                let Some((text, value)) = self.formula(sheet, names) else { return Ok(()) };
                let style = if matches!(self, Content::Told(_)) { &styles.aside } else { &styles.plain };
                page.write_formula_with_format(at.0, at.1, Formula::new(text).set_result(value), style)?
            }
        };
        Ok(())
    }
}

/// What may be entered for an input.
fn range(unit: Unit) -> DataValidation {
    let whole = |low| DataValidation::new().allow_whole_number(DataValidationRule::GreaterThanOrEqualTo(low));
    match unit {
        Unit::Count | Unit::Bytes => whole(1),
        Unit::BitsPerSecond => {
            DataValidation::new().allow_decimal_number(DataValidationRule::GreaterThanOrEqualTo(1.0))
        }
        Unit::Number | Unit::Seconds => {
            DataValidation::new().allow_decimal_number(DataValidationRule::GreaterThanOrEqualTo(0.0))
        }
    }
}

/// A column that is filled from above; the rows of all columns of a block are the same.
pub(super) struct Pad<'a> {
    book: &'a mut Book,
    block: Block,
    row: u32,
    column: u16,
}

impl Pad<'_> {
    /// The next cell; what stands in it by name, or the number itself if no input changes it.
    pub(super) fn put(&mut self, label: &str, unit: &str, e: impl Into<Expr>) -> Expr {
        let (e, sheet, row) = (e.into(), self.block.sheet, self.row);
        self.row += 1;
        self.book.text(sheet, (row, LABEL), label);
        self.book.text(sheet, (row, UNIT), unit);
        let reference = Expr::cell(sheet, &name(row, self.column), e.value());
        let literal = e.is_literal();
        let kept = if literal { e.clone() } else { reference };
        self.book.set(sheet, (row, self.column), Content::Number(e));
        kept
    }
}
