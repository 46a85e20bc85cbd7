//! A table for people, on a terminal or a page.

use super::page::escape;

/// Columns with a heading each. Those before `left` are names and stand to the left, the others
/// are figures and stand to the right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    /// How many columns are names.
    pub left: usize,
    /// The headings.
    pub head: Vec<String>,
    /// The rows, each as long as `head`.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Aligned text. A name that stands in the row above is not repeated.
    pub fn to_text(&self) -> String {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| all().filter_map(|r| r.get(column)).map(|t| t.chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let mut out = self.line(&self.head, &widths);
        let mut above: &[String] = &[];
        for row in &self.rows {
            out += &self.line(&self.shortened(row, above), &widths);
            above = row;
        }
        out
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, (text, width)) in row.iter().zip(widths).enumerate() {
            let cell = if column < self.left { format!("  {text:<width$}") } else { format!("  {text:>width$}") };
            line += &cell;
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    }

    /// The row without the leading names that it shares with the one above.
    fn shortened(&self, row: &[String], above: &[String]) -> Vec<String> {
        let names = self.left.saturating_sub(1);
        let same = row.iter().zip(above).take(names).take_while(|(a, b)| a == b).count();
        row.iter().enumerate().map(|(i, text)| if i < same { String::new() } else { text.clone() }).collect()
    }

    /// An HTML table that may be scrolled sideways.
    pub(crate) fn to_html(&self) -> String {
        let cells = |tag: &str, row: &[String]| -> String {
            let class = |column: usize| if column < self.left { " class=\"name\"" } else { "" };
            row.iter().enumerate().map(|(i, text)| format!("<{tag}{}>{}</{tag}>", class(i), escape(text))).collect()
        };
        let mut rows = format!("<tr>{}</tr>", cells("th", &self.head));
        let mut above: &[String] = &[];
        for row in &self.rows {
            // A line between groups: where something changes before the last name.
            let group = !above.is_empty() && self.left > 1 && row.get(..self.left - 1) != above.get(..self.left - 1);
            let class = if group { " class=\"group\"" } else { "" };
            rows += &format!("<tr{class}>{}</tr>", cells("td", &self.shortened(row, above)));
            above = row;
        }
        format!("<div class=\"wrap\"><table>{rows}</table></div>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let row = |texts: [&str; 4]| texts.map(str::to_owned).to_vec();
        Table {
            left: 2,
            head: row(["way", "system", "s", "x floor"]),
            rows: vec![
                row(["read", "a", "1.25", "1.1"]),
                row(["read", "b<c", "10.50", ""]),
                row(["write", "a", "2", "3"]),
            ],
        }
    }

    #[test]
    fn text_is_aligned_and_does_not_repeat_itself() {
        let expected = "  way    system      s  x floor\n  read   a        1.25      1.1\n         b<c     10.50\n  write  a           2        3\n";
        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn html_is_escaped_and_grouped() {
        let html = table().to_html();
        assert!(html.contains("<td class=\"name\">b&lt;c</td><td>10.50</td>"), "{html}");
        assert_eq!(html.matches("class=\"group\"").count(), 1);
        assert_eq!(html.matches("<tr").count(), 4);
    }
}
