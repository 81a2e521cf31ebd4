//! NCZarr for readers of old: the marks that netcdf-c 4.8.1 to 4.9.0 looks for, beside those of today.
//!
//! Those versions know only members of `.zgroup` and `.zarray` in upper case; newer ones and other readers pass over them. They
//! crash on a data type that they do not know, if a group lists it, and on a scalar, and refuse a dataset for a chunk that is longer
//! than its array; so groups list only what they read, and a scalar refers to a dimension of length 1. Types of attributes are not repeated, for new ones stop the old reader.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Array, Attributes, DType};
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;

/// The dimension that scalars refer to.
pub const SCALAR: &str = "_scalar_";

/// Whether the old readers know the type of an array (numbers only) and its chunks: none is longer than the array.
pub fn is_readable(array: &Array) -> bool {
    let is_number = matches!(array.dtype, DType::Int(_) | DType::UInt(_) | DType::Float(4 | 8));
    let attributes = array.attributes.as_ref().is_ok_and(are_readable);
    array.kept.is_empty()
        && is_number
        && attributes
        && array.shape.iter().zip(&array.chunks).all(|(length, chunk)| chunk <= length)
}

/// Integers that the old readers know, in the order in which they look for the type of one.
const INTEGERS: [RangeInclusive<i64>; 5] = [-0x80..=0x7f, 0..=0xff, -0x8000..=0x7fff, 0..=0xffff, -0x8000_0000..=0x7fff_ffff];

/// Whether the old readers know all attributes: they take the type of a list from its first item, refuse the dataset for one that
/// does not fit it, and know numbers only.
pub fn are_readable(attributes: &Attributes) -> bool {
    let is_within = |range: &RangeInclusive<i64>, item: &Value| item.as_i64().is_some_and(|n| range.contains(&n));
    let whole = |items: &[Value]| {
        let of_first = INTEGERS.iter().find(|range| items.first().is_some_and(|first| is_within(range, first)));
        of_first.is_some_and(|range| items.iter().all(|item| is_within(range, item)))
    };
    let readable = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => match items.as_slice() {
            [] => false,
            items if whole(items) => true,
            [first, ..] => first.is_f64() && items.iter().all(Value::is_number),
        },
        _ => true,
    };
    attributes.iter().all(|(name, value)| name.starts_with("_nczarr_") || name == "_ARRAY_DIMENSIONS" || readable(value))
}

/// Whether an array is a scalar of netCDF, by the mark among its attributes.
pub fn is_scalar(array: &Array) -> bool {
    let mark = array.attributes.as_ref().ok().and_then(|a| a.get("_nczarr_array"));
    mark.is_some_and(|mark| mark.get("scalar").is_some())
}

/// The names that a group's mark lists under `key`, `arrays` or `groups`, each once.
pub fn listed<'a>(attributes: &'a Attributes, key: &str) -> Vec<&'a str> {
    let names = attributes.get("_nczarr_group").and_then(|mark| mark.get(key)).and_then(Value::as_array);
    let names: std::collections::BTreeSet<&str> = names.into_iter().flatten().filter_map(Value::as_str).collect();
    names.into_iter().collect()
}

/// What the marks of a group need to know of what lies below it.
#[derive(Clone, Copy)]
pub struct Survey<'a> {
    /// Whether one of its arrays, by name, [`is_readable`], or one of its groups.
    pub readable: &'a dyn Fn(&str) -> bool,
    /// Whether there is a scalar anywhere in the dataset.
    pub has_scalars: bool,
}

impl Survey<'_> {
    /// Everything is taken to be there and to be readable.
    pub const ALL: Self = Survey { readable: &|_| true, has_scalars: true };
}

/// Members for `.zgroup`, from the marks among the attributes; arrays that are not readable are left out.
pub fn group_members(attributes: &Attributes, survey: Survey<'_>) -> Map<String, Value> {
    let mut members = Map::new();
    let Some(mark) = attributes.get("_nczarr_group").and_then(Value::as_object) else { return members };
    let is_root = attributes.contains_key("_nczarr_superblock");
    let mut dims: Map<String, Value> = Map::new();
    for (name, length) in mark.get("dimensions").and_then(Value::as_object).into_iter().flatten() {
        // An unlimited dimension has a length and a flag. Without elements the old readers allow neither.
        let length = length.get("size").unwrap_or(length);
        if *length != json!(0) {
            dims.insert(name.clone(), length.clone());
        }
    }
    if is_root {
        if survey.has_scalars {
            dims.entry(SCALAR).or_insert_with(|| json!(1));
        }
        members.insert("_NCZARR_SUPERBLOCK".to_owned(), json!({"version": "2.0.0"}));
    }
    let names = |key: &str| mark.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let readable = |key| names(key).into_iter().filter(|name| name.as_str().is_some_and(survey.readable)).collect();
    let mut group = Map::new();
    group.insert("dims".to_owned(), Value::Object(dims));
    group.insert("vars".to_owned(), Value::Array(readable("arrays")));
    group.insert("groups".to_owned(), Value::Array(readable("groups")));
    members.insert("_NCZARR_GROUP".to_owned(), Value::Object(group));
    members
}

/// Members for `.zarray`, from the mark among the attributes.
pub fn array_members(attributes: &Attributes) -> Map<String, Value> {
    let mut members = Map::new();
    let Some(mark) = attributes.get("_nczarr_array").and_then(Value::as_object) else { return members };
    let references = match mark.get("dimension_references") {
        _ if mark.contains_key("scalar") => json!([format!("/{SCALAR}")]),
        Some(references) => references.clone(),
        None => return members,
    };
    let mut array = Map::new();
    array.insert("dimrefs".to_owned(), references);
    array.insert("storage".to_owned(), json!("chunked"));
    members.insert("_NCZARR_ARRAY".to_owned(), Value::Object(array));
    members
}
