//! Places in object stores, and how they are asked. Plain data.

use std::path::PathBuf;
use std::time::Duration;

/// Where objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Service {
    /// Amazon's S3, or a service that speaks like it.
    S3 {
        /// The bucket.
        bucket: String,
        /// Where the service is; Amazon where none is named.
        endpoint: Option<String>,
        /// The region.
        region: Option<String>,
    },
    /// Google Cloud Storage.
    Google {
        /// The bucket.
        bucket: String,
    },
    /// Azure Blob Storage.
    Azure {
        /// The URL of the container, in one of the forms that the library knows.
        url: String,
        /// The same, as a person says it.
        name: String,
    },
    /// A web server.
    Web {
        /// Scheme, host and port.
        base: String,
    },
}

/// A place in an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The service.
    pub service: Service,
    /// The key of an object, or what keys have before a slash; without one at its ends.
    pub key: String,
    /// The profile that the URL names.
    pub profile: Option<String>,
}

impl Address {
    /// The place of `key`, as a person says it.
    pub(super) fn name(&self, key: &str) -> String {
        let place = match &self.service {
            Service::S3 { bucket, .. } => format!("s3://{bucket}"),
            Service::Google { bucket } => format!("gs://{bucket}"),
            Service::Azure { name, .. } => name.clone(),
            Service::Web { base } => base.clone(),
        };
        if key.is_empty() { place } else { format!("{place}/{key}") }
    }
}

/// How an object store is asked.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The profile in the shared configuration files.
    pub profile: Option<String>,
    /// The region; found out where none is named.
    pub region: Option<String>,
    /// Where the service is.
    pub endpoint: Option<String>,
    /// Ask without credentials.
    pub unsigned: bool,
    /// Pay for the requests.
    pub requester_pays: bool,
    /// The time that a request may take, with its repetitions.
    pub timeout: Duration,
    /// Keep no answer for longer; for ever where none is given.
    pub refresh: Option<Duration>,
    /// A folder that keeps what was read, and the bytes that it may take.
    pub disk: Option<(PathBuf, u64)>,
    /// Names by one of which a directory is told where nothing can be listed.
    pub documents: &'static [&'static str],
}
