//! Fill values in the spellings of Zarr v3: numbers, `"NaN"`, `"0x7fc00000"`, lists of bytes, Base64, one for each field.
//!
//! A value that the type does not hold is an error. The source's own spelling is shown again.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{DType, Field, Fill};
use crate::error::{Error, Result};
use crate::format::zarr3::small;
use crate::format::{base64, fill, json};
use serde_json::Value;

/// A fill value, and how it is shown in Zarr v3.
pub(super) struct Filling {
    /// Its bytes, and its spelling in Zarr v2.
    pub fill: Fill,
    /// The source's own words; `None` where it said `null`.
    pub spelled: Option<Value>,
}

/// Reads `fill_value`. `null`, which some writers leave where the specification wants a value, counts as zero, and for a time as
/// none, as in Zarr v2.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] naming the value when the type does not hold it.
pub(super) fn parse(value: &Value, dtype: &DType) -> Result<Filling> {
    if value.is_null() {
        return Ok(Filling { fill: fill::parse(value, dtype, &[], false)?, spelled: None });
    }
    let fill = match dtype {
        DType::Object => match value {
            Value::String(_) => Some(Fill { bytes: None, zarr2: value.clone() }),
            Value::Array(_) => bytes(value).map(|b| Fill { bytes: None, zarr2: Value::String(base64::encode(&b)) }),
            _ => None,
        },
        DType::Bytes { length, .. } => bytes(value).filter(|b| b.len() <= *length).map(|mut b| {
            let zarr2 = Value::String(base64::encode(&b));
            b.resize(*length, 0);
            Fill { bytes: Some(b), zarr2 }
        }),
        DType::Void(length) => bytes(value).filter(|b| b.len() == *length).map(packed),
        DType::Struct(fields) => structure(value, fields).map(packed),
        DType::BFloat16 => bfloat16(value),
        DType::Small(name) => small::fill(value, name).map(|byte| Fill { bytes: Some(vec![byte]), zarr2: value.clone() }),
        DType::Opaque => Some(Fill { bytes: None, zarr2: value.clone() }),
        _ if !is_plain(value, dtype) => None,
        _ => return Ok(Filling { fill: fill::parse(value, dtype, &[], false)?, spelled: Some(value.clone()) }),
    };
    match fill {
        Some(fill) => Ok(Filling { fill, spelled: Some(value.clone()) }),
        None => {
            let name = json::cite(&crate::format::dtype::spell(dtype));
            Err(Error::corrupt(format!("fill_value: {} is no value of {name}", json::cite(value))))
        }
    }
}

/// Whether the value is of the kind that Zarr v3 gives to the type; Zarr v2 is read with more patience.
fn is_plain(value: &Value, dtype: &DType) -> bool {
    match dtype {
        DType::Bool => value.is_boolean(),
        DType::Int(_) | DType::UInt(_) => value.is_number(),
        DType::Float(_) => value.is_number() || value.is_string(),
        DType::Complex(_) => value.as_array().is_some_and(|parts| parts.len() == 2),
        DType::DateTime(_) | DType::TimeDelta(_) => value.is_number() || value == "NaT",
        DType::Text(_) => value.is_string(),
        _ => false,
    }
}

fn packed(bytes: Vec<u8>) -> Fill {
    let zarr2 = Value::String(base64::encode(&bytes));
    Fill { bytes: Some(bytes), zarr2 }
}

/// Bytes in Base64, or as a list of numbers.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => base64::decode(text),
        Value::Array(list) => list.iter().map(|n| n.as_u64().and_then(|n| u8::try_from(n).ok())).collect(),
        _ => None,
    }
}

/// One element: the Base64 of its little-endian bytes (zarr-python's `structured`), or a value for each field (`struct`).
fn structure(value: &Value, fields: &[Field]) -> Option<Vec<u8>> {
    let size = fields.iter().try_fold(0usize, |sum, field| sum.checked_add(field.size()?))?;
    match value {
        Value::String(text) => base64::decode(text).filter(|bytes| bytes.len() == size),
        Value::Object(values) => {
            if values.len() != fields.len() {
                return None;
            }
            let mut element = Vec::new();
            for field in fields {
                element.extend(parse(values.get(&field.name)?, &field.dtype).ok()?.fill.bytes?);
            }
            (element.len() == size).then_some(element)
        }
        _ => None,
    }
}

/// The nearest value, or its bits in hexadecimal.
fn bfloat16(value: &Value) -> Option<Fill> {
    let (bytes, zarr2) = match value.as_str().and_then(|text| text.strip_prefix("0x")) {
        Some(digits) => {
            let bits = u16::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 4)?;
            (bits.to_le_bytes().to_vec(), value.clone())
        }
        None => fill::bfloat16(value)?,
    };
    Some(Fill { bytes: Some(bytes), zarr2 })
}
