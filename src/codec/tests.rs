//! Codecs against bytes that other software wrote, then against the same bytes damaged.

use super::*;
use serde_json::Value;

pub(super) struct Case {
    pub(super) name: String,
    pub(super) chain: Chain,
    pub(super) encoded: Vec<u8>,
    pub(super) decoded: Vec<u8>,
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
        Some(compression) => {
            from_n5(serde_json::json!({ "compression": compression }).as_object().unwrap()).unwrap()
        }
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
