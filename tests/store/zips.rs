//! Archives: damage, lies and odd names, patched into archives of other people's software.

use crate::conformance::{fixtures, key, kind, names, read, tree};
use chunkmount::error::{Error, Kind, Result};
use chunkmount::store::dir::{DirOptions, DirStore};
use chunkmount::store::faulty::{Call, Effect, Fault, Faulty};
use chunkmount::store::mem::MemStore;
use chunkmount::store::nested::NestedStore;
use chunkmount::store::zip::ZipStore;
use chunkmount::store::{Key, ObjectKind, Range, Store};
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zip::write::SimpleFileOptions;

/// How long any archive may take to be opened or refused.
const SOON: Duration = Duration::from_secs(1);

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(fixtures().join(name)).unwrap()
}

pub fn open(bytes: &[u8]) -> Result<ZipStore> {
    let store = MemStore::new();
    store.put(key("x.zip"), bytes);
    ZipStore::open(Arc::new(store), key("x.zip"))
}

fn refused(bytes: &[u8]) -> Error {
    let e = open(bytes).err().expect("refused");
    assert!(e.to_string().starts_with("x.zip"), "{e}");
    e
}

/// Where the directory record of an entry begins.
fn record(bytes: &[u8], name: &str) -> usize {
    let end = bytes.windows(4).rposition(|w| w == b"PK\x05\x06").unwrap();
    let mut at = u32::from_le_bytes(bytes[end + 16..end + 20].try_into().unwrap()) as usize;
    while bytes[at..].starts_with(b"PK\x01\x02") {
        let field = |o: usize| u16::from_le_bytes(bytes[at + o..at + o + 2].try_into().unwrap()) as usize;
        let (n, m, k) = (field(28), field(30), field(32));
        if &bytes[at + 46..at + 46 + n] == name.as_bytes() {
            return at;
        }
        at += 46 + n + m + k;
    }
    panic!("{name} is not in the directory");
}

/// An archive in which bytes of the directory record of one entry are replaced.
fn patched(archive: &str, name: &str, at: usize, bytes: &[u8]) -> ZipStore {
    let mut archive = fixture(archive);
    let at = record(&archive, name) + at;
    archive[at..at + bytes.len()].copy_from_slice(bytes);
    open(&archive).unwrap()
}

/// The other entries still read.
fn rest_is_right(store: &ZipStore, except: &str) {
    for (name, content) in tree() {
        if name != except {
            assert_eq!(read(store, &name, Range::All).unwrap(), content, "{name}");
        }
    }
}

pub fn written(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in entries {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored)).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The same with one name put in the place of another of the same length, in both headers.
pub fn renamed(mut archive: Vec<u8>, from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    for at in 0..archive.len() - from.len() {
        if &archive[at..at + from.len()] == from {
            archive[at..at + from.len()].copy_from_slice(to);
        }
    }
    archive
}

#[test]
fn lies_of_one_entry_stay_with_it() {
    for (archive, at, bytes, expected) in [
        ("python-stored.zip", 24, &10_u32.to_le_bytes()[..], Kind::Corrupt),
        ("python-deflated.zip", 24, &10_u32.to_le_bytes(), Kind::Corrupt),
        ("python-deflated.zip", 24, &3001_u32.to_le_bytes(), Kind::Corrupt),
        ("python-deflated.zip", 24, &0x7fff_ffff_u32.to_le_bytes(), Kind::Corrupt),
        ("python-deflated.zip", 20, &0x7fff_ffff_u32.to_le_bytes(), Kind::Corrupt),
        ("python-stored.zip", 20, &0x7fff_ffff_u32.to_le_bytes(), Kind::Corrupt),
        ("python-stored.zip", 24, &0xffff_ffff_u32.to_le_bytes(), Kind::Corrupt),
        ("python-stored.zip", 42, &0x7fff_ffff_u32.to_le_bytes(), Kind::Corrupt),
        ("python-stored.zip", 42, &0_u32.to_le_bytes(), Kind::Corrupt),
        ("python-stored.zip", 42, &1_u32.to_le_bytes(), Kind::Corrupt),
        ("python-stored.zip", 16, &[0; 4], Kind::Corrupt),
        ("python-deflated.zip", 16, &[0; 4], Kind::Corrupt),
        ("python-bzip2.zip", 24, &10_u32.to_le_bytes(), Kind::Corrupt),
        ("python-bzip2.zip", 16, &[0; 4], Kind::Corrupt),
        ("python-lzma.zip", 24, &3001_u32.to_le_bytes(), Kind::Corrupt),
        ("zstd.zip", 24, &3001_u32.to_le_bytes(), Kind::Corrupt),
        ("xz.zip", 24, &2999_u32.to_le_bytes(), Kind::Corrupt),
        ("python-stored.zip", 8, &[1, 0], Kind::Unsupported),
        // APPNOTE 4.4.4: bit 5 is a patch, bit 6 strong encryption, bit 13 a masked directory.
        ("python-stored.zip", 8, &[0x20, 0], Kind::Unsupported),
        ("python-stored.zip", 8, &[0x40, 0], Kind::Unsupported),
        ("python-deflated.zip", 8, &[0, 0x20], Kind::Unsupported),
        ("python-stored.zip", 10, &[97, 0], Kind::Unsupported),
        ("python-stored.zip", 10, &[8, 0], Kind::Corrupt),
    ] {
        let store = patched(archive, "a/1", at, bytes);
        let e = read(&store, "a/1", Range::All).unwrap_err();
        assert_eq!(e.kind(), expected, "{archive} {at} {e}");
        assert!(e.to_string().starts_with("a/1: "), "{e}");
        rest_is_right(&store, "a/1");
    }
    let e = read(&patched("python-stored.zip", "a/1", 10, &[97, 0]), "a/1", Range::All).unwrap_err();
    assert!(e.reason().contains("97"), "{e}");
}

/// What lies beside the content of an entry, such as the next header, is never a part of it: no checksum is of a part.
#[test]
fn lies_of_one_entry_give_no_part_either() {
    let parts = [Range::Part { offset: 2990, length: 10 }, Range::Part { offset: 0, length: 10 }];
    for (archive, size) in
        [("python-stored.zip", 3001), ("python-stored.zip", 2999), ("python-deflated.zip", 2999), ("zstd.zip", 2999)]
    {
        let store = patched(archive, "a/1", 24, &u32::to_le_bytes(size));
        let to_the_end = read(&store, "a/1", Range::Suffix(10)).unwrap_err();
        assert_eq!(to_the_end.kind(), Kind::Corrupt, "{archive} {size}");
        if archive == "python-stored.zip" {
            parts.iter().for_each(|part| assert_eq!(kind_of(read(&store, "a/1", *part)), Some(Kind::Corrupt), "{size} {part:?}"));
        }
    }
    // What is right, to the end and so with its checksum.
    let content = &tree()["a/1"];
    for archive in ["python-stored.zip", "python-deflated.zip", "python-bzip2.zip", "python-lzma.zip", "zstd.zip", "xz.zip"] {
        let store = open(&fixture(archive)).unwrap();
        for length in [1, 10, content.len() - 1] {
            let found = read(&store, "a/1", Range::Suffix(length as u64)).unwrap();
            assert_eq!(found, content[content.len() - length..], "{archive} {length}");
        }
    }
    // The last entry, whose content would reach into the directory.
    let good = written(&[("entry", b"0123456789")]);
    let mut long = good.clone();
    let at = record(&good, "entry");
    for field in [20, 24] {
        long[at + field..at + field + 4].copy_from_slice(&14_u32.to_le_bytes());
    }
    assert_eq!(read(&open(&good).unwrap(), "entry", Range::Part { offset: 8, length: 2 }).unwrap(), b"89");
    assert_eq!(kind_of(read(&open(&long).unwrap(), "entry", Range::Part { offset: 8, length: 4 })), Some(Kind::Corrupt));
}

fn kind_of(read: Result<Vec<u8>>) -> Option<Kind> {
    read.err().map(|e| e.kind())
}

/// The header before the content may say otherwise than the directory: its flags, and its method.
#[test]
fn headers_that_contradict_the_directory_are_not_read_past() {
    let good = fixture("python-stored.zip");
    let record = record(&good, "a/1");
    let header = u32::from_le_bytes(good[record + 42..record + 46].try_into().unwrap()) as usize;
    for (at, bytes, expected) in [
        (6, [1, 0], Kind::Unsupported),
        (6, [0x40, 0], Kind::Unsupported),
        (6, [0, 0x20], Kind::Unsupported),
        (8, [8, 0], Kind::Corrupt),
        (8, [12, 0], Kind::Corrupt),
    ] {
        let mut bad = good.clone();
        bad[header + at..header + at + 2].copy_from_slice(&bytes);
        let store = open(&bad).unwrap();
        for range in [Range::All, Range::Part { offset: 1, length: 10 }, Range::Suffix(10)] {
            assert_eq!(kind_of(read(&store, "a/1", range)), Some(expected), "{at} {bytes:?} {range:?}");
        }
        rest_is_right(&store, "a/1");
    }
}

#[test]
fn damaged_content_is_never_served_whole() {
    for archive in
        ["python-stored.zip", "python-deflated.zip", "python-bzip2.zip", "python-lzma.zip", "zstd.zip", "xz.zip", "7z-lzma.zip"]
    {
        let bytes = fixture(archive);
        let content = &tree()["a/10"];
        let header = bytes.windows(34).position(|w| w.starts_with(b"PK\x03\x04") && &w[30..] == b"a/10").unwrap();
        let stored = u32::from_le_bytes(bytes[header + 18..header + 22].try_into().unwrap()) as usize;
        for at in (header + 34..header + 34 + stored).step_by(7) {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x10;
            let store = open(&bytes).unwrap();
            let content_or_error = read(&store, "a/10", Range::All);
            assert!(content_or_error.as_ref().map_or_else(|e| e.kind() == Kind::Corrupt, |c| c == content), "{archive} {at}");
        }
    }
}

#[test]
fn lies_of_the_end_are_refused() {
    let good = fixture("python-stored.zip");
    let end = good.len() - 22;
    // One entry fewer than there are, as both counts say.
    let fewer = [good[end + 8] - 1, good[end + 9], good[end + 10] - 1, good[end + 11]];
    for (at, bytes) in [
        (8, &[0xff_u8, 0, 0xff, 0][..]),
        (10, &[8, 0]),
        (8, &fewer),
        (12, &[0xff, 0xff, 0xff, 0x7f]),
        (12, &[1, 0, 0, 0]),
        (16, &[0xff, 0xff, 0xff, 0x7f]),
        (20, &[5, 0]),
    ] {
        let mut bad = good.clone();
        bad[end + at..end + at + bytes.len()].copy_from_slice(bytes);
        assert!(matches!(refused(&bad).kind(), Kind::Corrupt | Kind::Unsupported), "{at}");
    }
    // What Info-ZIP 3.0 writes into a pipe, forced to zip64: a directory position that is in a record which is not there.
    let mut odd = good.clone();
    odd[end + 16..end + 20].copy_from_slice(&[0xff; 4]);
    rest_is_right(&open(&odd).unwrap(), "");
    // A locator to nowhere.
    let mut bad = good[..end].to_vec();
    bad.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    bad.extend_from_slice(&(1_u64 << 62).to_le_bytes());
    bad.extend_from_slice(&[1, 0, 0, 0]);
    bad.extend_from_slice(&good[end..]);
    assert_eq!(refused(&bad).kind(), Kind::Corrupt);
    for (bytes, says) in [(&b""[..], "0 bytes"), (b"PK\x03\x04", "no end record"), (&good[..good.len() / 2], "no end record")] {
        let e = refused(bytes);
        assert_eq!(e.kind(), Kind::Corrupt);
        assert!(e.reason().contains(says), "{e}");
    }
}

/// APPNOTE 4.3.14: the size of the zip64 end record counts what follows its first twelve bytes, an extensible data sector included.
#[test]
fn a_long_end_record_is_found_behind_what_lies_before_the_archive() {
    for archive in ["python-zip64-end.zip", "python-zip64-sfx.zip"] {
        let good = fixture(archive);
        let locator = good.windows(4).rposition(|w| w == b"PK\x06\x07").unwrap();
        // The sector begins with what looks like a record, and holds one that ends where the record does.
        let fake = [&good[locator - 56..locator - 52], &44_u64.to_le_bytes(), &[0; 44][..]].concat();
        for sector in [&[7_u8; 300][..], &fake, &[&fake[..], &[1; 9], &fake].concat()] {
            let mut long = [&good[..locator], sector, &good[locator..]].concat();
            long[locator - 52..locator - 44].copy_from_slice(&(44 + sector.len() as u64).to_le_bytes());
            rest_is_right(&open(&long).unwrap(), "");
            // Neither the sizes of the directory nor the place of the record fit another place.
            let mut bad = long.clone();
            bad[locator - 56 + 48] ^= 1;
            assert_eq!(refused(&bad).kind(), Kind::Corrupt, "{archive}");
        }
    }
    let e = refused(&[&fixture("python-stored.zip")[..], b"more"].concat());
    assert!(e.reason().contains("after it"), "{e}");
}

#[test]
fn a_cut_archive_is_refused_or_whole() {
    for archive in ["python-stream.zip", "python-deflated.zip", "python-zip64-end.zip", "python-sfx.zip", "bsdtar-pipe.zip"] {
        let good = fixture(archive);
        let first = good.len().saturating_sub(1500);
        for length in first..good.len() {
            // The best of three: somebody else may have the processor meanwhile.
            let opened = (0..3).find_map(|_| {
                let start = Instant::now();
                let store = open(&good[..length]);
                (start.elapsed() < SOON).then_some(store)
            });
            match opened.unwrap_or_else(|| panic!("{archive} of {length} bytes takes too long")) {
                Ok(store) => rest_is_right(&store, ""),
                Err(e) => assert_eq!(e.kind(), Kind::Corrupt, "{archive} of {length} bytes: {e}"),
            }
        }
    }
    // An archive that ends in an archive: what is left of the outer one must not be taken for the inner one.
    let inner = written(&[("inside", b"1")]);
    let outer = written(&[("a", b"2"), ("inner.zip", &inner)]);
    let start = outer.windows(inner.len()).position(|w| w == inner).unwrap();
    for length in start..outer.len() {
        assert_eq!(refused(&outer[..length]).kind(), Kind::Corrupt);
    }
    let store = open(&outer).unwrap();
    let nested = ZipStore::open(Arc::new(store), key("inner.zip")).unwrap();
    assert_eq!(read(&nested, "inside", Range::All).unwrap(), b"1");
}

#[test]
fn a_damaged_archive_in_an_archive_fails_alone() {
    let inner = written(&[("zarr.json", b"{}")]);
    let mut outer = written(&[("a", b"1"), ("bad.zip", &inner), ("good.zip", &inner)]);
    // Sizes that only a zip64 field could tell, and there is none.
    let at = record(&outer, "bad.zip");
    outer[at + 20..at + 28].fill(0xff);
    let store = NestedStore::wrap(open(&outer).unwrap(), chunkmount::format::is_mark);
    let listed: Vec<_> = store.list(&Key::root()).unwrap().iter().map(|(name, kind)| (name.to_vec(), kind)).collect();
    let kind_of = |name: &str| listed.iter().find(|(n, _)| n == name.as_bytes()).map(|(_, kind)| *kind);
    assert_eq!((kind_of("bad.zip"), kind_of("good.zip")), (Some(ObjectKind::File), Some(ObjectKind::Directory)));
    assert_eq!(store.head(&key("bad.zip")).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(read(&*store, "good.zip/zarr.json", Range::All).unwrap(), b"{}");
}

#[test]
fn a_flipped_directory_is_an_error_or_an_archive() {
    for archive in ["python-deflated.zip", "infozip-zip64.zip", "bsdtar.zip"] {
        let good = fixture(archive);
        let start = good.windows(4).position(|w| w == b"PK\x01\x02").unwrap();
        let content = tree();
        for at in start..good.len() {
            for bit in [0, 3, 7] {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let Ok(store) = open(&bad) else { continue };
                for (name, content) in &content {
                    if let Ok(bytes) = read(&store, name, Range::All) {
                        assert_eq!(&bytes, content, "{archive} {at} {bit} {name}");
                    }
                    let _ = read(&store, name, Range::Part { offset: 1, length: 5 });
                    let _ = store.head(&key(name));
                }
            }
        }
    }
}

#[test]
fn links_are_not_followed() {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    writer.add_symlink("etc", "/etc", SimpleFileOptions::default()).unwrap();
    writer.start_file("good", SimpleFileOptions::default()).unwrap();
    writer.write_all(b"1").unwrap();
    let store = open(&writer.finish().unwrap().into_inner()).unwrap();
    for name in ["etc", "etc/passwd"] {
        assert_eq!(kind(&store, name), Kind::Unsupported, "{name}");
        assert_eq!(store.head(&key(name)).unwrap_err().kind(), Kind::Unsupported, "{name}");
    }
    assert_eq!(names(&store, ""), [("etc".into(), false), ("good".into(), false)]);
    assert_eq!(kind(&store, "none"), Kind::NotFound);
}

#[test]
fn a_single_folder_is_entered() {
    let folder = |entries: &[(&str, &[u8])]| open(&written(entries)).unwrap().folder();
    assert_eq!(folder(&[("x.zarr/.zgroup", b""), ("x.zarr/a/0", b"")]), Some("x.zarr".into()));
    assert_eq!(folder(&[("x/a", b""), ("__MACOSX/x/._a", b""), (".DS_Store", b"")]), Some("x".into()));
    assert_eq!(folder(&[("x/a", b""), ("y/a", b"")]), None);
    assert_eq!(folder(&[("x/a", b""), (".zgroup", b"")]), None);
    assert_eq!(folder(&[("x", b"")]), None);
    let store = open(&fixture("python-folder.zip")).unwrap();
    assert_eq!(store.folder(), Some("store.zarr".into()));
    assert_eq!(kind(&store, "store.zarr/a/0"), Kind::NotFound);
}

#[test]
fn a_replaced_container_changes_everything() {
    let memory = Arc::new(MemStore::new());
    memory.put(key("x.zip"), fixture("python-stored.zip"));
    let container: Arc<dyn Store> = memory.clone();
    let store = ZipStore::open(container, key("x.zip")).unwrap();
    assert!(read(&store, "a/0", Range::All).is_ok());
    memory.put(key("x.zip"), fixture("python-stored.zip"));
    for name in ["a/0", "a/1"] {
        assert_eq!(kind(&store, name), Kind::Changed, "{name}");
    }
    let faulty = Arc::new(Faulty::new(memory.clone()));
    let container: Arc<dyn Store> = faulty.clone();
    let store = ZipStore::open(container, key("x.zip")).unwrap();
    faulty.always(Call::Get, key("x.zip"), Effect::Fail(Kind::TimedOut, "slow".into()));
    assert_eq!(kind(&store, "a/0"), Kind::TimedOut);
    assert_eq!(kind(&store, "absent"), Kind::NotFound);
    faulty.heal();
    faulty.always(Call::Get, key("x.zip"), Effect::Short(20));
    assert_eq!(kind(&store, "a/0"), Kind::Unavailable);
    assert_eq!(read(&store, "a/1", Range::Suffix(9)).unwrap_err().kind(), Kind::Unavailable);
    // A deleted archive says nothing of its entries.
    faulty.heal();
    memory.delete(&key("x.zip"));
    for (name, range) in [("a/0", Range::All), ("a/1", Range::Suffix(9))] {
        assert_eq!(read(&store, name, range).unwrap_err().kind(), Kind::Changed, "{name}");
    }
}

/// What `ZipWriter::new_append` and Python's mode "a" do: entries are put in the place of the directory, and a new one behind them.
#[test]
fn an_archive_that_grew_changes_everything() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("x.zip");
    std::fs::write(&path, fixture("python-deflated.zip")).unwrap();
    let container: Arc<dyn Store> = Arc::new(DirStore::open(temp.path(), DirOptions::default()).unwrap());
    let before = ZipStore::open(container.clone(), key("x.zip")).unwrap();
    let head = before.head(&key("a/0")).unwrap();
    rest_is_right(&before, "");
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let mut writer = zip::ZipWriter::new_append(file).unwrap();
    writer.start_file("new", SimpleFileOptions::default()).unwrap();
    writer.write_all(b"1").unwrap();
    writer.finish().unwrap();
    // Bytes of old entries are where they were, but that is more than anybody knows.
    for name in ["a/0", "a/1", "b/c/d/0.0"] {
        assert_eq!(kind(&before, name), Kind::Changed, "{name}");
        let e = read(&before, name, Range::Part { offset: 0, length: 1 }).unwrap_err();
        assert_eq!(e.errno(), libc::ESTALE, "{name}: {e}");
    }
    assert_eq!(kind(&before, "new"), Kind::NotFound);
    let now = ZipStore::open(container, key("x.zip")).unwrap();
    rest_is_right(&now, "");
    assert_eq!(read(&now, "new", Range::All).unwrap(), b"1");
    let e = now.get(&key("a/0"), Range::All, Some(&head.version), u64::MAX, &mut Vec::new()).unwrap_err();
    assert_eq!(e.kind(), Kind::Changed);
}

/// Deleted between the first read and the second one.
#[test]
fn an_archive_that_is_deleted_while_it_is_opened_is_changed() {
    let memory = Arc::new(MemStore::new());
    // The directory is longer than what is read at first.
    let names: Vec<_> = (0..6000).map(|i| format!("a-rather-long-name-of-an-entry-{i}")).collect();
    let entries: Vec<_> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    memory.put(key("x.zip"), written(&entries));
    let faulty = Faulty::new(memory);
    faulty.add(Fault {
        call: Some(Call::Get),
        key: None,
        after: 1,
        times: 1,
        effect: Effect::Fail(Kind::NotFound, "gone".into()),
    });
    assert_eq!(ZipStore::open(Arc::new(faulty), key("x.zip")).err().unwrap().kind(), Kind::Changed);
}

#[test]
fn reads_cost_one_request_each() {
    let faulty = Arc::new(Faulty::new(Arc::new(MemStore::new())));
    let memory = MemStore::new();
    let big = vec![7; 200_000];
    memory.put(key("x.zip"), written(&[("big", &big), ("small", b"1")]));
    drop(faulty);
    let faulty = Arc::new(Faulty::new(Arc::new(memory)));
    let container: Arc<dyn Store> = faulty.clone();
    let store = ZipStore::open(container, key("x.zip")).unwrap();
    let cost = |name: &str, range| {
        let before = faulty.calls().len();
        read(&store, name, range).unwrap();
        faulty.calls().len() - before
    };
    assert_eq!(faulty.calls().len(), 1);
    assert_eq!(cost("small", Range::All), 1);
    // The local header first, then every range alone.
    assert_eq!(cost("big", Range::Suffix(16)), 2);
    assert_eq!(cost("big", Range::Part { offset: 100_000, length: 10 }), 1);
    assert_eq!(cost("big", Range::All), 1);
    // "PK\3\4" and its fields take 30 bytes, the name 3; no extra field is written for small files.
    assert_eq!(store.locate(&key("big")), "x.zip/big[33+200000]");
    assert!(store.head(&key("big")).unwrap().seekable);
}
