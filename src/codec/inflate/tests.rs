//! Streams of several encoders, against what went in; damaged ones and such as no encoder makes, against what libdeflate finds in them.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "small known numbers"
)]

use super::*;
use crate::codec::tests::{contents, numbers};
use flate2::{Compression, read::DeflateEncoder};
use libdeflater::{CompressionLvl, Compressor, Decompressor};
use std::io::Read;

/// A stream of zlib-rs.
fn by_zlib(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoded = Vec::new();
    DeflateEncoder::new(bytes, Compression::new(level)).read_to_end(&mut encoded).unwrap();
    encoded
}

/// A stream of libdeflate.
fn by_libdeflate(bytes: &[u8], level: i32) -> Vec<u8> {
    let mut encoder = Compressor::new(CompressionLvl::new(level).unwrap());
    let mut encoded = vec![0; encoder.deflate_compress_bound(bytes.len())];
    let length = encoder.deflate_compress(bytes, &mut encoded).unwrap();
    encoded.truncate(length);
    encoded
}

/// What libdeflate finds in a stream of just `length` bytes.
fn known(encoded: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; length];
    (Decompressor::new().deflate_decompress(encoded, &mut out) == Ok(length)).then_some(out)
}

fn stream(encoded: &[u8], length: usize) -> Stream<'_> {
    Stream { encoded, length }
}

/// Bits, from the lowest of each byte on; codes with their first bit first.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn number(mut self, number: u32, count: u32) -> Self {
        self.0.extend((0..count).map(|bit| number >> bit & 1 == 1));
        self
    }

    fn code(mut self, code: &str) -> Self {
        self.0.extend(code.bytes().map(|bit| bit == b'1'));
        self
    }

    /// The start of a last block in which these symbols have codes of these lengths.
    fn codes(lengths: &[(usize, u32)], distances: &[u32]) -> Self {
        let mut all = vec![0; 286];
        lengths.iter().for_each(|(symbol, length)| all[*symbol] = *length);
        all.extend(distances);
        // Each length by a code of four bits for sixteen lengths.
        let start = Self::default().number(1, 1).number(2, 2).number(29, 5).number(distances.len() as u32 - 1, 5).number(15, 4);
        let start = (0..19).fold(start, |bits, place| bits.number(if place < 3 { 0 } else { 4 }, 3));
        all.iter().fold(start, |bits, length| bits.code(&format!("{length:04b}")))
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit))).collect()
    }
}

#[test]
fn what_others_encode_is_decoded() {
    let contents = contents();
    for level in [0, 1, 6, 9, 12] {
        let streams: Vec<_> = contents
            .iter()
            .enumerate()
            .map(|(i, bytes)| if i % 3 == 0 && level < 10 { by_zlib(bytes, level) } else { by_libdeflate(bytes, level as i32) })
            .collect();
        // Each beside another, shorter or longer, and something after one of them.
        for (i, bytes) in contents.iter().enumerate() {
            let other = (i * 7 + level as usize) % contents.len();
            let followed = [&streams[i][..], b"after it"].concat();
            let (one, two) = two(stream(&followed, bytes.len()), stream(&streams[other], contents[other].len()));
            assert!(one.unwrap() == (bytes.clone(), &b"after it"[..]), "{i} at {level}");
            assert!(two.unwrap() == (contents[other].clone(), &[][..]), "{other} at {level}");
        }
    }
}

#[test]
fn results_of_another_length_are_none() {
    let bytes: Vec<u8> = contents().into_iter().find(|bytes| bytes.len() == 250_003).unwrap();
    let encoded = by_zlib(&bytes, 6);
    for length in [0, 1, 250_002, 250_004, 1 << 20] {
        let (wrong, right) = two(stream(&encoded, length), stream(&encoded, bytes.len()));
        assert!(wrong.is_none() && right.unwrap().0 == bytes, "{length}");
    }
}

/// Nothing is found in a stream that libdeflate does not find there, wherever it is damaged; and what is beside it is right.
#[test]
fn damaged_streams_are_what_libdeflate_takes_them_for() {
    let mut next = numbers(5);
    let (mut found, mut left) = (0, 0);
    for bytes in contents().into_iter().filter(|bytes| (1..=250_003).contains(&bytes.len())) {
        let whole = if next(2) == 0 { by_zlib(&bytes, 6) } else { by_libdeflate(&bytes, 9) };
        for _ in 0..if bytes.len() < 3000 { 300 } else { 30 } {
            let mut damaged = whole.clone();
            match next(4) {
                0 => damaged.truncate(next(whole.len() as u64) as usize),
                1 => damaged[0] ^= 1 << next(8),
                _ => (0..=next(3)).for_each(|_| {
                    let at = next(damaged.len() as u64) as usize;
                    damaged[at] ^= 1 << next(8);
                }),
            }
            let known = known(&damaged, bytes.len());
            let (own, beside) = two(stream(&damaged, bytes.len()), stream(&whole, bytes.len()));
            assert!(beside.unwrap().0 == bytes);
            match (own, known) {
                (Some((own, _)), Some(known)) => assert!(own == known),
                (Some(_), None) => panic!("decoded, where libdeflate finds damage"),
                (None, Some(_)) => left += 1,
                (None, None) => {}
            }
            found += 1;
        }
    }
    // What it leaves to libdeflate is rare.
    assert!(left * 20 < found, "{left} of {found}");
}

/// A block of what no encoder makes, and what is found in it.
#[test]
fn codes_that_are_none_are_none() {
    let alone = |bits: &Bits, length| two(stream(&bits.bytes(), length), stream(&by_zlib(b"x", 6), 1)).0.map(|(bytes, _)| bytes);
    let check = |bits: Bits, length: usize, result: Option<&[u8]>| {
        assert_eq!(alone(&bits, length).as_deref(), result);
        if let Some(result) = result {
            assert_eq!(known(&bits.bytes(), length).as_deref(), Some(result));
        }
    };
    // a is 0, the end 10, a match of three bytes 11; the only distance, 1, is 0.
    let (a, end, three) = ((97, 1), (256, 2), (257, 2));
    let all = [a, end, three];
    check(Bits::codes(&all, &[1]).code("0").code("11").code("0").code("10"), 4, Some(b"aaaa"));
    // The bit that is left of a code of one distance.
    check(Bits::codes(&all, &[1]).code("0").code("11").code("1").code("10"), 4, None);
    // No distance at all, without and with a match.
    check(Bits::codes(&all, &[0]).code("0").code("0").code("10"), 2, Some(b"aa"));
    check(Bits::codes(&all, &[0]).code("0").code("11").code("10"), 4, None);
    // A distance of two after one byte.
    check(Bits::codes(&all, &[0, 1]).code("0").code("11").code("0").code("10"), 4, None);
    check(Bits::codes(&all, &[0, 1]).code("0").code("0").code("11").code("0").code("10"), 5, Some(b"aaaaa"));
    // Codes that are too short, too long, and without an end.
    check(Bits::codes(&[a, end, three, (98, 2)], &[1]).code("0").code("10"), 1, None);
    check(Bits::codes(&[a, end], &[1]).code("0").code("10"), 1, None);
    check(Bits::codes(&[a, (98, 1)], &[1]).code("0").code("1"), 2, None);
    check(Bits::codes(&all, &[1, 1, 1]).code("0").code("10"), 1, None);
    check(Bits::codes(&all, &[2, 2, 2]).code("0").code("10"), 1, None);
    // A single distance whose code is longer than a bit.
    check(Bits::codes(&all, &[2]).code("0").code("10"), 1, None);
    // More distances than there are.
    check(Bits::codes(&all, &[5; 31]).code("0").code("10"), 1, None);
    // The longest codes, of symbols and distances: 15 bits.
    let long: Vec<_> = (1..=15).map(|bits| (bits as usize, bits)).chain([(256, 15)]).collect();
    let distances: Vec<u32> = (1..=15).chain([15]).collect();
    let ones = |count: usize| "1".repeat(count);
    let last = ones(14) + "0";
    check(Bits::codes(&long, &distances).code("0").code(&last).code(&ones(15)), 2, Some(&[1, 15]));
    // Symbols of the code of the specification that stand for nothing.
    for code in ["11000110", "11000111"] {
        check(Bits::default().number(1, 1).number(1, 2).code(code).code("0000000"), 3, None);
    }
    // A kind of block that there is not, and a stored one whose length is not what its complement says.
    check(Bits::default().number(1, 1).number(3, 2), 0, None);
    check(Bits::default().number(1, 8).number(1, 16).number(0xfffe, 16).number(7, 8), 1, Some(&[7]));
    check(Bits::default().number(1, 8).number(1, 16).number(0xfffd, 16).number(7, 8), 1, None);
}

/// What breaks off ends, wherever it does, and whatever is around it.
#[test]
fn streams_end() {
    for (input, length) in
        [(vec![], 0), (vec![0], 0), (vec![0; 100_000], 1 << 20), (vec![0xff; 100_000], 1 << 20), (vec![4; 50_000], 9)]
    {
        assert!(two(stream(&input, length), stream(&input, length)) == (None, None));
    }
    // At each place around the ends of the buffers: stored, and with codes of seven and eight bits; with something after them, and cut.
    let mut next = numbers(3);
    let lengths = (16_330..16_440).map(|n| (n, 256)).chain((131_040..131_080).map(|n| (n, 200)));
    for (length, values) in lengths.chain((17_080..17_280).map(|n| (n, 200))) {
        let bytes: Vec<u8> = (0..length).map(|_| next(values) as u8).collect();
        let encoded = by_libdeflate(&bytes, 1);
        let followed = [&encoded[..], b"trailer"].concat();
        let (whole, cut) = two(stream(&followed, length), stream(&encoded[..encoded.len() - 1], length));
        assert!(whole.unwrap() == (bytes, &b"trailer"[..]) && cut.is_none(), "{length}, encoded {}", encoded.len());
    }
}

/// Blocks that are very many and very short, stored and with the code of the specification.
#[test]
fn many_short_blocks_are_decoded() {
    let stored = |bytes: &[u8]| {
        let blocks = bytes.chunks(255).flat_map(|block| {
            let length = block.len() as u16;
            [&[0][..], &length.to_le_bytes(), &(!length).to_le_bytes(), block].concat()
        });
        blocks.chain([1, 0, 0, 0xff, 0xff]).collect::<Vec<u8>>()
    };
    let bytes: Vec<u8> = (0..200_000u64).map(|i| (i * i / 3) as u8).collect();
    let empty = (0..200_000).fold(Bits::default(), |bits, _| bits.number(0, 1).number(1, 2).number(0, 7));
    let empty = empty.number(1, 1).number(1, 2).number(0, 7).bytes();
    let stored = stored(&bytes);
    let (one, two) = two(stream(&stored, bytes.len()), stream(&empty, 0));
    assert!(one.unwrap() == (bytes, &[][..]) && two.unwrap() == (vec![], &[][..]));
}
