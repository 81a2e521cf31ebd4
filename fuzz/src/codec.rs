//! Every codec by itself, with an expected length.

use super::input::Input;
use chunkmount::codec::{Chain, Codec, Length, from_n5, from_numcodecs};
use serde_json::json;
use std::io::Read;
use std::sync::LazyLock;

/// The codecs in the spelling of numcodecs. Seeds name them by their place: only append.
pub const CONFIGURATIONS: &[&str] = &[
    r#"{"id": "gzip"}"#,
    r#"{"id": "zlib"}"#,
    r#"{"id": "bz2"}"#,
    r#"{"id": "lzma", "format": 1}"#,
    r#"{"id": "lzma", "format": 3, "filters": [{"id": 33, "preset": 1}]}"#,
    r#"{"id": "lzma", "format": 3, "filters": [{"id": 3, "dist": 4}, {"id": 33, "preset": 1}]}"#,
    r#"{"id": "lzma", "format": 3, "filters": [{"id": 4}, {"id": 33, "dict_size": 4096}]}"#,
    r#"{"id": "lzma", "format": 3, "filters": [{"id": 4611686018427387905, "preset": 0}]}"#,
    r#"{"id": "lz4"}"#,
    r#"{"id": "zstd"}"#,
    r#"{"id": "blosc"}"#,
    r#"{"id": "crc32"}"#,
    r#"{"id": "crc32", "location": "end"}"#,
    r#"{"id": "adler32"}"#,
    r#"{"id": "crc32c"}"#,
    r#"{"id": "fletcher32"}"#,
    r#"{"id": "jenkins_lookup3", "initval": 7}"#,
    r#"{"id": "shuffle", "elementsize": 4}"#,
    r#"{"id": "shuffle", "elementsize": 3}"#,
    r#"{"id": "delta", "dtype": "<i4", "astype": "<i2"}"#,
    r#"{"id": "delta", "dtype": "|u1"}"#,
    r#"{"id": "delta", "dtype": ">f4"}"#,
    r#"{"id": "fixedscaleoffset", "scale": 10, "offset": 1000, "dtype": "<f8", "astype": "|u1"}"#,
    r#"{"id": "fixedscaleoffset", "scale": 0.5, "offset": -3, "dtype": "<i2", "astype": "<f4"}"#,
    r#"{"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f2"}"#,
    r#"{"id": "astype", "encode_dtype": "<f4", "decode_dtype": ">i8"}"#,
    r#"{"id": "packbits"}"#,
    r#"{"id": "bitround", "keepbits": 3}"#,
];

/// N5's codecs that differ from numcodecs'.
const N5: &[&str] = &["gzip", "lz4", "xz"];

/// All of them, each a chain of its own.
static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
    let numcodecs = CONFIGURATIONS.iter().map(|text| {
        let config = serde_json::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        vec![from_numcodecs(&config, None).ok().flatten().unwrap_or_else(|| panic!("{text} is not read"))]
    });
    let n5 = N5.iter().map(|name| {
        let attributes = [("compression".to_owned(), json!({"type": name}))].into_iter().collect();
        from_n5(&attributes).unwrap_or_else(|e| panic!("{name}: {e}"))
    });
    numcodecs.chain(n5).map(|codecs: Vec<Codec>| Chain::new(codecs).unwrap_or_else(|e| panic!("{e}"))).collect()
});

/// One byte chooses the codec, two are the length, the rest is decoded.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let chosen = input.below(CHAINS.len());
    let length = usize::from(input.short());
    let decoded = check(&CHAINS[chosen], input.0, length);
    if let Some(decoded) = &decoded
        && CONFIGURATIONS.get(chosen) == Some(&r#"{"id": "lz4"}"#)
    {
        let other = lz4_flex::block::decompress(input.0.get(4..).unwrap_or_default(), length);
        assert!(length == 0 || other.is_ok_and(|other| other == *decoded), "lz4_flex decodes this otherwise");
    }
    if CONFIGURATIONS.get(chosen) == Some(&r#"{"id": "bz2"}"#) {
        bzip2_by_the_library(input.0, length, decoded.as_deref());
    }
}

/// The library decodes the same, and of a single stream with nothing behind it no more and no less.
fn bzip2_by_the_library(encoded: &[u8], length: usize, decoded: Option<&[u8]>) {
    if let Some(decoded) = decoded {
        let mut other = vec![0; length];
        let read = bzip2::read::MultiBzDecoder::new(encoded).read_exact(&mut other);
        assert!(length == 0 || read.is_ok() && other == decoded, "the library decodes this otherwise");
    }
    let mut one = bzip2::read::BzDecoder::new(encoded);
    let mut other = Vec::new();
    let read = one.by_ref().take(1 << 20).read_to_end(&mut other);
    if read.is_ok() && other.len() == length && one.total_in() == encoded.len() as u64 {
        assert_eq!(decoded, Some(&other[..]), "the library decodes this");
    }
}

/// Decodes `encoded` with each kind of expectation; the result of just `length` bytes, if there is one.
pub fn check(chain: &Chain, encoded: &[u8], length: usize) -> Option<Vec<u8>> {
    let exact = chain.decode(encoded, Length::Exact(length)).ok();
    if let Some(exact) = &exact {
        assert_eq!(exact.len(), length);
    }
    assert_eq!(chain.decode_owned(encoded.to_vec(), Length::Exact(length)).ok(), exact, "the two ways differ");
    if let Ok(most) = chain.decode(encoded, Length::AtMost(length)) {
        assert!(most.len() <= length);
        assert!(most.capacity() <= length.max(encoded.len()) + (64 << 10) + 1, "{} bytes of memory", most.capacity());
        if let (Some(exact), true) = (&exact, most.len() == length) {
            assert_eq!(*exact, most, "the result depends on what is expected");
        }
    }
    // Two at once: what is found is the same, beside itself and beside a part of itself.
    for other in [encoded, encoded.get(..encoded.len() / 2).unwrap_or_default()] {
        for undone in chain.undo_two([encoded, other], [length; 2]).into_iter().take(1).flatten() {
            assert_eq!(chain.finish(undone, Length::Exact(length)).ok(), exact, "two at once are decoded otherwise");
        }
    }
    exact
}
