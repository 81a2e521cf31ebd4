//! Zip archives: the directory, and the content of every entry; and archives in archives.

use chunkmount::format::is_mark;
use chunkmount::store::mem::MemStore;
use chunkmount::store::nested::NestedStore;
use chunkmount::store::zip::ZipStore;
use chunkmount::store::{Key, Meta, ObjectKind, Range, Store};
use std::sync::Arc;

/// Most names that are looked at.
const NAMES: usize = 128;
/// Largest entry that is read, in bytes.
const ENTRY: u64 = 64 << 10;

/// An archive, opened with and without entering its folder and its archives.
pub fn target(data: &[u8]) {
    let container = Arc::new(MemStore::new());
    let key = Key::root().join("archive").unwrap_or_else(|e| panic!("{e}"));
    container.put(key.clone(), data);
    let Ok(plain) = ZipStore::open_plain(container.clone(), key.clone()) else {
        assert!(ZipStore::open(container, key).is_err());
        return;
    };
    assert!(plain.entries() <= data.len() / 46);
    // Names are held once, and what is held of an entry is bounded.
    assert!(plain.weight() <= data.len() * 16 + (64 << 10), "{} bytes for {}", plain.weight(), data.len());
    walk(&plain);
    let entered = ZipStore::open(container, key).unwrap_or_else(|e| panic!("{e}"));
    if entered.folder().is_some() {
        walk(&entered);
    }
    walk(&*NestedStore::wrap(entered, is_mark));
}

fn walk(store: &dyn Store) {
    let mut left = NAMES;
    let mut folders = vec![Key::root()];
    while let Some(folder) = folders.pop() {
        let listing = store.list(&folder).unwrap_or_else(|e| panic!("{e}"));
        let mut names: Vec<&[u8]> = listing.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "a name twice in {folder}");
        for (name, kind) in listing.iter() {
            left = left.saturating_sub(1);
            if left == 0 {
                return;
            }
            let key = match folder.join(name) {
                Ok(key) => key,
                Err(e) => panic!("{name:?} in {folder}: {e}"),
            };
            match store.head(&key) {
                Ok(meta) => {
                    assert_eq!(meta.kind, kind, "{key}");
                    match kind {
                        ObjectKind::Directory => folders.push(key),
                        ObjectKind::File => entry(store, &key, &meta),
                    }
                }
                // A link or a damaged entry; a folder is always there.
                Err(e) => {
                    assert_eq!(kind, ObjectKind::File, "{key}: {e}");
                    assert_ne!(e.kind(), chunkmount::error::Kind::NotFound, "{key}");
                }
            }
        }
    }
}

fn entry(store: &dyn Store, key: &Key, meta: &Meta) {
    let mut whole = Vec::new();
    let read = store.get(key, Range::All, Some(&meta.version), ENTRY, &mut whole);
    if let Err(e) = &read {
        assert!(meta.size <= ENTRY || e.kind() != chunkmount::error::Kind::NotFound, "{key}: {e}");
        return;
    }
    assert!(whole.len() as u64 == meta.size && meta.size <= ENTRY, "{key}: {} bytes of {}", whole.len(), meta.size);
    let (offset, length) = (meta.size / 3, meta.size / 2 + 1);
    for range in [Range::Part { offset, length }, Range::Suffix(length)] {
        let mut part = Vec::new();
        store.get(key, range, None, ENTRY, &mut part).unwrap_or_else(|e| panic!("{key}: {range:?}: {e}"));
        let (start, end) = range.within(meta.size);
        assert!(part == whole[start as usize..end as usize], "{key}: {range:?}");
    }
}
