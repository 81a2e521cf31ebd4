//! Where a service is asked: what the options, the environment and the libraries' own rules come to.
//!
//! The answers of that place are checked and counted, and what is kept on disk is named by it, so it must be known and not be
//! guessed. A URL that may hold a secret is refused, wherever it comes from: it would be in messages and logs.
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::cast_possible_truncation)]

use super::Options;
use crate::error::{Error, Result};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use std::io::Read;

/// Where Google Cloud Storage is.
const GOOGLE: &str = "https://storage.googleapis.com";

/// Where Azure's emulator is.
const AZURITE: &str = "http://127.0.0.1:10000";

/// Longest file of a service account, in bytes.
const ACCOUNT: u64 = 64 << 10;

/// A host and a port.
pub type Host = (String, u16);

/// The endpoint `url`, if it is one that can be asked and shown.
///
/// # Errors
/// [`crate::error::Kind::Usage`], without what may be secret in it.
pub fn check(url: &str) -> Result<String> {
    let refused = |reason: &str| Err(Error::usage(format!("the endpoint {:?} {reason}", redact(url))));
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let authority = rest.unwrap_or(url).split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return refused("has a user or password, which others would see");
    }
    if rest.is_none() || authority.is_empty() {
        return refused("is no http:// or https:// URL");
    }
    if url.contains(['?', '#']) {
        return refused("has something after ? or #, which is no part of an endpoint");
    }
    Ok(url.to_owned())
}

/// A URL without what may be secret in it.
pub fn redact(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
}

/// The host and the port of a URL; `None` where it has none.
pub fn host(url: &str) -> Option<Host> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?.rsplit('@').next()?;
    let port = if scheme.eq_ignore_ascii_case("http") { 80 } else { 443 };
    // A colon within brackets is a part of an address.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, number)) if !number.contains(']') => (host, number.parse().ok()?),
        _ => (authority, port),
    };
    (!host.is_empty()).then(|| (host.to_ascii_lowercase(), port))
}

/// Where `builder` will ask for objects in Google Cloud Storage.
///
/// # Errors
/// As [`check`].
pub fn google(builder: &GoogleCloudStorageBuilder) -> Result<String> {
    let set = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    if let Some(url) = set(GoogleConfigKey::BaseUrl) {
        return check(&url);
    }
    // What cannot be read or understood is the library's to complain of.
    let account = match (set(GoogleConfigKey::ServiceAccountKey), set(GoogleConfigKey::ServiceAccount)) {
        (Some(text), _) => Some(text),
        (None, Some(path)) => std::fs::File::open(path).ok().and_then(|file| {
            let mut text = String::new();
            file.take(ACCOUNT).read_to_string(&mut text).ok().map(|_| text)
        }),
        (None, None) => None,
    };
    let account = account.and_then(|text| serde_json::from_str::<serde_json::Value>(&text).ok());
    let named = account.as_ref().and_then(|account| account.get("gcs_base_url")?.as_str());
    check(named.unwrap_or(GOOGLE))
}

/// Where `builder` will ask for objects in Azure's container `url`, and the account.
///
/// # Errors
/// As [`check`]; [`crate::error::Kind::Usage`] where the environment has the emulator asked and the options something else.
pub fn azure(builder: &MicrosoftAzureBuilder, url: &str, options: &Options) -> Result<(String, String)> {
    let set = |key| builder.get_config_value(&key).filter(|value| !value.is_empty());
    let is_on =
        |key| set(key).is_some_and(|word| matches!(word.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y"));
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split('/').next().unwrap_or_default();
    // The host of the URL, where that is no container.
    let of_account = authority.rsplit_once('@').map(|(_, host)| host).or_else(|| (scheme == "https").then_some(authority));
    let named = of_account.and_then(|host| host.split_once('.').map(|(account, rest)| (host, account, rest)));
    let account = match named {
        Some((_, account, _)) => account.to_owned(),
        None => set(AzureConfigKey::AccountName).unwrap_or_default(),
    };
    if is_on(AzureConfigKey::UseEmulator) {
        let emulator = std::env::var("AZURITE_BLOB_STORAGE_URL").unwrap_or_else(|_| AZURITE.to_owned());
        if options.endpoint.as_ref().is_some_and(|named| host(named) != host(&emulator)) {
            return Err(Error::usage("the environment asks for Azure's emulator, and --endpoint-url for something else"));
        }
        return Ok((check(&emulator)?, account));
    }
    if account.is_empty() {
        return Err(Error::usage("no storage account: AZURE_STORAGE_ACCOUNT_NAME is to name it"));
    }
    let endpoint = match named {
        // A workspace of Fabric has a host of its own, whatever else is said.
        Some((host, _, rest)) if rest.starts_with('z') && rest.ends_with("fabric.microsoft.com") => format!("https://{host}"),
        _ => match set(AzureConfigKey::Endpoint) {
            Some(endpoint) => endpoint,
            None => {
                let is_fabric =
                    is_on(AzureConfigKey::UseFabricEndpoint) || named.is_some_and(|(_, _, rest)| rest.contains("fabric"));
                let service = if is_fabric { "fabric.microsoft.com" } else { "core.windows.net" };
                format!("https://{account}.blob.{service}")
            }
        },
    };
    Ok((check(&endpoint)?, account))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn secrets_are_refused_and_not_repeated() {
        for url in
            ["https://me:hush@host", "http://me:hush@host/x", "me:hush@host", "https://host?sig=hush", "https://host/#hush"]
        {
            let e = check(url).unwrap_err();
            assert_eq!(e.kind(), Kind::Usage);
            assert!(!e.to_string().contains("hush"), "{e}");
        }
        for url in ["host:9000", "", "https://", "ftp://host"] {
            assert!(check(url).is_err(), "{url}");
        }
        for url in ["https://host", "http://127.0.0.1:9000/", "https://{bucket}.host", "https://host/a@b"] {
            assert_eq!((check(url).unwrap().as_str(), redact(url).as_str()), (url, url));
        }
    }

    #[test]
    fn hosts_have_ports() {
        let own = |name: &str, port| Some((name.to_owned(), port));
        assert_eq!(host("https://Host/x"), own("host", 443));
        assert_eq!(host("http://host:9000"), own("host", 9000));
        assert_eq!(host("http://[::1]"), own("[::1]", 80));
        assert_eq!(host("http://[::1]:81/"), own("[::1]", 81));
        assert_eq!(host("host"), None);
    }

    #[test]
    fn what_is_set_is_what_is_asked() {
        let google = |url: Option<&str>, account: &str| {
            let builder = GoogleCloudStorageBuilder::new().with_service_account_key(account);
            self::google(&url.into_iter().fold(builder, GoogleCloudStorageBuilder::with_base_url)).unwrap()
        };
        assert_eq!(google(None, ""), GOOGLE);
        assert_eq!(google(None, r#"{"gcs_base_url": "http://a"}"#), "http://a");
        assert_eq!(google(Some("http://b"), r#"{"gcs_base_url": "http://a"}"#), "http://b");
        let azure = |url: &str, builder: MicrosoftAzureBuilder| self::azure(&builder, url, &Options::default()).unwrap();
        let new = || MicrosoftAzureBuilder::new().with_account("me");
        let own = |endpoint: &str, account: &str| (endpoint.to_owned(), account.to_owned());
        assert_eq!(azure("az://c", new()), own("https://me.blob.core.windows.net", "me"));
        assert_eq!(azure("az://c", new().with_endpoint("http://x".into())), own("http://x", "me"));
        assert_eq!(azure("abfss://c@you.dfs.core.windows.net", new()), own("https://you.blob.core.windows.net", "you"));
        assert_eq!(azure("https://you.blob.core.windows.net/c", new()), own("https://you.blob.core.windows.net", "you"));
        assert_eq!(azure("az://c", new().with_use_emulator(true)).0, AZURITE);
        let unnamed = self::azure(&MicrosoftAzureBuilder::new(), "az://c", &Options::default());
        assert!(unnamed.unwrap_err().to_string().contains("AZURE_STORAGE_ACCOUNT_NAME"));
        let elsewhere = Options { endpoint: Some("http://127.0.0.1:1".into()), ..Options::default() };
        assert!(self::azure(&new().with_use_emulator(true), "az://c", &elsewhere).is_err());
    }
}
