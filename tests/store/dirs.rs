//! Directories: links, special files, changes underneath, long names.

use crate::conformance::{key, kind, names, read};
use chunkmount::error::Kind;
use chunkmount::store::dir::{DirOptions, DirStore};
use chunkmount::store::{Key, ObjectKind, Range, Store};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn open(path: &Path) -> DirStore {
    DirStore::open(path, DirOptions::default()).unwrap()
}

#[test]
fn links_inside_are_followed_and_others_denied() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    let outside = temp.path().join("outside");
    std::fs::create_dir_all(root.join("a/b")).unwrap();
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(root.join("a/b/f"), "inside").unwrap();
    std::fs::write(outside.join("f"), "outside").unwrap();
    symlink("a/b/f", root.join("file")).unwrap();
    symlink("a/b", root.join("dir")).unwrap();
    symlink(root.join("a/b"), root.join("absolute")).unwrap();
    symlink("../root/a/b", root.join("around")).unwrap();
    symlink("../outside", root.join("out")).unwrap();
    symlink(outside.join("f"), root.join("out.f")).unwrap();
    symlink("a/b/none", root.join("dangling")).unwrap();
    symlink("../gone", root.join("gone")).unwrap();
    symlink("..", root.join("a/up")).unwrap();
    symlink("self", root.join("self")).unwrap();
    let store = open(&root);
    for name in ["file", "dir/f", "absolute/f", "around/f"] {
        assert_eq!(read(&store, name, Range::All).unwrap(), b"inside", "{name}");
    }
    assert_eq!(names(&store, "absolute"), [("f".into(), false)]);
    for name in ["out/f", "out", "out.f", "out/absent"] {
        for e in [store.head(&key(name)).unwrap_err(), read(&store, name, Range::All).unwrap_err()] {
            assert_eq!(e.kind(), Kind::Denied, "{name}");
            assert!(e.to_string().contains("--follow-symlinks") && e.to_string().starts_with(name), "{e}");
        }
    }
    assert_eq!(store.list(&key("out")).unwrap_err().kind(), Kind::Denied);
    // What was not fetched or mounted is not absent.
    for name in ["dangling", "dangling/x", "gone", "gone/f"] {
        assert_eq!(kind(&store, name), Kind::Dangling, "{name}");
        assert_eq!(store.head(&key(name)).unwrap_err().kind(), Kind::Dangling, "{name}");
    }
    assert_eq!(store.head(&key("a/up")).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(store.list(&key("a/up/a")).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(kind(&store, "self"), Kind::Unavailable);
    for name in ["dir/none", "absolute/none", "around/none/x"] {
        assert_eq!(kind(&store, name), Kind::NotFound, "{name}");
    }
    let kinds: Vec<_> = names(&store, "").into_iter().filter(|(_, directory)| *directory).map(|(n, _)| n).collect();
    assert_eq!(kinds, ["a", "absolute", "around", "dir"]);
    assert_eq!(names(&store, "a"), [("b".into(), true), ("up".into(), false)]);

    let store = DirStore::open(&root, DirOptions { follow_symlinks: true }).unwrap();
    for name in ["out/f", "out.f"] {
        assert_eq!(read(&store, name, Range::All).unwrap(), b"outside", "{name}");
    }
    assert_eq!(store.head(&key("out")).unwrap().kind, ObjectKind::Directory);
    assert_eq!(store.head(&key("out/absent")).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(kind(&store, "gone/f"), Kind::Dangling);
    assert_eq!(store.head(&key("a/up")).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn special_files_are_refused_unopened() {
    let temp = tempfile::tempdir().unwrap();
    let fifo = temp.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(temp.path().join("socket")).unwrap();
    symlink("fifo", temp.path().join("link")).unwrap();
    let store = open(temp.path());
    for name in ["fifo", "socket", "link"] {
        assert_eq!(kind(&store, name), Kind::Corrupt, "{name}");
        assert_eq!(store.head(&key(name)).unwrap_err().kind(), Kind::Corrupt, "{name}");
        // Nor is it known what should lie below.
        assert_eq!(store.list(&key(name)).unwrap_err().kind(), Kind::Corrupt, "{name}");
        for below in ["x", "x/y"] {
            assert_eq!(store.head(&key(name).join(below).unwrap()).unwrap_err().kind(), Kind::Corrupt, "{name}/{below}");
        }
    }
    // Below a file there is nothing; that a link leads to one may be a mistake.
    std::fs::write(temp.path().join("file"), "").unwrap();
    symlink("file", temp.path().join("aside")).unwrap();
    for (name, kind) in [("file", Kind::NotFound), ("aside", Kind::Corrupt)] {
        assert_eq!(store.list(&key(name)).unwrap_err().kind(), kind, "{name}");
        for below in ["x", "x/y"] {
            assert_eq!(store.head(&key(name).join(below).unwrap()).unwrap_err().kind(), kind, "{name}/{below}");
        }
    }
}

/// What is told of many files at a time is what is told of each; what needs more than a look is left to that.
#[test]
fn many_files_are_told_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    std::fs::create_dir_all(root.join("d/directory")).unwrap();
    let names: Vec<String> = (0..3000).map(|n| format!("f{n}")).collect();
    names.iter().enumerate().for_each(|(n, name)| std::fs::write(root.join("d").join(name), vec![0; n]).unwrap());
    symlink("f1", root.join("d/link")).unwrap();
    symlink("none", root.join("d/dangling")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, root.join("d/fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let store = open(&root);
    let odd = ["link", "dangling", "fifo", "absent"];
    let asked: Vec<&[u8]> = names.iter().map(String::as_str).chain(odd).chain(["directory"]).map(str::as_bytes).collect();
    let told = store.heads(&key("d"), &asked);
    assert_eq!(told.len(), asked.len());
    for (name, told) in asked.iter().zip(&told) {
        let name = std::str::from_utf8(name).unwrap();
        let alone = store.head(&key(&format!("d/{name}")));
        match told {
            Some(told) => {
                let alone = alone.unwrap();
                assert_eq!(
                    (told.kind, told.size, told.modified, &told.version),
                    (alone.kind, alone.size, alone.modified, &alone.version)
                );
            }
            None => assert!(odd.contains(&name), "{name}"),
        }
    }
    assert!(store.heads(&key("none"), &asked).iter().all(Option::is_none));
}

#[test]
fn changes_underneath_are_seen() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("root");
    std::fs::create_dir_all(root.join("d")).unwrap();
    std::fs::write(root.join("f"), "one").unwrap();
    let store = open(&root);
    let before = store.head(&key("f")).unwrap();
    std::fs::write(root.join("g"), "two").unwrap();
    std::fs::rename(root.join("g"), root.join("f")).unwrap();
    let mut bytes = Vec::new();
    let e = store.get(&key("f"), Range::All, Some(&before.version), 9, &mut bytes).unwrap_err();
    assert_eq!(e.kind(), Kind::Changed);
    assert_eq!(read(&store, "f", Range::All).unwrap(), b"two");
    std::fs::remove_dir_all(root.join("d")).unwrap();
    assert_eq!(store.list(&key("d")).unwrap_err().kind(), Kind::NotFound);
    std::fs::remove_dir_all(&root).unwrap();
    for name in ["f", "absent", "d/x"] {
        assert_eq!(kind(&store, name), Kind::Unavailable, "{name}");
        assert_eq!(store.head(&key(name)).unwrap_err().kind(), Kind::Unavailable, "{name}");
    }
    assert_eq!(store.list(&Key::root()).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn long_names_and_keys_are_reached() {
    let temp = tempfile::tempdir().unwrap();
    let store = open(temp.path());
    // 16 components of 255 bytes: longer with the name of the file than the kernel takes at once.
    let part = "n".repeat(255);
    let mut at = rustix::fs::open(temp.path(), rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..15 {
        rustix::fs::mkdirat(&at, part.as_str(), rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, part.as_str(), rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap();
    }
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CREATE;
    let file = rustix::fs::openat(&at, part.as_str(), flags, rustix::fs::Mode::RUSR).unwrap();
    rustix::io::write(&file, b"far").unwrap();
    let name = vec![part.as_str(); 16].join("/");
    assert_eq!(name.len(), 4095);
    assert_eq!(read(&store, &name, Range::All).unwrap(), b"far");
    assert_eq!(store.head(&key(&name[..3839])).unwrap().kind, ObjectKind::Directory);
    assert_eq!(kind(&store, &format!("{}m", &name[..4094])), Kind::NotFound);
    assert_eq!(names(&store, &name[..3839]), [(part, false)]);
}

#[test]
fn what_is_no_directory_does_not_open() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("f"), "x").unwrap();
    for name in ["f", "absent"] {
        let e = DirStore::open(temp.path().join(name), DirOptions::default()).err().unwrap();
        assert_eq!(e.kind(), Kind::NotFound);
        assert!(e.to_string().contains(name));
    }
}

/// Ends another thread when it is dropped, by a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes are those of the file as it was at one time, or there is an error: nothing is short, and no zeros fill what is gone.
#[test]
fn a_file_that_is_cut_and_lengthened_is_whole_or_an_error() {
    let temp = tempfile::tempdir().unwrap();
    // No byte is zero, and the file is always the beginning of this.
    let content: Vec<u8> = (0..50_001u32).map(|n| u8::try_from(n % 251 + 1).unwrap()).collect();
    let path = temp.path().join("f");
    std::fs::write(&path, &content).unwrap();
    let store = open(temp.path());
    let ends = AtomicBool::new(false);
    let (mut whole, mut failed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            for length in [0, 1, 4096, 25_000, 50_000].into_iter().cycle() {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                file.set_len(length).unwrap();
                std::thread::yield_now();
                file.write_all_at(&content[usize::try_from(length).unwrap()..], length).unwrap();
                std::thread::yield_now();
            }
        });
        let _end = Ends(&ends);
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) || (whole == 0 || failed == 0) && start.elapsed() < Duration::from_secs(30)
        {
            for range in [Range::All, Range::Part { offset: 4000, length: 40_000 }, Range::Suffix(30_000)] {
                // Into a new buffer, and into one that is there.
                for mut bytes in [Vec::new(), vec![9; 60_000]] {
                    match store.get(&key("f"), range, None, u64::MAX, &mut bytes) {
                        Ok(meta) => {
                            let (from, to) = range.within(meta.size);
                            let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
                            assert!(bytes == content[from..to], "{range:?} of {} bytes gave {}", meta.size, bytes.len());
                            whole += 1;
                        }
                        Err(e) => {
                            assert_eq!((e.kind(), bytes.len()), (Kind::Changed, 0), "{e}");
                            failed += 1;
                        }
                    }
                }
            }
        }
    });
    assert!(whole > 0 && failed > 0, "{whole} were whole, {failed} failed");
}
