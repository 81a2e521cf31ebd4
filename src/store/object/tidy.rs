//! Answers as the library can take them: what it would fail at, and nobody needs, is left out of them.
//!
//! The library refuses an answer for a header that it cannot read, also where that says nothing of the object's bytes, and a page
//! of a listing for one name that it cannot ask for. An entity tag without a text would be equal to that of any other version.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::wire;
use object_store::client::HttpResponse;
use object_store::path::Path;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The names of zones in the times of mail.
const ZONES: [&str; 12] = ["GMT", "UTC", "UT", "Z", "EST", "EDT", "CST", "CDT", "MST", "MDT", "PST", "PDT"];

/// Puts the headers of an answer in order: entity tag and time of modification are there if they say something, and others if
/// they can be read.
pub fn headers(answer: &mut HttpResponse) {
    let all = answer.headers_mut();
    let unread: Vec<_> = all.iter().filter(|(_, value)| value.to_str().is_err()).map(|(name, _)| name.clone()).collect();
    for name in unread {
        all.remove(name);
    }
    let told = |name| all.get(name).and_then(|value| value.to_str().ok()).map(|text| text.trim().to_owned());
    let (tag, range, modified) = (told("etag"), told("content-range"), told("last-modified"));
    if tag.is_some_and(|tag| is_blank(&tag)) {
        all.remove("etag");
    }
    // The library adds one to the place of the last byte.
    if range.is_some_and(|range| range.contains(&u64::MAX.to_string())) {
        all.remove("content-range");
    }
    if let Some(modified) = modified {
        match date(&modified).and_then(|date| date.parse().ok()) {
            Some(date) => drop(all.insert("last-modified", date)),
            None => drop(all.remove("last-modified")),
        }
    }
}

/// Whether an entity tag has no text.
pub fn is_blank(tag: &str) -> bool {
    matches!(tag, "" | "\"\"" | "W/\"\"")
}

/// A page of a listing without the names that cannot be asked for: those with control characters, and what lies below an empty
/// name, `.` or `..`; and one of them. `None` where there is none.
pub fn page(text: &str) -> Option<(String, String)> {
    const ENTRIES: [(&str, &str); 4] =
        [("Contents", "Key"), ("CommonPrefixes", "Prefix"), ("Blob", "Name"), ("BlobPrefix", "Name")];
    let (mut kept, mut odd, mut rest) = (String::new(), None, text);
    while let Some((before, entry)) = rest.find('<').and_then(|at| rest.split_at_checked(at)) {
        kept.push_str(before);
        let tag = entry.strip_prefix('<').and_then(|e| e.split_once('>')).map(|(tag, _)| tag);
        let found = ENTRIES.iter().find(|(outer, _)| tag == Some(outer)).and_then(|(outer, inner)| {
            let end = format!("</{outer}>");
            let (inside, after) = entry.split_once(&end)?;
            let name = plain(wire::element(inside, inner)?);
            Some((inside.len().checked_add(end.len())?, after, name))
        });
        rest = match found {
            Some((_, after, name)) if Path::parse(&name).is_err() => {
                odd = odd.or(Some(name));
                after
            }
            found => {
                let (whole, after) = entry.split_at_checked(found.map_or(1, |(length, ..)| length))?;
                kept.push_str(whole);
                after
            }
        };
    }
    kept.push_str(rest);
    odd.map(|name| (kept, name))
}

/// A text of XML without its references.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let character = after.split_once(';').and_then(|(name, after)| {
            let number = match name.strip_prefix('#') {
                Some(digits) => match digits.strip_prefix(['x', 'X']) {
                    Some(digits) => u32::from_str_radix(digits, 16).ok(),
                    None => digits.parse().ok(),
                },
                None => None,
            };
            let character = match name {
                "amp" => Some('&'),
                "lt" => Some('<'),
                "gt" => Some('>'),
                "quot" => Some('"'),
                "apos" => Some('\''),
                _ => number.and_then(char::from_u32),
            };
            character.map(|c| (c, after))
        });
        rest = match character {
            Some((c, after)) => {
                plain.push(c);
                after
            }
            None => {
                plain.push('&');
                after
            }
        };
    }
    plain.push_str(rest);
    plain
}

/// A time of HTTP in any of its three forms, or as mail has it, in the form of mail without the day of the week; `None` for what is
/// none.
///
/// <https://www.rfc-editor.org/rfc/rfc9110#section-5.6.7>
fn date(text: &str) -> Option<String> {
    let (_, rest) = text.split_once(',').unwrap_or(("", text));
    let words: Vec<&str> = rest.split_whitespace().collect();
    let (day, month, year, time, zone) = match words.as_slice() {
        // "Sun, 06 Nov 1994 08:49:37 GMT".
        [day, month, year, time, zone] if day.starts_with(|c: char| c.is_ascii_digit()) => (*day, *month, *year, *time, *zone),
        // "Sun Nov  6 08:49:37 1994".
        [_, month, day, time, year] => (*day, *month, *year, *time, "GMT"),
        // "Sunday, 06-Nov-94 08:49:37 GMT".
        [date, time, zone] => match date.split('-').collect::<Vec<_>>().as_slice() {
            [day, month, year] => (*day, *month, *year, *time, *zone),
            _ => return None,
        },
        _ => return None,
    };
    let number = |text: &str, most: u32| -> Option<u32> {
        let is_number = text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|n| is_number && *n <= most)
    };
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))?;
    let year = match (year.len(), number(year, 9999)?) {
        (2, year @ ..70) => year.checked_add(2000)?,
        (2, year) => year.checked_add(1900)?,
        (4, year) => year,
        _ => return None,
    };
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 => 28_u32.checked_add(leap.into())?,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    };
    let day = number(day, days).filter(|day| *day > 0)?;
    let (hour, minute, second) = match time.split(':').collect::<Vec<_>>().as_slice() {
        [hour, minute] => (number(hour, 23)?, number(minute, 59)?, 0),
        [hour, minute, second] => (number(hour, 23)?, number(minute, 59)?, number(second, 60)?),
        _ => return None,
    };
    let is_zone = match zone.strip_prefix(['+', '-']) {
        Some(offset) => offset.len() == 4 && number(offset, 9959).is_some(),
        None => ZONES.contains(&zone),
    };
    if !is_zone {
        return None;
    }
    let month = MONTHS.get(month)?;
    Some(format!("{day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} {zone}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_asked_for_are_left_out() {
        let entry = |key: &str| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
        let below = |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        let page =
            |inside: &str| format!("<?xml version=\"1.0\"?><ListBucketResult><Prefix>a/</Prefix>{inside}</ListBucketResult>");
        let good =
            [entry("a/%2F"), below("a/b/"), entry("a/&amp;&#233;&quot;&x;"), entry("a/..b"), below("/"), entry("a/ .")].concat();
        assert_eq!(super::page(&page(&good)), None);
        for odd in [
            below("a//"),
            entry("a/."),
            below("a/../"),
            entry("a/b&#x1;c"),
            entry("a/b\tc"),
            entry("a/&#10;"),
            below("a/\u{7f}/"),
        ] {
            let (kept, name) = super::page(&page(&format!("{odd}{good}{odd}"))).unwrap();
            assert_eq!(kept, page(&good), "{odd}");
            assert!(name.starts_with("a/"), "{name:?}");
        }
        let azure =
            "<Blobs><BlobPrefix><Name>a//</Name></BlobPrefix><Blob><Name>a/b</Name></Blob><Blob><Name>a/.</Name></Blob></Blobs>";
        assert_eq!(super::page(azure).unwrap(), ("<Blobs><Blob><Name>a/b</Name></Blob></Blobs>".into(), "a//".into()));
    }

    #[test]
    fn times_have_three_forms() {
        // The examples of RFC 9110, 5.6.7.
        for same in ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
            assert_eq!(date(same).unwrap(), "06 Nov 1994 08:49:37 GMT", "{same}");
        }
        assert_eq!(date("Thu, 29 Feb 2024 00:00:60 UTC").unwrap(), "29 Feb 2024 00:00:60 UTC");
        assert_eq!(date("2 nov 2026 1:02 -0130").unwrap(), "02 Nov 2026 01:02:00 -0130");
        for none in [
            "",
            "0",
            "yesterday",
            "2026-11-02T10:00:00Z",
            "Mon, 30 Feb 2026 10:00:00 GMT",
            "Mon, 00 Nov 2026 10:00:00 GMT",
            "Mon, 02 Nov 2026 24:00:00 GMT",
            "Mon, 02 Nov 2026 10:00:00 XYZ",
            "Mon, 02 Nov 2026 10 GMT",
            "Mon, 2 Nov 202 1:1:1 GMT",
        ] {
            assert_eq!(date(none), None, "{none}");
        }
    }
}
