//! Numbers of at most eight bits, one in a byte, by the names that Zarr v3's registered extensions give them.
//!
//! Bytes are shown as they are stored: the bits above a number of fewer than eight have no meaning. What is needed of a type is
//! its fill value, rounded to the nearest as ml_dtypes and tensorstore round. `float8_e8m0fnu` is not among them: tensorstore
//! spells its fill values with another bias than the type has, so that no number says which byte is meant.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use crate::format::json;
use serde_json::Value;

/// How numbers of one type are made of bits.
enum Kind {
    /// So many bits, with a sign or without.
    Integer { bits: u8, signed: bool },
    /// A sign, so many bits of exponent and of fraction, and what the exponent of one is stored as.
    Float { exponent: u8, fraction: u8, bias: i32, beyond: Beyond },
}

/// What there is beyond the largest finite number.
enum Beyond {
    /// Infinity, and NaN with all bits of the exponent set, as IEEE 754 has it.
    Infinity,
    /// NaN alone, with all bits set.
    AllBits,
    /// NaN alone, in the place of the negative zero.
    NegativeZero,
    /// Nothing: the largest number stands for all beyond it.
    Nothing,
}

const fn integer(bits: u8, signed: bool) -> Kind {
    Kind::Integer { bits, signed }
}

const fn float(exponent: u8, fraction: u8, bias: i32, beyond: Beyond) -> Kind {
    Kind::Float { exponent, fraction, bias, beyond }
}

const TYPES: &[(&str, Kind)] = &[
    ("int2", integer(2, true)),
    ("int4", integer(4, true)),
    ("uint2", integer(2, false)),
    ("uint4", integer(4, false)),
    ("float4_e2m1fn", float(2, 1, 1, Beyond::Nothing)),
    ("float6_e2m3fn", float(2, 3, 1, Beyond::Nothing)),
    ("float6_e3m2fn", float(3, 2, 3, Beyond::Nothing)),
    ("float8_e3m4", float(3, 4, 3, Beyond::Infinity)),
    ("float8_e4m3", float(4, 3, 7, Beyond::Infinity)),
    ("float8_e4m3b11fnuz", float(4, 3, 11, Beyond::NegativeZero)),
    ("float8_e4m3fn", float(4, 3, 7, Beyond::AllBits)),
    ("float8_e4m3fnuz", float(4, 3, 8, Beyond::NegativeZero)),
    ("float8_e5m2", float(5, 2, 15, Beyond::Infinity)),
    ("float8_e5m2fnuz", float(5, 2, 16, Beyond::NegativeZero)),
];

/// The type of this name.
pub(super) fn named(name: &str) -> Option<&'static str> {
    TYPES.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// The byte of a fill value of the type `name`; `None` where the type does not hold it.
pub(in crate::format) fn fill(value: &Value, name: &str) -> Option<u8> {
    let (_, kind) = TYPES.iter().find(|(known, _)| *known == name)?;
    match (kind, value) {
        (Kind::Integer { bits, signed }, Value::Number(n)) => {
            let n = n.as_i64()?;
            let count = 1i64.checked_shl(u32::from(*bits))?;
            let low = if *signed { count.div_euclid(2).checked_neg()? } else { 0 };
            let within = n >= low && n < low.checked_add(count)?;
            u8::try_from(n.rem_euclid(count)).ok().filter(|_| within)
        }
        (Kind::Float { .. }, Value::String(text)) if text.starts_with("0x") => {
            let digits = text.strip_prefix("0x").filter(|d| d.len() == 2 && d.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(digits, 16).ok()
        }
        (Kind::Float { exponent, fraction, bias, beyond }, value) => {
            let number = match value {
                Value::Number(n) => n.as_f64()?,
                Value::String(text) if text == json::NAN => f64::NAN,
                Value::String(text) if text == json::INFINITY => f64::INFINITY,
                Value::String(text) if text == json::NEGATIVE_INFINITY => f64::NEG_INFINITY,
                _ => return None,
            };
            nearest(number, *exponent, *fraction, *bias, beyond)
        }
        _ => None,
    }
}

/// The bits of the number nearest to `number`, ties to even.
fn nearest(number: f64, exponent: u8, fraction: u8, bias: i32, beyond: &Beyond) -> Option<u8> {
    let sign = 1u8.checked_shl(u32::from(exponent.checked_add(fraction)?))?;
    let all = sign.checked_sub(1)?;
    let quiet = 1u8.checked_shl(u32::from(fraction.checked_sub(1)?))?;
    let infinity = all & !1u8.checked_shl(u32::from(fraction))?.checked_sub(1)?;
    let (largest, more, nan) = match beyond {
        Beyond::Infinity => (infinity.checked_sub(1)?, infinity, Some(infinity | quiet)),
        Beyond::AllBits => (all.checked_sub(1)?, all, Some(all)),
        Beyond::NegativeZero => (all, sign, Some(sign)),
        Beyond::Nothing => (all, all, None),
    };
    if number.is_nan() {
        return nan;
    }
    // As for numbers of 16 bits: a whole number of the steps between neighbours, whose overflow carries into the exponent.
    let magnitude = number.abs();
    let stored = i32::try_from(magnitude.to_bits() >> 52).unwrap_or(0).saturating_sub(1023);
    let power = stored.max(1i32.saturating_sub(bias));
    let steps = (magnitude * 2f64.powi(i32::from(fraction).saturating_sub(power))).round_ties_even();
    let below = f64::from(power.saturating_add(bias).saturating_sub(1)) * 2f64.powi(i32::from(fraction));
    let bits = steps + below;
    let bits = if bits > f64::from(largest) {
        more
    } else {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number of at most 127")]
        let bits = bits as u8;
        bits
    };
    let unsigned = bits == sign || bits == 0 && matches!(beyond, Beyond::NegativeZero);
    Some(if number.is_sign_negative() && !unsigned { bits | sign } else { bits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // What tensorstore 0.1.86 reads from an array without chunks.
    #[test]
    fn fill_values_as_tensorstore_reads_them() {
        let words = [
            json!(0.1),
            json!(1.0625),
            json!(-1.5),
            json!(1e9),
            json!(-1e9),
            json!("NaN"),
            json!("Infinity"),
            json!(-8),
            json!(1e-9),
        ];
        for (name, bytes) in [
            ("float8_e3m4", [0x06, 0x31, 0xb8, 0x70, 0xf0, 0x78, 0x70, 0xe0, 0x00]),
            ("float8_e4m3b11fnuz", [0x3d, 0x58, 0xdc, 0x80, 0x80, 0x80, 0x80, 0xf0, 0x00]),
            ("float8_e4m3fn", [0x1d, 0x38, 0xbc, 0x7f, 0xff, 0x7f, 0x7f, 0xd0, 0x00]),
            ("float8_e4m3fnuz", [0x25, 0x40, 0xc4, 0x80, 0x80, 0x80, 0x80, 0xd8, 0x00]),
            ("float8_e5m2", [0x2e, 0x3c, 0xbe, 0x7c, 0xfc, 0x7e, 0x7c, 0xc8, 0x00]),
            ("float8_e5m2fnuz", [0x32, 0x40, 0xc2, 0x80, 0x80, 0x80, 0x80, 0xcc, 0x00]),
        ] {
            for (word, byte) in words.iter().zip(bytes) {
                assert_eq!(fill(word, name), Some(byte), "{name} {word}");
            }
            assert_eq!(fill(&json!("0x91"), name), Some(0x91));
        }
        for (word, byte) in
            [(json!(0.1), 0), (json!(1.0625), 2), (json!(-1.5), 0x0b), (json!(1e9), 7), (json!(3), 5), (json!(-8), 0x0f)]
        {
            assert_eq!(fill(&word, "float4_e2m1fn"), Some(byte), "{word}");
        }
    }

    // numpy.array(x).astype(ml_dtypes.T).view('u1'), ml_dtypes 0.6.0
    #[test]
    fn types_that_only_ml_dtypes_has() {
        for (name, word, byte) in [
            ("float8_e4m3", json!(0.1), 0x1d),
            ("float8_e4m3", json!("NaN"), 0x7c),
            ("float8_e4m3", json!(250), 0x78),
            ("float8_e4m3", json!(-240), 0xf7),
            ("float6_e2m3fn", json!(0.1), 0x01),
            ("float6_e2m3fn", json!(7.3), 0x1f),
            ("float6_e3m2fn", json!(-0.1), 0x22),
            ("float6_e3m2fn", json!(28), 0x1f),
            ("int4", json!(-2), 0x0e),
            ("int2", json!(-2), 0x02),
            ("uint4", json!(15), 0x0f),
            ("uint2", json!(3), 0x03),
        ] {
            assert_eq!(fill(&word, name), Some(byte), "{name} {word}");
        }
    }

    #[test]
    fn what_no_type_holds() {
        for (name, word) in [
            ("int4", json!(8)),
            ("int4", json!(-9)),
            ("int4", json!(0.5)),
            ("int4", json!("0x01")),
            ("uint2", json!(-1)),
            ("uint2", json!(4)),
            ("float4_e2m1fn", json!("NaN")),
            ("float8_e5m2", json!("0x123")),
            ("float8_e5m2", json!("0x+1")),
            ("float8_e5m2", json!([1])),
            ("float8_e8m0fnu", json!(1)),
        ] {
            assert_eq!(fill(&word, name), None, "{name} {word}");
        }
    }
}
