//! Directories over stores that refuse and fail: what is not known is an error, never an absence.

#![expect(clippy::unwrap_used, reason = "helpers outside of #[test] may fail the test too")]

use chunkmount::array::{Format, Formats, Node};
use chunkmount::error::{Error, Kind, Result};
use chunkmount::store::faulty::{Call, Effect, Faulty};
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, Listing, Meta, Range, Requests, Store, Version};
use chunkmount::tree::{Below, Directory, Options, Tree};
use chunkmount::vfs::{self, Attr, ROOT, Vfs};
use chunkmount::view::Flavour;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const GROUP: &str = r#"{"zarr_format": 2}"#;
const ARRAY: &str = r#"{"zarr_format": 2, "shape": [4], "chunks": [4], "dtype": "<i4", "fill_value": 0, "order": "C",
    "filters": null, "compressor": {"id": "zlib", "level": 1}}"#;
const N5: &str = r#"{"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}"#;

fn key(path: &str) -> Key {
    Key::root().join(path).unwrap()
}

/// A store with these objects, all of which answer.
fn store(objects: &[(&str, &str)]) -> Arc<Faulty> {
    let memory = MemStore::default();
    for (path, text) in objects {
        memory.put(key(path), text.as_bytes().to_vec());
    }
    Arc::new(Faulty::new(Arc::new(memory)))
}

fn fail(store: &Faulty, call: Call, path: &str, kind: Kind) {
    let key = if path.is_empty() { Key::root() } else { key(path) };
    store.always(call, key, Effect::Fail(kind, "by the script".into()));
}

fn tree(store: &Arc<Faulty>, nczarr: bool) -> Tree {
    Tree::new(store.clone(), Options { nczarr, ..Options::default() })
}

fn root(tree: &Tree) -> Directory {
    tree.open(&Key::root(), &Below::default()).unwrap()
}

fn document(tree: &Tree, directory: &Directory, name: &str) -> Result<Value> {
    let (_, content) = tree.document(directory, name.as_bytes()).unwrap();
    content.map(|bytes| serde_json::from_slice(&bytes).unwrap())
}

#[test]
fn consolidated_metadata_keeps_what_is_refused() {
    let array: Value = serde_json::from_str(ARRAY).unwrap();
    let group: Value = serde_json::from_str(GROUP).unwrap();
    let listed = json!({"zarr_consolidated_format": 1, "metadata": {".zgroup": group, "a/.zarray": array, "b/.zarray": array,
        "c/.zarray": array, "gone/.zarray": array}});
    let listed = listed.to_string();
    let objects = [(".zgroup", GROUP), (".zmetadata", &listed), ("a/.zarray", ARRAY), ("b/.zarray", ARRAY), ("c/.zarray", ARRAY)];
    let store = store(&objects);
    let tree = tree(&store, false);
    fail(&store, Call::Get, "c/.zarray", Kind::TimedOut);
    let root = root(&tree);
    // The source's own words describe encoded bytes, and what fails now may be decoded a moment later.
    assert_eq!(document(&tree, &root, ".zmetadata").unwrap_err().kind(), Kind::TimedOut);
    assert!(tree.open(&key("c"), &root.below).unwrap().node.is_err());
    store.heal();
    fail(&store, Call::Head, "b", Kind::Denied);
    let shown = document(&tree, &root, ".zmetadata").unwrap();
    let shown = shown["metadata"].as_object().unwrap();
    // What is refused keeps the source's own words, and fails when it is read.
    assert_eq!(shown["b/.zarray"], array);
    // What it alone tells is there.
    assert!(shown["a/.zarray"]["compressor"].is_null() && shown["c/.zarray"]["compressor"].is_null());
    assert!(shown["gone/.zarray"]["compressor"].is_null());
    assert!(tree.open(&key("b"), &root.below).is_err());
    // With marks, what is shown of `a` depends on what is beside it. The source's own words would not be true of it.
    let tree = self::tree(&store, true);
    assert_eq!(document(&tree, &self::root(&tree), ".zmetadata").unwrap_err().kind(), Kind::Denied);
}

#[test]
fn marks_are_not_invented_without_all_that_they_tell_of() {
    let objects = [(".zgroup", GROUP), ("a/.zarray", ARRAY), ("b/.zarray", ARRAY), ("c/.zarray", "{")];
    let store = store(&objects);
    let tree = tree(&store, true);
    let directory = root(&tree);
    let mark = |value: Value| value["_nczarr_group"]["arrays"].clone();
    assert_eq!(mark(document(&tree, &directory, ".zattrs").unwrap()), json!(["a", "b"]), "damage is left out");

    for (call, path, kind) in
        [(Call::Get, "b/.zarray", Kind::Denied), (Call::Head, "b", Kind::Unavailable), (Call::List, "", Kind::TimedOut)]
    {
        let store = self::store(&objects);
        let tree = self::tree(&store, true);
        fail(&store, call, path, kind);
        let directory = root(&tree);
        assert_eq!(document(&tree, &directory, ".zattrs").unwrap_err().kind(), kind, "{path}");
        // What is beside the group's marks does not need them, but for those of its arrays.
        assert!(directory.node.is_ok());
    }
}

#[test]
fn a_folder_that_does_not_answer_is_broken() {
    let objects = [("g/x/attributes.json", N5), ("g/y/attributes.json", N5)];
    let store = store(&objects);
    assert!(matches!(root(&tree(&store, false)).node, Ok(Node::Group(group)) if group.format == Format::N5));

    fail(&store, Call::List, "g", Kind::Unavailable);
    assert_eq!(root(&tree(&store, false)).node.unwrap_err().kind(), Kind::Unavailable);

    let store = self::store(&objects);
    fail(&store, Call::Get, "g/x/attributes.json", Kind::TimedOut);
    assert_eq!(root(&tree(&store, false)).node.unwrap_err().kind(), Kind::TimedOut);

    // What may not be read says nothing of the folder that it lies in.
    let store = self::store(&objects);
    fail(&store, Call::Get, "g/x/attributes.json", Kind::Denied);
    assert!(matches!(root(&tree(&store, false)).node, Ok(Node::Group(_))));
}

#[test]
fn marks_are_made_again_after_a_while() {
    let store = store(&[(".zgroup", GROUP), ("a/.zarray", ARRAY)]);
    let refresh = Some(std::time::Duration::ZERO);
    let tree = Tree::new(store.clone(), Options { nczarr: true, refresh, ..Options::default() });
    assert_eq!(document(&tree, &root(&tree), ".zattrs").unwrap()["_nczarr_group"]["arrays"], json!(["a"]));
    let lasting = self::tree(&store, true);
    document(&lasting, &root(&lasting), ".zattrs").unwrap();
    let before = store.calls().len();
    document(&lasting, &lasting.open(&key("a"), &root(&lasting).below).unwrap(), ".zattrs").unwrap();
    // The group is not looked at again for each of its arrays: the root is opened, and the array.
    assert!(store.calls()[before..].iter().all(|(call, _)| *call != Call::List));
}

/// A store over a network, with listings or without.
struct Distant {
    near: Arc<Faulty>,
    lists: bool,
}

impl Store for Distant {
    fn name(&self) -> String {
        "distant".to_owned()
    }

    fn head(&self, key: &Key) -> Result<Meta> {
        self.near.head(key)
    }

    fn get(&self, key: &Key, range: Range, pin: Option<&Version>, limit: u64, into: &mut Vec<u8>) -> Result<Meta> {
        self.near.get(key, range, pin, limit, into)
    }

    fn list(&self, key: &Key) -> Result<Listing> {
        if self.lists { self.near.list(key) } else { Err(Error::unsupported("no listings")) }
    }

    fn is_distant(&self) -> bool {
        true
    }

    fn requests(&self) -> Requests {
        self.near.requests()
    }
}

/// Consolidated metadata does not tell how chunks are named where the writer left it out, and all would be absent by the other name.
#[test]
fn nested_chunks_are_found_though_consolidated_metadata_is_believed() {
    let array = ARRAY.replace("[4]", "[4, 4]");
    let listed = json!({"zarr_consolidated_format": 1, "metadata": {"a/.zarray": serde_json::from_str::<Value>(&array).unwrap(),
        "b/.zarray": serde_json::from_str::<Value>(&array).unwrap()}});
    let listed = listed.to_string();
    let objects =
        [(".zgroup", GROUP), (".zmetadata", listed.as_str()), ("a/.zarray", &array), ("a/0/0", "x"), ("b/.zarray", &array)];
    for lists in [true, false] {
        let tree = Tree::new(Arc::new(Distant { near: store(&objects), lists }), Options::default());
        let root = tree.open(&Key::root(), &Below::default()).unwrap();
        let separator = |name: &str| {
            let directory = tree.open(&key(name), &root.below).unwrap();
            document(&tree, &directory, ".zarray").unwrap()["dimension_separator"].clone()
        };
        assert_eq!((separator("a"), separator("b")), (json!("/"), json!(".")), "listings: {lists}");
    }
}

/// Where the store is asked first, what is consolidated is not read before something is found that has no documents.
#[test]
fn consolidated_metadata_is_read_when_it_is_needed() {
    let array: Value = serde_json::from_str(ARRAY).unwrap();
    let listed = json!({"metadata": {"a/.zarray": array, "b/.zarray": array, "b/.zattrs": {"x": 1}, "g/c/.zarray": array}});
    let listed = listed.to_string();
    let objects = [(".zgroup", GROUP), (".zmetadata", listed.as_str()), ("a/.zarray", ARRAY), ("b/0", "x"), ("plain/f", "x")];
    let store = store(&objects);
    let tree = tree(&store, false);
    let root = root(&tree);
    let reads = || store.calls().iter().filter(|(call, at)| *call == Call::Get && *at == key(".zmetadata")).count();
    let open = |name: &str| tree.open(&key(name), &root.below);
    // The root is understood by all of its documents.
    let first = reads();
    assert!(open("a").unwrap().array().is_some());
    assert_eq!(reads(), first);
    assert_eq!(open("b").unwrap().array().unwrap().attributes.as_ref().unwrap()["x"], 1);
    assert!(matches!(open("g").unwrap().node, Ok(Node::Directory)));
    assert!(
        open("g/c").unwrap().array().is_some() && tree.head(&key("g/c")).is_ok() && tree.list(&key("g/c")).unwrap().is_empty()
    );
    assert!(matches!(open("plain").unwrap().node, Ok(Node::Directory)));
    for none in ["d", "g/d", "g/c/d"] {
        assert_eq!(open(none).unwrap_err().kind(), Kind::NotFound, "{none}");
    }
    assert_eq!(reads(), first + 1);
    // A failure to read it passes, and is no word about what it would tell.
    for (kind, passes) in [(Kind::Unavailable, true), (Kind::Denied, false)] {
        let store = self::store(&objects);
        let tree = self::tree(&store, false);
        fail(&store, Call::Get, ".zmetadata", kind);
        for name in ["b", "plain"] {
            assert_eq!(tree.open(&key(name), &Below::default()).unwrap().node.unwrap_err().kind(), kind, "{name}");
        }
        for name in ["g", "g/c", "d"] {
            assert_eq!(tree.open(&key(name), &Below::default()).unwrap_err().kind(), kind, "{name}");
            assert_eq!(tree.head(&key(name)).unwrap_err().kind(), kind, "{name}");
        }
        store.heal();
        assert_eq!(tree.open(&key("g/c"), &Below::default()).is_ok(), passes);
    }
}

/// What was consolidated may be a part of what is there, or a leftover of the other version.
#[test]
fn consolidated_metadata_hides_nothing() {
    let array: Value = serde_json::from_str(ARRAY).unwrap();
    let listed = json!({"metadata": {"a/.zattrs": {"x": 1}, "b/.zarray": array}}).to_string();
    let newer = json!({"zarr_format": 3, "node_type": "group"}).to_string();
    let open = |objects: &[(&str, &str)], only: Option<Format>, name: &str| {
        let wanted = only.map_or(Formats::All, Formats::Only);
        let tree = Tree::new(Arc::new(Distant { near: store(objects), lists: true }), Options { wanted, ..Options::default() });
        let root = tree.open(&Key::root(), &Below::default()).unwrap();
        tree.open(&key(name), &root.below).map(|directory| directory.node.unwrap())
    };
    let format = |node: Result<Node>| match node {
        Ok(Node::Array(array)) => Ok(array.format),
        Ok(_) => panic!("no array"),
        Err(e) => Err(e.kind()),
    };
    let objects = [(".zgroup", GROUP), (".zmetadata", listed.as_str()), ("a/.zarray", ARRAY), ("a/.zattrs", "{}")];
    assert_eq!(format(open(&objects, None, "a")), Ok(Format::Zarr2));
    assert_eq!(format(open(&objects, None, "b")), Ok(Format::Zarr2), "believed");
    // Beside a newer document it is not, unless the older version is asked for.
    let objects = [("zarr.json", newer.as_str()), (".zgroup", GROUP), (".zmetadata", &listed)];
    assert_eq!(format(open(&objects, None, "b")), Err(Kind::NotFound));
    assert_eq!(format(open(&objects, Some(Format::Zarr2), "b")), Ok(Format::Zarr2));
    // Nor where another format is.
    let objects = [("attributes.json", "{}"), (".zmetadata", &listed), ("b/attributes.json", N5)];
    assert_eq!(format(open(&objects, Some(Format::N5), "b")), Ok(Format::N5));
}

/// How long the file system of [`mounted`] waits until it asks again.
const RETRY: Duration = Duration::from_millis(200);

fn mounted(tree: Tree) -> Vfs {
    let options = vfs::Options { fill_missing: false, refresh: None, retry: RETRY, cache_size: 1 << 20, name: "test".into() };
    Vfs::new(tree, options).unwrap()
}

fn walk(vfs: &Vfs, path: &str) -> Result<Attr> {
    let mut attr = vfs.attr(ROOT)?;
    for name in path.split('/') {
        attr = vfs.lookup(attr.inode, name.as_bytes())?;
    }
    Ok(attr)
}

fn read(vfs: &Vfs, path: &str) -> Result<Vec<u8>> {
    let opened = vfs.open(walk(vfs, path)?.inode)?;
    let bytes = vfs.read(opened.handle, 0, u32::MAX, <[u8]>::to_vec);
    vfs.release(opened.handle);
    bytes
}

/// Who holds a directory open is told of a store that fails, and not made to wait for it with each chunk; it is the same array again
/// when the store answers.
#[test]
fn a_directory_that_is_held_open_is_looked_at_once_where_the_store_fails() {
    let array = ARRAY.replace(r#"{"id": "zlib", "level": 1}"#, "null").replace("[4], \"chunks\"", "[12], \"chunks\"");
    let chunk = "0123456789abcdef";
    let objects = [(".zgroup", GROUP), ("a/.zarray", array.as_str()), ("a/0", chunk), ("a/1", chunk), ("a/2", chunk)];
    let refresh = Some(Duration::from_millis(60));
    for path in ["a/.zarray", "a/zarr.json"] {
        let store = store(&objects);
        let tree = Tree::new(store.clone(), Options { refresh, ..Options::default() });
        let options = vfs::Options { fill_missing: false, refresh, retry: RETRY, cache_size: 1 << 20, name: "test".into() };
        let vfs = Vfs::new(tree, options).unwrap();
        let held = walk(&vfs, "a").unwrap().inode;
        let kinds = || [b"0", b"1", b"2"].map(|name| vfs.lookup(held, name).map_err(|e| e.kind()).map(drop));
        assert_eq!(kinds(), [Ok(()); 3]);
        std::thread::sleep(Duration::from_millis(80));
        fail(&store, Call::Get, path, Kind::TimedOut);
        let asked = || store.calls().iter().filter(|called| **called == (Call::Get, key(path))).count();
        let before = asked();
        assert_eq!(kinds(), [Err(Kind::TimedOut); 3], "{path}");
        assert_eq!(asked(), before + 1, "{path}");
        store.heal();
        std::thread::sleep(RETRY);
        assert_eq!(kinds(), [Ok(()); 3]);
    }
}

/// A failure at the first look leaves nothing broken, and nothing absent: it is an error while it lasts.
#[test]
fn what_the_store_failed_to_tell_is_asked_again() {
    let array = ARRAY.replace(r#"{"id": "zlib", "level": 1}"#, "null");
    let objects = [(".zgroup", GROUP), ("a/.zarray", array.as_str()), ("a/.zattrs", r#"{"x": 1}"#), ("a/0", "0123456789abcdef")];
    for kind in [Kind::Unavailable, Kind::TimedOut] {
        for (call, path, broken) in [
            (Call::Get, "a/.zarray", "a"),
            (Call::Get, "a/zarr.json", "a"),
            (Call::Get, ".zgroup", ""),
            (Call::Get, "zarr.json", ""),
            (Call::Get, "a/.zattrs", "a/.zattrs"),
            (Call::Head, "a", "none of it"),
        ] {
            let store = store(&objects);
            fail(&store, call, path, kind);
            let vfs = mounted(tree(&store, false));
            for name in
                ["a/.zarray", "a/.zattrs", "a/zarr.json", "a/.zgroup", "a/0", ".zgroup", ".zattrs", ".zarray", "zarr.json"]
            {
                let case = format!("{kind:?} of {path}: {name}");
                let is_broken = match broken {
                    "none of it" => name.starts_with("a/"),
                    "" => !name.contains('/'),
                    broken => name.starts_with(broken),
                };
                match read(&vfs, name) {
                    Err(e) if is_broken => assert_eq!(e.kind(), kind, "{case}: {e}"),
                    Err(e) => assert_eq!(e.kind(), Kind::NotFound, "{case}: {e}"),
                    Ok(_) => assert!(!is_broken, "{case}"),
                }
                if let (true, Ok(attr)) = (is_broken, walk(&vfs, name)) {
                    assert!(attr.brief, "{case}: the kernel must not keep it");
                }
            }
            // Not at once: a store that fails is not asked by each request.
            if call == Call::Get {
                let (before, start) = (store.calls().len(), std::time::Instant::now());
                let _ = (read(&vfs, "a/.zarray"), read(&vfs, "a/.zattrs"), walk(&vfs, "zarr.json"));
                let again = store.calls()[before..].iter().filter(|(_, at)| *at == key(path)).count();
                assert!(again as u128 <= 1 + start.elapsed().as_millis() / RETRY.as_millis(), "{path}: asked {again} times");
            }
            let held = walk(&vfs, "a");
            store.heal();
            std::thread::sleep(RETRY);
            assert_eq!(read(&vfs, "a/0").unwrap(), b"0123456789abcdef", "{kind:?} of {path}");
            let shown: Value = serde_json::from_slice(&read(&vfs, "a/.zarray").unwrap()).unwrap();
            assert_eq!((&shown["shape"], read(&vfs, "a/.zattrs").is_ok()), (&json!([4]), true), "{kind:?} of {path}");
            for name in ["a", "a/.zarray", "a/.zattrs", "a/0", ".zgroup"] {
                assert!(!walk(&vfs, name).unwrap().brief, "{kind:?} of {path}: {name}");
            }
            assert_eq!(walk(&vfs, "a/zarr.json").unwrap_err().kind(), Kind::NotFound);
            // Who is in the directory still finds it mended.
            if let Ok(held) = held {
                assert!(vfs.lookup(held.inode, b".zarray").is_ok() && vfs.lookup(held.inode, b"0").is_ok());
            }
        }
    }
}

/// A store with these objects, in bytes.
fn bytes(objects: &[(&str, &[u8])]) -> Arc<Faulty> {
    let memory = MemStore::default();
    objects.iter().for_each(|(path, content)| memory.put(key(path), content.to_vec()));
    Arc::new(Faulty::new(Arc::new(memory)))
}

/// What blocks and levels tell of a view is no less for a failure when it was first asked for: the document is an error then, and what it
/// would have been from the start when it is asked for again.
#[test]
fn a_failure_leaves_nothing_out_of_a_view() {
    let text = ARRAY.replace("<i4", "<U1").replace('0', "\"\"").replace(r#"{"id": "zlib", "level": 1}"#, "null");
    let level = |n: u32| {
        json!({"dimensions": [n], "blockSize": [n], "dataType": "uint8", "compression": {"type": "raw"}}).to_string().into_bytes()
    };
    let (first, second) = (level(16), level(8));
    let of = |attributes: Value| attributes.to_string().into_bytes();
    let (axes, scales) = (of(json!({"n5": "2.5.0", "axes": ["x"], "units": ["nm"]})), of(json!({"scales": [[1], [2]]})));
    // A block of another number of numbers than its shape has.
    let varlength = [&[0, 1, 0, 1, 0, 0, 0, 16, 0, 0, 0, 3][..], b"abc"].concat();
    let pyramid: &[(&str, &[u8])] = &[
        ("attributes.json", &axes),
        ("p/attributes.json", &scales),
        ("p/s0/attributes.json", &first),
        ("p/s1/attributes.json", &second),
    ];
    let chars: &[(&str, &[u8])] = &[("a/.zarray", text.as_bytes()), ("a/0", b"abcd")];
    let numbers: &[(&str, &[u8])] = &[("a/attributes.json", &first), ("a/0", &varlength)];
    for (objects, call, path, name) in [
        (chars, Call::List, "a", "a/.zarray"),
        (chars, Call::Get, "a/0", "a/.zarray"),
        (numbers, Call::Get, "a/0", "a/.zarray"),
        (pyramid, Call::Get, "p/s1/attributes.json", "p/.zattrs"),
        (pyramid, Call::Head, "p/s1", "p/.zattrs"),
        (pyramid, Call::Get, "attributes.json", "p/.zattrs"),
        (pyramid, Call::Get, "p/s1/attributes.json", "p/s0/zarr.json"),
    ] {
        let flavour = name.ends_with("zarr.json").then_some(Flavour::Zarr3);
        let mount = |store| mounted(Tree::new(store, Options { flavour, ..Options::default() }));
        let right = read(&mount(bytes(objects)), name).unwrap_or_else(|e| panic!("{name}: {e}"));
        for kind in [Kind::Unavailable, Kind::TimedOut] {
            let store = bytes(objects);
            let vfs = mount(store.clone());
            fail(&store, call, path, kind);
            let e = read(&vfs, name).expect_err(&format!("{path} fails, and {name} is there"));
            assert_eq!(e.kind(), kind, "{path}, {name}: {e}");
            store.heal();
            std::thread::sleep(RETRY);
            let shown = read(&vfs, name).unwrap();
            assert_eq!(String::from_utf8_lossy(&shown), String::from_utf8_lossy(&right), "{path}, {name}");
        }
    }
}

/// What is wrong with one document is said of that one, by its name, in every version that it is of; what lies beside it is read.
#[test]
fn hostile_documents_fail_alone_and_by_name() {
    let many = format!("[{}1]", "1,".repeat(999_999));
    let array = ARRAY.replace(r#"{"id": "zlib", "level": 1}"#, "null");
    let three = json!({"zarr_format": 3, "node_type": "array", "shape": [4], "data_type": "int32", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}, "chunk_key_encoding": {"name": "default"},
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {}})
    .to_string();
    let chunk = "0123456789abcdef";
    for (document, good, shape, chunks, shown) in [
        (".zarray", array.as_str(), r#""shape": [4]"#, r#""chunks": [4]"#, "0"),
        ("zarr.json", three.as_str(), r#""shape":[4]"#, r#""chunk_shape":[4]"#, "c/0"),
        ("attributes.json", N5, r#""dimensions": [4]"#, r#""blockSize": [4]"#, "0"),
    ] {
        let with = |length: &str| {
            let of = |member: &str| member.replace("[4]", length);
            assert!(good.contains(shape) && good.contains(chunks));
            good.replace(shape, &of(shape)).replace(chunks, &of(chunks))
        };
        let twice = good.replacen(shape, &format!("{}, {shape}", shape.replace('4', "4000000")), 1);
        let bad = [
            ("many", good.replace(shape, &shape.replace("[4]", &many)), Kind::TooBig, ""),
            ("deep", with(&format!("{}4{}", "[".repeat(100_000), "]".repeat(100_000))), Kind::TooBig, "nested deeper"),
            ("more", format!("{good} {good}"), Kind::Corrupt, "text after the end"),
            ("brace", format!("{good}}}"), Kind::Corrupt, "text after the end"),
            ("nul", format!("{good}\0"), Kind::Corrupt, "text after the end"),
        ];
        let header = if document == "attributes.json" { 8 } else { 0 };
        let n5_block = [&[0, 0, 0, 1, 0, 0, 0, 4][..], b"0123"].concat();
        let content: &[u8] = if header > 0 { &n5_block } else { chunk.as_bytes() };
        let memory = MemStore::default();
        let texts = bad.iter().map(|(name, text, ..)| (*name, text.as_str())).chain([("good", good), ("twice", &twice)]);
        for (name, text) in texts {
            memory.put(key(&format!("{name}/{document}")), text.as_bytes());
            memory.put(key(&format!("{name}/{shown}")), content);
        }
        if header > 0 {
            memory.put(key(document), *b"{\"n5\": \"4.0.0\"}");
        }
        let vfs = mounted(Tree::new(Arc::new(memory), Options::default()));
        let start = std::time::Instant::now();
        for (name, _, kind, says) in &bad {
            for file in [".zarray", "zarr.json"] {
                let case = format!("{name}/{file} of {document}");
                let e = match read(&vfs, &format!("{name}/{file}")) {
                    Err(e) => e,
                    Ok(bytes) => panic!("{case}: {}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)])),
                };
                if e.kind() == Kind::NotFound {
                    assert_ne!(file == "zarr.json", document == "zarr.json", "{case}");
                    continue;
                }
                let text = e.to_string();
                assert_eq!(e.kind(), *kind, "{case}: {text}");
                assert!(text.contains(name) && text.contains(document) && text.contains(says), "{case}: {text}");
                assert!(text.len() < 1000, "{case}: {} bytes", text.len());
            }
            let e = read(&vfs, &format!("{name}/{shown}")).unwrap_err();
            assert_ne!(e.kind(), Kind::NotFound, "{name} of {document}: a chunk is not absent: {e}");
        }
        // As Python's reader of JSON has it, the last of two counts.
        for name in ["good", "twice"] {
            let file = if document == "zarr.json" { document } else { ".zarray" };
            let made: Value = serde_json::from_slice(&read(&vfs, &format!("{name}/{file}")).unwrap()).unwrap();
            assert_eq!(made["shape"], json!([4]), "{name} of {document}");
            assert_eq!(read(&vfs, &format!("{name}/{shown}")).unwrap(), &content[header..], "{name} of {document}");
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{document}: {:?}", start.elapsed());
    }
}
