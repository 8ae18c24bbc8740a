//! Tables as kubectl prints them: three spaces between columns, nothing after the last.

use std::fmt::Write;

const GAP: usize = 3;

/// A table that may go on for ever: its columns are as wide as the widest cell so far.
#[derive(Default)]
pub(crate) struct Table {
    widths: Vec<usize>,
}

/// One line, and how a terminal is to show it.
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    /// An escape sequence; none for what is not to stand out.
    pub(crate) colour: Option<&'static str>,
}

const PLAIN: &str = "\x1b[0m";

impl Row {
    pub(crate) fn new(cells: Vec<String>) -> Self {
        Self { cells, colour: None }
    }
}

impl Table {
    /// Rows that are aligned with each other and with all before.
    pub(crate) fn print(&mut self, rows: &[Row]) -> String {
        for row in rows {
            self.widths.resize(self.widths.len().max(row.cells.len()), 0);
            for (width, cell) in self.widths.iter_mut().zip(&row.cells) {
                *width = (*width).max(cell.chars().count());
            }
        }
        rows.iter().map(|row| self.line(row)).collect()
    }

    fn line(&self, row: &Row) -> String {
        let mut line = String::new();
        for (cell, width) in row.cells.iter().zip(&self.widths) {
            let width = width + GAP;
            write!(line, "{cell:width$}").expect("a text takes what is written");
        }
        let line = line.trim_end();
        match row.colour {
            None => format!("{line}\n"),
            Some(colour) => format!("{colour}{line}{PLAIN}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cells: &[&str]) -> Row {
        Row::new(cells.iter().map(|&it| it.to_owned()).collect())
    }

    #[test]
    fn columns_are_as_wide_as_the_widest_cell_so_far() {
        let mut table = Table::default();
        assert_eq!(
            table.print(&[row(&["NAME", "AGE"]), row(&["a", "5s"])]),
            "NAME   AGE\na      5s\n"
        );
        assert_eq!(table.print(&[row(&["longer", "5s"])]), "longer   5s\n");
        assert_eq!(table.print(&[row(&["a", "6s"])]), "a        6s\n");
        let red = Row { colour: Some("\x1b[31m"), ..row(&["a", ""]) };
        assert_eq!(table.print(&[red]), "\x1b[31ma\x1b[0m\n");
    }
}
