//! Entry names as keys: what an archive may call its entries, and what that means below the root.
//!
//! A name is split at `/`; empty and `.` components fall away (`/a`, `./a`, `a//b` are `a`, `a` and `a/b`, as for every
//! extractor), a trailing `/` says "directory". Three kinds of names lead to no key:
//! * those that say nothing: the root itself, and directories that go up (`a/../`), which hold nothing by themselves;
//! * those that nobody could ask for: over [`crate::limits::KEY`], components over [`COMPONENT`], more than [`DEPTH`] of them;
//! * files whose name has `..`, or both separators, which extractors take for different files. Whichever is meant would be
//!   absent without a reason, so that the archive is refused.
//!
//! A backslash separates in names by hosts whose file systems have it so, and where no name of the archive has a `/`; else it is
//! a part of the name, as on Unix. Names are UTF-8, or what the Unicode path field says, or code page 437, as for Python's zipfile, and
//! end at a NUL, as there.
//! In the index a name's components are joined by NUL instead of `/`, which puts a directory's entries right behind it.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::bytes::{u16_at, u32_at};
use crate::error::Error;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Longest component, in bytes: that of Linux file systems; a longer one would break the whole listing that holds it.
pub const COMPONENT: usize = 255;

/// Most components of a name.
pub const DEPTH: usize = 256;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// The root itself, or a directory outside; nothing that could be asked for.
    Nothing,
    /// Too long to be asked for.
    TooLong,
}

/// Appends the index form of `name` to `into`, or nothing where no key reaches it.
///
/// # Errors
/// Why it is not known which key a file's name means.
pub fn append(name: &[u8], backslash: bool, into: &mut Vec<u8>) -> std::result::Result<Named, &'static str> {
    let start = into.len();
    let named = append_components(name, backslash, into, start);
    if !matches!(named, Ok(Named::File | Named::Directory)) {
        into.truncate(start);
    }
    named
}

fn append_components(name: &[u8], backslash: bool, into: &mut Vec<u8>, start: usize) -> std::result::Result<Named, &'static str> {
    let separates = |b: &u8| *b == b'/' || backslash && *b == b'\\';
    let directory = name.split(separates).next_back().is_none_or(|last| matches!(last, b"" | b"."));
    let mut depth = 0_usize;
    let mut long = false;
    for part in name.split(separates) {
        match part {
            b"" | b"." => continue,
            b".." if directory => return Ok(Named::Nothing),
            b".." => return Err("has a name that goes up"),
            _ if part.contains(&0) => return Err("has a NUL in its name"),
            _ => {}
        }
        depth = depth.saturating_add(1);
        long |= depth > DEPTH || part.len() > COMPONENT || into.len().saturating_sub(start) > crate::limits::KEY;
        if long {
            continue;
        }
        if into.len() > start {
            into.push(0);
        }
        into.extend_from_slice(part);
    }
    Ok(match () {
        () if long || into.len().saturating_sub(start) > crate::limits::KEY => Named::TooLong,
        () if into.len() == start => Named::Nothing,
        () if directory => Named::Directory,
        () => Named::File,
    })
}

/// Whether backslashes separate in a name by `host`; `alone` says that no name of the archive has a `/`.
///
/// # Errors
/// Why it is not known whether they do.
pub fn backslash(name: &[u8], host: u8, alone: bool) -> std::result::Result<bool, &'static str> {
    // FAT, HPFS, NTFS and VFAT, the third as APPNOTE and as Info-ZIP number it. Some libraries name the first wherever they run.
    let there = matches!(host, 0 | 6 | 10 | 11 | 14);
    if !name.contains(&b'\\') {
        return Ok(false);
    }
    if !there || !name.contains(&b'/') {
        return Ok(there || alone);
    }
    // The second byte of a character in code pages of East Asia may be that of the backslash.
    if std::str::from_utf8(name).is_err() { Ok(false) } else { Err("has both slashes and backslashes in its name") }
}

/// The name in UTF-8 of an entry that is called `raw`, has the general purpose `bits` and the `extra` area; `raw` itself where it is.
pub fn text<'a>(raw: &'a [u8], bits: u16, extra: &'a [u8]) -> Cow<'a, [u8]> {
    let until = |name: &[u8]| name.iter().position(|&b| b == 0).unwrap_or(name.len());
    match decoded(raw, bits, extra) {
        Cow::Borrowed(name) => Cow::Borrowed(name.get(..until(name)).unwrap_or_default()),
        Cow::Owned(mut name) => {
            name.truncate(until(&name));
            Cow::Owned(name)
        }
    }
}

fn decoded<'a>(raw: &'a [u8], bits: u16, extra: &'a [u8]) -> Cow<'a, [u8]> {
    if let Some(name) = unicode_path(raw, extra) {
        return Cow::Borrowed(name);
    }
    if bits & 0x800 != 0 || std::str::from_utf8(raw).is_ok() {
        return Cow::Borrowed(raw);
    }
    let high = |b: u8| HIGH.chars().nth(usize::from(b & 0x7f)).unwrap_or(char::REPLACEMENT_CHARACTER);
    let letters = raw.iter().map(|&b| if b.is_ascii() { char::from(b) } else { high(b) });
    Cow::Owned(letters.collect::<String>().into_bytes())
}

// Info-ZIP's Unicode path field, APPNOTE 4.6.9: a version, the CRC-32 of the name that it stands beside, and the name in UTF-8.
// One with another CRC-32 belongs to a name that was changed since.
fn unicode_path<'a>(raw: &[u8], mut extra: &'a [u8]) -> Option<&'a [u8]> {
    while let (Some(id), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let (field, rest) = extra.get(4..)?.split_at_checked(usize::from(length))?;
        if id == 0x7075 && field.first() == Some(&1) && u32_at(field, 1) == Some(crc32fast::hash(raw)) {
            return field.get(5..).filter(|name| !name.is_empty() && std::str::from_utf8(name).is_ok());
        }
        extra = rest;
    }
    None
}

// The upper half of code page 437, as Unicode's CP437.TXT maps it.
const HIGH: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// What tells names that are written differently from each other: `None` for one that is the index form but for its separators.
pub fn spelling(raw: &[u8], index_form: &[u8]) -> Option<u64> {
    let plain = raw.strip_suffix(b"/").unwrap_or(raw);
    let same =
        plain.len() == index_form.len() && plain.iter().zip(index_form).all(|(&r, &i)| if r == b'/' { i == 0 } else { r == i });
    (!same).then(|| hash(raw))
}

/// A number for a name as it is written.
pub fn hash(raw: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    raw.hash(&mut hasher);
    hasher.finish()
}

/// The error of an archive with an entry of which it is not known what it is.
pub fn doubtful(raw: &[u8], why: &str) -> Error {
    Error::unsupported(format!("the entry \"{}\" {why}, and which file it is meant to be is not known", shown(raw)))
}

/// The beginning of a name, for messages.
pub fn shown(name: &[u8]) -> String {
    let head = name.get(..80).unwrap_or(name);
    format!("{}{}", head.escape_ascii(), if head.len() < name.len() { "..." } else { "" })
}

/// The index form of a key, or of one below `prefix` (an index form that ends in NUL, or empty).
pub fn of_key(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len().saturating_add(key.len()).saturating_add(1));
    name.extend_from_slice(prefix);
    name.extend(key.iter().map(|&b| if b == b'/' { 0 } else { b }));
    name
}

/// An index form as a person writes it.
pub fn display(name: &[u8]) -> String {
    let slashed: Vec<u8> = name.iter().map(|&b| if b == 0 { b'/' } else { b }).collect();
    String::from_utf8_lossy(&slashed).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(raw: &[u8]) -> std::result::Result<(String, Named), &'static str> {
        let mut into = b"kept".to_vec();
        let named = append(raw, false, &mut into);
        assert!(into.starts_with(b"kept"));
        named.map(|named| (display(&into[4..]), named))
    }

    #[test]
    fn names_map_below_the_root_or_say_why_not() {
        for (raw, want) in [
            ("a/b", "a/b"),
            ("./a/b", "a/b"),
            ("a//b", "a/b"),
            ("a/./b", "a/b"),
            ("/etc/x", "etc/x"),
            ("//x", "x"),
            ("a\nb", "a\nb"),
            ("a\\b", "a\\b"),
            ("C:x", "C:x"),
            ("C:/x", "C:/x"),
        ] {
            assert_eq!(cleaned(raw.as_bytes()), Ok((want.into(), Named::File)), "{raw}");
        }
        assert_eq!(cleaned(b"a/"), Ok(("a".into(), Named::Directory)));
        for raw in ["", "/", "./", ".", "../", "a/../", "a/../b/"] {
            assert_eq!(cleaned(raw.as_bytes()), Ok((String::new(), Named::Nothing)), "{raw:?}");
        }
        for raw in ["../x", "a/../b", "a/..", "/../x", "a\0b", "x/\0"] {
            assert!(cleaned(raw.as_bytes()).is_err(), "{raw:?}");
        }
        assert_eq!(cleaned("x".repeat(256).as_bytes()), Ok((String::new(), Named::TooLong)));
        assert_eq!(cleaned("a/".repeat(3000).as_bytes()), Ok((String::new(), Named::TooLong)));
        assert!(cleaned(format!("{}/../x", "x".repeat(256)).as_bytes()).is_err());
        assert_eq!(cleaned(&[b'x'; 255]).map(|(_, named)| named), Ok(Named::File));
    }

    #[test]
    fn the_unicode_path_field_counts_for_the_name_that_it_was_written_for() {
        let field = |version: u8, of: &[u8], name: &[u8]| {
            let mut extra = b"UT\x01\x00\x00up".to_vec();
            extra.extend_from_slice(&u16::try_from(name.len() + 5).unwrap().to_le_bytes());
            extra.push(version);
            extra.extend_from_slice(&crc32fast::hash(of).to_le_bytes());
            extra.extend_from_slice(name);
            extra
        };
        let raw = b"Gr\x94\xe1e/0.0";
        for (bits, extra, want) in [
            (0, field(1, raw, "Grün/0.0".as_bytes()), "Grün/0.0"),
            (0, field(1, b"other", "Grün/0.0".as_bytes()), "Größe/0.0"),
            (0, field(2, raw, "Grün/0.0".as_bytes()), "Größe/0.0"),
            (0, field(1, raw, b"\xff"), "Größe/0.0"),
            (0, field(1, raw, b"cut")[..12].to_vec(), "Größe/0.0"),
        ] {
            assert_eq!(text(raw, bits, &extra), want.as_bytes(), "{extra:?}");
        }
        assert_eq!(&*text(b"a\0b", 0, b""), b"a");
        for bits in [0, 0x800] {
            assert_eq!(text("Größe".as_bytes(), bits, b""), "Größe".as_bytes());
        }
    }
}
