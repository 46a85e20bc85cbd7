//! Cells: inputs in yellow, formulas with the value that they have now.

use rust_xlsxwriter::{Color, Format, FormatAlign, FormatBorder, Formula, Worksheet, XlsxError};

/// How cells look.
pub(super) struct Styles {
    pub(super) title: Format,
    pub(super) head: Format,
    pub(super) input: Format,
    pub(super) plain: Format,
    pub(super) percent: Format,
    pub(super) soft: Format,
    /// Words beside a number.
    pub(super) aside: Format,
    /// The head of a column of numbers.
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

/// A formula with the value that it has with the inputs as they are; what is no number is left for
/// the spreadsheet to say.
pub(super) fn formula(
    sheet: &mut Worksheet,
    (row, column): (u32, u16),
    text: &str,
    value: Option<f64>,
    format: &Format,
) -> Result<(), XlsxError> {
    let value = value.filter(|v| v.is_finite()).map_or_else(|| "no end".to_owned(), |v| v.to_string());
    sheet.write_formula_with_format(row, column, Formula::new(text).set_result(value), format)?;
    Ok(())
}

/// A cell as formulas call it, as in `B12`, from a row and a column that count from 0.
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

/// The same fixed: `$B$12`.
pub(super) fn fixed(row: u32, column: u16) -> String {
    let plain = name(row, column);
    let split = plain.find(|c: char| c.is_ascii_digit()).unwrap_or(plain.len());
    format!("${}${}", &plain[..split], &plain[split..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_their_names() {
        for ((row, column), text) in
            [((0, 0), "A1"), ((11, 1), "B12"), ((9, 25), "Z10"), ((0, 26), "AA1"), ((0, 701), "ZZ1")]
        {
            assert_eq!(name(row, column), text);
        }
        assert_eq!(fixed(11, 27), "$AB$12");
    }
}
