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
            let documents = Documents::from([("attributes.json", Ok(text.into_bytes()))]);
            match format::detect(&documents, &Context { source_axes, ..Context::default() }) {
                Ok(Node::Array(array)) => arrays.push(*array),
                other => panic!("{other:?}"),
            }
        }
    }
    arrays
});

/// One byte chooses the array, the rest is the block.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let array = &ARRAYS[input.below(ARRAYS.len())];
    let bytes = input.0;
    let rank = array.shape.len();
    if let Ok(header) = n5::block_header(bytes, rank) {
        assert!(header.payload <= bytes.len() && header.payload <= n5::header_length(rank));
        let mut block_size = array.chunks.clone();
        if !array.stored.reversed {
            block_size.reverse();
        }
        if let Ok(shape) = n5::stored_shape(&header, &block_size) {
            assert!(shape.len() == rank && shape.iter().zip(&block_size).all(|(&n, &b)| n > 0 && n as u64 <= b));
        }
    }
    let length = array.chunk_bytes().and_then(|n| usize::try_from(n).ok());
    let length = length.unwrap_or_else(|| panic!("an N5 array has a length"));
    if let Ok(block) = chunk::decode(array, bytes.to_vec(), Length::Exact(length)) {
        assert_eq!(block.len(), length);
    }
}
