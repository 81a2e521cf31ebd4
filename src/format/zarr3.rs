//! Zarr version 3: `zarr.json` of groups and arrays.
//!
//! Sharding is undone: the grid that is shown is that of the innermost chunks, whatever order of axes lies between. Codecs are
//! undone from the outside in; one that is not known stays with everything inside it, in the bytes and in the metadata. A
//! member that is not known must say that it need not be understood. Attributes that cannot be read do not hide the data.
//!
//! [Specification](https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html), and the
//! [registered extensions](https://github.com/zarr-developers/zarr-extensions).

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

mod codecs;
mod dtype;
mod fill;
mod grid;
pub(super) mod small;

use crate::array::{Array, Attributes, DType, Envelope, Format, Group, Kept, Keys, Node, Order, Placement, Stored, Style, Words};
use crate::error::{Error, Result};
use crate::format::{Documents, axes, check_sizes, document, inside, json, nczarr3};
use serde_json::{Map, Value, json};

/// Name of the document, which holds consolidated metadata as well.
pub const DOCUMENT: &str = "zarr.json";

type Members = Map<String, Value>;

/// What a directory is to Zarr v3; `None` where it is nothing.
///
/// # Errors
/// For a document that cannot be read or contradicts itself, named.
pub fn detect(documents: &Documents) -> Result<Option<Node>> {
    // What is consolidated of the nodes below is not looked at here.
    let read =
        |bytes| json::outline(bytes, &["consolidated_metadata", "metadata"]).and_then(|outline| json::object(outline.value));
    let Some(bytes) = document(documents, DOCUMENT)? else { return Ok(None) };
    let members = read(bytes).map_err(|e| inside(DOCUMENT, e))?;
    node(&members).map(Some).map_err(|e| inside(DOCUMENT, e))
}

fn node(members: &Members) -> Result<Node> {
    match members.get("zarr_format") {
        Some(Value::Number(n)) if n.as_str() == "3" => {}
        Some(other) => return Err(Error::unsupported(format!("zarr_format: {} where 3 is expected", json::cite(other)))),
        None => return Err(Error::corrupt("no `zarr_format`")),
    }
    match members.get("node_type").map(|kind| (kind, kind.as_str())) {
        Some((_, Some("group"))) => group(members).map(Node::Group),
        Some((_, Some("array"))) => array(members).map(|array| Node::Array(Box::new(array))),
        Some((other, _)) => Err(Error::corrupt(format!("node_type: {} is neither \"array\" nor \"group\"", json::cite(other)))),
        None => Err(Error::corrupt("no `node_type`")),
    }
}

fn group(members: &Members) -> Result<Group> {
    check_members(members, &[])?;
    let consolidated = members.get("consolidated_metadata").is_some_and(|c| c.get("metadata").is_some_and(Value::is_object));
    Ok(Group { consolidated, ..Group::of(Format::Zarr3, attributes(members)) })
}

fn array(members: &Members) -> Result<Array> {
    const OWN: &[&str] = &[
        "shape",
        "data_type",
        "chunk_grid",
        "chunk_key_encoding",
        "fill_value",
        "codecs",
        "dimension_names",
        "storage_transformers",
    ];
    check_members(members, OWN)?;
    let member = |name: &str| members.get(name).ok_or_else(|| Error::corrupt(format!("no `{name}`")));
    if members.get("storage_transformers").is_some_and(|t| !t.is_null() && t.as_array().is_none_or(|list| !list.is_empty())) {
        let found = json::cite(member("storage_transformers")?);
        return Err(Error::unsupported(format!("storage_transformers: {found} are not undone")));
    }
    let shape = axes(members, "shape")?;
    let grid = grid::parse(member("chunk_grid")?, &shape).map_err(|e| inside("chunk_grid", e))?;
    let typed = dtype::parse(member("data_type")?).map_err(|e| inside("data_type", e))?;
    let fill = fill::parse(member("fill_value")?, &typed.dtype)?;
    let stored_keys = key_encoding(member("chunk_key_encoding")?).map_err(|e| inside("chunk_key_encoding", e))?;
    let completed = codecs_left_out(members).filter(|_| typed.dtype.size().is_some());
    let listed = completed.as_ref().map_or_else(|| member("codecs"), Ok)?;
    let plan = codecs::plan(listed, grid.chunks, &typed).map_err(|e| inside("codecs", e))?;
    check_last(&grid.last, &plan).map_err(|e| inside("chunk_grid", e))?;
    let item = typed.dtype.size().and_then(|n| u64::try_from(n).ok()).unwrap_or(1);
    check_sizes(&shape, &plan.chunks, item)?;
    let mut keys = stored_keys.clone();
    if !plan.levels.is_empty() {
        // A shard holds many chunks, and one directory would have them all.
        keys.separator = b'/';
    }
    // What few readers know, and what tells of the stored bytes (`.tiff`), is not shown.
    keys.suffix.clear();
    let words = Words { data_type: typed.spelled, fill_value: fill.spelled };
    Ok(Array {
        format: Format::Zarr3,
        dimension_names: dimension_names(members, shape.len())?,
        shape,
        chunks: plan.chunks,
        dtype: typed.dtype,
        fill: fill.fill,
        order: Order::C,
        keys,
        attributes: attributes(members),
        kept: Kept { words: Some(words), ..plan.kept },
        stored: Stored {
            keys: stored_keys,
            placement: if plan.levels.is_empty() { Placement::Object } else { Placement::Shards(plan.levels) },
            reversed: false,
            envelope: Envelope::None,
            chain: plan.chain,
            swaps: plan.swaps,
            axes: plan.axes,
            narrow_text: false,
            last: grid.last,
        },
    })
}

/// What a person should know of how an array was understood.
pub fn notice(documents: &Documents) -> Option<String> {
    let bytes = documents.get(DOCUMENT)?.as_ref().ok()?;
    // Nothing is parsed again for the sake of documents that name the codec, which are nearly all.
    if bytes.windows(7).any(|part| part == b"\"bytes\"") && !names_none(bytes) {
        return None;
    }
    codecs_left_out(&json::parse_object(bytes).ok()?).map(|_| LEFT_OUT.to_owned())
}

/// Whether a document may have an empty list of codecs.
fn names_none(document: &[u8]) -> bool {
    const NAME: &[u8] = b"\"codecs\"";
    document.windows(NAME.len()).enumerate().filter(|(_, part)| *part == NAME).any(|(at, _)| {
        let rest = document.get(at.saturating_add(NAME.len())..).unwrap_or_default();
        rest.iter().filter(|b| !b.is_ascii_whitespace()).take(3).eq(b":[]")
    })
}

/// What is said of an array as [`codecs_left_out`] means it.
const LEFT_OUT: &str =
    "names no codec that makes bytes of the elements, as GDAL up to 3.10 and zarrita.js do: they are taken as little-endian";

/// The codecs of an array whose writer left out `bytes`, as it took that for granted. GDAL up to 3.10 always did, and left out
/// `codecs` altogether where nothing else was in it; its documents have attributes and the names of all axes. zarrita.js writes
/// an empty list, and attributes, where it was not told of any codec. Any other list that lacks `bytes` is a damaged one.
fn codecs_left_out(members: &Members) -> Option<Value> {
    let named = |axis: &Value| axis.is_string();
    let axes = members.get("dimension_names").and_then(Value::as_array).is_some_and(|names| names.iter().all(named));
    let none = members.get("codecs").and_then(Value::as_array).is_some_and(Vec::is_empty);
    if !(axes || none) || !members.get("attributes").is_some_and(Value::is_object) {
        return None;
    }
    let (mut order, mut compressor) = (Vec::new(), Vec::new());
    for codec in members.get("codecs").map_or(Some(&Vec::new()), Value::as_array)? {
        match codec.get("name")?.as_str()? {
            "transpose" => order.push(codec.clone()),
            "gzip" | "blosc" => compressor.push(codec.clone()),
            _ => return None,
        }
    }
    order.push(json!({"name": "bytes", "configuration": {"endian": "little"}}));
    order.extend(compressor);
    Some(Value::Array(order))
}

/// Turns netCDF's marks among the attributes of a node of Zarr v3 into those that its readers look for in Zarr v2, and gives an
/// array the type that the marks say. For a node whose documents are shown in Zarr v2; those in v3 keep the source's attributes.
pub fn translate_marks(node: &mut Node) {
    let wrong = |e| inside(DOCUMENT, e);
    match node {
        Node::Group(group) if group.format == Format::Zarr3 => {
            group.attributes = group.attributes.clone().and_then(|a| nczarr3::group_attributes(a).map_err(wrong));
        }
        Node::Array(array) if array.format == Format::Zarr3 => {
            let Ok(attributes) = array.attributes.clone() else { return };
            let marks = nczarr3::array_marks(&attributes);
            let (rank, named) = (array.shape.len(), array.dimension_names.is_some());
            marks.apply(array);
            array.attributes = nczarr3::array_attributes(&marks, attributes, rank, named).map_err(wrong);
        }
        _ => {}
    }
}

/// Checks the lengths of the last objects, where those are shorter: a shard holds whole parts, and a chunk can be padded.
fn check_last(last: &[u64], plan: &codecs::Plan) -> Result<()> {
    match plan.levels.first() {
        _ if last.is_empty() => Ok(()),
        None if plan.kept.is_empty() => Ok(()),
        None => Err(Error::unsupported("a rectilinear grid with chunks in codecs that stay of different shapes")),
        Some(level) => {
            let parts = level.chunks.iter().zip(&plan.chunks).map(|(n, chunk)| n.saturating_mul(*chunk));
            match last.iter().zip(parts).find(|(length, part)| length.checked_rem(*part) != Some(0)) {
                Some((length, part)) => Err(Error::corrupt(format!("a last shard of {length} elements, in parts of {part}"))),
                None => Ok(()),
            }
        }
    }
}

/// The attributes of a node in the source.
fn attributes(members: &Members) -> Result<Attributes> {
    match members.get("attributes") {
        None | Some(Value::Null) => Ok(Attributes::new()),
        Some(Value::Object(attributes)) => Ok(attributes.clone()),
        Some(other) => Err(inside(DOCUMENT, Error::corrupt(format!("attributes: {} is no object", json::cite(other))))),
    }
}

/// Refuses members that are not known, unless they say that they need not be. `own` are those of the node's type.
fn check_members(members: &Members, own: &[&str]) -> Result<()> {
    const COMMON: &[&str] = &["zarr_format", "node_type", "attributes", "consolidated_metadata"];
    understood(members, &[COMMON, own].concat())
}

/// Refuses members other than `known`, unless they say that they need not be understood: a misspelt one would leave a default in
/// its place, of a byte order or of the names of all chunks.
fn understood(members: &Members, known: &[&str]) -> Result<()> {
    let needed = |value: &Value| value.get("must_understand") != Some(&Value::Bool(false));
    match members.iter().find(|(name, value)| !known.contains(&name.as_str()) && needed(value)) {
        Some((name, _)) => Err(Error::unsupported(format!("a member `{name}`, which must be understood"))),
        None => Ok(()),
    }
}

/// Name and configuration of an extension: `{"name": .., "configuration": {..}}`, or the bare name. Who knows the name looks
/// whether there is nothing [`beside`] them, and all of the configuration is [`understood`], where what is told by nothing else
/// depends on it.
fn named(value: &Value) -> Result<(&str, &Members)> {
    static NONE: std::sync::LazyLock<Members> = std::sync::LazyLock::new(Map::new);
    let wrong = || Error::corrupt(format!("{} is neither a name nor an object with a name", json::cite(value)));
    match value {
        Value::String(name) => Ok((name, &NONE)),
        Value::Object(members) => {
            let name = members.get("name").and_then(Value::as_str).ok_or_else(wrong)?;
            match members.get("configuration") {
                None | Some(Value::Null) => Ok((name, &NONE)),
                Some(Value::Object(configuration)) => Ok((name, configuration)),
                Some(other) => Err(Error::corrupt(format!("{name}: configuration: {} is no object", json::cite(other)))),
            }
        }
        _ => Err(wrong()),
    }
}

/// Refuses members of the extension `name` beside its configuration.
fn beside(name: &str, value: &Value) -> Result<()> {
    let members = value.as_object().map_or(Ok(()), |members| understood(members, &["name", "configuration", "must_understand"]));
    members.map_err(|e| inside(name, e))
}

/// How chunk indices make keys.
fn key_encoding(value: &Value) -> Result<Keys> {
    let (name, configuration) = named(value)?;
    beside(name, value)?;
    let separator = |default: u8| match configuration.get("separator") {
        None | Some(Value::Null) => Ok(default),
        Some(Value::String(s)) if s == "/" => Ok(b'/'),
        Some(Value::String(s)) if s == "." => Ok(b'.'),
        Some(other) => Err(Error::corrupt(format!("separator: {} is neither \".\" nor \"/\"", json::cite(other)))),
    };
    let suffix = || match configuration.get("suffix") {
        Some(Value::String(suffix)) if !suffix.contains(['/', '\0']) => Ok(suffix.clone()),
        Some(other) => Err(Error::unsupported(format!("suffix: {}", json::cite(other)))),
        None => Err(Error::corrupt("no `suffix`")),
    };
    let members: &[&str] = match name {
        "default" | "v2" => &["separator"],
        "zarrs.default_suffix" => &["separator", "suffix"],
        "suffix" => &["suffix", "base_encoding", "base-encoding"],
        other => return Err(Error::unsupported(format!("{other:?} is not read"))),
    };
    understood(configuration, members).map_err(|e| inside(name, e))?;
    match name {
        "default" => Ok(Keys { style: Style::C, separator: separator(b'/')?, suffix: String::new() }),
        "v2" => Ok(Keys { style: Style::Plain, separator: separator(b'.')?, suffix: String::new() }),
        "zarrs.default_suffix" => Ok(Keys { style: Style::C, separator: separator(b'/')?, suffix: suffix()? }),
        _ => {
            let base = configuration.get("base_encoding").or_else(|| configuration.get("base-encoding"));
            let base = base.ok_or_else(|| Error::corrupt("no `base_encoding`"))?;
            match named(base)?.0 {
                "default" | "v2" => Ok(Keys { suffix: suffix()?, ..key_encoding(base)? }),
                other => Err(Error::unsupported(format!("base_encoding: {other:?}"))),
            }
        }
    }
}

fn dimension_names(members: &Members, rank: usize) -> Result<Option<Vec<Option<String>>>> {
    let Some(value) = members.get("dimension_names").filter(|v| !v.is_null()) else { return Ok(None) };
    let name = |name: &Value| match name {
        Value::Null => Some(None),
        Value::String(name) => Some(Some(name.clone())),
        _ => None,
    };
    let names: Option<Vec<_>> = value.as_array().and_then(|list| list.iter().map(name).collect());
    match names {
        Some(names) if names.len() == rank => Ok(Some(names)),
        _ => Err(Error::corrupt(format!("dimension_names: {} are no names of {rank} axes", json::cite(value)))),
    }
}

/// Whether bytes of this type depend on a byte order.
fn has_order(dtype: &DType) -> bool {
    !dtype::big_endian(dtype).is_empty()
}
