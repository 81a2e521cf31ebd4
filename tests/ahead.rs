//! Reading ahead: who opens chunk after chunk finds the next ones decoded.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use chunkmount::error::{Kind, Result};
use chunkmount::store::{Key, Store, mem::MemStore};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, ROOT, Vfs};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An array of 16 chunks, each of four times its number; the seventh is damaged, the ninth is absent.
struct Shown {
    store: Arc<MemStore>,
    vfs: Arc<Vfs>,
}

impl Shown {
    fn new(refresh: Option<Duration>) -> Self {
        let store = Arc::new(MemStore::new());
        let put = |name: &str, bytes: &[u8]| store.put(Key::root().join(name).unwrap(), bytes.to_vec());
        put(".zarray", br#"{"zarr_format":2,"shape":[64],"chunks":[4],"dtype":"|u1","compressor":null,"filters":null,"order":"C","fill_value":0}"#);
        for n in (0..16u8).filter(|n| *n != 9) {
            put(&n.to_string(), &vec![n; if n == 7 { 3 } else { 4 }]);
        }
        let options = vfs::Options { fill_missing: false, refresh, retry: vfs::RETRY, cache_size: 1 << 20, name: "test".into() };
        let tree = Tree::new(store.clone(), tree::Options::default());
        Self { store, vfs: Arc::new(Vfs::new(tree, options).unwrap()) }
    }

    fn read(&self, n: u8) -> Result<Vec<u8>> {
        let inode = self.vfs.lookup(ROOT, n.to_string().as_bytes())?.inode;
        let opened = self.vfs.open(inode)?;
        let bytes = self.vfs.read(opened.handle, 0, u32::MAX, <[u8]>::to_vec);
        self.vfs.release(opened.handle);
        bytes
    }

    /// Reads two chunks, one after the other, and waits for the next ones.
    fn begin(&self) {
        self.vfs.read_ahead(2);
        (0..2).for_each(|n| assert_eq!(self.read(n).unwrap(), [n; 4]));
        let start = Instant::now();
        while self.counted("/read_ahead/chunks") < 2 {
            assert!(start.elapsed() < Duration::from_secs(10), "nothing is read ahead");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn counted(&self, what: &str) -> u64 {
        let statistics: Value = serde_json::from_slice(&self.vfs.statistics()).unwrap();
        statistics.pointer(what).and_then(Value::as_u64).unwrap()
    }
}

/// The chunks from the third on, after [`Shown::begin`].
fn read_on(shown: &Shown) {
    for n in 2..16 {
        match (n, shown.read(n)) {
            (7, got) => assert_eq!(got.unwrap_err().kind(), Kind::Corrupt),
            (9, got) => assert_eq!(got.unwrap_err().kind(), Kind::NotFound),
            (_, got) => assert_eq!(got.unwrap(), [n; 4]),
        }
    }
}

#[test]
fn chunks_are_read_ahead_of_a_reader() {
    let shown = Shown::new(None);
    shown.begin();
    read_on(&shown);
    // What is in memory is not looked at again but by who looks it up, once all that was asked for ahead is done.
    let again = |_| {
        let before = shown.store.requests().head;
        (0..3).for_each(|n| assert_eq!(shown.read(n).unwrap(), [n; 4]));
        std::thread::sleep(Duration::from_millis(50));
        shown.store.requests().head - before == 3
    };
    assert!((0..20).any(again));
}

/// A version of a chunk has an inode of its own, which nobody has looked up when it is read ahead.
#[test]
fn what_was_read_ahead_is_found_by_who_opens_it_with_refresh() {
    for refresh in [Duration::ZERO, Duration::from_secs(60)] {
        let shown = Shown::new(Some(refresh));
        shown.begin();
        read_on(&shown);
        // Each of the 14 that can be read was decoded once.
        assert_eq!(shown.counted("/decode/bytes_out"), 14 * 4);
        // And a new version is not taken for the one that was read ahead.
        shown.store.put(Key::root().join("15").unwrap(), vec![99; 4]);
        assert_eq!(shown.read(15).unwrap(), [99; 4]);
    }
}
