//! Credentials, region and endpoint for S3, found as every AWS tool finds them.
//!
//! The source is chosen once, and no other one is asked after it: a profile that was named is the only source; otherwise the
//! environment, the shared files' profile, a web identity, the container, and the instance, whichever is configured first. So
//! the instance's metadata address is never asked when keys or a profile are set. Secrets live in the credential only: they
//! are never part of an error or a log line.
//!
//! A source may be slow, down, or a program, so it is asked by one task at a time, and nobody waits for it who has credentials
//! that are still good.

use super::wire::TRACE;
use crate::error::{Error, Kind, Result};
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::region::{ProvideRegion, RegionProviderChain};
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_config::{BehaviorVersion, Region};
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::OwnedMutexGuard;

/// How long before their end credentials are renewed.
const EARLY: Duration = Duration::from_secs(300);

/// How long a source is not asked again that failed, that gave what ends within [`EARLY`], or whose credentials were refused.
const PAUSE: Duration = Duration::from_secs(15);

/// How long the one who asks for new credentials waits for them before those at hand are used.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long new credentials are waited for where the server refused something and did not say why.
const REPLACED: Duration = Duration::from_secs(5);

/// What the environment and the shared files say of where to ask.
#[derive(Debug, Default)]
pub struct Surroundings {
    /// The region.
    pub region: Option<String>,
    /// That of the profile alone, where one was named.
    own: Option<String>,
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
    let (region, own) = match profile {
        Some(_) => {
            let own = region_of_profile.build().region().await;
            (RegionProviderChain::first_try(own.clone()).or_else(environment), own)
        }
        None => (RegionProviderChain::first_try(environment).or_else(region_of_profile.build()), None),
    };
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).no_credentials().region(region);
    if let Some(profile) = profile {
        loader = loader.profile_name(profile);
    }
    let config = loader.load().await;
    Surroundings {
        region: config.region().map(ToString::to_string),
        own: own.map(|region| region.to_string()),
        endpoint: variable("AWS_ENDPOINT_URL_S3").or_else(|| config.endpoint_url().map(ToOwned::to_owned)),
    }
}

impl Surroundings {
    /// The region whose token service is asked. `asked` is the one that was asked for, for the bucket.
    pub fn home(&self, profile: Option<&str>, asked: Option<&str>) -> String {
        let found = match profile {
            Some(_) => self.own.as_deref().or(asked).or(self.region.as_deref()),
            None => self.region.as_deref().or(asked),
        };
        found.unwrap_or("us-east-1").to_owned()
    }
}

/// Credentials, and the number of times that others were in their place.
#[derive(Clone)]
struct Signer {
    number: u64,
    credential: Arc<AwsCredential>,
    end: Option<SystemTime>,
}

impl Signer {
    fn lasts(&self, time: Duration) -> bool {
        self.end.is_none_or(|end| SystemTime::now().checked_add(time).is_some_and(|then| then < end))
    }
}

/// What is at hand.
#[derive(Default)]
struct Held {
    signer: Option<Signer>,
    /// How asking went last, where it failed.
    failure: Option<Error>,
    /// Until when it is not asked again because of how it went last.
    pause: Option<Instant>,
    /// Until when it is not asked again because the server refused what was given.
    refused: Option<Instant>,
}

struct Source {
    provider: SharedCredentialsProvider,
    /// What a person calls the source.
    name: String,
    held: Mutex<Held>,
    /// Who asks has this.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// A source of credentials; asks again when those it has are about to end.
#[derive(Clone)]
pub struct Credentials(Arc<Source>);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({})", self.0.name)
    }
}

impl Credentials {
    fn new(name: String, provider: SharedCredentialsProvider) -> Self {
        Self(Arc::new(Source { provider, name, held: Mutex::default(), turn: Arc::default() }))
    }

    /// Finds the source of credentials, and gets the first ones.
    ///
    /// # Errors
    /// [`Kind::Denied`] where there are none, [`Kind::Unavailable`] or [`Kind::TimedOut`] where their source does not answer.
    pub async fn find(profile: Option<&str>, home: String) -> Result<Self> {
        let settings = ProviderConfig::without_region().with_region(Some(Region::new(home)));
        if let Some(profile) = profile {
            let source = ProfileFileCredentialsProvider::builder().configure(&settings).profile_name(profile).build();
            let found = Self::new(format!("profile {profile}"), SharedCredentialsProvider::new(source));
            return found.first().await.map(|()| found.clone()).map_err(|e| found.0.sort(&e));
        }
        if variable("AWS_ACCESS_KEY_ID").is_some() {
            let source = SharedCredentialsProvider::new(EnvironmentVariableCredentialsProvider::new());
            let found = Self::new("the environment".into(), source);
            return found.first().await.map(|()| found.clone()).map_err(|e| found.0.sort(&e));
        }
        let named = variable("AWS_PROFILE");
        let name = format!("profile {}", named.as_deref().unwrap_or("default"));
        let source = ProfileFileCredentialsProvider::builder().configure(&settings).build();
        let found = Self::new(name, SharedCredentialsProvider::new(source));
        match found.first().await {
            Ok(()) => return Ok(found),
            // Nothing is said there, so that the next source may know more.
            Err(CredentialsError::CredentialsNotLoaded(_)) if named.is_none() => {}
            Err(e) => return Err(found.0.sort(&e)),
        }
        let (name, source) = if variable("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() {
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
        let found = Self::new(name.into(), source);
        match found.first().await {
            Ok(()) => Ok(found),
            Err(_) if found.0.name == "the instance" => Err(none("this machine's metadata address gives none")),
            Err(e) => Err(found.0.sort(&e)),
        }
    }

    async fn first(&self) -> std::result::Result<(), CredentialsError> {
        let found = self.0.provider.provide_credentials().await?;
        self.0.take(&found);
        Ok(())
    }

    /// Whether there are others than those with this number, which the server no longer takes; asks for them where there are
    /// none yet.
    pub async fn renew(&self, number: u64) -> bool {
        // Who asks now may bring others.
        let turn = Arc::clone(&self.0.turn).lock_owned().await;
        let is_other = || self.0.held.lock().signer.as_ref().is_some_and(|signer| signer.number != number);
        if is_other() {
            return true;
        }
        {
            let mut held = self.0.held.lock();
            if is_ahead(held.refused) || held.failure.is_some() && is_ahead(held.pause) {
                return false;
            }
            held.refused = Instant::now().checked_add(PAUSE);
        }
        let _ = tokio::spawn(ask(Arc::clone(&self.0), turn)).await;
        is_other()
    }

    /// Whether there are others by now than those with this number, or there soon will be: then waits for them.
    pub async fn replaced(&self, number: u64) -> bool {
        if self.0.turn.try_lock().is_err() {
            let _ = tokio::time::timeout(REPLACED, self.0.turn.lock()).await;
        }
        self.0.held.lock().signer.as_ref().is_some_and(|signer| signer.number != number)
    }

    async fn get(&self) -> Result<Signer> {
        let source = &self.0;
        if let Some(known) = source.known() {
            return known;
        }
        let good = source.held.lock().signer.clone().filter(|signer| signer.lasts(Duration::ZERO));
        let Some(good) = good else {
            let turn = Arc::clone(&source.turn).lock_owned().await;
            if let Some(known) = source.known() {
                return known;
            }
            // A task of its own, so that it ends and is known of even if nobody waits for it any longer.
            let asked = tokio::spawn(ask(Arc::clone(source), turn)).await;
            return asked.unwrap_or_else(|_| Err(Error::new(Kind::Bug, "asking for credentials was broken off")));
        };
        if let Ok(turn) = Arc::clone(&source.turn).try_lock_owned() {
            if let Some(known) = source.known() {
                return known;
            }
            let asking = tokio::spawn(ask(Arc::clone(source), turn));
            if let Ok(Ok(Ok(new))) = tokio::time::timeout(PATIENCE, asking).await {
                return Ok(new);
            }
        }
        Ok(good)
    }
}

fn is_ahead(when: Option<Instant>) -> bool {
    when.is_some_and(|when| Instant::now() < when)
}

async fn ask(source: Arc<Source>, turn: OwnedMutexGuard<()>) -> Result<Signer> {
    let answer = match source.provider.provide_credentials().await {
        Ok(found) => Ok(source.take(&found)),
        Err(e) => Err(source.fail(source.sort(&e))),
    };
    drop(turn);
    answer
}

impl Source {
    /// What is used without asking; `None` where it is time to ask.
    fn known(&self) -> Option<Result<Signer>> {
        let held = self.held.lock();
        let paused = is_ahead(held.pause);
        match (&held.signer, &held.failure) {
            (Some(signer), _) if signer.lasts(EARLY) || paused && signer.lasts(Duration::ZERO) => Some(Ok(signer.clone())),
            (_, Some(failure)) if paused => Some(Err(failure.clone())),
            // Given a moment ago as what there is: the server knows whether they have ended.
            (Some(signer), None) if paused => Some(Ok(signer.clone())),
            _ => None,
        }
    }

    fn take(&self, found: &aws_credential_types::Credentials) -> Signer {
        let credential = AwsCredential {
            key_id: found.access_key_id().to_owned(),
            secret_key: found.secret_access_key().to_owned(),
            token: found.session_token().map(ToOwned::to_owned),
        };
        let mut held = self.held.lock();
        let number = match &held.signer {
            Some(old) if *old.credential == credential => old.number,
            Some(old) => old.number.saturating_add(1),
            None => 0,
        };
        let signer = Signer { number, credential: Arc::new(credential), end: found.expiry() };
        held.failure = None;
        held.pause = if signer.lasts(EARLY) { None } else { Instant::now().checked_add(PAUSE) };
        held.signer = Some(signer.clone());
        signer
    }

    fn fail(&self, e: Error) -> Error {
        let mut held = self.held.lock();
        held.failure = Some(e.clone());
        held.pause = Instant::now().checked_add(PAUSE);
        if held.signer.as_ref().is_some_and(|signer| signer.lasts(Duration::ZERO)) {
            log::warn!("{}; those at hand are used until they end", e.reason());
        }
        e
    }

    fn sort(&self, e: &CredentialsError) -> Error {
        let kind = match e {
            CredentialsError::ProviderTimedOut(_) => Kind::TimedOut,
            CredentialsError::ProviderError(_) => Kind::Unavailable,
            _ => Kind::Denied,
        };
        let reason = match e {
            // Of a profile that tells of no keys, and of one where there are no such files at all.
            CredentialsError::CredentialsNotLoaded(_) => "nothing there tells of any".to_owned(),
            e => line(&super::wire::cause(e)),
        };
        Error::new(kind, format!("no credentials from {}: {reason}", self.name))
    }
}

/// The first line of a message, without what a program printed, which may hold secrets.
fn line(text: &str) -> String {
    let text = text.split(". Stderr:").next().unwrap_or_default();
    text.trim().lines().next().unwrap_or_default().chars().take(300).collect()
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
        let got = self.get().await;
        let _ = TRACE.try_with(|trace| trace.sign(got.as_ref().map(|signer| signer.number)));
        got.map(|signer| signer.credential).map_err(|e| object_store::Error::Generic {
            store: "S3",
            source: std::io::Error::other(e.reason().to_owned()).into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_credential_types::provider::future;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Gives credentials that last so many seconds, each time others.
    #[derive(Debug)]
    struct Giver {
        lifetime: u64,
        given: AtomicU64,
        down: AtomicBool,
        silent: AtomicBool,
    }

    impl ProvideCredentials for Giver {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                let number = self.given.fetch_add(1, Ordering::SeqCst);
                if self.silent.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                if self.down.load(Ordering::SeqCst) {
                    return Err(CredentialsError::provider_error("exited with code 1. Stderr: a secret\nand more"));
                }
                let end = SystemTime::now().checked_add(Duration::from_secs(self.lifetime));
                Ok(aws_credential_types::Credentials::new(format!("key {number}"), "secret", None, end, "test"))
            })
        }
    }

    // Runs a test with credentials that were given first.
    fn with<F: Future<Output = ()>>(lifetime: u64, test: impl FnOnce(Credentials, Arc<Giver>) -> F) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let giver = Giver { lifetime, given: AtomicU64::new(0), down: AtomicBool::new(false), silent: AtomicBool::new(false) };
        let giver = Arc::new(giver);
        let provider: Arc<dyn ProvideCredentials> = Arc::<Giver>::clone(&giver);
        let found = Credentials::new("a test".into(), SharedCredentialsProvider::new(provider));
        runtime.block_on(async {
            found.first().await.unwrap();
            test(found, giver).await;
        });
        runtime.shutdown_background();
    }

    async fn key(found: &Credentials) -> std::result::Result<String, String> {
        found.get().await.map(|signer| signer.credential.key_id.clone()).map_err(|e| e.reason().to_owned())
    }

    // As if the pauses were over.
    fn later(found: &Credentials) {
        let mut held = found.0.held.lock();
        (held.pause, held.refused) = (None, None);
    }

    #[test]
    fn what_ends_soon_is_asked_for_anew_after_a_pause() {
        with(120, |found, giver| async move {
            for _ in 0..100 {
                assert_eq!(key(&found).await.unwrap(), "key 0");
            }
            later(&found);
            assert_eq!(key(&found).await.unwrap(), "key 1");
            assert_eq!(key(&found).await.unwrap(), "key 1");
            assert_eq!(giver.given.load(Ordering::SeqCst), 2);
        });
    }

    #[test]
    fn nobody_waits_for_a_source_while_what_is_at_hand_is_good() {
        with(120, |found, giver| async move {
            later(&found);
            giver.silent.store(true, Ordering::SeqCst);
            let start = Instant::now();
            for _ in 0..100 {
                assert_eq!(key(&found).await.unwrap(), "key 0");
            }
            assert!(start.elapsed() < 2 * PATIENCE);
            assert_eq!(giver.given.load(Ordering::SeqCst), 2);
        });
    }

    #[test]
    fn a_source_that_fails_is_asked_once_in_a_while() {
        with(0, |found, giver| async move {
            giver.down.store(true, Ordering::SeqCst);
            later(&found);
            for _ in 0..10 {
                assert_eq!(key(&found).await.unwrap_err(), "no credentials from a test: exited with code 1");
            }
            assert_eq!(giver.given.load(Ordering::SeqCst), 2);
            giver.down.store(false, Ordering::SeqCst);
            later(&found);
            assert_eq!(key(&found).await.unwrap(), "key 2");
        });
    }

    #[test]
    fn what_is_refused_is_replaced_once_for_all_who_were() {
        with(3600, |found, giver| async move {
            let refused: Vec<_> = (0..8)
                .map(|_| {
                    let found = found.clone();
                    tokio::spawn(async move { found.renew(0).await })
                })
                .collect();
            for one in refused {
                assert!(one.await.unwrap());
            }
            assert_eq!(key(&found).await.unwrap(), "key 1");
            // The new ones are refused too: it is not asked with each request.
            assert!(!found.renew(1).await && !found.renew(1).await);
            assert!(found.replaced(0).await && !found.replaced(1).await);
            assert_eq!(giver.given.load(Ordering::SeqCst), 2);
        });
    }

    #[test]
    fn the_token_service_is_that_of_the_account() {
        let word = |word: &str| Some(word.to_owned());
        let around = Surroundings { region: word("environment"), own: word("profile"), endpoint: None };
        assert_eq!(around.home(Some("lab"), Some("asked")), "profile");
        let around = Surroundings { own: None, ..around };
        assert_eq!(around.home(Some("lab"), Some("asked")), "asked");
        assert_eq!(around.home(Some("lab"), None), "environment");
        assert_eq!(around.home(None, Some("asked")), "environment");
        assert_eq!(Surroundings::default().home(None, Some("asked")), "asked");
        assert_eq!(Surroundings::default().home(None, None), "us-east-1");
    }
}
