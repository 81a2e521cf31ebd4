//! NCZarr's marks for a dataset that has none, so that netcdf-c shows it with named dimensions.
//!
//! By the rules of the NCZarr specification for pure Zarr. Each group defines the dimensions of its own arrays. A name that is
//! given to axes of different lengths in one group names none of them: those, like axes without a name, refer to an anonymous
//! dimension of their length. What netcdf-c cannot hold is not listed, because it then refuses the whole dataset.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Array, Attributes, DType, Format, Order};
use crate::format::json::{INFINITY, NAN, NEGATIVE_INFINITY, token};
use crate::format::{dtype, fill, nczarr as marks, nczarr3};
use crate::view::{Flavour, xarray};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// How netcdf-c calls the dimension of so many elements that has no name.
const ANONYMOUS: &str = "_Anonymous_Dim_";

const FILL_VALUE: &str = "_FillValue";

/// Longest name of netCDF, in bytes.
const NAME: usize = 256;

/// What a group holds, as far as its marks, and those of its arrays, need to know.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// The group's name within its dataset: empty for the root, or `/g1/g2`.
    path: String,
    // Whether names of axes are taken from `_ARRAY_DIMENSIONS`.
    xarray: bool,
    // The lengths that each name of an axis is given for.
    names: BTreeMap<String, BTreeSet<u64>>,
    // Lengths of axes that have no name.
    anonymous: BTreeSet<u64>,
    // Whether netcdf-c of old reads the array, by name.
    arrays: BTreeMap<String, bool>,
    // Whether netcdf-c of old reads the group, by name.
    groups: BTreeMap<String, bool>,
    has_scalars: bool,
}

impl Inventory {
    /// An empty group, with its name within its dataset: empty for the root, or `/g1/g2`. `xarray` says whether names of axes
    /// are taken from the `_ARRAY_DIMENSIONS` of Zarr v2.
    pub fn new(path: String, xarray: bool) -> Self {
        Self { path, xarray, ..Self::default() }
    }

    /// Adds an array of the group.
    ///
    /// # Errors
    /// Why netCDF cannot hold it; then it is not added.
    pub fn add_array(&mut self, name: &str, array: &Array) -> Result<(), &'static str> {
        fits(name, array)?;
        for axis in axes(array, self.xarray) {
            match axis {
                (Some(name), length) => drop(self.names.entry(name.to_owned()).or_default().insert(length)),
                (None, length) => drop(self.anonymous.insert(length)),
            }
        }
        self.has_scalars |= array.shape.is_empty();
        self.arrays.insert(name.to_owned(), super::nczarr::is_readable(array));
        Ok(())
    }

    /// Adds a group below the group.
    ///
    /// # Errors
    /// Why netCDF cannot hold it; then it is not added.
    pub fn add_group(&mut self, name: &str, attributes: &Attributes) -> Result<(), &'static str> {
        check_name(name)?;
        self.groups.insert(name.to_owned(), super::nczarr::are_readable(attributes));
        Ok(())
    }

    /// Names of the groups below it.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }

    /// Whether an array or group is listed, and netcdf-c of old reads it.
    pub fn readable(&self, name: &str) -> bool {
        self.arrays.get(name).or_else(|| self.groups.get(name)) == Some(&true)
    }

    /// Whether one of its own arrays has no axes.
    pub fn has_scalars(&self) -> bool {
        self.has_scalars
    }

    /// The group's attributes with its marks.
    pub fn group_attributes(&self, attributes: &Attributes, flavour: Flavour) -> Attributes {
        let named = self.names.iter().filter_map(|(name, lengths)| Some((name.clone(), only(lengths)?)));
        let unnamed = self.names.values().filter(|lengths| lengths.len() > 1).flatten().chain(&self.anonymous);
        let mut dimensions: Vec<(String, u64)> = named.collect();
        dimensions.extend(unnamed.collect::<BTreeSet<_>>().into_iter().map(|&length| (anonymous(length), length)));
        let list = |names: Vec<&String>| Value::Array(names.into_iter().map(|name| json!(name)).collect());
        let (arrays, groups) = (list(self.arrays.keys().collect()), list(self.groups.keys().collect()));
        let mut mark = Map::new();
        let superblock = self.path.is_empty().then(|| (marks::SUPERBLOCK, json!({"version": "2.0.0"})));
        match flavour {
            Flavour::Zarr2 => {
                mark.insert("dimensions".to_owned(), Value::Object(dimensions.into_iter().map(|(n, l)| (n, json!(l))).collect()));
                mark.insert("arrays".to_owned(), arrays);
                mark.insert("groups".to_owned(), groups);
            }
            Flavour::Zarr3 => {
                let one = |(name, length)| json!({"name": name, "size": length, "unlimited": 0});
                mark.insert("dimensions".to_owned(), Value::Array(dimensions.into_iter().map(one).collect()));
                mark.insert("arrays".to_owned(), arrays);
                mark.insert("subgroups".to_owned(), groups);
            }
        }
        let shown = [(marks::GROUP, Value::Object(mark))].into_iter().chain(superblock);
        typed(attributes, shown.collect(), flavour, None)
    }

    /// The attributes of one of its arrays with the array's marks; `None` where the array is not listed.
    pub fn array_attributes(&self, name: &str, array: &Array, attributes: &Attributes, flavour: Flavour) -> Option<Attributes> {
        if !self.arrays.contains_key(name) {
            return None;
        }
        let reference = |(name, length): (Option<&str>, u64)| {
            let agreed = name.filter(|name| self.names.get(*name).and_then(only) == Some(length));
            format!("{}/{}", self.path, agreed.map_or_else(|| anonymous(length), str::to_owned))
        };
        let references: Vec<String> = axes(array, self.xarray).map(reference).collect();
        let mut attributes = attributes.clone();
        let mut mark = Map::new();
        mark.insert("dimension_references".to_owned(), json!(references));
        match flavour {
            Flavour::Zarr2 => {
                if array.format == Format::Zarr3 {
                    xarray::to_zarr2(&mut attributes, &array.dtype);
                }
                if array.shape.is_empty() {
                    mark.insert("scalar".to_owned(), json!(1));
                    // It is shown with one axis.
                    attributes.entry("_ARRAY_DIMENSIONS").and_modify(|names| *names = json!(["_scalar_"]));
                }
                mark.insert("storage".to_owned(), json!("chunked"));
            }
            // Types are told of what is shown, by its spelling there.
            Flavour::Zarr3 => super::zarr3::respell(&mut attributes, array),
        }
        Some(typed(&attributes, vec![(marks::ARRAY, Value::Object(mark))], flavour, Some(&array.dtype)))
    }
}

fn only(lengths: &BTreeSet<u64>) -> Option<u64> {
    lengths.first().copied().filter(|_| lengths.len() == 1)
}

fn anonymous(length: u64) -> String {
    format!("{ANONYMOUS}{length}")
}

/// The axes of an array: a name that netCDF allows, where there is one, and the length.
fn axes(array: &Array, xarray: bool) -> impl Iterator<Item = (Option<&str>, u64)> {
    let names = array.dimension_names.as_deref().filter(|_| xarray || array.format != Format::Zarr2).unwrap_or_default();
    let usable = |name: &&str| check_name(name).is_ok() && !name.starts_with(ANONYMOUS);
    array.shape.iter().enumerate().map(move |(i, &length)| (names.get(i).and_then(Option::as_deref).filter(usable), length))
}

/// Whether netCDF can hold an array, or why not.
fn fits(name: &str, array: &Array) -> Result<(), &'static str> {
    check_name(name)?;
    if !array.kept.is_empty() {
        return Err("a codec stays");
    }
    if array.order == Order::F && array.shape.len() > 1 {
        return Err("netcdf-c takes order F for order C");
    }
    match &array.dtype {
        DType::Int(_) | DType::UInt(_) | DType::Float(4 | 8) | DType::Bytes { char: true, .. } => {}
        DType::Bytes { length: 0, .. } => return Err("text without length"),
        // What netcdf-c makes of the coded fill value of text is the code.
        DType::Bytes { .. } if !(array.fill.zarr2.is_null() || array.fill.zarr2 == "") => {
            return Err("text with a fill value");
        }
        DType::Bytes { .. } => {}
        _ => return Err("netCDF has no such data type"),
    }
    // With marks of its own it belongs to another dataset.
    let attributes = array.attributes.as_ref().map_err(|_| "its attributes cannot be read")?;
    if attributes.contains_key(marks::ARRAY) { Err("it has marks of NCZarr already") } else { Ok(()) }
}

/// Whether netCDF allows a name, or why not: it begins with a letter, a digit or `_`, has no control characters, does not end
/// with a space, and is normalised (what combines with the character before it may not be).
fn check_name(name: &str) -> Result<(), &'static str> {
    let first = |c: char| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii();
    let other = |c: char| !c.is_control() && c != '/' && !('\u{300}'..='\u{36f}').contains(&c);
    match name.starts_with(first) && name.chars().all(other) && !name.ends_with(' ') && name.len() <= NAME {
        true => Ok(()),
        false => Err("netCDF does not allow the name"),
    }
}

/// Attributes with marks, and the types of all of them.
fn typed(attributes: &Attributes, shown: Vec<(&str, Value)>, flavour: Flavour, dtype: Option<&DType>) -> Attributes {
    let mut result = attributes.clone();
    let filling = dtype.and_then(|dtype| Some((fill_value(dtype, attributes.get(FILL_VALUE)?)?, dtype)));
    let types = attributes.iter().map(|(name, value)| {
        let declared = filling.as_ref().filter(|_| name == FILL_VALUE).map(|(_, dtype)| match dtype {
            DType::Bytes { char: false, .. } => json!(marks::STRING),
            dtype => dtype::spell(dtype),
        });
        (name.clone(), declared.unwrap_or_else(|| json!(attribute_type(value))))
    });
    if let Some((value, _)) = &filling {
        result.insert(FILL_VALUE.to_owned(), value.clone());
    }
    match flavour {
        Flavour::Zarr2 => marks::finish(&mut result, types.collect(), shown),
        Flavour::Zarr3 => {
            let mut listed: Vec<(String, Value)> =
                types.map(|(name, spelled)| (name, nczarr3::attribute_type(&spelled))).collect();
            for (name, mark) in shown {
                result.insert(name.to_owned(), mark);
                listed.push((name.to_owned(), json!("json")));
            }
            listed.push((nczarr3::ATTRS.to_owned(), json!("json")));
            let one = |(name, spelled)| json!({"name": name, "configuration": {"type": spelled}});
            let list = listed.into_iter().map(one).collect();
            result.insert(
                nczarr3::ATTRS.to_owned(),
                Value::Object(Map::from_iter([("attribute_types".to_owned(), Value::Array(list))])),
            );
        }
    }
    result
}

/// The type of an attribute: numbers by the narrowest type that holds them all; all else is text, as netcdf-c itself types JSON.
///
/// netcdf-c and zarr-python write words for numbers that are not finite, which among others can be nothing else.
fn attribute_type(value: &Value) -> &'static str {
    let one = std::slice::from_ref(value);
    let items = value.as_array().map_or(one, Vec::as_slice);
    let all = |check: &dyn Fn(&Value) -> bool| !items.is_empty() && items.iter().all(check);
    let is_word = |v: &Value| v.as_str().is_some_and(|word| [NAN, INFINITY, NEGATIVE_INFINITY].contains(&word));
    if all(&Value::is_boolean) {
        "<u1"
    } else if !items.iter().any(Value::is_number) || !all(&|v| v.is_number() || is_word(v)) {
        ">S1"
    } else if all(&|v| v.as_i64().is_some_and(|n| i32::try_from(n).is_ok())) {
        "<i4"
    } else if all(&Value::is_i64) {
        "<i8"
    } else if all(&Value::is_u64) {
        "<u8"
    } else {
        "<f8"
    }
}

/// A fill value among the attributes in words that netcdf-c of every release reads as the type of the array; `None` where it is of
/// another, or too large for it.
fn fill_value(dtype: &DType, value: &Value) -> Option<Value> {
    let bits = |bytes: u8| u32::from(bytes).saturating_mul(8);
    let whole = |value: &Value| {
        let exact = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
        exact.or_else(|| value.is_number().then(|| fill::integer(value)).flatten())
    };
    match (dtype, value) {
        (_, Value::Array(items)) => match items.as_slice() {
            [] => None,
            [only] => fill_value(dtype, only).filter(|value| !value.is_array()),
            items => items.iter().map(|item| fill_value(dtype, item).filter(|item| !item.is_array())).collect(),
        },
        (DType::Float(_), Value::Number(_)) => xarray::fits(value, dtype).then(|| value.clone()),
        (DType::Float(_), Value::String(word)) => {
            [NAN, INFINITY, NEGATIVE_INFINITY].contains(&word.as_str()).then(|| token(word))
        }
        (DType::Int(n), _) => {
            let end = 1i128.checked_shl(bits(*n).saturating_sub(1))?;
            whole(value).filter(|v| (end.saturating_neg()..end).contains(v)).and_then(|v| Some(json!(i64::try_from(v).ok()?)))
        }
        (DType::UInt(n), _) => {
            let end = 1i128.checked_shl(bits(*n))?;
            whole(value).filter(|v| (0..end).contains(v)).and_then(|v| Some(json!(u64::try_from(v).ok()?)))
        }
        (DType::Bytes { char: false, .. }, Value::String(_)) => Some(value.clone()),
        _ => None,
    }
}
