//! The header of an N5 block, and a block of a small array decoded all the way to the content of its chunk file.

use super::input::Input;
use chunkmount::array::{Array, Node};
use chunkmount::chunk;
use chunkmount::codec::Length;
use chunkmount::format::{self, Context, Documents, n5};
use std::sync::LazyLock;

const SHAPES: &[&str] = &[
    r#""dimensions": [10], "blockSize": [4]"#,
    r#""dimensions": [7, 5], "blockSize": [3, 2]"#,
    r#""dimensions": [5, 4, 3], "blockSize": [5, 2, 2]"#,
    r#""dimensions": [300, 300], "blockSize": [70, 70]"#,
];
const TYPES: &[&str] = &["uint8", "int16", "float32", "uint64"];
const COMPRESSIONS: &[&str] = &["raw", "gzip", "bzip2", "xz", "lz4", "zstd", "blosc"];

/// Every combination of the above, in either order of axes.
static ARRAYS: LazyLock<Vec<Array>> = LazyLock::new(|| {
    let mut arrays = Vec::new();
    for source_axes in [false, true] {
        for (shape, dtype, compression) in
            SHAPES.iter().flat_map(|s| TYPES.iter().flat_map(move |t| COMPRESSIONS.iter().map(move |c| (s, t, c))))
        {
            let text = format!(r#"{{{shape}, "dataType": "{dtype}", "compression": {{"type": "{compression}"}}}}"#);
            arrays.push(array(&text, source_axes));
        }
    }
    // What holds other things than as many elements as its shape says.
    let others = [
        r#""dataType": "string", "compression": {"type": "raw"}"#,
        r#""dataType": "string", "compression": {"type": "gzip"}"#,
        r#""dataType": "object", "compression": {"type": "raw"}"#,
        r#""dataType": "uint8", "isLabelMultiset": true, "compression": {"type": "raw"}"#,
        r#""dataType": "uint8", "codecs": [{"name": "bytes"}]"#,
        r#""dataType": "float64", "codecs": [{"name": "n5bytes"}, {"name": "zstd"}]"#,
    ];
    for (shape, other) in SHAPES.iter().flat_map(|s| others.iter().map(move |o| (s, o))) {
        let array = array(&format!("{{{shape}, {other}}}"), false);
        arrays.extend(n5::most_frequent_labels(&array));
        let mut varlength = array.clone();
        n5::make_varlength(&mut varlength);
        arrays.extend([array, varlength]);
    }
    arrays
});

fn array(text: &str, source_axes: bool) -> Array {
    let documents = Documents::from([("attributes.json", Ok(text.as_bytes().to_vec()))]);
    match format::detect(&documents, &Context { source_axes, ..Context::default() }) {
        Ok(Node::Array(array)) => *array,
        other => panic!("{text}: {other:?}"),
    }
}

/// Two bytes choose the array, the rest is the block.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let array = &ARRAYS[usize::from(input.short()) % ARRAYS.len()];
    let bytes = input.0;
    let rank = array.shape.len();
    let mut block_size = array.chunks.clone();
    if !array.stored.reversed {
        block_size.reverse();
    }
    for header in [n5::block_header(bytes, rank).ok(), n5::object_header_with_shape(bytes, rank)].into_iter().flatten() {
        assert!(header.payload <= bytes.len() && header.payload <= n5::header_length(rank));
        if let Ok(shape) = n5::stored_shape(&header, &block_size) {
            assert!(shape.len() == rank && shape.iter().zip(&block_size).all(|(&n, &b)| n > 0 && n as u64 <= b));
            if n5::check_count(&header, &shape).is_ok() {
                assert!(header.count.is_none_or(|n| n as usize == shape.iter().product::<usize>()));
            }
        }
    }
    let length = match array.chunk_bytes() {
        Some(n) => Length::Exact(n as usize),
        None => Length::AtMost(1 << 20),
    };
    if let Ok(block) = chunk::decode(array, bytes.to_vec(), length, None) {
        assert!(length.allows(block.len()) || array.chunk_bytes().is_none(), "{} bytes", block.len());
    }
}
