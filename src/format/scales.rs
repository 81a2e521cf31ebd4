//! Scale metadata as the dialects of N5 write it becomes a [`Multiscale`].
//!
//! Read are n5-viewer and neuroglancer (`downsamplingFactors`, `scales`, `pixelResolution`, `resolution`, `units`, `axes`,
//! `affineTransform`), Paintera and BigCAT (`resolution`, `offset`), BigDataViewer, COSEM (`transform`) and N5's canonical metadata
//! (`spatialTransform`). N5 counts axes from the fastest; COSEM does not. Pure: attributes in, plain data out. Where two places
//! contradict each other, or a level says nothing, there is an error with the reason and no pyramid: none is guessed.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::scales::{Axis, Level, Multiscale, unit_name};
use crate::array::{Array, Attributes};
use crate::error::{Error, Result};
use crate::format::json::cite;
use serde_json::{Map, Value};

/// A group that may be a scale pyramid, with what is needed of its surroundings.
pub struct Pyramid<'a> {
    /// Its name.
    pub name: Option<&'a str>,
    /// Its attributes.
    pub own: &'a Attributes,
    /// Attributes of the groups above it, nearest first: n5-viewer and neuroglancer take them for what a group leaves out.
    pub above: &'a [Attributes],
    /// Its levels: the path below the group, and the array as it is shown.
    pub levels: &'a [(String, Array)],
    /// Whether the arrays are shown with N5's order of axes.
    pub source_axes: bool,
}

/// Members that tell of scales, in a group or in a dataset.
const CLAIMS: &[&str] = &["downsamplingFactors", "scales", "pixelResolution", "resolution", "multiScale"];

/// A list of levels in a group's own words (COSEM, canonical), and OME-Zarr's.
const MULTISCALES: &str = "multiscales";

/// The paths of levels that a group's own attributes list, where they do.
pub fn listed(own: &Attributes) -> Option<Vec<&str>> {
    let datasets = datasets(own)?;
    datasets.iter().map(|d| d.get("path").and_then(Value::as_str)).collect::<Option<Vec<_>>>().filter(|paths| !paths.is_empty())
}

fn datasets(own: &Attributes) -> Option<&Vec<Value>> {
    let image = match own.get(MULTISCALES)? {
        Value::Array(images) => images.first()?,
        image => image,
    };
    image.get("datasets")?.as_array()
}

/// Whether a value is an image as OME-Zarr has it since version 0.4: axes with names, and levels with transformations.
pub fn is_ome_image(value: &Value) -> bool {
    let list = |value: &Value, name: &str, test: &dyn Fn(&Value) -> bool| {
        value.get(name).and_then(Value::as_array).is_some_and(|l| !l.is_empty() && l.iter().all(test))
    };
    let level = |d: &Value| d.get("path").is_some_and(Value::is_string) && list(d, "coordinateTransformations", &|_| true);
    list(value, "axes", &|a| a.get("name").is_some_and(Value::is_string)) && list(value, "datasets", &level)
}

/// Whether attributes hold OME-Zarr's own metadata.
pub fn is_ome(attributes: &Attributes) -> bool {
    let images = |v: &Value| v.as_array().is_some_and(|images| !images.is_empty() && images.iter().all(is_ome_image));
    attributes.get(MULTISCALES).is_some_and(images) || attributes.get("ome").and_then(|o| o.get(MULTISCALES)).is_some_and(images)
}

/// The names of the axes of the array at `path` below a group with these attributes, by its OME-Zarr metadata.
pub fn ome_axes(attributes: &Attributes, path: &str) -> Option<Vec<String>> {
    let images = attributes.get(MULTISCALES).or_else(|| attributes.get("ome")?.get(MULTISCALES))?.as_array()?;
    let has = |image: &&Value| {
        let levels = image.get("datasets").and_then(Value::as_array);
        levels.is_some_and(|levels| levels.iter().any(|l| l.get("path").and_then(Value::as_str) == Some(path)))
    };
    let image = images.iter().filter(|image| is_ome_image(image)).find(has)?;
    image.get("axes")?.as_array()?.iter().map(|axis| Some(axis.get("name")?.as_str()?.to_owned())).collect()
}

/// Puts OME-Zarr metadata among the attributes of N5 into the order of axes that is shown. Some writers follow OME-Zarr there, some
/// N5: in N5 the axis `x` is the fastest.
pub fn reorder_ome(attributes: &mut Attributes, source_axes: bool) {
    if !is_ome(attributes) {
        return;
    }
    let images = match attributes.contains_key(MULTISCALES) {
        true => attributes.get_mut(MULTISCALES),
        false => attributes.get_mut("ome").and_then(|ome| ome.get_mut(MULTISCALES)),
    };
    for image in images.and_then(Value::as_array_mut).into_iter().flatten() {
        let names: Vec<_> =
            image.get("axes").and_then(Value::as_array).into_iter().flatten().map(|a| a.get("name").cloned()).collect();
        let is_x = |name: Option<&Option<Value>>| {
            name.and_then(Option::as_ref).and_then(Value::as_str).is_some_and(|name| name.eq_ignore_ascii_case("x"))
        };
        let (first, last) = (is_x(names.first()), is_x(names.last()));
        if first != last && first != source_axes {
            reverse(image);
        }
    }
}

fn reverse(image: &mut Value) {
    let transformations = |holder: &mut Value| {
        for item in holder.get_mut("coordinateTransformations").and_then(Value::as_array_mut).into_iter().flatten() {
            for name in ["scale", "translation"] {
                item.get_mut(name).and_then(Value::as_array_mut).into_iter().for_each(|list| list.reverse());
            }
        }
    };
    image.get_mut("axes").and_then(Value::as_array_mut).into_iter().for_each(|axes| axes.reverse());
    image.get_mut("datasets").and_then(Value::as_array_mut).into_iter().flatten().for_each(transformations);
    transformations(image);
}

/// The pyramid that a group is, if anything says so.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] where what is said is incomplete or contradicts itself, [`crate::error::Kind::Unsupported`]
/// where OME-Zarr has no words for it.
pub fn multiscale(group: &Pyramid<'_>) -> Result<Option<Multiscale>> {
    let Some((_, first)) = group.levels.first() else { return Ok(None) };
    let rank = first.shape.len();
    if let Some((path, array)) = group.levels.iter().find(|(_, array)| array.shape.len() != rank) {
        return Err(Error::corrupt(format!("{path} has {} axes, the first level {rank}", array.shape.len())));
    }
    let found = match group.placed(rank)? {
        Some(found) => found,
        None => match group.downsampled(rank)? {
            Some(found) => found,
            None => return Ok(None),
        },
    };
    let axes = found.names.iter().zip(&found.units).map(|(name, unit)| Axis::new(name, unit.as_deref())).collect();
    let mut multiscale = Multiscale { name: group.name.map(str::to_owned), axes, levels: found.levels };
    if !group.source_axes {
        multiscale.axes.reverse();
        for level in &mut multiscale.levels {
            level.scale.reverse();
            level.translation.reverse();
        }
    }
    multiscale.check()?;
    let size = |level: &Level| level.scale.iter().product::<f64>();
    multiscale.levels.sort_by(|a, b| size(a).total_cmp(&size(b)));
    Ok(Some(multiscale))
}

/// What is found of a pyramid, in N5's order of axes.
struct Found {
    names: Vec<String>,
    units: Vec<Option<String>>,
    levels: Vec<Level>,
}

/// Where a level lies, as it says itself, in N5's order of axes.
#[derive(PartialEq)]
struct Placed {
    names: Option<Vec<String>>,
    units: Vec<Option<String>>,
    scale: Vec<f64>,
    translation: Vec<f64>,
}

/// Distances of neighbouring elements, and their units where they are told.
#[derive(Clone, PartialEq)]
struct Spacing {
    size: Vec<f64>,
    units: Option<Vec<Option<String>>>,
}

impl Pyramid<'_> {
    /// The attributes of a level.
    fn attributes<'a>(&self, array: &'a Array) -> Option<&'a Attributes> {
        array.attributes.as_ref().ok()
    }

    /// The group's attributes and those above it, nearest first.
    fn holders(&self) -> impl Iterator<Item = &Attributes> {
        std::iter::once(self.own).chain(self.above)
    }

    /// Levels that say themselves where they lie; what the group's list says must agree.
    fn placed(&self, rank: usize) -> Result<Option<Found>> {
        let entries = datasets(self.own).map(Vec::as_slice).unwrap_or_default();
        let mut all: Vec<Option<Placed>> = Vec::new();
        for (path, array) in self.levels {
            let entry = entries.iter().find(|e| e.get("path").and_then(Value::as_str) == Some(path)).and_then(Value::as_object);
            let own = self.attributes(array).map_or(Ok(None), |a| place(a, rank)).map_err(|e| at(path, &e))?;
            let from_list = entry.map_or(Ok(None), |e| place(e, rank)).map_err(|e| at(path, &e))?;
            all.push(match (own, from_list) {
                (Some(a), Some(b)) if a != b => {
                    return Err(Error::corrupt(format!("{path} and the group differ on its transform")));
                }
                (a, b) => a.or(b),
            });
        }
        if all.iter().all(Option::is_none) {
            return Ok(None);
        }
        let mut levels = Vec::new();
        let mut axes = None;
        for ((path, _), placed) in self.levels.iter().zip(all) {
            let placed = placed.ok_or_else(|| Error::corrupt(format!("{path} has no transform, but other levels have")))?;
            let its = (placed.names, placed.units);
            if axes.as_ref().is_some_and(|axes| its != *axes) {
                return Err(Error::corrupt(format!("{path} has other axes or units than the first level")));
            }
            axes = Some(its);
            levels.push(Level { path: path.clone(), scale: placed.scale, translation: placed.translation });
        }
        let (names, units) = axes.unwrap_or_default();
        let names = names.map_or_else(|| self.names(rank), Ok)?;
        Ok(Some(Found { names, units, levels }))
    }

    /// Levels that are told by how much they are downsampled.
    fn downsampled(&self, rank: usize) -> Result<Option<Found>> {
        let claims = |a: &Attributes| CLAIMS.iter().any(|name| a.contains_key(*name));
        if !self.holders().any(claims) && !self.levels.iter().filter_map(|(_, a)| self.attributes(a)).any(claims) {
            return Ok(None);
        }
        let factors = self.factors(rank)?;
        let base = self.spacing(&factors, rank)?;
        let offset = self.offset(&base.size, &factors, rank)?;
        let affine = self.affine(rank)?;
        let mut levels = Vec::new();
        for ((path, _), factors) in self.levels.iter().zip(&factors) {
            let mut level = Level::downsampled(path, &base.size, &offset, factors);
            for (axis, (factor, shift)) in affine.iter().enumerate() {
                level.scale.get_mut(axis).into_iter().for_each(|s| *s *= factor);
                level.translation.get_mut(axis).into_iter().for_each(|t| *t = *t * factor + shift);
            }
            levels.push(level);
        }
        Ok(Some(Found { names: self.names(rank)?, units: base.units.unwrap_or_else(|| vec![None; rank]), levels }))
    }

    /// How many elements of the finest resolution an element of each level stands for.
    fn factors(&self, rank: usize) -> Result<Vec<Vec<f64>>> {
        // `scales` comes first, as in neuroglancer. A plain list is that of a dataset.
        let table = self.holders().find_map(|holder| {
            let tables = ["scales", "downsamplingFactors"].into_iter().filter_map(|name| holder.get(name)?.as_array());
            tables.into_iter().find(|t| t.iter().all(Value::is_array) && !t.is_empty())
        });
        let mut all = Vec::new();
        for (i, (path, array)) in self.levels.iter().enumerate() {
            let index = path.strip_prefix('s').and_then(|n| n.parse().ok()).unwrap_or(i);
            let read = |value: &Value| lengths(value, rank).map_err(|e| at(path, &e));
            let from_group = table.and_then(|table| table.get(index)).map(read).transpose()?;
            let own = self.attributes(array).and_then(|a| a.get("downsamplingFactors")).map(read).transpose()?;
            all.push(match (from_group, own) {
                (Some(a), Some(b)) if a != b => {
                    return Err(Error::corrupt(format!("{path} is downsampled by {b:?}, but by {a:?} as the group says")));
                }
                (Some(factors), _) | (None, Some(factors)) => factors,
                (None, None) if index == 0 => vec![1.0; rank],
                (None, None) => return Err(Error::corrupt(format!("{path} does not tell its downsamplingFactors"))),
            });
        }
        Ok(all)
    }

    /// The distance of elements of the finest resolution. What levels say is either that, as n5-viewer has it, or their own
    /// distance, as COSEM has it: whichever it is must be so for all.
    fn spacing(&self, factors: &[Vec<f64>], rank: usize) -> Result<Spacing> {
        let own = spacing(self.own, rank)?;
        let mut told = Vec::new();
        for ((path, array), factors) in self.levels.iter().zip(factors) {
            let spacing = self.attributes(array).map_or(Ok(None), |a| spacing(a, rank)).map_err(|e| at(path, &e))?;
            told.extend(spacing.map(|spacing| (path, spacing, factors)));
        }
        let inherited = || self.above.iter().find_map(|holder| spacing(holder, rank).ok().flatten());
        // A first level that is told, but not at the finest resolution, is good only where all agree.
        let base = own.or_else(|| told.first().map(|(_, s, _)| s.clone())).or_else(inherited);
        // Units of no told distance would make it one of 1.
        let is_told = base.is_some();
        let base = base.unwrap_or_else(|| Spacing { size: vec![1.0; rank], units: None });
        let is_base = |s: &Spacing| close(&s.size, &base.size);
        let scaled = |s: &Spacing, f: &[f64]| close(&s.size, &product(&base.size, f));
        let units = |s: &Spacing| s.units.is_none() || base.units.is_none() || s.units == base.units;
        let good = told.iter().all(|(_, s, _)| is_base(s)) || told.iter().all(|(_, s, f)| scaled(s, f));
        if !good || !told.iter().all(|(_, s, _)| units(s)) {
            let told: Vec<_> = told.iter().map(|(path, s, _)| format!("{path} {:?}", s.size)).collect();
            return Err(Error::corrupt(format!("resolutions contradict each other: {:?}, {}", base.size, told.join(", "))));
        }
        let found = told.into_iter().find_map(|(_, s, _)| s.units);
        let of_group = || self.holders().find_map(|holder| unit_list(holder.get("units")?, rank).ok());
        Ok(Spacing { units: base.units.or(found).or_else(|| of_group().filter(|_| is_told)), size: base.size })
    }

    /// The centre of the first element of the finest resolution. What levels say is that, or their own.
    fn offset(&self, base: &[f64], factors: &[Vec<f64>], rank: usize) -> Result<Vec<f64>> {
        let read = |holder: &Attributes| holder.get("offset").map(|value| numbers(value, rank)).transpose();
        let own = read(self.own)?;
        let mut told = Vec::new();
        for ((path, array), factors) in self.levels.iter().zip(factors) {
            let offset = self.attributes(array).map_or(Ok(None), read).map_err(|e| at(path, &e))?;
            told.extend(offset.map(|offset| (offset, factors)));
        }
        let Some(offset) = own.or_else(|| told.first().map(|(offset, _)| offset.clone())) else { return Ok(vec![0.0; rank]) };
        let place = |factors: &[f64]| Level::downsampled("", base, &offset, factors).translation;
        match told.iter().all(|(o, _)| close(o, &offset)) || told.iter().all(|(o, f)| close(o, &place(f))) {
            true => Ok(offset),
            false => Err(Error::corrupt("offsets of the levels contradict each other")),
        }
    }

    /// n5-viewer's further transform, as a factor and a shift for each axis; OME-Zarr has no words for more.
    fn affine(&self, rank: usize) -> Result<Vec<(f64, f64)>> {
        const NAME: &str = "affineTransform";
        let mut found = self.levels.iter().filter_map(|(_, array)| self.attributes(array)?.get(NAME));
        let of_levels = found.next();
        if found.any(|other| Some(other) != of_levels) {
            return Err(Error::corrupt(format!("{NAME}s of the levels contradict each other")));
        }
        match of_levels.or_else(|| self.holders().find_map(|holder| holder.get(NAME))) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(value) => affine(value, rank),
        }
    }

    /// Names of the axes.
    fn names(&self, rank: usize) -> Result<Vec<String>> {
        let strings = |holder: &Attributes| texts(holder.get("axes")?, rank);
        if let Some(names) = self.holders().find_map(strings) {
            return Ok(names);
        }
        // The array has its names as shown already.
        let of_levels = self.levels.iter().find_map(|(_, array)| {
            let names = array.dimension_names.as_ref()?.iter().cloned().collect::<Option<Vec<_>>>()?;
            Some(if self.source_axes { names } else { names.into_iter().rev().collect() })
        });
        let default = || ["x", "y", "z"].get(..rank).map(|names| names.iter().map(|&n| n.to_owned()).collect());
        of_levels.or_else(default).ok_or_else(|| Error::corrupt(format!("nothing names the {rank} axes")))
    }
}

/// Where a level lies, as COSEM or N5's canonical metadata says it.
fn place(holder: &Map<String, Value>, rank: usize) -> Result<Option<Placed>> {
    if let Some(transform) = holder.get("transform").filter(|t| t.get("scale").is_some() && t.get("axes").is_some()) {
        let part = |name: &str| transform.get(name).ok_or_else(|| Error::corrupt(format!("transform: no `{name}`")));
        let names = texts(part("axes")?, rank).ok_or_else(|| Error::corrupt("transform: axes are no list of names"))?;
        let units = match transform.get("units") {
            None => vec![None; rank],
            Some(units) => unit_list(units, rank)?,
        };
        let scale = lengths(part("scale")?, rank)?;
        let translation = transform.get("translate").map_or_else(|| Ok(vec![0.0; rank]), |t| numbers(t, rank))?;
        let mut placed = Placed { names: Some(names), units, scale, translation };
        match transform.get("order").and_then(Value::as_str) {
            Some("F") => {}
            _ => {
                placed.names.iter_mut().for_each(|names| names.reverse());
                placed.units.reverse();
                placed.scale.reverse();
                placed.translation.reverse();
            }
        }
        return Ok(Some(placed));
    }
    let Some(spatial) = holder.get("spatialTransform") else { return Ok(None) };
    let transform = spatial.get("transform").unwrap_or(spatial);
    let unit = spatial.get("unit").and_then(Value::as_str).and_then(unit_name);
    let diagonal = match transform.get("type").and_then(Value::as_str) {
        Some("affine") => affine(transform.get("affine").unwrap_or(&Value::Null), rank)?,
        Some("scale") => {
            lengths(transform.get("scale").unwrap_or(&Value::Null), rank)?.into_iter().map(|scale| (scale, 0.0)).collect()
        }
        _ => return Err(Error::unsupported(format!("spatialTransform: {} is not read", cite(transform)))),
    };
    let (scale, translation) = diagonal.into_iter().unzip();
    Ok(Some(Placed { names: None, units: vec![unit; rank], scale, translation }))
}

/// `pixelResolution` (n5-viewer) or `resolution` (all others), with units where they are told.
fn spacing(holder: &Attributes, rank: usize) -> Result<Option<Spacing>> {
    let units = holder.get("units").map(|units| unit_list(units, rank)).transpose()?;
    let (size, unit) = match holder.get("pixelResolution") {
        None | Some(Value::Null) => (None, None),
        Some(Value::Object(members)) => {
            let size = members.get("dimensions").map(|d| lengths(d, rank)).transpose()?;
            (size, Some(members.get("unit").and_then(Value::as_str).and_then(unit_name)))
        }
        Some(list) => (Some(lengths(list, rank)?), None),
    };
    let size = match size {
        Some(size) => Some(size),
        None => holder.get("resolution").map(|r| lengths(r, rank)).transpose()?,
    };
    let units = match (units, unit) {
        (Some(units), Some(unit)) if !units.contains(&unit) => {
            return Err(Error::corrupt("units and the unit of pixelResolution contradict each other"));
        }
        (units, unit) => units.or_else(|| unit.map(|unit| vec![unit; rank])),
    };
    Ok(size.map(|size| Spacing { size, units }))
}

/// The diagonal and the shift of an affine transform, as one list of rows or as a list for each row.
fn affine(value: &Value, rank: usize) -> Result<Vec<(f64, f64)>> {
    let width = rank.saturating_add(1);
    let no = || Error::unsupported(format!("an affine transform that is no scale and translation: {}", cite(value)));
    let rows = value.as_array().ok_or_else(no)?;
    let flat: Vec<&Value> = match rows.first() {
        Some(Value::Array(_)) => rows.iter().filter_map(Value::as_array).flatten().collect(),
        _ => rows.iter().collect(),
    };
    let flat: Vec<f64> = flat.into_iter().map(Value::as_f64).collect::<Option<_>>().ok_or_else(no)?;
    if flat.len() != rank.saturating_mul(width) {
        return Err(no());
    }
    let row = |(i, row): (usize, &[f64])| {
        let (shift, factors) = row.split_last()?;
        let others = factors.iter().enumerate().any(|(j, &n)| i != j && n != 0.0);
        factors.get(i).filter(|f| **f > 0.0 && !others).map(|f| (*f, *shift))
    };
    flat.chunks_exact(width).enumerate().map(row).collect::<Option<_>>().ok_or_else(no)
}

/// A finite number for each axis.
fn numbers(value: &Value, rank: usize) -> Result<Vec<f64>> {
    let list = value.as_array().filter(|list| list.len() == rank);
    let numbers = list.and_then(|list| list.iter().map(|n| n.as_f64().filter(|n| n.is_finite())).collect::<Option<Vec<_>>>());
    numbers.ok_or_else(|| Error::corrupt(format!("{} is no number for each of {rank} axes", cite(value))))
}

/// A positive number for each axis.
fn lengths(value: &Value, rank: usize) -> Result<Vec<f64>> {
    let numbers = numbers(value, rank)?;
    match numbers.iter().all(|&n| n > 0.0) {
        true => Ok(numbers),
        false => Err(Error::corrupt(format!("{} is not positive", cite(value)))),
    }
}

fn texts(value: &Value, rank: usize) -> Option<Vec<String>> {
    let list = value.as_array().filter(|list| list.len() == rank)?;
    list.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// The names of the units of all axes.
fn unit_list(value: &Value, rank: usize) -> Result<Vec<Option<String>>> {
    let list = value.as_array().filter(|list| list.len() == rank);
    let list = list.ok_or_else(|| Error::corrupt(format!("{} is no unit for each of {rank} axes", cite(value))))?;
    Ok(list.iter().map(|unit| unit.as_str().and_then(unit_name)).collect())
}

/// Whether numbers are the same but for how they were computed.
fn close(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-6 * a.abs().max(b.abs()))
}

fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}

fn at(path: &str, e: &Error) -> Error {
    Error::new(e.kind(), format!("{path}: {}", e.reason()))
}

#[cfg(test)]
mod tests;
