//! Fill values of Zarr v2 in every spelling that writers use: the bytes of one element, and how to show it.
//!
//! Integers that the type cannot hold are errors, never wrapped or cut; floats are rounded, to an infinity if need be. A
//! list of one value is that value (netcdf-c 4.8.0). Bytes are Base64 as Zarr says; netcdf-c writes them as plain text.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{DType, Fill, Swap};
use crate::error::{Error, Result};
use crate::format::dtype::swap;
use crate::format::zarr3::small;
use crate::format::{base64, json};
use serde_json::{Value, json};

/// Integers up to here are exact in a 64-bit float.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// How numpy, and both versions of Zarr, spell a time that is none.
const NOT_A_TIME: &str = "NaT";

/// Reads `fill_value`. `swaps` are those of the stored type, for values that spell the element's stored bytes; `plain` says
/// that byte strings are plain text, as netcdf-c means them.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] naming the value and the type when the type does not hold it.
pub fn parse(value: &Value, dtype: &DType, swaps: &[Swap], plain: bool) -> Result<Fill> {
    if *dtype == DType::Object {
        return Ok(Fill { bytes: None, zarr2: value.clone() });
    }
    let value = match value.as_array().map(Vec::as_slice) {
        Some([only]) => only,
        _ => value,
    };
    if value.is_null() {
        // A time that nobody wrote is none to zarr-python, not the beginning of 1970.
        let time = matches!(dtype, DType::DateTime(_) | DType::TimeDelta(_));
        return Ok(Fill { bytes: time.then(|| i64::MIN.to_le_bytes().to_vec()), zarr2: Value::Null });
    }
    let found = match dtype {
        DType::Bool => boolean(value),
        DType::Int(size) => signed(value, *size).map(|(bytes, n)| (bytes, json!(n))),
        DType::UInt(size) => unsigned(value, *size),
        DType::Float(size) => float(value, *size),
        DType::Complex(size) => complex(value, size >> 1),
        DType::DateTime(_) | DType::TimeDelta(_) if value == NOT_A_TIME => {
            signed(&json!(i64::MIN), 8).map(|(b, n)| (b, time(dtype, n)))
        }
        DType::DateTime(_) | DType::TimeDelta(_) => signed(value, 8).map(|(bytes, n)| (bytes, time(dtype, n))),
        DType::Bytes { length, char } => byte_string(value, *length, *char, plain),
        DType::Text(length) => text(value, *length),
        DType::Void(_) | DType::Struct(_) => packed(value, dtype.size().unwrap_or(0), swaps),
        DType::BFloat16 => bfloat16(value),
        // As tensorstore writes it: this one type as bytes.
        DType::Small("float4_e2m1fn") => packed(value, 1, &[]),
        DType::Small(name) => decimal(value).and_then(|value| Some((vec![small::fill(value, name)?], value.clone()))),
        DType::Object | DType::Opaque => None,
    };
    match found {
        Some((bytes, zarr2)) => Ok(Fill { bytes: Some(bytes), zarr2 }),
        None => Err(Error::corrupt(format!(
            "fill_value: {} is no value of {}",
            json::cite(value),
            json::cite(&super::dtype::spell(dtype))
        ))),
    }
}

type Found = Option<(Vec<u8>, Value)>;

fn boolean(value: &Value) -> Found {
    let set = match integer(value)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    Some((vec![u8::from(set)], Value::Bool(set)))
}

/// The integer that a value means: a number without a fraction (z5 writes `7.0`), a string of digits, a boolean.
pub fn integer(value: &Value) -> Option<i128> {
    let text = match value {
        Value::Bool(set) => return Some(i128::from(*set)),
        Value::Number(n) => n.as_str(),
        Value::String(s) => s.as_str(),
        _ => return None,
    };
    if let Ok(n) = text.parse::<i128>() {
        return Some(n);
    }
    let n = text.parse::<f64>().ok().filter(|n| n.fract() == 0.0)?;
    if n.abs() > EXACT {
        // A power of two or a multiple of one is exact all the same, and a 64-bit number may be written so.
        return format!("{n:.0}").parse().ok();
    }
    #[expect(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
    Some(i128::from(n as i64))
}

fn signed(value: &Value, size: u8) -> Option<(Vec<u8>, i64)> {
    let n = i64::try_from(integer(value)?).ok()?;
    let bytes = match size {
        1 => i8::try_from(n).ok()?.to_le_bytes().to_vec(),
        2 => i16::try_from(n).ok()?.to_le_bytes().to_vec(),
        4 => i32::try_from(n).ok()?.to_le_bytes().to_vec(),
        _ => n.to_le_bytes().to_vec(),
    };
    Some((bytes, n))
}

/// A time as its number of units. Without a unit numpy makes no date of a number, but knows the name of none at all.
pub fn time(dtype: &DType, n: i64) -> Value {
    let nameless = matches!(dtype, DType::DateTime(unit) if unit.is_empty());
    if nameless && n == i64::MIN { json!(NOT_A_TIME) } else { json!(n) }
}

fn unsigned(value: &Value, size: u8) -> Found {
    let n = u64::try_from(integer(value)?).ok()?;
    let bytes = match size {
        1 => u8::try_from(n).ok()?.to_le_bytes().to_vec(),
        2 => u16::try_from(n).ok()?.to_le_bytes().to_vec(),
        4 => u32::try_from(n).ok()?.to_le_bytes().to_vec(),
        _ => n.to_le_bytes().to_vec(),
    };
    Some((bytes, json!(n)))
}

/// One IEEE 754 number of `size` bytes, and its spelling: the source's own where it is finite.
fn float(value: &Value, size: u8) -> Found {
    let text = match value {
        Value::Bool(set) => return float(&json!(u8::from(*set)), size),
        Value::Number(n) => n.as_str(),
        Value::String(s) => s.as_str(),
        _ => return None,
    };
    if let Some(bits) = text.strip_prefix("0x") {
        return hex(bits, size);
    }
    let word = text.trim_start_matches('-').to_ascii_lowercase();
    let number = match word.as_str() {
        "nan" | "nanf" => f64::NAN,
        "inf" | "inff" | "infinity" | "infinityf" if text.starts_with('-') => f64::NEG_INFINITY,
        "inf" | "inff" | "infinity" | "infinityf" => f64::INFINITY,
        _ => text.parse::<f64>().ok().filter(|n| n.is_finite())?,
    };
    let (bytes, number) = narrow(number, size);
    let shown = match value {
        Value::Number(_) if number.is_finite() => value.clone(),
        _ => spell_float(number),
    };
    Some((bytes, shown))
}

/// A number or a word for one. Bits in hexadecimal are Zarr v3's; tensorstore takes them in Zarr v2 for a number.
fn decimal(value: &Value) -> Option<&Value> {
    Some(value).filter(|value| value.is_number() || value.as_str().is_some_and(|text| !text.starts_with("0x")))
}

/// The upper half of a 32-bit number, rounded to the nearest.
pub(super) fn bfloat16(value: &Value) -> Found {
    let (wide, _) = float(decimal(value)?, 4)?;
    let bits = u32::from_le_bytes(*wide.first_chunk()?);
    let upper = bits >> 16;
    let even = upper & 1;
    let is_nan = f32::from_bits(bits).is_nan();
    let rounded = if is_nan { upper } else { bits.saturating_add(0x7fff).saturating_add(even) >> 16 };
    Some((u16::try_from(rounded).ok()?.to_le_bytes().to_vec(), value.clone()))
}

/// The bytes of `number` in `size` bytes, and the number with the infinity in its place that a too large one becomes: all
/// readers round so.
fn narrow(number: f64, size: u8) -> (Vec<u8>, f64) {
    let infinite = f64::INFINITY.copysign(number);
    match size {
        2 => {
            let bits = half(number);
            (bits.to_le_bytes().to_vec(), if bits & 0x7fff == 0x7c00 { infinite } else { number })
        }
        4 => {
            #[expect(clippy::cast_possible_truncation, reason = "rounding to the nearest is what the type means")]
            let single = number as f32;
            (single.to_le_bytes().to_vec(), if single.is_infinite() { infinite } else { number })
        }
        _ => (number.to_le_bytes().to_vec(), number),
    }
}

/// The bits of the 16-bit number nearest to `number`, ties to even.
fn half(number: f64) -> u16 {
    let bits = number.to_bits();
    let sign = u16::from(number.is_sign_negative()) << 15;
    let magnitude = number.abs();
    if number.is_nan() {
        return sign | 0x7e00;
    }
    if magnitude >= 65520.0 {
        return sign | 0x7c00;
    }
    // The distance of neighbours is 2^(e-10), and 2^-24 below the normal numbers. Scaling by it is exact, and so is
    // rounding to the whole number of such steps; what overflows the fraction carries into the exponent as it should.
    let exponent = i32::try_from(bits >> 52 & 0x7ff).unwrap_or(0).saturating_sub(1023).max(-14);
    let steps = (magnitude * 2f64.powi(10_i32.saturating_sub(exponent))).round_ties_even();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^11")]
    let steps = steps as u16;
    let biased = u16::try_from(exponent.saturating_add(14)).unwrap_or(0);
    sign | (biased << 10).saturating_add(steps)
}

/// The number whose big-endian bytes are `digits` in hexadecimal.
fn hex(digits: &str, size: u8) -> Found {
    if digits.len() != usize::from(size).saturating_mul(2) || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let bits = u64::from_str_radix(digits, 16).ok()?;
    let bytes = bits.to_le_bytes().get(..usize::from(size))?.to_vec();
    let number = match size {
        2 => f64::from(f32::from_bits(widened(u16::try_from(bits).ok()?))),
        4 => f64::from(f32::from_bits(u32::try_from(bits).ok()?)),
        8 => f64::from_bits(bits),
        _ => return None,
    };
    Some((bytes, spell_float(number)))
}

/// The bits of a 16-bit number as those of a 32-bit one.
fn widened(half: u16) -> u32 {
    let sign = u32::from(half & 0x8000) << 16;
    let (exponent, fraction) = (half >> 10 & 0x1f, u32::from(half & 0x3ff));
    sign | match (exponent, fraction) {
        (0, 0) => 0,
        (0, _) => {
            // Shifted until its highest bit is the implied one.
            let shift = fraction.leading_zeros().saturating_sub(21);
            (113u32.saturating_sub(shift) << 23) | ((fraction << shift & 0x3ff) << 13)
        }
        (31, _) => 0x7f80_0000 | fraction << 13,
        _ => u32::from(exponent).saturating_add(112) << 23 | fraction << 13,
    }
}

fn spell_float(number: f64) -> Value {
    if number.is_nan() {
        return Value::String(json::NAN.to_owned());
    }
    if number.is_infinite() {
        return Value::String(if number > 0.0 { json::INFINITY } else { json::NEGATIVE_INFINITY }.to_owned());
    }
    json!(number)
}

fn complex(value: &Value, part: u8) -> Found {
    let zero = json!(0.0);
    let (re, im) = match value.as_array().map(Vec::as_slice) {
        Some([re, im]) => (re, im),
        Some(_) => return None,
        None => (value, &zero),
    };
    let (mut bytes, re) = float(re, part)?;
    let (more, im) = float(im, part)?;
    bytes.extend(more);
    Some((bytes, Value::Array(vec![re, im])))
}

/// A byte string, padded with NUL. Base64 wherever it can be that, for so Zarr says, except where `plain`.
fn byte_string(value: &Value, length: usize, char: bool, plain: bool) -> Found {
    let text = match value {
        // In bytes they would be others.
        Value::String(text) if json::has_halves(text) => return None,
        Value::String(text) => text.as_str(),
        // netcdf-c takes the text of whatever stands there.
        Value::Number(digit) if char && digit.as_str().len() == 1 => digit.as_str(),
        _ if integer(value) == Some(0) && !char => "",
        _ => return None,
    };
    let decoded = base64::decode(text).filter(|bytes| !(plain || char) && bytes.len() <= length);
    let mut bytes = match decoded {
        Some(bytes) => bytes,
        None if text.len() <= length => text.as_bytes().to_vec(),
        // A character may be spelled either way.
        None => base64::decode(text).filter(|bytes| bytes.len() <= length)?,
    };
    let shown = match text.is_empty() || char {
        true => Value::String(text.to_owned()),
        false => Value::String(base64::encode(&bytes)),
    };
    bytes.resize(length, 0);
    Some((bytes, shown))
}

fn text(value: &Value, length: usize) -> Found {
    let text = match value {
        // In bytes they would be others.
        Value::String(text) if json::has_halves(text) => return None,
        Value::String(text) => text.as_str(),
        _ if integer(value) == Some(0) => "",
        _ => return None,
    };
    let size = length.checked_mul(4)?;
    let mut bytes: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    if bytes.len() > size {
        return None;
    }
    bytes.resize(size, 0);
    Some((bytes, Value::String(text.to_owned())))
}

/// The Base64 of a whole stored element; zero stands for zeros.
fn packed(value: &Value, size: usize, swaps: &[Swap]) -> Found {
    let mut bytes = match value {
        Value::String(text) if text.is_empty() => vec![0; size],
        Value::String(text) => base64::decode(text).filter(|bytes| bytes.len() == size)?,
        _ if integer(value) == Some(0) => vec![0; size],
        _ => return None,
    };
    swap(&mut bytes, swaps);
    let shown = Value::String(base64::encode(&bytes));
    Some((bytes, shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::dtype;

    fn read(fill: &str, dtype: &str) -> Result<Fill> {
        let spelled = dtype::parse(&serde_json::from_str(dtype).unwrap()).unwrap();
        parse(&json::parse(fill.as_bytes()).unwrap(), &spelled.dtype, &spelled.swaps, false)
    }

    fn hexed(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    // Bytes are those of numpy.array(value, dtype).tobytes() with a little-endian dtype.
    #[test]
    fn bytes_as_numpy_has_them() {
        for (fill, dtype, bytes) in [
            ("7.0", "\"<i4\"", "07000000"),
            ("-7", "\"<i2\"", "f9ff"),
            ("[-32767]", "\"<i2\"", "0180"),
            ("18446744073709551614", "\"<u8\"", "feffffffffffffff"),
            ("-9223372036854775808", "\"<i8\"", "0000000000000080"),
            ("1e3", "\"<u2\"", "e803"),
            ("9.223372036854775808e18", "\"<u8\"", "0000000000000080"),
            ("\"250\"", "\"|u1\"", "fa"),
            ("16909060", "\">u4\"", "04030201"),
            ("true", "\"|b1\"", "01"),
            ("0", "\"|b1\"", "00"),
            ("0.1", "\"<f8\"", "9a9999999999b93f"),
            ("9.96921e+36", "\"<f4\"", "0000f07c"),
            ("1e39", "\"<f4\"", "0000807f"),
            ("-65520", "\"<f2\"", "00fc"),
            ("65519", "\"<f2\"", "ff7b"),
            ("1.5", "\"<f2\"", "003e"),
            ("65504", "\"<f2\"", "ff7b"),
            ("6e-8", "\"<f2\"", "0100"),
            ("6.1e-5", "\"<f2\"", "ff03"),
            ("0.1", "\"<f2\"", "662e"),
            ("2049", "\"<f2\"", "0068"),
            ("\"NaN\"", "\"<f2\"", "007e"),
            ("NaN", "\"<f4\"", "0000c07f"),
            ("\"-Infinity\"", "\"<f8\"", "000000000000f0ff"),
            ("\"0x7fc00001\"", "\"<f4\"", "0100c07f"),
            ("[1.5, -2.0]", "\"<c8\"", "0000c03f000000c0"),
            ("[\"NaN\", \"-Infinity\"]", "\"<c16\"", "000000000000f87f000000000000f0ff"),
            ("2", "\"<c8\"", "0000004000000000"),
            ("11356", "\"<M8[D]\"", "5c2c000000000000"),
            ("\"NaT\"", "\"<m8[s]\"", "0000000000000080"),
            ("\"/wB6\"", "\"|S4\"", "ff007a00"),
            ("\"\"", "\"|S2\"", "0000"),
            ("\"-\"", "\"|S2\"", "2d00"),
            ("\"x\"", "\">S1\"", "78"),
            ("\"0\"", "\">S1\"", "30"),
            // netCDF-C 4.10.1's.
            ("0", "\">S1\"", "30"),
            ("\"fé\"", "\"<U3\"", "66000000e900000000000000"),
            ("0", "\"<U1\"", "00000000"),
            ("\"AQID\"", r#"[["r","|u1"],["g","|u1"],["b","|u1"]]"#, "010203"),
            ("\"AQID\"", r#"[["r","|u1"],["g",">u2"]]"#, "010302"),
            ("0", "\"|V3\"", "000000"),
        ] {
            assert_eq!(hexed(&read(fill, dtype).unwrap().bytes.unwrap()), bytes, "{fill} {dtype}");
        }
        // netcdf-c's text, which could be Base64 as well.
        let spelled = dtype::parse(&json!("|S4")).unwrap();
        for (plain, bytes) in [(false, "01020300"), (true, "41514944")] {
            let fill = parse(&json!("AQID"), &spelled.dtype, &spelled.swaps, plain).unwrap();
            assert_eq!(hexed(&fill.bytes.unwrap()), bytes, "{plain}");
        }
        // numpy.array(value).astype(ml_dtypes.bfloat16).tobytes(), ml_dtypes 0.6.0: ties go to the even one.
        for (fill, bytes) in [("1.00390625", "803f"), ("1.01171875", "823f"), ("-1.01171875", "82bf"), ("3.4e38", "807f")] {
            assert_eq!(hexed(&read(fill, "\"bfloat16\"").unwrap().bytes.unwrap()), bytes, "{fill}");
        }
        // zarr-python 3.1.6 reads NaT from an array without chunks, and zeros of the others.
        for dtype in ["\"<M8[s]\"", "\">m8[ns]\""] {
            let fill = read("null", dtype).unwrap();
            assert_eq!((hexed(&fill.bytes.unwrap()).as_str(), fill.zarr2), ("0000000000000080", Value::Null));
        }
        for dtype in ["\"<i4\"", "\"|V3\"", "\"|S3\""] {
            assert_eq!(read("null", dtype).unwrap().bytes, None);
        }
    }

    #[test]
    fn shown_as_close_to_the_source_as_is_valid() {
        for (fill, dtype, shown) in [
            ("7.0", "\"<i4\"", "7"),
            ("9.96921e+36", "\"<f4\"", "9.96921e+36"),
            ("0", "\"<f4\"", "0"),
            ("-1e39", "\"<f4\"", "\"-Infinity\""),
            ("NaN", "\"<f4\"", "\"NaN\""),
            ("[9.96921e+36]", "\"<f8\"", "9.96921e+36"),
            ("\"NaT\"", "\"<M8[s]\"", "-9223372036854775808"),
            ("2", "\"<c8\"", "[2,0.0]"),
            ("\"AQID\"", r#"[["r","|u1"],["g",">u2"]]"#, "\"AQMC\""),
            ("\"NaT\"", "\">M8\"", "\"NaT\""),
            ("\"NaT\"", "\"<M8[generic]\"", "\"NaT\""),
            ("\"NaT\"", "\"<m8\"", "-9223372036854775808"),
            ("\"\"", "\"|S2\"", "\"\""),
            // repr(float(numpy.array(bits, "u2").view("f2")))
            ("\"0x0001\"", "\"<f2\"", "5.960464477539063e-8"),
            ("\"0x8003\"", "\"<f2\"", "-1.7881393432617188e-7"),
        ] {
            assert_eq!(read(fill, dtype).unwrap().zarr2.to_string(), shown, "{fill} {dtype}");
        }
    }

    #[test]
    fn what_the_type_does_not_hold() {
        for (fill, dtype) in [
            ("70000", "\"<u2\""),
            ("-1", "\"<u2\""),
            ("1.5", "\"<i4\""),
            ("\"NaN\"", "\"<i4\""),
            ("2", "\"|b1\""),
            ("18446744073709551616", "\"<u8\""),
            ("1e400", "\"<f8\""),
            ("\"x\"", "\"<f4\""),
            ("{}", "\"<f4\""),
            ("[1, 2]", "\"<f4\""),
            ("[1, 2, 3]", "\"<c8\""),
            ("\"abcdefg\"", "\"|S2\""),
            ("\"abc\"", "\"<U2\""),
            ("\"AQI\"", "\"|V3\""),
            ("\"AQ==\"", "\"|V3\""),
            ("1", "\"|V3\""),
        ] {
            let e = read(fill, dtype).unwrap_err();
            assert!(e.reason().starts_with("fill_value: "), "{fill} {dtype}: {e}");
        }
    }
}
