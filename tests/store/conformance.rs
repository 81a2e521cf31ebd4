//! What every store must do, as one list of assertions over a store that holds the fixture tree.

use chunkmount::error::Kind;
use chunkmount::store::{Key, ObjectKind, Range, Store, Version};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folder of fixtures.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/zips")
}

pub fn key(name: &str) -> Key {
    if name.is_empty() { Key::root() } else { Key::root().join(name).unwrap() }
}

/// The fixture tree, read by the standard library.
pub fn tree() -> BTreeMap<String, Vec<u8>> {
    fn walk(base: &Path, at: &Path, into: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(base, &path, into);
            } else {
                let name = path.strip_prefix(base).unwrap().to_str().unwrap().to_owned();
                into.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    let base = fixtures().join("tree");
    let mut tree = BTreeMap::new();
    walk(&base, &base, &mut tree);
    assert_eq!(tree.len(), 9);
    tree
}

pub fn read(store: &dyn Store, name: &str, range: Range) -> chunkmount::error::Result<Vec<u8>> {
    let mut bytes = b"left over".to_vec();
    let read = store.get(&key(name), range, None, u64::MAX, &mut bytes);
    assert!(read.is_ok() || bytes.is_empty(), "bytes of a failed read are left");
    read.map(|_| bytes)
}

pub fn kind(store: &dyn Store, name: &str) -> Kind {
    read(store, name, Range::All).unwrap_err().kind()
}

/// Names and kinds of a directory, sorted.
pub fn names(store: &dyn Store, name: &str) -> Vec<(String, bool)> {
    let listing = store.list(&key(name)).unwrap();
    let mut names: Vec<_> =
        listing.iter().map(|(n, k)| (String::from_utf8_lossy(n).into_owned(), k == ObjectKind::Directory)).collect();
    names.sort();
    names
}

/// Checks `store`, which holds the fixture tree and nothing else.
pub fn check(store: &dyn Store) {
    let tree = tree();
    let mut directories: BTreeMap<String, BTreeMap<String, bool>> = BTreeMap::new();
    for name in tree.keys() {
        let parts: Vec<_> = name.split('/').collect();
        for n in 0..parts.len() {
            let inner = n + 1 < parts.len();
            directories.entry(parts[..n].join("/")).or_default().insert(parts[n].to_owned(), inner);
        }
    }
    for (name, children) in &directories {
        let children: Vec<_> = children.iter().map(|(n, d)| (n.clone(), *d)).collect();
        assert_eq!(names(store, name), children, "{name}");
        let meta = store.head(&key(name)).unwrap();
        assert_eq!((meta.kind, meta.size), (ObjectKind::Directory, 0), "{name}");
        assert_eq!(kind(store, name), Kind::Corrupt, "{name}");
    }
    for (name, content) in &tree {
        file(store, name, content);
    }
    for absent in ["c", "a/2", "a/0/0", "a.", "a.b/emp", "b/c/d/0.0/x", "A/0", "b/c/d/0.00", &"n".repeat(255), &"n".repeat(3000)]
    {
        assert_eq!(store.head(&key(absent)).unwrap_err().kind(), Kind::NotFound, "{absent}");
        assert_eq!(store.list(&key(absent)).unwrap_err().kind(), Kind::NotFound, "{absent}");
        assert_eq!(kind(store, absent), Kind::NotFound, "{absent}");
    }
    let error = store.head(&key("a/2")).unwrap_err().to_string();
    assert!(error.contains("a/2"), "{error}");
    let before = store.requests();
    store.list(&Key::root()).unwrap();
    store.head(&Key::root()).unwrap();
    read(store, "a/0", Range::All).unwrap();
    let after = store.requests();
    assert_eq!((after.get - before.get, after.head - before.head, after.list - before.list), (1, 1, 1));
    assert!(after.bytes > before.bytes);
}

fn file(store: &dyn Store, name: &str, content: &[u8]) {
    let size = content.len() as u64;
    let meta = store.head(&key(name)).unwrap();
    assert_eq!((meta.kind, meta.size), (ObjectKind::File, size), "{name}");
    assert_eq!(read(store, name, Range::All).unwrap(), content, "{name}");
    assert_eq!(store.list(&key(name)).unwrap_err().kind(), Kind::NotFound, "{name}");
    for n in [0, 1, 3, 255, 8000, size, size + 1, u64::MAX] {
        let from = content.len() - (n.min(size) as usize);
        assert_eq!(read(store, name, Range::Suffix(n)).unwrap(), &content[from..], "{name} suffix {n}");
    }
    for (offset, length) in
        [(0, 0), (0, 1), (0, size), (1, 5), (100, 150), (200, 4000), (size, 1), (size + 1, 9), (5, u64::MAX), (u64::MAX, 1)]
    {
        let from = offset.min(size) as usize;
        let to = offset.saturating_add(length).min(size) as usize;
        let part = read(store, name, Range::Part { offset, length }).unwrap();
        assert_eq!(part, &content[from..to], "{name} {offset}+{length}");
    }
    // The version that is told is the version that is read.
    let mut bytes = vec![1; 5];
    let read = store.get(&key(name), Range::All, Some(&meta.version), size, &mut bytes).unwrap();
    assert_eq!((read.version, read.size, bytes.as_slice()), (meta.version, size, content), "{name}");
    let pin = Version::Tag("never".into());
    let e = store.get(&key(name), Range::All, Some(&pin), size, &mut bytes).unwrap_err();
    assert_eq!((e.kind(), bytes.len()), (Kind::Changed, 0), "{name}");
    if size > 0 {
        let e = store.get(&key(name), Range::All, None, size - 1, &mut bytes).unwrap_err();
        assert_eq!(e.kind(), Kind::TooBig, "{name}");
        store.get(&key(name), Range::Suffix(1), None, 1, &mut bytes).unwrap();
    }
}
