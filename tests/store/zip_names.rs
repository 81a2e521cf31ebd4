//! What names of entries mean below the root of an archive.

use crate::conformance::{key, kind, names, read};
use crate::zips::{open, renamed, written};
use chunkmount::error::Kind;
use chunkmount::store::{Key, ObjectKind, Range, Store};

#[test]
fn odd_names_are_plain_ones_or_left_out() {
    let archive = written(&[("good/.zgroup", b"{}"), ("NNNNNNNN", b"evil"), ("good/0", b"1")]);
    // What Info-ZIP's unzip extracts; Python truncates at the NUL.
    for (name, found) in [
        (&b"../../xx"[..], Some("xx")),
        (b"a\0bcdefg", Some("a")),
        (b"////////", None),
        (b"good/../", None),
        (b"/etc/pwd", Some("etc/pwd")),
        (b"C:/a/b/c", Some("C:/a/b/c")),
        (b"C:\\a\\b\\c", Some("C:\\a\\b\\c")),
        (b"good//ab", Some("good/ab")),
        (b"./././ab", Some("ab")),
        (b"a\nb\tcdef", Some("a\nb\tcdef")),
    ] {
        let name = &name[..8];
        let store = open(&renamed(archive.clone(), b"NNNNNNNN", name)).unwrap();
        assert_eq!(store.entries(), 2 + usize::from(found.is_some()), "{name:?}");
        let prefix = if store.folder().is_some() { "" } else { "good/" };
        assert_eq!(read(&store, &format!("{prefix}0"), Range::All).unwrap(), b"1", "{name:?}");
        if let Some(found) = found {
            let found = if prefix.is_empty() { found.strip_prefix("good/").unwrap() } else { found };
            assert_eq!(read(&store, &found[..found.len().min(8)], Range::All).unwrap(), b"evil", "{name:?}");
        }
    }
    // Python: b"\xff\xfe\x80".decode("cp437").
    let store = open(&renamed(archive.clone(), b"NNNNNNNN", b"\xff\xfe\x80zzzzz")).unwrap();
    let listing = store.list(&Key::root()).unwrap();
    assert_eq!(listing.get(1), Some(("\u{a0}■Çzzzzz".as_bytes(), ObjectKind::File)));
    let long = written(&[(&"x".repeat(65_000), b"1"), (&"a/".repeat(3000), b""), (&"d/".repeat(300), b""), ("ok", b"2")]);
    assert_eq!(names(&open(&long).unwrap(), ""), [("ok".into(), false)]);
}

/// The same with another host in the directory's records, as APPNOTE numbers them.
fn hosted(mut archive: Vec<u8>, host: u8) -> Vec<u8> {
    for at in 0..archive.len() - 46 {
        if archive[at..].starts_with(b"PK\x01\x02") {
            archive[at + 5] = host;
        }
    }
    archive
}

#[test]
fn backslashes_separate_where_the_archive_was_made_so() {
    const UNIX: u8 = 3;
    for host in [0, 10, 11, 14, UNIX] {
        let store = open(&hosted(written(&[("x.zarr\\.zgroup", b"1"), ("x.zarr\\a\\c\\0", b"2")]), host)).unwrap();
        assert_eq!(store.folder(), Some("x.zarr".into()), "{host}");
        assert_eq!(read(&store, "a/c/0", Range::All).unwrap(), b"2", "{host}");
        assert_eq!(names(&store, ""), [(".zgroup".into(), false), ("a".into(), true)], "{host}");
    }
    // Beside names with slashes: so by such a host, and a part of the name on Unix, where it may be.
    let entries: [(&str, &[u8]); 3] = [("x/a", b"1"), ("x\\b\\c", b"2"), ("x\\d\\", b"")];
    let store = open(&hosted(written(&entries), 0)).unwrap();
    assert_eq!(names(&store, ""), [("a".into(), false), ("b".into(), true), ("d".into(), true)]);
    assert_eq!(read(&store, "b/c", Range::All).unwrap(), b"2");
    let store = open(&hosted(written(&entries), UNIX)).unwrap();
    assert_eq!(names(&store, ""), [("x".into(), true), ("x\\b\\c".into(), false), ("x\\d\\".into(), false)]);
    assert_eq!(read(&store, "x\\b\\c", Range::All).unwrap(), b"2");
    // A directory longer than what is read at first.
    let many: Vec<_> = (0..6000).map(|i| format!("x\\a-rather-long-name-of-an-entry-{i}")).collect();
    let entries: Vec<_> = many.iter().map(|name| (name.as_str(), &b"1"[..])).collect();
    let store = open(&hosted(written(&entries), UNIX)).unwrap();
    assert_eq!(read(&store, "a-rather-long-name-of-an-entry-5999", Range::All).unwrap(), b"1");
    // Both in one name: as Info-ZIP and Python have it.
    for host in [0, UNIX] {
        let store = open(&hosted(written(&[("x/a", b"1"), ("x/a\\b", b"2")]), host)).unwrap();
        assert_eq!(names(&store, ""), [("a".into(), false), ("a\\b".into(), false)], "{host}");
        assert_eq!(read(&store, "a\\b", Range::All).unwrap(), b"2");
    }
}

#[test]
fn names_that_become_one_are_errors() {
    for (one, other, host) in [("./a", "__a", 3), ("/a", "_a", 3), ("b//a", "b/_a", 3), ("b\\a", "b+a", 0)] {
        let plain = other.replace('_', "").replace('+', "/");
        for turned in [false, true] {
            let mut entries = vec![(one, &b"1"[..]), (&plain, b"2"), ("z/z", b"3")];
            if turned {
                entries.swap(0, 1);
            }
            let store = open(&hosted(written(&entries), host)).unwrap();
            assert_eq!(kind(&store, &plain), Kind::Corrupt, "{one} {plain}");
            assert_eq!(store.head(&key(&plain)).unwrap_err().kind(), Kind::Corrupt, "{one} {plain}");
            assert_eq!(read(&store, "z/z", Range::All).unwrap(), b"3");
        }
    }
    // Where it is clear what is meant, the last one of equal names wins; what comes after does not heal what is unclear.
    let named = |names: [&str; 3]| {
        let entries: Vec<_> = ["N0", "N1", "N2"].into_iter().zip([&b"1"[..], b"2", b"3"]).collect();
        let long = entries.iter().map(|(n, c)| (format!("{n}_"), *c)).collect::<Vec<_>>();
        let archive = written(&long.iter().map(|(n, c)| (n.as_str(), *c)).collect::<Vec<_>>());
        let archive = ["N0_", "N1_", "N2_"].iter().zip(names).fold(archive, |a, (n, to)| renamed(a, n.as_bytes(), to.as_bytes()));
        open(&archive).unwrap()
    };
    assert_eq!(read(&named(["./a", "./a", "b.."]), "a", Range::All).unwrap(), b"2");
    for names in [["./a", ".//", "//a"], ["./a", "//a", "//a"], ["./a", "//a", "./a"]] {
        assert_eq!(kind(&named(names), "a"), Kind::Corrupt, "{names:?}");
    }
}

#[test]
fn the_last_of_equal_names_wins_and_directories_over_files() {
    let store = open(&renamed(written(&[("a", b"first"), ("m", b"0"), ("b", b"last")]), b"b", b"a")).unwrap();
    assert_eq!(read(&store, "a", Range::All).unwrap(), b"last");
    assert_eq!(names(&store, ""), [("a".into(), false), ("m".into(), false)]);
    let store = open(&written(&[("c", b"file"), ("c.d", b"1"), ("c/d", b"2"), ("good", b"3")])).unwrap();
    assert_eq!(store.head(&key("c")).unwrap().kind, ObjectKind::Directory);
    assert_eq!(kind(&store, "c"), Kind::Corrupt);
    assert_eq!(read(&store, "c/d", Range::All).unwrap(), b"2");
    assert_eq!(names(&store, ""), [("c".into(), true), ("c.d".into(), false), ("good".into(), false)]);
}

#[test]
fn names_that_differ_in_case_are_two() {
    let store = open(&written(&[("A", b"large"), ("a", b"small"), ("Dir/x", b"1"), ("dir/X", b"2"), ("dir/x", b"3")])).unwrap();
    let found = [("A".into(), false), ("Dir".into(), true), ("a".into(), false), ("dir".into(), true)];
    assert_eq!(names(&store, ""), found);
    assert_eq!(names(&store, "dir"), [("X".into(), false), ("x".into(), false)]);
    for (name, content) in [("A", "large"), ("a", "small"), ("Dir/x", "1"), ("dir/X", "2"), ("dir/x", "3")] {
        assert_eq!(read(&store, name, Range::All).unwrap(), content.as_bytes(), "{name}");
    }
    assert_eq!(kind(&store, "Dir/X"), Kind::NotFound);
}

#[test]
fn a_name_that_goes_up_is_no_other_name() {
    // As extractors have it, it is `a/b`, `b`, or nothing: an error where there is no other, and no other than the one there is.
    for with in ["b", "a/b", "c"] {
        for turned in [false, true] {
            let mut entries = vec![("a/__/b", &b"evil"[..]), (with, b"good"), ("a/c", b"1")];
            if turned {
                entries.swap(0, 1);
            }
            let store = open(&renamed(written(&entries), b"a/__/b", b"a/../b")).unwrap();
            for name in ["b", "a/b"] {
                if name == with {
                    assert_eq!(read(&store, name, Range::All).unwrap(), b"good");
                } else {
                    assert_eq!((kind(&store, name), store.head(&key(name)).unwrap_err().kind()), (Kind::Corrupt, Kind::Corrupt));
                }
            }
            assert_eq!(read(&store, "a/c", Range::All).unwrap(), b"1");
            assert_eq!(names(&store, "a"), [("b".into(), false), ("c".into(), false)]);
            for name in ["a/__/b", "a/__", "a/.."] {
                assert!(store.head(&Key::root().join(name).unwrap_or_else(|_| key("none"))).is_err(), "{name}");
            }
        }
    }
    // A directory is one, whatever is doubtful.
    let store = open(&renamed(written(&[("a/__/b", b"evil"), ("b/c", b"good")]), b"a/__/b", b"a/../b")).unwrap();
    assert_eq!(read(&store, "b/c", Range::All).unwrap(), b"good");
    // A directory holds nothing by itself, and does not bring about the name that it means.
    let store = open(&renamed(written(&[("a/__/b/", b""), ("b", b"good"), ("a/c", b"1")]), b"a/__/b", b"a/../b")).unwrap();
    assert_eq!(read(&store, "b", Range::All).unwrap(), b"good");
    assert_eq!(names(&store, ""), [("a".into(), true), ("b".into(), false)]);
    assert_eq!(names(&store, "a"), [("c".into(), false)]);
    for name in ["a/b", "a/__/b", "a/__"] {
        assert_eq!(kind(&store, name), Kind::NotFound, "{name}");
    }
}

/// The directory and the local header may write a name differently, but none of them leads elsewhere.
#[test]
fn a_local_header_that_goes_up_is_another_name() {
    let archive = renamed(written(&[("xxxb", b"1"), ("good", b"2")]), b"xxxb", b".//b");
    assert_eq!(read(&open(&archive).unwrap(), "b", Range::All).unwrap(), b"1");
    for local in [b"../b", b"///b", b"b/.."] {
        let mut archive = archive.clone();
        let at = archive.windows(4).position(|bytes| bytes == b".//b").unwrap();
        archive[at..at + 4].copy_from_slice(local);
        let store = open(&archive).unwrap();
        assert_eq!(kind(&store, "b"), Kind::Corrupt, "{}", local.escape_ascii());
        assert_eq!(read(&store, "good", Range::All).unwrap(), b"2");
    }
    // For Python "File name in directory 'a/b' and header b'a\x00b' differ", and no name of two components.
    let mut archive = written(&[("a/b", b"1"), ("good", b"2")]);
    let at = archive.windows(3).position(|bytes| bytes == b"a/b").unwrap();
    archive[at + 1] = 0;
    assert_eq!(kind(&open(&archive).unwrap(), "a/b"), Kind::Corrupt);
}
