//! Data types in the spelling of Zarr v2, which is numpy's: what an element is, and which of its bytes are swapped.
//!
//! Read are all types of fixed size, nested structures and fields that are arrays included, each with its own byte order, `|O`, and
//! the numbers that numpy has no name for by those of tensorstore. What is written is little-endian, and `|` where byte order means nothing.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::array::{DType, Field, Swap};
use crate::error::{Error, Result};
use crate::format::json;
use crate::limits;
use serde_json::{Value, json};

/// Most runs of numbers to swap in one element; a structure of arrays of structures multiplies them.
const SWAPS: usize = 1 << 16;

/// Units of time that numpy knows.
const UNITS: &[&str] = &["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "μs", "ns", "ps", "fs", "as", "generic"];

/// A data type as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spelled {
    /// What an element is.
    pub dtype: DType,
    /// What to reverse so that it is little-endian.
    pub swaps: Vec<Swap>,
}

/// Reads `dtype` of a `.zarray` document.
///
/// # Errors
/// [`crate::error::Kind::Unsupported`] for types that are not read, by name, [`crate::error::Kind::TooBig`] over
/// [`limits::ITEM`], [`limits::FIELDS`] or [`limits::DTYPE_DEPTH`].
pub fn parse(value: &Value) -> Result<Spelled> {
    let mut reader = Reader { fields: 0, swaps: Vec::new() };
    let dtype = reader.dtype(value, limits::DTYPE_DEPTH)?;
    if let Some(size) = bounded(&dtype)? {
        reader.swaps_of(value, &dtype, 0)?;
        debug_assert!(reader.swaps.iter().all(|s| s.offset < size));
    }
    Ok(Spelled { dtype, swaps: reader.swaps })
}

/// The spelling of what is shown.
pub fn spell(dtype: &DType) -> Value {
    let name = match dtype {
        DType::Bool => "|b1".to_owned(),
        DType::Int(1) => "|i1".to_owned(),
        DType::UInt(1) => "|u1".to_owned(),
        DType::Int(n) => format!("<i{n}"),
        DType::UInt(n) => format!("<u{n}"),
        DType::Float(n) => format!("<f{n}"),
        // The names that tensorstore gives them in Zarr v2 too, which has none itself.
        DType::BFloat16 => "bfloat16".to_owned(),
        DType::Small(name) => (*name).to_owned(),
        DType::Opaque => "a type that is not known".to_owned(),
        DType::Complex(n) => format!("<c{n}"),
        // netcdf-c tells its characters from strings of length one by the byte order.
        DType::Bytes { char: true, .. } => ">S1".to_owned(),
        DType::Bytes { length, .. } => format!("|S{length}"),
        DType::Text(n) => format!("<U{n}"),
        DType::Void(n) => format!("|V{n}"),
        DType::DateTime(unit) => format!("<M8{}", bracketed(unit)),
        DType::TimeDelta(unit) => format!("<m8{}", bracketed(unit)),
        DType::Object => "|O".to_owned(),
        DType::Struct(fields) => {
            let fields = fields.iter().map(|f| match f.shape.is_empty() {
                true => json!([f.name, spell(&f.dtype)]),
                false => json!([f.name, spell(&f.dtype), f.shape]),
            });
            return Value::Array(fields.collect());
        }
    };
    Value::String(name)
}

/// Reverses the bytes of `element` that `swaps` name, so that a stored element becomes a shown one.
pub fn swap(element: &mut [u8], swaps: &[Swap]) {
    for run in swaps {
        let end = run.width.checked_mul(run.count).and_then(|n| n.checked_add(run.offset));
        if let Some(bytes) = end.and_then(|end| element.get_mut(run.offset..end)) {
            bytes.chunks_exact_mut(run.width.max(1)).for_each(<[u8]>::reverse);
        }
    }
}

fn bracketed(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { format!("[{unit}]") }
}

/// The size of an element, within [`limits::ITEM`]; `None` for objects.
pub(super) fn bounded(dtype: &DType) -> Result<Option<usize>> {
    if matches!(dtype, DType::Object | DType::Opaque) {
        return Ok(None);
    }
    match dtype.size() {
        Some(size) if u64::try_from(size).is_ok_and(|n| n <= limits::ITEM) => Ok(Some(size)),
        _ => Err(Error::too_big(format!("dtype: an element over {} bytes", limits::ITEM))),
    }
}

struct Reader {
    fields: usize,
    swaps: Vec<Swap>,
}

impl Reader {
    fn dtype(&mut self, value: &Value, depth: usize) -> Result<DType> {
        match value {
            Value::String(name) => simple(name),
            Value::Array(fields) if !fields.is_empty() => {
                let below = depth
                    .checked_sub(1)
                    .ok_or_else(|| Error::too_big(format!("dtype: nested deeper than {}", limits::DTYPE_DEPTH)))?;
                self.fields = self.fields.saturating_add(fields.len());
                if self.fields > limits::FIELDS {
                    return Err(Error::too_big(format!("dtype: more than {} fields", limits::FIELDS)));
                }
                let fields = fields.iter().map(|f| self.field(f, below)).collect::<Result<Vec<_>>>()?;
                // Gaps between fields have no name, as numpy spells them.
                let mut names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).filter(|name| !name.is_empty()).collect();
                names.sort_unstable();
                if names.windows(2).any(|pair| pair.first() == pair.last()) {
                    return Err(Error::corrupt("dtype: two fields of one name"));
                }
                Ok(DType::Struct(fields))
            }
            other => Err(Error::corrupt(format!("dtype: {} is no data type", json::cite(other)))),
        }
    }

    fn field(&mut self, value: &Value, depth: usize) -> Result<Field> {
        let bad = || Error::corrupt(format!("dtype: {} is no field; [name, type] or [name, type, shape] is", json::cite(value)));
        let (name, dtype, shape) = match value.as_array().map(Vec::as_slice) {
            Some([Value::String(name), dtype]) => (name, dtype, None),
            Some([Value::String(name), dtype, shape]) => (name, dtype, Some(shape)),
            _ => return Err(bad()),
        };
        let dtype = self.dtype(dtype, depth)?;
        if bounded(&dtype)?.is_none() {
            return Err(Error::unsupported(format!("dtype: field {name:?} holds objects")));
        }
        let shape = match shape {
            None => Vec::new(),
            Some(Value::Number(n)) => vec![n.as_u64().ok_or_else(bad)?],
            Some(Value::Array(axes)) => axes.iter().map(|n| n.as_u64().ok_or_else(bad)).collect::<Result<_>>()?,
            Some(_) => return Err(bad()),
        };
        if shape.len() > limits::RANK {
            return Err(Error::too_big(format!("dtype: a field of {} axes; at most {} are read", shape.len(), limits::RANK)));
        }
        let field = Field { name: name.clone(), dtype, shape };
        match field.size() {
            Some(size) if u64::try_from(size).is_ok_and(|n| n <= limits::ITEM) => Ok(field),
            _ => Err(Error::too_big(format!("dtype: field {name:?} over {} bytes", limits::ITEM))),
        }
    }

    /// Collects what is big-endian in `dtype`, spelled `value`, at `offset`.
    fn swaps_of(&mut self, value: &Value, dtype: &DType, offset: usize) -> Result<()> {
        match (dtype, value) {
            (DType::Struct(fields), Value::Array(spelled)) => {
                let mut at = offset;
                for (field, spelled) in fields.iter().zip(spelled) {
                    let (Some(whole), Some(one), Some(inner)) = (field.size(), field.dtype.size(), spelled.get(1)) else {
                        continue;
                    };
                    if let DType::Struct(_) = field.dtype {
                        let count = whole.checked_div(one).unwrap_or(0);
                        let before = self.swaps.len();
                        for i in 0..count {
                            self.swaps_of(inner, &field.dtype, at.saturating_add(one.saturating_mul(i)))?;
                            if self.swaps.len() == before {
                                break;
                            }
                        }
                    } else {
                        self.numbers(inner, &field.dtype, at, whole)?;
                    }
                    at = at.saturating_add(whole);
                }
                Ok(())
            }
            _ => self.numbers(value, dtype, offset, dtype.size().unwrap_or(0)),
        }
    }

    /// Collects the numbers of `dtype` that fill `bytes` bytes from `offset`, where `value` spells them big-endian.
    fn numbers(&mut self, value: &Value, dtype: &DType, offset: usize, bytes: usize) -> Result<()> {
        let width = match dtype {
            DType::Int(n) | DType::UInt(n) | DType::Float(n) => usize::from(*n),
            DType::Complex(n) => usize::from(n >> 1),
            DType::Text(_) => 4,
            DType::DateTime(_) | DType::TimeDelta(_) => 8,
            _ => 1,
        };
        let count = bytes.checked_div(width).unwrap_or(0);
        if width > 1 && count > 0 && value.as_str().is_some_and(|name| name.starts_with('>')) {
            if self.swaps.len() >= SWAPS {
                return Err(Error::too_big(format!("dtype: more than {SWAPS} runs of big-endian numbers")));
            }
            self.swaps.push(Swap { offset, width, count });
        }
        Ok(())
    }
}

/// Types that tensorstore writes by names of its own, one byte an element but for the first, which has two, little-endian.
const TENSORSTORE: &[&str] = &[
    "bfloat16",
    "float4_e2m1fn",
    "float8_e3m4",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "int2",
    "int4",
];

/// A type that is one word, like `<f4`, `|S7` or `>M8[25us]`.
///
/// Byte order may be missing or `|` or `=`: numpy reads that as the machine's own, which has been little-endian wherever
/// these files are written.
fn simple(name: &str) -> Result<DType> {
    let unknown = || Error::unsupported(format!("dtype: {} is not read", json::cite(&Value::String(name.to_owned()))));
    if let Some(&name) = TENSORSTORE.iter().find(|known| **known == name) {
        return Ok(if name == "bfloat16" { DType::BFloat16 } else { DType::Small(name) });
    }
    let rest = name.strip_prefix(['<', '>', '|', '=']).unwrap_or(name);
    let mut chars = rest.chars();
    let letter = chars.next().ok_or_else(unknown)?;
    let rest = chars.as_str();
    if matches!(letter, 'M' | 'm') {
        let unit = unit(rest).ok_or_else(unknown)?;
        return Ok(if letter == 'M' { DType::DateTime(unit) } else { DType::TimeDelta(unit) });
    }
    if letter == 'O' && rest.is_empty() {
        return Ok(DType::Object);
    }
    if rest.is_empty() || rest.len() > 19 || !rest.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unknown());
    }
    let size = rest.parse::<usize>().map_err(|_| unknown())?;
    let small = u8::try_from(size).unwrap_or(0);
    let dtype = match (letter, small) {
        ('b', 1) => DType::Bool,
        ('i', 1 | 2 | 4 | 8) => DType::Int(small),
        ('u', 1 | 2 | 4 | 8) => DType::UInt(small),
        ('f', 2 | 4 | 8) => DType::Float(small),
        ('c', 8 | 16) => DType::Complex(small),
        ('S' | 'a', _) => DType::Bytes { length: size, char: name == ">S1" },
        ('U', _) => DType::Text(size),
        ('V', _) => DType::Void(size),
        ('O', 8) => DType::Object,
        _ => return Err(unknown()),
    };
    bounded(&dtype)?;
    Ok(dtype)
}

/// Whether numpy has a unit of this name.
pub(super) fn is_unit(name: &str) -> bool {
    UNITS.contains(&name)
}

/// The unit of `8[25us]`; empty for `8`, which is numpy's generic unit.
fn unit(rest: &str) -> Option<String> {
    let rest = rest.strip_prefix('8')?;
    if rest.is_empty() {
        return Some(String::new());
    }
    let inner = rest.strip_prefix('[')?.strip_suffix(']')?;
    if inner == "generic" {
        return Some(String::new());
    }
    let name = inner.trim_start_matches(|c: char| c.is_ascii_digit());
    let factor = inner.strip_suffix(name)?;
    let sane = factor.is_empty() || factor.parse::<i32>().is_ok_and(|n| n > 0);
    (sane && is_unit(name)).then(|| inner.replace('μ', "u"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn read(text: &str) -> Result<Spelled> {
        parse(&serde_json::from_str(text).unwrap())
    }

    // Sizes and offsets are numpy 2.4's.
    #[test]
    fn numpy_spellings() {
        for (text, size, shown) in [
            ("\"|b1\"", 1, "\"|b1\""),
            ("\"<u1\"", 1, "\"|u1\""),
            ("\"=i2\"", 2, "\"<i2\""),
            ("\"f4\"", 4, "\"<f4\""),
            ("\">c16\"", 16, "\"<c16\""),
            ("\"|S7\"", 7, "\"|S7\""),
            ("\">S1\"", 1, "\">S1\""),
            ("\">S2\"", 2, "\"|S2\""),
            ("\"|S0\"", 0, "\"|S0\""),
            ("\">U4\"", 16, "\"<U4\""),
            ("\"|V5\"", 5, "\"|V5\""),
            ("\">M8[25us]\"", 8, "\"<M8[25us]\""),
            ("\"<m8\"", 8, "\"<m8\""),
            ("\">M8[generic]\"", 8, "\"<M8\""),
        ] {
            let got = read(text).unwrap();
            assert_eq!(got.dtype.size(), Some(size), "{text}");
            assert_eq!(spell(&got.dtype).to_string(), shown, "{text}");
        }
        assert_eq!(read("\"|O\"").unwrap().dtype, DType::Object);
    }

    #[test]
    fn swaps_of_nested_structures() {
        // numpy.dtype([('a','i1'),('p',[('x','>i2'),('y','<f8'),('z','>c8')],(2,)),('u','>U3'),('e','>u4',(2,2))]).itemsize is 65.
        let got = read(r#"[["a","|i1"],["p",[["x",">i2"],["y","<f8"],["z",">c8"]],[2]],["u",">U3"],["e",">u4",[2,2]]]"#).unwrap();
        assert_eq!(got.dtype.size(), Some(65));
        let runs: Vec<_> = got.swaps.iter().map(|s| (s.offset, s.width, s.count)).collect();
        assert_eq!(runs, [(1, 2, 1), (11, 4, 2), (19, 2, 1), (29, 4, 2), (37, 4, 3), (49, 4, 4)]);
        let mut element: Vec<u8> = (0..65).collect();
        swap(&mut element, &got.swaps);
        assert_eq!(&element[..4], [0, 2, 1, 3]);
        assert_eq!(&element[61..], [64, 63, 62, 61]);
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            "\"<q9\"",
            "\"<f16\"",
            "\"<i3\"",
            "\"\"",
            "\"<\"",
            "\"<M8[x]\"",
            "\"<M8[0s]\"",
            "\"<M8[s\"",
            "\"|S\"",
            "\"|S-1\"",
            "\"é\"",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), Kind::Unsupported, "{bad}");
        }
        for bad in [
            "1",
            "null",
            "[]",
            "{}",
            "[1]",
            "[[\"a\"]]",
            "[[1,\"<i4\"]]",
            "[[\"a\",\"<i4\",[-1]]]",
            "[[\"a\",\"<i4\"],[\"a\",\"<i4\"]]",
        ] {
            assert_eq!(read(bad).unwrap_err().kind(), Kind::Corrupt, "{bad}");
        }
        for bad in [
            "\"|S9999999999999999999\"".to_owned(),
            "\"<U4611686018427387905\"".to_owned(),
            r#"[["a","<i4",[4294967296,4294967296,4]]]"#.to_owned(),
            format!("{}\"<i4\"{}", "[[\"a\",".repeat(20), "]]".repeat(20)),
        ] {
            assert_eq!(read(&bad).unwrap_err().kind(), Kind::TooBig, "{bad}");
        }
        assert_eq!(read(r#"[["a","|O"]]"#).unwrap_err().kind(), Kind::Unsupported);
    }
}
