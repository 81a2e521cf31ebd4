//! What streams claim of their lengths, and what comes of streams in streams: nothing grows beyond what the metadata tells.

use super::*;

/// 64 MiB of zeros in every compressor, where 32 bytes are expected.
#[test]
fn bombs_stop_at_the_bound() {
    use std::io::Write;
    let zeros = vec![0u8; 1 << 16];
    let fill = |writer: &mut dyn Write| (0..1024).for_each(|_| writer.write_all(&zeros).unwrap());
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    fill(&mut gzip);
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    fill(&mut zlib);
    let mut bzip2 = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::best());
    fill(&mut bzip2);
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    fill(&mut xz);
    let all = vec![0u8; 64 << 20];
    let mut zstd = vec![0; 1 << 20];
    let n = zstd_safe::compress(&mut zstd[..], &all, 1).unwrap();
    zstd.truncate(n);
    let mut lz4 = (all.len() as u32).to_le_bytes().to_vec();
    lz4.extend(lz4_flex::block::compress(&all));
    // The length that the metadata tells bounds the encoded bytes too; these are all below that.
    let bombs = [
        (Codec::Gzip, gzip.finish().unwrap()),
        (Codec::Zlib, zlib.finish().unwrap()),
        (Codec::Bzip2, bzip2.finish().unwrap()),
        (Codec::Lzma(Lzma::Container), xz.finish().unwrap()),
        (Codec::Zstd, zstd),
        (Codec::Lz4(Framing::Prefixed), lz4),
    ];
    for (codec, bomb) in bombs {
        for length in [Length::Exact(32), Length::AtMost(32), Length::Exact(0), Length::AtMost(1 << 20)] {
            let error = decode(codec.clone(), &bomb, length).unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::Corrupt, "{} {length:?}: {error}", codec.name());
        }
        assert!(decode(codec, &bomb, Length::Exact(64 << 20)).unwrap() == all);
    }
}

#[test]
fn claims_beyond_the_bound_are_not_believed() {
    // A zstd frame that claims 2^60 bytes, then one with a window of 2^41.
    let mut size = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    size.extend((1u64 << 60).to_le_bytes());
    size.extend([1, 0, 0]);
    let error = decode(Codec::Zstd, &size, Length::Exact(32)).unwrap_err();
    assert_eq!(error.reason(), "zstd: 1152921504606846976 bytes where 32 are expected");
    assert!(decode(Codec::Zstd, &[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 1, 0, 0], Length::Exact(32)).is_err());
    // A blosc frame whose block begins outside of it, in its own offsets, and with a stream that leads out of it.
    for start in [0u32, 16, 19, 24, 1000, u32::MAX] {
        let mut frame = vec![2, 1, 0x31, 4];
        for n in [32u32, 32, 24, start, 100] {
            frame.extend(n.to_le_bytes());
        }
        assert!(decode(Codec::Blosc, &frame, Length::Exact(32)).is_err(), "{start}");
    }
    // Blocks longer than all of it, stored: numcodecs refuses all but the first.
    for (block, valid) in [(32u32, true), (33, false), (1 << 20, false)] {
        let mut frame = vec![2, 1, 0x32, 4];
        [32u32, block, 48].iter().for_each(|n| frame.extend(n.to_le_bytes()));
        frame.extend([7; 32]);
        assert_eq!(decode(Codec::Blosc, &frame, Length::Exact(32)).is_ok(), valid, "{block}");
    }
    let mut frame = vec![2, 1, 0x31, 0];
    [32u32, 0, 16].iter().for_each(|n| frame.extend(n.to_le_bytes()));
    assert!(decode(Codec::Blosc, &frame, Length::Exact(32)).is_err());
    // A record of LZ4Block that claims 2 GiB, and one without an end after it.
    let mut record = b"LZ4Block\x26".to_vec();
    [10u32, 0x7fff_ffff, 0].iter().for_each(|n| record.extend(n.to_le_bytes()));
    let sniffed = Codec::Lz4(Framing::Sniffed);
    assert!(decode(sniffed.clone(), &record, Length::Exact(32)).is_err());
    // A bare block has no length: with a bound alone it cannot be told.
    assert_eq!(decode(sniffed.clone(), &[0x10, b'x'], Length::Exact(1)).unwrap(), b"x");
    assert!(decode(sniffed, &[0x10, b'x'], Length::AtMost(1)).is_err());
}

/// Streams in streams: each is small, and what comes of a few of them would fill any memory.
#[test]
fn bombs_in_bombs_stop_at_the_bound() {
    use std::io::Write;
    // 10 GiB of zeros: a block of 16 MiB is flushed so that it can be repeated, and what comes of that is packed again and again.
    let mut deflate = flate2::Compress::new(flate2::Compression::best(), false);
    let mut block = Vec::with_capacity(1 << 20);
    deflate.compress_vec(&vec![0; 16 << 20], &mut block, flate2::FlushCompress::Full).unwrap();
    let mut bomb = b"\x1f\x8b\x08\0\0\0\0\0\0\x03".to_vec();
    (0..640).for_each(|_| bomb.extend(&block));
    bomb.extend([3, 0]);
    bomb.extend([0; 8]);
    for _ in 0..3 {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(&bomb).unwrap();
        bomb = gzip.finish().unwrap();
    }
    assert!(bomb.len() < 4000, "{}", bomb.len());
    for codecs in [vec![Codec::Gzip; 4], vec![Codec::Gzip; limits::CODECS]] {
        let chain = Chain::new(codecs).unwrap();
        for length in [Length::Exact(4), Length::AtMost(4), Length::Exact(1 << 20)] {
            assert!(chain.encoded_length(length).bound() <= limits::encoded(length.bound() as u64) as usize);
            assert!(chain.memory(bomb.len() as u64, length) <= 2 * limits::encoded(length.bound() as u64));
            let error = chain.decode(&bomb, length).unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::Corrupt, "{error}");
        }
    }
}

/// What is honest passes: compressors around each other, of data that none of them makes smaller.
#[test]
fn compressors_in_compressors() {
    use std::io::Write;
    for length in [0, 1, 100, 100_000, 3 << 20] {
        let plain = data("noise", length);
        let mut bytes = plain.clone();
        for _ in 0..4 {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&bytes).unwrap();
            bytes = gzip.finish().unwrap();
        }
        let chain = Chain::new(vec![Codec::Gzip; 4]).unwrap();
        assert!(chain.decode(&bytes, Length::Exact(length)).unwrap() == plain);
        assert!(chain.decode(&bytes, Length::AtMost(length)).unwrap() == plain);
    }
}

/// Filters whose stored elements are wider, again and again: no length of that is believed, however it is compressed.
#[test]
fn filters_that_widen_without_end() {
    let number = |text| Number::parse(text).unwrap();
    let widen = Codec::AsType { decoded: number("|u1"), encoded: number("<f8") };
    for count in [11, 12, 22, 63] {
        let chain = Chain::new([vec![widen.clone(); count], vec![Codec::Gzip]].concat()).unwrap();
        let error =
            chain.decode(&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0], Length::Exact(8)).unwrap_err();
        assert_eq!(error.kind(), crate::error::Kind::TooBig, "{count}: {error}");
    }
}
