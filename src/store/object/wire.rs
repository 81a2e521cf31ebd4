//! HTTP as this store wants it: every request is counted, and every answer is looked at before the library sees it.
//!
//! The library takes any XML for a listing (an error document or a web page would be an empty one) and ends a listing that has
//! more pages but does not say how to get them; both are caught here. What the last answer was is noted for the one who waits,
//! so that errors are sorted by what the server said and not by a message.

use super::endpoint::{Host, host};
use super::{fetch, tidy};
use crate::error::{Error, Kind};
use crate::pieces;
use bytes::Bytes;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, Result};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

tokio::task_local! {
    /// Who waits for what is asked now.
    pub static TRACE: Arc<Trace>;
}

/// Longest error document that is looked into, in bytes.
const ERROR_DOCUMENT: usize = 64 << 10;

/// Longest page of a listing, in bytes: a thousand names of a thousand bytes, each four times as long when escaped.
const PAGE: usize = 16 << 20;

/// What stands for the code of an error where something on the way may have made it up.
pub const WEB_PAGE: &str = "with a web page";

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ask {
    /// The bytes of an object.
    #[default]
    Get,
    /// What is known of an object.
    Head,
    /// A page of names.
    List,
}

/// Counters of the requests that went out, repeated ones included.
#[derive(Debug, Default)]
pub struct Counters {
    /// Reads.
    pub get: AtomicU64,
    /// Questions about one object.
    pub head: AtomicU64,
    /// Pages of names.
    pub list: AtomicU64,
    /// Bytes of objects that came.
    pub bytes: AtomicU64,
    /// Whether any answer has come yet.
    reached: AtomicBool,
    /// The region that the server says the bucket is in.
    pub region: Mutex<Option<String>>,
}

/// How the last attempt went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Last {
    /// Nothing was asked yet.
    #[default]
    Nothing,
    /// No answer has come yet, or its body is still coming.
    Waiting,
    /// The server refused or failed.
    Refused {
        /// HTTP status.
        status: u16,
        /// Code of the error document.
        code: Option<String>,
        /// Its message.
        message: Option<String>,
    },
    /// No answer came.
    Broken {
        /// Whether it took too long.
        late: bool,
        /// What happened.
        reason: String,
    },
    /// An answer that cannot be right.
    Odd(String),
}

/// What happened to one question and its repetitions.
#[derive(Debug, Default)]
pub struct Trace {
    ask: Ask,
    state: Mutex<(u32, Last)>,
    /// The number of the credentials that the last attempt was signed with.
    signer: AtomicU64,
    /// A name that was left out of a page, because it cannot be asked for.
    pub left_out: Mutex<Option<String>>,
    /// The right to hold a body without a length, as long as it may be there.
    held: Mutex<Option<SemaphorePermit<'static>>>,
}

impl Trace {
    /// A new question.
    pub fn new(ask: Ask) -> Arc<Self> {
        Arc::new(Self { ask, ..Self::default() })
    }

    /// Attempts so far, and how the last one went.
    pub fn last(&self) -> (u32, Last) {
        self.state.lock().clone()
    }

    /// Notes with which credentials it will be asked, or why there are none.
    pub fn sign(&self, signer: std::result::Result<u64, &Error>) {
        match signer {
            Ok(number) => self.signer.store(number, Ordering::Relaxed),
            // Else the refusal of a source is told as it is.
            Err(e) if matches!(e.kind(), Kind::Unavailable | Kind::TimedOut) => {
                self.note(Last::Broken { late: false, reason: e.reason().to_owned() });
            }
            Err(_) => self.note(Last::Nothing),
        }
    }

    /// The number of the credentials that the last attempt was signed with.
    pub fn signer(&self) -> u64 {
        self.signer.load(Ordering::Relaxed)
    }

    fn note(&self, last: Last) {
        self.state.lock().1 = last;
    }
}

/// Makes clients that are watched.
#[derive(Debug, Clone)]
pub struct Connector {
    /// Where requests are counted.
    pub counters: Arc<Counters>,
    /// The host that has the objects; requests to others are for credentials. `None` where those go other ways.
    pub host: Option<Host>,
    /// The coding that is asked for, so that objects come as they are stored.
    pub coding: &'static str,
}

/// Long bodies without a length that may be held at a time, of all questions.
static HELD: Semaphore = Semaphore::const_new(2);

/// Bytes of a body without a length from which on it is a long one.
const LONG: usize = 4 << 20;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Wire { inner, connector: self.clone() }))
    }
}

#[derive(Debug)]
struct Wire {
    inner: HttpClient,
    connector: Connector,
}

#[async_trait::async_trait]
impl HttpService for Wire {
    async fn call(&self, mut request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let trace = TRACE.try_with(Arc::clone).unwrap_or_default();
        if !self.is_for_objects(&request) {
            // What these answer says nothing of an object.
            let answer = self.inner.execute(request).await;
            match &answer {
                Ok(answer) if answer.status().is_success() => {}
                Ok(answer) => trace.note(Last::Odd(format!("no credentials: status {}", answer.status().as_u16()))),
                Err(e) => trace.note(Last::Broken { late: false, reason: format!("no credentials: {}", cause(e)) }),
            }
            return answer;
        }
        // Who says nothing may be given any coding, and the lengths and tags of what is coded are others.
        if let Ok(coding) = self.connector.coding.parse() {
            request.headers_mut().insert("accept-encoding", coding);
        }
        let (counters, version) = (&self.connector.counters, request.version());
        let is_part = request.headers().contains_key("range");
        let counter = match trace.ask {
            Ask::Get => &counters.get,
            Ask::Head => &counters.head,
            Ask::List => &counters.list,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        {
            let mut state = trace.state.lock();
            state.0 = state.0.saturating_add(1);
            state.1 = Last::Waiting;
        }
        let mut answer = match self.inner.execute(request).await {
            Ok(answer) => answer,
            Err(e) => return Err(self.broken(&trace, e)),
        };
        tidy::headers(&mut answer);
        counters.reached.store(true, Ordering::Relaxed);
        let region = answer.headers().get("x-amz-bucket-region").and_then(|r| r.to_str().ok()).filter(|r| is_region(r));
        let region = region.map(ToOwned::to_owned);
        let is_told = region.is_some();
        if is_told {
            *counters.region.lock() = region;
        }
        let status = answer.status();
        if status.is_success() && trace.ask != Ask::List {
            let ends = match tidy::end(&answer, is_part) {
                Ok(ends) => ends,
                Err(reason) => return Err(odd(&trace, reason)),
            };
            // From version 2 on a body has an end of its own, too.
            let ends = ends || answer.version() > version;
            // Of all that comes in the place of a part, the part is held by who asks for all.
            let is_all = is_part && status.as_u16() == 200;
            if trace.ask == Ask::Head || !ends || is_all || answer.headers().contains_key("content-length") {
                return Ok(answer);
            }
            let (mut parts, body) = answer.into_parts();
            let body = collect(body, fetch::NO_RANGES, Some(&trace)).await.map_err(|e| {
                drop(trace.held.lock().take());
                self.broken(&trace, e)
            })?;
            // What is too long stays without a length, and is refused.
            if let Some(body) = &body {
                parts.headers.insert("content-length", body.len().into());
            }
            return Ok(HttpResponse::from_parts(parts, body.unwrap_or_default().into()));
        }
        let (parts, body) = answer.into_parts();
        let limit = if status.is_success() { PAGE } else { ERROR_DOCUMENT };
        let mut body = match collect(body, limit, None).await {
            Ok(Some(body)) => body,
            Ok(None) if status.is_success() => return Err(odd(&trace, format!("a listing of more than {PAGE} bytes"))),
            // What is long is no error document of a store.
            Ok(None) => Bytes::new(),
            Err(e) if status.is_success() => return Err(self.broken(&trace, e)),
            Err(_) => Bytes::new(),
        };
        if status.is_success() {
            if let Err(reason) = check_page(&body) {
                return Err(odd(&trace, reason.to_owned()));
            }
            if let Some((page, name)) = std::str::from_utf8(&body).ok().and_then(tidy::page) {
                body = page.into();
                *trace.left_out.lock() = Some(name);
            }
        } else {
            // Where there is no text, as in an answer to HEAD, some say the code in a header.
            let header = |name| parts.headers.get(name).and_then(|value| value.to_str().ok());
            let said = header("x-ms-error-code").or_else(|| header("x-minio-error-code"));
            let page = header("content-type").filter(|kind| kind.starts_with("text/html")).map(|_| WEB_PAGE);
            let text = String::from_utf8_lossy(&body);
            // Not all say it in a header.
            if let Some(region) = element(&text, "Region").map(str::trim).filter(|r| !is_told && is_region(r)) {
                *counters.region.lock() = Some(region.to_owned());
            }
            let (code, message) = reason(&text);
            let (code, short) = (code.or(said.or(page).map(Into::into)), |text: String| text.chars().take(200).collect());
            trace.note(Last::Refused { status: status.as_u16(), code: code.map(short), message: message.map(short) });
        }
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

impl Wire {
    fn is_for_objects(&self, request: &HttpRequest) -> bool {
        let own = self.connector.host.as_ref().is_none_or(|own| host(&request.uri().to_string()).as_ref() == Some(own));
        own && matches!(request.method().as_str(), "GET" | "HEAD")
    }

    /// Notes a failed attempt. Before anything was ever reached nothing is tried again: a wrong endpoint should be told at once.
    fn broken(&self, trace: &Trace, e: HttpError) -> HttpError {
        trace.note(Last::Broken { late: e.kind() == HttpErrorKind::Timeout, reason: cause(&e) });
        if e.kind() == HttpErrorKind::Connect && !self.connector.counters.reached.load(Ordering::Relaxed) {
            return HttpError::new(HttpErrorKind::Unknown, e);
        }
        e
    }
}

/// Whether a word can be a region, which is a part of host names.
fn is_region(word: &str) -> bool {
    (1..=64).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// The innermost reason of an error; what lies around it only says that a request failed.
pub fn cause(e: &dyn std::error::Error) -> String {
    let mut inner = e;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

// An answer that makes no sense may be a passing fault of something on the way: it is asked for again.
fn odd(trace: &Trace, reason: String) -> HttpError {
    trace.note(Last::Odd(reason.clone()));
    HttpError::new(HttpErrorKind::Interrupted, std::io::Error::other(reason))
}

// The bytes of a body; `None` when there are more than `limit`.
async fn collect(
    body: object_store::client::HttpResponseBody,
    limit: usize,
    trace: Option<&Trace>,
) -> std::result::Result<Option<Bytes>, HttpError> {
    use futures_util::StreamExt;
    let mut stream = std::pin::pin!(pieces::body(body.bytes_stream()));
    let mut all = Vec::new();
    while let Some(piece) = stream.next().await {
        let piece = piece?;
        if all.len().saturating_add(piece.len()) > limit {
            return Ok(None);
        }
        let is_long_now = all.len() <= LONG && all.len().saturating_add(piece.len()) > LONG;
        if let Some(trace) = trace.filter(|_| is_long_now) {
            drop(trace.held.lock().take());
            let held = HELD.acquire().await.ok();
            *trace.held.lock() = held;
        }
        all.extend_from_slice(&piece);
    }
    Ok(Some(all.into()))
}

/// Whether a body is a page of a listing, whole, and says how to go on where it is not the last.
fn check_page(body: &[u8]) -> std::result::Result<(), &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "a listing that is not UTF-8")?;
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    while rest.starts_with("<?") || rest.starts_with("<!--") {
        let end = if rest.starts_with("<?") { "?>" } else { "-->" };
        rest = rest.split_once(end).map_or("", |(_, after)| after).trim_start();
    }
    let roots = ["ListBucketResult", "EnumerationResults"];
    let Some(root) = roots.into_iter().find(|root| {
        let after = rest.strip_prefix('<').and_then(|r| r.strip_prefix(root));
        after.is_some_and(|after| after.starts_with(['>', ' ', '/', '\n', '\r', '\t']))
    }) else {
        return Err("no listing where one was asked for");
    };
    let tail = rest.trim_end();
    let closed = tail.strip_suffix('>').and_then(|t| t.trim_end().strip_suffix(root)).is_some_and(|t| t.ends_with("</"));
    let is_empty = tail.ends_with("/>") && tail.matches('<').count() == 1;
    if !closed && !is_empty {
        return Err("a listing that is cut");
    }
    let goes_on = element(tail, "IsTruncated").is_some_and(|word| word.trim().eq_ignore_ascii_case("true"));
    if goes_on && element(tail, "NextContinuationToken").is_none_or(|token| token.trim().is_empty()) {
        return Err("a listing that has more pages and does not say how to get them");
    }
    Ok(())
}

/// Code and message of an error document, in XML or in Google's JSON, whose codes do not tell objects from buckets.
fn reason(text: &str) -> (Option<String>, Option<String>) {
    let part = |name| element(text, name).map(ToOwned::to_owned);
    let Ok(json) = serde_json::from_str::<serde_json::Value>(text) else { return (part("Code"), part("Message")) };
    let part = |pointer| json.pointer(pointer).and_then(|value| value.as_str()).map(ToOwned::to_owned);
    let message = part("/error/message").or_else(|| part("/message"));
    let code = match (part("/error/errors/0/reason"), message.as_deref()) {
        (Some(reason), Some(message)) if reason == "notFound" && message.starts_with("No such object") => {
            Some("NoSuchKey".into())
        }
        (Some(reason), Some(message)) if reason == "notFound" && message.contains("bucket") => Some("NoSuchBucket".into()),
        (reason, _) => reason.or_else(|| part("/code")),
    };
    (code, message)
}

/// The text of the first element called `name`.
pub fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = text.split_once(&format!("<{name}>"))?;
    after.split_once('<').map(|(inside, _)| inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_listing_is_one() {
        for good in [
            "<ListBucketResult/>",
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><IsTruncated>false</IsTruncated></ListBucketResult>\n",
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
            "\u{feff}<?xml?><EnumerationResults a=\"b\"><NextMarker/></EnumerationResults>",
        ] {
            assert_eq!(check_page(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [
            "",
            "<html><body/></html>",
            "<Error><Code>InternalError</Code></Error>",
            "<ListBucketResultX/>",
            "<ListBucketResult><Contents><Key>a</Key>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken></ListBucketResult>",
        ] {
            assert!(check_page(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_region_is_a_word() {
        assert!(is_region("eu-north-1") && is_region("garage"));
        for bad in ["", "a/b", "x@y", "a b", "a#", &"r".repeat(65)] {
            assert!(!is_region(bad), "{bad}");
        }
    }

    #[test]
    fn error_documents_have_a_code_and_a_message() {
        let text = "<?xml?><Error><Code>NoSuchKey</Code><Message>gone</Message></Error>";
        assert_eq!((element(text, "Code"), element(text, "Message")), (Some("NoSuchKey"), Some("gone")));
        assert_eq!(element(text, "Key"), None);
        let code = |text: &str| reason(text).0.unwrap_or_default();
        assert_eq!(reason(text), (Some("NoSuchKey".into()), Some("gone".into())));
        let google = |message: &str| {
            let text = serde_json::json!({"error": {"code": 404, "message": message, "errors": [{"reason": "notFound"}]}});
            code(&text.to_string())
        };
        assert_eq!(google("No such object: b/k"), "NoSuchKey");
        assert_eq!(google("The specified bucket does not exist."), "NoSuchBucket");
        assert_eq!(google("Not Found"), "notFound");
        assert_eq!(code("<html><body>404</body></html>") + &code("") + &code("null"), "");
    }
}
