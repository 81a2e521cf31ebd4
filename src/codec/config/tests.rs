//! Configurations as they are found in metadata of numcodecs, netCDF, GDAL and N5 writers.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation, reason = "small known numbers")]

use super::*;
use crate::error::Kind;
use serde_json::json;

fn read(config: &Value) -> Option<Codec> {
    from_numcodecs(config, Some(8)).unwrap()
}

#[test]
fn parameters_may_be_strings_or_unknown() {
    assert_eq!(read(&json!({"id": "zlib", "level": "5"})), Some(Codec::Zlib));
    assert_eq!(read(&json!({"id": "lzma", "preset": 6, "delta": 1})), Some(Codec::Lzma(Lzma::Container)));
    assert_eq!(read(&json!({"id": "shuffle", "elementsize": "4"})), Some(Codec::Shuffle(4)));
    assert_eq!(read(&json!({"id": "numcodecs.blosc", "cname": "lz4"})), Some(Codec::Blosc));
    assert_eq!(read(&json!({"id": "crc32", "location": null})), Some(Codec::Checksum(Sum::Crc32, Location::Start)));
    assert_eq!(read(&json!({"id": "crc32c"})), Some(Codec::Checksum(Sum::Crc32c, Location::End)));
}

#[test]
fn element_size_0_is_the_size_of_the_arrays_elements() {
    let config = json!({"id": "shuffle", "elementsize": 0});
    assert_eq!(read(&config), Some(Codec::Shuffle(8)));
    assert_eq!(from_numcodecs(&config, None).unwrap(), Some(Codec::Shuffle(1)));
    assert_eq!(read(&json!({"id": "shuffle"})), Some(Codec::Shuffle(4)));
}

#[test]
fn what_is_not_undone_stays() {
    for config in [
        json!({"id": "vlen-utf8"}),
        json!({"id": "json2", "encoding": "utf-8"}),
        json!({"id": "pcodec"}),
        json!({"id": "delta", "dtype": "<c8"}),
        json!({"id": "delta", "dtype": "|b1"}),
        json!({"id": "astype", "encode_dtype": "<M8[s]", "decode_dtype": "<M8[ns]"}),
        json!({"id": "jenkins_lookup3", "prefix": [1, 2]}),
        json!({"id": "lzma", "format": 3, "filters": [{"id": 99}]}),
        // numcodecs and Python's lzma refuse all of these parameters but the last.
        json!({"id": "shuffle", "element_size": 2}),
        json!({"id": "delta", "dtype": "<u2", "initial": 3}),
        json!({"id": "fixedscaleoffset", "scale": 10, "offset": 0, "dtype": "<f4", "as_type": "<i4"}),
        json!({"id": "quantize", "digits": 1, "dtype": "<f4", "as_type": "<f8"}),
        json!({"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8", "dtype": "<i4"}),
        json!({"id": "packbits", "order": "little"}),
        json!({"id": "lzma", "format": 3, "filters": [{"id": 3, "distance": 4}, {"id": 33, "preset": 1}]}),
        json!({"id": "lzma", "format": 3, "filters": [{"id": 3, "dist": null}, {"id": 33, "preset": 1}]}),
        json!({"id": "lzma", "format": 3, "filters": [{"id": 4, "start_offset": 4096}, {"id": 33, "preset": 1}]}),
    ] {
        assert_eq!(read(&config), None, "{config}");
    }
    assert!(is_object_codec("vlen-utf8") && is_object_codec("numcodecs.json2") && !is_object_codec("zlib"));
}

#[test]
fn what_makes_no_sense_is_an_error() {
    for config in [
        json!(null),
        json!("zlib"),
        json!({}),
        json!({"id": 3}),
        json!({"id": "delta"}),
        json!({"id": "fixedscaleoffset", "dtype": "<f4", "offset": 0}),
        json!({"id": "shuffle", "elementsize": -1}),
        json!({"id": "shuffle", "elementsize": "many"}),
        json!({"id": "shuffle", "elementsize": 1u64 << 40}),
        json!({"id": "crc32", "location": "middle"}),
        json!({"id": "lzma", "format": 3}),
        json!({"id": "lzma", "format": 3, "filters": [{"id": 3, "dist": 0}]}),
        json!({"id": "lzma", "format": 3, "filters": [{"id": 33, "lc": 9}]}),
        json!({"id": "astype", "encode_dtype": "<f4"}),
    ] {
        assert_eq!(from_numcodecs(&config, None).unwrap_err().kind(), Kind::Corrupt, "{config}");
    }
}

#[test]
fn compression_of_n5() {
    let codecs = |attributes: Value| from_n5(attributes.as_object().unwrap());
    let one = |name: &str| codecs(json!({"compression": {"type": name}})).unwrap();
    assert_eq!(one("raw"), []);
    assert_eq!(one("gzip"), [Codec::GzipOrZlib]);
    assert_eq!(codecs(json!({"compression": {"type": "gzip", "useZlib": true, "level": -1}})).unwrap(), [Codec::GzipOrZlib]);
    assert_eq!(one("bzip2"), [Codec::Bzip2]);
    assert_eq!(one("xz"), [Codec::Lzma(Lzma::Container)]);
    assert_eq!(one("lz4"), [Codec::Lz4(Framing::Sniffed)]);
    assert_eq!(one("zstd"), one("zstandard"));
    assert_eq!(codecs(json!({"compressionType": "gzip"})).unwrap(), [Codec::GzipOrZlib]);
    let jpeg = codecs(json!({"compression": {"type": "jpeg"}})).unwrap_err();
    assert_eq!((jpeg.kind(), jpeg.reason()), (Kind::Unsupported, "N5 compression \"jpeg\""));
    for bad in [json!({}), json!({"compression": {}}), json!({"compression": 3}), json!({"compressionType": []})] {
        assert_eq!(codecs(bad).unwrap_err().kind(), Kind::Corrupt);
    }
}
