//! WKW: headers, what datasets say of layers in every spelling, extents, and what a store that fails says of a cube.
//!
//! Headers are built by the table of the specification; the spellings of `datasource-properties.json` are those that WEBKNOSSOS and
//! its libraries wrote through the years. Whole stores of third-party writers are in `tests/mount/test_wkw.py`.

#![expect(clippy::unwrap_used, reason = "helpers outside of #[test] may fail the test too")]

use chunkmount::array::{Array, Attributes, DType, Node, Placement};
use chunkmount::error::{Kind, Result};
use chunkmount::format::wkw::{self, Place, Properties};
use chunkmount::format::{self, Context, Documents};
use chunkmount::placement::Indexes;
use chunkmount::store::faulty::{Call, Effect, Faulty};
use chunkmount::store::mem::MemStore;
use chunkmount::store::{Key, Range};
use chunkmount::tree::{Below, Options, Tree};
use serde_json::{Value, json};
use std::sync::Arc;

/// A header of version 1 for blocks of 2^`block` voxels and files of 2^`side` blocks along each side.
fn header(side: u8, block: u8, block_type: u8, voxel_type: u8, voxel_size: u8) -> Vec<u8> {
    let mut bytes = vec![b'W', b'K', b'W', 1, side << 4 | block, block_type, voxel_type, voxel_size];
    bytes.extend([0; 8]);
    bytes
}

fn read(bytes: &[u8]) -> Result<Array> {
    wkw::array(bytes, &Context::default())
}

fn key(path: &str) -> Key {
    path.split('/').try_fold(Key::root(), |key, name| key.join(name)).unwrap()
}

#[test]
fn voxel_types_and_channels() {
    let types = [
        DType::UInt(1),
        DType::UInt(2),
        DType::UInt(4),
        DType::UInt(8),
        DType::Float(4),
        DType::Float(8),
        DType::Int(1),
        DType::Int(2),
        DType::Int(4),
        DType::Int(8),
    ];
    for (dtype, voxel) in types.into_iter().zip(1u8..) {
        let size = u8::try_from(dtype.size().unwrap()).unwrap();
        for channels in [1u8, 2, 3, 31] {
            let array = read(&header(5, 5, 2, voxel, size * channels)).unwrap();
            let mut chunks = vec![32u64; 3];
            chunks.extend((channels > 1).then_some(u64::from(channels)));
            assert_eq!((&array.dtype, array.chunks), (&dtype, chunks), "{voxel}");
            let Placement::Cube(cube) = array.stored.placement else { panic!("{voxel}") };
            assert_eq!((cube.side, cube.compressed), (32, true));
        }
    }
}

#[test]
fn headers_that_no_reader_knows() {
    let good = header(1, 3, 2, 2, 2);
    read(&good).unwrap();
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        read(&bytes).unwrap_err().kind()
    };
    assert_eq!(with(0, b'X'), Kind::Corrupt);
    assert_eq!(with(3, 2), Kind::Unsupported);
    assert_eq!(with(5, 0), Kind::Unsupported);
    assert_eq!(with(5, 9), Kind::Unsupported);
    assert_eq!(with(6, 0), Kind::Unsupported);
    assert_eq!(with(6, 11), Kind::Unsupported);
    assert_eq!(with(7, 0), Kind::Corrupt);
    assert_eq!(with(7, 3), Kind::Corrupt);
    for length in 0..16 {
        assert_eq!(read(&good[..length]).unwrap_err().kind(), Kind::Corrupt, "{length}");
    }
}

/// Every value of every byte is answered without a panic, and no block is larger than what is read.
#[test]
fn any_header_is_answered() {
    for at in 0..8 {
        for value in 0..=255 {
            for size in [1, 8, 255] {
                let mut bytes = header(1, 3, 2, 1, size);
                bytes[at] = value;
                if let Ok(array) = read(&bytes) {
                    assert!(array.chunk_bytes().unwrap() <= chunkmount::limits::CHUNK);
                    let Placement::Cube(cube) = array.stored.placement else { panic!("{bytes:?}") };
                    assert!(cube.side.pow(3) <= chunkmount::limits::INDEX);
                }
            }
        }
    }
    assert_eq!(read(&header(15, 15, 1, 1, 1)).unwrap_err().kind(), Kind::TooBig);
    // 2^24 blocks, compressed or not, and eight times as many.
    for block_type in 1..=3 {
        assert!(read(&header(8, 0, block_type, 1, 1)).is_ok());
        assert_eq!(read(&header(9, 0, block_type, 1, 1)).unwrap_err().kind(), Kind::TooBig);
    }
}

/// A layer with these members more, besides its name and a box that ends at (40, 23, 14).
fn dataset(members: &Value) -> Properties {
    let mut layer = json!({"name": "em", "boundingBox": {"topLeft": [19, 5, 3], "width": 21, "height": 18, "depth": 11}});
    for (name, value) in members.as_object().unwrap() {
        layer[name] = value.clone();
    }
    Properties::parse(json!({"id": {"name": "d", "team": ""}, "dataLayers": [layer]}).to_string().as_bytes()).unwrap()
}

/// The shape of the array that lies at `path` in a dataset; zeros where the dataset knows no such array.
fn shape(properties: &Properties, path: &str, channels: u8) -> Vec<u64> {
    let place = path.split('/').fold(Place::root(properties.clone()), |place, name| place.enter(name));
    let context = Context { place: Some(&place), ..Context::default() };
    wkw::array(&header(0, 5, 2, 1, channels), &context).unwrap().shape
}

#[test]
fn magnifications_in_every_spelling() {
    for members in [
        json!({"wkwResolutions": [{"resolution": 1, "cubeLength": 1024}, {"resolution": [2, 2, 1], "cubeLength": 1024}]}),
        json!({"wkwResolutions": [{"resolution": [1, 1, 1], "cube_length": 1024}, {"resolution": [2, 2, 1]}]}),
        json!({"resolutions": [[1, 1, 1], [2, 2, 1]]}),
        json!({"dataFormat": "wkw", "mags": [{"mag": [1, 1, 1], "path": "./em/1"}, {"mag": [2, 2, 1], "path": "./em/2-2-1"}]}),
        json!({"mags": [{"mag": 1}, {"mag": "2-2-1"}]}),
        json!({"mags": [{"mag": "1", "path": "1"}, {"mag": [2.0, 2, 1], "path": null}]}),
        // Both lists stood side by side for a while.
        json!({"mags": [{"mag": [1, 1, 1]}], "wkwResolutions": [{"resolution": 1}, {"resolution": [2, 2, 1]}]}),
        json!({"boundingBox": {"topLeft": [19, 5, 3], "size": [21, 18, 11]}, "mags": [{"mag": 1}, {"mag": [2, 2, 1]}]}),
        json!({"boundingBox": {"topLeft": [-9, 5.0, 3], "width": 49, "height": 18, "depth": 11}, "mags": [1, "2-2-1"]}),
    ] {
        let properties = dataset(&members);
        assert_eq!(shape(&properties, "em/1", 1), [14, 23, 40], "{members}");
        assert_eq!(shape(&properties, "em/2-2-1", 3), [14, 12, 20, 3], "{members}");
        assert_eq!(properties.notices, Vec::<String>::new(), "{members}");
        assert_eq!(shape(&properties, "em/4-4-1", 1), [0; 3]);
        assert_eq!(shape(&properties, "other/1", 1), [0; 3]);
    }
}

/// A dataset of layers with boxes that begin at zero, of so many voxels along x, y and z.
fn layers(list: &[(&str, Option<[u64; 3]>, Value)]) -> Value {
    let layer = |(name, size, mags): &(&str, Option<[u64; 3]>, Value)| {
        let bounds = size.map_or(json!(null), |size| json!({"topLeft": [0, 0, 0], "size": size}));
        json!({"name": name, "boundingBox": bounds, "mags": mags, "from": name})
    };
    json!({"dataLayers": list.iter().map(layer).collect::<Vec<_>>(), "scale": [1, 1, 1]})
}

#[test]
fn names_that_have_the_numbers_of_a_magnification_are_in_its_box() {
    for (mags, paths) in [
        (json!([1, "2-2-1"]), [("em/01-01-01", [14, 23, 40]), ("em/2-02-1", [14, 12, 20])]),
        (json!([{"mag": 1, "path": "em/1-1-1"}, [2, 2, 1]]), [("em/1", [14, 23, 40]), ("em/1-1-1", [14, 23, 40])]),
        // The same magnification twice.
        (json!([{"mag": 1, "path": "a/b"}, {"mag": "1-1-1", "path": "em/x"}]), [("a/b", [14, 23, 40]), ("em/x", [14, 23, 40])]),
        // A name that is told to be another one is that.
        (json!([1, {"mag": 2, "path": "em/01"}]), [("em/01", [7, 12, 20]), ("em/001", [14, 23, 40])]),
    ] {
        let properties = dataset(&json!({"mags": mags}));
        for (path, want) in paths {
            assert_eq!(shape(&properties, path, 1), want, "{mags} {path}");
        }
        assert_eq!(properties.notices.len(), usize::from(mags.to_string().contains("em/x")), "{:?}", properties.notices);
        for other in ["other/01-01-01", "em/1-1", "em/+1", "em/3", "1"] {
            assert_eq!(shape(&properties, other, 1), [0; 3], "{mags} {other}");
        }
    }
}

/// Files of 4 voxels along each side, the first and the third along y, and what a dataset with this document shows of them: the shape,
/// attributes, and levels of the group above, by path and the numbers of voxels along x.
fn shared(document: &Value) -> (Vec<u64>, Attributes, Vec<(String, f64)>) {
    let (store, faulty) = store();
    for path in ["header.wkw", "z0/y0/x0.wkw", "z0/y2/x0.wkw"] {
        let bytes = if path == "header.wkw" { header(1, 1, 2, 1, 1) } else { cube() };
        store.put(key(&format!("em/1/{path}")), bytes);
    }
    store.put(key(wkw::PROPERTIES), document.to_string().into_bytes());
    let tree = Tree::new(faulty, Options::default());
    let root = tree.open(&Key::root(), &Below::default()).unwrap();
    let group = tree.open(&key("em"), &root.below).unwrap();
    let Ok(Node::Array(array)) = tree.open(&key("em/1"), &group.below).unwrap().node else { panic!("no array") };
    let Ok(Node::Group(group)) = group.node else { panic!("no group") };
    let levels = group.multiscale.map(|multiscale| multiscale.levels).unwrap_or_default();
    let levels = levels.into_iter().map(|level| (level.path, *level.scale.last().unwrap()));
    (array.shape, array.attributes.unwrap(), levels.collect())
}

#[test]
fn a_directory_of_several_magnifications_is_as_large_as_the_largest() {
    let there = json!([{"mag": 1, "path": "em/1"}]);
    let (em, other) = (("em", Some([2, 9, 1]), there.clone()), ("other", Some([3, 11, 3]), there.clone()));
    for list in [[em.clone(), other.clone()], [other.clone(), em.clone()]] {
        let (shape, attributes, levels) = shared(&layers(&list));
        assert_eq!((shape, levels), (vec![3, 11, 3], vec![("1".to_owned(), 1.0)]));
        assert_eq!((&attributes["from"], &attributes["mag"]), (&json!("em"), &json!([1, 1, 1])));
    }
    // One that has no box is as large as its files, whatever the other says, and no smaller than that.
    for (size, want) in [([3, 11, 3], [4, 12, 4]), ([3, 20, 3], [4, 20, 4])] {
        let other = ("other", Some(size), there.clone());
        for list in [[("em", None, there.clone()), other.clone()], [other.clone(), ("em", None, there.clone())]] {
            assert_eq!(shared(&layers(&list)).0, want);
        }
    }
    // Two magnifications in one directory: either may be meant, and so none is a level.
    for mags in [json!([{"mag": 1, "path": "em/1"}, {"mag": 2, "path": "em/1"}]), json!([{"mag": 2, "path": "em/1"}, 1])] {
        let (shape, attributes, levels) = shared(&layers(&[("em", Some([3, 11, 3]), mags)]));
        assert_eq!((shape, levels, attributes.get("mag")), (vec![3, 11, 3], vec![], None));
    }
}

#[test]
fn a_level_is_found_by_its_numbers() {
    let (store, faulty) = store();
    for path in ["em/01-01-01/header.wkw", "em/2-02-1/header.wkw", "em/4-4-2/other"] {
        store.put(key(path), header(1, 1, 2, 1, 1));
    }
    store.put(key(wkw::PROPERTIES), layers(&[("em", None, json!([1, "2-2-1", "4-4-2"]))]).to_string().into_bytes());
    let levels = || {
        let tree = Tree::new(faulty.clone(), Options::default());
        let root = tree.open(&Key::root(), &Below::default())?;
        let Node::Group(group) = tree.open(&key("em"), &root.below)?.node? else { panic!("no group") };
        Ok(group.multiscale.unwrap().levels.into_iter().map(|level| level.path).collect::<Vec<_>>())
    };
    let found: Result<_> = levels();
    assert_eq!(found.unwrap(), ["01-01-01", "2-02-1"]);
    // What the store does not tell is no level less.
    faulty.always(Call::List, key("em"), Effect::Fail(Kind::Unavailable, "no answer".to_owned()));
    assert_eq!(levels().unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn what_is_not_understood_is_left_out_with_a_notice() {
    for members in [
        json!({"mags": [{"mag": [1, 1]}]}),
        json!({"mags": [{"mag": [0, 1, 1]}]}),
        json!({"mags": [{"mag": [1, 1, -1]}]}),
        json!({"mags": [{"mag": "1-1"}]}),
        json!({"mags": [{"mag": 1e300}]}),
        json!({"mags": [{"mag": 18_446_744_073_709_551_615u64}]}),
        json!({"mags": [{"path": "em/1"}]}),
        json!({"mags": [{"mag": 1, "path": "../em/1"}]}),
        json!({"mags": [{"mag": 1, "path": "/em/1"}]}),
        json!({"mags": [{"mag": 1, "path": "s3://bucket/em/1"}]}),
        json!({"boundingBox": {"topLeft": [0, 0, 0], "width": -4, "height": 5, "depth": 6}}),
        json!({"boundingBox": {"topLeft": [0, 0], "width": 4, "height": 5, "depth": 6}}),
        json!({"boundingBox": {"topLeft": [9e18, 0, 0], "width": 9e18, "height": 5, "depth": 6}}),
        json!({"boundingBox": null}),
    ] {
        let properties = dataset(&members);
        assert_eq!(properties.notices.len(), 1, "{members}: {:?}", properties.notices);
        assert_eq!(shape(&properties, "em/1", 1), [0; 3], "{members}");
    }
    // A layer of another format is none of WKW's.
    assert_eq!(shape(&dataset(&json!({"dataFormat": "zarr", "mags": [{"mag": 1}]})), "em/1", 1), [0; 3]);
    for bad in ["", "[]", "{\"dataLayers\": 1}", "{\"dataLayers\": [", "\u{feff}"] {
        assert_eq!(Properties::parse(bad.as_bytes()).unwrap_err().kind(), Kind::Corrupt, "{bad:?}");
    }
}

#[test]
fn voxel_sizes() {
    let size = |scale: Value| {
        let document = json!({"scale": scale}).to_string();
        Properties::parse(document.as_bytes()).unwrap().voxel_size().map(|size| (size.factor, size.unit))
    };
    assert_eq!(size(json!([11.24, 11.24, 28])), Some(([11.24, 11.24, 28.0], "nanometer".to_owned())));
    let written = size(json!({"factor": [0.5, 0.5, 2], "unit": "micrometer"}));
    assert_eq!(written, Some(([0.5, 0.5, 2.0], "micrometer".to_owned())));
    for bad in [json!(null), json!([1, 2]), json!(["a", 1, 1]), json!({"unit": "nanometer"})] {
        assert_eq!(size(bad), None);
    }
}

/// A compressed file of eight blocks, two of them not empty and each of one byte, which is no block of LZ4 but has a place.
fn cube() -> Vec<u8> {
    let mut bytes = header(1, 1, 2, 1, 1);
    bytes.truncate(8);
    bytes.extend(80u64.to_le_bytes());
    bytes.extend((81..=88u64).flat_map(u64::to_le_bytes));
    bytes.extend([0; 8]);
    bytes
}

fn store() -> (Arc<MemStore>, Arc<Faulty>) {
    let store = Arc::new(MemStore::default());
    store.put(key("1/header.wkw"), header(1, 1, 2, 1, 1));
    for path in ["1/z0/y0/x0.wkw", "1/z0/y2/x0.wkw"] {
        store.put(key(path), cube());
    }
    (store.clone(), Arc::new(Faulty::new(store)))
}

fn opened(faulty: &Arc<Faulty>, below: &Below) -> Result<Array> {
    let tree = Tree::new(faulty.clone(), Options::default());
    match tree.open(&key("1"), below)?.node? {
        Node::Array(array) => Ok(*array),
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_store_s_word_makes_a_cube_absent() {
    let (_, faulty) = store();
    let array = opened(&faulty, &Below::default()).unwrap();
    assert_eq!(array.shape, [4, 12, 4]);
    let locate = |index: &[u64]| Indexes::new(1 << 20, None).locate(&*faulty, &key("1"), &array, index);
    assert_eq!(locate(&[0, 0, 1]).unwrap().range, Range::Part { offset: 81, length: 1 });
    assert_eq!(locate(&[0, 2, 0]).unwrap_err().kind(), Kind::NotFound);
    for kind in [Kind::Denied, Kind::TimedOut, Kind::Unavailable, Kind::Changed] {
        for call in [Call::Get, Call::Head] {
            faulty.always(call, key("1/z0/y0/x0.wkw"), Effect::Fail(kind, "no answer".to_owned()));
            faulty.always(call, key("1/z0/y1/x0.wkw"), Effect::Fail(kind, "no answer".to_owned()));
        }
        assert_eq!(locate(&[0, 0, 1]).unwrap_err().kind(), kind);
        assert_eq!(locate(&[0, 2, 0]).unwrap_err().kind(), kind);
        faulty.heal();
    }
    // A short answer is no jump table, wherever it ends.
    for length in 0..80 {
        faulty.always(Call::Get, key("1/z0/y0/x0.wkw"), Effect::Short(length));
        assert_eq!(locate(&[0, 0, 0]).unwrap_err().kind(), Kind::Corrupt, "{length}");
        faulty.heal();
    }
}

#[test]
fn an_array_whose_files_cannot_be_listed_is_broken_and_not_smaller() {
    let (_, faulty) = store();
    for path in ["1", "1/z0", "1/z0/y2"] {
        faulty.always(Call::List, key(path), Effect::Fail(Kind::Unavailable, "no answer".to_owned()));
        assert_eq!(opened(&faulty, &Below::default()).unwrap_err().kind(), Kind::Unavailable, "{path}");
        faulty.heal();
    }
    faulty.always(Call::Get, key("1/header.wkw"), Effect::Fail(Kind::Denied, "refused".to_owned()));
    assert_eq!(opened(&faulty, &Below::default()).unwrap_err().kind(), Kind::Denied);
}

#[test]
fn a_header_is_inferred_from_a_file_that_can_be_read() {
    let (store, faulty) = store();
    assert!(store.delete(&key("1/header.wkw")));
    let array = opened(&faulty, &Below::default()).unwrap();
    assert_eq!((array.shape, array.chunks), (vec![4, 12, 4], vec![2, 2, 2]));
    // One that is damaged is passed over; where all are, there is an error and no empty directory.
    store.put(key("1/z0/y0/x0.wkw"), *b"XKW");
    assert_eq!(opened(&faulty, &Below::default()).unwrap().shape, [4, 12, 4]);
    store.put(key("1/z0/y2/x0.wkw"), *b"XKW");
    assert_eq!(opened(&faulty, &Below::default()).unwrap_err().kind(), Kind::Corrupt);
}

#[test]
fn a_layer_whose_magnification_does_not_answer_is_broken_and_has_no_level_less() {
    let (store, faulty) = store();
    let document = json!({"dataLayers": [{"name": "em", "category": "color", "dataFormat": "wkw", "elementClass": "uint8",
        "boundingBox": {"topLeft": [0, 0, 0], "width": 4, "height": 4, "depth": 4}, "mags": [{"mag": 1}, {"mag": 2}]}],
        "scale": [1, 1, 1]});
    store.put(key(wkw::PROPERTIES), document.to_string().into_bytes());
    for mag in ["1", "2"] {
        store.put(key(&format!("em/{mag}/header.wkw")), header(1, 1, 2, 1, 1));
    }
    let layer = || {
        let tree = Tree::new(faulty.clone(), Options::default());
        let root = tree.open(&Key::root(), &Below::default())?;
        match tree.open(&key("em"), &root.below)?.node? {
            Node::Group(group) => Ok(group.multiscale.map(|multiscale| multiscale.levels.len())),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(layer().unwrap(), Some(2));
    for kind in [Kind::Denied, Kind::TimedOut, Kind::Unavailable] {
        faulty.always(Call::Get, key("em/2/header.wkw"), Effect::Fail(kind, "no answer".to_owned()));
        let result: Result<_> = layer();
        assert_eq!(result.unwrap_err().kind(), kind);
        faulty.heal();
    }
    assert!(store.delete(&key("em/2/header.wkw")));
    assert_eq!(layer().unwrap(), Some(1));
}

#[test]
fn a_dataset_is_a_group() {
    let document = json!({"dataLayers": [{"name": "em", "mags": [{"mag": 1}]}], "scale": [1, 1, 1]}).to_string();
    let documents = Documents::from([(wkw::PROPERTIES, Ok(document.into_bytes()))]);
    let Ok(Node::Group(group)) = format::detect(&documents, &Context::default()) else { panic!("no group") };
    assert_eq!(group.attributes.unwrap().get("scale"), Some(&json!([1, 1, 1])));
}
