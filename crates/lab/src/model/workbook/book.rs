//! A workbook before it is written: sheets of labelled rows, and the used formulas.

use std::collections::BTreeMap;

use remora_model::{Formula, Kind, Quantity, Topology, ethernet, pipeline, queue, ring, wifi};
use rust_xlsxwriter::{
    Color, DataValidation, DataValidationRule, Format, FormatAlign, FormatBorder, Workbook, Worksheet, XlsxError,
};

use super::expr::{Cond, Expr};
use crate::model::input::Unit;

/// A cell's address on its sheet, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct CellAt {
    pub(super) row: u32,
    pub(super) column: u16,
}

pub(super) fn cell_at(row: u32, column: u16) -> CellAt {
    CellAt { row, column }
}

/// Heading of the column that says which figures are outside of the range that their formula was checked for.
pub(super) const BEYOND: &str = "beyond its band";

/// Columns of labels, units and the first value.
const LABEL: u16 = 0;
const UNIT: u16 = 1;
pub(super) const VALUE: u16 = 2;
/// On the first sheet: the inputs' owners, then the names of results.
pub(super) const ABOUT: u16 = VALUE + 1;
pub(super) const RESULTS: u16 = VALUE + 2;
pub(super) const FIRST: u32 = 4;
const COLUMNS: u16 = 200;

pub(super) const CELLS_MAX: usize = 400_000;
/// The longest formula that spreadsheet programs accept, in characters.
const FORMULA_MAX: usize = 8192;

enum Content {
    Title(String),
    Head(String),
    Right(String),
    Text(String),
    Soft(String),
    Aside(String),
    Input(f64, Unit),
    Number(Expr),
    /// A number, or the text if it has no value.
    Shown(Expr, &'static str),
    /// The texts whose conditions hold.
    Told(Vec<(Cond, String)>),
}

struct Sheet {
    name: String,
    cells: BTreeMap<CellAt, Content>,
}

#[derive(Default)]
pub(super) struct Book {
    sheets: Vec<Sheet>,
    /// Cells of all sheets; those beyond [`CELLS_MAX`] are only counted.
    cells: usize,
}

/// Rows of a sheet with the same columns for different elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    sheet: usize,
    pub(super) row: u32,
}

impl Book {
    /// Adds a sheet. Names are cut to the length that spreadsheets accept and must differ.
    pub(super) fn sheet(&mut self, name: &str) -> usize {
        let plain = name.chars().map(|c| if "[]:*?/\\'".contains(c) || c.is_control() { '_' } else { c });
        self.sheets.push(Sheet { name: plain.take(31).collect(), cells: BTreeMap::new() });
        self.sheets.len() - 1
    }

    fn set(&mut self, sheet: usize, at: CellAt, content: Content) {
        let Some(sheet) = self.sheets.get_mut(sheet) else { return };
        if self.cells < CELLS_MAX || sheet.cells.contains_key(&at) {
            self.cells += usize::from(sheet.cells.insert(at, content).is_none());
        } else {
            self.cells += 1;
        }
    }

    pub(super) fn title(&mut self, sheet: usize, at: CellAt, text: impl Into<String>) {
        self.set(sheet, at, Content::Title(text.into()));
    }

    pub(super) fn head(&mut self, sheet: usize, at: CellAt, text: impl Into<String>) {
        self.set(sheet, at, Content::Head(text.into()));
    }

    pub(super) fn right(&mut self, sheet: usize, at: CellAt, text: impl Into<String>) {
        self.set(sheet, at, Content::Right(text.into()));
    }

    pub(super) fn aside(&mut self, sheet: usize, at: CellAt, text: impl Into<String>) {
        self.set(sheet, at, Content::Aside(text.into()));
    }

    pub(super) fn text(&mut self, sheet: usize, at: CellAt, text: impl Into<String>) {
        self.set(sheet, at, Content::Text(text.into()));
    }

    pub(super) fn soft(&mut self, sheet: usize, at: CellAt, text: impl Into<String>) {
        self.set(sheet, at, Content::Soft(text.into()));
    }

    pub(super) fn input(&mut self, sheet: usize, at: CellAt, value: f64, unit: Unit) -> Expr {
        self.set(sheet, at, Content::Input(value, unit));
        Expr::cell(sheet, &name(at.row, at.column), value)
    }

    /// A result, or `instead` if it has no value.
    pub(super) fn shown(&mut self, sheet: usize, at: CellAt, result: Expr, instead: &'static str) {
        self.set(sheet, at, Content::Shown(result, instead));
    }

    pub(super) fn told(&mut self, sheet: usize, at: CellAt, all: Vec<(Cond, String)>) {
        self.set(sheet, at, Content::Told(all));
    }

    /// The first free row of a sheet.
    pub(super) fn below(&self, sheet: usize) -> u32 {
        let cells = self.sheets.get(sheet).map(|s| &s.cells);
        cells.and_then(BTreeMap::last_key_value).map_or(0, |(at, _)| at.row + 1)
    }

    /// Adds a block of rows below a title, with a heading for each column.
    pub(super) fn block(&mut self, sheet: usize, title: &str, heads: &[String]) -> Block {
        let row = self.below(sheet) + 1;
        self.head(sheet, cell_at(row, LABEL), title);
        self.head(sheet, cell_at(row, UNIT), "unit");
        for (column, head) in (VALUE..).zip(heads) {
            self.right(sheet, cell_at(row, column), head);
        }
        Block { sheet, row: row + 1 }
    }

    /// Column `n` of a block, to be filled from its first row.
    pub(super) fn pad(&mut self, block: Block, column: usize) -> Pad<'_> {
        Pad { book: self, block, row: block.row, column: VALUE + column.min(4096) as u16 }
    }

    /// Cells of all sheets, including those beyond the limit.
    pub(super) fn cells(&self) -> usize {
        self.cells
    }

    /// The sheet of a formula beyond the length limit.
    pub(super) fn too_long(&self) -> Option<&str> {
        let names = self.names();
        let long = |i: usize, c: &Content| c.formula(i, &names).is_some_and(|(text, _)| text.len() > FORMULA_MAX);
        let found = self.sheets.iter().enumerate().find(|(i, s)| s.cells.values().any(|c| long(*i, c)));
        found.map(|(_, s)| s.name.as_str())
    }

    fn names(&self) -> Vec<String> {
        self.sheets.iter().map(|s| s.name.clone()).collect()
    }

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
                content.write(page, *at, &styles, i, &names)?;
            }
        }
        Ok(())
    }
}

impl Content {
    /// Text and value of a formula; `None` if it has no value.
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
                // An empty cached value would show as 0.
                let told = if told.is_empty() { " ".to_owned() } else { told };
                (!all.is_empty()).then(|| (format!("={}", parts.collect::<Vec<_>>().join("&")), told))
            }
            _ => None,
        }
    }

    fn write(
        &self,
        page: &mut Worksheet,
        at: CellAt,
        styles: &Styles,
        sheet: usize,
        names: &[String],
    ) -> Result<(), XlsxError> {
        let CellAt { row, column } = at;
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
                page.write_formula_with_format(
                    row,
                    column,
                    rust_xlsxwriter::Formula::new(text).set_result(value),
                    style,
                )?
            }
        };
        Ok(())
    }
}

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

/// A column of a block, filled from the top. All columns of a block have the same rows.
pub(super) struct Pad<'a> {
    book: &'a mut Book,
    block: Block,
    pub(super) row: u32,
    column: u16,
}

impl Pad<'_> {
    /// Fills the next cell and returns a reference to it, or the number itself if no input changes it.
    pub(super) fn put(&mut self, label: &str, unit: &str, e: impl Into<Expr>) -> Expr {
        let (e, sheet, row) = (e.into(), self.block.sheet, self.row);
        self.row += 1;
        self.book.text(sheet, cell_at(row, LABEL), label);
        self.book.text(sheet, cell_at(row, UNIT), unit);
        let reference = Expr::cell(sheet, &name(row, self.column), e.value());
        let literal = e.is_literal();
        let kept = if literal { e.clone() } else { reference };
        self.book.set(sheet, cell_at(row, self.column), Content::Number(e));
        kept
    }
}

pub(super) struct Styles {
    pub(super) title: Format,
    pub(super) head: Format,
    pub(super) input: Format,
    pub(super) plain: Format,
    pub(super) percent: Format,
    pub(super) soft: Format,
    pub(super) aside: Format,
    pub(super) right: Format,
}

impl Styles {
    pub(super) fn new() -> Styles {
        let digits = || Format::new().set_num_format("General");
        let head = Format::new().set_bold().set_border_bottom(FormatBorder::Thin).set_text_wrap();
        let soft = Format::new().set_italic().set_font_color(Color::RGB(0x59_59_59));
        Styles {
            aside: soft.clone().set_indent(1),
            right: head.clone().set_align(FormatAlign::Right),
            title: Format::new().set_bold().set_font_size(14),
            head,
            input: digits().set_background_color(Color::RGB(0xff_f2_cc)),
            plain: digits(),
            percent: Format::new().set_num_format("0.00%"),
            soft,
        }
    }
}

/// A formula with its current value. The spreadsheet computes a value that is not a number.
pub(super) fn formula(
    sheet: &mut Worksheet,
    at: CellAt,
    text: &str,
    value: Option<f64>,
    format: &Format,
) -> Result<(), XlsxError> {
    let value = value.filter(|v| v.is_finite()).map_or_else(|| "no end".to_owned(), |v| v.to_string());
    let result = rust_xlsxwriter::Formula::new(text).set_result(value);
    sheet.write_formula_with_format(at.row, at.column, result, format)?;
    Ok(())
}

/// A cell's name, as in `B12`, from row and column counted from 0.
pub(super) fn name(row: u32, column: u16) -> String {
    let mut letters = String::new();
    let mut rest = u32::from(column) + 1;
    while rest > 0 {
        let digit = (rest - 1) % 26;
        letters.insert(0, char::from(b'A' + digit as u8));
        rest = (rest - 1) / 26;
    }
    format!("{letters}{}", row + 1)
}

/// An absolute reference, as in `$B$12`.
pub(super) fn fixed(row: u32, column: u16) -> String {
    let plain = name(row, column);
    let split = plain.find(|c: char| c.is_ascii_digit()).unwrap_or(plain.len());
    format!("${}${}", &plain[..split], &plain[split..])
}

pub(super) fn write(book: &mut Book, sheet: usize, topology: &Topology) {
    book.title(sheet, cell_at(0, 0), "Formulas");
    for (column, head) in [(0, "formula"), (2, "holds for"), (8, "source")] {
        book.head(sheet, cell_at(2, column), head);
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
        book.text(sheet, cell_at(row, 0), name);
        book.soft(sheet, cell_at(row, 8), source);
        for band in &bands {
            book.text(sheet, cell_at(row, 2), band.as_str());
            row += 1;
        }
        row += u32::from(bands.is_empty());
    }
    let others = "CSMA/CD delay also holds in other bands: little traffic, much traffic of stations that are alike. \
                  What remora model FILE says decides.";
    book.soft(sheet, cell_at(row + 1, 0), others);
}

/// Upper end of a formula's range in one quantity.
pub(super) fn high<I, O>(formula: &'static Formula<I, O>, quantity: Quantity) -> f64 {
    let band = formula.bands.iter().find(|band| band.quantity == quantity);
    band.map_or(f64::MAX, |band| band.high)
}

fn note<I, O>(formula: &'static Formula<I, O>) -> (&'static str, &'static str, Vec<String>) {
    let bands = formula.bands.iter().map(|b| format!("{}: {} to {}", b.quantity, b.low, b.high));
    (formula.name, formula.source, bands.collect())
}

pub(super) struct ResultTable<'a> {
    pub(super) book: &'a mut Book,
    pub(super) sheet: usize,
    pub(super) row: u32,
}

impl ResultTable<'_> {
    /// Headings of the following rows, below an empty row.
    pub(super) fn heads(&mut self, heads: &[&str]) {
        self.row += u32::from(self.row > FIRST);
        for (column, head) in (RESULTS..).zip(heads) {
            match *head {
                "part" | "by" | BEYOND => self.book.head(self.sheet, cell_at(self.row, column), format!(" {head}")),
                _ if column > RESULTS => self.book.right(self.sheet, cell_at(self.row, column), *head),
                _ => self.book.head(self.sheet, cell_at(self.row, column), *head),
            }
        }
        self.row += 1;
    }

    /// Writes a name and its results, each with the text for no value. Returns the row.
    pub(super) fn row(&mut self, name: &str, results: &[(Expr, &'static str)]) -> u32 {
        self.book.text(self.sheet, cell_at(self.row, RESULTS), name);
        for (column, (result, none)) in (RESULTS + 1..).zip(results) {
            self.book.shown(self.sheet, cell_at(self.row, column), result.clone(), none);
        }
        self.row += 1;
        self.row - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cell_names_are_those_of_spreadsheets() {
        for ((row, column), text) in
            [((0, 0), "A1"), ((11, 1), "B12"), ((9, 25), "Z10"), ((0, 26), "AA1"), ((0, 701), "ZZ1")]
        {
            assert_eq!(name(row, column), text);
        }
        assert_eq!(fixed(11, 27), "$AB$12");
    }
}
