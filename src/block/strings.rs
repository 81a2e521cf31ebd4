//! The texts of an N5 block, in the encoding that Zarr calls `vlen-utf8`.
//!
//! N5 joins the texts of a block with NUL and ends the last one with it as well. `vlen-utf8` is the number of texts and before each
//! its length in bytes, both 32-bit and little-endian. What an edge block does not store is the empty text.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::error::{Error, Result};

/// The texts of `blob`, which are those of a block of shape `stored`, as a `vlen-utf8` block of shape `full`; both in C order.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] when the blob has another number of texts or is no UTF-8, and when `stored` is longer than
/// `full` along an axis; [`crate::error::Kind::TooBig`] when the result is longer than `limit` bytes.
pub fn to_vlen_utf8(blob: &[u8], stored: &[usize], full: &[usize], limit: usize) -> Result<Vec<u8>> {
    if stored.len() != full.len() || stored.iter().zip(full).any(|(s, f)| s > f) {
        return Err(Error::corrupt(format!("a block of {stored:?} texts where chunks have {full:?}")));
    }
    let texts = split(blob, count(stored))?;
    let total = count(full).filter(|&n| u32::try_from(n).is_ok());
    let bytes: usize = texts.iter().fold(0, |n, text| n.saturating_add(text.len()));
    let length = total.and_then(|n| n.checked_mul(4)?.checked_add(4)?.checked_add(bytes)).filter(|&n| n <= limit);
    let (Some(total), Some(length)) = (total, length) else {
        return Err(Error::too_big(format!(
            "a chunk of {full:?} texts, {bytes} bytes together; at most {limit} bytes are shown"
        )));
    };
    let mut out = Vec::with_capacity(length);
    put(&mut out, total)?;
    let mut texts = texts.into_iter();
    let mut index = vec![0usize; full.len()];
    for _ in 0..total {
        let inside = index.iter().zip(stored).all(|(i, n)| i < n);
        let text = if inside { texts.next().unwrap_or_default() } else { &[] };
        put(&mut out, text.len())?;
        out.extend_from_slice(text);
        for (i, &n) in index.iter_mut().zip(full).rev() {
            *i = i.saturating_add(1);
            if *i < n {
                break;
            }
            *i = 0;
        }
    }
    Ok(out)
}

fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

fn put(out: &mut Vec<u8>, number: usize) -> Result<()> {
    let number = u32::try_from(number).map_err(|_| Error::too_big(format!("{number} does not fit in 32 bits")))?;
    out.extend_from_slice(&number.to_le_bytes());
    Ok(())
}

/// The `count` texts of a blob. Where the last one is not ended it is a text all the same: some writers only join.
fn split(blob: &[u8], count: Option<usize>) -> Result<Vec<&[u8]>> {
    if let Err(e) = std::str::from_utf8(blob) {
        return Err(Error::corrupt(format!("texts that are no UTF-8, at byte {}", e.valid_up_to())));
    }
    let ends = blob.iter().filter(|&&b| b == 0).count();
    let whole = match blob.split_last() {
        Some((0, whole)) if count == Some(ends) => Some(whole),
        _ => None,
    };
    if whole.is_none() && ends.checked_add(1) != count {
        let count = count.map_or_else(|| "more".to_owned(), |n| n.to_string());
        return Err(Error::corrupt(format!("{ends} texts ended by NUL in {} bytes where {count} are expected", blob.len())));
    }
    Ok(whole.unwrap_or(blob).split(|&b| b == 0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn texts(encoded: &[u8]) -> Vec<String> {
        let mut rest = encoded.get(4..).unwrap();
        let mut found = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let (text, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            found.push(String::from_utf8(text.to_vec()).unwrap());
            rest = after;
        }
        assert_eq!(encoded[..4], u32::try_from(found.len()).unwrap().to_le_bytes());
        found
    }

    #[test]
    fn a_block_of_java_n5() {
        // joint/strings/1/0 of the Java store, a block of 1 x 2 where 3 x 2 are whole; here in C order.
        let block = "delta\0hippo\u{e9}\0";
        let encoded = to_vlen_utf8(block.as_bytes(), &[2, 1], &[2, 3], 1000).unwrap();
        assert_eq!(texts(&encoded), ["delta", "", "", "hippo\u{e9}", "", ""]);
    }

    #[test]
    fn ends_and_counts() {
        assert_eq!(texts(&to_vlen_utf8(b"a\0b", &[2], &[2], 99).unwrap()), ["a", "b"]);
        assert_eq!(texts(&to_vlen_utf8(b"a\0", &[2], &[2], 99).unwrap()), ["a", ""]);
        assert_eq!(texts(&to_vlen_utf8(b"a\0", &[1], &[1], 99).unwrap()), ["a"]);
        assert_eq!(texts(&to_vlen_utf8(b"\0\0", &[2], &[2], 99).unwrap()), ["", ""]);
        assert_eq!(texts(&to_vlen_utf8(b"", &[1], &[1], 99).unwrap()), [""]);
        for (blob, stored) in [(&b"a\0b\0"[..], 1), (b"a\0b\0", 4), (b"", 2), (b"\xff\0", 1)] {
            assert_eq!(to_vlen_utf8(blob, &[stored], &[4], 99).unwrap_err().kind(), Kind::Corrupt, "{blob:?}");
        }
        assert_eq!(to_vlen_utf8(b"a\0", &[1], &[9], 40).unwrap_err().kind(), Kind::TooBig);
        assert_eq!(to_vlen_utf8(b"a\0", &[2], &[1], 40).unwrap_err().kind(), Kind::Corrupt);
        assert_eq!(to_vlen_utf8(b"a\0", &[1, 1], &[usize::MAX, 9], 40).unwrap_err().kind(), Kind::TooBig);
    }
}
