//! OME-Zarr: scale pyramids as `multiscales`, version 0.4 in documents of Zarr v2 and 0.5 in those of Zarr v3.
//!
//! The two versions say the same in different places: 0.4 has its members among the attributes, each with a version; 0.5 has them
//! in `ome`, with one version. A reader looks for its version in its place only, so a source's own metadata moves with the
//! flavour that is shown; what is of another version, or not clearly OME's, stays where it is.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::scales::{AxisKind, Multiscale};
use crate::array::{Attributes, Group};
use crate::error::Result;
use crate::format::scales::is_ome_image;
use crate::view::Flavour;
use serde_json::{Map, Value, json};

/// The name of the attribute of version 0.4, and of the member of 0.5.
const MULTISCALES: &str = "multiscales";

/// The version in documents of Zarr v2.
const IN_ZARR2: &str = "0.4";
/// The version in documents of Zarr v3.
const IN_ZARR3: &str = "0.5";

/// The attribute that tells of a scale pyramid: `multiscales` for Zarr v2, `ome` for Zarr v3. Paths of levels are relative to the
/// group that gets the attribute.
///
/// # Errors
/// As [`Multiscale::check`].
pub fn attributes(multiscale: &Multiscale, flavour: Flavour) -> Result<Attributes> {
    multiscale.check()?;
    let mut image = Map::new();
    if flavour == Flavour::Zarr2 {
        image.insert("version".to_owned(), json!(IN_ZARR2));
    }
    if let Some(name) = &multiscale.name {
        image.insert("name".to_owned(), json!(name));
    }
    let axes = multiscale.axes.iter().map(|axis| {
        let mut members = Map::new();
        members.insert("name".to_owned(), json!(axis.name));
        if let Some(kind) = axis.kind {
            members.insert("type".to_owned(), json!(kind_name(kind)));
        }
        if let Some(unit) = &axis.unit {
            members.insert("unit".to_owned(), json!(unit));
        }
        Value::Object(members)
    });
    image.insert("axes".to_owned(), axes.collect());
    let levels = multiscale.levels.iter().map(|level| {
        json!({
            "path": level.path,
            "coordinateTransformations": [
                {"type": "scale", "scale": level.scale},
                {"type": "translation", "translation": level.translation},
            ],
        })
    });
    image.insert("datasets".to_owned(), levels.collect());
    let images = json!([image]);
    let mut attributes = Map::new();
    match flavour {
        Flavour::Zarr2 => attributes.insert(MULTISCALES.to_owned(), images),
        Flavour::Zarr3 => attributes.insert("ome".to_owned(), json!({"version": IN_ZARR3, MULTISCALES: images})),
    };
    Ok(attributes)
}

fn kind_name(kind: AxisKind) -> &'static str {
    match kind {
        AxisKind::Space => "space",
        AxisKind::Time => "time",
        AxisKind::Channel => "channel",
    }
}

/// A group's attributes as documents of this flavour show them: its scale pyramid with its own attributes, or its own OME-Zarr
/// metadata in the version that belongs there.
///
/// # Errors
/// Why the attributes cannot be read.
pub fn shown(group: &Group, flavour: Flavour) -> Result<Attributes> {
    let mut shown = group.attributes.clone()?;
    // One that OME-Zarr has no words for is left out.
    if let Some(Ok(added)) = group.multiscale.as_ref().map(|m| attributes(m, flavour)) {
        // A list that is not OME's was the source of the pyramid.
        shown.shift_remove(MULTISCALES);
        shown.extend(added);
        return Ok(shown);
    }
    Ok(match flavour {
        Flavour::Zarr2 => to_zarr2(shown),
        Flavour::Zarr3 => to_zarr3(shown),
    })
}

/// Members that have a version of their own in 0.4, in themselves or in each of a list.
const VERSIONED: &[&str] = &[MULTISCALES, "plate", "well", "image-label", "omero"];

/// The members of 0.4 that make a group OME's.
const MARKS: &[&str] = &[MULTISCALES, "plate", "well", "image-label", "bioformats2raw.layout"];

/// Moves metadata of version 0.4 into `ome`.
fn to_zarr3(mut attributes: Attributes) -> Attributes {
    if attributes.contains_key("ome") {
        return attributes;
    }
    let names_only = |name: &str| attributes.len() == 1 && attributes.get(name).is_some_and(is_names);
    // These two are words of daily use: where they stand alone they are OME's, but they are not taken away.
    let copied: Vec<_> = ["labels", "series"].into_iter().filter(|name| names_only(name)).collect();
    let moved: Vec<_> =
        VERSIONED.iter().copied().chain(["bioformats2raw.layout"]).filter(|n| attributes.contains_key(*n)).collect();
    let is_ome = moved.iter().any(|name| MARKS.contains(name));
    if copied.is_empty() && !is_ome {
        return attributes;
    }
    if !moved.iter().all(|name| attributes.get(*name).is_some_and(|value| is_of_zarr2(name, value))) {
        return attributes;
    }
    let mut ome = Map::new();
    ome.insert("version".to_owned(), json!(IN_ZARR3));
    for name in copied {
        if let Some(value) = attributes.get(name) {
            ome.insert(name.to_owned(), value.clone());
        }
    }
    for name in moved {
        if let Some(mut value) = attributes.shift_remove(name) {
            each(&mut value, |members| drop(members.shift_remove("version")));
            ome.insert(name.to_owned(), value);
        }
    }
    attributes.insert("ome".to_owned(), Value::Object(ome));
    attributes
}

/// Moves metadata of version 0.5 out of `ome`. Writers repeat that version in the members: there it would be taken for theirs.
fn to_zarr2(mut attributes: Attributes) -> Attributes {
    let Some(Value::Object(ome)) = attributes.get("ome") else { return attributes };
    let known = ["labels", "series", "bioformats2raw.layout"];
    let moved: Vec<_> = VERSIONED.iter().copied().chain(known).filter(|name| ome.contains_key(*name)).collect();
    if ome.get("version") != Some(&json!(IN_ZARR3)) || moved.iter().any(|name| attributes.contains_key(*name)) {
        return attributes;
    }
    if !moved.iter().filter(|name| MARKS.contains(name)).filter_map(|name| ome.get(*name)).all(is_of_either) {
        return attributes;
    }
    let Some(Value::Object(mut ome)) = attributes.shift_remove("ome") else { return attributes };
    ome.shift_remove("version");
    for name in moved {
        if let Some(mut value) = ome.shift_remove(name) {
            if VERSIONED.contains(&name) {
                // That of `omero` may be another one, which says nothing of the rest.
                each(&mut value, |members| {
                    if is_either(members.get("version")) {
                        members.insert("version".to_owned(), json!(IN_ZARR2));
                    }
                });
            }
            attributes.insert(name.to_owned(), value);
        }
    }
    if !ome.is_empty() {
        attributes.insert("ome".to_owned(), Value::Object(ome));
    }
    attributes
}

/// Whether a member is of version 0.4, as far as it says.
fn is_of_zarr2(name: &str, value: &Value) -> bool {
    let of_version = |value: &Value| value.get("version").is_none_or(|version| *version == json!(IN_ZARR2));
    match (name, value) {
        (MULTISCALES, Value::Array(images)) => !images.is_empty() && images.iter().all(|i| of_version(i) && is_ome_image(i)),
        (MULTISCALES, _) => false,
        ("bioformats2raw.layout", value) => *value == json!(3),
        (_, Value::Object(_)) => of_version(value),
        _ => false,
    }
}

/// Whether a member says of itself, and of what it lists, no version but the two that say the same.
fn is_of_either(value: &Value) -> bool {
    let of_version = |value: &Value| is_either(value.get("version"));
    of_version(value) && value.as_array().is_none_or(|items| items.iter().all(of_version))
}

/// Whether a version is one of the two, or none.
fn is_either(version: Option<&Value>) -> bool {
    version.is_none_or(|v| v.is_null() || [IN_ZARR2, IN_ZARR3].iter().any(|known| v == known))
}

fn is_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| !names.is_empty() && names.iter().all(Value::is_string))
}

/// Does something with an object, or with each object of a list.
fn each(value: &mut Value, mut change: impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(members) => change(members),
        Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).for_each(change),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Format;
    use crate::array::scales::{Axis, Level};

    fn map(value: Value) -> Attributes {
        value.as_object().cloned().unwrap()
    }

    fn group(attributes: Value, multiscale: Option<Multiscale>) -> Group {
        Group { format: Format::N5, attributes: Ok(map(attributes)), consolidated: false, multiscale }
    }

    fn pyramid(names: [&str; 3]) -> Multiscale {
        Multiscale {
            name: Some("cells".into()),
            axes: names.iter().map(|name| Axis::new(name, Some("nm"))).collect(),
            levels: vec![Level::downsampled("s1", &[40.0, 4.0, 4.0], &[0.0, 0.0, 8.0], &[1.0, 2.0, 2.0])],
        }
    }

    #[test]
    fn a_pyramid_in_both_versions() {
        let group = group(json!({"scales": [[1, 1, 1]], "multiscales": [{"datasets": []}]}), Some(pyramid(["z", "y", "x"])));
        let axes = json!([
            {"name": "z", "type": "space", "unit": "nanometer"},
            {"name": "y", "type": "space", "unit": "nanometer"},
            {"name": "x", "type": "space", "unit": "nanometer"},
        ]);
        let levels = json!([{"path": "s1", "coordinateTransformations": [
            {"type": "scale", "scale": [40.0, 8.0, 8.0]}, {"type": "translation", "translation": [0.0, 2.0, 10.0]},
        ]}]);
        let image = json!([{"version": "0.4", "name": "cells", "axes": axes, "datasets": levels}]);
        let expected = map(json!({"scales": [[1, 1, 1]], "multiscales": image}));
        assert_eq!(shown(&group, Flavour::Zarr2).unwrap(), expected);
        let image = json!([{"name": "cells", "axes": axes, "datasets": levels}]);
        let expected = map(json!({"scales": [[1, 1, 1]], "ome": {"version": "0.5", "multiscales": image}}));
        assert_eq!(shown(&group, Flavour::Zarr3).unwrap(), expected);
    }

    #[test]
    fn what_ome_zarr_has_no_words_for_is_left_out() {
        let group = group(json!({"scales": [[1, 1, 1]]}), Some(pyramid(["y", "x", "c"])));
        assert!(attributes(&pyramid(["y", "x", "c"]), Flavour::Zarr2).is_err());
        for flavour in [Flavour::Zarr2, Flavour::Zarr3] {
            assert_eq!(shown(&group, flavour).unwrap(), map(json!({"scales": [[1, 1, 1]]})));
        }
    }

    #[test]
    fn metadata_of_the_source_moves_with_the_flavour_and_back() {
        let image = json!({"axes": [{"name": "y"}, {"name": "x"}],
            "datasets": [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}]});
        let versioned = |mut value: Value| {
            value["version"] = json!("0.4");
            value
        };
        let cases = [
            (
                json!({"mine": 1, "multiscales": [versioned(image.clone())], "omero": versioned(json!({"channels": []}))}),
                json!({"mine": 1, "ome": {"version": "0.5", "multiscales": [image], "omero": {"channels": []}}}),
            ),
            (
                json!({"plate": versioned(json!({"wells": []})), "bioformats2raw.layout": 3}),
                json!({"ome": {"version": "0.5", "plate": {"wells": []}, "bioformats2raw.layout": 3}}),
            ),
        ];
        for (old, new) in cases {
            assert_eq!(shown(&group(old.clone(), None), Flavour::Zarr2).unwrap(), map(old.clone()));
            assert_eq!(shown(&group(old.clone(), None), Flavour::Zarr3).unwrap(), map(new.clone()));
            assert_eq!(shown(&group(new.clone(), None), Flavour::Zarr3).unwrap(), map(new.clone()));
            assert_eq!(shown(&group(new, None), Flavour::Zarr2).unwrap(), map(old));
        }
        // As iohub and ome-zarr-py write it, with a version in the members.
        let mut repeated = image;
        repeated["version"] = json!("0.5");
        let plate = json!({"version": "0.5", "wells": []});
        let new = json!({"ome": {"version": "0.5", "multiscales": [repeated.clone()], "plate": plate}});
        repeated["version"] = json!("0.4");
        let old = json!({"multiscales": [repeated], "plate": {"version": "0.4", "wells": []}});
        assert_eq!(shown(&group(new.clone(), None), Flavour::Zarr3).unwrap(), map(new.clone()));
        assert_eq!(shown(&group(new.clone(), None), Flavour::Zarr2).unwrap(), map(old.clone()));
        // No version, as pydantic has it, and settings of a viewer that have one of their own.
        let (mut new, mut old) = (new, old);
        new["ome"]["multiscales"][0]["version"] = Value::Null;
        (new["ome"]["omero"], old["omero"]) = (json!({"version": "0.3"}), json!({"version": "0.3"}));
        assert_eq!(shown(&group(new, None), Flavour::Zarr2).unwrap(), map(old));
        let labels = map(json!({"labels": ["cells"], "ome": {"version": "0.5", "labels": ["cells"]}}));
        assert_eq!(shown(&group(json!({"labels": ["cells"]}), None), Flavour::Zarr3).unwrap(), labels);
    }

    #[test]
    fn what_is_not_clearly_of_the_version_stays() {
        let image = json!({"axes": [{"name": "x"}], "datasets": [{"path": "0", "coordinateTransformations": [{}]}]});
        let mut newer = image.clone();
        newer["version"] = json!("0.6");
        for old in [
            json!({"multiscales": [newer]}),
            json!({"multiscales": [{"version": "0.3", "axes": ["x"], "datasets": [{"path": "0"}]}]}),
            json!({"multiscales": [], "omero": {}}),
            json!({"omero": {}}),
            json!({"labels": ["a"], "other": 1}),
            json!({"multiscales": [image], "ome": 1}),
        ] {
            assert_eq!(shown(&group(old.clone(), None), Flavour::Zarr3).unwrap(), map(old));
        }
        for new in [
            json!({"ome": {"version": "0.6", "multiscales": []}}),
            json!({"ome": {"version": "0.5", "multiscales": [{"version": "0.6"}]}}),
            json!({"plate": 1, "ome": {"version": "0.5", "plate": {}}}),
        ] {
            assert_eq!(shown(&group(new.clone(), None), Flavour::Zarr2).unwrap(), map(new));
        }
    }
}
