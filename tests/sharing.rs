//! Many readers of what nobody has read before: it is fetched once and decoded once.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use chunkmount::store::faulty::{Call, Effect, Faulty};
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, Store};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, ROOT, Vfs};
use chunkmount::{cache::Budget, chunk, error::Kind, placement::Indexes};
use serde_json::Value;
use std::io::Write;
use std::sync::{Arc, Barrier};
use std::time::Duration;

const READERS: usize = 256;

/// Bytes of a decoded chunk.
const CHUNK: usize = 100_000;

/// Each call of the object waits so long, that all readers come meanwhile.
const DELAY: Duration = Duration::from_millis(300);

fn key(name: &str) -> Key {
    Key::root().join(name).unwrap()
}

fn content() -> Vec<u8> {
    (0..CHUNK).map(|n| u8::try_from(n * n % 251).unwrap()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

/// How often the object is read while all readers open, read and close the file that shows its chunk.
fn gets(document: &str, text: &str, object: &str, bytes: Vec<u8>, file: &str) -> usize {
    let memory = MemStore::new();
    memory.put(key(document), text.as_bytes());
    memory.put(key(object), bytes);
    let store = Arc::new(Faulty::new(Arc::new(memory)));
    let options =
        vfs::Options { fill_missing: false, refresh: None, retry: vfs::RETRY, cache_size: 1 << 20, name: "test".into() };
    let shared: Arc<dyn Store> = store.clone();
    let vfs = Vfs::new(Tree::new(shared, tree::Options::default()), options).unwrap();
    store.always(Call::Get, key(object), Effect::Delay(DELAY));
    let (right, gate) = (content(), Barrier::new(READERS));
    let read = || {
        gate.wait();
        let inode = file.split('/').try_fold(ROOT, |at, name| vfs.lookup(at, name.as_bytes()).map(|attr| attr.inode)).unwrap();
        let opened = vfs.open(inode).unwrap();
        let bytes = vfs.read(opened.handle, 0, u32::MAX, <[u8]>::to_vec).unwrap();
        vfs.release(opened.handle);
        assert!(bytes == right, "{} bytes", bytes.len());
    };
    std::thread::scope(|scope| (0..READERS).for_each(|_| drop(scope.spawn(read))));
    let statistics: Value = serde_json::from_slice(&vfs.statistics()).unwrap();
    assert_eq!((&statistics["cache"]["misses"], &statistics["errors"]), (&1.into(), &0.into()), "{statistics:#}");
    assert_eq!(statistics["decode"]["bytes_out"], CHUNK, "decoded once");
    assert_eq!(statistics["open"]["files"], 0);
    store.calls().iter().filter(|call| **call == (Call::Get, key(object))).count()
}

#[test]
fn a_chunk_is_fetched_and_decoded_once() {
    let text = format!(
        r#"{{"zarr_format": 2, "shape": [{CHUNK}], "chunks": [{CHUNK}], "dtype": "|u1", "fill_value": 0, "order": "C",
            "filters": null, "compressor": {{"id": "gzip", "level": 1}}}}"#
    );
    assert_eq!(gets(".zarray", &text, "0", gzip(&content()), "0"), 1);
}

#[test]
fn a_part_of_a_shard_is_fetched_and_decoded_once_and_its_index_too() {
    let text = format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [{}], "data_type": "uint8", "fill_value": 0, "attributes": {{}},
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [{}]}}}}, "chunk_key_encoding": {{"name": "default"}},
            "codecs": [{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [{CHUNK}], "codecs": [{{"name": "bytes"}},
                {{"name": "gzip", "configuration": {{"level": 1}}}}], "index_codecs": [{{"name": "bytes",
                "configuration": {{"endian": "little"}}}}, {{"name": "crc32c"}}]}}}}]}}"#,
        2 * CHUNK,
        2 * CHUNK
    );
    let part = gzip(&content());
    let length = u64::try_from(part.len()).unwrap();
    let index: Vec<u8> = [u64::MAX, u64::MAX, 0, length].iter().flat_map(|n| n.to_le_bytes()).collect();
    let sum = crc32c::crc32c(&index).to_le_bytes();
    // One read of the index, and one of the part.
    assert_eq!(gets("zarr.json", &text, "c/0", [part.as_slice(), &index, &sum].concat(), "c/1"), 2);
}

/// What was found in the new version of an object is nothing of the old one, which somebody has open, and the other way round.
#[test]
fn a_part_of_another_version_is_never_read() {
    let index: Vec<u8> = [0u64, 1, 1, 1].iter().flat_map(|n| n.to_le_bytes()).collect();
    let shard = |content: &[u8]| [content, index.as_slice()].concat();
    for (envelope, encode) in [("", None), (r#", {"name": "gzip", "configuration": {"level": 1}}"#, Some(gzip))] {
        let text = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [2], "data_type": "uint8", "fill_value": 0, "attributes": {{}},
                "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [2]}}}}, "chunk_key_encoding": {{"name": "default"}},
                "codecs": [{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [1], "codecs": [{{"name": "bytes"}}],
                    "index_codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}]}}}}{envelope}]}}"#
        );
        let store = Arc::new(MemStore::new());
        let put = |content: &[u8]| store.put(key("c/0"), encode.map_or_else(|| shard(content), |encode| encode(&shard(content))));
        store.put(key("zarr.json"), text.as_bytes());
        let shared: Arc<dyn Store> = store.clone();
        let directory = Tree::new(shared, tree::Options::default()).open(&Key::root(), &tree::Below::default()).unwrap();
        let array = directory.array().unwrap();
        let (indexes, budget) = (Indexes::new(1 << 20, Some(Duration::ZERO)), Budget::new(1 << 20));
        let locate = || indexes.locate(store.as_ref(), &Key::root(), array, &[1]).unwrap();
        put(b"ab");
        let old = locate();
        put(b"cd");
        let new = locate();
        let read = |part, pin| {
            let block = chunk::read(store.as_ref(), part, array, Some(pin), &budget, &mut chunk::Cost::default(), |block| block);
            block.and_then(|block| block.part(0, 9, <[u8]>::to_vec)).map_err(|e| e.kind())
        };
        assert_eq!(read(&new, &new.meta.version), Ok(b"d".to_vec()));
        assert_eq!(read(&new, &old.meta.version), Err(Kind::Changed));
        assert_eq!(read(&old, &new.meta.version), Err(Kind::Changed));
    }
}

/// What the kernel was given is not kept for ever where a store is near; what it lets go of is made again once at most.
#[test]
fn what_the_kernel_forgets_is_in_the_cache_the_next_time() {
    const MANY: u64 = 300;
    const LENGTH: usize = 1 << 20;
    let memory = MemStore::new();
    let document = format!(
        r#"{{"zarr_format": 2, "shape": [{}], "chunks": [{LENGTH}], "dtype": "|u1", "fill_value": 0, "order": "C", "filters": null,
            "compressor": {{"id": "gzip", "level": 1}}}}"#,
        MANY * LENGTH as u64
    );
    memory.put(key(".zarray"), document.as_bytes());
    let encoded = gzip(&[7; LENGTH]);
    (0..MANY).for_each(|n| memory.put(key(&n.to_string()), encoded.clone()));
    let memory: Arc<dyn Store> = Arc::new(memory);
    let vfs = || {
        let options =
            vfs::Options { fill_missing: false, refresh: None, retry: vfs::RETRY, cache_size: 1 << 30, name: "test".into() };
        Vfs::new(Tree::new(memory.clone(), tree::Options::default()), options).unwrap()
    };
    let statistics = |vfs: &Vfs| serde_json::from_slice::<Value>(&vfs.statistics()).unwrap();
    let pass = |vfs: &Vfs, forget: bool| {
        let inodes = (0..MANY).map(|n| {
            let inode = vfs.lookup(ROOT, n.to_string().as_bytes()).unwrap().inode;
            let opened = vfs.open(inode).unwrap();
            opened.whole.iter().for_each(|whole| assert!(vfs.hand_over(inode, whole, |_| Ok(())).unwrap()));
            vfs.release(opened.handle);
            if forget {
                vfs.forget(inode, 1);
            }
            inode
        });
        let inodes: Vec<u64> = inodes.collect();
        let made = statistics(vfs)["cache"]["misses"].as_u64().unwrap();
        (inodes, made)
    };
    let kept = vfs();
    let (inodes, made) = pass(&kept, false);
    let held = statistics(&kept)["cache"]["bytes"].as_u64().unwrap();
    assert!(made == MANY && held <= 256 << 20, "{made} made, {held} bytes");
    // Nothing is made again for who has it.
    assert_eq!(pass(&kept, false).1, MANY);
    inodes.iter().for_each(|inode| kept.forget(*inode, 1));
    let (_, again) = pass(&kept, true);
    assert!(again > MANY && again <= 2 * MANY);
    assert_eq!((pass(&kept, true).1, pass(&kept, true).1), (again, again));
    // One after the other.
    let soon = vfs();
    assert_eq!([(); 3].map(|()| pass(&soon, true).1), [MANY; 3]);
}
