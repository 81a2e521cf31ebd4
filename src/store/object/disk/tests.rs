//! Damage, sharing and the bound, on real folders.

use super::*;
use std::fs;

fn meta(tag: &str, size: u64) -> Meta {
    let version = Version::Tag(tag.into());
    Meta { kind: ObjectKind::File, size, modified: shelf::time(1234), version, seekable: true }
}

fn read(disk: &Disk, key: &str, tag: &str, range: Range) -> Option<(Vec<u8>, Meta)> {
    let mut bytes = b"before".to_vec();
    let meta = disk.get("http://e", key, &Version::Tag(tag.into()), range, &mut bytes)?;
    Some((bytes, meta))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

// Waits for the thread that counts.
fn settle(disk: &Disk) {
    while disk.tidying.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_was_put_is_got_at_its_version_and_range_only() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(&folder.path().join("new/cache"), 1 << 20).unwrap();
    let part = Range::Part { offset: 3, length: 40 };
    disk.put("http://e", "k", &meta("\"a\"", 99), part, b"bytes");
    let (bytes, found) = read(&disk, "k", "\"a\"", part).unwrap();
    assert_eq!((bytes.as_slice(), found.size, found.modified), (&b"bytes"[..], 99, meta("", 0).modified));
    assert!(read(&disk, "k", "\"b\"", part).is_none() && read(&disk, "l", "\"a\"", part).is_none());
    assert!(read(&disk, "k", "\"a\"", Range::All).is_none());
    assert!(disk.get("http://f", "k", &Version::Tag("\"a\"".into()), part, &mut Vec::new()).is_none());
    // Versions that are not certain, and questions whether an object is there.
    for (tag, range) in [("W/\"a\"", part), ("99 bytes of 5", part), ("\"a\"", Range::Part { offset: 0, length: 1 })] {
        disk.put("http://e", "k", &meta(tag, 99), range, b"bytes");
        assert!(read(&disk, "k", tag, range).is_none());
    }
    // Another mount, later.
    let other = Disk::open(&folder.path().join("new/cache"), 1 << 20).unwrap();
    assert_eq!(read(&other, "k", "\"a\"", part).unwrap().0, b"bytes");
    assert_eq!((other.kept().hits, other.kept().bytes), (1, 5));
}

#[test]
fn damage_is_found_and_mended() {
    let folder = tempfile::tempdir().unwrap();
    let disk = Disk::open(folder.path(), 1 << 20).unwrap();
    let content: Vec<u8> = (0..5000_u32).flat_map(u32::to_le_bytes).collect();
    let put = || disk.put("http://e", "k", &meta("\"a\"", 20_000), Range::All, &content);
    put();
    settle(&disk);
    let all: Vec<_> = files(folder.path()).into_iter().filter(|f| !f.ends_with("lock")).collect();
    assert_eq!(all.len(), 2, "{all:?}");
    for file in &all {
        let whole = fs::read(file).unwrap();
        let cuts = (0..whole.len()).step_by(whole.len() / 16).map(|n| whole[..n].to_vec());
        let flips = (0..whole.len()).step_by(whole.len() / 16).map(|n| {
            let mut bytes = whole.clone();
            bytes[n] ^= 0x10;
            bytes
        });
        let zeros = [vec![0; whole.len()], [whole.as_slice(), b"more"].concat()];
        for bad in cuts.chain(flips).chain(zeros) {
            fs::write(file, &bad).unwrap();
            // The index may be torn behind its line without harm; the content may not.
            assert!(read(&disk, "k", "\"a\"", Range::All).is_none_or(|(bytes, _)| bytes == content));
            put();
            assert_eq!(read(&disk, "k", "\"a\"", Range::All).unwrap().0, content);
        }
        fs::remove_file(file).unwrap();
        assert!(read(&disk, "k", "\"a\"", Range::All).is_none());
        put();
    }
}

#[test]
fn what_was_used_longest_ago_goes_first_and_all_mounts_count() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 64 * weight(1000);
    let mounts = [Disk::open(folder.path(), limit).unwrap(), Disk::open(folder.path(), limit).unwrap()];
    for i in 0..200 {
        let disk = &mounts[i % 2];
        disk.put("http://e", &format!("k{i}"), &meta("\"a\"", 900), Range::All, &[7; 900]);
        if i % 10 == 0 {
            // Times are told apart by milliseconds.
            std::thread::sleep(Duration::from_millis(3));
            for disk in &mounts {
                assert!(read(disk, "k0", "\"a\"", Range::All).is_some(), "in use at {i}");
                settle(disk);
            }
        }
    }
    mounts.iter().for_each(|disk| settle(disk));
    mounts[0].tidy();
    assert!(mounts[0].kept().held <= limit);
    let left = cacache::list_sync(folder.path()).count();
    assert!((20..=64).contains(&left), "{left}");
    assert!(read(&mounts[0], "k199", "\"a\"", Range::All).is_some() && read(&mounts[0], "k1", "\"a\"", Range::All).is_none());
}

#[test]
fn mounts_that_share_a_folder_never_see_half_an_entry() {
    let folder = tempfile::tempdir().unwrap();
    let limit = 40 * weight(100_000);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let disk = Disk::open(folder.path(), limit).unwrap();
            scope.spawn(move || {
                for i in 0..60_u8 {
                    let key = format!("k{}", (i.wrapping_mul(7).wrapping_add(thread)) % 50);
                    let content = key.as_bytes().repeat(20_000);
                    match read(&disk, &key, "\"a\"", Range::All) {
                        Some((bytes, _)) => assert!(bytes == content, "{key}"),
                        None => disk.put("http://e", &key, &meta("\"a\"", 1), Range::All, &content),
                    }
                }
            });
        }
    });
}

#[test]
fn a_folder_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    assert_eq!(Disk::open(&file, 1).err().unwrap().kind(), crate::error::Kind::Usage);
}
