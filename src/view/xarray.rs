//! xarray's spelling of the attributes `_FillValue` and `missing_value`, which is not the same in both versions of Zarr.
//!
//! Of floating-point arrays `_FillValue` is a number in Zarr v2. In Zarr v3 xarray writes and expects the Base64 of its eight bytes as
//! a float64, little-endian, and refuses the whole group for a number, and for whatever stands in an array of texts or times.
//! zarr-python and GDAL take either for an attribute like others.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Attributes, DType};
use crate::format::json::{INFINITY, NAN, NEGATIVE_INFINITY, token};
use crate::format::{base64, dtype, fill, nczarr};
use serde_json::{Value, json};

const FILL_VALUE: &str = "_FillValue";

/// What CF has for the same, with as many values as there are. xarray takes it as it stands, in either version.
const MISSING_VALUE: &str = "missing_value";

/// Spells the attribute of an array of Zarr v2 (or N5 or WKW) as Zarr v3 has it, so that xarray masks the same elements.
///
/// What xarray has no words for there becomes `missing_value`, beside what the array has of that name. Where that cannot be said
/// either, the attribute stays, for which xarray refuses the group. A bare `NaN` masks nothing, but in Zarr v3 it is a text, which
/// masks texts and makes xarray round integers: it is left out.
pub fn to_zarr3(attributes: &mut Attributes, dtype: &DType) {
    let missing = attributes.get(MISSING_VALUE).map(worded);
    let value = attributes.get(FILL_VALUE).map(worded);
    if matches!(dtype, DType::Float(_) | DType::Complex(_)) {
        let all: Vec<Value> =
            [&missing, &value].into_iter().flatten().filter_map(|value| possible(value, dtype)).flatten().collect();
        if all.iter().any(is_infinite) {
            put_infinite(attributes, all, dtype);
            return;
        }
    }
    if let Some(value) = &missing {
        put_missing(attributes, shown(value, dtype));
    }
    let Some(value) = value else { return };
    // A list of one is how netcdf-c 4.8.0 writes a number.
    let only = match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => &value,
    };
    if let Some(found) = spelled(only, dtype) {
        attributes.insert(FILL_VALUE.to_owned(), found);
        return;
    }
    let found = match missing.filter(|missing| *missing != value && !masks(missing).is_empty()) {
        Some(missing) => united(&missing, &value, dtype),
        None => Some(shown(&value, dtype)),
    };
    if let Some(found) = found {
        attributes.shift_remove(FILL_VALUE);
        put_missing(attributes, found);
    }
}

/// Puts numbers that are masked, an infinity among them, which `_FillValue` alone has a word for. Of two it becomes a list of all, for
/// which xarray refuses the group.
fn put_infinite(attributes: &mut Attributes, all: Vec<Value>, dtype: &DType) {
    let infinite = |word: &str| all.iter().find(|item| is_bare(item, &[word]));
    let only = infinite(INFINITY).xor(infinite(NEGATIVE_INFINITY)).and_then(|only| spelled(only, dtype));
    if let Some(only) = only {
        attributes.insert(FILL_VALUE.to_owned(), only);
        let rest: Vec<Value> = all.into_iter().filter(|item| !is_infinite(item)).collect();
        put_missing(attributes, (!rest.is_empty()).then_some(Value::Array(rest)));
    } else {
        attributes.insert(FILL_VALUE.to_owned(), Value::Array(all));
    }
}

/// A single value in the words of Zarr v3, where it has any that mask the same.
fn spelled(only: &Value, dtype: &DType) -> Option<Value> {
    let spelled = |number: f64| Value::String(base64::encode(&number.to_le_bytes()));
    match dtype {
        DType::Float(_) => number(only).map(spelled),
        DType::Complex(_) => number(only).map(|number| json!([spelled(number), spelled(0.0)])),
        // Of a fraction xarray would take the whole part, and of any number whether it is 0.
        DType::Int(_) | DType::UInt(_) => (only.is_number() && fill::integer(only).is_some()).then(|| only.clone()),
        DType::Bool => (!only.is_string() && matches!(fill::integer(only), Some(0 | 1))).then(|| only.clone()),
        _ => None,
    }
}

fn put_missing(attributes: &mut Attributes, value: Option<Value>) {
    match value {
        Some(value) => drop(attributes.insert(MISSING_VALUE.to_owned(), value)),
        None => drop(attributes.shift_remove(MISSING_VALUE)),
    }
}

/// A value in which the words for numbers that are not finite are numpy's, where it makes texts of a list: where one stands among
/// them, and no `null`.
fn worded(value: &Value) -> Value {
    fn all(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(all).collect(),
            value if is_bare(value, &[NAN]) => json!("nan"),
            value if is_bare(value, &[INFINITY]) => json!("inf"),
            value if is_bare(value, &[NEGATIVE_INFINITY]) => json!("-inf"),
            value => value.clone(),
        }
    }
    if has(value, &Value::is_string) && !has(value, &Value::is_null) { all(value) } else { value.clone() }
}

/// A value as `missing_value` of Zarr v3, whose documents have words for numbers that are not finite. One word among the numbers of
/// a list makes texts of them all. `None` where nothing is left that masks.
fn shown(value: &Value, dtype: &DType) -> Option<Value> {
    if !has_bare_words(value) {
        return Some(value.clone());
    }
    let finite = possible(value, dtype).map(|items| items.into_iter().filter(|item| !is_infinite(item)).collect::<Vec<_>>());
    match finite {
        // Such a word equals no number, and makes no other type of these.
        Some(kept) if kept.is_empty() => matches!(dtype, DType::Float(_) | DType::Complex(_)).then(|| value.clone()),
        Some(kept) => Some(Value::Array(kept)),
        None => Some(value.clone()),
    }
}

/// What masks as both values do: the first where the second masks nothing. `None` where no list says so.
fn united(missing: &Value, value: &Value, dtype: &DType) -> Option<Option<Value>> {
    let added = possible(value, dtype)?;
    if added.is_empty() {
        return Some(shown(missing, dtype));
    }
    let mut all = possible(missing, dtype)?;
    all.extend(added);
    let texts = all.iter().filter(|item| item.is_string()).count();
    let sayable = (texts == 0 || texts == all.len()) && !all.iter().any(is_infinite);
    sayable.then_some(Some(Value::Array(all)))
}

/// What xarray masks for a value: the items of its lists, of whatever depth, that are numbers or texts.
fn masks(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items.iter().flat_map(masks).collect(),
        Value::Null => Vec::new(),
        value if is_bare(value, &[NAN]) => Vec::new(),
        value => vec![value.clone()],
    }
}

/// What a value masks that can equal an element. `None` where that cannot be told: numpy makes texts of a list that has a text, in
/// its own spelling of numbers. With a `null` it makes objects, each of which is compared as what it is.
fn possible(value: &Value, dtype: &DType) -> Option<Vec<Value>> {
    let mut values = masks(value);
    if has(value, &Value::is_null) {
        match dtype {
            DType::Bytes { .. } | DType::Text(_) => values.retain(Value::is_string),
            DType::Bool | DType::Int(_) | DType::UInt(_) | DType::Float(_) | DType::Complex(_) => {
                values.retain(|v| !v.is_string())
            }
            _ => {}
        }
    }
    let texts = values.iter().filter(|value| value.is_string()).count();
    let mixed = texts != 0 && texts != values.len();
    match dtype {
        DType::Bool | DType::Int(_) | DType::UInt(_) | DType::Float(_) | DType::Complex(_) if texts != 0 => values.clear(),
        DType::Bool => values.retain(|value| matches!(fill::integer(value), Some(0 | 1))),
        DType::Int(_) | DType::UInt(_) => values.retain(|value| fill::integer(value).is_some()),
        _ if mixed => return None,
        DType::Bytes { .. } | DType::Text(_) if texts == 0 => values.clear(),
        _ => {}
    }
    Some(values)
}

fn is_bare(value: &Value, words: &[&str]) -> bool {
    value.as_number().is_some_and(|number| words.contains(&number.as_str()))
}

fn is_infinite(value: &Value) -> bool {
    is_bare(value, &[INFINITY, NEGATIVE_INFINITY])
}

fn has_bare_words(value: &Value) -> bool {
    has(value, &|item| is_bare(item, &[NAN]) || is_infinite(item))
}

/// Whether a value, or an item of its lists, is such.
fn has(value: &Value, such: &dyn Fn(&Value) -> bool) -> bool {
    value.as_array().map_or_else(|| such(value), |items| items.iter().any(|item| has(item, such)))
}

/// A number, also NaN as the word that zarr-python puts for it where JSON has none. The words for infinities xarray takes for texts in
/// Zarr v2, which mask nothing.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_str().parse().ok(),
        Value::String(word) if word == NAN => Some(f64::NAN),
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
    let kind = if fits(value, dtype) { dtype::spell(dtype) } else { json!("<f8") };
    // Marks of NCZarr told the type of the text that it was.
    let types = attributes.get_mut(nczarr::ATTR).and_then(|mark| mark.get_mut("types"));
    if let Some(declared) = types.and_then(|types| types.get_mut(FILL_VALUE)) {
        *declared = kind;
    }
}

/// Has xarray mask what `_FillValue` of an array of Zarr v3 says where documents of Zarr v2 are shown, whose `fill_value` it takes
/// instead: another number becomes `missing_value`, where the array has none. (Of a list netCDF-C takes the first number's type for all
/// of it, and refuses the dataset where another one does not fit.)
pub fn mask_besides(attributes: &mut Attributes, dtype: &DType, fill_value: &Value) {
    if !matches!(dtype, DType::Bool | DType::Int(_) | DType::UInt(_) | DType::Float(_)) {
        return;
    }
    // Without one xarray takes the attribute.
    let Some(value) = attributes.get(FILL_VALUE).filter(|value| value.is_number() && !fill_value.is_null()).cloned() else {
        return;
    };
    let is_same = |other: &Value| match fill::integer(&value).zip(fill::integer(other)) {
        Some((one, other)) => one == other,
        None => number(&value).zip(number(other)).is_some_and(|(one, other)| one == other),
    };
    if is_bare(&value, &[NAN]) || is_same(fill_value) {
        return;
    }
    attributes.entry(MISSING_VALUE).or_insert(value);
}

/// Whether a number is finite in a type of floating-point numbers, if it is. In a narrower type it would be taken for an infinity.
pub fn fits(value: &Value, dtype: &DType) -> bool {
    let number = value.as_number().map(|number| number.as_str());
    let wide = number.and_then(|number| number.parse::<f64>().ok()).is_some_and(f64::is_finite);
    let narrow = number.and_then(|number| number.parse::<f32>().ok()).is_some_and(f32::is_finite);
    *dtype != DType::Float(4) || narrow || !wide
}
