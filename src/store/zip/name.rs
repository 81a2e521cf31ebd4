//! Entry names as keys: what an archive may call its entries, and what that means below the root.
//!
//! A name is split at `/`; empty and `.` components fall away, and `..` in front (`/a`, `../a`, `a//b` are `a`, `a` and `a/b`, as for
//! Python's zipfile and Info-ZIP's unzip), a trailing `/` says "directory". Other names with `..` are doubtful: `a/../b` is `a/b` to
//! these two, and `b` to who follows it. A file so called is none of them, and makes no other file; but what may be meant is an error
//! then, and not absent. To no key lead those that say nothing (the root itself; directories of doubtful names, which hold nothing by
//! themselves) and those that nobody could ask for: over [`crate::limits::KEY`], components over [`COMPONENT`], more than [`DEPTH`].
//!
//! A backslash separates in names without `/` by hosts whose file systems have it so, and where no name of the archive has a `/`; else
//! it is a part of the name, as on Unix. Names are UTF-8, or what the Unicode path field says, or code page 437, as for Python's
//! zipfile, and end at a NUL, as there.
//! In the index a name's components are joined by NUL instead of `/`, which puts a directory's entries right behind it.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::bytes::{u16_at, u32_at};
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
    /// A file that goes up from below the root, so that it is not known which one is meant.
    Doubtful,
    /// The root itself, or a directory of a doubtful name; nothing that could be asked for.
    Nothing,
    /// Too long to be asked for.
    TooLong,
}

/// What becomes of a `..` behind other components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Up {
    /// It falls away.
    Dropped,
    /// It takes the component before it away.
    Followed,
}

/// Appends the index form of `name` to `into`, or nothing where no key reaches it. Where `backslash`, it separates as `/` does.
pub fn append(name: &[u8], backslash: bool, up: Up, into: &mut Vec<u8>) -> Named {
    let start = into.len();
    let named = append_components(name, backslash, up, into, start);
    if matches!(named, Named::Nothing | Named::TooLong) {
        into.truncate(start);
    }
    named
}

fn append_components(name: &[u8], backslash: bool, up: Up, into: &mut Vec<u8>, start: usize) -> Named {
    let separates = |b: &u8| *b == b'/' || backslash && *b == b'\\';
    let directory = name.split(separates).next_back().is_none_or(|last| matches!(last, b"" | b"."));
    let mut depth = 0_usize;
    let (mut entered, mut doubtful) = (false, false);
    for part in name.split(separates) {
        match part {
            b"" | b"." => continue,
            b".." => {
                doubtful |= entered;
                if up == Up::Followed {
                    let last = into.get(start..).and_then(|all| all.iter().rposition(|&b| b == 0)).unwrap_or(0);
                    into.truncate(start.saturating_add(last));
                    depth = depth.saturating_sub(1);
                }
                continue;
            }
            _ => entered = true,
        }
        depth = depth.saturating_add(1);
        if depth > DEPTH || part.len() > COMPONENT || into.len().saturating_sub(start) > crate::limits::KEY {
            return Named::TooLong;
        }
        if into.len() > start {
            into.push(0);
        }
        into.extend_from_slice(part);
    }
    match into.len().saturating_sub(start) {
        0 => Named::Nothing,
        length if length > crate::limits::KEY => Named::TooLong,
        _ if directory && doubtful => Named::Nothing,
        _ if directory => Named::Directory,
        _ if doubtful => Named::Doubtful,
        _ => Named::File,
    }
}

/// Whether a name begins above or at the root of a file system, or goes up anywhere.
pub fn is_rooted(name: &[u8], backslash: bool) -> bool {
    let mut parts = name.split(|b| *b == b'/' || backslash && *b == b'\\');
    matches!(parts.next(), Some(b"" | b"..")) || parts.any(|part| part == b"..")
}

/// As [`append`] for a name of which nothing needs to be thought, as nearly all are: ASCII, without a backslash, and nothing falls away
/// from it. `None`, and nothing is appended, for others.
pub fn append_plain(name: &[u8], into: &mut Vec<u8>) -> Option<Named> {
    let start = into.len();
    if name.len() > crate::limits::KEY {
        return None;
    }
    into.extend_from_slice(name);
    // Of the component so far, and how many dots it begins with.
    let (mut length, mut dots, mut depth) = (0_usize, 0_usize, 0_usize);
    let is_plain = |length: usize, dots: usize| length > 0 && length <= COMPONENT && !(length == dots && dots <= 2);
    for byte in into.get_mut(start..).unwrap_or_default() {
        match *byte {
            b'/' if is_plain(length, dots) => {
                *byte = 0;
                depth = depth.saturating_add(1);
                (length, dots) = (0, 0);
            }
            b'/' | b'\\' | 0 | 0x80.. => {
                into.truncate(start);
                return None;
            }
            b => {
                dots = dots.saturating_add(usize::from(b == b'.' && dots == length));
                length = length.saturating_add(1);
            }
        }
    }
    let is_directory = length == 0 && depth > 0;
    if depth.saturating_add(usize::from(!is_directory)) > DEPTH || !is_directory && !is_plain(length, dots) {
        into.truncate(start);
        return None;
    }
    if is_directory {
        into.pop();
        return Some(Named::Directory);
    }
    Some(Named::File)
}

/// Whether backslashes separate in a name by `host`; `alone` says that no name of the archive has a `/`.
pub fn backslash(name: &[u8], host: u8, alone: bool) -> bool {
    // FAT, HPFS, NTFS and VFAT, the third as APPNOTE and as Info-ZIP number it. Some libraries name the first wherever they run, so
    // that who separates otherwise as well may mean anything by it, and Info-ZIP and Python take it for a letter.
    let there = matches!(host, 0 | 6 | 10 | 11 | 14);
    name.contains(&b'\\') && (there && !name.contains(&b'/') || alone)
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
pub fn unicode_path<'a>(raw: &[u8], mut extra: &'a [u8]) -> Option<&'a [u8]> {
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

    fn cleaned(raw: &[u8], up: Up) -> (String, Named) {
        let mut into = b"kept".to_vec();
        let named = append(raw, false, up, &mut into);
        assert!(into.starts_with(b"kept"));
        (display(&into[4..]), named)
    }

    #[test]
    fn names_map_below_the_root() {
        for (raw, want) in [
            ("a/b", "a/b"),
            ("./a/b", "a/b"),
            ("a//b", "a/b"),
            ("a/./b", "a/b"),
            ("/etc/x", "etc/x"),
            ("//x", "x"),
            ("../x", "x"),
            ("/./../../x/y", "x/y"),
            ("a\nb", "a\nb"),
            ("a\\b", "a\\b"),
            ("C:x", "C:x"),
            ("C:/x", "C:/x"),
        ] {
            assert_eq!(cleaned(raw.as_bytes(), Up::Dropped), (want.into(), Named::File), "{raw}");
        }
        assert_eq!(cleaned(b"a/", Up::Dropped), ("a".into(), Named::Directory));
        for raw in ["", "/", "./", ".", "../", "a/../", "a/../b/"] {
            assert_eq!(cleaned(raw.as_bytes(), Up::Dropped), (String::new(), Named::Nothing), "{raw:?}");
        }
        assert_eq!(cleaned("x".repeat(256).as_bytes(), Up::Dropped), (String::new(), Named::TooLong));
        assert_eq!(cleaned("a/".repeat(3000).as_bytes(), Up::Dropped), (String::new(), Named::TooLong));
        assert_eq!(cleaned(&[b'x'; 255], Up::Dropped).1, Named::File);
    }

    /// Whatever a name is made of, the quick way is the other one.
    #[test]
    fn plain_names_are_appended_as_all_are() {
        let parts = ["", ".", "..", "...", "a", ".zarray", "0.0", "\\", "a\\b", "é", "a\0", "c..", ".b."];
        let parts = parts.map(str::to_owned).into_iter().chain([255, 256].map(|n| "x".repeat(n))).collect::<Vec<_>>();
        let all = &parts;
        let names = all.iter().flat_map(|a| all.iter().flat_map(move |b| all.iter().map(move |c| format!("{a}/{b}/{c}"))));
        let deep =
            [DEPTH - 1, DEPTH, DEPTH + 1].into_iter().flat_map(|n| ["", "/", "/b"].map(|end| vec!["a"; n].join("/") + end));
        let (mut quick, mut plain) = (0, 0);
        for name in names.chain(deep).chain(parts.clone()) {
            let (mut one, mut other) = (b"kept".to_vec(), b"kept".to_vec());
            let named = append(name.as_bytes(), false, Up::Dropped, &mut one);
            match append_plain(name.as_bytes(), &mut other) {
                Some(found) => {
                    assert_eq!((found, &other), (named, &one), "{name}");
                    assert!(spelling(name.as_bytes(), &one[4..]).is_none() && &*text(name.as_bytes(), 0, b"") == name.as_bytes());
                    quick += 1;
                }
                None => assert_eq!(other, b"kept", "{name}"),
            }
            let is_ascii = name.is_ascii() && !name.contains(['\\', '\0']);
            let is_kept =
                is_ascii && matches!(named, Named::File | Named::Directory) && spelling(name.as_bytes(), &one[4..]).is_none();
            plain += usize::from(is_kept);
        }
        assert!(quick > 200 && quick == plain, "{quick} of {plain}");
    }

    #[test]
    fn names_that_go_up_may_mean_two_files() {
        for (raw, dropped, followed) in [
            ("a/../b", "a/b", "b"),
            ("/a/x/../../b", "a/x/b", "b"),
            ("../a/../../../b/c", "a/b/c", "b/c"),
            ("a/..", "a", ""),
            ("a/b/..", "a/b", "a"),
        ] {
            assert_eq!(cleaned(raw.as_bytes(), Up::Dropped), (dropped.into(), Named::Doubtful), "{raw}");
            let named = if followed.is_empty() { Named::Nothing } else { Named::Doubtful };
            assert_eq!(cleaned(raw.as_bytes(), Up::Followed), (followed.into(), named), "{raw}");
        }
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
