//! Data types, fill values and Base64.

use super::input::Input;
use chunkmount::array::{DType, Swap};
use chunkmount::format::{base64, dtype, fill, json};
use chunkmount::limits;

/// One byte says whether byte strings are plain; then come a line of JSON for the type and one for the fill value.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let plain = input.byte() & 1 == 1;
    let (spelled, value) = (input.line(), input.line());
    if let Some(bytes) = std::str::from_utf8(value).ok().and_then(base64::decode) {
        assert_eq!(base64::decode(&base64::encode(&bytes)), Some(bytes));
    }
    let Some(Ok(stored)) = json::parse(spelled).ok().map(|value| dtype::parse(&value)) else { return };
    let size = stored.dtype.size();
    assert_eq!(size.is_none(), stored.dtype == DType::Object);
    check_swaps(&stored.swaps, size.unwrap_or(0));
    assert!(size.unwrap_or(0) as u64 <= limits::ITEM);
    let shown = dtype::spell(&stored.dtype);
    let again = dtype::parse(&shown).unwrap_or_else(|e| panic!("{shown}: {e}"));
    assert_eq!(again.dtype, stored.dtype, "{shown}");
    assert!(again.swaps.is_empty(), "{shown} is not little-endian");
    // A wide element is only a matter of time.
    if size.is_some_and(|size| size > 1 << 16) {
        return;
    }
    let Some(Ok(found)) = json::parse(value).ok().map(|v| fill::parse(&v, &stored.dtype, &stored.swaps, plain)) else { return };
    if let Some(bytes) = &found.bytes {
        assert_eq!(Some(bytes.len()), size);
    }
    // What is shown is read as plain Zarr.
    let again = fill::parse(&found.zarr2, &again.dtype, &again.swaps, false);
    let again = again.unwrap_or_else(|e| panic!("{} of {shown}: {e}", found.zarr2));
    // Zarr v2 has one word for all that is not a number.
    let is_nan = found.zarr2.to_string().contains(json::NAN);
    assert!(again.bytes == found.bytes || is_nan, "{} of {shown}: {:?} and {:?}", found.zarr2, found.bytes, again.bytes);
}

/// That runs of numbers lie within an element of `size` bytes and do not overlap.
pub fn check_swaps(swaps: &[Swap], size: usize) {
    let mut free = 0;
    for swap in swaps {
        assert!(matches!(swap.width, 2 | 4 | 8 | 16) && swap.count > 0 && swap.offset >= free, "{swaps:?}");
        free = swap.offset + swap.width * swap.count;
    }
    assert!(free <= size, "{swaps:?} in {size} bytes");
}
