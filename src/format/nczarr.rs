//! NCZarr, netCDF's dialect of Zarr v2: its marks in four generations, all shown in the spelling of today.
//!
//! | netcdf-c | where the marks are |
//! | --- | --- |
//! | 4.8.0 | objects beside the documents: `.nczarr`, `.nczgroup`, `.nczvar`, `.nczattr`; types are numbers |
//! | 4.8.1, 4.9.0 | `_NCZARR_*` inside `.zgroup`, `.zarray` and `.zattrs` |
//! | 4.9.1, 4.9.2 | the same in lower case |
//! | 4.9.3 and later | attributes: `_nczarr_group`, `_nczarr_array`, `_nczarr_attr` |
//!
//! Up to 4.9.0 characters are declared `<U1` and stored in one byte each. Names of axes are taken from the references to
//! dimensions where `_ARRAY_DIMENSIONS` is missing, in every group. A node without a mark gets none.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::Attributes;
use crate::error::{Error, Result};
use crate::format::{Documents, inside, json, object};
use serde_json::{Map, Value, json};

/// The mark of a dataset's root, in the spelling of today.
pub const SUPERBLOCK: &str = "_nczarr_superblock";
/// Of a group.
pub const GROUP: &str = "_nczarr_group";
/// Of an array.
pub const ARRAY: &str = "_nczarr_array";
/// The types of attributes.
pub const ATTR: &str = "_nczarr_attr";

/// netCDF's type of strings, with the longest length that netcdf-c assumes.
pub const STRING: &str = "|S128";

/// netCDF's types by number, as attributes are typed today.
const TYPES: &[(&str, &str)] = &[
    ("1", "<i1"),
    ("2", ">S1"),
    ("3", "<i2"),
    ("4", "<i4"),
    ("5", "<f4"),
    ("6", "<f8"),
    ("7", "<u1"),
    ("8", "<u2"),
    ("9", "<u4"),
    ("10", "<i8"),
    ("11", "<u8"),
    ("12", STRING),
];

/// What the marks of an array say.
#[derive(Debug, Clone, Default)]
pub struct ArrayMarks {
    // The array's own mark, by where it was found, or why it cannot be read.
    mark: Option<Result<Map<String, Value>>>,
    narrow_chars: bool,
    any: bool,
}

impl ArrayMarks {
    /// Whether characters are declared `<U1` and stored in one byte each.
    pub fn narrow_chars(&self) -> bool {
        self.narrow_chars
    }

    /// Whether netcdf-c wrote the array, and not in its mode for pure Zarr.
    pub fn is_nczarr(&self) -> bool {
        self.any
    }
}

/// Looks for marks of an array: in side objects, among the `members` of `.zarray`, and among its attributes.
pub fn array_marks(documents: &Documents, members: &Map<String, Value>, attributes: Option<&Attributes>) -> ArrayMarks {
    let has = |name: &str| attributes.is_some_and(|a| a.contains_key(name));
    let side = [".nczvar", ".nczarray", ".nczattr", ".nczattrs"].iter().any(|name| documents.contains_key(name));
    let upper = members.contains_key(&upper(ARRAY)) || has(&upper(ARRAY)) || has(&upper(ATTR));
    let lower = members.contains_key(ARRAY) || has(ARRAY) || has(ATTR);
    let none = Map::new();
    let mark = find(documents, &[".nczvar", ".nczarray"], members, attributes.unwrap_or(&none), ARRAY);
    ArrayMarks { mark, narrow_chars: side || upper, any: side || upper || lower }
}

/// The attributes of an array of `rank` axes with its marks in the spelling of today.
///
/// # Errors
/// For marks that cannot be read.
pub fn array_attributes(
    documents: &Documents,
    marks: &ArrayMarks,
    mut attributes: Attributes,
    rank: usize,
) -> Result<Attributes> {
    if !marks.any {
        return Ok(attributes);
    }
    let types = types(documents, &mut attributes)?;
    single_values(documents, &mut attributes);
    remove(&mut attributes, ARRAY);
    let mut shown = Vec::new();
    if let Some(mark) = marks.mark.clone().transpose()? {
        let mark = array_mark(mark).map_err(|e| inside(ARRAY, e))?;
        if let Some(names) = axis_names(&mark, rank)
            && !attributes.contains_key("_ARRAY_DIMENSIONS")
        {
            attributes.insert("_ARRAY_DIMENSIONS".to_owned(), json!(names));
        }
        shown.push((ARRAY, Value::Object(mark)));
    }
    finish(&mut attributes, types, shown);
    Ok(attributes)
}

/// The attributes of a group with its marks in the spelling of today; `members` are those of `.zgroup`.
///
/// # Errors
/// For marks that cannot be read.
pub fn group_attributes(documents: &Documents, members: &Map<String, Value>, mut attributes: Attributes) -> Result<Attributes> {
    let superblock = find(documents, &[".nczarr"], members, &attributes, SUPERBLOCK).transpose()?;
    let mark = find(documents, &[".nczgroup"], members, &attributes, GROUP).transpose()?;
    let typed = [".nczattr", ".nczattrs"].iter().any(|name| documents.contains_key(name))
        || attributes.contains_key(ATTR)
        || attributes.contains_key(&upper(ATTR));
    if superblock.is_none() && mark.is_none() && !typed {
        return Ok(attributes);
    }
    let types = types(documents, &mut attributes)?;
    single_values(documents, &mut attributes);
    remove(&mut attributes, SUPERBLOCK);
    remove(&mut attributes, GROUP);
    let mut shown = Vec::new();
    if let Some(mark) = mark {
        shown.push((GROUP, Value::Object(group_mark(mark).map_err(|e| inside(GROUP, e))?)));
    }
    if superblock.is_some() {
        shown.push((SUPERBLOCK, json!({"version": "2.0.0"})));
    }
    finish(&mut attributes, types, shown);
    Ok(attributes)
}

/// Writes single values as today: netcdf-c 4.8.0 made a list of every number.
fn single_values(documents: &Documents, attributes: &mut Attributes) {
    if [".nczattr", ".nczattrs"].iter().any(|name| documents.contains_key(name)) {
        for value in attributes.values_mut() {
            if let Value::Array(items) = value
                && let [only] = items.as_slice()
                && only.is_number()
            {
                *value = only.clone();
            }
        }
    }
}

/// Appends the marks, and the types of all attributes.
pub fn finish(attributes: &mut Attributes, mut types: Map<String, Value>, marks: Vec<(&str, Value)>) {
    for (name, mark) in marks {
        attributes.insert(name.to_owned(), mark);
        types.insert(name.to_owned(), json!("|J0"));
    }
    types.insert(ATTR.to_owned(), json!("|J0"));
    let typed = Map::from_iter([("types".to_owned(), Value::Object(types))]);
    attributes.insert(ATTR.to_owned(), Value::Object(typed));
}

/// The mark `name`, wherever it is: a side object, a member of the document, an attribute; in either case of letters.
fn find(
    documents: &Documents,
    side_objects: &[&str],
    members: &Map<String, Value>,
    attributes: &Attributes,
    name: &str,
) -> Option<Result<Map<String, Value>>> {
    for side in side_objects {
        match object(documents, side) {
            Ok(None) => {}
            Ok(Some(mark)) => return Some(Ok(mark)),
            Err(e) => return Some(Err(e)),
        }
    }
    let upper = upper(name);
    let mark =
        attributes.get(name).or_else(|| members.get(name)).or_else(|| members.get(&upper)).or_else(|| attributes.get(&upper))?;
    Some(match mark {
        Value::Object(mark) => Ok(mark.clone()),
        other => Err(Error::corrupt(format!("{name}: {} where an object is expected", json::cite(other)))),
    })
}

/// Takes the types of attributes out of wherever they are, in the spelling of today.
fn types(documents: &Documents, attributes: &mut Attributes) -> Result<Map<String, Value>> {
    let mark = find(documents, &[".nczattr", ".nczattrs"], &Map::new(), attributes, ATTR).transpose()?.unwrap_or_default();
    remove(attributes, ATTR);
    let listed = match mark.get("types") {
        None => return Ok(Map::new()),
        Some(Value::Object(listed)) => listed,
        Some(other) => return Err(Error::corrupt(format!("{ATTR}: types: {} where an object is expected", json::cite(other)))),
    };
    let kept = listed.iter().filter(|(name, _)| !name.starts_with("_NCZARR_"));
    Ok(kept.map(|(name, spelled)| (name.clone(), attribute_type(spelled))).collect())
}

/// The type of an attribute in the spelling of today.
fn attribute_type(spelled: &Value) -> Value {
    let text = match spelled {
        Value::String(text) => text.as_str(),
        Value::Number(n) => n.as_str(),
        _ => return spelled.clone(),
    };
    if matches!(text, "<U1" | ">U1") {
        return json!(">S1");
    }
    TYPES.iter().find(|(code, _)| *code == text).map_or_else(|| spelled.clone(), |(_, name)| json!(name))
}

/// An array's mark in the spelling of today.
pub(super) fn array_mark(mut mark: Map<String, Value>) -> Result<Map<String, Value>> {
    let references = taken(&mut mark, &["dimension_references", "dimrefs"]).unwrap_or_else(|| json!([]));
    if !references.as_array().is_some_and(|r| r.iter().all(Value::is_string)) {
        return Err(Error::corrupt(format!("dimension_references: {} is no list of names", json::cite(&references))));
    }
    let storage = taken(&mut mark, &["storage"]).unwrap_or_else(|| json!("chunked"));
    let scalar = taken(&mut mark, &["scalar"]).is_some_and(|s| s != 0 && s != false);
    let mut shown = Map::new();
    shown.insert("dimension_references".to_owned(), references);
    if scalar || storage == "scalar" {
        shown.insert("scalar".to_owned(), json!(1));
    }
    shown.insert("storage".to_owned(), if storage == "scalar" { json!("chunked") } else { storage });
    shown.extend(mark);
    Ok(shown)
}

/// A group's mark in the spelling of today.
pub(super) fn group_mark(mut mark: Map<String, Value>) -> Result<Map<String, Value>> {
    let dimensions = taken(&mut mark, &["dimensions", "dims"]).unwrap_or_else(|| json!({}));
    if !dimensions.is_object() {
        return Err(Error::corrupt(format!("dimensions: {} where an object is expected", json::cite(&dimensions))));
    }
    let mut shown = Map::new();
    shown.insert("dimensions".to_owned(), dimensions);
    for names in [&["arrays", "vars"][..], &["groups"][..]] {
        let list = taken(&mut mark, names).unwrap_or_else(|| json!([]));
        if !list.as_array().is_some_and(|l| l.iter().all(Value::is_string)) {
            return Err(Error::corrupt(format!("{}: {} is no list of names", names.first().unwrap_or(&""), json::cite(&list))));
        }
        shown.insert((*names.first().unwrap_or(&"")).to_owned(), list);
    }
    shown.extend(mark);
    Ok(shown)
}

/// The names of the axes: the last parts of the references to dimensions, or netcdf-c's own word for a scalar.
pub(super) fn axis_names(mark: &Map<String, Value>, rank: usize) -> Option<Vec<String>> {
    let references = mark.get("dimension_references")?.as_array()?;
    if references.is_empty() && mark.contains_key("scalar") {
        return Some(vec!["_scalar_".to_owned(); rank]);
    }
    let last = |r: &Value| r.as_str().and_then(|r| r.rsplit('/').next()).map(str::to_owned);
    let names: Option<Vec<String>> = references.iter().map(last).collect();
    names.filter(|names| names.len() == rank)
}

fn upper(name: &str) -> String {
    name.to_ascii_uppercase()
}

fn remove(attributes: &mut Attributes, name: &str) {
    attributes.shift_remove(name);
    attributes.shift_remove(&upper(name));
}

/// Removes the first of `names` that is there.
fn taken(map: &mut Map<String, Value>, names: &[&str]) -> Option<Value> {
    names.iter().find_map(|name| map.shift_remove(*name))
}
