//! The document of Zarr v3, `zarr.json`, that tells the truth about what is shown.
//!
//! Chunk files keep their names (chunk key encoding `v2`), so that a source can be shown either way. Data types outside of the
//! core have the names of zarr-python 3.1. Codecs that stay have no truthful spelling here but variable-length text.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{Array, Attributes, DType, Field, Format, Group, Keys, Node, Order, Style};
use crate::error::{Error, Result};
use crate::format::json::{INFINITY, NAN, NEGATIVE_INFINITY, NonFinite, cite, render};
use crate::format::{base64, dtype, fill, n5, nczarr3};
use crate::view::{DIMENSIONS, Flavour, ome, xarray};
use serde_json::{Map, Value, json};

/// `zarr.json` of a node; `None` for a directory of no format.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] for what has no spelling in Zarr v3, and the reason why attributes cannot be read.
pub fn document(node: &Node) -> Result<Option<Vec<u8>>> {
    Ok(members(node)?.map(|members| render(&Value::Object(members), non_finite(node))))
}

/// `zarr.json` of a group with the documents of the nodes below it inside; the path of each, and the node.
///
/// # Errors
/// As [`document`], for the group and for every node: zarr-python takes a node that is not listed for absent.
pub fn consolidated<'a>(root: &Node, nodes: impl IntoIterator<Item = (&'a str, &'a Node)>) -> Result<Option<Vec<u8>>> {
    let Some(mut document) = members(root)? else { return Ok(None) };
    let mut metadata = Map::new();
    for (path, node) in nodes {
        if let Some(members) = members(node)? {
            metadata.insert(path.to_owned(), Value::Object(members));
        }
    }
    let mut inline = Map::new();
    inline.insert("kind".to_owned(), json!("inline"));
    inline.insert("must_understand".to_owned(), json!(false));
    inline.insert("metadata".to_owned(), Value::Object(metadata));
    document.insert("consolidated_metadata".to_owned(), Value::Object(inline));
    Ok(Some(render(&Value::Object(document), non_finite(root))))
}

/// How attributes that JSON has no numbers for are written: as a Zarr v3 source wrote them, else so that every reader reads them.
fn non_finite(node: &Node) -> NonFinite {
    match node {
        Node::Group(Group { format: Format::Zarr3, .. }) => NonFinite::Token,
        Node::Array(array) if array.format == Format::Zarr3 => NonFinite::Token,
        _ => NonFinite::Text,
    }
}

fn members(node: &Node) -> Result<Option<Map<String, Value>>> {
    match node {
        Node::Directory => Ok(None),
        Node::Group(group) => {
            let mut members = Map::new();
            members.insert("zarr_format".to_owned(), json!(3));
            members.insert("node_type".to_owned(), json!("group"));
            members.insert("attributes".to_owned(), Value::Object(ome::shown(group, Flavour::Zarr3)?));
            Ok(Some(members))
        }
        Node::Array(array) => members_of(array).map(Some),
    }
}

fn members_of(array: &Array) -> Result<Map<String, Value>> {
    let (dtype, encoding) = stored_as(array)?;
    let rank = array.shape.len();
    let mut codecs = Vec::new();
    if array.order == Order::F && rank > 1 {
        let order: Vec<usize> = (0..rank).rev().collect();
        codecs.push(json!({"name": "transpose", "configuration": {"order": order}}));
    }
    codecs.extend(encoding);
    let mut attributes = array.attributes.clone()?;
    // Those with marks that were made for netCDF have been respelled when these told their types.
    if !attributes.contains_key(nczarr3::ATTRS) {
        respell(&mut attributes, array);
    }
    let mut members = Map::new();
    let mut put = |name: &str, value: Value| members.insert(name.to_owned(), value);
    put("zarr_format", json!(3));
    put("node_type", json!("array"));
    put("shape", json!(array.shape));
    put("data_type", dtype);
    put("chunk_grid", json!({"name": "regular", "configuration": {"chunk_shape": array.chunks}}));
    put("chunk_key_encoding", chunk_key_encoding(&array.keys));
    put("fill_value", fill_value(array)?);
    put("codecs", Value::Array(codecs));
    put("attributes", Value::Object(attributes));
    if let Some(names) = &array.dimension_names {
        put("dimension_names", json!(names));
    }
    Ok(members)
}

/// Spells the attributes of an array of another format as Zarr v3 has them: without the names of axes that `dimension_names` says as
/// well, and with xarray's `_FillValue`.
pub(super) fn respell(attributes: &mut Attributes, array: &Array) {
    if array.format == Format::Zarr3 {
        return;
    }
    if let Some(names) = &array.dimension_names
        && attributes.get(DIMENSIONS) == Some(&json!(names))
    {
        attributes.shift_remove(DIMENSIONS);
    }
    xarray::to_zarr3(attributes, &array.dtype);
}

fn chunk_key_encoding(keys: &Keys) -> Value {
    let separator = char::from(keys.separator).to_string();
    let name = if keys.style == Style::C { "default" } else { "v2" };
    named(name, json!({ "separator": separator }))
}

/// The data type, and the codecs that make bytes of the elements.
fn stored_as(array: &Array) -> Result<(Value, Vec<Value>)> {
    let dtype = match &array.kept.words {
        Some(words) => Ok(words.data_type.clone()),
        None => data_type(&array.dtype),
    };
    if let Some(codecs) = &array.kept.zarr3 {
        return Ok((dtype?, codecs.clone()));
    }
    if array.kept.is_empty() {
        return Ok((dtype?, vec![bytes_codec(&array.dtype)]));
    }
    let ids: Vec<_> =
        array.kept.filters.iter().chain(&array.kept.compressor).map(|c| c.get("id").and_then(Value::as_str)).collect();
    match (&array.dtype, ids.as_slice()) {
        (DType::Object, [Some("vlen-utf8")]) => Ok((json!("string"), vec![json!({"name": "vlen-utf8"})])),
        (DType::Object, [Some("vlen-bytes")]) => Ok((json!("variable_length_bytes"), vec![json!({"name": "vlen-bytes"})])),
        // Whoever does not know the codec refuses the array by its name; what the numbers are is said all the same.
        (DType::Object, [Some(n5::VARLENGTH)]) => {
            let dtype = array.kept.filters.first().and_then(|f| f.get("dtype")).and_then(Value::as_str).unwrap_or_default();
            let dtype = data_type(&dtype::parse(&json!(dtype))?.dtype)?;
            Ok((dtype.clone(), vec![named(n5::VARLENGTH, json!({"data_type": dtype, "endian": "little"}))]))
        }
        (DType::Object, [Some(n5::OBJECT)]) => Ok((json!("variable_length_bytes"), vec![json!({"name": n5::OBJECT})])),
        _ => {
            let kept = array.kept.filters.iter().chain(&array.kept.compressor).cloned().collect();
            Err(Error::unsupported(format!("no Zarr v3 spelling of the codecs that stay: {}", cite(&Value::Array(kept)))))
        }
    }
}

/// Whether the innermost codec that stays is `id`.
fn kept_by(array: &Array, id: &str) -> bool {
    array.kept.filters.first().and_then(|filter| filter.get("id")?.as_str()) == Some(id)
}

/// Byte order is left out where there is none, as other writers do.
fn bytes_codec(dtype: &DType) -> Value {
    match dtype {
        DType::Bool | DType::Int(1) | DType::UInt(1) | DType::Small(_) | DType::Bytes { .. } | DType::Void(_) => {
            json!({"name": "bytes"})
        }
        _ => json!({"name": "bytes", "configuration": {"endian": "little"}}),
    }
}

fn data_type(dtype: &DType) -> Result<Value> {
    Ok(match dtype {
        DType::Bool => json!("bool"),
        DType::Int(n) => json!(format!("int{}", bits(*n))),
        DType::UInt(n) => json!(format!("uint{}", bits(*n))),
        DType::Float(n) => json!(format!("float{}", bits(*n))),
        DType::BFloat16 => json!("bfloat16"),
        DType::Small(name) => json!(name),
        DType::Complex(n) => json!(format!("complex{}", bits(*n))),
        DType::Bytes { length, .. } => named("null_terminated_bytes", json!({"length_bytes": length})),
        DType::Text(n) => named("fixed_length_utf32", json!({"length_bytes": n.saturating_mul(4)})),
        DType::Void(n) => named("raw_bytes", json!({"length_bytes": n})),
        DType::DateTime(unit) => named("numpy.datetime64", time(unit)),
        DType::TimeDelta(unit) => named("numpy.timedelta64", time(unit)),
        DType::Struct(fields) => {
            let fields = fields.iter().map(field).collect::<Result<Vec<_>>>()?;
            named("structured", json!({ "fields": fields }))
        }
        DType::Object | DType::Opaque => return Err(Error::unsupported("objects without their codec have no Zarr v3 spelling")),
    })
}

fn bits(bytes: u8) -> u32 {
    u32::from(bytes).saturating_mul(8)
}

fn named(name: &str, configuration: Value) -> Value {
    json!({"name": name, "configuration": configuration})
}

/// numpy's unit `25us` is 25 times `us`.
fn time(unit: &str) -> Value {
    let name = unit.trim_start_matches(|c: char| c.is_ascii_digit());
    let factor = unit.strip_suffix(name).and_then(|f| f.parse::<u32>().ok()).unwrap_or(1);
    json!({"unit": if name.is_empty() { "generic" } else { name }, "scale_factor": factor})
}

/// A field that is an array has no spelling of its own; its bytes have.
fn field(field: &Field) -> Result<Value> {
    if !field.shape.is_empty() {
        return Err(Error::unsupported(format!("field {:?} is an array, which Zarr v3 does not spell", field.name)));
    }
    Ok(json!([field.name, data_type(&field.dtype)?]))
}

/// The fill value from the bytes of an element; zeros where the source has none.
fn fill_value(array: &Array) -> Result<Value> {
    if let Some(value) = array.kept.words.as_ref().and_then(|words| words.fill_value.as_ref()) {
        return Ok(value.clone());
    }
    if array.dtype == DType::Object {
        return Ok(match &array.fill.zarr2 {
            Value::String(text) => json!(text),
            Value::Number(number) if kept_by(array, "vlen-utf8") => json!(number_as_text(number)),
            Value::Bool(truth) if kept_by(array, "vlen-utf8") => json!(if *truth { "True" } else { "False" }),
            _ if kept_by(array, n5::VARLENGTH) => json!(0),
            Value::Array(_) | Value::Object(_) => {
                return Err(Error::unsupported(format!("no Zarr v3 spelling of the fill value {}", array.fill.zarr2)));
            }
            _ => json!(""),
        });
    }
    let size = array.dtype.size().unwrap_or(0);
    let zeros;
    let bytes = match &array.fill.bytes {
        Some(bytes) => bytes,
        None => {
            zeros = vec![0; size];
            &zeros
        }
    };
    let bug = || Error::new(crate::error::Kind::Bug, "a fill value of another length than its type");
    Ok(match &array.dtype {
        // Integers say it as the source did, or there was nothing to say.
        DType::Small(name) if name.contains("int") => {
            Some(&array.fill.zarr2).filter(|value| value.is_number()).cloned().unwrap_or_else(|| json!(0))
        }
        DType::Bool => json!(bytes.first() == Some(&1)),
        DType::Int(_) => json!(signed(bytes).ok_or_else(bug)?),
        DType::DateTime(_) | DType::TimeDelta(_) => fill::time(&array.dtype, signed(bytes).ok_or_else(bug)?),
        DType::UInt(_) => json!(unsigned(bytes).ok_or_else(bug)?),
        DType::Float(_) => float(bytes).ok_or_else(bug)?,
        DType::Complex(n) => {
            let (re, im) = bytes.split_at_checked(usize::from(n >> 1)).ok_or_else(bug)?;
            json!([float(re).ok_or_else(bug)?, float(im).ok_or_else(bug)?])
        }
        DType::Text(_) => {
            let points = bytes.chunks_exact(4).filter_map(|c| <[u8; 4]>::try_from(c).ok()).map(u32::from_le_bytes);
            let text: String = points.filter_map(char::from_u32).collect();
            json!(text.trim_end_matches('\0'))
        }
        DType::Bytes { .. } => {
            let kept = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last.saturating_add(1));
            json!(base64::encode(bytes.get(..kept).unwrap_or(bytes)))
        }
        DType::Void(_) | DType::Struct(_) => json!(base64::encode(bytes)),
        DType::BFloat16 | DType::Small(_) if bytes.iter().all(|&b| b == 0) => json!(0.0),
        DType::BFloat16 | DType::Small(_) => {
            json!(format!("0x{:0width$x}", unsigned(bytes).ok_or_else(bug)?, width = bytes.len().saturating_mul(2)))
        }
        DType::Object | DType::Opaque => Value::Null,
    })
}

/// A number as Python writes it: zarr-python 2 gives arrays of objects the fill value 0, which zarr-python 3 takes as such text.
fn number_as_text(number: &serde_json::Number) -> String {
    let told = number.as_str();
    let is_integer = told.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    match (told, told.parse::<f64>()) {
        ("-0", _) => "0".to_owned(),
        (_, Ok(number)) if !is_integer => match number {
            n if n.is_nan() => "nan".to_owned(),
            n if n.is_infinite() => format!("{n}"),
            // Rust has the exponent where Python has it, but without its sign, and a single digit as such.
            n => match format!("{n:?}").split_once('e') {
                Some((digits, exponent)) => match exponent.strip_prefix('-') {
                    Some(exponent) => format!("{digits}e-{exponent:0>2}"),
                    None => format!("{digits}e+{exponent:0>2}"),
                },
                None => format!("{n:?}"),
            },
        },
        _ => told.to_owned(),
    }
}

fn unsigned(bytes: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

fn signed(bytes: &[u8]) -> Option<i64> {
    let negative = bytes.last().is_some_and(|b| b & 0x80 != 0);
    let mut wide = [if negative { 0xff } else { 0 }; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(wide))
}

/// One IEEE 754 number; a NaN other than the canonical one by its bits.
fn float(bytes: &[u8]) -> Option<Value> {
    let bits = unsigned(bytes)?;
    let (number, canonical) = match bytes.len() {
        2 => (half(u16::try_from(bits).ok()?), 0x7e00),
        4 => (f64::from(f32::from_bits(u32::try_from(bits).ok()?)), 0x7fc0_0000),
        _ => (f64::from_bits(bits), 0x7ff8_0000_0000_0000),
    };
    Some(match number {
        n if n.is_nan() && bits == canonical => json!(NAN),
        n if n.is_nan() => json!(format!("0x{bits:0width$x}", width = bytes.len().saturating_mul(2))),
        f64::INFINITY => json!(INFINITY),
        f64::NEG_INFINITY => json!(NEGATIVE_INFINITY),
        n => json!(n),
    })
}

/// The value of a 16-bit number.
fn half(bits: u16) -> f64 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (bits >> 10 & 0x1f, f64::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        e => sign * (fraction + 1024.0) * 2f64.powi(i32::from(e).saturating_sub(25)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_text() {
        // str(json.loads(told)) in Python
        for (told, text) in [
            ("0", "0"),
            ("-0", "0"),
            ("-7", "-7"),
            ("1180591620717411303424", "1180591620717411303424"),
            ("1.50", "1.5"),
            ("-0.0", "-0.0"),
            ("1e3", "1000.0"),
            ("1e15", "1000000000000000.0"),
            ("1e16", "1e+16"),
            ("1.25e100", "1.25e+100"),
            ("0.0001", "0.0001"),
            ("0.00001", "1e-05"),
            ("5e-324", "5e-324"),
            ("1e400", "inf"),
            ("-Infinity", "-inf"),
            ("NaN", "nan"),
        ] {
            let Value::Number(number) = crate::format::json::parse(told.as_bytes()).unwrap() else { panic!("{told}") };
            assert_eq!(number_as_text(&number), text, "{told}");
        }
    }

    #[test]
    fn numbers_of_few_bits() {
        // numpy.array(bits, 'u2').view('f2')
        for (bits, number) in
            [(0x3e00, 1.5), (1, 5.960_464_477_539_063e-8), (0x03ff, 6.097_555_160_522_461e-5), (0xfbff, -65504.0)]
        {
            assert_eq!(half(bits), number);
        }
        assert_eq!(float(&[0, 0, 0xc0, 0x7f]), Some(json!("NaN")));
        assert_eq!(float(&[1, 0, 0xc0, 0x7f]), Some(json!("0x7fc00001")));
        assert_eq!(signed(&[0xf9, 0xff]), Some(-7));
        assert_eq!(unsigned(&[0xf9, 0xff]), Some(0xfff9));
        assert_eq!(time("25us"), json!({"unit": "us", "scale_factor": 25}));
    }
}
