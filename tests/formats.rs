//! The tables of `docs/formats.md`, row by row: the page says what the parsers do.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use chunkmount::array::{Array, DType, Node, Placement};
use chunkmount::error::Result;
use chunkmount::format::{self, Context, Documents, wkw};
use chunkmount::view::{self, invented::Inventory, nczarr::Survey};
use serde_json::{Map, Value, json};

const PAGE: &str = include_str!("../docs/formats.md");

/// The rows of the table after the mark `checked: what`; a `|` within code is part of it.
fn rows(what: &str) -> Vec<Vec<String>> {
    let mark = format!("<!-- checked: {what} -->\n");
    let (_, table) = PAGE.split_once(&mark).unwrap_or_else(|| panic!("no table of {what}"));
    let rows: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).skip(2).map(cells).collect();
    assert!(!rows.is_empty(), "{what}");
    rows
}

fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut code = false;
    for c in line.chars().skip(1) {
        match c {
            '`' => code = !code,
            '|' if !code => cells.push(String::new()),
            _ => cells.last_mut().unwrap().push(c),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// Every table of the page is checked by something.
#[test]
fn no_table_is_forgotten() {
    let marks: Vec<_> = PAGE.lines().filter_map(|l| l.strip_prefix("<!-- checked: ")?.strip_suffix(" -->")).collect();
    let source = include_str!("formats.rs");
    for mark in &marks {
        assert!(source.contains(&format!("rows(\"{mark}\")")), "{mark}");
    }
    let tables = PAGE.lines().filter(|l| l.starts_with("| ---")).count();
    assert_eq!(tables, marks.len(), "a table without a mark");
}

fn detect(name: &'static str, document: &Value) -> Result<Array> {
    let documents = Documents::from([(name, Ok(document.to_string().into_bytes()))]);
    match format::detect(&documents, &Context::default())? {
        Node::Array(array) => Ok(*array),
        other => panic!("{document}: {other:?}"),
    }
}

fn with(base: &Value, members: &[(&str, Value)]) -> Value {
    let mut document = base.clone();
    for (name, value) in members {
        document[*name] = value.clone();
    }
    document
}

fn zarr2(members: &[(&str, Value)]) -> Result<Array> {
    let base = json!({"zarr_format": 2, "shape": [7, 9], "chunks": [4, 4], "dtype": "<u2", "fill_value": null, "order": "C",
        "filters": null, "compressor": null});
    detect(".zarray", &with(&base, members))
}

fn zarr3(members: &[(&str, Value)]) -> Result<Array> {
    let base = json!({"zarr_format": 3, "node_type": "array", "shape": [7, 9], "data_type": "uint16", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}},
        "chunk_key_encoding": "default", "codecs": ["bytes"]});
    detect("zarr.json", &with(&base, members))
}

fn n5(members: &[(&str, Value)]) -> Result<Array> {
    let base = json!({"dimensions": [7, 9], "blockSize": [4, 4], "dataType": "uint16", "compression": {"type": "raw"}});
    detect("attributes.json", &with(&base, members))
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// What a table says becomes of a codec, against what became of it.
fn check_codec(row: &[String], found: Result<Array>, nothing_to_undo: bool) {
    let (name, says) = (&row[0], row[2].as_str());
    match (says.split([':', ',']).next().unwrap(), found) {
        ("removed", Ok(array)) => {
            assert!(array.kept.is_empty(), "{name} stays");
            assert!(nothing_to_undo || !array.stored.chain.is_empty(), "{name}: nothing is undone");
        }
        ("stays", Ok(array)) => assert!(!array.kept.is_empty(), "{name} is removed"),
        ("refused", Err(e)) => {
            let reason = says.strip_prefix("refused: ").unwrap();
            assert!(e.to_string().contains(reason), "{name}: {e}");
        }
        (says, found) => panic!("{name}: {says}, but {found:?}"),
    }
}

/// What the documents of an array call its type, in both versions; `None` where one has no spelling.
fn types(array: Array) -> (Option<Value>, Option<Value>) {
    let node = Node::Array(Box::new(array));
    let zarr2 = view::zarr2::documents(&node, Survey::ALL).into_iter().find(|(name, _)| *name == ".zarray");
    let zarr2: Option<Map<String, Value>> = zarr2.and_then(|(_, content)| serde_json::from_slice(&content.ok()?).ok());
    let zarr3 = view::zarr3::document(&node).ok().flatten();
    let zarr3: Option<Map<String, Value>> = zarr3.and_then(|content| serde_json::from_slice(&content).ok());
    (zarr2.and_then(|m| m.get("dtype").cloned()), zarr3.and_then(|m| m.get("data_type").cloned()))
}

fn spelling(cell: &str) -> Option<Value> {
    (cell != "no spelling").then(|| parsed(cell))
}

fn check_type(row: &[String], found: Result<Array>) {
    if let Some(reason) = row[1].strip_prefix("refused: ") {
        let e = found.unwrap_err();
        assert!(e.to_string().contains(reason), "{}: {e}", row[0]);
        return;
    }
    assert_eq!(types(found.unwrap()), (spelling(&row[1]), spelling(&row[2])), "{}", row[0]);
}

#[test]
fn codecs_of_zarr_version_2() {
    for row in rows("zarr2 codec") {
        let codec = parsed(&row[1]);
        check_codec(&row, zarr2(&[("compressor", codec.clone())]), row[0] == "bitround");
        check_codec(&row, zarr2(&[("filters", json!([codec]))]), row[0] == "bitround");
    }
}

#[test]
fn data_types_of_zarr_version_2() {
    for row in rows("zarr2 dtype") {
        check_type(&row, zarr2(&[("dtype", parsed(&row[0]))]));
    }
    for row in rows("zarr2 object filter") {
        let array = zarr2(&[("dtype", json!("|O")), ("filters", json!([parsed(&row[1])]))]).unwrap();
        assert_eq!(array.kept.filters.len(), 1, "{}", row[0]);
        assert_eq!(types(array), (Some(json!("|O")), spelling(&row[2])), "{}", row[0]);
    }
}

#[test]
fn codecs_of_zarr_version_3() {
    for row in rows("zarr3 codec") {
        let codecs = parsed(&row[1]);
        let number = if row[0] == "bitround" { "float32" } else { "uint16" };
        let found = zarr3(&[("codecs", codecs.clone()), ("data_type", json!(number))]);
        if let Ok(array) = &found
            && row[2].starts_with("removed")
        {
            let undone = !matches!(array.stored.placement, Placement::Object) || !array.stored.axes.is_empty();
            assert!(undone || !array.stored.chain.is_empty() || !array.stored.swaps.is_empty(), "{}: nothing is undone", row[0]);
        }
        if let Ok(array) = &found
            && row[2] == "stays"
        {
            let stay = array.kept.zarr3.clone().unwrap();
            assert_eq!(stay, codecs.as_array().unwrap()[..stay.len()], "{}", row[0]);
        }
        let row = [row[0].clone(), row[1].clone(), row[2].replace(';', ",")];
        check_codec(&row, found, true);
    }
    for row in rows("zarr3 object codec") {
        let found = zarr3(&[("data_type", parsed(&row[0])), ("codecs", parsed(&row[1])), ("fill_value", json!(""))]).unwrap();
        assert_eq!(found.kept.zarr3.as_ref().unwrap().len(), 1, "{}", row[0]);
        assert_eq!(types(found), (Some(parsed(&row[2])), Some(parsed(&row[0]))), "{}", row[0]);
    }
}

// zarr-python's `Shuffle` takes the size from the array where numcodecs' own, in version 2, takes 4.
#[test]
fn a_shuffle_that_stays_tells_version_2_its_size() {
    let codecs = json!(["bytes", {"name": "numcodecs.shuffle"}, {"name": "numcodecs.secret"}, "gzip"]);
    for (dtype, size) in [("uint16", 2), ("float64", 8), ("uint8", 1)] {
        let kept = zarr3(&[("codecs", codecs.clone()), ("data_type", json!(dtype))]).unwrap().kept;
        assert_eq!(kept.filters, [json!({"id": "shuffle", "elementsize": size}), json!({"id": "secret"})]);
        assert_eq!(kept.zarr3.unwrap(), codecs.as_array().unwrap()[..3]);
    }
}

/// By the specification, axis `i` of what a transposition makes is axis `order[i]` of what it is given.
#[test]
fn transpositions_follow_each_other() {
    let turn = json!({"name": "transpose", "configuration": {"order": [1, 2, 0]}});
    let found = |codecs: Value| {
        let grid = json!({"name": "regular", "configuration": {"chunk_shape": [4, 3, 2]}});
        zarr3(&[("shape", json!([8, 9, 4])), ("chunk_grid", grid), ("codecs", codecs)])
    };
    // numpy.zeros((4, 3, 2)).transpose(1, 2, 0) has the shape (3, 2, 4), and transposed so once more (2, 4, 3).
    assert_eq!(found(json!([turn, "bytes"])).unwrap().stored.axes, [1, 2, 0]);
    assert_eq!(found(json!([turn, turn, "bytes"])).unwrap().stored.axes, [2, 0, 1]);
    assert!(found(json!([turn, turn, turn, "bytes"])).unwrap().stored.axes.is_empty());
    // A shard within has its chunks along the axes that it sees, and so have transpositions within it.
    let shard = |codecs: Value| json!([turn, {"name": "sharding_indexed", "configuration": {"chunk_shape": [3, 1, 2], "codecs": codecs}}]);
    let array = found(shard(json!([turn, "bytes"]))).unwrap();
    assert_eq!((array.chunks, array.stored.axes), (vec![2, 3, 1], vec![2, 0, 1]));
    let kept = found(shard(json!(["bytes", {"name": "secret"}]))).unwrap().kept;
    assert_eq!(kept.zarr3.unwrap(), [turn.clone(), json!("bytes"), json!({"name": "secret"})]);
    // Chunks that do not fill the shard: "each dimension of chunk_shape must evenly divide" that of the shard.
    for uneven in [[2, 1, 2], [3, 4, 2], [3, 1, 8]] {
        let shard = json!([turn, {"name": "sharding_indexed", "configuration": {"chunk_shape": uneven, "codecs": ["bytes"]}}]);
        assert!(found(shard).unwrap_err().to_string().contains("does not divide"), "{uneven:?}");
    }
}

/// What is stored big-endian is told as such, or not at all.
#[test]
fn byte_order_of_what_stays_is_not_lost() {
    let big = json!({"name": "bytes", "configuration": {"endian": "big"}});
    let kept = |dtype: &str, codecs: Value| zarr3(&[("data_type", json!(dtype)), ("codecs", codecs)]).unwrap();
    // Version 2 has no filter that says so. Elements of one byte have no order.
    for (dtype, has_words) in [("uint16", false), ("float64", false), ("uint8", true)] {
        let node = Node::Array(Box::new(kept(dtype, json!([big, {"name": "numcodecs.secret"}]))));
        let (_, document) = view::zarr2::documents(&node, Survey::ALL).into_iter().find(|(name, _)| *name == ".zarray").unwrap();
        assert_eq!(document.is_ok(), has_words, "{dtype}");
        let shown = view::zarr3::document(&node).unwrap().unwrap();
        assert_eq!(parsed(&String::from_utf8(shown).unwrap())["codecs"], json!([big, {"name": "numcodecs.secret"}]), "{dtype}");
    }
    // The numbers of fields: zarr-python takes them for little-endian, tensorstore for big-endian.
    let fields = json!({"name": "structured", "configuration": {"fields": [["a", "uint16"]]}});
    let array = zarr3(&[("data_type", fields), ("codecs", json!([big])), ("fill_value", json!("AAA="))]).unwrap();
    assert_eq!((array.kept.zarr3.unwrap(), array.stored.swaps), (vec![big], vec![]));
}

/// Of filters that are not known the outermost decides: what lies below it cannot be undone either.
#[test]
fn what_lies_below_an_unknown_filter_stays() {
    let (one, known, other) = (json!({"id": "secret"}), json!({"id": "zlib", "level": 1}), json!({"id": "riddle"}));
    let filters = |list: Value| zarr2(&[("filters", list)]).unwrap();
    for list in [json!([one, known, other]), json!([known, other]), json!([one, other])] {
        let array = filters(list.clone());
        assert_eq!((json!(array.kept.filters), array.stored.chain.is_empty()), (list.clone(), true), "{list}");
    }
    let array = filters(json!([one, known]));
    assert_eq!((json!(array.kept.filters), array.stored.chain.names()), (json!([one]), vec!["zlib".to_owned()]));
}

#[test]
fn data_types_of_zarr_version_3() {
    for row in rows("zarr3 dtype") {
        let dtype = parsed(row[0].trim_end_matches(", any other"));
        let fill = parsed(&row[2]);
        let array = zarr3(&[("data_type", dtype.clone()), ("fill_value", fill.clone())]).unwrap();
        let known = array.dtype != DType::Opaque;
        assert_eq!(known, !row[0].contains("any other"), "{}", row[0]);
        assert_eq!(array.fill.bytes.as_ref().map(Vec::len), array.dtype.size().filter(|_| known), "{}", row[0]);
        assert_eq!(types(array.clone()), (spelling(&row[1]), Some(dtype)), "{}", row[0]);
        let shown = view::zarr3::document(&Node::Array(Box::new(array))).unwrap().unwrap();
        assert_eq!(parsed(&String::from_utf8(shown).unwrap())["fill_value"], fill, "{}", row[0]);
    }
}

#[test]
fn keys_and_grids_of_zarr_version_3() {
    for row in rows("zarr3 keys") {
        let found = zarr3(&[("chunk_key_encoding", parsed(&row[0]))]);
        match row[1].strip_prefix("refused: ") {
            Some(reason) => assert!(found.unwrap_err().to_string().contains(reason), "{}", row[0]),
            None => {
                let array = found.unwrap();
                assert_eq!(view::names::stored(&array, &[1, 0]), row[1], "{}", row[0]);
                assert_eq!(view::names::shown(&array, &[1, 0]), row[2], "{}", row[0]);
            }
        }
    }
    for row in rows("zarr3 grid") {
        let found = zarr3(&[("chunk_grid", parsed(&row[0]))]);
        match row[1].strip_prefix("refused: ") {
            Some(reason) => assert!(found.unwrap_err().to_string().contains(reason), "{}", row[0]),
            None => {
                let array = found.unwrap();
                let (chunks, padded) = row[1].strip_suffix(", the last ones padded").map_or((&*row[1], false), |c| (c, true));
                assert_eq!(json!(array.chunks), parsed(chunks), "{}", row[0]);
                assert_eq!(!array.stored.last.is_empty(), padded, "{}", row[0]);
            }
        }
    }
}

/// The attributes of a node with marks as version 2 shows them, and what it shows as its type. The mark is where the page says.
fn marked(place: &str, mark: &Value, dtype: Option<Value>) -> Result<(Map<String, Value>, Option<Value>)> {
    let members = mark.as_object().unwrap().clone();
    let is_array = dtype.is_some();
    let mut document = match (place, &dtype) {
        ("zarr.json", None) => json!({"zarr_format": 3, "node_type": "group"}),
        ("zarr.json", Some(dtype)) => json!({"zarr_format": 3, "node_type": "array", "shape": [7, 9], "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}}, "chunk_key_encoding": "default",
            "fill_value": if dtype == "r32" { json!([0, 0, 0, 0]) } else { json!(0) }, "codecs": ["bytes"]}),
        (_, None) => json!({"zarr_format": 2}),
        (_, Some(dtype)) => json!({"zarr_format": 2, "shape": [7, 9], "chunks": [4, 4], "dtype": dtype, "fill_value": null,
            "order": "C", "filters": null, "compressor": null}),
    };
    let own = match (place, is_array) {
        ("zarr.json", _) => "zarr.json",
        (_, true) => ".zarray",
        (_, false) => ".zgroup",
    };
    let mut documents = Documents::new();
    match place {
        "zarr.json" => document["attributes"] = Value::Object(members),
        ".zarray" | ".zgroup" => document.as_object_mut().unwrap().extend(members),
        ".zattrs" | ".nczvar" | ".nczgroup" | ".nczattr" => {
            let name = format::DOCUMENTS.iter().find(|name| **name == place).unwrap();
            documents.insert(name, Ok(Value::Object(members).to_string().into_bytes()));
        }
        other => panic!("{other}"),
    }
    documents.insert(own, Ok(document.to_string().into_bytes()));
    let mut node = format::detect(&documents, &Context::default())?;
    format::zarr3::translate_marks(&mut node);
    match node {
        Node::Group(group) => Ok((group.attributes?, None)),
        Node::Array(array) => Ok((array.attributes.clone()?, types(*array).0)),
        Node::Directory => panic!("{place}"),
    }
}

#[test]
fn marks_of_nczarr() {
    for row in rows("nczarr array") {
        if let Some(mark) = row[2].strip_prefix("refused: ") {
            marked(&row[1], &parsed(mark), Some(json!("<u2"))).unwrap_err();
            continue;
        }
        let dtype = if row[1] == "zarr.json" { "uint16" } else { "<u2" };
        let (attributes, _) = marked(&row[1], &parsed(&row[2]), Some(json!(dtype))).unwrap();
        let want = json!({"dimension_references": ["/y", "/g/x"], "storage": "chunked"});
        assert!(PAGE.contains(&format!("shown as `{}`", r#"{"dimension_references": ["/y", "/g/x"], "storage": "chunked"}"#)));
        assert_eq!(attributes["_nczarr_array"], want, "{}", row[0]);
        assert_eq!(attributes["_ARRAY_DIMENSIONS"], json!(["y", "x"]), "{}", row[0]);
    }
    for row in rows("nczarr group") {
        if let Some(mark) = row[2].strip_prefix("refused: ") {
            marked(&row[1], &parsed(mark), None).unwrap_err();
            continue;
        }
        let mark = parsed(&row[2]);
        let (attributes, _) = marked(&row[1], &mark, None).unwrap();
        let (_, want) = PAGE.split_once("Of a group; all are shown as `").unwrap();
        let mut want = parsed(want.split('`').next().unwrap());
        if !mark.to_string().contains("unlimited") {
            want["dimensions"].as_object_mut().unwrap().shift_remove("t");
        }
        assert_eq!(attributes["_nczarr_group"], want, "{}", row[0]);
    }
}

#[test]
fn types_of_nczarr() {
    for row in rows("nczarr attribute") {
        let mut shown = row[2].split(", ").map(parsed);
        let old = shown.next().unwrap();
        let new = shown.next().unwrap_or_else(|| old.clone());
        let (attributes, _) = marked(".nczattr", &json!({"types": {"a": parsed(&row[0])}}), None).unwrap();
        assert_eq!(attributes["_nczarr_attr"]["types"]["a"], old, "{}", row[0]);
        let mark = json!({"_nczarr_attrs": {"attribute_types": [{"name": "a", "configuration": {"type": parsed(&row[1])}}]}});
        let (attributes, _) = marked("zarr.json", &mark, None).unwrap();
        assert_eq!(attributes["_nczarr_attr"]["types"]["a"], new, "{}", row[1]);
    }
    for row in rows("nczarr dtype") {
        let dtype = parsed(row[0].trim_end_matches(", one byte each"));
        let place = if dtype.as_str().unwrap().starts_with('<') { ".zarray" } else { "zarr.json" };
        let (_, shown) = marked(place, &parsed(&row[1]), Some(dtype)).unwrap();
        assert_eq!(shown.unwrap(), parsed(&row[2]), "{row:?}");
    }
    for row in rows("nczarr listed") {
        let one = [row[0].as_str()];
        let cells: Vec<&str> = if row[0].starts_with('[') { one.to_vec() } else { row[0].split(", ").collect() };
        for cell in cells {
            let array = zarr2(&[("dtype", parsed(cell))]).unwrap();
            let found = Inventory::new(String::new(), true).add_array("v", &array);
            match row[1].strip_prefix("refused: ") {
                None => assert_eq!(found, Ok(()), "{cell}"),
                Some(reason) => assert!(found.unwrap_err().contains(reason), "{cell}"),
            }
        }
    }
}

#[test]
fn n5_datasets() {
    for row in rows("n5 compression") {
        check_codec(&row, n5(&[("compression", parsed(&row[1]))]), row[0] == "raw");
    }
    for row in rows("n5 dataType") {
        check_type(&row, n5(&[("dataType", parsed(&row[0]))]));
    }
}

fn wkw(block_type: u8, voxel_type: u8, place: Option<&wkw::Place>) -> Result<Array> {
    let header = [b'W', b'K', b'W', 1, 0x55, block_type, voxel_type, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    wkw::array(&header, &Context { place, ..Context::default() })
}

#[test]
fn wkw_headers() {
    for row in rows("wkw voxelType") {
        // A voxel of eight bytes has several channels where its type is smaller; that does not change the type.
        check_type(&row, wkw(2, row[0].parse().unwrap(), None));
    }
    for row in rows("wkw blockType") {
        check_codec(&row, wkw(row[1].parse().unwrap(), 4, None), row[0] == "raw");
    }
}

#[test]
fn wkw_layers() {
    for row in rows("wkw layer") {
        let layer = with(&parsed(&row[0]), &[("name", json!("em"))]);
        let properties = wkw::Properties::parse(json!({"dataLayers": [layer]}).to_string().as_bytes()).unwrap();
        assert!(properties.notices.is_empty(), "{}: {:?}", row[0], properties.notices);
        let place = row[1].split('/').fold(wkw::Place::root(properties), |place, name| place.enter(name));
        match row[2].as_str() {
            "none of WKW" => assert!(place.mag().is_none(), "{}", row[0]),
            shape => assert_eq!(json!(wkw(2, 4, Some(&place)).unwrap().shape), parsed(shape), "{}", row[0]),
        }
    }
}
