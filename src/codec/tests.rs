//! Codecs against bytes that other software wrote, then against the same bytes damaged.

#![allow(clippy::arithmetic_side_effects, clippy::cast_possible_truncation, reason = "small known numbers")]

mod bounds;

use super::*;
use serde_json::Value;

pub(super) struct Case {
    pub(super) name: String,
    pub(super) chain: Chain,
    pub(super) encoded: Vec<u8>,
    pub(super) decoded: Vec<u8>,
}

/// Numbers that are the same each time.
pub(super) fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    }
}

/// Contents of many kinds: noise of few and many values, runs of all lengths, repetitions.
pub(super) fn contents() -> Vec<Vec<u8>> {
    let mut next = numbers(7);
    let mut all = vec![vec![], vec![7], vec![0; 3], vec![0; 4], vec![5; 5], vec![9; 259], vec![9; 260], vec![1; 300_000]];
    for values in [1u64, 2, 3, 17, 256] {
        for length in [2, 50, 2047, 2048, 2049, 250_003] {
            all.push((0..length).map(|_| next(values) as u8).collect());
        }
    }
    for most in [3, 9, 300, 70_000] {
        let mut runs = Vec::new();
        while runs.len() < 200_000 {
            let byte = next(4) as u8;
            runs.resize(runs.len() + next(most) as usize, byte);
        }
        all.push(runs);
    }
    for period in [2, 3, 100, 2048, 30_000] {
        let unit: Vec<u8> = (0..period).map(|_| next(200) as u8).collect();
        all.push(unit.iter().copied().cycle().take(period * 7).collect());
        all.push(unit.iter().copied().cycle().take(period * 7 + 1).collect());
    }
    // More than the longest block of bzip2.
    all.push((0..1_000_003).map(|at| (next(3) + at / 5000) as u8).collect());
    all
}

/// The generators of `scripts/fixtures-codecs.py`.
pub(super) fn data(name: &str, length: usize) -> Vec<u8> {
    match name {
        "zeros" => vec![0; length],
        "ramp" => (0..length as u32 / 2 + 1).flat_map(|i| ((i * 7 / 5) as u16).to_le_bytes()).take(length).collect(),
        "noise" => {
            let mut x = 0x9e37_79b9u32;
            let mut out = Vec::new();
            while out.len() < length {
                x ^= x << 13;
                x ^= x >> 17;
                x ^= x << 5;
                out.extend(x.to_le_bytes());
            }
            out.truncate(length);
            out
        }
        "mixed" => {
            let (ramp, noise) = (data("ramp", length), data("noise", length));
            (0..length).map(|i| if i % 500 < 50 { noise[i] } else { ramp[i] }).collect()
        }
        "repeat" => data("noise", 300).into_iter().cycle().take(length).collect(),
        _ => panic!("no generator {name}"),
    }
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = Vec::new();
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let n = four.iter().fold(0u32, |n, &c| n << 6 | u32::from(digit(c))) << (6 * (4 - four.len()));
        out.extend(&n.to_be_bytes()[1..four.len()]);
    }
    out
}

pub(super) fn chain(config: &Value) -> Chain {
    let codecs = match config.get("n5") {
        Some(compression) => from_n5(serde_json::json!({ "compression": compression }).as_object().unwrap()).unwrap(),
        None => vec![from_numcodecs(config, None).unwrap().unwrap_or_else(|| panic!("{config} is not read"))],
    };
    Chain::new(codecs).unwrap()
}

pub(super) fn cases() -> Vec<Case> {
    let packed = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/codecs/cases.jsonl.xz")).unwrap();
    let mut text = String::new();
    liblzma::read::XzDecoder::new(packed).read_to_string(&mut text).unwrap();
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let decoded = match line.get("data") {
                Some(name) => data(name.as_str().unwrap(), line["length"].as_u64().unwrap() as usize),
                None => base64(line["decoded"].as_str().unwrap()),
            };
            Case {
                name: line["name"].as_str().unwrap().to_owned(),
                chain: chain(&line["config"]),
                encoded: base64(line["encoded"].as_str().unwrap()),
                decoded,
            }
        })
        .collect()
}

#[test]
fn what_others_wrote_is_decoded() {
    let mut wrong = Vec::new();
    for case in cases() {
        let exact = Length::Exact(case.decoded.len());
        match case.chain.decode(&case.encoded, exact) {
            Ok(decoded) if decoded == case.decoded => {}
            Ok(_) => wrong.push(format!("{}: wrong bytes", case.name)),
            Err(e) => wrong.push(format!("{}: {e}", case.name)),
        }
        if !case.chain.encoded_length(exact).allows(case.encoded.len()) {
            wrong.push(format!("{}: {} encoded bytes are not foreseen", case.name, case.encoded.len()));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// Small cases, a few of each codec and framing, to damage.
fn small() -> Vec<Case> {
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    let mut all = cases();
    all.retain(|case| {
        let kind = format!("{:?} {}", case.chain.codecs[0], case.name.split(' ').take(2).collect::<Vec<_>>().join(" "));
        let count = seen.entry(kind).or_default();
        *count += usize::from(case.encoded.len() < 250);
        case.encoded.len() < 250 && *count <= 1
    });
    all
}

/// Damaged bytes give an error or the expected length; of what carries a checksum over all of it, the right bytes.
fn decodes_or_fails(case: &Case, encoded: &[u8]) {
    let n = case.decoded.len();
    if let Ok(decoded) = case.chain.decode(encoded, Length::Exact(n)) {
        assert_eq!(decoded.len(), n, "{}", case.name);
    }
    if let Ok(decoded) = case.chain.decode_owned(encoded.to_vec(), Length::AtMost(n)) {
        assert!(decoded.len() <= n && decoded.capacity() <= n.max(encoded.len()) + (64 << 10) + 1, "{}", case.name);
    }
}

#[test]
fn truncation_is_noticed() {
    for case in small() {
        for end in 0..case.encoded.len() {
            let cut = &case.encoded[..end];
            decodes_or_fails(&case, cut);
            // What is left out may be padding, an empty member, or the end mark of a stream that needs none.
            if let Ok(decoded) = case.chain.decode(cut, Length::Exact(case.decoded.len())) {
                assert_eq!(decoded, case.decoded, "{} cut after {end}", case.name);
            }
        }
    }
}

#[test]
fn flipped_bits_do_no_harm() {
    for case in small() {
        for at in 0..case.encoded.len() {
            for bit in 0..8 {
                let mut damaged = case.encoded.clone();
                damaged[at] ^= 1 << bit;
                decodes_or_fails(&case, &damaged);
            }
        }
    }
}

#[test]
fn flipped_bits_under_a_checksum_give_no_wrong_bytes() {
    for case in small() {
        let named = |name: &str| case.name.starts_with(name);
        if !(named("gzip") || named("zlib") || named("bz2") || named("crc32") || named("adler32") || named("jenkins")) {
            continue;
        }
        for at in 0..case.encoded.len() {
            let mut damaged = case.encoded.clone();
            damaged[at] ^= 0x10;
            if let Ok(decoded) = case.chain.decode(&damaged, Length::Exact(case.decoded.len())) {
                assert_eq!(decoded, case.decoded, "{} damaged at {at}", case.name);
            }
        }
    }
}

/// Every bit of an LZ4 frame with all its checksums is under one of them, or what holds it together; and so is every bit of Java's records
/// but for the size that a token allows.
#[test]
fn flipped_bits_of_lz4_frames_and_records_are_noticed() {
    let mut seen = 0;
    for case in cases() {
        let is_frame = case.name.starts_with("lz4 frame") && case.name.contains("checksums True");
        if !is_frame && case.name != "lz4 records noise 100" || case.encoded.len() > 1000 {
            continue;
        }
        seen += 1;
        for at in 0..case.encoded.len() {
            let mut damaged = case.encoded.clone();
            damaged[at] ^= 0x10;
            let is_token = !is_frame && damaged[..at].ends_with(b"LZ4Block");
            let found = case.chain.decode(&damaged, Length::Exact(case.decoded.len()));
            assert!(found.is_err() || is_token && found.unwrap() == case.decoded, "{} damaged at {at}", case.name);
        }
        // Another length in the header of a frame, under the right checksum.
        if is_frame && case.name.contains("size True") {
            let mut damaged = case.encoded.clone();
            damaged[6] ^= 1;
            damaged[14] = (twox_hash::XxHash32::oneshot(0, &damaged[4..14]) >> 8) as u8;
            assert!(case.chain.decode(&damaged, Length::Exact(case.decoded.len())).is_err(), "{}", case.name);
        }
    }
    assert_eq!(seen, 5);
}

#[test]
fn another_length_is_an_error() {
    for case in small() {
        let n = case.decoded.len();
        assert!(case.chain.decode(&case.encoded, Length::Exact(n + 1)).is_err(), "{}", case.name);
        assert_eq!(case.chain.decode(&case.encoded, Length::AtMost(n + 1)).is_ok(), !case.name.contains("bare"), "{}", case.name);
        if n > 0 {
            assert!(case.chain.decode(&case.encoded, Length::Exact(n - 1)).is_err(), "{}", case.name);
            assert!(case.chain.decode(&case.encoded, Length::AtMost(n - 1)).is_err(), "{}", case.name);
        }
    }
}

#[test]
fn what_follows_a_stream_is_noticed() {
    for case in small() {
        // numcodecs reads these with anything behind them, and goes on with another stream of the second kind.
        let ignores = matches!(case.chain.codecs[0], Codec::Zlib | Codec::Blosc) || case.name.starts_with("zlib");
        let goes_on = matches!(case.chain.codecs[0], Codec::Bzip2 | Codec::Lzma(_));
        for tail in [&b"x"[..], b"garbage after the end", &case.encoded] {
            let mut longer = case.encoded.clone();
            longer.extend_from_slice(tail);
            if let Ok(decoded) = case.chain.decode(&longer, Length::Exact(case.decoded.len())) {
                let again = tail == case.encoded;
                assert!(decoded.is_empty() && again || ignores || goes_on && !again, "{} followed by {tail:?}", case.name);
                assert_eq!(decoded, case.decoded, "{}", case.name);
            } else {
                assert!(!ignores && (!goes_on || tail == case.encoded), "{} followed by {tail:?}", case.name);
            }
        }
    }
}

#[test]
fn a_zlib_stream_that_breaks_off_is_an_error() {
    for case in cases().iter().filter(|case| case.chain.codecs[0] == Codec::Zlib && case.encoded.len() < 10_000) {
        let n = case.decoded.len();
        for end in 0..case.encoded.len() {
            for length in [Length::Exact(n), Length::AtMost(n), Length::AtMost(2 * n)] {
                assert!(case.chain.decode(&case.encoded[..end], length).is_err(), "{} cut after {end}, {length:?}", case.name);
            }
        }
    }
}

#[test]
fn an_empty_chain_gives_its_input() {
    let chain = Chain::default();
    let bytes = vec![1u8; 100];
    let address = bytes.as_ptr();
    let out = chain.decode_owned(bytes, Length::Exact(100)).unwrap();
    assert_eq!(out.as_ptr(), address);
    assert!(chain.decode(&[], Length::Exact(4)).is_err());
    assert!(chain.decode(&[0; 5], Length::Exact(4)).is_err());
    assert_eq!(chain.decode(&[0; 3], Length::AtMost(4)).unwrap(), [0; 3]);
}

#[test]
fn lengths_run_backwards() {
    let number = |text| Number::parse(text).unwrap();
    let delta = Codec::Delta { decoded: number("<i8"), encoded: number("<i2") };
    let chain = Chain::new(vec![delta, Codec::Shuffle(2), Codec::Checksum(Sum::Crc32, Location::Start)]).unwrap();
    assert_eq!(chain.encoded_length(Length::Exact(800)), Length::Exact(204));
    assert_eq!(chain.names(), ["delta", "shuffle", "crc32"]);
    assert_eq!(chain.memory(204, Length::Exact(800)), 1000);
    let bits = Chain::new(vec![Codec::PackBits, Codec::Zlib]).unwrap();
    assert_eq!(bits.encoded_length(Length::Exact(17)), Length::AtMost(limits::encoded(4) as usize));
    assert!(Chain::new(vec![Codec::Gzip; limits::CODECS + 1]).is_err());
}

fn decode(codec: Codec, encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    Chain::new(vec![codec]).unwrap().decode(encoded, length)
}

/// The format forbids a match at distance 0, which the C library takes for zeros.
#[test]
fn an_lz4_match_with_itself_is_damage() {
    let tail = [&[0xf0, 17], &[b'y'; 32][..]].concat();
    let block = |distance: u8| [&[0x10, b'x', distance, 0], &tail[..]].concat();
    let expected = [&[b'x'; 5], &[b'y'; 32][..]].concat();
    // Two zeros that are no distance do no harm: these are literals.
    let zeros = [&[0x30, 0, 0, b'x', 1, 0], &tail[..]].concat();
    let framed = |block: &[u8]| [&(block.len() as u32).to_le_bytes(), block].concat();
    let blosc = |block: &[u8]| {
        let mut frame = vec![2, 1, 0x30, 1];
        [37u32, 37, 24 + block.len() as u32, 20].iter().for_each(|n| frame.extend(n.to_le_bytes()));
        [frame, framed(block)].concat()
    };
    assert_eq!(decode(Codec::Lz4(Framing::Bare), &zeros, Length::Exact(39)).unwrap()[..3], [0, 0, b'x']);
    assert_eq!(decode(Codec::Lz4(Framing::Bare), &block(1), Length::Exact(37)).unwrap(), expected);
    assert_eq!(decode(Codec::Blosc, &blosc(&block(1)), Length::Exact(37)).unwrap(), expected);
    assert!(decode(Codec::Lz4(Framing::Bare), &block(0), Length::Exact(37)).is_err());
    assert!(decode(Codec::Blosc, &blosc(&block(0)), Length::Exact(37)).is_err());
    // After lengths that go on in further bytes: 300 literals, and matches of 300 and of 19.
    for (distance, valid) in [(1, true), (0, false)] {
        let mut long = vec![0xff, 255, 30];
        long.extend([b'x'; 300]);
        long.extend([1, 0, 255, 26, 0x0f, 1, 0, 0, 0x00, distance, 0]);
        long.extend(&tail);
        let decoded = decode(Codec::Lz4(Framing::Bare), &long, Length::Exact(300 + 300 + 19 + 4 + 32));
        assert_eq!(decoded.is_ok(), valid);
    }
}

/// Two blocks at once are what each of them is by itself; what has to be looked at by itself is left.
#[test]
fn two_at_once_are_as_each_alone() {
    use flate2::write::{GzEncoder, ZlibEncoder};
    use std::io::Write;
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zlib = |bytes: &[u8]| {
        let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let named_so = |bytes: &[u8], name: &[u8]| {
        let builder = flate2::GzBuilder::new().filename(name).comment("text").extra(vec![1, 2, 3]);
        let mut encoder = builder.write(Vec::new(), flate2::Compression::new(1));
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let named = |bytes: &[u8]| named_so(bytes, b"name");
    let (ramp, mixed) = (data("ramp", 70_000), data("mixed", 40_000));
    let shuffled = |bytes: &[u8]| (0..2).flat_map(|at| bytes.iter().skip(at).step_by(2).copied()).collect::<Vec<u8>>();
    let chain = |outermost: Codec| Chain::new(vec![Codec::Shuffle(2), outermost]).unwrap();
    let check = |outermost: Codec, encoded: [Vec<u8>; 2], is_undone: [bool; 2]| {
        let chain = chain(outermost);
        let undone = chain.undo_two([&encoded[0], &encoded[1]], [ramp.len(), mixed.len()]);
        for (((undone, encoded), is_undone), bytes) in undone.into_iter().zip(encoded).zip(is_undone).zip([&ramp, &mixed]) {
            assert_eq!(undone.is_some(), is_undone);
            if let Some(undone) = undone {
                assert!(chain.finish(undone, Length::Exact(bytes.len())).unwrap() == *bytes);
                assert!(chain.decode(&encoded, Length::Exact(bytes.len())).unwrap() == *bytes);
            }
        }
    };
    let (a, b) = (shuffled(&ramp), shuffled(&mixed));
    check(Codec::Gzip, [gzip(&a), named(&b)], [true; 2]);
    check(Codec::Zlib, [zlib(&a), zlib(&b)], [true; 2]);
    check(Codec::GzipOrZlib, [gzip(&a), zlib(&b)], [true; 2]);
    // Zeros after gzip are padding, and anything after zlib.
    check(Codec::Gzip, [[gzip(&a), vec![0; 5]].concat(), [gzip(&b), vec![0, 1]].concat()], [true, false]);
    check(Codec::Zlib, [[zlib(&a), vec![1; 5]].concat(), zlib(&b)], [true; 2]);
    // Several members, and none at the end.
    check(Codec::Gzip, [[gzip(&a[..300]), gzip(&a[300..])].concat(), gzip(&b)], [false, true]);
    check(Codec::Gzip, [[gzip(&a), gzip(&[])].concat(), gzip(&b)], [false, true]);
    // Other checksums, another length, another format; the other one is as it was.
    let changed = |mut bytes: Vec<u8>, from_end: usize| {
        let at = bytes.len() - from_end;
        bytes[at] ^= 1;
        bytes
    };
    check(Codec::Gzip, [changed(gzip(&a), 8), gzip(&b)], [false, true]);
    check(Codec::Gzip, [gzip(&a), changed(gzip(&b), 1)], [true, false]);
    check(Codec::Zlib, [changed(zlib(&a), 1), zlib(&b)], [false, true]);
    check(Codec::Zlib, [zlib(&a[1..]), zlib(&b)], [false, true]);
    check(Codec::Gzip, [zlib(&a), gzip(&b)], [false; 2]);
    check(Codec::Zstd, [gzip(&a), gzip(&b)], [false; 2]);
    // A name that is longer than the streaming decoder takes.
    let long = [named_so(&a, &[7; 70_000]), vec![0; 5]].concat();
    assert!(chain(Codec::Gzip).decode(&long, Length::Exact(a.len())).is_err());
    check(Codec::Gzip, [long, gzip(&b)], [false; 2]);
    // A header whose matches would reach further back than there are any.
    let far = [&[0x98, 0x18], &zlib(&a)[2..]].concat();
    assert!(chain(Codec::Zlib).decode(&far, Length::Exact(a.len())).is_err());
    check(Codec::Zlib, [far, zlib(&b)], [false; 2]);
    assert!(chain(Codec::Gzip).finish(vec![0; 9], Length::Exact(10)).is_err());
}

/// numcodecs 0.16.6 with numpy 2.4.6, where a number lies at the edge of what a type holds, or between two of its numbers.
#[test]
fn numbers_at_the_edges_of_types() {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let as_type =
        |encoded: &str, decoded: &str| serde_json::json!({"id": "astype", "encode_dtype": encoded, "decode_dtype": decoded});
    let delta = |dtype: &str| serde_json::json!({"id": "delta", "dtype": dtype, "astype": dtype});
    for (config, encoded, decoded) in [
        // 65519.99 and 65520, ties and others among the least numbers, 2^-14 and a little less, ties around 1.
        (
            as_type("<f8", "<f2"),
            concat!(
                "e17a14aefffdef400000000000feef400000000000feefc0000000000000603e000000000000783e000000000000683e",
                "000000000000843e000000000000103f0000000000fe0f3f000000000002f03f000000000006f03f"
            ),
            "ff7b007c00fc000002000100020000040004003c023c",
        ),
        // NaNs of which only the lowest bit tells that they are none of the infinities, and another.
        (as_type("<f8", "<f2"), "010000000000f07f010000000000f0ff000000000004f87f", "017c01fc017e"),
        (as_type("<f8", "|i1"), "00000000000060c0cdcccccccc1c60c09a99999999f95f40000000000000e0bf", "80807f00"),
        (as_type("<f8", "|u1"), "cdccccccccfc6f40000000000000e0bf0000000000000000", "ff0000"),
        // Beside the middle between two numbers, by less than a double tells.
        (as_type("<i8", "<f4"), "010000001000001001000002000000000100002000002000", "0100805d0000004c0100005a"),
        (
            as_type("<i8", "<f2"),
            "01080000000000000308000000000000efff000000000000f0ff0000000000000210000000000000fff7ffffffffffff",
            "00680268ff7b007c006c00e8",
        ),
        (delta("<f4"), "00000080000000800000803f", "00000080000000800000803f"),
        (delta("<f8"), "00000000000000800000000000000080", "00000000000000800000000000000080"),
    ] {
        let decoded = bytes(decoded);
        assert_eq!(chain(&config).decode(&bytes(encoded), Length::Exact(decoded.len())).unwrap(), decoded, "{config} {encoded}");
    }
    // 256 and -1 in a byte, 128 and -129 in a signed one: numpy leaves open what becomes of them.
    for (dtype, numbers) in [("|u1", [256.0f64, -1.0]), ("|i1", [128.0, -129.0])] {
        for number in numbers {
            let found = chain(&as_type("<f8", dtype)).decode(&number.to_le_bytes(), Length::Exact(1));
            assert_eq!(found.unwrap_err().kind(), crate::error::Kind::Corrupt, "{number} {dtype}");
        }
    }
}

/// By the definition: first bytes of all elements, then second bytes, and what is no whole element at the end.
#[test]
fn long_blocks_of_elements_of_any_size_are_unshuffled() {
    for size in [3, 5, 12, 24] {
        let plain = data("noise", 100_003);
        let (body, tail) = plain.split_at(plain.len() / size * size);
        let mut shuffled: Vec<u8> = (0..size).flat_map(|k| body.iter().skip(k).step_by(size).copied()).collect();
        shuffled.extend_from_slice(tail);
        assert!(decode(Codec::Shuffle(size), &shuffled, Length::Exact(plain.len())).unwrap() == plain, "{size}");
    }
}

/// HDF5 takes both orders of the bytes in each half (`H5Z__filter_fletcher32`); the sum is numcodecs 0.16.6's of 0 to 6.
#[test]
fn the_swapped_checksum_of_old_hdf5_is_right() {
    let data = [0, 1, 2, 3, 4, 5, 6];
    let codec = Codec::Checksum(Sum::Fletcher32, Location::End);
    for (sum, is_right) in [([0x09, 0x0c, 0x17, 0x14], true), ([0x0c, 0x09, 0x14, 0x17], true), ([0x17, 0x14, 0x09, 0x0c], false)]
    {
        let found = decode(codec.clone(), &[&data[..], &sum].concat(), Length::Exact(7));
        assert_eq!(found.is_ok(), is_right, "{sum:02x?}");
    }
}

/// What C-Blosc 1.21 refuses by its header or by the length of a stream, though it could be made into something.
#[test]
fn blosc_frames_that_say_what_cannot_be() {
    // Stored streams of one block of 40 bytes, not split.
    let frame = |version: [u8; 2], compressor: u8, block: u32, stream: &[u8]| {
        let mut frame = vec![version[0], version[1], compressor << 5 | 0x10, 1];
        let size = stream.len() as u32;
        [40, block, 24 + size, 20, size].iter().for_each(|n| frame.extend(n.to_le_bytes()));
        frame.extend_from_slice(stream);
        frame
    };
    let plain = [7; 40];
    let kind = |frame: &[u8]| decode(Codec::Blosc, frame, Length::Exact(40)).map_err(|e| e.kind());
    assert_eq!(kind(&frame([2, 1], 1, 40, &plain)).unwrap(), plain);
    assert_eq!(kind(&frame([3, 1], 1, 40, &plain)), Err(crate::error::Kind::Unsupported));
    assert_eq!(kind(&frame([2, 2], 1, 40, &plain)), Err(crate::error::Kind::Unsupported));
    assert_eq!(kind(&frame([2, 1], 1, 41, &plain)), Err(crate::error::Kind::Corrupt));
    // Snappy of 40 bytes, and of 39.
    let snappy = |n: usize| snap::raw::Encoder::new().compress_vec(&[7; 40][..n]).unwrap();
    assert_eq!(kind(&frame([2, 1], 2, 40, &snappy(40))).unwrap(), plain);
    assert_eq!(kind(&frame([2, 1], 2, 40, &snappy(39))), Err(crate::error::Kind::Corrupt));
}
