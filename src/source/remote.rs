//! URLs of object stores and web servers: the forms of AWS, of netCDF, of Google and of Azure.
//!
//! `s3:`, `gs:` and `az:` URLs are written as their tools write them: keys as they are. Web URLs have percent-encoding. Secrets
//! in a URL are refused: they would be in the list of processes.

use super::decode;
use crate::error::{Error, Result};
use crate::store::object::{Address, Service};

/// What the part of a URL after `#` says, beside the mode.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Hints {
    /// The words of `mode=`.
    pub mode: Vec<String>,
    /// The profile.
    pub profile: Option<String>,
    /// The region.
    pub region: Option<String>,
}

/// The address that a URL names, and whether it ends as directories do.
///
/// # Errors
/// [`crate::error::Kind::Usage`] for what is no such URL.
pub fn address(scheme: &str, place: &[u8], hints: &Hints) -> Result<(Address, bool)> {
    let place = std::str::from_utf8(place).map_err(|_| Error::usage("a URL must be Unicode"))?;
    let place = place.strip_prefix("//").unwrap_or(place);
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    let scheme = scheme.to_ascii_lowercase();
    let web = matches!(scheme.as_str(), "http" | "https");
    if web && place.contains('?') {
        return Err(Error::usage("a URL with a ? is not read; what is secret in it would be in the list of processes"));
    }
    if host.contains('@') && !scheme.starts_with("abfs") {
        return Err(Error::usage("a URL with a user or password is not read: others would see it in the list of processes"));
    }
    if host.is_empty() {
        return Err(Error::usage(format!("{scheme}:// needs a {}", if web { "host" } else { "bucket" })));
    }
    let path = if web {
        String::from_utf8(decode(path.as_bytes())?).map_err(|_| Error::usage("a URL must be Unicode"))?
    } else {
        path.to_owned()
    };
    let is_s3 = hints.mode.iter().any(|word| word == "s3");
    let s3 = |bucket: &str, endpoint: Option<String>, region: Option<String>| Service::S3 {
        bucket: bucket.to_owned(),
        endpoint,
        region: hints.region.clone().or(region),
    };
    let (service, path) = match scheme.as_str() {
        "s3" | "http" | "https" if amazon(host).is_some() => {
            let (bucket, region) = amazon(host).unwrap_or_default();
            match bucket {
                Some(bucket) => (s3(&bucket, None, region), path),
                None => {
                    let (bucket, key) = first(&path)?;
                    (s3(&bucket, None, region), key)
                }
            }
        }
        "s3" => (s3(host, None, None), path),
        "http" | "https" if is_s3 => {
            let (bucket, key) = first(&path)?;
            (s3(&bucket, Some(format!("{scheme}://{host}")), None), key)
        }
        "https" if host.ends_with(".blob.core.windows.net") || host.ends_with(".dfs.core.windows.net") => {
            let (container, key) = first(&path)?;
            let url = format!("https://{host}/{container}");
            (Service::Azure { name: url.clone(), url }, key)
        }
        "http" | "https" => (Service::Web { base: format!("{scheme}://{host}") }, path),
        "gs" | "gcs" => (Service::Google { bucket: host.to_owned() }, path),
        _ => {
            let url = format!("{scheme}://{host}");
            (Service::Azure { name: url.clone(), url }, path)
        }
    };
    let key = path.trim_start_matches('/').trim_end_matches('/');
    if key.contains("//") || key.split('/').any(|part| part == "." || part == "..") {
        return Err(Error::usage("a key with an empty part, . or .. cannot be mounted"));
    }
    let is_directory = path.ends_with('/') || key.is_empty();
    Ok((Address { service, key: key.to_owned(), profile: hints.profile.clone() }, is_directory))
}

// The bucket and the key of a path that begins with the bucket.
fn first(path: &str) -> Result<(String, String)> {
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if bucket.is_empty() {
        return Err(Error::usage("a URL of a service needs a bucket after the host"));
    }
    Ok((bucket.to_owned(), key.to_owned()))
}

/// The bucket and the region that the name of one of Amazon's hosts holds; `None` for any other host.
fn amazon(host: &str) -> Option<(Option<String>, Option<String>)> {
    let name = host.strip_suffix(".amazonaws.com").or_else(|| host.strip_suffix(".amazonaws.com.cn"))?;
    let labels: Vec<&str> = name.split('.').collect();
    let at = labels.iter().rposition(|label| *label == "s3" || label.starts_with("s3-"))?;
    let (bucket, service) = (labels.get(..at)?.join("."), labels.get(at..)?);
    let region = match service {
        ["s3", "dualstack", region] | ["s3", region] => Some((*region).to_owned()),
        [old] => old.strip_prefix("s3-").filter(|r| !matches!(*r, "accelerate" | "external-1")).map(ToOwned::to_owned),
        _ => return None,
    };
    Some(((!bucket.is_empty()).then_some(bucket), region))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn s3(bucket: &str, endpoint: Option<&str>, region: Option<&str>) -> Service {
        let own = |text: Option<&str>| text.map(ToOwned::to_owned);
        Service::S3 { bucket: bucket.into(), endpoint: own(endpoint), region: own(region) }
    }

    fn web(base: &str) -> Service {
        Service::Web { base: base.into() }
    }

    #[test]
    fn every_style_names_a_bucket_and_a_key() {
        let google = Service::Google { bucket: "b".into() };
        let azure = |url: &str| Service::Azure { url: url.into(), name: url.into() };
        for (scheme, place, mode, service, key) in [
            ("s3", "//b/a/x.zip", "", s3("b", None, None), "a/x.zip"),
            ("s3", "//b/a%20b/", "", s3("b", None, None), "a%20b"),
            ("s3", "//b", "", s3("b", None, None), ""),
            ("https", "//s3.us-west-2.amazonaws.com/b/k/l", "s3", s3("b", None, Some("us-west-2")), "k/l"),
            ("https", "//b.s3.us-west-2.amazonaws.com/k", "", s3("b", None, Some("us-west-2")), "k"),
            ("https", "//my.dotted.s3.amazonaws.com/k", "", s3("my.dotted", None, None), "k"),
            ("https", "//b.s3-eu-west-1.amazonaws.com/k", "", s3("b", None, Some("eu-west-1")), "k"),
            ("s3", "//s3.us-east-1.amazonaws.com/b/k", "s3", s3("b", None, Some("us-east-1")), "k"),
            ("http", "//127.0.0.1:9000/b/k%20l", "s3", s3("b", Some("http://127.0.0.1:9000"), None), "k l"),
            ("https", "//host.example/data/k%20l/", "", web("https://host.example"), "data/k l"),
            ("gs", "//b/k", "", google, "k"),
            ("az", "//c/k", "", azure("az://c"), "k"),
            ("abfss", "//c@a.dfs.core.windows.net/k", "", azure("abfss://c@a.dfs.core.windows.net"), "k"),
            ("https", "//a.blob.core.windows.net/c/k", "", azure("https://a.blob.core.windows.net/c"), "k"),
        ] {
            let hints = Hints { mode: vec![mode.to_owned()], ..Hints::default() };
            let (address, directory) = address(scheme, place.as_bytes(), &hints).unwrap();
            assert_eq!((&address.service, address.key.as_str()), (&service, key), "{scheme}:{place}");
            assert_eq!(directory, place.ends_with('/') || key.is_empty(), "{scheme}:{place}");
        }
    }

    #[test]
    fn what_is_refused() {
        for (scheme, place) in [
            ("s3", "//"),
            ("s3", "//b/a//b"),
            ("s3", "//b/../a"),
            ("s3", "//key:secret@b/a"),
            ("https", "//user:password@host/a"),
            ("https", "//host/a?X-Amz-Signature=1"),
            ("https", "//s3.us-west-2.amazonaws.com/"),
        ] {
            let e = address(scheme, place.as_bytes(), &Hints::default()).unwrap_err();
            assert_eq!(e.kind(), Kind::Usage, "{scheme}:{place}");
            assert!(!e.reason().contains("secret") || !place.contains("secret"), "{e}");
        }
    }
}
