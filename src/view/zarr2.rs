//! Documents of Zarr v2 that tell the truth about what is shown.
//!
//! No codec remains but those that are kept; elements are little-endian and in C order, unless codecs are kept, or the source's
//! order of axes is wanted. All members that any reader asks for are written.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Array, Attributes, Format, Node, Order};
use crate::error::{Error, Result};
use crate::format::dtype;
use crate::format::json::{NonFinite, render};
use crate::view::DIMENSIONS;
use crate::view::nczarr::{self, Survey};
use crate::view::{Flavour, ome, xarray};
use serde_json::{Map, Value, json};

/// The documents of a node by name. One that cannot be rendered is there, with the reason.
///
/// `survey` is asked for NCZarr groups only, so that netcdf-c 4.9.0 can open a dataset that has more than it reads.
pub fn documents(node: &Node, survey: Survey<'_>) -> Vec<(&'static str, Result<Vec<u8>>)> {
    members(node, survey).into_iter().map(|(name, value)| (name, value.map(|value| render(&value, NonFinite::Token)))).collect()
}

/// The documents of a node before they are written out.
pub(super) fn members(node: &Node, survey: Survey<'_>) -> Vec<(&'static str, Result<Value>)> {
    let (name, document, attributes) = match node {
        Node::Directory => return Vec::new(),
        Node::Group(group) => (".zgroup", Ok(zgroup(&group.attributes, survey)), ome::shown(group, Flavour::Zarr2)),
        Node::Array(array) => (".zarray", zarray(array), dimensioned(array)),
    };
    let mut documents = vec![(name, document.map(Value::Object))];
    if attributes.as_ref().map_or(true, |a: &Attributes| !a.is_empty()) {
        documents.push((".zattrs", attributes.map(Value::Object)));
    }
    documents
}

fn zgroup(attributes: &Result<Attributes>, survey: Survey<'_>) -> Map<String, Value> {
    let mut members = Map::new();
    if let Ok(attributes) = attributes {
        members.extend(nczarr::group_members(attributes, survey));
    }
    members.insert("zarr_format".to_owned(), json!(2));
    members
}

/// The attributes of an array, with the names of its axes among them, which Zarr v3 keeps elsewhere.
fn dimensioned(array: &Array) -> Result<Attributes> {
    let mut attributes = array.attributes.clone()?;
    if array.format == Format::Zarr3 {
        xarray::to_zarr2(&mut attributes, &array.dtype);
        xarray::mask_besides(&mut attributes, &array.dtype, &array.fill.zarr2);
    }
    if array.format == Format::Zarr3 && !attributes.contains_key(DIMENSIONS) {
        let names = match &array.dimension_names {
            // Without axes there are no names to tell, but xarray refuses an array of Zarr v2 that does not say so.
            _ if array.shape.is_empty() && nczarr::is_scalar(array) => Some(json!([nczarr::SCALAR])),
            _ if array.shape.is_empty() => Some(json!([])),
            names => names.as_ref().filter(|names| names.iter().all(Option::is_some)).map(|names| json!(names)),
        };
        attributes.extend(names.map(|names| (DIMENSIONS.to_owned(), names)));
    }
    Ok(attributes)
}

/// The members of `.zarray`. Values of the source are moved, not converted: they may be numbers that JSON does not have.
fn zarray(array: &Array) -> Result<Map<String, Value>> {
    // What tensorstore has written in Zarr v2 is shown in its words.
    if array.dtype.is_only_zarr3() && array.format != Format::Zarr2 {
        return Err(Error::unsupported(format!("no Zarr v2 spelling of the data type {}", super::dtype(array))));
    }
    if array.kept.zarr3.is_some() && array.kept.filters.is_empty() {
        let names = array.kept.names().join(", ");
        return Err(Error::unsupported(format!("no Zarr v2 spelling of the codecs that stay: {names}")));
    }
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    // netCDF's scalars have one element along one axis; netcdf-c passes over an array without axes.
    let scalar = array.shape.is_empty() && nczarr::is_scalar(array);
    let lengths = |lengths: &[u64]| if scalar { json!([1]) } else { json!(lengths) };
    put("chunks", lengths(&array.chunks));
    put("compressor", array.kept.compressor.clone().unwrap_or(Value::Null));
    put("dimension_separator", json!(char::from(array.keys.separator)));
    put("dtype", array.kept.dtype.clone().unwrap_or_else(|| dtype::spell(&array.dtype)));
    put("fill_value", array.fill.zarr2.clone());
    put(
        "filters",
        match array.kept.filters.is_empty() {
            true => Value::Null,
            false => Value::Array(array.kept.filters.clone()),
        },
    );
    put(
        "order",
        match array.order {
            Order::C => json!("C"),
            Order::F => json!("F"),
        },
    );
    put("shape", lengths(&array.shape));
    put("zarr_format", json!(2));
    if let Ok(attributes) = &array.attributes {
        members.extend(nczarr::array_members(attributes));
    }
    Ok(members)
}
