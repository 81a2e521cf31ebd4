//! Metadata documents: what they are taken for, and what is shown of it.

use super::dtype::check_swaps;
use super::input::{Input, array};
use chunkmount::array::scales::Multiscale;
use chunkmount::array::{Array, Content, DType, Envelope, Field, Fill, Format, Formats, Group, Node, Order, Placement, Style};
use chunkmount::error::{Error, Result};
use chunkmount::format::json::NonFinite;
use chunkmount::format::{self, Context, DOCUMENTS, Documents, json, n5, scales, wkw, zarr3};
use chunkmount::limits;
use chunkmount::view::nczarr::Survey;
use chunkmount::view::{self, Flavour, ome};
use serde_json::Value;

const FORMATS: [Option<Format>; 5] = [None, Some(Format::Zarr2), Some(Format::N5), Some(Format::Zarr3), Some(Format::Wkw)];

/// Most levels of a scale pyramid.
const LEVELS: usize = 4;

/// One byte is the context, then come documents, each a section with its name. The section `>PATH` is the
/// `datasource-properties.json` of a dataset in which the directory lies at `PATH`; `+` is the attributes of a level below.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let bits = usize::from(input.byte());
    let sections = input.sections();
    let place = sections.iter().find_map(|(name, body)| place(name.strip_prefix(b">")?, body));
    let wanted = FORMATS[(bits & 7) % FORMATS.len()].map_or(Formats::All, Formats::Only);
    let parent = FORMATS[(bits >> 4 & 7) % FORMATS.len()];
    let context = Context { wanted, parent, source_axes: bits & 8 != 0, place: place.as_ref() };
    let mut documents = Documents::new();
    for (name, body) in &sections {
        if let Some(name) = DOCUMENTS.iter().find(|known| known.as_bytes() == *name) {
            documents.insert(name, Ok(body.to_vec()));
        }
    }
    let Ok(mut node) = format::detect(&documents, &context) else { return };
    if let Some(notice) = format::notice(&documents, &node) {
        assert!(!notice.is_empty() && notice.len() < 1000);
    }
    if let Node::Array(array) = &mut node {
        check_array(array);
        match array.format {
            Format::N5 => {
                let mut varlength = array.clone();
                n5::make_varlength(&mut varlength);
                check_array(&varlength);
                shown(&Node::Array(varlength));
            }
            Format::Wkw => cover(array, bits as u64),
            _ => {}
        }
        if let Some(labels) = n5::most_frequent_labels(array) {
            check_array(&labels);
            shown(&Node::Array(Box::new(labels)));
        }
        if array.stored.narrow_text {
            let mut narrow = array.clone();
            narrow.narrow();
            check_array(&narrow);
            shown(&Node::Array(narrow));
        }
    }
    if let Node::Group(group) = &mut node {
        group.multiscale = match &place {
            Some(place) if group.format == Format::Wkw => layer_scales(place, bits & 8 != 0),
            _ => pyramid(group, sections.iter().filter(|(name, _)| *name == b"+").map(|(_, body)| *body), bits & 8 != 0),
        };
        moved(group);
    }
    shown(&node);
    consolidated(&documents, &node);
    read_again(&node, Flavour::Zarr3);
    zarr3::translate_marks(&mut node);
    if let Node::Array(array) = &mut node {
        check_array(array);
        array.name_as_zarr2();
    }
    shown(&node);
    read_again(&node, Flavour::Zarr2);
}

/// Where a directory lies in the dataset that `document` describes.
fn place(path: &[u8], document: &[u8]) -> Option<wkw::Place> {
    let root = wkw::Place::root(wkw::Properties::parse(document).ok()?);
    let path = String::from_utf8_lossy(path);
    Some(path.split('/').filter(|part| !part.is_empty()).fold(root, |place, part| place.enter(part)))
}

/// Cubes that are there extend an array, and never beyond what is read.
fn cover(array: &mut Array, count: u64) {
    let before = array.shape.clone();
    for (cubes, is_boxed) in
        [[count, 1, 0], [1 << 40, 1, 1], [u64::MAX; 3]].into_iter().flat_map(|cubes| [(cubes, true), (cubes, false)])
    {
        let mut larger = array.clone();
        if let Ok(extended) = wkw::cover(&mut larger, cubes, is_boxed) {
            check_array(&larger);
            assert_eq!(extended, larger.shape != before);
            assert!(larger.shape.iter().zip(&before).all(|(a, b)| a >= b), "{before:?} shrinks to {:?}", larger.shape);
        }
    }
    if wkw::cover(&mut array.clone(), [count % 4; 3], true).is_ok() {
        wkw::cover(array, [count % 4; 3], true).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// The scale pyramid of a layer that has all its magnifications.
fn layer_scales(place: &wkw::Place, source_axes: bool) -> Option<Multiscale> {
    let layer = place.layer()?;
    let levels: Vec<_> = layer.mags.iter().filter_map(|mag| Some((mag.paths.first()?.clone(), mag.mag))).collect();
    let voxel = place.properties.voxel_size();
    Some(wkw::multiscale(layer, voxel.as_ref(), &levels, layer.name.len().is_multiple_of(2), source_axes))
}

/// The scale pyramid of a group whose levels have these attributes.
fn pyramid<'a>(group: &Group, levels: impl Iterator<Item = &'a [u8]>, source_axes: bool) -> Option<Multiscale> {
    let own = group.attributes.as_ref().ok().filter(|_| group.format == Format::N5)?;
    let listed = scales::listed(own).unwrap_or_else(|| vec!["s0", "s1", "s2", "s3"]);
    let levels = listed.iter().zip(levels).take(LEVELS).enumerate().map(|(i, (path, attributes))| {
        let mut array = array(&[96 >> i, 90 >> i, 100 >> i], &[4, 5, 6], "|u1", '/');
        array.attributes = json::parse_object(attributes);
        ((*path).to_owned(), array)
    });
    let levels: Vec<_> = levels.collect();
    let above = [own.clone()];
    scales::multiscale(&scales::Pyramid { name: Some("group"), own, above: &above, levels: &levels, source_axes }).ok().flatten()
}

/// What OME-Zarr metadata says is the same in the version of either flavour.
fn moved(group: &Group) {
    let Some(multiscale) = &group.multiscale else { return };
    let both = [Flavour::Zarr2, Flavour::Zarr3].map(|flavour| (flavour, ome::attributes(multiscale, flavour)));
    let [(_, Ok(old)), (_, Ok(new))] = &both else {
        assert!(both.iter().all(|(_, shown)| shown.is_err()));
        return;
    };
    assert!(scales::is_ome(old) && scales::is_ome(new));
    for (attributes, flavour, other) in [(old, Flavour::Zarr3, new), (new, Flavour::Zarr2, old)] {
        let group = Group::of(Format::Zarr2, Ok(attributes.clone()));
        assert_eq!(ome::shown(&group, flavour).as_ref(), Ok(other));
    }
    for level in &multiscale.levels {
        let names: Vec<_> = multiscale.axes.iter().map(|axis| axis.name.clone()).collect();
        assert_eq!(scales::ome_axes(new, &level.path), Some(names));
    }
}

/// That an array is one: ranks agree, sizes are within the limits, permutations are permutations.
pub fn check_array(array: &Array) {
    let rank = array.shape.len();
    assert!(rank <= limits::RANK && array.chunks.len() == rank && !array.chunks.contains(&0));
    assert!(array.chunk_bytes().is_none_or(|n| n <= limits::CHUNK));
    assert!(array.grid().iter().try_fold(1u128, |n, &d| n.checked_mul(d.into())).is_some_and(|n| n >> 127 == 0));
    assert!(array.dimension_names.as_ref().is_none_or(|names| names.len() == rank));
    let size = array.dtype.size();
    let is_sized = !matches!(array.dtype, DType::Object | DType::Opaque);
    assert!(size.is_some() == is_sized && size.unwrap_or(0) as u64 <= limits::ITEM);
    assert!(size.is_some() || !array.kept.is_empty(), "objects without a codec");
    assert!(array.fill.bytes.as_ref().is_none_or(|bytes| Some(bytes.len()) == size));
    assert!(array.keys.style != Style::Cube && matches!(array.keys.separator, b'.' | b'/'));
    let in_zarr2 = !array.kept.filters.is_empty() || array.kept.compressor.is_some();
    assert_eq!(array.kept.dtype.is_some(), in_zarr2);
    assert!(in_zarr2 || array.kept.is_empty() || array.kept.zarr3.is_some());
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
    if !stored.last.is_empty() {
        let is_chunk = matches!(stored.placement, Placement::Object);
        assert!(stored.last.len() == rank && (array.kept.is_empty() || !is_chunk));
        let objects = array.chunks.iter().zip(array.chunks_per_object()).map(|(c, n)| c * n);
        assert!(stored.last.iter().zip(objects).all(|(&n, object)| n > 0 && n <= object));
        let grid = array.grid();
        if is_chunk && !grid.contains(&0) {
            let index: Vec<u64> = grid.iter().map(|n| n - 1).collect();
            assert_eq!(array.short_block(&index).unwrap_or_else(|| array.chunks.clone()), stored.last);
        }
    }
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
            assert!(rank >= 3 && cube.side.is_power_of_two() && cube.side < 1 << 16);
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
                    check_strict(node, name, &content);
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
    value
}

/// That readers who take JSON in earnest read what is shown in Zarr v3, unless the source itself has numbers that JSON has not.
fn check_strict(node: &Node, name: &str, content: &[u8]) {
    let is_zarr3 = match node {
        Node::Directory => false,
        Node::Group(group) => group.format == Format::Zarr3,
        Node::Array(array) => array.format == Format::Zarr3,
    };
    if name == view::ZARR3 && !is_zarr3 {
        let strict = serde_json::from_slice::<Value>(content);
        let text = String::from_utf8_lossy(content);
        assert!(strict.is_ok() || text.contains("private"), "{name}: {strict:?}: {text}");
    }
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

/// The documents that a node shows, read again, give the same node, with nothing left to undo; and that shows the same.
fn read_again(node: &Node, flavour: Flavour) {
    let mut documents = Documents::new();
    let shown = view::documents(node, flavour, Survey::ALL);
    for (name, content) in &shown {
        match (DOCUMENTS.iter().find(|known| *known == name), content) {
            (Some(name), Ok(content)) => drop(documents.insert(name, Ok(content.clone()))),
            (None, _) => panic!("{name} is no document that is read"),
            // Something of it cannot be shown.
            _ => break,
        }
    }
    if documents.is_empty() {
        return;
    }
    let again = format::detect(&documents, &Context::default());
    let cite = || documents.values().flatten().map(|d| String::from_utf8_lossy(d)).collect::<Vec<_>>().join("\n");
    match (node, &again) {
        (Node::Array(array), Ok(Node::Array(again))) => same(array, again, flavour, &cite()),
        (Node::Group(group), Ok(Node::Group(again))) => {
            if let Ok(mut attributes) = ome::shown(group, flavour) {
                if flavour == Flavour::Zarr3 && group.format != Format::Zarr3 {
                    // Numbers that JSON does not have are shown as texts.
                    let text = json::render(&Value::Object(attributes), NonFinite::Text);
                    attributes = json::parse_object(&text).unwrap_or_else(|e| panic!("{e}"));
                }
                assert_eq!(again.attributes.as_ref(), Ok(&attributes), "{}", cite());
            }
        }
        (node, again) => panic!("{node:?}\n{again:?}\n{}", cite()),
    }
    // The order of axes is undone where it is read.
    let transposed = |array: &Array| array.order == Order::F && array.kept.is_empty();
    if let Ok(again) = &again
        && documents.len() == shown.len()
        && !matches!(node, Node::Array(array) if transposed(array))
    {
        let anew = view::documents(again, flavour, Survey::ALL);
        let text = |(name, content): &(_, Result<Vec<u8>>)| (*name, content.clone().map(|c| String::from_utf8(c).ok()));
        assert_eq!(anew.iter().map(text).collect::<Vec<_>>(), shown.iter().map(text).collect::<Vec<_>>());
    }
}

/// A type as Zarr v3 has it, where netCDF's characters are bytes like others.
fn without_char(dtype: &DType) -> DType {
    match dtype {
        DType::Bytes { length, .. } => DType::Bytes { length: *length, char: false },
        DType::Struct(fields) => {
            DType::Struct(fields.iter().map(|f| Field { dtype: without_char(&f.dtype), ..f.clone() }).collect())
        }
        other => other.clone(),
    }
}

fn same(array: &Array, again: &Array, flavour: Flavour, text: &str) {
    check_array(again);
    assert_eq!((&again.shape, &again.chunks, &again.keys), (&array.shape, &array.chunks, &array.keys), "{text}");
    let rank = array.shape.len();
    let (plain, zarr2, from_zarr3) = (array.kept.is_empty(), flavour == Flavour::Zarr2, array.format == Format::Zarr3);
    if zarr2 {
        assert_eq!(again.dtype, array.dtype, "{text}");
    } else if plain || from_zarr3 {
        assert_eq!(again.dtype, without_char(&array.dtype), "{text}");
    }
    if plain {
        // Where the source has no fill value, Zarr v3 says what is shown in its place.
        let zeros = vec![0; array.dtype.size().unwrap_or(0)];
        let bytes = |fill: &Fill| fill.bytes.clone().unwrap_or_else(|| zeros.clone());
        // Zarr v2 has one word for all that is not a number.
        let is_nan = zarr2 && array.fill.zarr2.to_string().contains(json::NAN);
        assert!(is_nan || bytes(&again.fill) == bytes(&array.fill), "{:?}, not {:?}: {text}", again.fill, array.fill);
        assert!(again.stored.swaps.is_empty() && again.stored.chain.is_empty() && again.kept.is_empty(), "{text}");
        assert!(matches!(again.stored.placement, Placement::Object), "{text}");
        let axes = if array.order == Order::F && rank > 1 { (0..rank).rev().collect() } else { Vec::new() };
        assert_eq!(again.stored.axes, axes, "{text}");
    } else if zarr2 {
        assert_eq!((&again.kept.filters, &again.kept.compressor), (&array.kept.filters, &array.kept.compressor), "{text}");
        assert_eq!(again.order, array.order, "{text}");
    } else if from_zarr3 {
        assert_eq!(again.kept.zarr3, array.kept.zarr3, "{text}");
    }
    let names = array.dimension_names.as_ref();
    let Ok(attributes) = &array.attributes else { return };
    let again_attributes = again.attributes.as_ref().unwrap_or_else(|e| panic!("{e}: {text}"));
    if zarr2 != from_zarr3 {
        assert_eq!(again_attributes, attributes, "{text}");
    }
    // Zarr v2 has no word for an axis without a name.
    if !zarr2 || names.is_none_or(|names| names.iter().all(Option::is_some)) && !attributes.contains_key("_ARRAY_DIMENSIONS") {
        assert_eq!(again.dimension_names.as_ref(), names, "{text}");
    }
}
