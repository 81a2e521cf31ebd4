//! The commands that look at a source, or at a mount, without mounting.

use super::{Logs, View};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What to do without mounting.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List a directory of the tree, or one file
    Ls(Ls),
    /// Draw groups and arrays as a tree
    Tree(Tree),
    /// Write files of the tree, decoded chunks among them, to standard output
    Cat(Cat),
    /// Tell format, type, shape, chunks, codecs, sizes and scale of arrays
    Info(Info),
    /// Write the decoded tree to a directory; goes on where it was interrupted
    Cp(Copy),
    /// Decode everything, and list what is corrupt or missing
    Check(Check),
    /// Show the counters of a mount
    Stats(Stats),
    /// Write the manual page or the completions of a shell to the standard output
    #[command(hide = true)]
    Generate(Generate),
}

/// A source and what it is looked at with.
#[derive(Debug, Args)]
pub struct Source {
    /// A directory or zip archive, or a URL (file, s3, gs, az, http)
    ///
    /// What netCDF writes after a URL is understood: #mode=nczarr,zip.
    pub source: OsString,

    /// How it is shown
    #[command(flatten)]
    pub view: View,

    /// What is logged
    #[command(flatten)]
    pub logs: Logs,
}

/// `ls`.
#[derive(Debug, Args)]
pub struct Ls {
    /// The source
    #[command(flatten)]
    pub at: Source,

    /// What to list, below the root of the tree
    pub path: Option<OsString>,

    /// With modes, sizes and times
    #[arg(short, long)]
    pub long: bool,

    /// All that lies below as well
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// `tree`.
#[derive(Debug, Args)]
pub struct Tree {
    /// The source
    #[command(flatten)]
    pub at: Source,

    /// Where to begin, below the root of the tree
    pub path: Option<OsString>,

    /// Files as well: documents, chunks, and those of no format
    #[arg(short, long)]
    pub all: bool,

    /// Most levels that are drawn
    #[arg(short = 'L', long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub level: Option<u16>,
}

/// `cat`.
#[derive(Debug, Args)]
pub struct Cat {
    /// The source
    #[command(flatten)]
    pub at: Source,

    /// Files below the root of the tree
    #[arg(required = true)]
    pub path: Vec<OsString>,
}

/// `info`.
#[derive(Debug, Args)]
pub struct Info {
    /// The source
    #[command(flatten)]
    pub at: Source,

    /// An array, or a group for all arrays in it [default: the root]
    pub path: Option<OsString>,

    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// Look at no chunk, and tell nothing of what is stored
    #[arg(long)]
    pub quick: bool,
}

/// `cp`.
#[derive(Debug, Args)]
pub struct Copy {
    /// The source
    #[command(flatten)]
    pub at: Source,

    /// Where to write: a new or empty directory, or an interrupted copy
    pub dest: PathBuf,

    /// What to copy of the tree [default: all of it]
    #[arg(long, value_name = "PATH")]
    pub path: Option<OsString>,

    /// Write into a directory that is not empty, over its files
    #[arg(long)]
    pub force: bool,

    /// Threads that decode [default: the processors]
    #[arg(short = 'j', long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The source
    #[command(flatten)]
    pub at: Source,

    /// What to check, below the root of the tree [default: all of it]
    pub path: Option<OsString>,

    /// List absent chunks, of the fill value, as missing
    #[arg(long)]
    pub complete: bool,

    /// Threads that decode [default: the processors]
    #[arg(short = 'j', long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,

    /// No progress bar
    #[arg(short, long)]
    pub quiet: bool,
}

/// `stats`.
#[derive(Debug, Args)]
pub struct Stats {
    /// Where the mount is
    pub mountpoint: PathBuf,

    /// Again and again, after so many seconds [default: 2]
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = interval)]
    pub watch: Option<Duration>,

    /// In the exposition format of Prometheus
    #[arg(long, conflicts_with = "watch")]
    pub prometheus: bool,
}

/// `generate`.
#[derive(Debug, Args)]
pub struct Generate {
    /// What to write
    pub what: Generated,
}

/// What [`Generate`] writes.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Generated {
    /// chunkmount(1).
    Man,
    /// For `/usr/share/bash-completion/completions/chunkmount`.
    Bash,
    /// For `/usr/share/zsh/vendor-completions/_chunkmount`.
    Zsh,
    /// For `/usr/share/fish/vendor_completions.d/chunkmount.fish`.
    Fish,
}

fn interval(text: &str) -> Result<Duration, String> {
    super::seconds(text).and_then(|time| match time {
        _ if time < Duration::from_millis(10) => Err("too short".to_owned()),
        _ if time > Duration::from_secs(86_400) => Err("more than a day".to_owned()),
        _ => Ok(time),
    })
}
