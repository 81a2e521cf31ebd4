//! `info`: what arrays are, as a table or as JSON.

use super::text::{Out, plain, size, table};
use super::walk::{self, Met, Owners};
use super::{Opened, Place, find, open};
use crate::array::{Array, Node, Placement};
use crate::cli::commands::Info;
use crate::error::{Error, Kind, Result};
use crate::vfs::Vfs;
use crate::view;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Runs `info`.
///
/// # Errors
/// Those of the source, and what is wrong with PATH itself; what is wrong below it is told in its place.
pub fn run(info: &Info) -> Result<()> {
    let opened = open(&info.at)?;
    let nodes = survey(&opened, info)?;
    let mut out = Out::new();
    if info.json {
        let document = json!({ "source": opened.name, "nodes": nodes });
        out.line(&serde_json::to_string_pretty(&document).map_err(|e| Error::new(Kind::Bug, e.to_string()))?)?;
        return out.flush();
    }
    match nodes.as_slice() {
        [only] if only.get("kind").is_some_and(|kind| kind == "array") => one(&mut out, only)?,
        nodes => many(&mut out, nodes)?,
    }
    out.flush()
}

/// What every directory at and below the place is.
fn survey(opened: &Opened, info: &Info) -> Result<Vec<Map<String, Value>>> {
    let vfs = &opened.vfs;
    let mut places = find(opened, info.path.as_ref())?;
    let from = places.pop().ok_or_else(|| Error::new(Kind::Bug, "a path without a root"))?;
    if !from.is_directory() {
        return Err(Error::usage("is a file; info is about arrays and groups").about(plain(&from.path)));
    }
    if let Some(about) = vfs.about(from.attr.inode)?
        && let Err(e) = about.node()
    {
        return Err(e.clone().within(&opened.name));
    }
    let mut scales = Scales::default();
    places.iter().for_each(|place| scales.read(vfs, place));
    let mut nodes: Vec<Map<String, Value>> = Vec::new();
    // Of arrays whose chunks are looked at, where they are among the nodes.
    let mut owners = Owners::default();
    walk::walk(vfs, &from, &mut |met| {
        match met {
            Met::Directory(place) => {
                let Some(about) = vfs.about(place.attr.inode)? else { return Ok(()) };
                scales.read(vfs, place);
                let mut current = None;
                let path = json!(plain(&place.path));
                match about.node() {
                    Ok(Node::Directory) => {}
                    Ok(Node::Group(group)) => {
                        let node = json!({ "path": path, "kind": "group", "format": group.format.name() });
                        nodes.extend(node.as_object().cloned());
                    }
                    Ok(Node::Array(array)) => {
                        let mut node = Map::from_iter([("path".to_owned(), path), ("kind".to_owned(), json!("array"))]);
                        node.append(&mut describe(array));
                        node.append(&mut scales.of(&place.path));
                        if !info.quick {
                            current = Some(nodes.len());
                            node.extend([("chunks_stored".to_owned(), json!(0)), ("stored_bytes".to_owned(), json!(0))]);
                        }
                        nodes.push(node);
                    }
                    Err(e) => {
                        nodes.extend(json!({ "path": path, "kind": "broken", "error": e.to_string() }).as_object().cloned())
                    }
                }
                owners.enter(&place.path, current);
            }
            Met::File(place, name) => {
                let owner = owners.of(&place.path).copied().flatten();
                let Some(node) = owner.and_then(|at: usize| nodes.get_mut(at)) else { return Ok(()) };
                let counted = vfs.lookup(place.attr.inode, name).and_then(|attr| {
                    let bytes = vfs.stored_bytes(attr.inode);
                    vfs.forget(attr.inode, 1);
                    bytes
                });
                match counted {
                    Ok(Some(bytes)) => {
                        add(node, "chunks_stored", 1);
                        add(node, "stored_bytes", bytes);
                    }
                    Ok(None) => {}
                    Err(_) => {
                        add(node, "chunks_stored", 1);
                        add(node, "chunks_in_doubt", 1);
                    }
                }
            }
            Met::Listed(..) => {}
            Met::Failed(path, _, e) => {
                let node = json!({ "path": plain(path), "kind": "broken", "error": e.to_string() });
                nodes.extend(node.as_object().cloned());
            }
        }
        Ok(())
    })?;
    Ok(nodes)
}

fn add(node: &mut Map<String, Value>, name: &str, more: u64) {
    let sum = node.get(name).and_then(Value::as_u64).unwrap_or(0).saturating_add(more);
    node.insert(name.to_owned(), json!(sum));
}

/// Whether an array has NCZarr's mark.
fn is_nczarr(array: &Array) -> bool {
    array.attributes.as_ref().is_ok_and(|attributes| attributes.contains_key("_nczarr_array"))
}

/// What a person calls the format of an array.
pub fn format_name(array: &Array) -> &'static str {
    if is_nczarr(array) { "nczarr" } else { array.format.name() }
}

/// What the metadata of an array tells.
fn describe(array: &Array) -> Map<String, Value> {
    let attributes = array.attributes.as_ref().ok();
    let elements = array.shape.iter().try_fold(1_u64, |n, s| n.checked_mul(*s));
    let decoded = array.dtype.size().zip(elements).and_then(|(item, n)| n.checked_mul(item as u64));
    let grid = array.grid();
    let placement = match &array.stored.placement {
        Placement::Object => "object",
        Placement::Shards(_) => "shard",
        Placement::Cube(_) => "cube",
    };
    let mut node = json!({
        "format": array.format.name(),
        "nczarr": is_nczarr(array),
        "dtype": view::dtype(array),
        "shape": array.shape,
        "chunks": array.chunks,
        "grid": grid,
        "codecs": array.stored.chain.names(),
        "codecs_kept": array.kept.names(),
        "chunks_lie_in": placement,
        "chunks_per_object": array.chunks_per_object(),
        "fill_value": array.fill.zarr2,
        "chunk_bytes": array.chunk_bytes(),
        "decoded_bytes": decoded,
        "chunks_total": grid.iter().try_fold(1_u64, |n, g| n.checked_mul(*g)),
    });
    let names = array.dimension_names.as_ref().map(|names| json!(names));
    let names = names.or_else(|| attributes.and_then(|a| a.get("_ARRAY_DIMENSIONS").cloned()));
    if let Some(node) = node.as_object_mut() {
        node.extend(names.map(|names| ("dimension_names".to_owned(), names)));
        return std::mem::take(node);
    }
    Map::new()
}

/// The scales that the groups met so far tell of arrays: OME-Zarr's `multiscales`, as the tree shows them.
#[derive(Default)]
struct Scales {
    by_path: BTreeMap<Vec<u8>, Map<String, Value>>,
}

impl Scales {
    /// Takes note of what a group tells, if it is one.
    fn read(&mut self, vfs: &Vfs, place: &Place) {
        if !matches!(vfs.about(place.attr.inode), Ok(Some(about)) if matches!(about.node(), Ok(Node::Group(_)))) {
            return;
        }
        for name in [".zattrs", "zarr.json"] {
            let Some(document) = document(vfs, place, name) else { continue };
            let attributes = document.get("attributes").filter(|_| name == "zarr.json").unwrap_or(&document);
            let ome = attributes.get("ome").unwrap_or(attributes);
            for multiscale in ome.get("multiscales").and_then(Value::as_array).into_iter().flatten() {
                self.note(place, multiscale);
            }
        }
    }

    fn note(&mut self, place: &Place, multiscale: &Value) {
        let units: Option<Vec<Value>> = multiscale
            .get("axes")
            .and_then(Value::as_array)
            .map(|axes| axes.iter().map(|a| a.get("unit").cloned().unwrap_or_default()).collect());
        let whole = transforms(multiscale);
        for level in multiscale.get("datasets").and_then(Value::as_array).into_iter().flatten() {
            let Some(path) = level.get("path").and_then(Value::as_str) else { continue };
            let mut told = Map::new();
            let (scale, translation) = transforms(level);
            // What is said of all levels comes after what is said of one.
            let times = |one: Vec<f64>, other: &Option<Vec<f64>>| match other {
                Some(other) => one.iter().zip(other).map(|(a, b)| a * b).collect(),
                None => one,
            };
            let plus = |one: Vec<f64>, other: &Option<Vec<f64>>| match other {
                Some(other) => one.iter().zip(other).map(|(a, b)| a + b).collect(),
                None => one,
            };
            let scaled = scale.map(|scale| times(scale, &whole.0)).or_else(|| whole.0.clone());
            let moved = translation.map(|t| plus(times(t, &whole.0), &whole.1)).or_else(|| whole.1.clone());
            told.extend(scaled.map(|scale| ("scale".to_owned(), json!(scale))));
            told.extend(moved.map(|translation| ("translation".to_owned(), json!(translation))));
            told.extend(units.clone().map(|units| ("units".to_owned(), json!(units))));
            self.by_path.insert(place.join(path.as_bytes()), told);
        }
    }

    fn of(&self, path: &[u8]) -> Map<String, Value> {
        self.by_path.get(path).cloned().unwrap_or_default()
    }
}

/// The scale and the translation among the transformations of a level, or of all.
fn transforms(of: &Value) -> (Option<Vec<f64>>, Option<Vec<f64>>) {
    let list = of.get("coordinateTransformations").and_then(Value::as_array);
    let find = |name: &str| {
        let found = list?.iter().find_map(|t| t.get(name)?.as_array())?;
        found.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>()
    };
    (find("scale"), find("translation"))
}

/// A document that the directory shows; `None` where there is none, or none that can be read.
fn document(vfs: &Vfs, place: &Place, name: &str) -> Option<Value> {
    let attr = vfs.lookup(place.attr.inode, name.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    let read = walk::contents(vfs, &attr, &mut |_, part| {
        bytes.extend_from_slice(part);
        Ok(())
    });
    vfs.forget(attr.inode, 1);
    read.ok().and_then(|()| serde_json::from_slice(&bytes).ok())
}

/// Numbers as `13 x 22`; a scalar has none.
pub fn extent(numbers: &[u64]) -> String {
    if numbers.is_empty() { "scalar".to_owned() } else { numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ") }
}

fn numbers(value: Option<&Value>) -> Vec<u64> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_u64).collect()
}

fn words(value: Option<&Value>) -> String {
    let list = value.and_then(Value::as_array).into_iter().flatten();
    list.map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned)).collect::<Vec<_>>().join(", ")
}

fn codecs(node: &Map<String, Value>) -> String {
    let (removed, kept) = (words(node.get("codecs")), words(node.get("codecs_kept")));
    match (removed.is_empty(), kept.is_empty()) {
        (true, true) => "none".to_owned(),
        (_, true) => removed,
        (true, _) => format!("{kept} (stays)"),
        _ => format!("{kept} (stays), {removed}"),
    }
}

/// The format of an array, by the name of the dialect.
fn format(node: &Map<String, Value>) -> String {
    let name =
        if node.get("nczarr") == Some(&Value::Bool(true)) { Some("nczarr") } else { node.get("format").and_then(Value::as_str) };
    name.unwrap_or_default().to_owned()
}

fn bytes(node: &Map<String, Value>, name: &str) -> String {
    node.get(name).and_then(Value::as_u64).map_or_else(|| "-".to_owned(), size)
}

/// One array: a line for each thing that is told.
fn one(out: &mut Out, node: &Map<String, Value>) -> Result<()> {
    let text = |name: &str| node.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let exact = |name: &str| match node.get(name).and_then(Value::as_u64) {
        Some(n) if n >= 1024 => format!("{} ({n} bytes)", size(n)),
        Some(n) => size(n),
        None => "-".to_owned(),
    };
    let mut rows = vec![
        ("path", format!("/{}", text("path"))),
        ("format", format(node)),
        ("dtype", text("dtype")),
        ("shape", extent(&numbers(node.get("shape")))),
        ("chunks", extent(&numbers(node.get("chunks")))),
        ("grid", extent(&numbers(node.get("grid")))),
        ("codecs", codecs(node)),
        ("fill value", node.get("fill_value").map(ToString::to_string).unwrap_or_default()),
        ("decoded", exact("decoded_bytes")),
        ("a chunk", exact("chunk_bytes")),
    ];
    if node.get("chunks_lie_in").is_some_and(|place| place != "object") {
        rows.push(("in", format!("{}s of {} chunks", text("chunks_lie_in"), extent(&numbers(node.get("chunks_per_object"))))));
    }
    if node.contains_key("stored_bytes") {
        rows.push(("stored", exact("stored_bytes")));
        let count = |name: &str| node.get(name).and_then(Value::as_u64).unwrap_or(0);
        let doubt = if count("chunks_in_doubt") > 0 { format!(", {} in doubt", count("chunks_in_doubt")) } else { String::new() };
        rows.push(("chunks stored", format!("{} of {}{doubt}", count("chunks_stored"), count("chunks_total"))));
    }
    for (name, key) in [("dimensions", "dimension_names"), ("scale", "scale"), ("translation", "translation"), ("units", "units")]
    {
        if let Some(value) = node.get(key) {
            rows.push((name, words(Some(value))));
        }
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    table(&rows, &[]).iter().try_for_each(|line| out.line(line))
}

/// Arrays, a line each.
fn many(out: &mut Out, nodes: &[Map<String, Value>]) -> Result<()> {
    let head = ["path", "format", "dtype", "shape", "chunks", "codecs", "stored", "decoded"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let text = |node: &Map<String, Value>, name: &str| node.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    for node in nodes {
        let path = format!("/{}", text(node, "path"));
        rows.push(match text(node, "kind").as_str() {
            "group" => vec![path, text(node, "format"), "group".to_owned()],
            "broken" => vec![path, format!("broken: {}", text(node, "error"))],
            _ => vec![
                path,
                format(node),
                text(node, "dtype"),
                extent(&numbers(node.get("shape"))),
                extent(&numbers(node.get("chunks"))),
                codecs(node),
                bytes(node, "stored_bytes"),
                bytes(node, "decoded_bytes"),
            ],
        });
    }
    // An error has a line to itself, and no say in the width of a column.
    let (broken, rows): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.len() == 2);
    let lines = table(&rows, &[6, 7]);
    if let Some((head, lines)) = lines.split_first() {
        let head = out.painted("1", head);
        out.line(&head)?;
        lines.iter().try_for_each(|line| out.line(line))?;
    }
    broken.iter().try_for_each(|row| out.line(&row.join("  ")))
}
