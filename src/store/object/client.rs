//! A connection to one bucket, container or web server: how it is asked, how long, and how often.
//!
//! A question has a deadline, which holds for all of its attempts together. It is put off only by progress: each 8 MiB
//! of an object give it a new one, so that a large object on a slow line is read, and a drip of bytes is not waited for.

use super::credentials::{self, Credentials};
use super::endpoint::{self, Host};
use super::wire::{Ask, Connector, Counters, TRACE, Trace};
use super::{Address, Options, Service, fail};
use crate::error::{Error, Kind, Result};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, RetryConfig};
use parking_lot::Mutex;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout_at};

/// Most repetitions of a request that failed. With the pauses between them they take a second or two.
const RETRIES: usize = 6;

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// How long an answer shows that the bucket is there.
const ANSWERED: Duration = Duration::from_secs(10);

/// Whether a server answers for the last bytes of an object without being told where they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffixes {
    Untried,
    /// One failed as it does where they are not known.
    Doubted,
    Known,
    Missing,
}

/// See the module.
pub struct Client {
    pub(super) runtime: Runtime,
    pub(super) objects: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    credentials: Option<Credentials>,
    /// What was asked so far.
    pub counters: Arc<Counters>,
    timeout: Duration,
    /// Whether the last bytes can be asked for without knowing how many there are.
    suffixes: Mutex<Suffixes>,
    /// Whether the server knows no HEAD, or tells by it what its objects are not.
    headless: AtomicBool,
    /// What is asked, for messages.
    pub endpoint: String,
    /// The bucket or container, as a person says it; `None` for a web server, which has none.
    bucket: Option<String>,
    /// When the bucket last answered for what is in it.
    answered: Mutex<Option<Instant>>,
    /// Whose objects these are, with the endpoint: equal names elsewhere are other objects.
    pub identity: String,
    /// The region that requests are signed for.
    pub region: Option<String>,
    /// Whether the region was guessed, so that the server's word counts.
    pub guessed: bool,
}

/// A page of names.
pub struct Page {
    /// Objects.
    pub objects: Vec<ObjectMeta>,
    /// Directories.
    pub directories: Vec<Path>,
    /// The token of the next page.
    pub next: Option<String>,
    /// A name that was left out, because it cannot be asked for.
    pub left_out: Option<String>,
}

impl Client {
    /// A client for the service at `address`. Nothing is asked of it yet; credentials are looked for.
    ///
    /// # Errors
    /// [`Kind::Denied`] without credentials, [`Kind::Usage`] for what cannot be an address.
    pub fn new(address: &Address, options: &Options, region: Option<String>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("object-store")
            .enable_all()
            .build()
            .map_err(|e| Error::new(Kind::Bug, format!("no runtime for requests: {e}")))?;
        let counters = Arc::new(Counters::default());
        let mut client = Self {
            runtime,
            objects: Arc::new(object_store::memory::InMemory::new()),
            pages: None,
            credentials: None,
            counters: Arc::clone(&counters),
            timeout: options.timeout,
            suffixes: Mutex::new(Suffixes::Untried),
            headless: AtomicBool::new(false),
            endpoint: String::new(),
            bucket: (!matches!(address.service, Service::Web { .. })).then(|| address.name("")),
            answered: Mutex::new(None),
            identity: String::new(),
            region: None,
            guessed: false,
        };
        let settings = Settings {
            retry: RetryConfig {
                backoff: BackoffConfig {
                    init_backoff: Duration::from_millis(100),
                    max_backoff: Duration::from_secs(5),
                    base: 2.0,
                },
                max_retries: RETRIES,
                retry_timeout: options.timeout,
            },
            // A connection that went silent is given up in time for another attempt.
            client: ClientOptions::new()
                .with_timeout_disabled()
                .with_connect_timeout(CONNECT.min(options.timeout))
                .with_read_timeout(options.timeout.div_f32(2.5).max(Duration::from_millis(200)))
                .with_allow_http(true),
            counters,
            coding: "identity",
        };
        match &address.service {
            Service::S3 { bucket, endpoint, region: named } => {
                client.guessed = region.is_none() && options.region.is_none();
                let region = region.or_else(|| options.region.clone()).or_else(|| named.clone());
                client.s3(bucket, endpoint.as_deref(), region, address.profile.as_deref(), options, settings)?;
            }
            Service::Google { bucket } => client.google(bucket, options, settings)?,
            Service::Azure { url, .. } => client.azure(url, options, settings)?,
            Service::Web { base } => {
                let built = HttpBuilder::new()
                    .with_url(base)
                    .with_retry(settings.retry.clone())
                    .with_http_connector(settings.connector(None))
                    .with_client_options(settings.client);
                client.objects = Arc::new(built.build().map_err(wrong)?);
                client.endpoint.clone_from(base);
            }
        }
        client.identity = format!("{} {}", client.endpoint, client.identity);
        Ok(client)
    }

    fn s3(
        &mut self,
        bucket: &str,
        endpoint: Option<&str>,
        region: Option<String>,
        profile: Option<&str>,
        options: &Options,
        settings: Settings,
    ) -> Result<()> {
        let profile = options.profile.as_deref().or(profile);
        let around = self.wait(async { Ok(credentials::surroundings(profile).await) })?;
        let endpoint = options.endpoint.clone().or_else(|| endpoint.map(ToOwned::to_owned)).or_else(|| around.endpoint.clone());
        let home = around.home(profile, options.region.as_deref());
        let region = region.or(around.region).unwrap_or_else(|| "us-east-1".into());
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&region)
            .with_request_payer(options.requester_pays)
            .with_skip_signature(options.unsigned)
            .with_retry(settings.retry.clone())
            .with_http_connector(settings.connector(None))
            .with_client_options(settings.client);
        match &endpoint {
            Some(endpoint) => {
                let endpoint = endpoint::check(endpoint)?;
                // Where the bucket is part of the host's name, certificates and name servers must know each bucket: only on request.
                let own_host = endpoint.contains("{bucket}");
                let endpoint = &endpoint.replace("{bucket}", bucket);
                builder = builder.with_endpoint(endpoint).with_allow_http(true).with_virtual_hosted_style_request(own_host);
                self.endpoint.clone_from(endpoint);
            }
            None => {
                let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
                let host = format!("s3.{region}.amazonaws.com{suffix}");
                // A certificate for *.s3... has no name for a bucket with a dot.
                let own_host = !bucket.contains('.');
                self.endpoint = if own_host { format!("https://{bucket}.{host}") } else { format!("https://{host}") };
                builder = builder.with_endpoint(&self.endpoint).with_virtual_hosted_style_request(own_host);
            }
        }
        if !options.unsigned {
            let found = self.wait(Credentials::find(profile, home))?;
            self.credentials = Some(found.clone());
            builder = builder.with_credentials(Arc::new(found));
        }
        let store = Arc::new(builder.build().map_err(wrong)?);
        self.region = Some(region);
        self.pages = Some(store.clone());
        self.objects = store;
        Ok(())
    }

    fn google(&mut self, bucket: &str, options: &Options, mut settings: Settings) -> Result<()> {
        // Who does not ask for it is given what was stored so without the coding, and without a word of that.
        settings.coding = "gzip";
        let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_base_url(endpoint);
        }
        self.endpoint = endpoint::google(&builder)?;
        let builder = builder
            .with_base_url(&self.endpoint)
            .with_skip_signature(options.unsigned)
            .with_retry(settings.retry.clone())
            .with_http_connector(settings.connector(endpoint::host(&self.endpoint)))
            .with_client_options(settings.client);
        let store = Arc::new(builder.build().map_err(wrong)?);
        self.pages = Some(store.clone());
        self.objects = store;
        Ok(())
    }

    fn azure(&mut self, url: &str, options: &Options, settings: Settings) -> Result<()> {
        let mut builder = MicrosoftAzureBuilder::from_env().with_url(url);
        if options.unsigned {
            builder = builder.with_skip_signature(true);
        }
        if let Some(endpoint) = &options.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        (self.endpoint, self.identity) = endpoint::azure(&builder, url, options)?;
        let builder = builder
            .with_retry(settings.retry.clone())
            .with_http_connector(settings.connector(endpoint::host(&self.endpoint)))
            .with_client_options(settings.client);
        let store = Arc::new(builder.build().map_err(wrong)?);
        self.forget_suffixes();
        self.pages = Some(store.clone());
        self.objects = store;
        Ok(())
    }

    /// Whether there are listings.
    pub fn lists(&self) -> bool {
        self.pages.is_some()
    }

    // Waits for what is no request to the store.
    fn wait<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(async {
            let late = || Error::new(Kind::TimedOut, format!("no credentials within {} s", self.timeout.as_secs_f32()));
            tokio::time::timeout(self.timeout, work).await.unwrap_or_else(|_| Err(late()))
        })
    }

    /// What is known of an object.
    ///
    /// # Errors
    /// See [`fail::sort`].
    pub fn head(&self, path: &Path) -> Result<ObjectMeta> {
        let options = || GetOptions { head: true, ..GetOptions::default() };
        if self.headless.load(Ordering::Relaxed) {
            return self.ask(Ask::Get, path, &GetOptions::default).0;
        }
        let (asked, trace) = self.ask(Ask::Head, path, &options);
        match asked {
            // An answer to HEAD has no text: what is absent may be the bucket, or something on the way may have answered.
            Err(_) if fail::is_unclear(&trace, self.bucket.as_deref()) => self.confirm(path, !fail::is_page(&trace)),
            Err(_) if fail::is_mute(&trace, self.bucket.as_deref()) => self.confirm(path, false),
            // Some servers know no HEAD, or do not tell lengths by it. What comes before the bytes says the same.
            Err(e) if fail::is_unknown_method(&trace) || e.kind() == Kind::Unavailable && fail::answered(&trace) => {
                let (told, read) = self.ask(Ask::Get, path, &GetOptions::default);
                if fail::is_unknown_method(&trace) && (told.is_ok() || fail::status(&read) == Some(404)) {
                    self.headless.store(true, Ordering::Relaxed);
                }
                told
            }
            asked => asked,
        }
    }

    // What is known of an object for which the server gave no reason why not. The object's first byte is asked for, unless it was
    // said to be absent and the bucket answered a short while ago, which is good enough where `likely`: an answer with a text
    // says what it is that is absent, or whether the credentials are no longer good.
    fn confirm(&self, path: &Path, likely: bool) -> Result<ObjectMeta> {
        if likely && self.answered.lock().is_some_and(|when| when.elapsed() < ANSWERED) {
            return Err(Error::not_found());
        }
        let options = || GetOptions { range: Some(GetRange::Bounded(0..1)), ..GetOptions::default() };
        let (asked, trace) = self.ask(Ask::Get, path, &options);
        if asked.is_err() && fail::status(&trace) == Some(416) {
            // It has no first byte.
            return self.ask(Ask::Head, path, &|| GetOptions { head: true, ..GetOptions::default() }).0;
        }
        asked.inspect_err(|e| {
            if e.kind() == Kind::NotFound {
                self.note_answer();
            }
        })
    }

    // What an answer says of an object, without its bytes.
    fn ask(&self, ask: Ask, path: &Path, options: &dyn Fn() -> GetOptions) -> (Result<ObjectMeta>, Arc<Trace>) {
        let trace = Trace::new(ask);
        let asked = self.runtime.block_on(TRACE.scope(Arc::clone(&trace), async {
            self.until(self.deadline(), &trace, || self.objects.get_opts(path, options())).await
        }));
        (asked.map(|answer| answer.meta), trace)
    }

    pub(super) fn note_answer(&self) {
        *self.answered.lock() = Some(Instant::now());
    }

    /// One page of the names below `prefix`, which ends in a slash or is empty.
    ///
    /// # Errors
    /// See [`fail::sort`]; [`Kind::Unsupported`] for a web server.
    pub fn page(&self, prefix: &str, token: Option<String>) -> Result<Page> {
        let Some(pages) = &self.pages else {
            return Err(Error::unsupported("a web server lists no names; what is called by name opens all the same"));
        };
        let trace = Trace::new(Ask::List);
        self.runtime.block_on(TRACE.scope(Arc::clone(&trace), async {
            let options = || PaginatedListOptions {
                delimiter: Some(Cow::Borrowed("/")),
                page_token: token.clone(),
                ..PaginatedListOptions::default()
            };
            let prefix = Some(prefix).filter(|p| !p.is_empty());
            let page = self.until(self.deadline(), &trace, || pages.list_paginated(prefix, options())).await;
            // A listing that is not there is that of a bucket, which was there.
            let page = page.map_err(|e| match e.kind() {
                Kind::NotFound => {
                    let bucket = self.bucket.as_deref().unwrap_or_default();
                    Error::new(Kind::Unavailable, format!("the server answered that {bucket} is not there"))
                }
                _ => e,
            })?;
            self.note_answer();
            let next = page.page_token.filter(|token| !token.is_empty());
            let left_out = trace.left_out.lock().take();
            Ok(Page { objects: page.result.objects, directories: page.result.common_prefixes, next, left_out })
        }))
    }

    /// Whether a range of the last bytes can be asked for.
    pub fn has_suffixes(&self) -> bool {
        *self.suffixes.lock() != Suffixes::Missing
    }

    /// Notes that it cannot, unless it could before: one that failed once may have failed for another reason.
    pub fn forget_suffixes(&self) {
        let mut suffixes = self.suffixes.lock();
        if *suffixes != Suffixes::Known {
            *suffixes = Suffixes::Missing;
        }
    }

    /// Notes what an answer to such a question, good or not, says of whether it can be asked.
    pub(super) fn note_suffix(&self, is_good: bool) {
        let mut suffixes = self.suffixes.lock();
        match *suffixes {
            Suffixes::Untried | Suffixes::Doubted => *suffixes = if is_good { Suffixes::Known } else { Suffixes::Doubted },
            Suffixes::Known | Suffixes::Missing => {}
        }
    }

    /// Whether it was answered at least once.
    pub(super) fn knows_suffixes(&self) -> bool {
        *self.suffixes.lock() == Suffixes::Known
    }

    /// Notes that what HEAD tells is not what the objects are.
    pub fn forget_head(&self) {
        self.headless.store(true, Ordering::Relaxed);
    }

    /// Whether another question is worth asking in its place.
    pub fn doubts_suffixes(&self) -> bool {
        matches!(*self.suffixes.lock(), Suffixes::Doubted | Suffixes::Missing)
    }

    pub(super) fn deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.timeout).unwrap_or(now)
    }

    // Asks, and once more where the server no longer takes the credentials and there are others.
    pub(super) async fn until<T, F>(&self, deadline: Instant, trace: &Trace, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let asked = async {
            match (ask().await, &self.credentials) {
                (Err(_), Some(credentials)) if fail::is_expired(trace) && credentials.renew(trace.signer()).await => ask().await,
                (Err(_), Some(credentials)) if fail::is_untold(trace) && credentials.replaced(trace.signer()).await => {
                    ask().await
                }
                (asked, _) => asked,
            }
        };
        match timeout_at(deadline, asked).await {
            Ok(asked) => asked.map_err(|e| fail::sort(&e, trace, self.bucket.as_deref())),
            Err(_) => Err(self.late(trace)),
        }
    }

    pub(super) fn late(&self, trace: &Trace) -> Error {
        fail::late(trace, self.timeout, self.bucket.as_deref())
    }
}

struct Settings {
    retry: RetryConfig,
    client: ClientOptions,
    counters: Arc<Counters>,
    coding: &'static str,
}

impl Settings {
    fn connector(&self, host: Option<Host>) -> Connector {
        Connector { counters: Arc::clone(&self.counters), host, coding: self.coding }
    }
}

// A builder refuses what it was given before anything is asked.
fn wrong(e: object_store::Error) -> Error {
    Error::usage(super::wire::cause(&e))
}
