//! The stores: one list of assertions for all of them, then what is special to each.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail by panicking, as tests do")]

mod conformance;
mod dirs;
mod objects;
mod zip_names;
mod zips;

use chunkmount::store::dir::{DirOptions, DirStore};
use chunkmount::store::faulty::{Call, Effect, Fault, Faulty};
use chunkmount::store::mem::MemStore;
use chunkmount::store::zip::ZipStore;
use chunkmount::store::{Key, Range, Store};
use chunkmount::{error::Kind, store::Version};
use conformance::{check, fixtures, key, kind, names, read, tree};
use std::sync::Arc;
use std::time::Duration;

fn memory() -> MemStore {
    let store = MemStore::new();
    for (name, content) in tree() {
        store.put(key(&name), content);
    }
    store
}

#[test]
fn memory_conforms() {
    check(&memory());
}

#[test]
fn a_directory_conforms() {
    let path = fixtures().join("tree");
    check(&DirStore::open(&path, DirOptions::default()).unwrap());
    check(&DirStore::open(&path, DirOptions { follow_symlinks: true }).unwrap());
}

#[test]
fn sources_are_told_by_content() {
    let open = |source: &str| chunkmount::source::open(source, &chunkmount::source::Options::default());
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name).to_str().unwrap().to_owned();
    std::fs::copy(fixtures().join("python-folder.zip"), at("no suffix")).unwrap();
    std::fs::write(at("text.zip"), "no archive").unwrap();
    std::fs::write(at("cut.zip"), "").unwrap();
    let tree = fixtures().join("tree").to_str().unwrap().to_owned();
    for source in
        [tree.clone(), format!("file://{tree}#mode=zarr,file"), at("no suffix"), format!("file://{}#mode=zip", at("no%20suffix"))]
    {
        let opened = open(&source).unwrap();
        check(opened.store.as_ref());
        assert_eq!(opened.path.unwrap().to_str().unwrap(), opened.name);
    }
    for (source, kind, says) in [
        (at("text.zip"), Kind::Corrupt, "not a zip archive"),
        (at("cut.zip"), Kind::Corrupt, "not a zip archive"),
        (at("absent"), Kind::NotFound, "not found"),
        ("/dev/null".into(), Kind::Unsupported, "neither"),
        (format!("file://{tree}#mode=zip"), Kind::Usage, "directory"),
        (format!("file://{}#mode=file", at("no%20suffix")), Kind::Usage, "file"),
        ("ftp://host/x.zarr".into(), Kind::Unsupported, "ftp://"),
    ] {
        let e = open(&source).err().unwrap();
        assert_eq!(e.kind(), kind, "{source}");
        assert!(e.to_string().starts_with(&source) && e.reason().contains(says), "{e}");
    }
}

#[test]
fn slow_and_recovering_stores_conform() {
    let faulty = Faulty::new(Arc::new(memory()));
    faulty.always(Call::Get, key("a/0"), Effect::Delay(Duration::from_millis(1)));
    check(&faulty);
    faulty.heal();
    faulty.always(Call::Get, key("a/1"), Effect::Fail(Kind::TimedOut, "slow".into()));
    assert_eq!(kind(&faulty, "a/1"), Kind::TimedOut);
    assert!(read(&faulty, "a/0", Range::All).is_ok());
    faulty.heal();
    check(&faulty);
    faulty.add(Fault { call: None, key: None, after: 1, times: 1, effect: Effect::OtherVersion });
    let version = faulty.head(&key("a/0")).unwrap().version;
    assert_eq!(faulty.head(&key("a/0")).unwrap().version, Version::Tag("another version".into()));
    assert_eq!(faulty.head(&key("a/0")).unwrap().version, version);
    assert_eq!(faulty.calls().last(), Some(&(Call::Head, key("a/0"))));
}

#[test]
fn every_archive_conforms() {
    let folder: Arc<dyn Store> = Arc::new(DirStore::open(fixtures(), DirOptions::default()).unwrap());
    let memory = Arc::new(MemStore::new());
    let mut archives = 0;
    for (name, _) in names(folder.as_ref(), "") {
        if !name.ends_with(".zip") || name == "empty.zip" {
            continue;
        }
        eprintln!("{name}");
        check(&ZipStore::open(Arc::clone(&folder), key(&name)).unwrap());
        memory.put(key(&name), read(folder.as_ref(), &name, Range::All).unwrap());
        let container: Arc<dyn Store> = memory.clone();
        check(&ZipStore::open(container, key(&name)).unwrap());
        archives += 1;
    }
    assert_eq!(archives, 27);
    let empty = ZipStore::open(folder, key("empty.zip")).unwrap();
    assert!(empty.list(&Key::root()).unwrap().is_empty());
}

#[test]
fn memory_keeps_versions_apart() {
    let store = memory();
    let before = store.head(&key("a/0")).unwrap();
    store.put(key("a/0"), *b"other");
    let mut bytes = Vec::new();
    let e = store.get(&key("a/0"), Range::All, Some(&before.version), 9, &mut bytes).unwrap_err();
    assert_eq!(e.kind(), Kind::Changed);
    assert!(store.delete(&key("a/0")));
    assert_eq!(kind(&store, "a/0"), Kind::NotFound);
}
