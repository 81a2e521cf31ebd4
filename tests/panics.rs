//! A panic where a chunk is fetched and decoded is an error of that chunk: nobody waits for ever, and no thread is lost.
//!
//! The panics are those of a store, which is asked within the same call that decodes; a mount of it is a real one, served by this
//! process, so that its threads can be counted.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use chunkmount::error::Result;
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, Listing, Meta, Range, Requests, Store, Version};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, Vfs};
use flate2::{Compression, read::ZlibEncoder};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CHUNKS: usize = 100;

/// A store that panics when a chunk is read, for as long as it is told to.
struct Panicking {
    inner: MemStore,
    panics: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    is_distant: bool,
}

impl Store for Panicking {
    fn name(&self) -> String {
        "panicking".into()
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        self.inner.head(key)
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        if key.as_bytes().iter().all(u8::is_ascii_digit) && self.panics.load(Ordering::SeqCst) {
            self.count.fetch_add(1, Ordering::SeqCst);
            // Others come and wait for the same chunk meanwhile.
            std::thread::sleep(Duration::from_millis(5));
            panic!("by the test");
        }
        self.inner.get(key, range, pin, limit, into)
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        self.inner.list(key)
    }

    fn is_distant(&self) -> bool {
        self.is_distant
    }

    fn requests(&self) -> Requests {
        self.inner.requests()
    }
}

/// Waits until `holds`, as long as a busy machine may take.
fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The threads of this process: those of the crew, which come and go with requests, and all others.
fn threads() -> (usize, usize) {
    // One may end while it is looked at.
    let names = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .flat_map(|task| std::fs::read_to_string(task.path().join("comm")));
    let (crew, others): (Vec<String>, Vec<String>) = names.partition(|name| name.trim_end() == "request");
    (crew.len(), others.len())
}

fn check(is_distant: bool, compressor: &str) {
    let inner = MemStore::new();
    let key = |name: &str| Key::root().join(name).unwrap();
    let document = format!(
        r#"{{"zarr_format":2,"shape":[{}],"chunks":[4],"dtype":"|u1","compressor":{compressor},"filters":null,"order":"C","fill_value":0}}"#,
        4 * CHUNKS
    );
    inner.put(key(".zarray"), document.into_bytes());
    for n in 0..CHUNKS {
        let bytes = vec![u8::try_from(n).unwrap(); 4];
        let mut zlib = Vec::new();
        ZlibEncoder::new(&bytes[..], Compression::default()).read_to_end(&mut zlib).unwrap();
        inner.put(key(&n.to_string()), if compressor == "null" { bytes } else { zlib });
    }
    let (panics, count) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let store = Panicking { inner, panics: panics.clone(), count: count.clone(), is_distant };
    let options =
        vfs::Options { fill_missing: false, refresh: None, retry: vfs::RETRY, cache_size: 1 << 20, name: "test".into() };
    let vfs = Arc::new(Vfs::new(Tree::new(Arc::new(store), tree::Options::default()), options).unwrap());
    vfs.read_ahead(2);
    let room = tempfile::tempdir().unwrap();
    let user = chunkmount::fuse::User::default();
    let session = chunkmount::fuse::mount(vfs.clone(), room.path(), None, false, 4, 0, user, || ()).unwrap();
    let read = |n: usize| std::fs::read(room.path().join(n.to_string()));
    // All that serve are there by now, and one that reads a listing.
    assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), CHUNKS + 1);
    std::thread::sleep(Duration::from_millis(300));
    let (_, before) = threads();
    for n in 0..CHUNKS {
        // Those who wait for the one who panicked are told as well; who comes later may be the next one, or be told of the last.
        let gate = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    gate.wait();
                    assert_eq!(read(n).unwrap_err().raw_os_error(), Some(libc::EIO), "chunk {n}");
                });
            }
        });
    }
    assert!(count.load(Ordering::SeqCst) >= CHUNKS);
    // The crew of a distant store is as many as there were requests at a time; those that serve the kernel and read ahead stay.
    let crew = if is_distant { 16 } else { 0 };
    wait_for("threads are as many as before", || {
        let (of_crew, others) = threads();
        of_crew <= crew && others == before
    });
    panics.store(false, Ordering::SeqCst);
    // Failures answer for a second.
    std::thread::sleep(Duration::from_millis(1100));
    let statistics = || -> serde_json::Value { serde_json::from_slice(&vfs.statistics()).unwrap() };
    for n in 0..CHUNKS {
        assert_eq!(read(n).unwrap(), vec![u8::try_from(n).unwrap(); 4]);
    }
    assert!(statistics()["read_ahead"]["chunks"].as_u64() > Some(0), "who reads ahead lives on");
    wait_for("all files are closed", || statistics()["open"]["files"] == 0);
    unmount(room.path());
    session.join().unwrap().unwrap();
}

fn unmount(path: &Path) {
    assert!(Command::new(env!("CARGO_BIN_EXE_chunkmount")).arg("-u").arg(path).status().unwrap().success());
}

#[test]
fn a_hundred_panics_are_a_hundred_errors() {
    // Each thread that panics prints where; a hundred times that is noise.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |about| {
        if about.payload().downcast_ref::<&str>() != Some(&"by the test") {
            usual(about);
        }
    }));
    check(false, "null");
    check(true, "null");
    // Read ahead two at a time.
    check(false, r#"{"id":"zlib","level":1}"#);
}
