//! NCZarr's marks in Zarr v3, as its specification and the drafts of netcdf-c spell them, and as Zarr v2 shows them.

#![expect(clippy::unwrap_used, reason = "helpers outside of #[test] may fail the test too")]

use chunkmount::array::{Array, Attributes, DType, Format, Node};
use chunkmount::cli::Cli;
use chunkmount::format::nczarr3::{self, Alias};
use chunkmount::format::{self, Context, Documents};
use chunkmount::store::Key;
use chunkmount::tree::{Below, Options, Tree};
use chunkmount::view::{self, nczarr::Survey};
use clap::Parser;
use serde_json::{Value, json};

fn map(value: Value) -> Attributes {
    value.as_object().unwrap().clone()
}

/// Two spellings of the same group: the specification's, and the one that drafts of netcdf-c write.
#[test]
fn groups_in_both_spellings() {
    let specified = json!({
        "title": "t",
        "_nczarr_superblock": {"version": "3.0.0"},
        "_nczarr_group": {
            "dimensions": [{"name": "d1", "size": 4, "unlimited": 0}, {"name": "time", "size": 2, "unlimited": 1}],
            "arrays": ["v"],
            "subgroups": ["g1"],
        },
        "_nczarr_attrs": {"attribute_types": [
            {"name": "title", "configuration": {"type": "char"}},
            {"name": "_nczarr_group", "configuration": {"type": "json"}},
        ]},
    });
    let draft = json!({
        "title": "t",
        "_nczarr_group": {
            "dimensions": {"d1": {"size": 4, "unlimited": 0}, "time": {"size": 2, "unlimited": 1}},
            "arrays": ["v"],
            "groups": ["g1"],
        },
        "_nczarr_superblock": {"version": "3.0.0"},
        "_nczarr_attrs": {"attribute_types": {"title": "char", "_nczarr_group": "json", "_nczarr_superblock": "json"}},
    });
    for source in [specified, draft] {
        let shown = nczarr3::group_attributes(map(source)).unwrap();
        assert_eq!(
            shown["_nczarr_group"],
            json!({"dimensions": {"d1": 4, "time": {"size": 2, "unlimited": 1}}, "arrays": ["v"], "groups": ["g1"]})
        );
        assert_eq!(shown["_nczarr_superblock"], json!({"version": "2.0.0"}));
        let types = &shown["_nczarr_attr"]["types"];
        assert_eq!((&types["title"], &types["_nczarr_group"]), (&json!(">S1"), &json!("|J0")));
        assert!(!shown.contains_key("_nczarr_attrs"));
    }
    let pure = map(json!({"title": "t"}));
    assert_eq!(nczarr3::group_attributes(pure.clone()).unwrap(), pure);
    for bad in [
        json!({"_nczarr_group": 1}),
        json!({"_nczarr_group": {"dimensions": [1]}}),
        json!({"_nczarr_group": {"subgroups": 1}}),
        json!({"_nczarr_attrs": {"attribute_types": [1]}}),
        json!({"_nczarr_attrs": 1}),
    ] {
        assert!(nczarr3::group_attributes(map(bad.clone())).is_err(), "{bad}");
    }
}

#[test]
fn arrays_in_both_spellings() {
    for (source, alias) in [
        (json!({"_nczarr_array": {"dimension_references": ["/g1/d1", "/time"], "type_alias": "char"}}), Some(Alias::Char)),
        (json!({"_nczarr_array": {"dimensions": ["/g1/d1", "/time"], "nczarr_type": "string"}}), Some(Alias::Text)),
        (json!({"_nczarr_array": {"dimension_references": ["/g1/d1", "/time"]}, "_nczarr_attr": {}}), None),
    ] {
        let source = map(source);
        let marks = nczarr3::array_marks(&source);
        assert!(marks.is_nczarr());
        assert_eq!(marks.alias(), alias);
        let shown = nczarr3::array_attributes(&marks, source.clone(), 2, false).unwrap();
        assert_eq!(shown["_nczarr_array"], json!({"dimension_references": ["/g1/d1", "/time"], "storage": "chunked"}));
        assert_eq!(shown["_ARRAY_DIMENSIONS"], json!(["d1", "time"]));
        assert!(!nczarr3::array_attributes(&marks, source, 2, true).unwrap().contains_key("_ARRAY_DIMENSIONS"));
    }
    let pure = map(json!({"a": 1}));
    let marks = nczarr3::array_marks(&pure);
    assert!(!marks.is_nczarr());
    assert_eq!(nczarr3::array_attributes(&marks, pure.clone(), 2, false).unwrap(), pure);
}

fn array(dtype: &str, shape: &str, fill: &str) -> Array {
    let text = format!(
        r#"{{"zarr_format": 2, "shape": {shape}, "chunks": {shape}, "dtype": "{dtype}", "fill_value": {fill}, "order": "C",
            "filters": null, "compressor": null}}"#
    );
    let documents = Documents::from([(".zarray", Ok(text.into_bytes()))]);
    match format::detect(&documents, &Context::default()).unwrap() {
        Node::Array(array) => *array,
        other => panic!("{other:?}"),
    }
}

#[test]
fn types_that_stand_for_others() {
    let char = nczarr3::array_marks(&map(json!({"_nczarr_array": {"type_alias": "char"}})));
    let mut letters = array("|u1", "[3]", "120");
    char.apply(&mut letters);
    assert_eq!(letters.dtype, DType::Bytes { length: 1, char: true });
    assert_eq!((letters.fill.zarr2, letters.fill.bytes), (json!("x"), Some(vec![120])));
    let text = nczarr3::array_marks(&map(json!({"_nczarr_array": {"type_alias": "string"}})));
    let mut strings = array("|V4", "[3]", "null");
    text.apply(&mut strings);
    assert_eq!((strings.dtype, strings.fill.zarr2), (DType::Bytes { length: 4, char: false }, Value::Null));
    // An alias that does not fit the type means nothing.
    let mut numbers = array("<i4", "[3]", "0");
    char.apply(&mut numbers);
    assert_eq!(numbers.dtype, DType::Int(4));
}

/// netcdf-c up to 4.10.1 passes over a variable without axes; by the specification for Zarr v2 it has one of length 1.
#[test]
fn scalars_have_one_axis_in_zarr_v2() {
    let source = map(json!({"_nczarr_array": {"dimension_references": []}}));
    let mut scalar = array("<i4", "[]", "7");
    let marks = nczarr3::array_marks(&source);
    scalar.attributes = nczarr3::array_attributes(&marks, source, 0, true);
    let attributes = scalar.attributes.clone().unwrap();
    assert_eq!(attributes["_nczarr_array"], json!({"dimension_references": [], "scalar": 1, "storage": "chunked"}));
    assert_eq!(attributes["_ARRAY_DIMENSIONS"], json!(["_scalar_"]));
    let documents = view::zarr2::documents(&Node::Array(Box::new(scalar)), Survey::ALL);
    let document: Value = serde_json::from_slice(documents[0].1.as_ref().unwrap()).unwrap();
    assert_eq!((&document["shape"], &document["chunks"]), (&json!([1]), &json!([1])));
}

/// `--format nczarr` looks for what `#mode=nczarr` does: Zarr of either version, where netCDF's marks can be.
#[test]
fn the_option_and_the_mode_look_for_both_versions_of_zarr() {
    let v2 = (".zgroup", json!({"zarr_format": 2, "_nczarr_superblock": {"version": "2.0.0"}}));
    let v3 = (
        "zarr.json",
        json!({"zarr_format": 3, "node_type": "group", "attributes": {"_nczarr_superblock": {"version": "3.0.0"}}}),
    );
    let n5 = ("attributes.json", json!({"n5": "2.5.0"}));
    for (name, document, want) in [(v2.0, v2.1, Some(Format::Zarr2)), (v3.0, v3.1, Some(Format::Zarr3)), (n5.0, n5.1, None)] {
        let source = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join(name), document.to_string()).unwrap();
        let path = source.path().to_str().unwrap();
        let typed = Cli::try_parse_from(["chunkmount", path, "mnt", "--format", "nczarr"]).unwrap();
        let by_option = typed.view.format.unwrap().into();
        let url = format!("file://{path}#mode=nczarr,file");
        let opened = chunkmount::source::open(&url, &chunkmount::source::Options::default()).unwrap();
        for wanted in [by_option, opened.formats()] {
            let options = Options { wanted, ..Options::default() };
            let root = Tree::new(opened.store.clone(), options).open(&Key::root(), &Below::default()).unwrap();
            let found = match root.node.unwrap() {
                Node::Group(group) => Some(group.format),
                Node::Array(_) | Node::Directory => None,
            };
            assert_eq!(found, want, "{name}: {wanted:?}");
        }
    }
}
