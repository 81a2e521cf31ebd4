//! Names of chunk files and their indices, both ways, as shown and as stored.
//!
//! A chunk path has one component (`3.1.4`) or one for each axis (`3/1/4`), as the array's separator says. Numbers are plain
//! decimal without leading zeros, so that each chunk has one name. What parses but lies outside the grid is no chunk.

use crate::array::Array;

/// What a path below an array's directory can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Path {
    /// A directory on the way to chunks: the leading indices.
    Prefix(Vec<u64>),
    /// A chunk: its index along each axis.
    Chunk(Vec<u64>),
}

/// What a name below the directory `prefix` (leading indices, empty for the array itself) means, if anything in this grid.
pub fn parse(array: &Array, prefix: &[u64], name: &[u8]) -> Option<Path> {
    let grid = array.grid();
    if grid.is_empty() {
        return (prefix.is_empty() && name == b"0").then(|| Path::Chunk(Vec::new()));
    }
    let rest = grid.get(prefix.len()..)?;
    if array.separator == b'/' {
        let index = number(name).filter(|i| i < rest.first().unwrap_or(&0))?;
        let mut path = prefix.to_vec();
        path.push(index);
        return Some(if path.len() == grid.len() { Path::Chunk(path) } else { Path::Prefix(path) });
    }
    let index = numbers(name, array.separator, rest.len())?;
    index.iter().zip(rest).all(|(i, n)| i < n).then_some(Path::Chunk(index))
}

/// Whether a name directly below the array's directory in the *store* is one of its chunks, or leads to some: then it is not
/// shown under that name, whether it lies in the grid or not (arrays that were shrunk leave chunks behind).
pub fn is_stored_chunk(array: &Array, name: &[u8]) -> bool {
    match array.shape.len() {
        0 => name == b"0",
        _ if array.stored.separator == b'/' => number(name).is_some(),
        rank => numbers(name, array.stored.separator, rank).is_some(),
    }
}

/// The path of a chunk file, or of a directory on the way (fewer indices than axes), below the array's directory as shown.
pub fn shown(array: &Array, path: &[u64]) -> String {
    join(path.iter(), array.separator)
}

/// The key of a chunk below the array's key in the store.
pub fn stored(array: &Array, index: &[u64]) -> String {
    if array.stored.reversed {
        join(index.iter().rev(), array.stored.separator)
    } else {
        join(index.iter(), array.stored.separator)
    }
}

fn join<'a>(numbers: impl Iterator<Item = &'a u64>, separator: u8) -> String {
    let mut text = String::new();
    for number in numbers {
        if !text.is_empty() {
            text.push(char::from(separator));
        }
        text.push_str(&number.to_string());
    }
    if text.is_empty() { "0".into() } else { text }
}

/// A plain decimal number.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty()
        || text.len() > 20
        || (text.len() > 1 && text.first() == Some(&b'0'))
        || !text.iter().all(u8::is_ascii_digit)
    {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
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
    use crate::array::{DType, Envelope, Fill, Format, Kept, Order, Stored};

    pub fn array(shape: &[u64], chunks: &[u64], separator: u8, reversed: bool) -> Array {
        Array {
            format: Format::Zarr2,
            shape: shape.to_vec(),
            chunks: chunks.to_vec(),
            dtype: DType::UInt(1),
            fill: Fill { bytes: None, zarr2: serde_json::Value::Null },
            order: Order::C,
            separator,
            dimension_names: None,
            attributes: Ok(crate::array::Attributes::new()),
            kept: Kept::default(),
            stored: Stored {
                separator,
                reversed,
                envelope: Envelope::None,
                chain: crate::codec::Chain::default(),
                swaps: Vec::new(),
                order: Order::C,
                narrow_text: false,
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
}
