//! Bounds on archives in archives, and who waits for whom.

use super::*;
use crate::store::faulty::{Call, Effect, Fault, Faulty};
use crate::store::mem::MemStore;
use std::io::{Cursor, Write};
use std::time::{Duration, Instant};
use zip::CompressionMethod::{self, Deflated, Stored};
use zip::write::SimpleFileOptions;

fn written(entries: &[(&str, &[u8], CompressionMethod)]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content, method) in entries {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(*method)).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn key(name: &str) -> Key {
    Key::root().join(name).unwrap()
}

fn store(entries: &[(&str, &[u8], CompressionMethod)], limits: (usize, u64)) -> (NestedStore, Arc<Faulty>) {
    let memory = MemStore::new();
    memory.put(key("x.zip"), written(entries));
    let container = Arc::new(Faulty::new(Arc::new(memory)));
    let outer = ZipStore::open_plain(container.clone(), key("x.zip")).unwrap();
    (NestedStore::within(Arc::new(outer), |name| name == b".zarray", limits), container)
}

fn kinds(store: &NestedStore) -> Vec<ObjectKind> {
    store.list(&Key::root()).unwrap().iter().map(|(_, kind)| kind).collect()
}

const DIRECTORY: ObjectKind = ObjectKind::Directory;
const FILE: ObjectKind = ObjectKind::File;

#[test]
fn indexes_are_counted() {
    let inner = written(&[(".zarray", b"{}", Stored), ("0", b"1", Stored)]);
    let size = super::super::len64(inner.len());
    for method in [Stored, Deflated] {
        let entries: [(&str, &[u8], _); 2] = [("a.zip", &inner, method), ("b.zip", &inner, method)];
        let (store, _) = store(&entries, (9, u64::MAX));
        assert_eq!(kinds(&store), [DIRECTORY, DIRECTORY]);
        let held = store.state.lock().held;
        let content = if method == Deflated { size } else { 0 };
        let index = held / 2 - content;
        assert!(index > 0 && held == 2 * (content + index), "{method}: {held}");
        // Room for one and a half of them, and for the content alone.
        for (limit, shown) in [(held * 3 / 4, [DIRECTORY, FILE]), (index.max(content + 1) - 1, [FILE, FILE])] {
            let (store, _) = self::store(&entries, (9, limit));
            assert_eq!(kinds(&store), shown, "{method}: {limit}");
            assert!(store.state.lock().held <= limit);
        }
    }
}

#[test]
fn what_holds_no_store_is_not_held() {
    let none = written(&[("readme", b"text", Stored)]);
    let (store, _) = store(&[("a.zip", &none, Deflated), ("b.zip", b"no archive", Deflated)], (9, 1 << 20));
    assert_eq!(kinds(&store), [FILE, FILE]);
    assert_eq!(store.state.lock().held, 0);
}

#[test]
fn too_many_archives_are_files_and_that_is_said() {
    let inner = written(&[(".zarray", b"{}", Stored)]);
    let entries: [(&str, &[u8], _); 3] = [("a.zip", &inner, Stored), ("b.zip", &inner, Stored), ("c.zip", &inner, Stored)];
    let (store, _) = store(&entries, (2, u64::MAX));
    assert!(store.archive(&key("a.zip")).unwrap().is_some() && !store.state.lock().said);
    assert_eq!(kinds(&store), [DIRECTORY, DIRECTORY, FILE]);
    assert!(store.state.lock().said);
    assert_eq!(kinds(&store), [DIRECTORY, DIRECTORY, FILE]);
}

#[test]
fn who_needs_another_archive_does_not_wait() {
    let inner = written(&[(".zarray", b"{}", Stored)]);
    let entries: [(&str, &[u8], _); 3] = [("a.zip", &inner, Stored), ("b.zip", &inner, Stored), ("0", b"1", Stored)];
    let (store, container) = store(&entries, (9, u64::MAX));
    store.head(&key("b.zip/.zarray")).unwrap();
    let effect = Effect::Delay(Duration::from_secs(3));
    container.add(Fault { call: Some(Call::Get), key: None, after: 0, times: 1, effect });
    let before = container.calls().len();
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..2).map(|_| scope.spawn(|| store.head(&key("a.zip/.zarray")))).collect();
        while container.calls().len() == before {
            std::thread::sleep(Duration::from_millis(10));
        }
        let start = Instant::now();
        store.head(&key("b.zip/.zarray")).unwrap();
        assert!(start.elapsed() < Duration::from_secs(2));
        slow.into_iter().for_each(|slow| assert!(slow.join().unwrap().is_ok()));
    });
    // One of the two opened it.
    assert!(container.calls().len() - before <= 3);
}
