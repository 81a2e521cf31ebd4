//! numcodecs' filters that calculate: `delta`, `fixedscaleoffset`, `astype`, `quantize`.
//!
//! The arithmetic is numpy's: integers wrap around, floating-point results are rounded to the type numpy promotes to after
//! every step. What numpy leaves undefined (a float cast to an integer type that does not hold it) is an error, because
//! readers disagree about it. Stored and decoded elements each have their own byte order.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::Length;
use crate::error::{Error, Result};
use crate::memory::room;

/// The kinds of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// 0 or 1.
    Bool,
    /// Signed integer, two's complement.
    Int,
    /// Unsigned integer.
    UInt,
    /// IEEE 754.
    Float,
}

/// A type of numbers with its byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    kind: Kind,
    size: u8,
    big: bool,
}

impl Number {
    /// The type that numpy spells so (`<i2`, `|u1`, `>f8`, also `float32`); `None` for types that are not plain numbers.
    pub fn parse(text: &str) -> Option<Self> {
        let (big, code) = match text.as_bytes() {
            [b'<' | b'|' | b'=', ..] => (false, text.get(1..)?),
            [b'>', ..] => (true, text.get(1..)?),
            _ => (false, text),
        };
        let (kind, size) = match code {
            "b1" | "bool" | "?" => (Kind::Bool, 1),
            "i1" | "int8" => (Kind::Int, 1),
            "i2" | "int16" => (Kind::Int, 2),
            "i4" | "int32" => (Kind::Int, 4),
            "i8" | "int64" => (Kind::Int, 8),
            "u1" | "uint8" => (Kind::UInt, 1),
            "u2" | "uint16" => (Kind::UInt, 2),
            "u4" | "uint32" => (Kind::UInt, 4),
            "u8" | "uint64" => (Kind::UInt, 8),
            "f2" | "float16" => (Kind::Float, 2),
            "f4" | "float32" => (Kind::Float, 4),
            "f8" | "float64" => (Kind::Float, 8),
            _ => return None,
        };
        Some(Self { kind, size, big })
    }

    /// Bytes of one number.
    pub fn size(self) -> usize {
        usize::from(self.size)
    }

    /// The same type, stored big-endian.
    pub fn big_endian(self) -> Self {
        Self { big: self.size > 1, ..self }
    }

    /// The same type, stored little-endian.
    pub fn little_endian(self) -> Self {
        Self { big: false, ..self }
    }

    /// numpy's spelling.
    pub fn spelled(self) -> String {
        let letter = match self.kind {
            Kind::Bool => 'b',
            Kind::Int => 'i',
            Kind::UInt => 'u',
            Kind::Float => 'f',
        };
        format!("{}{letter}{}", if self.big { '>' } else { '<' }, self.size)
    }

    /// What kind of number it is.
    pub fn kind(self) -> Kind {
        self.kind
    }

    fn is_integer(self) -> bool {
        matches!(self.kind, Kind::Int | Kind::UInt)
    }

    /// Size of the float type that numpy promotes this type and floats of `size` bytes to.
    fn promoted(self, size: u8) -> u8 {
        let own = match (self.kind, self.size) {
            (Kind::Float, n) => n,
            (Kind::Bool, _) | (_, 1) => 2,
            (_, 2) => 4,
            _ => 8,
        };
        own.max(size)
    }

    /// The number whose bits are `bits` (sign-extended), as the nearest double.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "rounding is what numpy does too")]
    fn to_f64(self, bits: u64) -> f64 {
        match (self.kind, self.size) {
            (Kind::Float, 2) => half_to_f64(low16(bits)),
            (Kind::Float, 4) => f64::from(f32::from_bits(low32(bits))),
            (Kind::Float, _) => f64::from_bits(bits),
            (Kind::Int, _) => bits as i64 as f64,
            (Kind::UInt | Kind::Bool, _) => bits as f64,
        }
    }

    /// The bits of `value` cast to this type; `None` where an integer type does not hold it.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
    fn bits_of(self, value: f64) -> Option<u64> {
        let power = |n: u8| f64::from(u32::from(n)).exp2();
        let bits = self.size.saturating_mul(8);
        Some(match (self.kind, self.size) {
            (Kind::Float, 2) => u64::from(half_from_f64(value)),
            (Kind::Float, 4) => u64::from((value as f32).to_bits()),
            (Kind::Float, _) => value.to_bits(),
            (Kind::Bool, _) => u64::from(value != 0.0),
            (Kind::Int, _) => {
                let value = value.trunc();
                let end = power(bits.saturating_sub(1));
                (value >= -end && value < end).then_some(value as i64 as u64)?
            }
            (Kind::UInt, _) => {
                let value = value.trunc();
                (value >= 0.0 && value < power(bits)).then_some(value as u64)?
            }
        })
    }
}

/// Whether numpy's `cumsum` from `encoded` into `decoded` is computed here.
pub(super) fn can_accumulate(decoded: Number, encoded: Number) -> bool {
    // A signed and an unsigned 64-bit integer are promoted to double by numpy, which loses digits; booleans are combined
    // by "or". Neither gives back what was written, so neither is in use.
    let mixed = decoded.is_integer()
        && encoded.is_integer()
        && decoded.kind != encoded.kind
        && [decoded, encoded].iter().any(|n| n.kind == Kind::UInt && n.size == 8);
    !mixed && decoded.kind != Kind::Bool && encoded.kind != Kind::Bool
}

/// Undoes `delta`: `numpy.cumsum(encoded, out=decoded)`.
pub(super) fn delta(bytes: &[u8], decoded: Number, encoded: Number, length: Length) -> Result<Vec<u8>> {
    if decoded.is_integer() && encoded.is_integer() {
        let mut sum = 0u64;
        return convert(bytes, decoded, encoded, length, "delta", |bits| {
            sum = sum.wrapping_add(bits);
            Some(sum)
        });
    }
    let float = |n: Number| if n.kind == Kind::Float { n.size } else { 0 };
    let size = encoded.promoted(float(decoded)).max(decoded.promoted(float(encoded)));
    let mut sum = None;
    convert(bytes, decoded, encoded, length, "delta", |bits| {
        let next = round(encoded.to_f64(bits), size);
        // A sum of two numbers in double, rounded to a type of less than half its digits, is rounded right. The first
        // element is no sum: it keeps the sign of zero.
        // A sum that is no number stays what it is: which of two such operands an addition gives back is up to the compiler.
        let now = match sum {
            None => next,
            Some(sum) if f64::is_nan(sum) => sum,
            Some(sum) => round(sum + next, size),
        };
        sum = Some(now);
        decoded.bits_of(now)
    })
}

/// Undoes `fixedscaleoffset`: `(encoded / scale + offset).astype(decoded)`.
pub(super) fn fixed_scale_offset(
    bytes: &[u8],
    decoded: Number,
    encoded: Number,
    (scale, offset): (f64, f64),
    length: Length,
) -> Result<Vec<u8>> {
    // Integers are divided as doubles; floats stay what they are, and the parameters are rounded to them.
    let size = if encoded.kind == Kind::Float { encoded.size } else { 8 };
    let (scale, offset) = (round(scale, size), round(offset, size));
    convert(bytes, decoded, encoded, length, "fixedscaleoffset", |bits| {
        let value = round(encoded.to_f64(bits) / scale, size);
        decoded.bits_of(round(value + offset, size))
    })
}

/// Undoes `astype` and `quantize`: `encoded.astype(decoded)`.
pub(super) fn cast(bytes: &[u8], decoded: Number, encoded: Number, length: Length) -> Result<Vec<u8>> {
    let same = decoded.kind == encoded.kind && decoded.size == encoded.size;
    if same && decoded.kind != Kind::Bool || decoded.is_integer() && encoded.kind != Kind::Float {
        return convert(bytes, decoded, encoded, length, "astype", Some);
    }
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "rounding is what numpy does too")]
    let narrow = |bits: u64| match encoded.kind {
        Kind::Int => bits as i64 as f32,
        _ => bits as f32,
    };
    convert(bytes, decoded, encoded, length, "astype", |bits| match (encoded.kind, decoded.kind, decoded.size) {
        // Straight to the narrow type: by way of double it would be rounded twice.
        (Kind::Int | Kind::UInt | Kind::Bool, Kind::Float, 2) => decoded.bits_of(f64::from(narrow(bits))),
        (Kind::Int | Kind::UInt | Kind::Bool, Kind::Float, 4) => Some(u64::from(narrow(bits).to_bits())),
        _ => decoded.bits_of(encoded.to_f64(bits)),
    })
}

/// Passes each element's bits (sign-extended where signed) through `f`, which gives the bits of the decoded element.
fn convert(
    bytes: &[u8],
    decoded: Number,
    encoded: Number,
    length: Length,
    codec: &str,
    f: impl FnMut(u64) -> Option<u64>,
) -> Result<Vec<u8>> {
    if bytes.len().checked_rem(encoded.size()) != Some(0) {
        return Err(Error::corrupt(format!(
            "{codec}: {} bytes are no whole number of elements of {}",
            bytes.len(),
            encoded.size
        )));
    }
    let count = bytes.len().checked_div(encoded.size()).unwrap_or(0);
    length.check(codec, count.saturating_mul(decoded.size()))?;
    let mut out = room(count.saturating_mul(decoded.size()))?;
    let done = match encoded.size {
        1 => read::<1>(bytes, &mut out, decoded, encoded, f),
        2 => read::<2>(bytes, &mut out, decoded, encoded, f),
        4 => read::<4>(bytes, &mut out, decoded, encoded, f),
        _ => read::<8>(bytes, &mut out, decoded, encoded, f),
    };
    done.ok_or_else(|| Error::corrupt(format!("{codec}: a value that the decoded type does not hold")))?;
    Ok(out)
}

fn read<const E: usize>(
    bytes: &[u8],
    out: &mut [u8],
    decoded: Number,
    encoded: Number,
    f: impl FnMut(u64) -> Option<u64>,
) -> Option<()> {
    match decoded.size {
        1 => write::<E, 1>(bytes, out, decoded, encoded, f),
        2 => write::<E, 2>(bytes, out, decoded, encoded, f),
        4 => write::<E, 4>(bytes, out, decoded, encoded, f),
        _ => write::<E, 8>(bytes, out, decoded, encoded, f),
    }
}

fn write<const E: usize, const D: usize>(
    bytes: &[u8],
    out: &mut [u8],
    decoded: Number,
    encoded: Number,
    mut f: impl FnMut(u64) -> Option<u64>,
) -> Option<()> {
    let (items, _) = bytes.as_chunks::<E>();
    let (out, _) = out.as_chunks_mut::<D>();
    for (item, out) in items.iter().zip(out) {
        let mut item = *item;
        if encoded.big {
            item.reverse();
        }
        let mut wide = [0; 8];
        wide.first_chunk_mut::<E>()?.copy_from_slice(&item);
        let mut bits = u64::from_le_bytes(wide);
        match encoded.kind {
            Kind::Int => bits = sign_extended(bits, E),
            Kind::Bool => bits = u64::from(bits != 0),
            Kind::UInt | Kind::Float => {}
        }
        *out = *f(bits)?.to_le_bytes().first_chunk::<D>()?;
        if decoded.big {
            out.reverse();
        }
    }
    Some(())
}

#[expect(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "two's complement is meant")]
fn sign_extended(bits: u64, size: usize) -> u64 {
    let unused = u32::try_from(size).map_or(0, |n| 64u32.saturating_sub(n.saturating_mul(8)));
    ((bits.wrapping_shl(unused) as i64).wrapping_shr(unused)) as u64
}

/// `value` rounded to a float of `size` bytes.
#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
fn round(value: f64, size: u8) -> f64 {
    match size {
        2 => half_to_f64(half_from_f64(value)),
        4 => f64::from(value as f32),
        _ => value,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low32(bits: u64) -> u32 {
    bits as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn low16(bits: u64) -> u16 {
    bits as u16
}

fn half_to_f64(bits: u16) -> f64 {
    let sign = u64::from(bits >> 15) << 63;
    let exponent = (bits >> 10) & 0x1f;
    let fraction = u64::from(bits & 0x3ff);
    match exponent {
        0 => {
            // Subnormal: a multiple of 2^-24.
            let size = f64::from(bits & 0x3ff) / 16_777_216.0;
            f64::from_bits(size.to_bits() | sign)
        }
        0x1f => f64::from_bits(sign | (0x7ff << 52) | (fraction << 42)),
        e => f64::from_bits(sign | (u64::from(e).saturating_add(1008) << 52) | (fraction << 42)),
    }
}

/// Rounds to nearest, ties to even, as numpy does.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
fn half_from_f64(value: f64) -> u16 {
    let bits = value.to_bits();
    let sign = low16(bits >> 48) & 0x8000;
    let size = value.abs();
    if size.is_nan() {
        // The upper digits of a NaN stay, and it must not become an infinity.
        let kept = low16(bits >> 42) & 0x3ff;
        return sign | 0x7c00 | kept.max(1);
    }
    if size >= 65520.0 {
        return sign | 0x7c00;
    }
    if size < 1.0 / 16384.0 {
        return sign | (size * 16_777_216.0).round_ties_even() as u16;
    }
    // 42 digits of the double's fraction go; a carry into the exponent is right.
    let all = size.to_bits().saturating_sub(1008 << 52);
    let half = (1u64 << 41).saturating_sub(1).saturating_add((all >> 42) & 1);
    sign | low16(all.saturating_add(half) >> 42)
}
