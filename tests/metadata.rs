//! Documents that other software wrote, read and shown again.
//!
//! What is expected was told to the writers, or is what zarr-python, tensorstore or netcdf-c read from the same files.

#![expect(clippy::unwrap_used, reason = "helpers outside of #[test] may fail the test too")]

use chunkmount::array::{Array, Content, DType, Envelope, Format, Node, Order, Swap};
use chunkmount::error::Kind;
use chunkmount::format::{self, Context, DOCUMENTS, Documents, n5};
use chunkmount::view::{self, nczarr::Survey};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/metadata").join(path)
}

fn load(dir: &Path) -> Documents {
    let read = |name: &&'static str| std::fs::read(dir.join(name)).ok().map(|bytes| (*name, Ok(bytes)));
    DOCUMENTS.iter().filter_map(read).collect()
}

fn detect(path: &str) -> Node {
    format::detect(&load(&data(path)), &Context::default()).unwrap()
}

fn array_of(node: Node) -> Array {
    match node {
        Node::Array(array) => *array,
        other => panic!("{other:?}"),
    }
}

fn array(path: &str) -> Array {
    array_of(detect(path))
}

/// One `.zarray` as text, with nothing beside it.
fn zarray(text: &str) -> chunkmount::error::Result<Node> {
    format::detect(&Documents::from([(".zarray", Ok(text.as_bytes().to_vec()))]), &Context::default())
}

fn member(name: &str, value: &str) -> String {
    let defaults = [
        ("zarr_format", "2"),
        ("shape", "[7, 9]"),
        ("chunks", "[4, 4]"),
        ("dtype", "\"<u2\""),
        ("fill_value", "0"),
        ("order", "\"C\""),
        ("filters", "null"),
        ("compressor", "null"),
    ];
    let members: Vec<_> = defaults.iter().map(|(n, v)| format!("\"{n}\": {}", if *n == name { value } else { v })).collect();
    format!("{{{}}}", members.join(", "))
}

fn shown(node: &Node) -> Vec<(&'static str, Value)> {
    view::zarr2::documents(node, Survey::ALL)
        .into_iter()
        .map(|(n, d)| (n, serde_json::from_slice(&d.unwrap()).unwrap()))
        .collect()
}

fn zarr3(node: &Node) -> Value {
    serde_json::from_slice(&view::zarr3::document(node).unwrap().unwrap()).unwrap()
}

#[test]
fn every_generation_of_nczarr_is_shown_as_today() {
    let today = array("nczarr-4.9.3/atts").attributes.unwrap();
    for version in ["4.8.0", "4.8.1", "4.9.2", "4.9.3"] {
        let atts = array(&format!("nczarr-{version}/atts"));
        let attributes = atts.attributes.unwrap();
        for name in ["_ARRAY_DIMENSIONS", "_nczarr_array", "a_quote", "a_ubyte", "a_byte", "a_uint64", "a_text", "a_empty"] {
            assert_eq!(attributes[name], today[name], "{version} {name}");
        }
        // Written as a string by one writer and as characters by the other.
        let types = attributes["_nczarr_attr"]["types"].as_object().unwrap().iter();
        for (name, spelled) in types.filter(|(name, _)| *name != "a_utf8") {
            assert_eq!(*spelled, today["_nczarr_attr"]["types"][name], "{version} type of {name}");
        }
        assert!(!attributes.keys().any(|name| name.starts_with("_NCZARR")));
        assert_eq!(atts.fill.zarr2, -2_147_483_647);

        let chars = array(&format!("nczarr-{version}/chunk_char"));
        assert_eq!(chars.dtype, DType::Bytes { length: 1, char: true });
        assert!(!chars.stored.narrow_text);
        assert_eq!(chars.dimension_names, Some(vec![Some("lat".into()), Some("nchar".into())]));

        let scalar = array(&format!("nczarr-{version}/delta_scalar")).attributes.unwrap();
        assert_eq!(scalar["_nczarr_array"], json!({"dimension_references": [], "scalar": 1, "storage": "chunked"}));
        assert_eq!(scalar["_ARRAY_DIMENSIONS"], json!(["_scalar_"]));

        let nested = array(&format!("nczarr-{version}/q")).attributes.unwrap();
        assert_eq!(nested["_ARRAY_DIMENSIONS"], json!(["lev", "sub", "deep"]));

        for (path, unmarked) in [("root", false), ("hippo", true)] {
            let Node::Group(group) = detect(&format!("nczarr-{version}/{path}")) else { panic!() };
            let attributes = group.attributes.unwrap();
            assert_eq!(attributes.get("_nczarr_superblock").is_none(), unmarked);
            assert_eq!(attributes["_nczarr_attr"]["types"]["_nczarr_group"], "|J0");
            let mark = &attributes["_nczarr_group"];
            match path {
                "root" => assert_eq!((&mark["dimensions"]["lat"], &mark["arrays"][0]), (&json!(13), &json!("v_i1"))),
                _ => assert_eq!(*mark, json!({"dimensions": {"sub": 7}, "arrays": ["w", "sub"], "groups": ["index"]})),
            }
        }
    }
}

#[test]
fn netcdf_of_old_is_told_what_it_reads() {
    let node = detect("nczarr-4.9.3/root");
    let documents = view::zarr2::documents(&node, Survey { readable: &|name| name != "chunk_char", has_scalars: true });
    let zgroup: Value = serde_json::from_slice(documents[0].1.as_ref().unwrap()).unwrap();
    let group = &zgroup["_NCZARR_GROUP"];
    assert_eq!((&group["dims"]["time"], &group["dims"]["_scalar_"]), (&json!(5), &json!(1)));
    assert!(!group["vars"].as_array().unwrap().contains(&json!("chunk_char")));
    let scalar = detect("nczarr-4.8.0/delta_scalar");
    assert_eq!(shown(&scalar)[0].1["_NCZARR_ARRAY"]["dimrefs"], json!(["/_scalar_"]));
    assert!(view::nczarr::is_readable(&array("nczarr-4.8.0/atts")));
    assert!(!view::nczarr::is_readable(&array("nczarr-4.8.0/chunk_char")));
    // Pure Zarr gets no marks.
    assert!(shown(&zarray(&member("", "")).unwrap())[0].1.get("_NCZARR_ARRAY").is_none());
}

#[test]
fn n5_is_reversed() {
    let a = array("n5/tensorstore");
    assert_eq!((a.shape.as_slice(), a.chunks.as_slice()), (&[5, 3, 5, 3, 5][..], &[3, 2, 3, 2, 3][..]));
    assert_eq!((a.format, a.stored.envelope, a.stored.reversed), (Format::N5, Envelope::N5(Content::Elements), true));
    assert_eq!(a.stored.swaps, [Swap { offset: 0, width: 4, count: 1 }]);
    let attributes = a.attributes.unwrap();
    assert_eq!(attributes["_ARRAY_DIMENSIONS"], json!(["t", "c", "z", "y", "x"]));
    assert_eq!(attributes["axes"], json!(["x", "y", "z", "c", "t"]));
    assert!(!attributes.contains_key("compression"));

    let kept = Context { source_axes: true, ..Context::default() };
    let node = format::detect(&load(&data("n5/java")), &kept).unwrap();
    assert_eq!(zarr3(&node)["codecs"][0], json!({"name": "transpose", "configuration": {"order": [2, 1, 0]}}));
    assert_eq!(shown(&node)[0].1["order"], "F");
    let a = array_of(node);
    assert_eq!(
        (a.shape.as_slice(), a.order, a.stored.axes.as_slice(), a.stored.reversed),
        (&[11, 7, 9][..], Order::F, &[][..], false)
    );

    assert!(matches!(detect("n5/z5py-setup"), Node::Group(_)));
    assert!(matches!(detect("n5/java-root"), Node::Group(_)));
    assert_eq!(array("n5/legacy").shape, [5, 9, 5]);
    let text = array("n5/java-strings");
    assert_eq!((&text.dtype, text.stored.envelope, text.chunk_bytes()), (&DType::Object, Envelope::N5(Content::Strings), None));
    let v3 = zarr3(&detect("n5/java-strings"));
    assert_eq!((&v3["data_type"], &v3["codecs"][0]["name"]), (&json!("string"), &json!("vlen-utf8")));
    let inside = Context { parent: Some(Format::N5), ..Context::default() };
    assert!(matches!(format::detect(&Documents::new(), &inside).unwrap(), Node::Group(_)));
    assert!(matches!(format::detect(&Documents::new(), &Context::default()).unwrap(), Node::Directory));
}

#[test]
fn n5_block_headers() {
    // The example of the N5 specification.
    let header = n5::block_header(&[0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 1], 3).unwrap();
    assert_eq!((header.dims.as_slice(), header.payload), (&[1, 2, 3][..], 16));
    assert_eq!(n5::stored_shape(&header, &[4, 4, 4]).unwrap(), [1, 2, 3]);
    assert_eq!(n5::stored_shape(&header, &[4, 4, 2]).unwrap_err().kind(), Kind::Corrupt);
    for bad in [&[0, 0, 0, 3, 0, 0, 0, 1][..], &[], &[0, 7, 0, 1, 0, 0, 0, 1], &[0, 0, 0xff, 0xff, 0, 0, 0, 1]] {
        assert_eq!(n5::block_header(bad, 1).unwrap_err().kind(), Kind::Corrupt);
    }
    let zero = n5::block_header(&[0, 0, 0, 1, 0, 0, 0, 0], 1).unwrap();
    assert_eq!(n5::stored_shape(&zero, &[4]).unwrap_err().kind(), Kind::Corrupt);
    let varlength = [0, 1, 0, 1, 0, 0, 0, 4, 0, 0, 0, 4, 9];
    let header = n5::block_header(&varlength, 1).unwrap();
    assert_eq!((header.mode, header.count, header.payload), (n5::Mode::Varlength, Some(4), 12));
    assert_eq!(n5::stored_shape(&header, &[4]).unwrap(), [4]);
    let header = n5::BlockHeader { count: Some(0xffff_fff0), ..header };
    assert_eq!(n5::check_count(&header, &[4]).unwrap_err().kind(), Kind::Unsupported);
    let object = n5::block_header(&[0, 2, 0, 0, 0, 5, 1, 2, 3, 4, 5], 2).unwrap();
    assert_eq!((object.mode, object.count, object.payload), (n5::Mode::Object, Some(5), 6));
    assert_eq!(n5::stored_shape(&object, &[4, 4]).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn zarr_python_and_others() {
    assert_eq!(array("zarr2/cnan").fill.zarr2, json!(["NaN", "-Infinity"]));
    assert_eq!(array("zarr2/s").fill.bytes.unwrap(), [0xff, 0, 0x7a, 0]);
    assert_eq!(array("zarr2/zero_len2").chunks, [2, 1, 3]);
    let f = array("zarr2/eight_d");
    assert_eq!((f.order, f.stored.axes.as_slice(), f.keys.separator), (Order::C, &[7, 6, 5, 4, 3, 2, 1, 0][..], b'/'));
    let text = array("zarr2/vlen_str");
    assert_eq!((&text.dtype, text.kept.filters.len(), text.chunk_bytes()), (&DType::Object, 1, None));
    assert!(!text.stored.chain.is_empty());
    let v3 = zarr3(&detect("zarr2/vlen_str"));
    assert_eq!((&v3["data_type"], &v3["codecs"][0]["name"]), (&json!("string"), &json!("vlen-utf8")));
    let v3 = zarr3(&detect("zarr2/t_le_M8_25us"));
    assert_eq!(v3["data_type"], json!({"name": "numpy.datetime64", "configuration": {"unit": "us", "scale_factor": 25}}));
    assert_eq!(v3["fill_value"], i64::MIN);
    let documents = shown(&detect("zarr2/struct"));
    assert_eq!(
        documents[0].1["dtype"],
        json!([["id", "<u4"], ["pos", "<f4", [3]], ["tag", "|S4"], ["flag", "|b1"], ["be", "<i2"]])
    );
    assert_eq!(array("zarr2/struct").stored.swaps, [Swap { offset: 21, width: 2, count: 1 }]);
    assert!(matches!(detect("zarr2/webknossos-group"), Node::Group(_)));
    assert_eq!(array("zarr2/gdal").dtype, DType::Int(2));
    let z5 = array("zarr2/z5py");
    assert_eq!(z5.fill.bytes.map(|b| b.len()), z5.dtype.size());
}

/// netcdf-c 4.8.0 in its mode for pure Zarr wrote `{"shape": [13,9],"dtype": "<U1","chunks": [5,9],"fill_value": ""}` and chunks
/// of 45 bytes; zarr-python writes the same words and chunks of 180.
#[test]
fn characters_without_a_mark_may_be_narrow() {
    let text = member("dtype", "\"<U1\"").replace("\"fill_value\": 0", "\"fill_value\": \"\"");
    let a = array_of(zarray(&text).unwrap());
    assert_eq!((&a.dtype, a.stored.narrow_text), (&DType::Text(1), true));
    assert!(!array_of(zarray(&text.replace("<U1", "<U2")).unwrap()).stored.narrow_text);
}

#[test]
fn codecs_that_stay_keep_what_lies_inside() {
    let text =
        member("dtype", "\">u2\"").replace("\"filters\": null", r#""filters": [{"id": "secret"}, {"id": "zlib", "level": 1}]"#);
    let a = array_of(zarray(&text.replace("\"C\"", "\"F\"")).unwrap());
    assert_eq!(a.kept.filters, [json!({"id": "secret"})]);
    assert!(!a.stored.chain.is_empty() && a.stored.swaps.is_empty());
    assert_eq!((a.order, a.stored.axes.as_slice()), (Order::F, &[][..]));
    let node = Node::Array(Box::new(a));
    let document = &shown(&node)[0].1;
    assert_eq!(
        (&document["dtype"], &document["order"], &document["filters"][0]["id"]),
        (&json!(">u2"), &json!("F"), &json!("secret"))
    );
    assert_eq!(view::zarr3::document(&node).unwrap_err().kind(), Kind::Unsupported);

    let a = array_of(zarray(&text.replace("\"compressor\": null", r#""compressor": {"id": "other"}"#)).unwrap());
    assert!(a.stored.chain.is_empty() && a.kept.compressor.is_some());
    assert_eq!(a.kept.filters.len(), 2);
}

#[test]
fn broken_documents_say_which_and_why() {
    for (name, value, kind) in [
        ("shape", "[-7, 9]", Kind::Corrupt),
        ("shape", "[7.5, 9]", Kind::Corrupt),
        ("shape", "7", Kind::Corrupt),
        ("chunks", "[4]", Kind::Corrupt),
        ("chunks", "[0, 4]", Kind::Corrupt),
        ("chunks", "[1048576, 1048576]", Kind::TooBig),
        ("shape", "[4611686018427387904, 9]", Kind::TooBig),
        ("dtype", "\"<q9\"", Kind::Unsupported),
        ("dtype", "\"|O\"", Kind::Unsupported),
        ("fill_value", "70000", Kind::Corrupt),
        ("order", "\"K\"", Kind::Corrupt),
        ("compressor", "{\"level\": 1}", Kind::Corrupt),
        ("filters", "{}", Kind::Corrupt),
        ("zarr_format", "3", Kind::Unsupported),
    ] {
        let e = zarray(&member(name, value)).unwrap_err();
        assert_eq!(e.kind(), kind, "{name} {value}: {e}");
        assert!(e.reason().starts_with(".zarray: "), "{e}");
    }
    // Attributes that cannot be read leave the data.
    let documents = Documents::from([(".zarray", Ok(member("", "").into_bytes())), (".zattrs", Ok(b"{\"a\": 1,".to_vec()))]);
    let a = array_of(format::detect(&documents, &Context::default()).unwrap());
    assert!(a.attributes.as_ref().unwrap_err().reason().starts_with(".zattrs: "));
    assert!(view::zarr2::documents(&Node::Array(Box::new(a)), Survey::ALL)[1].1.is_err());
}

#[test]
fn numbers_that_json_lacks_travel() {
    let documents = Documents::from([
        (".zgroup", Ok(b"{\"zarr_format\": 2}".to_vec())),
        (".zattrs", Ok(b"{\"a\": [NaN, -Infinity]}".to_vec())),
    ]);
    let node = format::detect(&documents, &Context::default()).unwrap();
    let text = String::from_utf8(view::consolidated_zarr2(&serde_json::json!({}), &[(String::new(), Ok(node.clone()))])).unwrap();
    assert!(text.contains("NaN,") && !text.contains("\"NaN\""));
    assert!(text.contains("\".zgroup\"") && text.contains("zarr_consolidated_format"));
    let text = view::zarr3::consolidated(&node, [("x", &node)]).unwrap().unwrap();
    let document: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(document["consolidated_metadata"]["metadata"]["x"]["attributes"]["a"], json!(["NaN", "-Infinity"]));
}

fn directories(dir: &Path, into: &mut Vec<PathBuf>) {
    into.push(dir.to_owned());
    let entries: Vec<_> = std::fs::read_dir(dir).unwrap().flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    entries.iter().for_each(|p| directories(p, into));
}

/// Whatever bytes a document has, there is an answer or an error, and what is read can be shown.
#[test]
fn mutated_documents_never_panic() {
    let mut all = Vec::new();
    directories(&data(""), &mut all);
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below.max(1)
    };
    let words = [
        "NaN",
        "-1",
        "null",
        "{}",
        "[]",
        "\"\"",
        "1e400",
        "18446744073709551616",
        "0",
        "true",
        "[[",
        "\"|O\"",
        "\">U4\"",
        "\\ud800",
    ];
    for documents in all.iter().map(|dir| load(dir)).filter(|d| !d.is_empty()) {
        for round in 0..150 {
            let mut mutated = documents.clone();
            for bytes in mutated.values_mut().flatten() {
                let at = random(bytes.len());
                match round % 4 {
                    0 => bytes.truncate(at),
                    1 => bytes[at] = random(256) as u8,
                    2 => bytes.insert(at, b"[]{}\",:-0123456789"[random(18)]),
                    _ => {
                        let end = (at + random(12)).min(bytes.len());
                        bytes.splice(at..end, words[random(words.len())].bytes());
                    }
                }
            }
            if let Ok(node) = format::detect(&mutated, &Context { source_axes: round % 2 == 0, ..Context::default() }) {
                let _ = (
                    view::zarr2::documents(&node, Survey::ALL),
                    view::zarr3::document(&node),
                    view::consolidated_zarr2(&serde_json::json!({}), &[("a".into(), Ok(node.clone()))]),
                );
            }
        }
    }
}
