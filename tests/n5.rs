//! N5 datasets and blocks: headers of every mode, and `codecs`.
//!
//! Blocks are those of Java N5 4.0.2 in `tests/data/stores.tar.xz`, the example of the N5 specification, or damaged copies.

#![expect(clippy::unwrap_used, reason = "helpers outside of #[test] may fail the test too")]

use chunkmount::array::{Array, Content, DType, Envelope, Node, Placement};
use chunkmount::chunk;
use chunkmount::codec::Length;
use chunkmount::error::{Kind, Result};
use chunkmount::format::{self, Context, Documents, n5};
use chunkmount::store::dir::{DirOptions, DirStore};
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, Range, Store};
use serde_json::{Value, json};

fn detect(document: &Value, source_axes: bool) -> Result<Array> {
    let documents = Documents::from([("attributes.json", Ok(document.to_string().into_bytes()))]);
    match format::detect(&documents, &Context { source_axes, ..Context::default() })? {
        Node::Array(array) => Ok(*array),
        other => panic!("{other:?}"),
    }
}

fn dataset(dtype: &str) -> Array {
    let document = json!({"dataType": dtype, "compression": {"type": "raw"}, "blockSize": [3, 2], "dimensions": [4, 3]});
    detect(&document, false).unwrap()
}

fn decode(array: &Array, block: &[u8]) -> Result<Vec<u8>> {
    chunk::decode(array, block.to_vec(), Length::AtMost(1 << 20), None)
}

/// A header, and what follows it.
fn block(mode: u16, shape: &[u32], count: Option<u32>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = mode.to_be_bytes().to_vec();
    if mode != 2 {
        bytes.extend(u16::try_from(shape.len()).unwrap().to_be_bytes());
        bytes.extend(shape.iter().flat_map(|n| n.to_be_bytes()));
    }
    bytes.extend(count.iter().flat_map(|n| n.to_be_bytes()));
    bytes.extend(payload);
    bytes
}

#[test]
fn texts() {
    let array = dataset("string");
    let texts = |bytes: Vec<u8>| bytes.get(4..).unwrap().to_vec();
    // joint/strings/1/1 of the Java store.
    let java = block(1, &[1, 1], Some(10), "lemon\u{e9}\u{e9}\0".as_bytes());
    let shown = decode(&array, &java).unwrap();
    assert_eq!(shown.first_chunk::<8>(), Some(&[6, 0, 0, 0, 9, 0, 0, 0]));
    assert_eq!(shown.len(), 4 + 6 * 4 + 9);
    // A count of texts, or the mode of whole blocks: what Java reads as well.
    assert_eq!(decode(&array, &block(1, &[1, 1], Some(1), b"ab\0")).unwrap().len(), 4 + 6 * 4 + 2);
    assert_eq!(texts(decode(&array, &block(0, &[2, 1], None, b"a\0b\0")).unwrap())[..10], *b"\x01\0\0\0a\x01\0\0\0b");
    for bad in [
        block(1, &[1, 1], Some(9), "lemon\u{e9}\u{e9}\0".as_bytes()),
        block(1, &[2, 1], Some(10), "lemon\u{e9}\u{e9}\0xy\0".as_bytes()),
        block(1, &[4, 1], Some(8), b"a\0b\0c\0d\0"),
        block(2, &[], Some(2), b"a\0"),
        block(1, &[1, 1], Some(2), b"\xff\0"),
        vec![0, 1, 0, 2, 0],
    ] {
        assert_eq!(decode(&array, &bad).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
    }
}

#[test]
fn objects() {
    let array = dataset("object");
    // joint/object/0/0 of the Java store.
    let java = b"\0\x02\0\0\0\x0copaque delta";
    assert_eq!(decode(&array, java).unwrap(), b"opaque delta");
    // As the specification has the header.
    assert_eq!(decode(&array, b"\0\x02\0\x02\0\0\0\x03\0\0\0\x02\0\0\0\x05bytes").unwrap(), b"bytes");
    for bad in [
        &java[..17],
        b"\0\x02\0\0\0\x0b",
        b"\0\x02\0\0",
        b"\0\x02\0\x03\0\0\0\x03\0\0\0\x02\0\0\0\x05bytes",
        &block(1, &[3, 2], Some(5), b"bytes"),
    ] {
        assert_eq!(decode(&array, bad).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
    }
    assert_eq!(decode(&array, &block(2, &[], Some(u32::MAX), b"")).unwrap_err().kind(), Kind::TooBig);
}

#[test]
fn numbers_of_any_number() {
    let mut array = dataset("uint16");
    let long = block(1, &[3, 2], Some(3), &[0, 1, 0, 2, 0, 3]);
    let e = decode(&array, &long).unwrap_err();
    assert_eq!(e.kind(), Kind::Unsupported);
    assert!(e.reason().contains("variable length"), "{e}");
    n5::make_varlength(&mut array);
    assert_eq!(array.chunk_bytes(), None);
    assert_eq!(decode(&array, &long).unwrap(), [1, 0, 2, 0, 3, 0]);
    assert!(decode(&array, &block(1, &[3, 2], Some(0), &[])).unwrap().is_empty());
    // As many as elements; and in a block of its own mode.
    assert_eq!(decode(&array, &block(1, &[1, 1], Some(1), &[1, 2])).unwrap(), [2, 1]);
    assert_eq!(decode(&array, &block(0, &[1, 1], None, &[1, 2])).unwrap(), [2, 1]);
    assert_eq!(decode(&array, &block(2, &[], Some(2), &[1, 2])).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(decode(&array, &block(2, &[], Some(1), &[1, 2])).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(decode(&array, &block(1, &[3, 2], Some(4), &[0, 1])).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(decode(&array, &block(1, &[3, 2], Some(u32::MAX), &[])).unwrap_err().kind(), Kind::TooBig);
}

#[test]
fn the_first_blocks_tell() {
    let whole = block(0, &[3, 2], None, &[0; 12]);
    let either = block(1, &[3, 2], Some(6), &[0; 12]);
    let long = block(1, &[3, 2], Some(1), &[0; 2]);
    let told = |blocks: &[(&str, &[u8])]| {
        let store = MemStore::new();
        for (name, bytes) in blocks {
            store.put(Key::root().join("a").unwrap().join(name).unwrap(), bytes.to_vec());
        }
        chunk::is_varlength(&store, &Key::root().join("a").unwrap(), &dataset("uint16")).unwrap()
    };
    assert!(!told(&[("attributes.json", b"{}")]));
    assert!(told(&[("0/0", &long)]));
    assert!(told(&[("1/1", &long)]));
    assert!(told(&[("0/0", &either), ("0/1", &long)]));
    assert!(!told(&[("0/0", &either), ("0/1", &either)]));
    assert!(!told(&[("0/0", &whole), ("0/1", &long)]));
    assert!(told(&[("0/0", &block(0, &[1, 1], None, &[0; 2])), ("0/1", &long)]));
    let damaged = block(1, &[3, 2], Some(u32::MAX - 15), &[0; 2]);
    assert!(!told(&[("0/0", &damaged), ("0/1", &whole)]));
    assert!(told(&[("0/0", &damaged), ("0/1", &long)]));
    // Not in the grid, or not to be read.
    assert!(!told(&[("2/0", &long), ("0/7", &long), ("x/0", &long), ("0/0", b"\0\x01")]));
}

fn sharded(chunk_shape: &Value, more: &Value) -> Value {
    let mut document = json!({
        "dimensions": [13, 11], "blockSize": [6, 8], "dataType": "int32", "codecs": [{"name": "sharding_indexed", "configuration": {
            "chunk_shape": chunk_shape, "codecs": [{"name": "n5bytes"}], "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}],
        }}],
    });
    for (name, value) in more.as_object().unwrap() {
        document[name] = value.clone();
    }
    document
}

#[test]
fn codecs_say_where_blocks_lie() {
    let plain = json!({"dimensions": [4, 3], "blockSize": [3, 2], "dataType": "int32", "codecs": [{"name": "n5bytes"}, {"name": "gzip"}]});
    let array = detect(&plain, false).unwrap();
    assert_eq!((array.stored.envelope, array.stored.chain.names()), (Envelope::N5(Content::Elements), vec!["gzip".to_owned()]));
    let bare = detect(
        &sharded(&json!([2, 3]), &json!({"codecs": [{"type": "raw-bytes", "configuration": {"endian": "little"}}]})),
        false,
    );
    let bare = bare.unwrap();
    assert_eq!((bare.stored.envelope, bare.stored.swaps.len()), (Envelope::None, 0));

    // `chunk_shape` is in Zarr's order.
    for (source_axes, chunks, parts, axes) in [(false, [2, 3], [4, 2], [0, 1]), (true, [3, 2], [2, 4], [1, 0])] {
        let array = detect(&sharded(&json!([2, 3]), &json!({})), source_axes).unwrap();
        assert_eq!(array.chunks, chunks);
        let Placement::Shards(levels) = &array.stored.placement else { panic!("{array:?}") };
        let [level] = levels.as_slice() else { panic!("{levels:?}") };
        assert_eq!((level.parts.as_slice(), level.axes.as_slice()), (&parts[..], &axes[..]));
        assert!(level.big_endian && !level.at_start);
    }
    // Before the first release.
    let early = sharded(&json!([2, 3]), &json!({"shardSize": [6, 8], "blockSize": [3, 2]}));
    assert_eq!(detect(&early, false).unwrap().chunks, [2, 3]);

    // A list of something else is an attribute beside `compression`.
    let other =
        json!({"dimensions": [4], "blockSize": [3], "dataType": "int8", "codecs": ["h264"], "compression": {"type": "raw"}});
    assert_eq!(detect(&other, false).unwrap().dtype, DType::Int(1));
    assert_eq!(detect(&other, false).unwrap().attributes.unwrap()["codecs"], json!(["h264"]));
    // So is the size of a shard where there is none, and neither where they are read.
    for mut document in [plain.clone(), other] {
        document["shardSize"] = json!("large");
        let array = detect(&document, false).unwrap();
        assert_eq!((array.attributes.unwrap()["shardSize"].clone(), array.chunks.last()), (json!("large"), Some(&3)));
    }
    assert!(detect(&plain, false).unwrap().attributes.unwrap().is_empty());
    assert!(detect(&early, false).unwrap().attributes.unwrap().is_empty());

    // As many parts as an index may have.
    assert!(detect(&sharded(&json!([1, 1]), &json!({"blockSize": [4096, 4096]})), false).is_ok());
    for (document, kind) in [
        (sharded(&json!([3, 2]), &json!({})), Kind::Corrupt),
        (sharded(&json!([2, 0]), &json!({})), Kind::Corrupt),
        (sharded(&json!([2]), &json!({})), Kind::Corrupt),
        (sharded(&json!([2, 3]), &json!({"shardSize": [6, 8], "blockSize": [6, 4]})), Kind::Corrupt),
        (sharded(&json!([2, 3]), &json!({"codecs": [{"name": "gzip"}]})), Kind::Unsupported),
        (sharded(&json!([2, 3]), &json!({"codecs": [{"name": "n5bytes"}, {"name": "jpeg"}]})), Kind::Unsupported),
        (sharded(&json!([2, 3]), &json!({"codecs": [{"name": "n5bytes"}, {}]})), Kind::Corrupt),
        (sharded(&json!([2, 3]), &json!({"codecs": [{"name": "sharding_indexed"}]})), Kind::Corrupt),
        (sharded(&json!([2, 3]), &json!({"codecs": []})), Kind::Corrupt),
        (sharded(&json!([1, 1]), &json!({"blockSize": [8192, 4096]})), Kind::TooBig),
        (sharded(&json!([1, 1]), &json!({"blockSize": [u64::MAX, 4]})), Kind::TooBig),
    ] {
        assert_eq!(detect(&document, false).unwrap_err().kind(), kind, "{document}");
    }
}

// What `JsonPrimitive.getAsLong` of gson makes of them, but that it cuts fractions off.
#[test]
fn lengths_are_whole_numbers_however_written() {
    let document = |dimensions: &str, block: &str| {
        let text = format!(
            r#"{{"dimensions": {dimensions}, "blockSize": {block}, "dataType": "int8", "compression": {{"type": "raw"}}}}"#
        );
        serde_json::from_str::<Value>(&text).unwrap()
    };
    for (dimensions, block) in [("[7.0, 5]", "[4, 3.0]"), (r#"["7", 5.0]"#, r#"[4.0, "3"]"#), ("[0.7e1, 5]", "[4, 3]")] {
        let array = detect(&document(dimensions, block), false).unwrap();
        assert_eq!((array.shape, array.chunks), (vec![5, 7], vec![3, 4]), "{dimensions} {block}");
    }
    for bad in ["[7.5, 5]", r#"["seven", 5]"#, "[true, 5]", "[-7.0, 5]", "[null, 5]", r#"["", 5]"#] {
        assert_eq!(detect(&document(bad, "[4, 3]"), false).unwrap_err().kind(), Kind::Corrupt, "{bad}");
    }
}

#[test]
fn label_multisets_are_told_by_an_attribute() {
    let mut document = json!({"dataType": "uint8", "compression": {"type": "raw"}, "blockSize": [3, 2], "dimensions": [4, 3]});
    assert!(n5::most_frequent_labels(&detect(&document, false).unwrap()).is_none());
    document["isLabelMultiset"] = json!(true);
    let array = detect(&document, false).unwrap();
    assert_eq!(array.stored.envelope, Envelope::N5(Content::Varlength(1)));
    let labels = n5::most_frequent_labels(&array).unwrap();
    assert_eq!((&labels.dtype, labels.chunk_bytes()), (&DType::UInt(8), Some(48)));
    // One element with the labels 7 (once) and 9 (twice); the rest of the block is background.
    let lists = b"\0\0\0\0\0\0\0\0\x02\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0\x02\0\0\0";
    let shown = decode(&labels, &block(1, &[1, 1], Some(36), lists)).unwrap();
    assert_eq!((shown.len(), shown[0], shown[1..].iter().max()), (48, 9, Some(&0)));
    assert_eq!(decode(&labels, &block(1, &[2, 1], Some(36), lists)).unwrap_err().kind(), Kind::Corrupt);
}

/// Links to blocks that were not fetched, as git-annex leaves them: what the metadata tells is shown all the same.
#[test]
fn blocks_that_are_links_to_nothing_leave_the_metadata_as_it_is() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(temp.path().join("a/0")).unwrap();
    for name in ["0", "1"] {
        std::os::unix::fs::symlink("../../.git/annex/objects/none", temp.path().join("a/0").join(name)).unwrap();
    }
    let store = DirStore::open(temp.path(), DirOptions::default()).unwrap();
    let dataset = dataset("uint16");
    assert!(!chunk::is_varlength(&store, &Key::root().join("a").unwrap(), &dataset).unwrap());
    let e = store.get(&Key::root().join("a/0/0").unwrap(), Range::All, None, 100, &mut Vec::new()).unwrap_err();
    assert_eq!((e.kind(), e.errno()), (Kind::Dangling, libc::EIO), "{e}");
}
