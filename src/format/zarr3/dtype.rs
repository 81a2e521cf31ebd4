//! Data types in the spelling of Zarr v3: the core's, and the extensions that have a fixed size, or a codec that stays.
//!
//! A type is a name or an object with name and configuration. What is read keeps its spelling, for other software wrote it. A
//! type that is not known is no error: its elements stay as they were made bytes of, for readers that know it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::{Members, beside, named, small, understood};
use crate::array::{DType, Field, Swap};
use crate::error::{Error, Result};
use crate::format::{dtype, json};
use crate::limits;
use serde_json::Value;

/// A data type as it is spelled.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    /// What an element is.
    pub dtype: DType,
    /// Whether readers disagree about a codec `bytes` that says big-endian: of `structured`, whose fields zarr-python reads
    /// and writes little-endian whatever it says.
    pub disputed: bool,
    /// The source's own words.
    pub spelled: Value,
}

/// Reads `data_type`.
///
/// # Errors
/// [`crate::error::Kind::Corrupt`] for a known type that contradicts itself, [`crate::error::Kind::TooBig`] over
/// [`limits::ITEM`], [`limits::FIELDS`] or [`limits::DTYPE_DEPTH`].
pub(super) fn parse(value: &Value) -> Result<Typed> {
    let mut reader = Reader { fields: 0, disputed: false };
    let dtype = reader.dtype(value, limits::DTYPE_DEPTH)?;
    dtype::bounded(&dtype)?;
    Ok(Typed { dtype, disputed: reader.disputed, spelled: value.clone() })
}

struct Reader {
    fields: usize,
    disputed: bool,
}

impl Reader {
    fn dtype(&mut self, value: &Value, depth: usize) -> Result<DType> {
        let (name, configuration) = named(value)?;
        let dtype = self.named(name, configuration, depth)?;
        if dtype != DType::Opaque {
            beside(name, value)?;
        }
        Ok(dtype)
    }

    fn named(&mut self, name: &str, configuration: &Members, depth: usize) -> Result<DType> {
        let plain = match name {
            "bool" => DType::Bool,
            "int8" => DType::Int(1),
            "int16" => DType::Int(2),
            "int32" => DType::Int(4),
            "int64" => DType::Int(8),
            "uint8" => DType::UInt(1),
            "uint16" => DType::UInt(2),
            "uint32" => DType::UInt(4),
            "uint64" => DType::UInt(8),
            "float16" => DType::Float(2),
            "float32" => DType::Float(4),
            "float64" => DType::Float(8),
            "bfloat16" => DType::BFloat16,
            "complex64" | "complex_float32" => DType::Complex(8),
            "complex128" | "complex_float64" => DType::Complex(16),
            "string" | "bytes" | "variable_length_bytes" => DType::Object,
            _ => return self.configured(name, configuration, depth),
        };
        understood(configuration, &[])?;
        Ok(plain)
    }

    fn configured(&mut self, name: &str, configuration: &Members, depth: usize) -> Result<DType> {
        Ok(match name {
            "null_terminated_bytes" => DType::Bytes { length: length(configuration)?, char: false },
            "raw_bytes" => DType::Void(length(configuration)?),
            "fixed_length_utf32" => {
                let bytes = length(configuration)?;
                if bytes % 4 != 0 {
                    return Err(Error::corrupt(format!("fixed_length_utf32 of {bytes} bytes, no multiple of 4")));
                }
                DType::Text(bytes / 4)
            }
            "numpy.datetime64" => DType::DateTime(unit(configuration)?),
            "numpy.timedelta64" => DType::TimeDelta(unit(configuration)?),
            "structured" | "struct" => {
                self.disputed |= name == "structured";
                self.structure(configuration, depth)?
            }
            _ => small::named(name).map(DType::Small).or_else(|| raw(name)).unwrap_or(DType::Opaque),
        })
    }

    fn structure(&mut self, configuration: &Members, depth: usize) -> Result<DType> {
        let below = depth.checked_sub(1).ok_or_else(|| Error::too_big(format!("nested deeper than {}", limits::DTYPE_DEPTH)))?;
        understood(configuration, &["fields"])?;
        let list = configuration.get("fields").and_then(Value::as_array).filter(|list| !list.is_empty());
        let list = list.ok_or_else(|| Error::corrupt("a structure without a list `fields`"))?;
        self.fields = self.fields.saturating_add(list.len());
        if self.fields > limits::FIELDS {
            return Err(Error::too_big(format!("more than {} fields", limits::FIELDS)));
        }
        let fields = list.iter().map(|field| self.field(field, below)).collect::<Result<Vec<_>>>()?;
        if fields.iter().any(|field| field.size().is_none()) {
            return Ok(DType::Opaque);
        }
        let mut names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Error::corrupt("two fields of one name"));
        }
        let dtype = DType::Struct(fields);
        dtype::bounded(&dtype)?;
        Ok(dtype)
    }

    fn field(&mut self, value: &Value, depth: usize) -> Result<Field> {
        let pair = match value {
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(name), dtype] => Some((name, dtype)),
                _ => None,
            },
            Value::Object(members) => match (members.get("name"), members.get("data_type")) {
                (Some(Value::String(name)), Some(dtype)) => {
                    understood(members, &["name", "data_type"])?;
                    Some((name, dtype))
                }
                _ => None,
            },
            _ => None,
        };
        let (name, dtype) = pair.ok_or_else(|| Error::corrupt(format!("{} is no field", json::cite(value))))?;
        let dtype = self.dtype(dtype, depth)?;
        dtype::bounded(&dtype)?;
        Ok(Field { name: name.clone(), dtype, shape: Vec::new() })
    }
}

/// `r24`: three bytes without meaning.
fn raw(name: &str) -> Option<DType> {
    let bits = name.strip_prefix('r').filter(|n| !n.is_empty() && n.len() < 19 && n.bytes().all(|b| b.is_ascii_digit()))?;
    let bits = bits.parse::<usize>().ok().filter(|bits| *bits > 0 && bits % 8 == 0)?;
    Some(DType::Void(bits / 8))
}

fn length(configuration: &Members) -> Result<usize> {
    understood(configuration, &["length_bytes"])?;
    let value = configuration.get("length_bytes").unwrap_or(&Value::Null);
    let length = value.as_u64().and_then(|n| usize::try_from(n).ok());
    length.ok_or_else(|| Error::corrupt(format!("length_bytes: {} is no number of bytes", json::cite(value))))
}

/// numpy's spelling of a unit and a factor: `s`, `25us`, nothing for the generic one.
fn unit(configuration: &Members) -> Result<String> {
    understood(configuration, &["unit", "scale_factor"])?;
    let unit = configuration.get("unit").and_then(Value::as_str).filter(|unit| dtype::is_unit(unit));
    let factor = configuration.get("scale_factor").map_or(Some(1), |n| n.as_u64().filter(|n| (1..1 << 31).contains(n)));
    match (unit, factor) {
        (Some("generic"), Some(1)) => Ok(String::new()),
        (Some("generic"), _) | (None, _) | (_, None) => {
            Err(Error::corrupt(format!("{} is no unit of time", json::cite(&Value::Object(configuration.clone())))))
        }
        (Some(unit), Some(1)) => Ok(unit.replace('μ', "u")),
        (Some(unit), Some(n)) => Ok(format!("{n}{}", unit.replace('μ', "u"))),
    }
}

/// What to reverse in an element that is stored big-endian.
pub(super) fn big_endian(dtype: &DType) -> Vec<Swap> {
    let mut swaps = Vec::new();
    collect(dtype, 0, &mut swaps);
    swaps
}

fn collect(dtype: &DType, offset: usize, swaps: &mut Vec<Swap>) {
    let (width, count) = match dtype {
        DType::Int(n) | DType::UInt(n) | DType::Float(n) => (usize::from(*n), 1),
        DType::BFloat16 => (2, 1),
        DType::Complex(n) => (usize::from(n >> 1), 2),
        DType::Text(n) => (4, *n),
        DType::DateTime(_) | DType::TimeDelta(_) => (8, 1),
        DType::Struct(fields) => {
            let mut at = offset;
            for field in fields {
                collect(&field.dtype, at, swaps);
                at = at.saturating_add(field.size().unwrap_or(0));
            }
            return;
        }
        DType::Bool | DType::Small(_) | DType::Bytes { .. } | DType::Void(_) | DType::Object | DType::Opaque => return,
    };
    if width > 1 && count > 0 {
        swaps.push(Swap { offset, width, count });
    }
}
