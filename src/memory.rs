//! Memory for decoded bytes.

use crate::error::{Error, Result};

/// What is in memory that has not been written: not zeros, so that a gap would not look like data that is often right.
const GAP: u8 = 0xa5;

/// Memory for a result of just `length` bytes, which the caller writes all of.
///
/// It has been touched: memory that the system gives out as zeros comes page by page, each with a fault, which took a fifth of the
/// time of zlib; memory that was used before costs only this writing.
///
/// # Errors
/// [`crate::error::Kind::TooBig`] when there is not so much.
pub fn room(length: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(length).map_err(|_| Error::too_big(format!("no memory for a result of {length} bytes")))?;
    out.resize(length, GAP);
    Ok(out)
}
