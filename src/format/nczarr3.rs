//! NCZarr in Zarr v3: marks among the attributes of `zarr.json`, turned into those of Zarr v2.
//!
//! No released netcdf-c writes or reads them. The specification and the drafts of netcdf-c differ, and all their spellings are
//! read: dimensions as a list or by name; `subgroups` or `groups`; `type_alias` or `nczarr_type`; `_nczarr_attrs` or
//! `_nczarr_attr`, with `attribute_types` as a list or by name; `dimensions` or `dimension_references`. A node without a mark
//! is left as it is.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Array, Attributes, DType};
use crate::error::{Error, Result};
use crate::format::nczarr::{ARRAY, ATTR, GROUP, SUPERBLOCK, array_mark, axis_names, finish, group_mark};
use crate::format::{base64, inside, json};
use serde_json::{Map, Value, json};

/// The types of attributes.
pub const ATTRS: &str = "_nczarr_attrs";

/// The types of attributes by their names in Zarr v3 and v2.
const TYPES: &[(&str, &str)] = &[
    ("int8", "<i1"),
    ("char", ">S1"),
    ("int16", "<i2"),
    ("int32", "<i4"),
    ("float32", "<f4"),
    ("float64", "<f8"),
    ("uint8", "<u1"),
    ("uint16", "<u2"),
    ("uint32", "<u4"),
    ("int64", "<i8"),
    ("uint64", "<u8"),
    ("string", "|S128"),
    ("json", "|J0"),
];

/// What a type of Zarr v3 stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alias {
    /// netCDF's characters, as `uint8`.
    Char,
    /// netCDF's strings, as raw bytes.
    Text,
}

/// What the marks of an array say.
#[derive(Debug, Clone, Default)]
pub struct ArrayMarks {
    mark: Option<Result<Map<String, Value>>>,
    any: bool,
}

impl ArrayMarks {
    /// Whether netcdf-c wrote the array, and not in its mode for pure Zarr.
    pub fn is_nczarr(&self) -> bool {
        self.any
    }

    /// What the array's type stands for.
    pub fn alias(&self) -> Option<Alias> {
        let mark = self.mark.as_ref()?.as_ref().ok()?;
        match ["type_alias", "nczarr_type"].iter().find_map(|name| mark.get(*name))?.as_str()? {
            "char" => Some(Alias::Char),
            "string" => Some(Alias::Text),
            _ => None,
        }
    }

    /// Gives an array the type that its own stands for. Bytes stay what they are.
    pub fn apply(&self, array: &mut Array) {
        let dtype = match (self.alias(), &array.dtype) {
            (Some(Alias::Char), DType::UInt(1)) => DType::Bytes { length: 1, char: true },
            (Some(Alias::Text), DType::Void(length)) => DType::Bytes { length: *length, char: false },
            _ => return,
        };
        if !array.kept.is_empty() {
            return;
        }
        let text = array.fill.bytes.as_deref().map(|bytes| {
            let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last.saturating_add(1));
            let text = bytes.get(..end).unwrap_or(bytes);
            match dtype {
                // A character is spelled as it is, all else as Zarr v2 spells bytes.
                DType::Bytes { char: true, .. } if text.is_ascii() => String::from_utf8_lossy(text).into_owned(),
                _ => base64::encode(text),
            }
        });
        array.fill.zarr2 = text.map_or(Value::Null, Value::String);
        array.dtype = dtype;
    }
}

/// Looks for marks among the attributes of an array.
pub fn array_marks(attributes: &Attributes) -> ArrayMarks {
    let mark = attributes.get(ARRAY).map(|mark| object(ARRAY, mark));
    ArrayMarks { any: mark.is_some() || typed(attributes), mark }
}

/// The attributes of an array of `rank` axes with its marks in the spelling of Zarr v2, and `_ARRAY_DIMENSIONS` where neither
/// that nor the document's own `names` tell the names of the axes.
///
/// # Errors
/// For marks that cannot be read.
pub fn array_attributes(marks: &ArrayMarks, mut attributes: Attributes, rank: usize, names: bool) -> Result<Attributes> {
    if !marks.any {
        return Ok(attributes);
    }
    let types = types(&mut attributes)?;
    attributes.shift_remove(ARRAY);
    let mut shown = Vec::new();
    if let Some(mut mark) = marks.mark.clone().transpose()? {
        for draft in ["type_alias", "nczarr_type"] {
            mark.shift_remove(draft);
        }
        // Some drafts call the references what a group calls its dimensions.
        if !mark.contains_key("dimension_references")
            && let Some(references) = mark.shift_remove("dimensions")
        {
            mark.insert("dimension_references".to_owned(), references);
        }
        let scalar = rank == 0;
        if scalar {
            mark.insert("scalar".to_owned(), json!(1));
        }
        let mark = array_mark(mark).map_err(|e| inside(ARRAY, e))?;
        if let Some(names) = axis_names(&mark, if scalar { 1 } else { rank }).filter(|_| !names || scalar)
            && !attributes.contains_key("_ARRAY_DIMENSIONS")
        {
            attributes.insert("_ARRAY_DIMENSIONS".to_owned(), json!(names));
        }
        shown.push((ARRAY, Value::Object(mark)));
    }
    finish(&mut attributes, types, shown);
    Ok(attributes)
}

/// The attributes of a group with its marks in the spelling of Zarr v2.
///
/// # Errors
/// For marks that cannot be read.
pub fn group_attributes(mut attributes: Attributes) -> Result<Attributes> {
    let superblock = attributes.shift_remove(SUPERBLOCK);
    let mark = attributes.shift_remove(GROUP);
    if superblock.is_none() && mark.is_none() && !typed(&attributes) {
        return Ok(attributes);
    }
    let types = types(&mut attributes)?;
    let mut shown = Vec::new();
    if let Some(mark) = mark {
        let mut mark = object(GROUP, &mark)?;
        if let Some(Value::Array(listed)) = mark.get("dimensions") {
            let by_name = dimensions(listed).map_err(|e| inside(GROUP, e))?;
            mark.insert("dimensions".to_owned(), Value::Object(by_name));
        }
        if let Some(groups) = mark.shift_remove("subgroups") {
            mark.insert("groups".to_owned(), groups);
        }
        let mut mark = group_mark(mark).map_err(|e| inside(GROUP, e))?;
        if let Some(Value::Object(dimensions)) = mark.get_mut("dimensions") {
            dimensions.values_mut().for_each(plain);
        }
        shown.push((GROUP, Value::Object(mark)));
    }
    if superblock.is_some() {
        shown.push((SUPERBLOCK, json!({"version": "2.0.0"})));
    }
    finish(&mut attributes, types, shown);
    Ok(attributes)
}

/// The type of an attribute as Zarr v3 spells it, from that of Zarr v2.
pub fn attribute_type(zarr2: &Value) -> Value {
    let kind = |text: &str| text.trim_start_matches(['<', '>', '|']).to_owned();
    let Some(text) = zarr2.as_str() else { return zarr2.clone() };
    let same = |spelled: &str| spelled == text || kind(spelled) == kind(text) && !kind(text).starts_with('S');
    TYPES.iter().find(|(_, spelled)| same(spelled)).map_or_else(|| zarr2.clone(), |(name, _)| json!(name))
}

fn typed(attributes: &Attributes) -> bool {
    attributes.contains_key(ATTRS) || attributes.contains_key(ATTR)
}

fn object(name: &str, mark: &Value) -> Result<Map<String, Value>> {
    match mark {
        Value::Object(mark) => Ok(mark.clone()),
        other => Err(Error::corrupt(format!("{name}: {} where an object is expected", json::cite(other)))),
    }
}

/// Dimensions by name, from a list.
fn dimensions(listed: &[Value]) -> Result<Map<String, Value>> {
    let one = |dimension: &Value| {
        let name = dimension.get("name").and_then(Value::as_str)?;
        let mut rest = dimension.as_object()?.clone();
        rest.shift_remove("name");
        rest.contains_key("size").then(|| (name.to_owned(), Value::Object(rest)))
    };
    let named = |dimension| {
        one(dimension).ok_or_else(|| Error::corrupt(format!("dimensions: {} has no name and size", json::cite(dimension))))
    };
    listed.iter().map(named).collect()
}

/// Writes a dimension that is not unlimited as its length alone, as Zarr v2 has it.
fn plain(dimension: &mut Value) {
    let unlimited = dimension.get("unlimited").is_some_and(|u| *u != json!(0) && *u != json!(false));
    if !unlimited && let Some(size) = dimension.get("size") {
        *dimension = size.clone();
    }
}

/// Takes the types of attributes, in the spelling of Zarr v2.
fn types(attributes: &mut Attributes) -> Result<Map<String, Value>> {
    let found: Vec<Value> = [ATTRS, ATTR].iter().filter_map(|name| attributes.shift_remove(*name)).collect();
    let mut types = Map::new();
    for mark in &found {
        match mark.get("attribute_types").or_else(|| mark.get("types")).unwrap_or(mark) {
            Value::Object(listed) => types.extend(listed.iter().map(|(name, spelled)| (name.clone(), zarr2_type(spelled)))),
            Value::Array(listed) => {
                for item in listed {
                    let name = item.get("name").and_then(Value::as_str);
                    let spelled = item.get("configuration").and_then(|c| c.get("type"));
                    let (Some(name), Some(spelled)) = (name, spelled) else {
                        return Err(Error::corrupt(format!("{ATTRS}: {} is no type of an attribute", json::cite(item))));
                    };
                    types.insert(name.to_owned(), zarr2_type(spelled));
                }
            }
            other => return Err(Error::corrupt(format!("{ATTRS}: {} is no list of types", json::cite(other)))),
        }
    }
    for mark in [ATTRS, ATTR, ARRAY, GROUP, SUPERBLOCK] {
        types.shift_remove(mark);
    }
    Ok(types)
}

/// The type of an attribute as Zarr v2 spells it; what netcdf-c calls JSON there is typed as text.
fn zarr2_type(spelled: &Value) -> Value {
    match spelled.as_str() {
        Some("json") => json!(">S1"),
        Some(text) => match text.strip_prefix('r').and_then(|bits| bits.parse::<u64>().ok()) {
            Some(bits) => json!(format!("|S{}", bits.div_euclid(8).max(1))),
            None => TYPES.iter().find(|(name, _)| *name == text).map_or_else(|| spelled.clone(), |(_, name)| json!(name)),
        },
        None => spelled.clone(),
    }
}
