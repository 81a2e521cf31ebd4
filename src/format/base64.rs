//! Base64 with padding (RFC 4648, section 4), as Zarr spells fill values made of bytes.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes that `text` spells; `None` where it is not Base64 with its padding.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(text.len());
    for group in digits.chunks(4) {
        let mut bits = 0u32;
        for i in 0..4 {
            let sextet = match group.get(i) {
                Some(digit) => ALPHABET.iter().position(|a| a == digit)?,
                None => 0,
            };
            bits = bits << 6 | u32::try_from(sextet).ok()?;
        }
        let [_, a, b, c] = bits.to_be_bytes();
        match group.len() {
            4 => out.extend_from_slice(&[a, b, c]),
            3 => out.extend_from_slice(&[a, b]),
            2 => out.push(a),
            _ => return None,
        }
    }
    Some(out)
}

/// The spelling of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let byte = |i: usize| u32::from(group.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (i, shift) in [18u32, 12, 6, 0].into_iter().enumerate() {
            let sextet = usize::try_from(bits >> shift & 63).unwrap_or(0);
            out.push(if i > group.len() { '=' } else { ALPHABET.get(sextet).map_or('=', |&c| char::from(c)) });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).unwrap(), bytes.as_bytes());
        }
        for bad in ["Zg", "Z===", "Zg=a", "Z g=", "====", "Zg==Zg=="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
