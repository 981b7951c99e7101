//! Tables for people: lines of text in columns, and Markdown.

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// How wide it is at least, in characters: lines that are printed one by one have nothing else to go by.
    pub width: usize,
    /// Whether it holds words, which stand on the left, or figures.
    pub is_words: bool,
}

impl Column {
    /// A column of words.
    pub const fn words(title: &'static str, width: usize) -> Column {
        Column { title, width, is_words: true }
    }

    /// A column of figures.
    pub const fn figures(title: &'static str, width: usize) -> Column {
        Column { title, width, is_words: false }
    }
}

/// Rows below the titles of their columns.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Table {
        Table { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// One more row, a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Its rows.
    pub fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// The line of titles, in columns of their own width.
    pub fn titles(&self) -> String {
        self.line(self.columns.iter().map(|column| column.title))
    }

    /// The row added last, in columns of their own width.
    pub fn last_line(&self) -> String {
        self.line(self.rows.last().into_iter().flatten().map(String::as_str))
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>) -> String {
        let cells = self.columns.iter().zip(cells).map(|(column, cell)| (column, column.width, cell));
        line("  ", " ", cells)
    }

    /// Titles and rows, each line indented by so many spaces, in columns as wide as they need.
    pub fn text(&self, indent: usize) -> String {
        let cell = |row: &[String], at: usize| row.get(at).map_or(0, |cell| cell.chars().count());
        let titles: Vec<String> = self.columns.iter().map(|column| column.title.to_owned()).collect();
        let lines = || std::iter::once(titles.as_slice()).chain(self.rows.iter().map(Vec::as_slice));
        let width = |at: usize| lines().map(|row| cell(row, at)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let columns = || self.columns.iter().zip(&widths);
        let indent = " ".repeat(indent);
        let text = |row: &[String]| {
            line(
                &indent,
                "  ",
                columns().zip(row).map(|((column, width), cell)| (column, *width, cell.as_str())),
            )
        };
        lines().map(text).collect()
    }
}

fn line<'a>(indent: &str, gap: &str, cells: impl Iterator<Item = (&'a Column, usize, &'a str)>) -> String {
    let cells = cells.map(|(column, width, cell)| match column.is_words {
        true => format!("{cell:<width$}"),
        false => format!("{cell:>width$}"),
    });
    let text = cells.collect::<Vec<_>>().join(gap);
    format!("{indent}{}\n", text.trim_end())
}

/// Names and values, a pair a line, the values below each other.
pub fn pairs<'a>(rows: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut table = Table::new([Column::words("", 0), Column::words("", 0)]);
    rows.into_iter().for_each(|(name, value)| table.row([name.to_owned(), value]));
    table.text(2).split_once('\n').map_or_else(String::new, |(_, lines)| lines.to_owned())
}

/// A table in Markdown. Cells may hold anything.
pub fn markdown(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut out = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for cells in rows {
        let cells: Vec<String> =
            cells.iter().map(|cell| cell.replace('|', "\\|").replace(['\n', '\r'], " ")).collect();
        out += &format!("| {} |\n", cells.join(" | "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new([Column::words("device", 8), Column::figures("p50", 9)]);
        table.row(["shm".into(), "1.28 µs".into()]);
        assert_eq!(table.text(1), " device      p50\n shm     1.28 µs\n");
        assert_eq!(table.titles() + &table.last_line(), "  device         p50\n  shm        1.28 µs\n");
        assert_eq!(pairs([("a", "1".into()), ("bcd", "2".into())]), "  a    1\n  bcd  2\n");
        assert_eq!(
            markdown(&["a", "b"], [vec!["x|y".into(), "z".into()]]),
            "| a | b |\n|---|---|\n| x\\|y | z |\n"
        );
    }
}
