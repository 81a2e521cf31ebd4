//! `datasource-properties.json`: what it says of a dataset, of its layers and of their magnifications, in every spelling that
//! was ever written.
//!
//! All of it is only said *about* the arrays, so what is not understood is left out with a notice, and the arrays work all the
//! same. Positions are in voxels of magnification 1, in the order x, y, z.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::Attributes;
use crate::array::scales::{Axis, Level, Multiscale};
use crate::error::{Error, Result};
use crate::format::json;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Most layers, and most magnifications of a layer, that are looked at; real ones have a few dozens.
const MANY: usize = 1024;

/// What `datasource-properties.json` says.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    /// Its members but for the layers.
    pub attributes: Attributes,
    /// The layers, in its order.
    pub layers: Vec<Layer>,
    /// What was left out, for a person.
    pub notices: Vec<String>,
}

/// How large a voxel of magnification 1 is: x, y, z, and the name of the unit.
#[derive(Debug, Clone, PartialEq)]
pub struct VoxelSize {
    /// Length of each side.
    pub factor: [f64; 3],
    /// Its unit; nanometers where the document has none.
    pub unit: String,
}

/// A layer of a dataset.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Its name, mostly that of its directory.
    pub name: String,
    /// Whether its data is in WKW; a layer that does not say so is.
    pub is_wkw: bool,
    /// Its members but for the magnifications.
    pub attributes: Attributes,
    /// The end of the bounding box: x, y, z in voxels of magnification 1.
    pub end: Option<[u64; 3]>,
    /// Its magnifications, in its order.
    pub mags: Vec<Mag>,
}

/// A magnification of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mag {
    /// How many voxels of magnification 1 lie along each side of a voxel: x, y, z.
    pub mag: [u64; 3],
    /// Where it may lie, as paths in the dataset; the first that is there counts.
    pub paths: Vec<String>,
    /// Whether the document tells a path.
    is_told: bool,
}

/// A directory within a dataset.
#[derive(Debug, Clone)]
pub struct Place {
    /// The dataset.
    pub properties: Arc<Properties>,
    /// The path of the directory in the dataset; empty for the dataset's own.
    pub path: String,
}

impl Place {
    /// The root of a dataset.
    pub fn root(properties: Properties) -> Self {
        Self { properties: Arc::new(properties), path: String::new() }
    }

    /// The directory `name` in this one.
    #[must_use]
    pub fn enter(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        Self { properties: self.properties.clone(), path }
    }

    /// The magnifications that this directory is, each with its layer: several where layers share their data. They are those that
    /// give its path or, where none does, those of a layer above it that have the same numbers, as `01-01-01` has those of `1`.
    fn mags(&self) -> Vec<(&Layer, &Mag)> {
        let layers = self.properties.layers.iter().filter(|layer| layer.is_wkw);
        let all = || layers.clone().flat_map(|layer| layer.mags.iter().map(move |mag| (layer, mag)));
        let mut mags: Vec<_> = all().filter(|(_, mag)| mag.paths.contains(&self.path)).collect();
        if mags.is_empty() {
            let (above, name) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
            let numbers = numbers(name);
            mags = all().filter(|(layer, mag)| numbers == Some(mag.mag) && layer.is_at(above)).collect();
        }
        mags.sort_by_key(|(layer, _)| below(&self.path, &layer.name).is_none());
        mags
    }

    /// The magnification that this directory is, with its layer; of several, one in the directory of its layer, or the first.
    pub fn mag(&self) -> Option<(&Layer, &Mag)> {
        self.mags().into_iter().next()
    }

    /// The attributes of the magnification that this directory is; of several, those of the layer whose directory it lies in, or
    /// of the first.
    pub fn attributes(&self) -> Option<Attributes> {
        let mags = self.mags();
        let (layer, first) = mags.first()?;
        // Where they differ, the directory may be either.
        let mag = mags.iter().all(|(_, mag)| mag.mag == first.mag).then_some(*first);
        Some(layer.attributes_of(mag))
    }

    /// Whether the directory is one magnification, and not several that differ.
    pub fn is_one_mag(&self) -> bool {
        let mags = self.mags();
        mags.iter().zip(mags.iter().skip(1)).all(|((_, one), (_, other))| one.mag == other.mag)
    }

    /// The voxels up to the end of the bounding box, z, y, x: of the largest of several; `None` where none is told.
    pub fn extent(&self) -> Option<[u64; 3]> {
        let extents = self.mags().into_iter().filter_map(|(layer, mag)| layer.extent(mag));
        extents.reduce(|one, other| std::array::from_fn(|axis| one.get(axis).max(other.get(axis)).copied().unwrap_or(0)))
    }

    /// Whether bounding boxes tell all of how large the array in this directory is.
    pub fn is_boxed(&self) -> bool {
        let mags = self.mags();
        !mags.is_empty() && mags.iter().all(|(layer, _)| layer.end.is_some())
    }

    /// What a person should know of a directory that is several magnifications.
    pub fn shared(&self) -> Option<String> {
        let mags = self.mags();
        let names = mags.iter().take(8).map(|(layer, mag)| format!("{} of {:?}", mag.name(), layer.name));
        let names = names.chain((mags.len() > 8).then(|| "...".to_owned())).collect::<Vec<_>>().join(", ");
        (mags.len() > 1)
            .then(|| format!("several layers or magnifications lie here, and the array is as large as the largest: {names}"))
    }

    /// The layer whose magnifications lie in this directory; of several, the one that it is called by, or the first.
    pub fn layer(&self) -> Option<&Layer> {
        let layers = self.properties.layers.iter().filter(|layer| layer.is_wkw && layer.is_at(&self.path));
        layers.min_by_key(|layer| layer.name != self.path)
    }

    /// The attributes of the group that this directory is: of a layer, or none on the way to one; `None` for any other
    /// directory.
    pub fn group_attributes(&self) -> Option<Attributes> {
        if self.path.is_empty() {
            return None;
        }
        if let Some(layer) = self.layer() {
            return Some(layer.attributes.clone());
        }
        let layers = self.properties.layers.iter().filter(|layer| layer.is_wkw);
        let mut paths = layers.flat_map(|layer| layer.mags.iter().flat_map(|mag| mag.paths.first()));
        paths.any(|path| below(path, &self.path).is_some()).then(Map::new)
    }
}

/// The rest of `path` below the directory `above`.
pub fn below<'a>(path: &'a str, above: &str) -> Option<&'a str> {
    if above.is_empty() { Some(path) } else { path.strip_prefix(above)?.strip_prefix('/') }
}

impl Properties {
    /// Reads the document.
    ///
    /// # Errors
    /// [`crate::error::Kind::Corrupt`] when it is no JSON object, or its layers are no list.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut attributes = json::parse_object(bytes)?;
        let mut properties = Self::default();
        let layers = match attributes.shift_remove("dataLayers") {
            Some(Value::Array(layers)) => layers,
            None => Vec::new(),
            Some(other) => return Err(Error::corrupt(format!("dataLayers: {} is no list", json::cite(&other)))),
        };
        properties.attributes = attributes;
        for value in layers.into_iter().take(MANY) {
            let Value::Object(members) = value else {
                properties.notices.push(format!("dataLayers: {} is no layer", json::cite(&value)));
                continue;
            };
            match Layer::parse(members, &mut properties.notices) {
                Some(layer) => properties.layers.push(layer),
                None => properties.notices.push("dataLayers: a layer without a name".to_owned()),
            }
        }
        Ok(properties)
    }

    /// The size of a voxel: `scale` is three lengths in nanometers, or has a `factor` and a `unit`.
    pub fn voxel_size(&self) -> Option<VoxelSize> {
        let scale = self.attributes.get("scale").or_else(|| self.attributes.get("voxelSize"))?;
        let factor = scale.get("factor").unwrap_or(scale);
        let sides: Option<Vec<f64>> = factor.as_array()?.iter().map(Value::as_f64).collect();
        let factor = <[f64; 3]>::try_from(sides?).ok()?;
        let unit = scale.get("unit").and_then(Value::as_str).unwrap_or("nanometer").to_owned();
        Some(VoxelSize { factor, unit })
    }

    /// Whether any layer is in WKW.
    pub fn has_cubes(&self) -> bool {
        self.layers.iter().any(|layer| layer.is_wkw)
    }
}

impl Layer {
    fn parse(mut members: Map<String, Value>, notices: &mut Vec<String>) -> Option<Self> {
        let name = members.get("name")?.as_str().filter(|name| !name.is_empty())?.to_owned();
        let is_wkw = members.get("dataFormat").is_none_or(|format| format.as_str() == Some("wkw"));
        let mut mags = Vec::new();
        // Both at once were written for a while; the newer says more.
        for list in ["mags", "wkwResolutions", "resolutions"] {
            let Some(Value::Array(list)) = members.shift_remove(list) else { continue };
            for value in list.iter().take(MANY) {
                match Mag::parse(value, &name) {
                    Ok(mag) => match mags.iter_mut().find(|known: &&mut Mag| known.mag == mag.mag) {
                        Some(known) => notices.extend(known.join(mag).map(|reason| format!("layer {name:?}: {reason}"))),
                        None => mags.push(mag),
                    },
                    Err(reason) => notices.push(format!("layer {name:?}: {reason}")),
                }
            }
        }
        let end = members.get("boundingBox").and_then(end);
        if is_wkw && end.is_none() {
            notices.push(format!("layer {name:?}: no bounding box that is understood; its files tell how large it is"));
        }
        Some(Self { name, is_wkw, attributes: members, end, mags })
    }

    /// Whether the magnifications lie in the directory `path` of the dataset.
    fn is_at(&self, path: &str) -> bool {
        let parent = |mag: &Mag| mag.paths.first().and_then(|path| path.rsplit_once('/')).map_or("", |(above, _)| above) == path;
        self.name == path || (!path.is_empty() && self.mags.first().is_some_and(parent))
    }

    /// The voxels of a magnification up to the end of the bounding box: z, y, x.
    pub fn extent(&self, mag: &Mag) -> Option<[u64; 3]> {
        let [x, y, z] = self.end?;
        let [mx, my, mz] = mag.mag;
        Some([z.div_ceil(mz.max(1)), y.div_ceil(my.max(1)), x.div_ceil(mx.max(1))])
    }

    /// What is said of one magnification: what is said of the layer, and which it is, if that is known.
    fn attributes_of(&self, mag: Option<&Mag>) -> Attributes {
        let mut attributes = self.attributes.clone();
        attributes.extend(mag.map(|mag| ("mag".to_owned(), serde_json::json!(mag.mag))));
        attributes
    }
}

/// The scale pyramid that magnifications of a layer make, which lie at these paths below its directory. Channels come last in the
/// order that is shown, or first in the source's.
pub fn multiscale(
    layer: &Layer,
    voxel: Option<&VoxelSize>,
    levels: &[(String, [u64; 3])],
    has_channels: bool,
    source_axes: bool,
) -> Multiscale {
    let unit = voxel.map(|voxel| voxel.unit.as_str());
    let spacing = voxel.map_or([1.0; 3], |voxel| voxel.factor);
    // In the order c, x, y, z first.
    let channels = usize::from(has_channels);
    let order = |numbers: [f64; 3], channel: f64| {
        let mut list: Vec<f64> = std::iter::repeat_n(channel, channels).chain(numbers).collect();
        if !source_axes {
            list.reverse();
        }
        list
    };
    let mut axes: Vec<Axis> =
        std::iter::repeat_n("c", channels).chain(["x", "y", "z"]).map(|name| Axis::new(name, unit)).collect();
    if !source_axes {
        axes.reverse();
    }
    let mut sorted: Vec<_> = levels.iter().collect();
    sorted.sort_by_key(|(_, mag)| mag.iter().map(|n| u128::from(*n)).product::<u128>());
    let (spacing, offset) = (order(spacing, 1.0), order([0.0; 3], 0.0));
    // Magnifications are below 2^32.
    let factors = |mag: &[u64; 3]| order(mag.map(|n| n as f64), 1.0);
    let levels = sorted.into_iter().map(|(path, mag)| Level::downsampled(path, &spacing, &offset, &factors(mag)));
    Multiscale { name: Some(layer.name.clone()), axes, levels: levels.collect() }
}

impl Mag {
    fn parse(value: &Value, layer: &str) -> std::result::Result<Self, String> {
        let bare = !value.is_object();
        let number = if bare { Some(value) } else { value.get("mag").or_else(|| value.get("resolution")) };
        let mag = number.and_then(mag).ok_or_else(|| format!("{} is no magnification", json::cite(value)))?;
        let path = match value.get("path").filter(|path| !path.is_null()) {
            None => None,
            Some(path) => {
                let text = path.as_str().ok_or_else(|| format!("{} is no path", json::cite(path)))?;
                Some(relative(text).ok_or_else(|| format!("{text:?} lies outside of the dataset, and is not shown"))?)
            }
        };
        let [x, y, z] = mag;
        let paths = match path {
            Some(path) => vec![path.clone(), format!("{layer}/{path}")],
            None if x == y && y == z => vec![format!("{layer}/{x}"), format!("{layer}/{x}-{y}-{z}")],
            None => vec![format!("{layer}/{x}-{y}-{z}")],
        };
        Ok(Self { mag, paths, is_told: value.get("path").is_some_and(|path| !path.is_null()) })
    }

    /// Takes the places of another entry for the same magnification, which are there all the same; says so where both are told.
    fn join(&mut self, other: Self) -> Option<String> {
        let new = other.paths.first().filter(|path| !self.paths.contains(path));
        let notice = new.filter(|_| self.is_told && other.is_told).map(|path| {
            format!("magnification {} lies at {path:?} as well, and the first that is there is a level of the layer", self.name())
        });
        for path in other.paths {
            if !self.paths.contains(&path) {
                self.paths.push(path);
            }
        }
        notice
    }

    /// Its numbers, as names of directories have them.
    fn name(&self) -> String {
        let [x, y, z] = self.mag;
        format!("{x}-{y}-{z}")
    }
}

/// A path in the dataset, without the `.` of `./color/1`; `None` for one that leads out of it.
fn relative(path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains("://") || path.contains('\\') {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

/// A magnification: `2`, `[2, 2, 1]`, `"2"` or `"2-2-1"`.
fn mag(value: &Value) -> Option<[u64; 3]> {
    let mag = match value {
        Value::Array(_) => vector(value)?,
        Value::String(text) => numbers(text)?,
        _ => [whole(value)?; 3],
    };
    is_mag(&mag).then_some(mag)
}

/// The magnification that the name of a directory tells: `2`, `2-2-1`, `02-02-01`.
pub fn numbers(name: &str) -> Option<[u64; 3]> {
    let number = |part: &str| part.parse().ok().filter(|_| part.bytes().all(|b| b.is_ascii_digit()));
    let parts: Option<Vec<u64>> = name.split('-').map(number).collect();
    let mag = match *parts?.as_slice() {
        [n] => [n; 3],
        [x, y, z] => [x, y, z],
        _ => return None,
    };
    is_mag(&mag).then_some(mag)
}

fn is_mag(mag: &[u64; 3]) -> bool {
    mag.iter().all(|n| (1..1 << 32).contains(n))
}

/// Three whole numbers that are not negative.
fn vector(value: &Value) -> Option<[u64; 3]> {
    match value.as_array()?.as_slice() {
        [x, y, z] => Some([whole(x)?, whole(y)?, whole(z)?]),
        _ => None,
    }
}

/// A whole number that is not negative, also one that is written `2.0`.
fn whole(value: &Value) -> Option<u64> {
    let text = value.as_number()?.as_str();
    text.strip_suffix(".0").unwrap_or(text).parse().ok().filter(|n| *n < 1 << 48)
}

/// A whole number, of which one below zero counts as it: files begin at 0.
fn position(value: &Value) -> Option<u64> {
    let text = value.as_number()?.as_str();
    let text = text.strip_suffix(".0").unwrap_or(text);
    if text.starts_with('-') { text.parse::<i64>().ok().map(|_| 0) } else { whole(value) }
}

/// The end of a bounding box: `topLeft` with `width`, `height` and `depth`, or with a `size`.
fn end(value: &Value) -> Option<[u64; 3]> {
    let corner: Option<Vec<i64>> =
        value.get("topLeft")?.as_array()?.iter().map(|n| n.as_i64().or_else(|| position(n)?.try_into().ok())).collect();
    let size = match value.get("size").and_then(vector) {
        Some(size) => size,
        None => [whole(value.get("width")?)?, whole(value.get("height")?)?, whole(value.get("depth")?)?],
    };
    let [x, y, z] = *corner?.as_slice() else { return None };
    let end = |at: i64, length: u64| {
        let end = at.checked_add(i64::try_from(length).ok()?)?;
        u64::try_from(end.max(0)).ok().filter(|n| *n < 1 << 48)
    };
    let [width, height, depth] = size;
    Some([end(x, width)?, end(y, height)?, end(z, depth)?])
}
