//! Documents of Zarr v2 that tell the truth about what is shown.
//!
//! No codec remains but those that are kept; elements are little-endian and in C order, unless codecs are kept, or the source's
//! order of axes is wanted. All members that any reader asks for are written.

use crate::array::{Array, Attributes, Group, Node, Order};
use crate::error::Result;
use crate::format::dtype;
use crate::format::json::{NonFinite, render};
use serde_json::{Value, json};

/// The documents of a node by name. One that cannot be rendered is there, with the reason.
pub fn documents(node: &Node) -> Vec<(&'static str, Result<Vec<u8>>)> {
    members(node).into_iter().map(|(name, value)| (name, value.map(|value| render(&value, NonFinite::Token)))).collect()
}

/// The documents of a node before they are written out.
pub(super) fn members(node: &Node) -> Vec<(&'static str, Result<Value>)> {
    let (name, document, attributes) = match node {
        Node::Directory => return Vec::new(),
        Node::Group(Group { attributes, .. }) => (".zgroup", json!({"zarr_format": 2}), attributes),
        Node::Array(array) => (".zarray", zarray(array), &array.attributes),
    };
    let mut documents = vec![(name, Ok(document))];
    if attributes.as_ref().map_or(true, |a: &Attributes| !a.is_empty()) {
        documents.push((".zattrs", attributes.clone().map(Value::Object)));
    }
    documents
}

/// The members of `.zarray`.
fn zarray(array: &Array) -> Value {
    let filters = match array.kept.filters.as_slice() {
        [] => Value::Null,
        filters => json!(filters),
    };
    json!({
        "chunks": array.chunks,
        "compressor": array.kept.compressor,
        "dimension_separator": char::from(array.separator).to_string(),
        "dtype": array.kept.dtype.clone().unwrap_or_else(|| dtype::spell(&array.dtype)),
        "fill_value": array.fill.zarr2,
        "filters": filters,
        "order": match array.order { Order::C => "C", Order::F => "F" },
        "shape": array.shape,
        "zarr_format": 2,
    })
}
