//! One list of assertions for every way in: a store in memory, a directory, a zip, and a real mount.
//!
//! The archive was written by netcdf-c, its values were read by netcdf-c (`scripts/fixtures-sample.py`); the zip is written
//! again by the zip crate, with one chunk damaged.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use chunkmount::error::Kind;
use chunkmount::store::faulty::{Call, Effect, Fault, Faulty};
use chunkmount::store::{Key, ObjectKind, Store, dir::DirOptions, dir::DirStore, mem::MemStore, zip::ZipStore};
use chunkmount::tree::{self, Tree};
use chunkmount::vfs::{self, Vfs};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The chunk that is damaged in all stores.
const DAMAGED: &str = "f_deflate/0.0";

/// A way to look at a mounted tree. Errors are error numbers.
trait Session {
    fn list(&self, path: &str) -> Result<BTreeMap<String, ObjectKind>, i32>;
    fn read(&self, path: &str) -> Result<Vec<u8>, i32>;
    fn size(&self, path: &str) -> Result<u64, i32>;
}

/// The file system in this process.
impl Session for Vfs {
    fn list(&self, path: &str) -> Result<BTreeMap<String, ObjectKind>, i32> {
        let handle = self.opendir(inode(self, path)?).map_err(|e| e.errno())?;
        let mut names = BTreeMap::new();
        // Two entries a page, as a kernel with tiny buffers would ask.
        let mut offset = 0;
        loop {
            let (mut room, before) = (2, offset);
            let page = self.readdir(handle, offset, &mut |entry| {
                if room == 0 {
                    return true;
                }
                room -= 1;
                offset = entry.next;
                names.insert(String::from_utf8(entry.name.to_vec()).unwrap(), entry.kind);
                false
            });
            page.map_err(|e| e.errno())?;
            if offset == before {
                break;
            }
        }
        self.releasedir(handle);
        names.retain(|name, _| name != "." && name != "..");
        Ok(names)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, i32> {
        let open = self.open(inode(self, path)?).map_err(|e| e.errno())?;
        let mut bytes = Vec::new();
        loop {
            // An odd size, so that no read falls together with a chunk's end.
            let length = Vfs::read(self, open.handle, bytes.len() as u64, 1009, |part| {
                bytes.extend_from_slice(part);
                part.len()
            });
            if length.map_err(|e| e.errno())? == 0 {
                break;
            }
        }
        self.release(open.handle);
        Ok(bytes)
    }

    fn size(&self, path: &str) -> Result<u64, i32> {
        Ok(self.attr(inode(self, path)?).map_err(|e| e.errno())?.size)
    }
}

fn inode(vfs: &Vfs, path: &str) -> Result<u64, i32> {
    path.split('/')
        .filter(|part| !part.is_empty())
        .try_fold(vfs::ROOT, |parent, name| vfs.lookup(parent, name.as_bytes()).map(|attr| attr.inode).map_err(|e| e.errno()))
}

/// A real mount, and the daemon that serves it.
struct Mounted {
    daemon: Child,
    path: PathBuf,
}

impl Mounted {
    fn new(source: &Path, path: PathBuf) -> Self {
        let daemon = Command::new(env!("CARGO_BIN_EXE_chunkmount")).arg("-f").args([source, &path]).spawn().unwrap();
        let start = Instant::now();
        while !path.join(".chunkmount/stats.json").exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "the mount does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        Self { daemon, path }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let ended = Command::new(env!("CARGO_BIN_EXE_chunkmount")).arg("-u").arg(&self.path).status().is_ok_and(|s| s.success());
        if !ended {
            let _ = self.daemon.kill();
        }
        let _ = self.daemon.wait();
    }
}

impl Session for Mounted {
    fn list(&self, path: &str) -> Result<BTreeMap<String, ObjectKind>, i32> {
        let mut names = BTreeMap::new();
        for entry in std::fs::read_dir(self.path.join(path)).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let kind = if entry.file_type().map_err(errno)?.is_dir() { ObjectKind::Directory } else { ObjectKind::File };
            names.insert(entry.file_name().into_string().unwrap(), kind);
        }
        Ok(names)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, i32> {
        std::fs::read(self.path.join(path)).map_err(errno)
    }

    fn size(&self, path: &str) -> Result<u64, i32> {
        std::fs::metadata(self.path.join(path)).map(|m| m.len()).map_err(errno)
    }
}

fn errno(e: std::io::Error) -> i32 {
    e.raw_os_error().unwrap_or(0)
}

/// The assertions.
fn check(session: &dyn Session, source: &BTreeMap<String, Vec<u8>>) {
    // The root shows what the source has, in today's documents, and not the control directory.
    let root = session.list("").unwrap();
    assert_eq!(root.get("v_i4"), Some(&ObjectKind::Directory));
    assert_eq!(root.get(".zgroup"), Some(&ObjectKind::File));
    assert!(!root.contains_key(".chunkmount"));

    // Values are those that netcdf-c reads.
    let expected: Value = serde_json::from_slice(&std::fs::read(data("sample.json")).unwrap()).unwrap();
    for (name, array) in expected.as_object().unwrap() {
        let values = assemble(session, name);
        assert_eq!(hex(&values), array["values"].as_str().unwrap(), "{name}");
    }

    // Everything that is listed is there, with the size that is read; the damaged chunk alone fails.
    let mut failed = Vec::new();
    walk(session, "", &mut failed);
    assert_eq!(failed, [(DAMAGED.to_owned(), libc::EIO)]);
    assert_eq!(session.size(DAMAGED), Ok(11 * 12 * 4), "the size of a chunk follows from the metadata");
    assert!(session.read("f_deflate/0.1").is_ok() && session.read("f_deflate/.zarray").is_ok());

    // Absent is what the source has not, and nothing else.
    for path in ["nothing", "v_i4/99.99", "v_i4/0.0.0", "v_i4/00.0", "v_i4/0.0/x", "hippo/nothing", ".chunkmount/x"] {
        let error = session.size(path).unwrap_err();
        assert!(error == libc::ENOENT || error == libc::ENOTDIR, "{path}: {error}");
    }

    // The control directory has the source as it is, and counts.
    for (key, bytes) in source {
        assert_eq!(session.read(&format!(".chunkmount/source/{key}")).as_ref(), Ok(bytes), "{key}");
    }
    let statistics: Value = serde_json::from_slice(&session.read(".chunkmount/stats.json").unwrap()).unwrap();
    assert!(
        statistics["cache"]["misses"].as_u64().unwrap() > 0 && statistics["arrays"]["f_deflate"]["errors"].as_u64().unwrap() > 0
    );
}

/// The elements of an array, put together from its chunk files as its `.zarray` says.
fn assemble(session: &dyn Session, name: &str) -> Vec<u8> {
    let document: Value = serde_json::from_slice(&session.read(&format!("{name}/.zarray")).unwrap()).unwrap();
    assert!(document["compressor"].is_null() && document["filters"].is_null() && document["order"] == "C", "{name}");
    let numbers = |key: &str| document[key].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect::<Vec<_>>();
    let (shape, chunks) = (numbers("shape"), numbers("chunks"));
    let item: usize = document["dtype"].as_str().unwrap()[2..].parse().unwrap();
    let strides = |lengths: &[usize]| (0..lengths.len()).map(|i| lengths[i + 1..].iter().product::<usize>()).collect::<Vec<_>>();
    let (array_strides, chunk_strides) = (strides(&shape), strides(&chunks));
    let mut files = BTreeMap::new();
    let mut values = vec![0; shape.iter().product::<usize>() * item];
    for (element, value) in values.chunks_exact_mut(item).enumerate() {
        let index: Vec<usize> = (0..shape.len()).map(|i| element / array_strides[i] % shape[i]).collect();
        let file = index.iter().zip(&chunks).map(|(i, c)| (i / c).to_string()).collect::<Vec<_>>().join(".");
        let bytes = files.entry(file.clone()).or_insert_with(|| session.read(&format!("{name}/{file}")).unwrap());
        assert_eq!(bytes.len(), chunks.iter().product::<usize>() * item, "{name}/{file}");
        let at = (0..shape.len()).map(|i| index[i] % chunks[i] * chunk_strides[i]).sum::<usize>() * item;
        value.copy_from_slice(&bytes[at..at + item]);
    }
    values
}

fn walk(session: &dyn Session, path: &str, failed: &mut Vec<(String, i32)>) {
    for (name, kind) in session.list(path).unwrap() {
        let path = if path.is_empty() { name } else { format!("{path}/{name}") };
        match kind {
            ObjectKind::Directory => walk(session, &path, failed),
            ObjectKind::File => match session.read(&path) {
                Ok(bytes) => assert_eq!(session.size(&path), Ok(bytes.len() as u64), "{path}"),
                Err(e) => failed.push((path, e)),
            },
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The objects of the sample below its one folder, with a chunk damaged.
fn objects() -> BTreeMap<String, Vec<u8>> {
    let mut archive = zip::ZipArchive::new(std::fs::File::open(data("sample.zip")).unwrap()).unwrap();
    let mut objects = BTreeMap::new();
    for i in 0..archive.len() {
        let mut entry = archive.by_index(i).unwrap();
        if entry.is_file() {
            let key = entry.name().unwrap().split_once('/').unwrap().1.to_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            objects.insert(key, bytes);
        }
    }
    let damaged = objects.get_mut(DAMAGED).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0xff;
    objects
}

fn memory(objects: &BTreeMap<String, Vec<u8>>) -> MemStore {
    let store = MemStore::default();
    for (key, bytes) in objects {
        store.put(Key::root().join(key).unwrap(), bytes.clone());
    }
    store
}

fn unpack(objects: &BTreeMap<String, Vec<u8>>, into: &Path) {
    for (key, bytes) in objects {
        let path = into.join(key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
}

fn pack(objects: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (key, bytes) in objects {
        writer.start_file(key.as_str(), zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn vfs(store: Arc<dyn Store>) -> Vfs {
    let options =
        vfs::Options { fill_missing: false, refresh: None, retry: vfs::RETRY, cache_size: 1 << 20, name: "test".into() };
    Vfs::new(Tree::new(store, tree::Options::default()), options).unwrap()
}

#[test]
fn a_store_in_memory() {
    let objects = objects();
    check(&vfs(Arc::new(memory(&objects))), &objects);
}

#[test]
fn a_directory() {
    let (objects, room) = (objects(), tempfile::tempdir().unwrap());
    unpack(&objects, room.path());
    let store = DirStore::open(room.path(), DirOptions { follow_symlinks: false }).unwrap();
    check(&vfs(Arc::new(store)), &objects);
}

#[test]
fn a_zip_in_memory() {
    let objects = objects();
    let container = MemStore::default();
    container.put(Key::root().join("x.zip").unwrap(), pack(&objects));
    let store = ZipStore::open(Arc::new(container), Key::root().join("x.zip").unwrap()).unwrap();
    check(&vfs(Arc::new(store)), &objects);
}

#[test]
fn a_real_mount_of_a_directory_and_of_a_zip() {
    let (objects, room) = (objects(), tempfile::tempdir().unwrap());
    let (directory, archive) = (room.path().join("store"), room.path().join("store.zip"));
    unpack(&objects, &directory);
    std::fs::write(&archive, pack(&objects)).unwrap();
    check(&Mounted::new(&directory, room.path().join("a")), &objects);
    check(&Mounted::new(&archive, room.path().join("b")), &objects);
}

#[test]
fn an_open_that_failed_binds_nobody_to_what_was_damaged() {
    let store = Arc::new(MemStore::new());
    let put = |name: &str, bytes: &[u8]| put(&store, name, bytes);
    put(".zarray", br#"{"zarr_format":2,"shape":[8],"chunks":[4],"dtype":"|u1","compressor":null,"filters":null,"order":"C","fill_value":0}"#);
    put("0", b"abc");
    let vfs = vfs(store.clone());
    let inode = vfs.lookup(vfs::ROOT, b"0").unwrap().inode;
    assert_eq!(vfs.open(inode).err().unwrap().kind(), Kind::Corrupt);
    // The kernel keeps the inode; nobody has got a byte of it.
    put("0", b"abcd");
    let handle = vfs.open(inode).unwrap().handle;
    put("0", b"efgh");
    assert_eq!(vfs.read(handle, 0, 9, <[u8]>::to_vec).unwrap(), b"abcd");
    vfs.release(handle);
    put("0", b"");
    // Now there may be pages of it.
    let again = vfs.open(inode).map(|opened| vfs.read(opened.handle, 0, 9, <[u8]>::to_vec));
    assert_eq!(again.unwrap().unwrap(), b"abcd", "it is still in the cache");
}

/// Metadata of one shard of two chunks of four bytes, whose index follows them.
const SHARD: &[u8] = br#"{"zarr_format": 3, "node_type": "array", "shape": [8], "data_type": "uint8", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8]}}, "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [4], "codecs": [{"name": "bytes"}],
    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}]}}]}"#;

/// Where the two chunks begin, and their lengths, if the first comes first.
const IN_ORDER: [u64; 4] = [0, 4, 4, 4];

fn shard(chunks: &[u8; 8], index: [u64; 4]) -> Vec<u8> {
    [&chunks[..], &index.map(u64::to_le_bytes).concat()].concat()
}

fn put(store: &MemStore, name: &str, bytes: &[u8]) {
    store.put(Key::root().join(name).unwrap(), bytes.to_vec());
}

#[test]
fn a_version_of_which_nobody_has_a_byte_binds_nobody() {
    let store = Arc::new(MemStore::new());
    let put = |name: &str, bytes: &[u8]| put(&store, name, bytes);
    put("zarr.json", SHARD);
    put("c/0", &shard(b"abcdefgh", IN_ORDER));
    let vfs: &dyn Session = &vfs(store.clone());
    assert_eq!(vfs.read("c/0").unwrap(), b"abcd");
    // The index of the old shard is in memory; of its second chunk nobody has read anything.
    put("c/0", &shard(b"ijklmnop", [4, 4, 0, 4]));
    assert_eq!(vfs.read("c/1").unwrap(), b"ijkl");
    assert_eq!(vfs.read("c/0").unwrap(), b"abcd");
    assert!(store.delete(&Key::root().join("c/0").unwrap()));
    assert_eq!(vfs.read("c/1").unwrap(), b"ijkl", "it is still in the cache");
}

#[test]
fn those_who_open_together_get_one_version() {
    let store = Arc::new(MemStore::new());
    let faulty = Arc::new(Faulty::new(store.clone()));
    let put = |name: &str, bytes: &[u8]| put(&store, name, bytes);
    put("zarr.json", SHARD);
    put("c/0", &shard(b"abcdefgh", IN_ORDER));
    let vfs = &vfs(faulty.clone());
    assert_eq!(Session::read(vfs, "c/0").unwrap(), b"abcd");
    put("c/0", &shard(b"ijklmnop", IN_ORDER));
    let effect = Effect::Delay(Duration::from_millis(30));
    faulty.add(Fault { call: Some(Call::Get), key: None, after: 0, times: u64::MAX, effect });
    std::thread::scope(|scope| {
        // All begin with the version that the index in memory tells.
        let readers = [0, 0, 10, 20, 35].map(|pause| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(pause));
                Session::read(vfs, "c/1").unwrap()
            })
        });
        readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap(), b"mnop"));
    });
    let statistics: Value = serde_json::from_slice(&Session::read(vfs, ".chunkmount/stats.json").unwrap()).unwrap();
    assert_eq!(statistics["open"]["files"], 0);
}

#[test]
fn what_is_damaged_in_a_newer_version_is_no_error_of_the_older() {
    let store = Arc::new(MemStore::new());
    let put = |name: &str, bytes: &[u8]| put(&store, name, bytes);
    put("zarr.json", SHARD);
    let age = Some(Duration::ZERO);
    for newer in [Some(&b"no index"[..]), None] {
        put("c/0", &shard(b"abcdefgh", IN_ORDER));
        // Room for one block.
        let options = vfs::Options { fill_missing: false, refresh: age, retry: vfs::RETRY, cache_size: 1, name: "test".into() };
        let vfs =
            Vfs::new(Tree::new(store.clone(), tree::Options { refresh: age, ..tree::Options::default() }), options).unwrap();
        let open = |name: &[u8]| {
            let directory = vfs.lookup(vfs::ROOT, b"c").unwrap().inode;
            vfs.open(vfs.lookup(directory, name).unwrap().inode).unwrap().handle
        };
        let [first, second] = [&b"0"[..], b"1"].map(open);
        let read = |handle| vfs.read(handle, 0, 9, <[u8]>::to_vec);
        assert_eq!((read(first).unwrap(), read(second).unwrap()), (b"abcd".to_vec(), b"efgh".to_vec()));
        match newer {
            Some(bytes) => put("c/0", bytes),
            None => drop(store.delete(&Key::root().join("c/0").unwrap())),
        }
        assert_eq!(read(first).unwrap_err().kind(), Kind::Changed);
    }
}

#[test]
fn a_file_that_has_the_name_of_a_shown_chunk_is_not_listed() {
    let array = br#"{"zarr_format": 3, "node_type": "array", "shape": [4, 2], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}]}"#;
    let objects = [("zarr.json", &array[..]), ("c/1/0", b"abcd"), ("0", b"notes"), ("7", b"other notes")];
    let objects = objects.into_iter().map(|(key, bytes)| (key.to_owned(), bytes.to_vec())).collect();
    let options =
        vfs::Options { fill_missing: false, refresh: None, retry: vfs::RETRY, cache_size: 1 << 20, name: "test".into() };
    let flavour = Some(chunkmount::view::Flavour::Zarr2);
    let tree = Tree::new(Arc::new(memory(&objects)), tree::Options { flavour, ..tree::Options::default() });
    let vfs: &dyn Session = &Vfs::new(tree, options).unwrap();
    // Zarr v2 has `0` for the directory of the first chunks, though none is stored; beyond the grid the name is free.
    let names: Vec<String> = vfs.list("").unwrap().into_keys().collect();
    assert_eq!(names, [".zarray", "1", "7"]);
    assert_eq!((vfs.list("0").unwrap().len(), vfs.read("7").unwrap()), (0, b"other notes".to_vec()));
    assert_eq!(vfs.read("1/0").unwrap(), b"abcd");
}

#[test]
fn a_file_in_the_place_of_a_directory_of_chunks_is_not_listed() {
    let nested = br#"{"zarr_format": 2, "shape": [4, 4], "chunks": [2, 2], "dtype": "|u1", "fill_value": 0, "order": "C",
        "filters": null, "compressor": null, "dimension_separator": "/"}"#;
    let zarr3 = br#"{"zarr_format": 3, "node_type": "array", "shape": [4, 2], "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 2]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes"}]}"#;
    let objects = [("a/.zarray", &nested[..]), ("a/0", b"x"), ("a/1/0", b"abcd"), ("b/zarr.json", zarr3), ("b/c", b"x")];
    let vfs = vfs(Arc::new(memory(&objects.into_iter().map(|(key, bytes)| (key.to_owned(), bytes.to_vec())).collect())));
    let names = |path| vfs.list(path).unwrap().into_keys().collect::<Vec<_>>();
    assert_eq!(
        (names("a"), names("a/1"), names("b")),
        (vec![".zarray".into(), "1".into()], vec!["0".into()], vec!["zarr.json".into()])
    );
    // Zarr takes the chunks below for absent, too.
    for path in ["a/0", "a/0/0", "b/c"] {
        assert_eq!(vfs.size(path).unwrap_err(), chunkmount::error::Error::not_found().errno(), "{path}");
    }
}

#[test]
fn no_chunk_is_absent_below_an_array_that_cannot_be_understood() {
    // N5 stores the chunk that is shown as `0/1` at `1/0`: what the source has not says nothing of it.
    let objects = [("a/attributes.json", &b"{\"dimensions\": [4, 4], \"blockSize"[..]), ("a/1/0", b"block"), ("a/0/0", b"block")];
    let objects: Vec<_> = objects.into_iter().map(|(key, bytes)| (key.to_owned(), bytes.to_vec())).collect();
    let vfs = self::vfs(Arc::new(memory(&objects.iter().cloned().collect())));
    for name in ["a/0/1", "a/7", "a/7/7", "a/0.1", "a/c/0/1"] {
        assert_eq!(vfs.size(name), Err(libc::EIO), "{name}");
    }
    assert_eq!(vfs.size("a/notes"), Err(libc::ENOENT));
    assert_eq!(Session::read(&vfs, "a/0/0"), Err(libc::EIO));
    // In a container every directory without attributes is a group; what is below the array is none.
    let container = [("attributes.json".to_owned(), b"{\"n5\": \"4.0.0\"}".to_vec())];
    let vfs = self::vfs(Arc::new(memory(&objects.into_iter().chain(container).collect())));
    assert_eq!(vfs.size("a/0/1"), Err(libc::EIO));
    assert_eq!(Session::read(&vfs, "a/0/0"), Err(libc::EIO));
}
