//! Tables as aligned text and as HTML.

use super::number::escape;

/// A table. The first `left` columns are names, aligned to the left; the others are figures, aligned to the right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    pub left: usize,
    pub head: Vec<String>,
    /// Each as long as `head`.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table from its headings and rows.
    pub fn new<H: Into<String>>(
        left: usize,
        head: impl IntoIterator<Item = H>,
        rows: impl IntoIterator<Item = Vec<String>>,
    ) -> Table {
        Table { left, head: head.into_iter().map(Into::into).collect(), rows: rows.into_iter().collect() }
    }

    /// Aligned text, at most `width` characters wide: where not all columns fit, the others follow below in further
    /// parts, each with the names and at least one column.
    pub fn to_text_within(&self, width: usize) -> String {
        let names: Vec<usize> = (0..self.left.min(self.head.len())).collect();
        let mut parts = vec![names.clone()];
        for column in names.len()..self.head.len() {
            let part = parts.last_mut().filter(|part| {
                let wider: Vec<usize> = part.iter().copied().chain([column]).collect();
                part.len() == names.len() || self.columns(&wider).width() <= width
            });
            match part {
                Some(part) => part.push(column),
                None => parts.push(names.iter().copied().chain([column]).collect()),
            }
        }
        parts.iter().map(|part| self.columns(part).to_text()).collect::<Vec<_>>().join("\n")
    }

    /// The table of these columns only.
    fn columns(&self, which: &[usize]) -> Table {
        let of = |row: &Vec<String>| which.iter().filter_map(|column| row.get(*column).cloned()).collect();
        Table { left: self.left, head: of(&self.head), rows: self.rows.iter().map(of).collect() }
    }

    /// Width of the text in characters.
    fn width(&self) -> usize {
        self.to_text().lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// Aligned text. Names equal to those of the row above are left out.
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

    /// The row without the leading names that it shares with the row above.
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
            // A rule where a name before the last one changes.
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
    fn text_is_aligned_and_repeats_no_name() {
        let expected = "  way    system      s  x floor\n  read   a        1.25      1.1\n         b<c     10.50\n  write  a           2        3\n";
        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn columns_that_do_not_fit_follow_in_parts_with_the_names() {
        let whole = table().to_text();
        assert_eq!(table().to_text_within(31), whole);
        let parts = "  way    system      s\n  read   a        1.25\n         b<c     10.50\n  write  a           2\n\n  way    system  x floor\n  read   a           1.1\n         b<c\n  write  a             3\n";
        for width in [30, 1] {
            assert_eq!(table().to_text_within(width), parts);
        }
    }

    #[test]
    fn html_is_escaped_and_grouped() {
        let html = table().to_html();
        assert!(html.contains("<td class=\"name\">b&lt;c</td><td>10.50</td>"), "{html}");
        assert_eq!(html.matches("class=\"group\"").count(), 1);
        assert_eq!(html.matches("<tr").count(), 4);
    }
}
