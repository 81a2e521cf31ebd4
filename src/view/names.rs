//! Names of chunk files and their indices, both ways, as shown and as stored.
//!
//! A chunk path has one component (`3.1.4`) or one for each axis (`3/1/4`), perhaps after a `c`, as the array's keys say. Numbers
//! are plain decimal without leading zeros, so that each chunk has one name. What parses but lies outside the grid is no chunk.

use crate::array::{Array, Keys, Placement, Style};

/// What a path below an array's directory can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// A directory on the way to chunks: the leading indices. Without any it is the `c` that stands before them.
    Prefix(Vec<u64>),
    /// A chunk: its index along each axis.
    Chunk(Vec<u64>),
}

/// What a name in the array's own directory means, if anything in this grid.
pub fn parse_first(array: &Array, name: &[u8]) -> Option<Path> {
    if array.keys.style == Style::Plain {
        return parse(array, &[], name);
    }
    let rest = name.strip_prefix(b"c")?;
    if array.shape.is_empty() {
        return (rest == array.keys.suffix.as_bytes()).then(|| Path::Chunk(Vec::new()));
    }
    if array.keys.nested() {
        return rest.is_empty().then(|| Path::Prefix(Vec::new()));
    }
    parse(array, &[], rest.strip_prefix(&[array.keys.separator])?)
}

/// What a name below the directory `prefix` (leading indices, none for the `c` before them) means, if anything in this grid.
pub fn parse(array: &Array, prefix: &[u64], name: &[u8]) -> Option<Path> {
    let rank = array.shape.len();
    if rank == 0 {
        return (prefix.is_empty() && without(name, &array.keys.suffix) == Some(b"0")).then(|| Path::Chunk(Vec::new()));
    }
    if array.keys.nested() {
        let last = prefix.len() + 1 == rank;
        let index = number(if last { without(name, &array.keys.suffix)? } else { name })?;
        if index >= array.chunks_along(prefix.len())? {
            return None;
        }
        let path = prefix.iter().copied().chain([index]).collect();
        return Some(if last { Path::Chunk(path) } else { Path::Prefix(path) });
    }
    let rest = rank.checked_sub(prefix.len())?;
    let index = numbers(without(name, &array.keys.suffix)?, array.keys.separator, rest)?;
    let inside = (prefix.len()..).zip(&index).all(|(axis, i)| array.chunks_along(axis).is_some_and(|n| *i < n));
    inside.then_some(Path::Chunk(index))
}

/// A name of a chunk without what all names of chunks end in. (To compare with nothing is a call all the same, which a million names
/// make a million times.)
fn without<'a>(name: &'a [u8], suffix: &str) -> Option<&'a [u8]> {
    if suffix.is_empty() { Some(name) } else { name.strip_suffix(suffix.as_bytes()) }
}

/// Whether a name can be that of a chunk, or of a directory on the way to chunks, of any array.
pub fn may_be_chunk(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_digit) || name == b"c" || name.starts_with(b"c.")
}

/// Whether a name directly below the array's directory in the *store* is one of its chunks, or leads to some: then it is not
/// shown under that name, whether it lies in the grid or not (arrays that were shrunk leave chunks behind).
pub fn is_stored_chunk(array: &Array, name: &[u8]) -> bool {
    let keys = &array.stored.keys;
    let rank = array.shape.len();
    let whole = |name: &[u8]| match without(name, &keys.suffix) {
        Some(name) if rank == 0 => name == b"0",
        Some(name) => numbers(name, keys.separator, rank).is_some(),
        None => false,
    };
    match keys.style {
        Style::Cube => cube_index(0, name).is_some(),
        Style::Plain if rank > 1 && keys.nested() => number(name).is_some(),
        Style::Plain => whole(name),
        Style::C if rank == 0 => name.strip_prefix(b"c") == Some(keys.suffix.as_bytes()),
        Style::C if keys.nested() => name == b"c",
        Style::C => name.strip_prefix(&[b'c', keys.separator]).is_some_and(whole),
    }
}

/// The index that a name in the store adds to a path of `depth` indices below the directory of an array with nested keys, with
/// whether it is the last one.
pub fn stored_index(array: &Array, depth: usize, name: &[u8]) -> Option<(u64, bool)> {
    let keys = &array.stored.keys;
    let rank = if keys.style == Style::Cube { 3 } else { array.shape.len() };
    let last = depth.checked_add(1)? == rank;
    if keys.style == Style::Cube {
        return Some((cube_index(depth, name)?, last));
    }
    let name = if last { without(name, &keys.suffix)? } else { name };
    Some((number(name)?, last))
}

/// The index that a name stands for on the way to a WKW file: `z3`, then `y1`, then `x4.wkw`.
pub fn cube_index(depth: usize, name: &[u8]) -> Option<u64> {
    let name = if depth == 2 { name.strip_suffix(b".wkw")? } else { name };
    number(name.strip_prefix([b"z", b"y", b"x"].get(depth)?.as_slice())?)
}

/// The indices of a whole name in the store, of an array with flat keys.
pub fn stored_indices(array: &Array, name: &[u8]) -> Option<Vec<u64>> {
    let keys = &array.stored.keys;
    let name = match keys.style {
        Style::C => name.strip_prefix(&[b'c', keys.separator])?,
        _ => name,
    };
    numbers(without(name, &keys.suffix)?, keys.separator, array.shape.len())
}

/// The path of a chunk file, or of a directory on the way (fewer indices than axes), below the array's directory as shown.
pub fn shown(array: &Array, path: &[u64]) -> String {
    join(&array.keys, path.iter(), path.len() == array.shape.len())
}

/// The last component of [`shown`].
pub fn shown_last(array: &Array, path: &[u64]) -> String {
    let path = shown(array, path);
    path.rsplit_once('/').map_or(path.clone(), |(_, last)| last.to_owned())
}

/// The key of the object that holds a chunk, below the array's key in the store. Given fewer indices than axes, that of a
/// directory on the way, where each chunk is an object.
pub fn stored(array: &Array, index: &[u64]) -> String {
    let keys = &array.stored.keys;
    let whole = index.len() == array.shape.len();
    let object: Vec<u64> = match array.stored.placement {
        Placement::Object => index.to_vec(),
        _ => index.iter().zip(array.chunks_per_object()).map(|(i, n)| i.checked_div(n).unwrap_or(0)).collect(),
    };
    match (keys.style, object.as_slice()) {
        (Style::Cube, [.., x, y, z]) if array.stored.reversed => format!("z{z}/y{y}/x{x}{}", keys.suffix),
        (Style::Cube, [z, y, x, ..]) => format!("z{z}/y{y}/x{x}{}", keys.suffix),
        _ if array.stored.reversed => join(keys, object.iter().rev(), whole),
        _ => join(keys, object.iter(), whole),
    }
}

fn join<'a>(keys: &Keys, numbers: impl Iterator<Item = &'a u64>, whole: bool) -> String {
    let mut text = String::new();
    if keys.style == Style::C {
        text.push('c');
    }
    for number in numbers {
        if !text.is_empty() {
            text.push(char::from(keys.separator));
        }
        text.push_str(&number.to_string());
    }
    if text.is_empty() {
        text.push('0');
    }
    if whole {
        text.push_str(&keys.suffix);
    }
    text
}

/// A plain decimal number.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || (text.len() > 1 && text.first() == Some(&b'0')) {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit < 10 { number.checked_mul(10)?.checked_add(digit.into()) } else { None }
    })
}

fn numbers(text: &[u8], separator: u8, count: usize) -> Option<Vec<u64>> {
    let mut found = Vec::with_capacity(count);
    for part in text.split(|&b| b == separator) {
        if found.len() == count {
            return None;
        }
        found.push(number(part)?);
    }
    (found.len() == count).then_some(found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::array::{DType, Envelope, Fill, Format, Kept, Order, Shard, Stored};
    use crate::codec::Chain;

    pub fn array(shape: &[u64], chunks: &[u64], separator: u8, reversed: bool) -> Array {
        Array {
            format: Format::Zarr2,
            shape: shape.to_vec(),
            chunks: chunks.to_vec(),
            dtype: DType::UInt(1),
            fill: Fill { bytes: None, zarr2: serde_json::Value::Null },
            order: Order::C,
            keys: Keys::plain(separator),
            dimension_names: None,
            attributes: Ok(crate::array::Attributes::new()),
            kept: Kept::default(),
            stored: Stored {
                keys: Keys::plain(separator),
                placement: Placement::Object,
                reversed,
                envelope: Envelope::None,
                chain: Chain::default(),
                swaps: Vec::new(),
                axes: Vec::new(),
                narrow_text: false,
                last: Vec::new(),
            },
        }
    }

    #[test]
    fn flat_names_need_all_indices_within_the_grid() {
        let array = array(&[10, 6], &[5, 3], b'.', false);
        assert_eq!(parse(&array, &[], b"1.0"), Some(Path::Chunk(vec![1, 0])));
        for name in ["2.0", "1", "1.0.0", "01.0", "1.", ".1", "+1.0", "1.0x", "", "99999999999999999999.0"] {
            assert_eq!(parse(&array, &[], name.as_bytes()), None, "{name}");
        }
        assert!(is_stored_chunk(&array, b"7.7") && !is_stored_chunk(&array, b"7"));
        assert_eq!(stored(&array, &[1, 0]), "1.0");
    }

    #[test]
    fn nested_names_go_one_axis_at_a_time_and_turn_around_for_n5() {
        let array = array(&[10, 6, 4], &[5, 3, 1], b'/', true);
        assert_eq!(parse(&array, &[], b"1"), Some(Path::Prefix(vec![1])));
        assert_eq!(parse(&array, &[1], b"2"), None);
        assert_eq!(parse(&array, &[1, 1], b"3"), Some(Path::Chunk(vec![1, 1, 3])));
        assert_eq!(stored(&array, &[1, 0, 3]), "3/0/1");
        assert_eq!(shown(&array, &[1, 0, 3]), "1/0/3");
    }

    #[test]
    fn an_array_without_axes_has_one_chunk() {
        let array = array(&[], &[], b'.', false);
        assert_eq!(parse(&array, &[], b"0"), Some(Path::Chunk(vec![])));
        assert_eq!((stored(&array, &[]).as_str(), parse(&array, &[], b"1")), ("0", None));
    }

    #[test]
    fn a_c_stands_before_the_indices_of_zarr_v3() {
        let mut nested = array(&[10, 6], &[5, 3], b'/', false);
        nested.keys.style = Style::C;
        nested.stored.keys = nested.keys.clone();
        assert_eq!(parse_first(&nested, b"c"), Some(Path::Prefix(vec![])));
        assert_eq!(parse_first(&nested, b"1"), None);
        assert_eq!(parse(&nested, &[1], b"0"), Some(Path::Chunk(vec![1, 0])));
        assert_eq!((stored(&nested, &[1, 0]).as_str(), stored(&nested, &[]).as_str()), ("c/1/0", "c"));
        let mut flat = array(&[10, 6], &[5, 3], b'.', false);
        flat.keys = Keys { style: Style::C, separator: b'.', suffix: ".raw".into() };
        flat.stored.keys = flat.keys.clone();
        assert_eq!(parse_first(&flat, b"c.1.0.raw"), Some(Path::Chunk(vec![1, 0])));
        assert_eq!((parse_first(&flat, b"c.1.0"), parse_first(&flat, b"1.0.raw")), (None, None));
        assert!(is_stored_chunk(&flat, b"c.7.7.raw") && !is_stored_chunk(&flat, b"c.7.7"));
        assert_eq!(stored(&flat, &[1, 0]), "c.1.0.raw");
        let mut scalar = array(&[], &[], b'/', false);
        scalar.keys.style = Style::C;
        scalar.stored.keys = scalar.keys.clone();
        assert_eq!(parse_first(&scalar, b"c"), Some(Path::Chunk(vec![])));
        assert_eq!(stored(&scalar, &[]), "c");
    }

    #[test]
    fn chunks_of_a_shard_or_cube_share_an_object() {
        let mut array = array(&[100, 100, 100, 2], &[10, 10, 10, 2], b'/', false);
        let cube = crate::array::Cube { side: 4, compressed: true, block: 2000, header: [0; 8] };
        array.stored.keys = Keys { style: Style::Cube, separator: b'/', suffix: ".wkw".into() };
        array.stored.placement = Placement::Cube(cube);
        assert_eq!(stored(&array, &[9, 4, 3, 0]), "z2/y1/x0.wkw");
        assert!(is_stored_chunk(&array, b"z12") && !is_stored_chunk(&array, b"header.wkw"));
        assert_eq!(stored_index(&array, 2, b"x0.wkw"), Some((0, true)));
        let level = |parts: &[u64], chunks: &[u64]| Shard {
            parts: parts.to_vec(),
            chunks: chunks.to_vec(),
            axes: vec![0, 1, 2, 3],
            at_start: false,
            big_endian: false,
            index: Chain::default(),
            envelope: Chain::default(),
        };
        array.stored.keys = Keys { style: Style::C, separator: b'/', suffix: String::new() };
        array.stored.placement = Placement::Shards(vec![level(&[2, 1, 1, 1], &[3, 5, 1, 1]), level(&[3, 5, 1, 1], &[1; 4])]);
        assert_eq!(stored(&array, &[9, 4, 3, 0]), "c/1/0/3/0");
    }
}
