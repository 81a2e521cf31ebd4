//! Reading ahead: who opens chunk after chunk finds the next ones decoded.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use chunkmount::error::{Kind, Result};
use chunkmount::store::faulty::{Call, Effect, Fault, Faulty};
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, Store};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, ROOT, Vfs};
use flate2::{
    Compression,
    write::{GzEncoder, ZlibEncoder},
};
use serde_json::Value;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A mounted array of 16 chunks; the seventh is damaged, the ninth is absent.
struct Shown {
    store: Arc<MemStore>,
    vfs: Arc<Vfs>,
}

fn vfs_of(store: Arc<dyn Store>, refresh: Option<Duration>) -> Arc<Vfs> {
    let options = vfs::Options { fill_missing: false, refresh, retry: vfs::RETRY, cache_size: 1 << 20, name: "test".into() };
    Arc::new(Vfs::new(Tree::new(store, tree::Options::default()), options).unwrap())
}

impl Shown {
    /// Each chunk is four times its number.
    fn new(refresh: Option<Duration>) -> Self {
        let document = br#"{"zarr_format":2,"shape":[64],"chunks":[4],"dtype":"|u1","compressor":null,"filters":null,"order":"C","fill_value":0}"#;
        let chunks = (0..16u8).map(|n| (n.to_string(), vec![n; if n == 7 { 3 } else { 4 }]));
        Self::of((".zarray", document), chunks.collect(), refresh)
    }

    fn of((name, document): (&str, &[u8]), chunks: Vec<(String, Vec<u8>)>, refresh: Option<Duration>) -> Self {
        let store = Arc::new(MemStore::new());
        store.put(Key::root().join(name).unwrap(), document.to_vec());
        for (_, (name, bytes)) in chunks.into_iter().enumerate().filter(|(n, _)| *n != 9) {
            store.put(Key::root().join(&name).unwrap(), bytes);
        }
        Self { vfs: vfs_of(store.clone(), refresh), store }
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
        self.wait_for_two();
    }

    /// Waits until two chunks have been read ahead.
    fn wait_for_two(&self) {
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

/// The content of chunk `n` of those that are read in pairs.
fn noise(n: u64) -> Vec<u8> {
    let mut x = n + 1;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 33) as u8 & 0x3f
    };
    (0..8192).map(|_| next()).collect()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(5));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Chunks of 8192 bytes.
fn zarr(id: &str) -> String {
    let compressor = format!(r#"{{"id":"{id}","level":5}}"#);
    format!(
        r#"{{"zarr_format":2,"shape":[131072],"chunks":[8192],"dtype":"|u1","compressor":{compressor},"filters":null,"order":"C","fill_value":0}}"#
    )
}

/// Chunks of gzip and zlib are decoded two at once, also beside one that is damaged or absent, or that has to be decoded by itself.
#[test]
fn chunks_that_are_read_ahead_in_pairs_are_right() {
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(5));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let members = |bytes: &[u8]| [gzip(&bytes[..5000]), gzip(&bytes[5000..])].concat();
    let header = |length: u32| [&[0, 0, 0, 1][..], &length.to_be_bytes()].concat();
    let n5 = r#"{"dimensions":[131072],"blockSize":[8192],"dataType":"uint8","compression":{"type":"gzip"}}"#;
    let documents = [(".zarray", zarr("gzip")), (".zarray", zarr("zlib")), ("attributes.json", n5.to_owned())];
    for ((name, document), refresh) in documents.iter().flat_map(|document| [(document, None), (document, Some(Duration::ZERO))])
    {
        let encode = |n: u64| {
            let bytes = noise(n);
            let mut encoded = match (*name, document.contains("zlib")) {
                (".zarray", true) => zlib(&bytes),
                (".zarray", false) if n == 5 => members(&bytes),
                (".zarray", false) => gzip(&bytes),
                // Blocks that hold less, and such as are zlib, which N5 may call gzip as well.
                _ if n == 12 => [header(5000), gzip(&bytes[..5000])].concat(),
                _ if n.is_multiple_of(2) => [header(8192), zlib(&bytes)].concat(),
                _ => [header(8192), gzip(&bytes)].concat(),
            };
            if n == 7 {
                encoded[3000] ^= 4;
            }
            encoded
        };
        let chunks = (0..16).map(|n| (n.to_string(), encode(n))).collect();
        let shown = Shown::of((name, document.as_bytes()), chunks, refresh);
        // A single thread, so that it finds more than one wish.
        shown.vfs.read_ahead(1);
        for n in 0..16 {
            if n == 2 {
                shown.wait_for_two();
            }
            let got = shown.read(n);
            match n {
                7 => assert_eq!(got.unwrap_err().kind(), Kind::Corrupt),
                9 => assert_eq!(got.unwrap_err().kind(), Kind::NotFound),
                12 if *name != ".zarray" => assert!(got.unwrap() == [&noise(12)[..5000], &[0; 3192]].concat()),
                _ => assert!(got.unwrap() == noise(n.into()), "{document}: {n}"),
            }
        }
        assert_eq!(shown.counted("/decode/bytes_out"), 14 * 8192);
        assert!(shown.counted("/read_ahead/in_pairs") >= 2);
    }
}

/// A tree of 16 chunks of zlib in which reading chunk 3 for the first time has this effect.
fn shown_with(effect: Effect) -> (Shown, Arc<Faulty>) {
    let chunks = (0..16).map(|n| (n.to_string(), zlib(&noise(n)))).collect();
    let Shown { store, .. } = Shown::of((".zarray", zarr("zlib").as_bytes()), chunks, None);
    let faulty = Arc::new(Faulty::new(store.clone()));
    let key = Some(Key::root().join("3").unwrap());
    faulty.add(Fault { call: Some(Call::Get), key, after: 0, times: 1, effect });
    (Shown { store, vfs: vfs_of(faulty.clone(), None) }, faulty)
}

/// Who opens a chunk does not wait for what the store has to say of the one that is read ahead with it.
#[test]
fn a_chunk_does_not_wait_for_the_other_s_store() {
    let (shown, faulty) = shown_with(Effect::Delay(Duration::from_secs(10)));
    shown.vfs.read_ahead(1);
    (0..2).for_each(|n| assert!(shown.read(n).unwrap() == noise(n.into())));
    let asked = (Call::Get, Key::root().join("3").unwrap());
    while !faulty.calls().contains(&asked) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(shown.read(2).unwrap() == noise(2));
    assert_eq!(shown.counted("/cache/waits"), 0);
    (3..9).for_each(|n| assert!(shown.read(n).unwrap() == noise(n.into())));
}

/// One of two that is another version when it is read is not taken, the other one is; and it is read when it is opened.
#[test]
fn one_of_two_that_has_changed_is_not_taken() {
    let (shown, _) = shown_with(Effect::OtherVersion);
    shown.vfs.read_ahead(1);
    (0..9).for_each(|n| assert!(shown.read(n).unwrap() == noise(n.into())));
}
