//! What is shown: documents in Zarr's spelling, and the names of chunk files. Pure.

pub mod invented;
pub mod names;
pub mod nczarr;
pub mod ome;
mod xarray;
pub mod zarr2;
pub mod zarr3;

use crate::array::{Array, Node};
use crate::error::{Error, Kind, Result};
use crate::format::dtype;
use crate::format::json::{NonFinite, render};
use nczarr::Survey;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Which documents are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flavour {
    /// Zarr version 2.
    #[default]
    Zarr2,
    /// Zarr version 3.
    Zarr3,
}

/// Name of the attribute that has the names of the axes in Zarr v2, where Zarr v3 has `dimension_names`.
const DIMENSIONS: &str = "_ARRAY_DIMENSIONS";

/// Name of Zarr v2's consolidated metadata, shown and stored.
pub const CONSOLIDATED: &str = ".zmetadata";

/// The documents of a node by name, but for [`CONSOLIDATED`]. One that cannot be rendered is there, with the reason.
///
/// `survey` is asked for NCZarr groups only.
pub fn documents(node: &Node, flavour: Flavour, survey: Survey<'_>) -> Vec<(&'static str, Result<Vec<u8>>)> {
    match (flavour, node) {
        (_, Node::Directory) => Vec::new(),
        (Flavour::Zarr2, node) => zarr2::documents(node, survey),
        (Flavour::Zarr3, node) => zarr3::document(node).transpose().map(|content| (ZARR3, content)).into_iter().collect(),
    }
}

pub use crate::format::zarr3::DOCUMENT as ZARR3;

/// The documents of a node that need more than the node itself: consolidated metadata; the arrays that an NCZarr group lists;
/// what `levels`, those of a scale pyramid of N5, decide: the attributes of the group, and the axes of its arrays in Zarr v3; and
/// where NCZarr's marks are `invented`, all. They are made when they are first looked at.
pub fn late_documents(node: &Node, flavour: Flavour, levels: bool, invented: bool) -> Vec<&'static str> {
    let group = match node {
        Node::Group(group) => Some(group),
        Node::Array(_) => None,
        Node::Directory => return Vec::new(),
    };
    let consolidated = group.is_some_and(|g| g.consolidated);
    let is_nczarr = group.and_then(|g| g.attributes.as_ref().ok()).is_some_and(|a| a.contains_key("_nczarr_group"));
    match flavour {
        Flavour::Zarr2 => {
            let mut names = Vec::new();
            names.extend(consolidated.then_some(CONSOLIDATED));
            names.extend((group.is_some() && (is_nczarr || invented)).then_some(".zgroup"));
            names.extend((group.is_none() && invented).then_some(".zarray"));
            names.extend((invented || group.is_some() && levels).then_some(".zattrs"));
            names
        }
        Flavour::Zarr3 => (consolidated || levels || invented).then_some(ZARR3).into_iter().collect(),
    }
}

/// Names of the documents that a directory shows when it cannot be understood; reading them gives the reason.
pub fn broken_documents(flavour: Flavour) -> &'static [&'static str] {
    match flavour {
        Flavour::Zarr2 => &[".zarray", ".zattrs", ".zgroup"],
        Flavour::Zarr3 => &[ZARR3],
    }
}

/// Paths of the nodes that consolidated metadata lists, the root's is empty; each once.
///
/// # Errors
/// [`Kind::Corrupt`] where it is no consolidated metadata.
pub fn consolidated_paths(document: &Value) -> Result<BTreeSet<String>> {
    let metadata = document.get("metadata").and_then(Value::as_object).ok_or_else(|| Error::corrupt("no object `metadata`"))?;
    let node = |key: &String| match key.rsplit_once('/') {
        Some((path, ".zarray" | ".zgroup" | ".zattrs")) => Some(path.to_owned()),
        None if key.starts_with(".z") => Some(String::new()),
        _ => None,
    };
    Ok(metadata.keys().filter_map(node).collect())
}

/// The same of the inline metadata of Zarr v3.
///
/// # Errors
/// As [`consolidated_paths`].
pub fn consolidated_paths_zarr3(document: &Value) -> Result<BTreeSet<String>> {
    let metadata = document.get("metadata").and_then(Value::as_object).ok_or_else(|| Error::corrupt("no object `metadata`"))?;
    Ok(metadata.keys().cloned().chain([String::new()]).collect())
}

/// Consolidated metadata of Zarr v2 for nodes that the source lists in another way.
///
/// # Errors
/// [`Kind::NotFound`] where some node cannot be shown, with the reason: to zarr-python one that is not listed is absent, but one
/// that is looked for itself tells why it fails.
pub fn consolidated_zarr2_anew(nodes: &[(String, Result<Node>)]) -> Result<Vec<u8>> {
    let fault = |node: &Result<Node>| match node {
        Ok(node) => zarr2::members(node, Survey::ALL).into_iter().find_map(|(_, document)| document.err()),
        Err(e) => Some(e.clone()),
    };
    if let Some((path, e)) = nodes.iter().find_map(|(path, node)| Some((path, fault(node)?))) {
        return Err(Error::new(Kind::NotFound, format!("is not shown, because {path:?} cannot be: {}", e.reason())));
    }
    Ok(consolidated_zarr2(&Value::Null, nodes))
}

/// Consolidated metadata made again for the nodes that `listed`, the source's, names: what each shows, by path.
///
/// What cannot be shown keeps the source's own entry, so that a reader sees that it is there, and meets the reason when it
/// reads the data.
pub fn consolidated_zarr2(listed: &Value, nodes: &[(String, Result<Node>)]) -> Vec<u8> {
    let mut metadata = Map::new();
    for (path, node) in nodes {
        let key = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        let shown = node.as_ref().map_or_else(|_| Vec::new(), |node| zarr2::members(node, Survey::ALL));
        for name in [".zarray", ".zgroup", ".zattrs"] {
            let key = key(name);
            let value = match shown.iter().find(|(n, _)| *n == name) {
                Some((_, Ok(value))) => Some(value),
                Some((_, Err(_))) => listed.get("metadata").and_then(|m| m.get(&key)),
                None if node.is_err() => listed.get("metadata").and_then(|m| m.get(&key)),
                None => None,
            };
            if let Some(value) = value {
                metadata.insert(key, value.clone());
            }
        }
    }
    // Moved, not converted: attributes may hold numbers that JSON does not have.
    let mut document = Map::new();
    document.insert("metadata".to_owned(), Value::Object(metadata));
    document.insert("zarr_consolidated_format".to_owned(), json!(1));
    render(&Value::Object(document), NonFinite::Token)
}

/// The root's `zarr.json` with the metadata of `nodes`, by path; the root itself, with its empty path, is not listed again.
///
/// Where some node cannot be shown there is no consolidated metadata at all: to zarr-python a node that it does not list is
/// absent, but one that is looked for itself tells why it fails.
///
/// # Errors
/// As [`zarr3::document`].
pub fn consolidated_zarr3(root: &Node, nodes: &[(String, Result<Node>)]) -> Result<Vec<u8>> {
    let below = nodes.iter().filter(|(path, _)| !path.is_empty());
    let whole = below.map(|(path, node)| Some((path.as_str(), node.as_ref().ok()?))).collect::<Option<Vec<_>>>();
    let consolidated = whole.and_then(|nodes| zarr3::consolidated(root, nodes).ok().flatten());
    match consolidated {
        Some(document) => Ok(document),
        None => zarr3::document(root)?.ok_or_else(Error::not_found),
    }
}

/// The type of an array's elements, for a person: as in Zarr v2's documents, or in Zarr v3's where v2 has no name for it.
pub fn dtype(array: &Array) -> String {
    if let Some(words) = array.kept.words.as_ref().filter(|_| array.dtype.is_only_zarr3()) {
        return crate::format::json::cite(&words.data_type).trim_matches('"').to_owned();
    }
    match array.kept.dtype.clone().unwrap_or_else(|| dtype::spell(&array.dtype)) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
