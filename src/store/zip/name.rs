//! Entry names as keys: what an archive may call its entries, and what that means below the root.
//!
//! A name is split at `/`; empty and `.` components after the first byte fall away (`./a`, `a//b` and `a/b` are one name, as
//! for every extractor), a trailing `/` says "directory". Dropped are names that no key reaches or that mean a place outside:
//! absolute ones, drive letters, `..`, backslashes (a separator where they were written), NUL, empty names, names over
//! [`crate::limits::KEY`], components over [`COMPONENT`], more than [`DEPTH`] components. Names are bytes; no encoding is assumed.
//! In the index a name's components are joined by NUL instead of `/`, which puts a directory's entries right behind it.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

/// Longest component, in bytes: that of Linux file systems; a longer one would break the whole listing that holds it.
pub const COMPONENT: usize = 255;

/// Most components of a name.
pub const DEPTH: usize = 256;

/// Appends the index form of `raw` to `into`; says whether it names a directory, or `None` (and appends nothing) for a dropped name.
pub fn append(raw: &[u8], into: &mut Vec<u8>) -> Option<bool> {
    let start = into.len();
    let kept = append_components(raw, into, start);
    if kept.is_none() {
        into.truncate(start);
    }
    kept
}

fn append_components(raw: &[u8], into: &mut Vec<u8>, start: usize) -> Option<bool> {
    let drive = matches!(raw, [letter, b':', ..] if letter.is_ascii_alphabetic()) && matches!(raw.get(2), None | Some(b'/'));
    if raw.first() == Some(&b'/') || drive {
        return None;
    }
    let mut depth = 0_usize;
    let mut directory = false;
    for part in raw.split(|&b| b == b'/') {
        directory = part.is_empty() || part == b".";
        if directory {
            continue;
        }
        if part == b".." || part.len() > COMPONENT || part.iter().any(|&b| b == 0 || b == b'\\') {
            return None;
        }
        depth = depth.saturating_add(1);
        if into.len() > start {
            into.push(0);
        }
        into.extend_from_slice(part);
        if depth > DEPTH || into.len().saturating_sub(start) > crate::limits::KEY {
            return None;
        }
    }
    (into.len() > start).then_some(directory)
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

    fn cleaned(raw: &[u8]) -> Option<(String, bool)> {
        let mut into = b"kept".to_vec();
        let kept = append(raw, &mut into);
        assert!(into.starts_with(b"kept"));
        match kept {
            Some(directory) => Some((display(&into[4..]), directory)),
            None => {
                assert_eq!(into, b"kept");
                None
            }
        }
    }

    #[test]
    fn names_map_below_the_root_or_are_dropped() {
        for (raw, want) in [("a/b", "a/b"), ("./a/b", "a/b"), ("a//b", "a/b"), ("a/./b", "a/b"), ("a\nb", "a\nb"), ("C:x", "C:x")]
        {
            assert_eq!(cleaned(raw.as_bytes()), Some((want.into(), false)), "{raw}");
        }
        assert_eq!(cleaned(b"a/"), Some(("a".into(), true)));
        for raw in ["", "/", "./", "/etc/x", "//x", "../x", "a/../b", "a/..", "C:/x", "C:\\x", "c:", "a\\b", "a\0b"] {
            assert_eq!(cleaned(raw.as_bytes()), None, "{raw:?}");
        }
        assert_eq!(cleaned("x".repeat(256).as_bytes()), None);
        assert_eq!(cleaned("a/".repeat(3000).as_bytes()), None);
        assert!(cleaned(&[b'x'; 255]).is_some());
        assert_eq!(cleaned(&[0xff, 0xfe]).map(|(_, d)| d), Some(false));
    }
}
