//! The command line: what was typed, and what it means.

pub mod commands;
pub mod object;
pub mod options;

use crate::array::{Format, Formats};
use crate::view::Flavour;
use clap::{Args, CommandFactory, Parser, ValueEnum};
pub use commands::Command;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Mounts chunked arrays (Zarr v2 and v3, NCZarr, N5, WEBKNOSSOS WKW; in a directory, zip or object store) as a tree of plain decoded files.
///
/// Each array becomes a directory with its metadata in Zarr's documents and one uncompressed, little-endian file for each
/// chunk, so that cat, od, dd, cp, numpy.fromfile and any Zarr reader work on it. Nothing is converted or copied.
///
/// The commands look at the same tree without mounting it. A source that is called like a command is reached as ./ls.
#[derive(Debug, Parser)]
#[command(
    name = "chunkmount",
    version = VERSION,
    about,
    after_long_help = EXIT_STATUS,
    max_term_width = 100,
    override_usage = USAGE,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do without mounting
    #[command(subcommand)]
    pub command: Option<Command>,

    /// A directory or zip archive, or a URL (file, s3, gs, az, http)
    ///
    /// What netCDF writes after a URL is understood: #mode=nczarr,zip.
    #[arg(required_unless_present = "unmount", hide_short_help = true)]
    pub source: Option<OsString>,

    /// Where to mount (made if it is absent, and then removed again), or /dev/fd/N
    ///
    /// /dev/fd/N is a /dev/fuse that somebody else has opened and mounted, as file descriptor N of this program.
    #[arg(required_unless_present = "unmount", hide_short_help = true)]
    pub mountpoint: Option<PathBuf>,

    /// Unmount what is mounted at MOUNTPOINT
    #[arg(short = 'u', long, value_name = "MOUNTPOINT", conflicts_with_all = ["source", "mountpoint"])]
    pub unmount: Option<PathBuf>,

    /// Stay in the foreground, and log to the terminal
    #[arg(short, long)]
    pub foreground: bool,

    /// Options as mount(8) has them: zarr=3,allow_other
    ///
    /// Each is a flag without its dashes, with _ for -. The system's own (ro, nosuid, noauto, user, _netdev, x-...) are understood.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<OsString>,

    /// How the source is shown
    #[command(flatten)]
    pub view: View,

    /// Let other users in
    ///
    /// This needs user_allow_other in /etc/fuse.conf unless you are root.
    #[arg(long)]
    pub allow_other: bool,

    /// Show files as owned by this user, a number [default: who mounts]
    #[arg(long, value_name = "NUMBER", value_parser = owner(), hide_short_help = true)]
    pub uid: Option<u32>,

    /// Show files as owned by this group, a number [default: that of who mounts]
    #[arg(long, value_name = "NUMBER", value_parser = owner(), hide_short_help = true)]
    pub gid: Option<u32>,

    /// Threads that serve requests [default: two more than the processors]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256), hide_short_help = true)]
    pub threads: Option<u16>,

    /// What is logged
    #[command(flatten)]
    pub logs: Logs,

    /// Only look whether it could be mounted, as the helper of mount(8) does
    #[arg(long, hide = true)]
    pub fake: bool,

    /// The second process of a background mount; reports on its standard output
    #[arg(long, hide = true)]
    pub daemon: bool,

    /// The arguments as they were parsed, without the name of the program
    #[arg(skip)]
    pub arguments: Vec<OsString>,
}

/// How the source is shown, mounted or not.
#[derive(Debug, Clone, Args)]
pub struct View {
    /// Version of Zarr shown [default: the source's own]
    ///
    /// It is 2 or 3; 2 by default for all that is not Zarr.
    #[arg(long, value_name = "VERSION", hide_possible_values = true)]
    pub zarr: Option<ZarrVersion>,

    /// Order of axes: C reverses those of N5 and WKW, so that the last one shown is the fastest; source keeps them (and says
    /// order F)
    #[arg(long, value_name = "ORDER", default_value = "c", ignore_case = true, hide_short_help = true)]
    pub axes: Axes,

    /// Look for this format only
    #[arg(long, value_name = "FORMAT", hide_short_help = true)]
    pub format: Option<FormatName>,

    /// Invent NCZarr's metadata where there is none, so that netCDF-C shows any source with named dimensions
    #[arg(long, hide_short_help = true)]
    pub nczarr: bool,

    /// Show the whole chunk grid: absent chunks are files of fill values
    #[arg(long, hide_short_help = true)]
    pub fill_missing: bool,

    /// Most memory for decoded blocks, such as 4G (K, M, G and T are powers of 1024)
    ///
    /// An eighth of the memory by default; 64M for the commands that do not mount.
    #[arg(long, value_name = "BYTES", value_parser = bytes, hide_short_help = true)]
    pub cache_size: Option<u64>,

    /// Look again at names and versions that are older; without this, data is taken not to change
    #[arg(long, value_name = "SECONDS", value_parser = seconds, hide_short_help = true)]
    pub refresh: Option<Duration>,

    /// Follow symbolic links that lead out of the source directory
    #[arg(long, hide_short_help = true)]
    pub follow_symlinks: bool,

    /// How object stores and web servers are asked
    #[command(flatten)]
    pub object: object::Object,
}

/// What is logged, and where.
#[derive(Debug, Clone, Default, Args)]
pub struct Logs {
    /// Write the log to this file
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub log_file: Option<PathBuf>,

    /// Form of the log: a line of text for each event, or a line of JSON
    #[arg(long, value_name = "FORM", default_value = "text", hide_short_help = true)]
    pub log_format: LogFormat,

    /// What is logged, for parts of the program as well: debug, or warn,chunkmount::store=debug [default: warn]
    #[arg(long, value_name = "LEVELS", hide_short_help = true)]
    pub log_level: Option<String>,

    /// Say more: -v what is done, -vv each request that fails
    #[arg(short, long, action = clap::ArgAction::Count, hide_short_help = true)]
    pub verbose: u8,
}

/// `--log-format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, target and text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Cli {
    /// The command line `arguments`, the first of which is the name that the program was called by. Called as `mount.TYPE` it is a
    /// helper of mount(8), whose arguments are understood as mount(8) passes them.
    ///
    /// # Errors
    /// What clap says of wrong arguments, and what it prints for `--help` and `--version`.
    pub fn from_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut arguments = arguments.into_iter();
        let name = arguments.next().unwrap_or_else(|| "chunkmount".into());
        let wrong = |text: String| Self::command().error(clap::error::ErrorKind::InvalidValue, text);
        let mut arguments: Vec<OsString> = arguments.collect();
        if options::is_helper(&name) {
            arguments = options::from_helper(arguments).map_err(wrong)?;
        }
        let parse = |flags: Vec<OsString>| {
            let name = std::iter::once("chunkmount".into());
            Self::try_parse_from(name.chain(flags).chain(arguments.iter().cloned()))
        };
        let mut cli = parse(Vec::new())?;
        // What is listed after -o is parsed once more as the flags that it means.
        if !cli.options.is_empty() {
            cli = parse(options::expand(&cli.options).map_err(wrong)?)?;
        }
        cli.arguments = arguments;
        Ok(cli)
    }
}

const USAGE: &str = "\
chunkmount [OPTIONS] SOURCE MOUNTPOINT
       chunkmount -u MOUNTPOINT
       chunkmount COMMAND [OPTIONS] SOURCE ...";

/// What `-V` prints after the name.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "
formats: N5, Zarr v2, Zarr v3, NCZarr, WEBKNOSSOS (WKW); in a directory, a zip, or a zip in a zip
sources: local files, S3, Google Cloud Storage, Azure, HTTP
codecs: gzip, zlib, bz2, lzma, lz4, zstd, blosc
filters: shuffle, delta, fixedscaleoffset, astype, packbits, quantize, bitround, crc32, crc32c, adler32, fletcher32, jenkins_lookup3"
);

const EXIT_STATUS: &str = "\
Exit status:
  0  mounted (or unmounted); done
  1  internal error
  2  wrong arguments, or a place that cannot be written
  3  source, or something in it, not found
  4  permission refused
  5  source, or something in it, corrupt or too large
  6  source, or something in it, not supported
  7  source unavailable
  8  the kernel refused to mount or to unmount

The commands cp, check and ls go on, and end with the first of 5, 7, 4, 6 and 3 that is true of anything they came across.";

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
    /// NCZarr, a dialect of both versions of Zarr.
    Nczarr,
    /// Zarr version 3.
    Zarr3,
    /// N5.
    N5,
    /// WEBKNOSSOS WKW.
    Wkw,
}

impl From<FormatName> for Formats {
    fn from(name: FormatName) -> Self {
        match name {
            FormatName::Nczarr => Self::Zarr,
            FormatName::Zarr2 => Self::Only(Format::Zarr2),
            FormatName::Zarr3 => Self::Only(Format::Zarr3),
            FormatName::N5 => Self::Only(Format::N5),
            FormatName::Wkw => Self::Only(Format::Wkw),
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

/// A user or group: the last number stands for none in calls of the system.
fn owner() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(..i64::from(u32::MAX))
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
        assert_eq!((cli.view.axes, cli.view.refresh), (Axes::Source, Some(Duration::from_millis(500))));
        for option in ["--uid", "--gid"] {
            let read = |number| Cli::try_parse_from(["chunkmount", "a", "m", option, number]).map(|cli| cli.uid.or(cli.gid));
            assert_eq!(read("4294967294").unwrap(), Some(4_294_967_294));
            assert!(read("4294967295").is_err() && read("-1").is_err());
        }
    }
}
