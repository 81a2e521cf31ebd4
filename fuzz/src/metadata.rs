//! Metadata documents: what they are taken for, and what is shown of it.

use super::dtype::check_swaps;
use super::input::Input;
use chunkmount::array::{Array, Content, DType, Envelope, Format, Node, Order, Placement, Style};
use chunkmount::error::{Error, Result};
use chunkmount::format::{self, Context, DOCUMENTS, Documents, json, n5};
use chunkmount::limits;
use chunkmount::view::nczarr::Survey;
use chunkmount::view::{self, Flavour};
use serde_json::Value;

const FORMATS: [Option<Format>; 4] = [None, Some(Format::Zarr2), Some(Format::N5), Some(Format::Zarr3)];

/// One byte is the context, then come documents, each a section with its name.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let bits = usize::from(input.byte());
    let context = Context { only: FORMATS[bits & 3], parent: FORMATS[bits >> 2 & 3], source_axes: bits & 16 != 0, place: None };
    let mut documents = Documents::new();
    for (name, body) in input.sections() {
        if let Some(name) = DOCUMENTS.iter().find(|known| known.as_bytes() == name) {
            documents.insert(name, Ok(body.to_vec()));
        }
    }
    let Ok(mut node) = format::detect(&documents, &context) else { return };
    if let Some(notice) = format::notice(&documents, &node) {
        assert!(!notice.is_empty() && notice.len() < 1000);
    }
    if let Node::Array(array) = &node {
        check_array(array);
        if array.format == Format::N5 {
            let mut varlength = array.clone();
            n5::make_varlength(&mut varlength);
            check_array(&varlength);
            shown(&Node::Array(varlength));
        }
        if let Some(labels) = n5::most_frequent_labels(array) {
            check_array(&labels);
            shown(&Node::Array(Box::new(labels)));
        }
    }
    shown(&node);
    consolidated(&documents, &node);
    if let Node::Array(array) = &mut node {
        if array.stored.narrow_text {
            array.narrow();
            check_array(array);
        }
        array.name_as_zarr2();
    }
    read_again(&node);
}

/// That an array is one: ranks agree, sizes are within the limits, permutations are permutations.
pub fn check_array(array: &Array) {
    let rank = array.shape.len();
    assert!(rank <= limits::RANK && array.chunks.len() == rank && !array.chunks.contains(&0));
    assert!(array.chunk_bytes().is_none_or(|n| n <= limits::CHUNK));
    assert!(array.grid().iter().try_fold(1u128, |n, &d| n.checked_mul(d.into())).is_some_and(|n| n >> 127 == 0));
    assert!(array.dimension_names.as_ref().is_none_or(|names| names.len() == rank));
    let size = array.dtype.size();
    assert!(size.is_none() == (array.dtype == DType::Object) && size.unwrap_or(0) as u64 <= limits::ITEM);
    assert!(size.is_some() || !array.kept.is_empty(), "objects without a codec");
    assert!(array.fill.bytes.as_ref().is_none_or(|bytes| Some(bytes.len()) == size));
    assert!(array.keys.style != Style::Cube && matches!(array.keys.separator, b'.' | b'/'));
    assert_eq!(array.kept.dtype.is_none(), array.kept.is_empty());
    let permutation = |axes: &[usize]| {
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        sorted.into_iter().eq(0..rank)
    };
    let stored = &array.stored;
    assert!(stored.axes.is_empty() || permutation(&stored.axes));
    assert!(array.kept.is_empty() || stored.axes.is_empty());
    // The numbers of an N5 block of variable length are swapped, though no reader of Zarr can know of them.
    let size = if matches!(stored.envelope, Envelope::N5(Content::Varlength(_))) { size.or(Some(8)) } else { size };
    check_swaps(&stored.swaps, size.unwrap_or(0));
    assert!(!stored.narrow_text || array.dtype == DType::Text(1));
    match &stored.placement {
        Placement::Object => {}
        Placement::Shards(levels) => {
            assert!(!levels.is_empty() && levels.len() <= limits::CODECS);
            let mut part = array.chunks_per_object();
            for level in levels {
                assert!(level.count().is_some_and(|n| n > 0 && n <= limits::INDEX) && permutation(&level.axes));
                let product = |(p, c): (&u64, &u64)| p.checked_mul(*c);
                assert!(level.parts.len() == rank && level.chunks.len() == rank && !level.chunks.contains(&0));
                assert!(level.parts.iter().zip(&level.chunks).map(product).eq(part.iter().map(|&n| Some(n))), "{levels:?}");
                assert!(chunkmount::placement::is_index_chain(&level.index));
                part.clone_from(&level.chunks);
            }
            assert!(part.iter().all(|&n| n == 1));
        }
        Placement::Cube(cube) => {
            assert!(rank >= 3 && cube.side.is_power_of_two() && cube.side.checked_pow(3).is_some_and(|n| n <= limits::INDEX));
            assert_eq!(array.chunk_bytes(), Some(cube.block));
        }
    }
}

/// The documents of a node in both flavours parse, and no name is there twice.
fn shown(node: &Node) {
    let some = |name: &str| name.len().is_multiple_of(2);
    for flavour in [Flavour::Zarr2, Flavour::Zarr3] {
        for survey in [Survey::ALL, Survey { readable: &some, has_scalars: false }] {
            let documents = view::documents(node, flavour, survey);
            let mut names: Vec<&str> = documents.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
            for (name, content) in documents {
                if let Ok(content) = content {
                    check_document(name, &content);
                }
            }
        }
    }
    if let Node::Array(array) = node {
        assert!(!view::dtype(array).is_empty());
    }
}

/// That a shown document is one.
pub fn check_document(name: &str, content: &[u8]) -> Value {
    let text = String::from_utf8_lossy(content);
    let value = json::parse(content).unwrap_or_else(|e| panic!("{name}: {e}: {text}"));
    assert!(value.is_object(), "{name}: {text}");
    if name == view::ZARR3 {
        // Readers take JSON in earnest here.
        let strict = serde_json::from_slice::<Value>(content);
        assert!(strict.is_ok() || text.contains("private"), "{name}: {strict:?}: {text}");
    }
    value
}

/// Consolidated metadata that lists this node, whatever the paths.
fn consolidated(documents: &Documents, node: &Node) {
    let listed = documents.get(".zmetadata").and_then(|bytes| json::parse(bytes.as_ref().ok()?).ok());
    let Some(listed) = listed else { return };
    let Ok(paths) = view::consolidated_paths(&listed) else { return };
    let nodes: Vec<(String, Result<Node>)> = paths.into_iter().take(8).map(|path| (path, Ok(node.clone()))).collect();
    check_document(view::CONSOLIDATED, &view::consolidated_zarr2(&listed, &nodes));
    let broken: Vec<_> = nodes.iter().map(|(path, _)| (path.clone(), Err(Error::corrupt("damaged")))).collect();
    check_document(view::CONSOLIDATED, &view::consolidated_zarr2(&listed, &broken));
    for nodes in [nodes, broken] {
        if let Ok(content) = view::consolidated_zarr3(node, &nodes) {
            check_document(view::ZARR3, &content);
        }
    }
}

/// The documents that a node shows, read again, give the same node, with nothing left to undo.
fn read_again(node: &Node) {
    for flavour in [Flavour::Zarr2, Flavour::Zarr3] {
        let mut documents = Documents::new();
        for (name, content) in view::documents(node, flavour, Survey::ALL) {
            match (DOCUMENTS.iter().find(|known| **known == name), content) {
                (Some(name), Ok(content)) => drop(documents.insert(name, Ok(content))),
                // Something of it cannot be shown, or that version is not read.
                _ => break,
            }
        }
        if documents.is_empty() {
            continue;
        }
        let again = format::detect(&documents, &Context::default());
        let cite = || documents.values().flatten().map(|d| String::from_utf8_lossy(d)).collect::<Vec<_>>().join("\n");
        match (node, again) {
            (Node::Array(array), Ok(Node::Array(again))) => same(array, &again, flavour, &cite()),
            (Node::Group(group), Ok(Node::Group(again))) => {
                if let Ok(attributes) = &group.attributes {
                    assert_eq!(again.attributes.as_ref(), Ok(attributes), "{}", cite());
                }
            }
            (node, again) => panic!("{node:?}\n{again:?}\n{}", cite()),
        }
    }
}

fn same(array: &Array, again: &Array, flavour: Flavour, text: &str) {
    check_array(again);
    assert_eq!(
        (&again.shape, &again.chunks, &again.dtype, &again.keys),
        (&array.shape, &array.chunks, &array.dtype, &array.keys),
        "{text}"
    );
    let rank = array.shape.len();
    let (plain, zarr2) = (array.kept.is_empty(), flavour == Flavour::Zarr2);
    if plain {
        // Where the source has no fill value, Zarr v3 says what is shown in its place.
        let zeros = vec![0; array.dtype.size().unwrap_or(0)];
        let bytes = |fill: &chunkmount::array::Fill| fill.bytes.clone().unwrap_or_else(|| zeros.clone());
        assert_eq!(bytes(&again.fill), bytes(&array.fill), "{text}");
        assert!(again.stored.swaps.is_empty() && again.stored.chain.is_empty() && again.kept.is_empty(), "{text}");
        assert!(matches!(again.stored.placement, Placement::Object), "{text}");
        let axes = if array.order == Order::F && rank > 1 { (0..rank).rev().collect() } else { Vec::new() };
        assert_eq!(again.stored.axes, axes, "{text}");
    } else if zarr2 {
        assert_eq!((&again.kept.filters, &again.kept.compressor), (&array.kept.filters, &array.kept.compressor), "{text}");
        assert_eq!(again.order == array.order, rank > 1 || again.order == array.order, "{text}");
    }
    match (&array.attributes, &again.attributes) {
        (Ok(attributes), Ok(again)) if zarr2 => assert_eq!(again, attributes, "{text}"),
        (Ok(_), Err(e)) => panic!("{e}: {text}"),
        _ => {}
    }
    if zarr2 && array.attributes.is_ok() {
        assert_eq!(again.dimension_names, array.dimension_names, "{text}");
    }
}
