//! Credentials, region and endpoint for S3, found as every AWS tool finds them.
//!
//! The source is chosen once, and no other one is asked after it: a profile that was named is the only source; otherwise the
//! environment, the shared files' profile, a web identity, the container, and the instance, whichever is configured first. So
//! the instance's metadata address is never asked when keys or a profile are set. Secrets live in the credential only: they
//! are never part of an error or a log line.

use crate::error::{Error, Kind, Result};
use aws_config::BehaviorVersion;
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;

/// How long before their end credentials are renewed.
const EARLY: Duration = Duration::from_secs(300);

/// What the environment and the shared files say of where to ask.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// The region.
    pub region: Option<String>,
    /// The endpoint.
    pub endpoint: Option<String>,
}

/// Region and endpoint as the environment and the profile give them.
pub async fn surroundings(profile: Option<&str>) -> Surroundings {
    let mut region_of_profile = ProfileFileRegionProvider::builder();
    if let Some(profile) = profile {
        region_of_profile = region_of_profile.profile_name(profile);
    }
    // A profile that was named comes before what the environment says for all.
    let environment = EnvironmentVariableRegionProvider::new();
    let region = match profile {
        Some(_) => RegionProviderChain::first_try(region_of_profile.build()).or_else(environment),
        None => RegionProviderChain::first_try(environment).or_else(region_of_profile.build()),
    };
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).no_credentials().region(region);
    if let Some(profile) = profile {
        loader = loader.profile_name(profile);
    }
    let config = loader.load().await;
    Surroundings {
        region: config.region().map(ToString::to_string),
        endpoint: variable("AWS_ENDPOINT_URL_S3").or_else(|| config.endpoint_url().map(ToOwned::to_owned)),
    }
}

/// A source of credentials; asks again when those it has are about to end.
pub struct Credentials {
    source: SharedCredentialsProvider,
    /// What a person calls the source.
    name: String,
    current: Mutex<Option<(Arc<AwsCredential>, Option<SystemTime>)>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.name)
    }
}

impl Credentials {
    /// Finds the source of credentials, and gets the first ones.
    ///
    /// # Errors
    /// [`Kind::Denied`] where there are none, [`Kind::Unavailable`] or [`Kind::TimedOut`] where their source does not answer.
    pub async fn find(profile: Option<&str>) -> Result<Self> {
        let new = |name: String, source| Self { source, name, current: Mutex::new(None) };
        if let Some(profile) = profile {
            let source = ProfileFileCredentialsProvider::builder().profile_name(profile).build();
            let found = new(format!("profile {profile}"), SharedCredentialsProvider::new(source));
            found.first().await?;
            return Ok(found);
        }
        if variable("AWS_ACCESS_KEY_ID").is_some() {
            let source = SharedCredentialsProvider::new(EnvironmentVariableCredentialsProvider::new());
            let found = new("the environment".into(), source);
            found.first().await?;
            return Ok(found);
        }
        let named = variable("AWS_PROFILE");
        let name = format!("profile {}", named.as_deref().unwrap_or("default"));
        let source = ProfileFileCredentialsProvider::builder().build();
        let found = new(name, SharedCredentialsProvider::new(source));
        match found.get().await {
            Ok(_) => return Ok(found),
            // Nothing is said there, so that the next source may know more.
            Err(CredentialsError::CredentialsNotLoaded(_)) if named.is_none() => {}
            Err(e) => return Err(found.sort(&e)),
        }
        let (name, source) = if variable("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() {
            let settings = ProviderConfig::with_default_region().await;
            let source = WebIdentityTokenCredentialsProvider::builder().configure(&settings).build();
            ("the web identity", SharedCredentialsProvider::new(source))
        } else if variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI").is_some()
            || variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").is_some()
        {
            ("the container", SharedCredentialsProvider::new(EcsCredentialsProvider::builder().build()))
        } else if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|word| word.eq_ignore_ascii_case("true")) {
            return Err(none("AWS_EC2_METADATA_DISABLED is set"));
        } else {
            ("the instance", SharedCredentialsProvider::new(ImdsCredentialsProvider::builder().build()))
        };
        let found = new(name.into(), source);
        match found.get().await {
            Ok(_) => Ok(found),
            Err(_) if found.name == "the instance" => Err(none("this machine's metadata address gives none")),
            Err(e) => Err(found.sort(&e)),
        }
    }

    async fn first(&self) -> Result<()> {
        self.get().await.map(drop).map_err(|e| self.sort(&e))
    }

    /// Forgets the present credentials: the server no longer takes them.
    pub async fn forget(&self) {
        *self.current.lock().await = None;
    }

    async fn get(&self) -> std::result::Result<Arc<AwsCredential>, CredentialsError> {
        let mut current = self.current.lock().await;
        if let Some((credential, end)) = &*current
            && end.is_none_or(|end| SystemTime::now().checked_add(EARLY).is_some_and(|soon| soon < end))
        {
            return Ok(Arc::clone(credential));
        }
        let found = match (self.source.provide_credentials().await, &*current) {
            (Ok(found), _) => found,
            // Those at hand are still good for a while.
            (Err(_), Some((credential, Some(end)))) if *end > SystemTime::now() => return Ok(Arc::clone(credential)),
            (Err(e), _) => return Err(e),
        };
        let credential = Arc::new(AwsCredential {
            key_id: found.access_key_id().to_owned(),
            secret_key: found.secret_access_key().to_owned(),
            token: found.session_token().map(ToOwned::to_owned),
        });
        *current = Some((Arc::clone(&credential), found.expiry()));
        Ok(credential)
    }

    fn sort(&self, e: &CredentialsError) -> Error {
        let kind = match e {
            CredentialsError::ProviderTimedOut(_) => Kind::TimedOut,
            CredentialsError::ProviderError(_) => Kind::Unavailable,
            _ => Kind::Denied,
        };
        Error::new(kind, format!("no credentials from {}: {}", self.name, super::wire::cause(e)))
    }
}

fn none(why: &str) -> Error {
    Error::new(
        Kind::Denied,
        format!(
            "no credentials in the environment or the profile default, and {why}; --profile names another profile, and \
             --no-sign-request asks without any"
        ),
    )
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[async_trait::async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        self.get().await.map_err(|e| object_store::Error::Generic {
            store: "S3",
            source: std::io::Error::other(self.sort(&e).to_string()).into(),
        })
    }
}
