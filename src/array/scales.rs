//! Scale pyramids as plain data: one image at several resolutions, and where its elements lie in space and time.
//!
//! All lists are in the order of axes that is *shown*. Positions are those of the centres of elements, as OME-Zarr has them: the
//! element `i` of a level lies at `scale * i + translation`, so a level whose elements are means of `f` finer ones is shifted by
//! `(f - 1) / 2` of the finer spacing. No I/O.

use crate::error::{Error, Result};

/// One image at several resolutions.
#[derive(Debug, Clone, PartialEq)]
pub struct Multiscale {
    /// Its name, where it has one.
    pub name: Option<String>,
    /// The axes, in the order that is shown.
    pub axes: Vec<Axis>,
    /// The levels, finest first.
    pub levels: Vec<Level>,
}

/// An axis of a [`Multiscale`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// Its name.
    pub name: String,
    /// What it measures; `None` where nobody says.
    pub kind: Option<AxisKind>,
    /// The name of its unit as UDUNITS has it; `None` for elements without a physical size, or of unknown.
    pub unit: Option<String>,
}

/// What an axis measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisKind {
    /// Space.
    Space,
    /// Time.
    Time,
    /// Channels.
    Channel,
}

/// A level of a [`Multiscale`].
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Path of its array below the group.
    pub path: String,
    /// Distance of neighbouring elements along each axis, in the axis' unit.
    pub scale: Vec<f64>,
    /// Position of the centre of the first element.
    pub translation: Vec<f64>,
}

impl Axis {
    /// An axis of this name; what it measures follows from the name (`x`, `y`, `z`, `t`, `c`), else from the unit. The unit may be
    /// a symbol (`nm`) or a name in any spelling; one that means no physical size (`pixel`) is left out.
    pub fn new(name: &str, unit: Option<&str>) -> Self {
        let unit = unit.and_then(unit_name);
        let kind = match name.to_ascii_lowercase().as_str() {
            "x" | "y" | "z" => Some(AxisKind::Space),
            "t" | "time" => Some(AxisKind::Time),
            "c" | "channel" | "channels" => Some(AxisKind::Channel),
            _ => unit.as_deref().and_then(measured_in),
        };
        Self { name: name.to_owned(), kind, unit: unit.filter(|_| kind != Some(AxisKind::Channel)) }
    }
}

impl Level {
    /// A level whose elements each stand for `factors` elements of a finest one, which has this `spacing` and whose first
    /// element's centre lies at `offset`.
    pub fn downsampled(path: &str, spacing: &[f64], offset: &[f64], factors: &[f64]) -> Self {
        let scale = spacing.iter().zip(factors).map(|(s, f)| s * f).collect();
        let translation = offset.iter().zip(spacing).zip(factors).map(|((o, s), f)| o + s * (f - 1.0) / 2.0).collect();
        Self { path: path.to_owned(), scale, translation }
    }
}

impl Multiscale {
    /// Checks what OME-Zarr demands: 2 to 5 axes with a name each, of which 2 or 3 measure space and come last, at most one
    /// measures time and comes first; levels with as many positive, finite numbers.
    ///
    /// # Errors
    /// [`crate::error::Kind::Unsupported`] with what OME-Zarr has no words for.
    pub fn check(&self) -> Result<()> {
        let no = |what: String| Err(Error::unsupported(what));
        let rank = self.axes.len();
        let names: Vec<_> = self.axes.iter().map(|a| a.name.as_str()).collect();
        let place = |axis: &Axis| match axis.kind {
            Some(AxisKind::Time) => 0,
            Some(AxisKind::Channel) | None => 1,
            Some(AxisKind::Space) => 2,
        };
        let places: Vec<_> = self.axes.iter().map(place).collect();
        let count = |place: u8| places.iter().filter(|&&p| p == place).count();
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        if distinct.len() != rank || !places.is_sorted() || count(0) > 1 || count(1) > 1 || !(2..=3).contains(&count(2)) {
            return no(format!("axes {names:?}: OME-Zarr has time, then channels, then 2 or 3 axes of space"));
        }
        if self.levels.is_empty() {
            return no("no levels".to_owned());
        }
        for level in &self.levels {
            let fits = |numbers: &[f64]| numbers.len() == rank && numbers.iter().all(|n| n.is_finite());
            if !fits(&level.scale) || !fits(&level.translation) || level.scale.iter().any(|&s| s <= 0.0) {
                return no(format!("{}: a scale of {:?} from {:?} on", level.path, level.scale, level.translation));
            }
        }
        Ok(())
    }
}

/// Units of length that OME-Zarr knows, by symbol.
const SPACE: &[(&str, &str)] = &[
    ("Å", "angstrom"),
    ("am", "attometer"),
    ("cm", "centimeter"),
    ("dm", "decimeter"),
    ("Em", "exameter"),
    ("fm", "femtometer"),
    ("ft", "foot"),
    ("Gm", "gigameter"),
    ("hm", "hectometer"),
    ("in", "inch"),
    ("km", "kilometer"),
    ("Mm", "megameter"),
    ("m", "meter"),
    ("µm", "micrometer"),
    ("mi", "mile"),
    ("mm", "millimeter"),
    ("nm", "nanometer"),
    ("pc", "parsec"),
    ("Pm", "petameter"),
    ("pm", "picometer"),
    ("Tm", "terameter"),
    ("yd", "yard"),
    ("ym", "yoctometer"),
    ("Ym", "yottameter"),
    ("zm", "zeptometer"),
    ("Zm", "zettameter"),
];

/// Units of time that OME-Zarr knows, by symbol.
const TIME: &[(&str, &str)] = &[
    ("as", "attosecond"),
    ("cs", "centisecond"),
    ("d", "day"),
    ("ds", "decisecond"),
    ("Es", "exasecond"),
    ("fs", "femtosecond"),
    ("Gs", "gigasecond"),
    ("hs", "hectosecond"),
    ("h", "hour"),
    ("ks", "kilosecond"),
    ("Ms", "megasecond"),
    ("µs", "microsecond"),
    ("ms", "millisecond"),
    ("min", "minute"),
    ("ns", "nanosecond"),
    ("Ps", "petasecond"),
    ("ps", "picosecond"),
    ("s", "second"),
    ("Ts", "terasecond"),
    ("ys", "yoctosecond"),
    ("Ys", "yottasecond"),
    ("zs", "zeptosecond"),
    ("Zs", "zettasecond"),
];

/// The name of a unit as UDUNITS has it, from a symbol or from a name in any spelling; a unit that is not known stays as it is.
/// `None` for what is no physical unit.
pub fn unit_name(unit: &str) -> Option<String> {
    let unit = unit.trim();
    let lower = unit.to_lowercase();
    if matches!(lower.as_str(), "" | "pixel" | "pixels" | "px" | "voxel" | "voxels" | "none" | "null" | "unitless" | "1") {
        return None;
    }
    // Both code points that look like a micro sign, and what is typed instead.
    let symbol = unit.replace('μ', "µ");
    let symbol = match symbol.strip_prefix('u') {
        Some(rest @ ("m" | "s")) => format!("µ{rest}"),
        _ => symbol,
    };
    let known = || SPACE.iter().chain(TIME);
    if let Some((_, name)) = known().find(|(s, _)| *s == symbol) {
        return Some((*name).to_owned());
    }
    let singular = lower.replace("metre", "meter");
    let singular = match singular.as_str() {
        "micron" | "microns" => "micrometer",
        "sec" | "secs" => "second",
        "inches" => "inch",
        "feet" => "foot",
        other => other.strip_suffix('s').unwrap_or(other),
    };
    Some(known().find(|(_, name)| *name == singular).map_or_else(|| unit.to_owned(), |(_, name)| (*name).to_owned()))
}

/// What a unit measures, by its name.
fn measured_in(unit: &str) -> Option<AxisKind> {
    let has = |list: &[(&str, &str)]| list.iter().any(|(_, name)| *name == unit);
    match unit {
        _ if has(SPACE) => Some(AxisKind::Space),
        _ if has(TIME) => Some(AxisKind::Time),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_get_the_names_that_ome_zarr_demands() {
        // The names are those of the specification, section "axes metadata".
        for (written, name) in [
            ("nm", Some("nanometer")),
            ("um", Some("micrometer")),
            ("\u{b5}m", Some("micrometer")),
            ("\u{3bc}m", Some("micrometer")),
            ("Micron", Some("micrometer")),
            ("mm", Some("millimeter")),
            ("Mm", Some("megameter")),
            ("nanometers", Some("nanometer")),
            ("Nanometre", Some("nanometer")),
            ("us", Some("microsecond")),
            ("ms", Some("millisecond")),
            ("sec", Some("second")),
            ("furlong", Some("furlong")),
            ("pixel", None),
            ("", None),
        ] {
            assert_eq!(unit_name(written).as_deref(), name, "{written:?}");
        }
    }

    #[test]
    fn only_what_ome_zarr_has_words_for_passes() {
        let image = |names: &[&str]| Multiscale {
            name: None,
            axes: names.iter().map(|n| Axis::new(n, None)).collect(),
            levels: vec![Level::downsampled("0", &vec![1.0; names.len()], &vec![0.0; names.len()], &vec![2.0; names.len()])],
        };
        for good in [&["y", "x"][..], &["z", "y", "x"], &["t", "c", "z", "y", "x"], &["other", "y", "x"], &["x", "y", "z"]] {
            assert!(image(good).check().is_ok(), "{good:?}");
        }
        for bad in [&["x"][..], &["z", "y", "x", "c"], &["c", "t", "y", "x"], &["y", "y"], &["a", "b", "y", "x"], &["c", "x"]] {
            assert!(image(bad).check().is_err(), "{bad:?}");
        }
        let mut flat = image(&["y", "x"]);
        flat.levels[0].scale[1] = 0.0;
        assert!(flat.check().is_err());
    }
}
