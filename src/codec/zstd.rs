//! Zstandard: one or more frames, with or without content size and checksum, skippable frames between them.
//!
//! Decoding goes in one call into the result itself, so no window is ever allocated, whatever a header claims.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Length, grow};
use crate::error::{Error, Result};
use std::cell::RefCell;
use zstd_safe::zstd_sys::ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall;
use zstd_safe::{DCtx, get_error_name, get_frame_content_size};

thread_local! {
    static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Undoes Zstandard.
pub(super) fn decode(encoded: &[u8], length: Length) -> Result<Vec<u8>> {
    let claim = get_frame_content_size(encoded).ok().flatten();
    if let Some(claim) = claim
        && usize::try_from(claim).unwrap_or(usize::MAX) > length.bound()
    {
        return Err(length.mismatch("zstd", claim));
    }
    let mut out = Vec::new();
    loop {
        match length {
            // One call writes all there can be, and no byte beyond it is needed to find out that there is more.
            Length::Exact(n) => {
                out.try_reserve_exact(n).map_err(|_| Error::too_big(format!("no memory for a result of {n} bytes")))?;
            }
            Length::AtMost(_) => grow(&mut out, length)?,
        }
        match CONTEXT.with_borrow_mut(|context| context.decompress(&mut out, encoded)) {
            Ok(_) => break,
            Err(code) if is_too_small(code) && out.capacity() <= length.bound() && matches!(length, Length::AtMost(_)) => {
                // Only growing tells; the frames need not tell their length.
                let larger = out.capacity().saturating_mul(4).min(length.bound().saturating_add(1));
                out = Vec::new();
                out.try_reserve_exact(larger).map_err(|_| Error::too_big(format!("no memory for a result of {larger} bytes")))?;
            }
            Err(code) if is_too_small(code) => return Err(length.longer("zstd")),
            Err(code) => return Err(Error::corrupt(format!("zstd: {}", get_error_name(code)))),
        }
    }
    length.check("zstd", out.len())?;
    out.shrink_to(length.bound().min(out.len()));
    Ok(out)
}

fn is_too_small(code: usize) -> bool {
    // zstd returns error numbers negated.
    u32::try_from(code.wrapping_neg()).is_ok_and(|n| n == ZSTD_error_dstSize_tooSmall as u32)
}

/// Undoes Zstandard straight into `out`, which it must fill.
pub(super) fn into(encoded: &[u8], out: &mut [u8]) -> Option<()> {
    let n = CONTEXT.with_borrow_mut(|context| context.decompress(out, encoded)).ok()?;
    (n == out.len()).then_some(())
}
