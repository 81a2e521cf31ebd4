//! The command line: what was typed, and what it means.

use crate::array::Format;
use crate::view::Flavour;
use clap::{Parser, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Mounts chunked arrays (N5, Zarr v2, NCZarr, WEBKNOSSOS WKW; in a directory or a zip) as a tree of plain decoded files.
///
/// Each array becomes a directory with its metadata in Zarr's documents and one uncompressed, little-endian file for each
/// chunk, so that cat, od, dd, cp, numpy.fromfile and any Zarr reader work on it. Nothing is converted or copied.
#[derive(Debug, Parser)]
#[command(version, about, after_help = EXIT_STATUS, max_term_width = 100)]
pub struct Cli {
    /// A directory or a zip archive: a path, or a URL (file, s3, gs, az, https) that may end as netCDF's do (`#mode=nczarr,zip`)
    #[arg(required_unless_present = "unmount")]
    pub source: Option<OsString>,

    /// Where to mount; made if it is absent, and then removed again
    #[arg(required_unless_present = "unmount")]
    pub mountpoint: Option<PathBuf>,

    /// Unmount what is mounted at MOUNTPOINT
    #[arg(short = 'u', long, value_name = "MOUNTPOINT", conflicts_with_all = ["source", "mountpoint"])]
    pub unmount: Option<PathBuf>,

    /// Stay in the foreground, with the log on the terminal
    #[arg(short, long)]
    pub foreground: bool,

    /// Version of the Zarr documents that are shown [default: the source's own; 2 for all that is not Zarr]
    #[arg(long, value_name = "VERSION")]
    pub zarr: Option<ZarrVersion>,

    /// Order of axes: C reverses those of N5 and WKW, so that the last one shown is the fastest; source keeps them (and says
    /// order F)
    #[arg(long, value_name = "ORDER", default_value = "c", ignore_case = true)]
    pub axes: Axes,

    /// Look for this format only
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FormatName>,

    /// Invent NCZarr's metadata where there is none, so that netCDF-C shows any source with named dimensions
    #[arg(long)]
    pub nczarr: bool,

    /// Show the whole chunk grid: absent chunks are files of fill values
    #[arg(long)]
    pub fill_missing: bool,

    /// Most memory for decoded blocks, such as 256M or 4G [default: an eighth of the memory]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub cache_size: Option<u64>,

    /// Look again at names and versions that are older; without this, data is taken not to change
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub refresh: Option<Duration>,

    /// Time that a request to an object store or web server may take, with all its repetitions
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds, default_value = "60")]
    pub timeout: Duration,

    /// Profile of the AWS configuration files to use
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,

    /// Region of the bucket [default: from the environment or the profile, else found out]
    #[arg(long, value_name = "REGION")]
    pub region: Option<String>,

    /// Where the object store is, if not at Amazon, Google or Microsoft
    #[arg(long, value_name = "URL")]
    pub endpoint_url: Option<String>,

    /// Ask without credentials, as public buckets allow
    #[arg(long)]
    pub no_sign_request: bool,

    /// Pay for the requests to a bucket whose owner does not
    #[arg(long)]
    pub request_payer: bool,

    /// Keep what is read of object stores in this folder too, for the next mount; several may share it
    #[arg(long, value_name = "DIR")]
    pub disk_cache: Option<PathBuf>,

    /// Most bytes that the folder of --disk-cache takes
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "10G", requires = "disk_cache")]
    pub disk_cache_size: u64,

    /// Let other users in (needs user_allow_other in /etc/fuse.conf unless you are root)
    #[arg(long)]
    pub allow_other: bool,

    /// Follow symbolic links that lead out of the source directory
    #[arg(long)]
    pub follow_symlinks: bool,

    /// Threads that serve requests [default: two more than the processors]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: Option<u16>,

    /// Write the log to this file
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,

    /// Say more: -v what is done, -vv each request that fails
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// The second process of a background mount; reports on its standard output
    #[arg(long, hide = true)]
    pub daemon: bool,
}

const EXIT_STATUS: &str = "\
Exit status: 0 mounted (or unmounted); 1 internal error; 2 wrong arguments; 3 source not found; 4 permission refused;
5 source corrupt or too large; 6 source not supported; 7 source unavailable; 8 the kernel refused to mount or unmount.";

/// `--zarr`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ZarrVersion {
    /// Zarr version 2: .zarray, .zgroup, .zattrs.
    #[value(name = "2")]
    Two,
    /// Zarr version 3: zarr.json.
    #[value(name = "3")]
    Three,
}

impl From<ZarrVersion> for Flavour {
    fn from(version: ZarrVersion) -> Self {
        match version {
            ZarrVersion::Two => Self::Zarr2,
            ZarrVersion::Three => Self::Zarr3,
        }
    }
}

/// `--axes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Axes {
    /// Last axis fastest.
    C,
    /// As in the source.
    Source,
}

/// `--format`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FormatName {
    /// Zarr version 2.
    Zarr2,
    /// NCZarr, a dialect of Zarr version 2.
    Nczarr,
    /// Zarr version 3.
    Zarr3,
    /// N5.
    N5,
    /// WEBKNOSSOS WKW.
    Wkw,
}

impl From<FormatName> for Format {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Zarr2 | FormatName::Nczarr => Self::Zarr2,
            FormatName::Zarr3 => Self::Zarr3,
            FormatName::N5 => Self::N5,
            FormatName::Wkw => Self::Wkw,
        }
    }
}

/// A number of bytes with an optional binary suffix: `1048576`, `256M`, `4GiB`.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        suffix => return Err(format!("{suffix:?} is no unit; use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is no number of bytes"))?;
    number.checked_mul(1 << power).ok_or_else(|| format!("{text:?} is too large"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text:?} is no time span"))
}

fn some_seconds(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|time| match time {
        Duration::ZERO => Err("no time at all".to_owned()),
        _ if time > Duration::from_secs(86_400) => Err("more than a day".to_owned()),
        _ => Ok(time),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(bytes("1048576"), Ok(1 << 20));
        assert_eq!(bytes("256M"), Ok(256 << 20));
        assert_eq!(bytes("4GiB"), Ok(4 << 30));
        assert!(bytes("4X").is_err() && bytes("M").is_err() && bytes("99999999T").is_err());
    }

    #[test]
    fn a_source_and_a_mount_point_are_needed_unless_unmounting() {
        assert!(Cli::try_parse_from(["chunkmount", "a"]).is_err());
        assert!(Cli::try_parse_from(["chunkmount", "-u", "m"]).is_ok());
        assert!(Cli::try_parse_from(["chunkmount", "-u", "m", "a"]).is_err());
        let cli = Cli::try_parse_from(["chunkmount", "a", "m", "--zarr", "3", "--axes", "source", "--refresh", "0.5"]).unwrap();
        assert_eq!((cli.axes, cli.refresh), (Axes::Source, Some(Duration::from_millis(500))));
    }
}
