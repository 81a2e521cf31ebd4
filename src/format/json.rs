//! JSON documents as writers of array metadata really write them.
//!
//! Beyond RFC 8259 are read: a byte order mark; the bare numbers `NaN`, `Infinity` and `-Infinity` (Python's `json`), also in
//! the spelling of C (`nan`, `inf`); `\'` inside strings, which netcdf-c 4.8 writes for a quotation mark. Numbers keep their
//! text, so that nothing is rounded. Half of a surrogate pair, as Python's `json` writes it, is kept and written again; no text can hold
//! one, so that a mark stands for it (see [`limits::HALF`]). A name given twice counts the last time. Size and depth are bounded;
//! trailing text is an error.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod outline;

use crate::error::{Error, Result};
use crate::limits;
use serde_json::{Map, Number, Value};

pub use outline::{Outline, outline};

/// Deepest nesting of lists and objects.
pub const DEPTH: usize = 128;

const ORDER_MARK: char = '\u{feff}';

/// The number that is not one, as Python spells it in JSON.
pub const NAN: &str = "NaN";
/// Positive infinity, as Python spells it in JSON.
pub const INFINITY: &str = "Infinity";
/// Negative infinity, as Python spells it in JSON.
pub const NEGATIVE_INFINITY: &str = "-Infinity";

/// How numbers that JSON does not have are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonFinite {
    /// As bare words, as zarr-python writes the attributes of Zarr v2.
    Token,
    /// As strings, which every parser reads.
    Text,
}

/// Parses a document. Numbers that are not finite become numbers whose text is [`NAN`], [`INFINITY`] or
/// [`NEGATIVE_INFINITY`].
///
/// # Errors
/// [`crate::error::Kind::TooBig`] over [`limits::DOCUMENT`] or [`DEPTH`], [`crate::error::Kind::Corrupt`] with the offset
/// otherwise.
pub fn parse(bytes: &[u8]) -> Result<Value> {
    whole(bytes, |parser| parser.value(DEPTH))
}

/// Reads a document by `read`, which is to read all of it.
fn whole<'a, T>(bytes: &'a [u8], read: impl FnOnce(&mut Parser<'a>) -> Result<T>) -> Result<T> {
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > limits::DOCUMENT {
        return Err(Error::too_big(format!("a document of {size} bytes; at most {} are read", limits::DOCUMENT)));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| Error::corrupt(format!("not UTF-8 at byte {}", e.valid_up_to())))?;
    let at = if text.starts_with(ORDER_MARK) { ORDER_MARK.len_utf8() } else { 0 };
    let mut parser = Parser { text, at };
    parser.space();
    if parser.peek().is_none() {
        return Err(Error::corrupt("an empty document"));
    }
    let value = read(&mut parser)?;
    parser.space();
    match parser.peek() {
        None => Ok(value),
        Some(_) => Err(parser.fault("text after the end of the document")),
    }
}

/// Parses a document that must be an object.
///
/// # Errors
/// As [`parse`], and [`crate::error::Kind::Corrupt`] for anything but an object.
pub fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>> {
    object(parse(bytes)?)
}

/// The members of a value that must be an object.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for anything else.
pub fn object(value: Value) -> Result<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(Error::corrupt(format!("{} where an object is expected", kind(&other)))),
    }
}

/// Writes a document, indented, with a newline at its end.
pub fn render(value: &Value, non_finite: NonFinite) -> Vec<u8> {
    let text = match non_finite {
        NonFinite::Token => format!("{value:#}\n"),
        NonFinite::Text => format!("{:#}\n", finite(value)),
    };
    restored(text).into_bytes()
}

/// Writes a document for the daemon itself, which nobody else reads.
pub fn compact(value: &Value) -> Vec<u8> {
    restored(value.to_string()).into_bytes()
}

/// Begins what stands for a character that a text cannot hold, and for itself.
const MARK: char = '\u{fdd0}';
/// What follows it: from here on the halves of surrogate pairs in their order, and then the mark itself.
const HALVES: u32 = 0x10_f000;
const FIRST_HALF: u32 = 0xd800;
const ITSELF: u32 = 0x800;

/// Whether a parsed text has characters that no text can hold.
pub fn has_halves(text: &str) -> bool {
    text.contains(MARK)
}

/// Written JSON with the escapes for what its texts could not hold.
pub fn restored(text: String) -> String {
    if !has_halves(&text) {
        return text;
    }
    let mut out = String::with_capacity(text.len().saturating_mul(2));
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let half = rest.peek().and_then(|&next| u32::from(next).checked_sub(HALVES)).filter(|half| c == MARK && *half <= ITSELF);
        match half {
            None => out.push(c),
            Some(half) => {
                rest.next();
                if half == ITSELF {
                    out.push(MARK);
                } else {
                    out.push_str(&format!("\\u{:04x}", FIRST_HALF.saturating_add(half)));
                }
            }
        }
    }
    out
}

/// What a person calls this kind of value.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as it is cited in a message: its text, cut where it is long.
pub fn cite(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = match value {
        Value::Array(items) if items.len() > LONGEST => format!("a list of {} items", items.len()),
        Value::Object(items) if items.len() > LONGEST => format!("an object of {} members", items.len()),
        other => restored(other.to_string()),
    };
    if text.chars().count() <= LONGEST {
        return text;
    }
    text.chars().take(LONGEST).chain("…".chars()).collect()
}

/// The same value with strings for the numbers that JSON does not have.
fn finite(value: &Value) -> Value {
    match value {
        Value::Number(n) if matches!(n.as_str(), NAN | INFINITY | NEGATIVE_INFINITY) => Value::String(n.as_str().to_owned()),
        Value::Array(items) => Value::Array(items.iter().map(finite).collect()),
        Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), finite(v))).collect()),
        other => other.clone(),
    }
}

struct Parser<'a> {
    text: &'a str,
    // Always at a character's boundary.
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    fn fault(&self, what: &str) -> Error {
        Error::corrupt(format!("not JSON: {what} at byte {}", self.at))
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.skip(1);
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        let below = self.below(depth)?;
        match self.peek() {
            Some(b'{') => self.object(below),
            Some(b'[') => self.list(below),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(_) => self.word(),
            None => Err(self.ends_early()),
        }
    }

    /// How deep what is in a value may be that may be `depth` deep.
    fn below(&self, depth: usize) -> Result<usize> {
        depth.checked_sub(1).ok_or_else(|| Error::too_big(format!("nested deeper than {DEPTH}")))
    }

    fn ends_early(&self) -> Error {
        self.fault("the document ends early")
    }

    fn object(&mut self, depth: usize) -> Result<Value> {
        let mut map = Map::new();
        self.items(b'}', "an object", |parser| {
            let name = parser.name()?;
            map.insert(name, parser.value(depth)?);
            Ok(())
        })?;
        Ok(Value::Object(map))
    }

    fn list(&mut self, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        self.items(b']', "a list", |parser| {
            items.push(parser.value(depth)?);
            Ok(())
        })?;
        Ok(Value::Array(items))
    }

    /// From what opens `what` to what closes it; `each` reads one item.
    fn items(&mut self, close: u8, what: &str, mut each: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.skip(1);
        self.space();
        if self.peek() == Some(close) {
            self.skip(1);
            return Ok(());
        }
        loop {
            self.space();
            each(self)?;
            self.space();
            match self.peek() {
                Some(b',') => self.skip(1),
                Some(found) if found == close => {
                    self.skip(1);
                    return Ok(());
                }
                _ => return Err(self.fault(&format!("{what} is not closed"))),
            }
        }
    }

    /// The name of a member, up to its value.
    fn name(&mut self) -> Result<String> {
        self.quote()?;
        let name = self.string()?;
        self.colon()?;
        Ok(name)
    }

    fn quote(&self) -> Result<()> {
        if self.peek() == Some(b'"') { Ok(()) } else { Err(self.fault("a name in quotation marks is missing")) }
    }

    fn colon(&mut self) -> Result<()> {
        self.space();
        if self.peek() != Some(b':') {
            return Err(self.fault("a colon is missing"));
        }
        self.skip(1);
        self.space();
        Ok(())
    }

    fn string(&mut self) -> Result<String> {
        self.skip(1);
        let mut out = String::new();
        loop {
            let (text, ends) = self.plain()?;
            match has_halves(text) {
                false => out.push_str(text),
                true => text.chars().for_each(|c| push(&mut out, u32::from(c))),
            }
            if ends {
                return Ok(out);
            }
            push(&mut out, self.escape()?);
        }
    }

    /// The text of a string up to its next escape, which follows, or to its end.
    fn plain(&mut self) -> Result<(&'a str, bool)> {
        let rest = self.rest();
        let stop = rest.bytes().enumerate().find(|(_, b)| matches!(b, b'"' | b'\\'));
        let Some((at, found)) = stop else { return Err(self.fault("a string is not closed")) };
        self.skip(at.saturating_add(1));
        Ok((rest.get(..at).unwrap_or(""), found == b'"'))
    }

    fn escape(&mut self) -> Result<u32> {
        let escaped = match self.peek() {
            Some(b'"' | b'\'') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.skip(1);
                return self.code_point();
            }
            _ => return Err(self.fault("an unknown escape")),
        };
        self.skip(1);
        Ok(u32::from(escaped))
    }

    /// A character, or half of a surrogate pair where the other half does not follow.
    fn code_point(&mut self) -> Result<u32> {
        let first = self.hex4()?;
        if !(FIRST_HALF..0xdc00).contains(&first) || !self.rest().starts_with("\\u") {
            return Ok(first);
        }
        let after_first = self.at;
        self.skip(2);
        let second = self.hex4()?;
        if !(0xdc00..0xe000).contains(&second) {
            self.at = after_first;
            return Ok(first);
        }
        Ok(0x1_0000_u32.saturating_add((first & 0x3ff) << 10 | (second & 0x3ff)))
    }

    fn hex4(&mut self) -> Result<u32> {
        let digits = self.rest().get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = digits.and_then(|d| u32::from_str_radix(d, 16).ok()).ok_or_else(|| self.fault("a broken \\u escape"))?;
        self.skip(4);
        Ok(code)
    }

    fn word(&mut self) -> Result<Value> {
        Ok(match self.bare()? {
            "null" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            "NaN" | "nan" | "-nan" | "-NaN" => token(NAN),
            "Infinity" | "inf" => token(INFINITY),
            "-Infinity" | "-inf" => token(NEGATIVE_INFINITY),
            number => token(number),
        })
    }

    /// A value or number without quotation marks.
    fn bare(&mut self) -> Result<&'a str> {
        let rest = self.rest();
        let end =
            rest.bytes().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or("");
        let is_known = match word {
            "null" | "true" | "false" | "NaN" | "nan" | "-nan" | "-NaN" | "Infinity" | "inf" | "-Infinity" | "-inf" => true,
            // Parsing a number would respell it.
            _ if !word.starts_with('0') && word.bytes().all(|b| b.is_ascii_digit()) => !word.is_empty(),
            _ => word.parse::<Number>().is_ok(),
        };
        if !is_known {
            return Err(self.fault("neither a value nor a number"));
        }
        self.skip(end);
        Ok(word)
    }
}

/// Adds a character, or what stands for it.
fn push(out: &mut String, code: u32) {
    match char::from_u32(code) {
        Some(c) if c != MARK => out.push(c),
        found => {
            let half = if found.is_some() { ITSELF } else { code.wrapping_sub(FIRST_HALF) };
            out.push(MARK);
            out.extend(char::from_u32(HALVES.saturating_add(half)));
        }
    }
}

/// A number by its text; one that is not finite by its word.
pub(crate) fn token(text: &str) -> Value {
    Value::Number(Number::from_string_unchecked(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn what_writers_write_beyond_json() {
        // zarr-python 2.18.3's attributes, netcdf-c 4.8.1's escapes, GDAL's slashes.
        let value =
            parse(b"\xef\xbb\xbf{\"a\": NaN, \"b\": [-Infinity, 1e400, 9007199254741944], \"q\": \"say \\'hi\\' \\\\ there\"}")
                .unwrap();
        assert_eq!(value["q"], "say \"hi\" \\ there");
        assert_eq!(value["a"].as_f64(), None);
        let text = String::from_utf8(render(&value, NonFinite::Token)).unwrap();
        assert!(text.contains("\"a\": NaN,") && text.contains(" -Infinity,") && text.contains("1e400") && text.ends_with('\n'));
        let text = String::from_utf8(render(&value, NonFinite::Text)).unwrap();
        assert!(text.contains("\"a\": \"NaN\",") && text.contains("\"-Infinity\""));
        assert_eq!(parse(br#""\u00b5\ud83d\ude00\/""#).unwrap(), "µ😀/");
        assert_eq!(parse(br#"{"a": 1, "a": 2}"#).unwrap()["a"], 2);
    }

    /// Python's `json` reads and writes them; only the two halves in their order are a character.
    #[test]
    fn halves_of_surrogate_pairs_are_kept() {
        for (text, written) in [
            (r#""\ud800""#, r#""\ud800""#),
            (r#""a\uDFFFb""#, r#""a\udfffb""#),
            (r#""\udc00\ud83d""#, r#""\udc00\ud83d""#),
            (r#""\ud83d\ud83d\ude00\n""#, r#""\ud83d😀\n""#),
            (r#""\ud83d\n""#, r#""\ud83d\n""#),
            (r#""\\ud800""#, r#""\\ud800""#),
            // What marks them is a character as others are, and so is what follows it there.
            ("\"\u{fdd0}\u{10f000} \\ufdd0\u{10f800}\u{10f000}\"", "\"\u{fdd0}\u{10f000} \u{fdd0}\u{10f800}\u{10f000}\""),
        ] {
            for (text, written) in
                [(text.to_owned(), written.to_owned()), (format!("{{{text}: 1}}"), format!("{{\n  {written}: 1\n}}"))]
            {
                let value = parse(text.as_bytes()).unwrap();
                for how in [NonFinite::Token, NonFinite::Text] {
                    let made = render(&value, how);
                    assert_eq!(String::from_utf8_lossy(&made), format!("{written}\n"), "{text}");
                    assert_eq!(parse(&made).unwrap(), value, "{text}");
                }
            }
        }
        let mut out = String::new();
        (0xd800..0xe000).chain([0xfdd0]).for_each(|code| push(&mut out, code));
        assert!(out.char_indices().filter(|(_, c)| *c == MARK).all(|(at, _)| out.as_bytes()[at..].starts_with(&limits::HALF)));
        assert_eq!(out.matches(MARK).count(), 0x801);
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            "",
            " ",
            "{",
            "[1,",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "1 2",
            "\"",
            "\"\\x\"",
            "\"\\ud80\"",
            "\"\\ud800\\ud80\"",
            "01",
            "1.",
            "+1",
            "tru",
            "\"\\u00g0\"",
        ] {
            assert_eq!(parse(bad.as_bytes()).unwrap_err().kind(), Kind::Corrupt, "{bad}");
            let within = format!("{{\"m\":{{\"x\":[{bad}");
            assert_eq!(
                outline(within.as_bytes(), &["m"]).unwrap_err().to_string(),
                parse(within.as_bytes()).unwrap_err().to_string()
            );
        }
        assert!(parse(b"\"\xb5\"").unwrap_err().reason().contains("UTF-8"));
        let deep = "[".repeat(300_000);
        assert_eq!(parse(deep.as_bytes()).unwrap_err().kind(), Kind::TooBig);
        let deep = "{\"a\":".repeat(100_000);
        assert_eq!(parse(deep.as_bytes()).unwrap_err().kind(), Kind::TooBig);
        assert_eq!(outline(deep.as_bytes(), &[]).unwrap_err().kind(), Kind::TooBig);
        let nested = format!("{}1{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
        assert_eq!(parse(nested.as_bytes()).unwrap_err().kind(), Kind::TooBig);
        let nested = format!("{}1{}", "[".repeat(DEPTH - 1), "]".repeat(DEPTH - 1));
        assert!(parse(nested.as_bytes()).is_ok());
    }
}
