//! Attributes as each dialect's writers leave them. Expected positions are worked out by hand from the dialect's own definition: an
//! element of a level downsampled by `f` is the mean of `f` elements, so its centre lies `(f - 1) / 2` finer elements further on.

use super::*;
use crate::array::Node;
use crate::array::scales::AxisKind;
use crate::format::{Context, n5};
use serde_json::{Value, json};

fn map(value: Value) -> Attributes {
    value.as_object().cloned().unwrap()
}

/// A dataset of N5 with these attributes.
fn level(attributes: Value, rank: usize) -> Array {
    let mut members = map(json!({"dimensions": vec![64; rank], "blockSize": vec![8; rank], "dataType": "uint8",
        "compression": {"type": "raw"}}));
    members.extend(map(attributes));
    let documents = [(n5::DOCUMENT, Ok(Value::Object(members).to_string().into_bytes()))].into();
    match n5::detect(&documents, &Context::default()).unwrap() {
        Some(Node::Array(array)) => *array,
        other => panic!("{other:?}"),
    }
}

/// A pyramid `s0`, `s1` ... below groups, the nearest first.
fn read(groups: &[Value], levels: &[Value], rank: usize, source_axes: bool) -> Result<Option<Multiscale>> {
    let groups: Vec<_> = groups.iter().cloned().map(map).collect();
    let levels: Vec<_> = levels.iter().enumerate().map(|(i, a)| (format!("s{i}"), level(a.clone(), rank))).collect();
    let (own, above) = groups.split_first().unwrap();
    multiscale(&Pyramid { name: Some("g"), own, above, levels: &levels, source_axes })
}

/// Scale and translation.
type Place = (Vec<f64>, Vec<f64>);

/// As OME-Zarr shows it: names with units, and each level's scale and translation.
fn positions(found: Result<Option<Multiscale>>) -> (Vec<String>, Vec<Place>) {
    let found = found.unwrap().unwrap();
    let axes = found.axes.iter().map(|a| format!("{} {}", a.name, a.unit.as_deref().unwrap_or("-"))).collect();
    (axes, found.levels.into_iter().map(|l| (l.scale, l.translation)).collect())
}

fn zyx(unit: &str) -> Vec<String> {
    ["z", "y", "x"].iter().map(|n| format!("{n} {unit}")).collect()
}

#[test]
fn n5_viewer_tells_factors_and_the_finest_resolution() {
    let levels = [
        json!({"pixelResolution": {"unit": "um", "dimensions": [0.5, 0.5, 2.0]}}),
        json!({"downsamplingFactors": [2, 2, 1], "pixelResolution": {"unit": "um", "dimensions": [0.5, 0.5, 2.0]}}),
        json!({"downsamplingFactors": [4, 4, 2], "pixelResolution": {"unit": "um", "dimensions": [0.5, 0.5, 2.0]}}),
    ];
    let expected = vec![
        (vec![2.0, 0.5, 0.5], vec![0.0, 0.0, 0.0]),
        (vec![2.0, 1.0, 1.0], vec![0.0, 0.25, 0.25]),
        (vec![4.0, 2.0, 2.0], vec![1.0, 0.75, 0.75]),
    ];
    assert_eq!(positions(read(&[json!({})], &levels, 3, false)), (zyx("micrometer"), expected.clone()));
    // With N5's order of axes all lists are turned around.
    let (axes, found) = positions(read(&[json!({})], &levels, 3, true));
    assert_eq!(axes, ["x micrometer", "y micrometer", "z micrometer"]);
    assert_eq!(found[2], (vec![2.0, 2.0, 4.0], vec![0.75, 0.75, 1.0]));
    // The same on the container, for all its channels.
    let root = json!({"n5": "2.0.0", "scales": [[1, 1, 1], [2, 2, 1], [4, 4, 2]],
        "pixelResolution": {"unit": "um", "dimensions": [0.5, 0.5, 2.0]}});
    let found = positions(read(&[json!({}), root], &[json!({}), json!({}), json!({})], 3, false));
    assert_eq!(found, (zyx("micrometer"), expected.clone()));
    // A bare list has no unit.
    let bare = json!({"pixelResolution": [0.5, 0.5, 2.0], "downsamplingFactors": [[1, 1, 1], [2, 2, 1], [4, 4, 2]]});
    let found = positions(read(&[bare], &[json!({}), json!({}), json!({})], 3, false));
    assert_eq!(found, (zyx("-"), expected));
}

#[test]
fn a_level_may_tell_its_own_resolution() {
    // As COSEM's older data: it is what the factors make of the group's.
    let group = json!({"scales": [[1, 1], [2, 2]], "pixelResolution": {"unit": "nm", "dimensions": [4.0, 4.0]}});
    let levels = [
        json!({"pixelResolution": {"unit": "nm", "dimensions": [4.0, 4.0]}}),
        json!({"pixelResolution": {"unit": "nm", "dimensions": [8.0, 8.0]}}),
    ];
    let (axes, found) = positions(read(&[group], &levels, 2, false));
    assert_eq!(axes, ["y nanometer", "x nanometer"]);
    assert_eq!(found[1], (vec![8.0, 8.0], vec![2.0, 2.0]));
}

#[test]
fn cosem_tells_scale_and_translation_last_axis_first() {
    let transform = |scale: Value, translate: Value, order: Value| json!({"axes": ["z", "y", "x"], "units": ["nm", "nm", "nm"], "scale": scale, "translate": translate, "order": order});
    let s0 = transform(json!([5.24, 4.0, 4.0]), json!([100.0, 0.0, 0.0]), Value::Null);
    let s1 = transform(json!([10.48, 8.0, 8.0]), json!([102.62, 2.0, 2.0]), json!("C"));
    let levels = [
        json!({"transform": s0, "pixelResolution": {"unit": "nm", "dimensions": [4.0, 4.0, 5.24]}}),
        json!({"transform": s1, "pixelResolution": {"unit": "nm", "dimensions": [8.0, 8.0, 10.48]}}),
    ];
    let expected = vec![(vec![5.24, 4.0, 4.0], vec![100.0, 0.0, 0.0]), (vec![10.48, 8.0, 8.0], vec![102.62, 2.0, 2.0])];
    assert_eq!(positions(read(&[json!({})], &levels, 3, false)), (zyx("nanometer"), expected.clone()));
    let group = json!({"multiscales": [{"datasets": [{"path": "s0", "transform": s0}, {"path": "s1", "transform": s1}]}]});
    assert_eq!(listed(&map(group.clone())), Some(vec!["s0", "s1"]));
    assert_eq!(positions(read(std::slice::from_ref(&group), &levels, 3, false)), (zyx("nanometer"), expected.clone()));
    assert_eq!(positions(read(std::slice::from_ref(&group), &[json!({}), json!({})], 3, false)), (zyx("nanometer"), expected));
    // "F" is N5's own order.
    let f = json!({"transform": {"axes": ["x", "y"], "units": ["nm", "um"], "scale": [1.0, 2.0], "translate": [3.0, 4.0],
        "order": "F"}});
    let (axes, found) = positions(read(&[json!({})], &[f], 2, false));
    assert_eq!((axes[0].as_str(), found[0].clone()), ("y micrometer", (vec![2.0, 1.0], vec![4.0, 3.0])));
    // Contradictions, and a level that says nothing.
    assert!(read(&[group], &[levels[1].clone(), levels[0].clone()], 3, false).is_err());
    assert!(read(&[json!({})], &[levels[0].clone(), json!({"downsamplingFactors": [2, 2, 2]})], 3, false).is_err());
}

#[test]
fn paintera_tells_resolution_and_offset_of_the_finest() {
    let group = json!({"multiScale": true, "resolution": [4.0, 4.0, 40.0], "offset": [100.0, 200.0, 400.0], "maxId": 7});
    let levels = [json!({"isLabelMultiset": true}), json!({"downsamplingFactors": [3.0, 3.0, 1.0], "isLabelMultiset": true})];
    let expected = vec![(vec![40.0, 4.0, 4.0], vec![400.0, 200.0, 100.0]), (vec![40.0, 12.0, 12.0], vec![400.0, 204.0, 104.0])];
    assert_eq!(positions(read(&[group], &levels, 3, false)), (zyx("-"), expected));
}

#[test]
fn big_data_viewer_tells_factors_of_all_times_on_the_setup() {
    let setup = json!({"downsamplingFactors": [[1, 1, 1], [2, 2, 1]], "dataType": "uint16"});
    let time = json!({"multiScale": true, "resolution": [0.4, 0.4, 1.5]});
    let levels = [json!({"downsamplingFactors": [1, 1, 1]}), json!({"downsamplingFactors": [2, 2, 1]})];
    let expected = vec![(vec![1.5, 0.4, 0.4], vec![0.0, 0.0, 0.0]), (vec![1.5, 0.8, 0.8], vec![0.0, 0.2, 0.2])];
    assert_eq!(positions(read(&[time.clone(), setup.clone()], &levels, 3, false)), (zyx("-"), expected.clone()));
    assert_eq!(positions(read(&[time, setup], &[json!({}), json!({})], 3, false)), (zyx("-"), expected));
}

#[test]
fn neuroglancer_tells_axes_and_units() {
    let group = json!({"axes": ["x", "y", "c'"], "units": ["nm", "um", ""], "resolution": [4.0, 0.5, 1.0],
        "downsamplingFactors": [[1, 1, 1], [2, 4, 1]]});
    let found = read(&[group], &[json!({}), json!({})], 3, false).unwrap().unwrap();
    assert_eq!(found.axes.iter().map(|a| a.kind).collect::<Vec<_>>(), [None, Some(AxisKind::Space), Some(AxisKind::Space)]);
    let (axes, found) = positions(Ok(Some(found)));
    assert_eq!(axes, ["c' -", "y micrometer", "x nanometer"]);
    assert_eq!(found[1], (vec![1.0, 2.0, 8.0], vec![0.0, 0.75, 2.0]));
}

#[test]
fn canonical_metadata_tells_a_transform() {
    let level = |affine: Value| json!({"spatialTransform": {"transform": {"type": "affine", "affine": affine}, "unit": "um"}});
    let levels = [level(json!([1, 0, 0, 5, 0, 2, 0, 6, 0, 0, 3, 7])), level(json!([2, 0, 0, 5.5, 0, 4, 0, 7, 0, 0, 6, 8.5]))];
    let expected = vec![(vec![3.0, 2.0, 1.0], vec![7.0, 6.0, 5.0]), (vec![6.0, 4.0, 2.0], vec![8.5, 7.0, 5.5])];
    assert_eq!(positions(read(&[json!({})], &levels, 3, false)), (zyx("micrometer"), expected));
    assert!(read(&[json!({})], &[level(json!([1, 0.1, 0, 5, 0, 2, 0, 6, 0, 0, 3, 7]))], 3, false).is_err());
}

#[test]
fn a_further_transform_is_applied_if_it_only_scales_and_shifts() {
    let group = |rows: Value| json!({"scales": [[1, 1, 1], [2, 2, 2]], "affineTransform": rows});
    let levels = [json!({}), json!({})];
    let (_, found) = positions(read(&[group(json!([[2, 0, 0, 10], [0, 1, 0, 0], [0, 0, 1, 0]]))], &levels, 3, false));
    assert_eq!(found[1], (vec![2.0, 2.0, 4.0], vec![0.5, 0.5, 11.0]));
    assert!(read(&[group(json!([[1, -0.3, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]))], &levels, 3, false).is_err());
}

#[test]
fn without_any_word_of_scales_there_is_no_pyramid() {
    assert!(read(&[json!({"name": "samples"})], &[json!({}), json!({"note": 1})], 3, false).unwrap().is_none());
    assert!(read(&[json!({"scales": []})], &[], 3, false).unwrap().is_none());
}

#[test]
fn what_is_incomplete_or_contradicts_itself_is_no_pyramid() {
    let pixels = |n: f64| json!({"pixelResolution": {"unit": "nm", "dimensions": [n, n]}});
    let with = |mut value: Value, name: &str, member: Value| {
        value[name] = member;
        value
    };
    let cases: &[(Value, Vec<Value>)] = &[
        // A level without factors; factors of other levels, of another rank, not positive, no numbers.
        (pixels(4.0), vec![json!({}), json!({})]),
        (json!({"scales": [[1, 1]]}), vec![json!({}), json!({})]),
        (json!({"scales": [[1, 1], [2, 2]]}), vec![json!({}), json!({"downsamplingFactors": [3, 3]})]),
        (json!({"scales": [[1, 1], [2, 2, 2]]}), vec![json!({}), json!({})]),
        (json!({"scales": [[1, 1], [2, 0]]}), vec![json!({}), json!({})]),
        (json!({"scales": [[1, 1], [2, "2"]]}), vec![json!({}), json!({})]),
        // Resolutions that fit neither reading, in other units, of another rank.
        (json!({"scales": [[1, 1], [2, 2]]}), vec![pixels(4.0), pixels(6.0)]),
        (with(pixels(4.0), "scales", json!([[1, 1], [2, 2]])), vec![pixels(5.0), pixels(5.0)]),
        (pixels(4.0), vec![json!({"pixelResolution": {"unit": "um", "dimensions": [4, 4]}})]),
        (with(pixels(4.0), "units", json!(["um", "um"])), vec![json!({})]),
        (json!({"resolution": [1, 1, 1]}), vec![json!({})]),
        (json!({"resolution": [1, 1], "offset": [1]}), vec![json!({})]),
        // Further transforms that are not the same.
        (json!({"scales": [[1, 1], [2, 2]]}), [1, 2].map(|n| json!({"affineTransform": [[n, 0, 0], [0, 1, 0]]})).to_vec()),
    ];
    for (group, levels) in cases {
        assert!(read(std::slice::from_ref(group), levels, 2, false).is_err(), "{group}");
    }
    // Nothing tells what four axes are.
    assert!(read(&[json!({"multiScale": true})], &[json!({})], 4, false).is_err());
    // OME-Zarr has no words for an image whose channels are the fastest axis.
    assert!(read(&[json!({"multiScale": true, "axes": ["c", "x", "y"]})], &[json!({})], 3, false).is_err());
}

#[test]
fn ome_zarr_metadata_of_n5_is_turned_around_where_it_is_in_n5s_order() {
    let image = |names: [&str; 3], scale: [u32; 3]| {
        let axes: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"axes": axes, "datasets": [{"path": "s0", "coordinateTransformations": [{"type": "scale", "scale": scale}]}]})
    };
    let (c, f) = (image(["z", "y", "x"], [3, 2, 1]), image(["x", "y", "z"], [1, 2, 3]));
    for (written, source_axes, shown) in [(&c, false, &c), (&f, false, &c), (&c, true, &f), (&f, true, &f)] {
        let mut attributes = map(json!({"multiscales": [written]}));
        reorder_ome(&mut attributes, source_axes);
        assert_eq!(attributes, map(json!({"multiscales": [shown]})));
        let mut attributes = map(json!({"ome": {"version": "0.5", "multiscales": [written]}}));
        reorder_ome(&mut attributes, source_axes);
        assert_eq!(attributes, map(json!({"ome": {"version": "0.5", "multiscales": [shown]}})));
    }
}
