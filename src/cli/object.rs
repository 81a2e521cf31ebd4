//! How object stores and web servers are asked, as it was typed.

use super::{bytes, some_seconds};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// What the full help lists them under.
const HEADING: &str = "Object stores and web servers";

/// The options of sources that are not on this machine.
#[derive(Debug, Clone, Args)]
pub struct Object {
    /// Time that a request to an object store or web server may take, with all its repetitions
    #[arg(long, value_name = "SECONDS", value_parser = some_seconds, default_value = "60", hide_short_help = true, help_heading = HEADING)]
    pub timeout: Duration,

    /// Profile of the AWS configuration files to use
    #[arg(long, value_name = "NAME", hide_short_help = true, help_heading = HEADING)]
    pub profile: Option<String>,

    /// Region of the bucket [default: from the environment or the profile, else found out]
    #[arg(long, value_name = "REGION", hide_short_help = true, help_heading = HEADING)]
    pub region: Option<String>,

    /// Where the object store is, if not at Amazon, Google or Microsoft; {bucket} in it stands for the bucket
    #[arg(long, value_name = "URL", hide_short_help = true, help_heading = HEADING)]
    pub endpoint_url: Option<String>,

    /// Ask without credentials, as public buckets allow
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub no_sign_request: bool,

    /// Pay for the requests to a bucket whose owner does not
    #[arg(long, hide_short_help = true, help_heading = HEADING)]
    pub request_payer: bool,

    /// Keep what is read of object stores in this folder too, for the next mount; several may share it
    #[arg(long, value_name = "DIR", hide_short_help = true, help_heading = HEADING)]
    pub disk_cache: Option<PathBuf>,

    /// Most bytes that the folder of --disk-cache takes
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "10G", requires = "disk_cache", hide_short_help = true, help_heading = HEADING)]
    pub disk_cache_size: u64,
}
