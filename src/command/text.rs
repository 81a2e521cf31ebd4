//! What is printed: names that do no harm to a terminal, sizes, tables, and an output whose reader may leave.

use crate::error::{Error, Result};
use std::io::{self, IsTerminal, Write};

/// The standard output. A reader that has left (`| head`) is no error: there is nobody left to tell.
pub struct Out {
    out: io::BufWriter<io::Stdout>,
    colour: bool,
}

impl Out {
    /// The standard output, coloured if it is a terminal and nobody objects (`NO_COLOR`).
    pub fn new() -> Self {
        let is_terminal = io::stdout().is_terminal();
        let objects =
            std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
        Self { out: io::BufWriter::with_capacity(64 << 10, io::stdout()), colour: is_terminal && !objects }
    }

    /// A text in a colour of ECMA-48, such as `1;34`, where there are colours.
    pub fn painted(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        check(self.out.write_all(bytes))
    }

    /// Writes a line.
    pub fn line(&mut self, text: &str) -> Result<()> {
        check(writeln!(self.out, "{text}"))
    }

    /// Begins a new page on a terminal; elsewhere pages are apart by an empty line.
    pub fn clear(&mut self) -> Result<()> {
        if io::stdout().is_terminal() { self.bytes(b"\x1b[H\x1b[2J") } else { self.line("") }
    }

    /// Writes out what is still here.
    pub fn flush(&mut self) -> Result<()> {
        check(self.out.flush())
    }
}

fn check(written: io::Result<()>) -> Result<()> {
    match written {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => Err(unwritten(&e)),
        Ok(()) => Ok(()),
    }
}

/// The standard output is a place that cannot be written.
pub fn unwritten(e: &io::Error) -> Error {
    Error::usage(format!("cannot be written: {e}")).about("standard output")
}

/// A name for a person: what is no text, or could command a terminal, is escaped.
pub fn plain(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A number of bytes in binary units, with three digits: `528 B`, `1.21 MiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).clamp(1, 6);
    let value = bytes as f64 / (1_u64 << (10 * power)) as f64;
    let unit = UNITS.get(power as usize - 1).copied().unwrap_or("B");
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// Rows in columns as wide as their longest cell, two blanks apart; the first row is the head. Columns named in `right` are aligned
/// to the right.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width.saturating_sub(cell.chars().count()));
            match right.contains(&column) {
                true => line.extend([&pad, cell.as_str(), "  "]),
                false => line.extend([cell.as_str(), &pad, "  "]),
            }
        }
        line.trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_numfmt_has_them() {
        // `numfmt --to=iec-i`, to three digits.
        for (bytes, text) in [(0, "0 B"), (528, "528 B"), (1024, "1.00 KiB"), (1_268_776, "1.21 MiB"), (u64::MAX, "16.0 EiB")] {
            assert_eq!(size(bytes), text);
        }
    }

    #[test]
    fn names_do_no_harm() {
        assert_eq!(plain("é\x1b[2J\n".as_bytes()), "é\\u{1b}[2J\\n");
        assert_eq!(plain(b"a\xffb"), "a\\xffb");
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "5".to_owned()]];
        assert_eq!(table(&rows, &[1]), ["a     10", "long   5"]);
    }
}
