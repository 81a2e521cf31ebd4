//! Answers as the library can take them: what it would fail at, and nobody needs, is left out of them.
//!
//! The library refuses an answer for a header that it cannot read, also where that says nothing of the object's bytes, and a page
//! of a listing for one name that it cannot ask for. An entity tag without a text would be equal to that of any other version.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::wire;
use object_store::client::HttpResponse;
use object_store::path::Path;

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

/// Whether the body of a successful answer ends by what it says itself, as `chunked` has it. `is_part` is whether a part was asked for.
///
/// # Errors
/// Where what comes may be something else than the object, or cannot be told from a part of it when the connection ends.
pub fn end(answer: &HttpResponse, is_part: bool) -> Result<bool, String> {
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let codings = answer.headers().get_all("transfer-encoding").iter().count();
    let coding = header("transfer-encoding");
    let is_chunked = coding.is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
    if codings > 1 || coding.is_some() && !is_chunked {
        return Err(format!("a transfer coding other than chunked: {}", coding.unwrap_or_default()));
    }
    if answer.status().as_u16() == 206 && !is_part {
        return Err("a part, where all of it was asked for".to_owned());
    }
    // Google undoes a stored coding where it likes, and does not always say so: the bytes, and their number, are others then.
    if let Some(stored) = header("x-goog-stored-content-encoding")
        && stored != header("content-encoding").unwrap_or("identity")
    {
        return Err(format!("not as it is stored (Content-Encoding: {stored})"));
    }
    Ok(is_chunked)
}

/// Whether an entity tag has no text.
pub fn is_blank(tag: &str) -> bool {
    matches!(tag, "" | "\"\"" | "W/\"\"")
}

/// A page of a listing without the names that cannot be asked for: those with control characters, and what lies below an empty
/// name, `.` or `..`; and one of them. `None` where there is none, or where it is no page as services write it.
pub fn page(text: &str) -> Option<(String, String)> {
    const ENTRIES: [(&str, &str); 4] =
        [("Contents", "Key"), ("CommonPrefixes", "Prefix"), ("Blob", "Name"), ("BlobPrefix", "Name")];
    let (mut kept, mut odd, mut rest) = (String::new(), None, text);
    while let Some((before, entry)) = rest.find('<').and_then(|at| rest.split_at_checked(at)) {
        kept.push_str(before);
        let is_tag =
            |outer: &str| entry.strip_prefix('<').and_then(|e| e.strip_prefix(outer)).is_some_and(|e| e.starts_with('>'));
        let found = match ENTRIES.iter().find(|(outer, _)| is_tag(outer)) {
            None => None,
            Some((outer, inner)) => {
                let end = format!("</{outer}>");
                let (inside, after) = entry.split_once(&end)?;
                // Nothing is looked through twice.
                let name = wire::element(inside, inner)?;
                let name = quick_xml::escape::unescape(name).unwrap_or(name.into()).into_owned();
                Some((inside.len().checked_add(end.len())?, after, name))
            }
        };
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

/// A time of HTTP in any of its three forms, or as mail has it, in one that the library reads; `None` for what is none. In the usual form
/// and that of mail the day of the week is no part of it, which servers write wrongly.
///
/// <https://www.rfc-editor.org/rfc/rfc9110#section-5.6.7>
fn date(text: &str) -> Option<String> {
    let time = text.split_once(',').map_or(text, |(_, time)| time.trim());
    if chrono::DateTime::parse_from_rfc2822(time).is_ok() {
        return Some(time.to_owned());
    }
    httpdate::parse_http_date(text).ok().map(httpdate::fmt_http_date)
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

    /// Very long: nothing in them is looked through again and again.
    #[test]
    fn pages_that_are_none_are_left_at_once() {
        let inside = |open: &str, shut: &str| format!("<ListBucketResult>{open}{shut}</ListBucketResult>");
        let many = "<Contents>".repeat(400_000);
        for page in [
            inside(&many, ""),
            inside(&many, "</Contents>"),
            inside(&many, "<Key>a</Key></Contents>"),
            inside("<Contents><Key>", &format!("{}</Key></Contents>", "&".repeat(4 << 20))),
            inside("<Contents><Key>", &format!("{}</Key></Contents>", "&amp;".repeat(1 << 20))),
            inside(&"<x>".repeat(1 << 20), ""),
            inside(&"<".repeat(4 << 20), ""),
            inside(&"<Blob><Name>a</Name></Blob>".repeat(150_000), ""),
        ] {
            assert_eq!(super::page(&page), None);
        }
    }

    #[test]
    fn times_have_three_forms() {
        // The examples of RFC 9110, 5.6.7, with another day of the week, and what mail may have.
        for (text, time) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", "06 Nov 1994 08:49:37 GMT"),
            ("Sunday, 06-Nov-94 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Sun Nov  6 08:49:37 1994", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Mon, 06 Nov 1994 08:49:37 GMT", "06 Nov 1994 08:49:37 GMT"),
            ("2 Nov 2026 01:02 -0130", "2 Nov 2026 01:02 -0130"),
        ] {
            assert_eq!(date(text).as_deref(), Some(time), "{text}");
            assert!(chrono::DateTime::parse_from_rfc2822(time).is_ok(), "{time}");
        }
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
