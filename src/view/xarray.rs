//! xarray's spelling of the attribute `_FillValue` of floating-point arrays, which is not the same in both versions of Zarr.
//!
//! In Zarr v2 it is a number. In Zarr v3 xarray writes and expects the Base64 of its eight bytes as a float64, little-endian, and
//! refuses the whole group for a number, and for whatever stands in an array of texts or times. zarr-python and GDAL take either for
//! an attribute like others.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Attributes, DType};
use crate::format::json::{INFINITY, NAN, NEGATIVE_INFINITY, token};
use crate::format::{base64, fill};
use serde_json::{Value, json};

const FILL_VALUE: &str = "_FillValue";

/// What CF has for the same, with as many values as there are. xarray takes it as it stands, in either version.
const MISSING_VALUE: &str = "missing_value";

/// Spells the attribute of an array of Zarr v2 (or N5 or WKW) as Zarr v3 has it. What xarray has no words for there becomes
/// `missing_value`, by which it masks the same elements, unless the array has another one of that name.
pub fn to_zarr3(attributes: &mut Attributes, dtype: &DType) {
    let Some(value) = attributes.get(FILL_VALUE) else { return };
    // A list of one is how netcdf-c 4.8.0 writes a number.
    let only = match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => value,
    };
    let spelled = |number: f64| Value::String(base64::encode(&number.to_le_bytes()));
    let found = match dtype {
        DType::Float(_) => number(only).map(spelled),
        DType::Complex(_) => number(only).map(|number| json!([spelled(number), spelled(0.0)])),
        // Of a fraction xarray would take the whole part.
        DType::Int(_) | DType::UInt(_) => (only.is_number() && fill::integer(only).is_some()).then(|| only.clone()),
        DType::Bool => (only.is_number() || only.is_boolean()).then(|| only.clone()),
        _ => None,
    };
    if let Some(found) = found {
        attributes.insert(FILL_VALUE.to_owned(), found);
    } else if attributes.get(MISSING_VALUE).is_none_or(|missing| missing == value) {
        let value = value.clone();
        attributes.shift_remove(FILL_VALUE);
        attributes.insert(MISSING_VALUE.to_owned(), value);
    }
}

/// A number, also one that is not finite as the word that zarr-python puts for it where JSON has none.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_str().parse().ok(),
        Value::String(word) if [NAN, INFINITY, NEGATIVE_INFINITY].contains(&word.as_str()) => word.parse().ok(),
        _ => None,
    }
}

/// Spells the attribute of an array of Zarr v3 as Zarr v2 has it. What is no Base64 of eight bytes stays.
pub fn to_zarr2(attributes: &mut Attributes, dtype: &DType) {
    let Some(value) = attributes.get_mut(FILL_VALUE).filter(|_| matches!(dtype, DType::Float(_))) else { return };
    let bytes = value.as_str().and_then(base64::decode);
    let Some(number) = bytes.and_then(|b| <[u8; 8]>::try_from(b).ok()).map(f64::from_le_bytes) else { return };
    *value = match number {
        n if n.is_nan() => token(NAN),
        f64::INFINITY => token(INFINITY),
        f64::NEG_INFINITY => token(NEGATIVE_INFINITY),
        n => json!(n),
    };
}
