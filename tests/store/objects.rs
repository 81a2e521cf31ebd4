//! Object stores behind a server that follows a script: what is not said is not believed, absence least of all.
//!
//! The documents of the server are those of S3, Azure and Google as their references print them.

use crate::conformance::{key, kind, read};
use chunkmount::error::{Error, Kind, Result};
use chunkmount::store::object::{self, Address, Found, Options, Service};
use chunkmount::store::{Range, Store};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const NO_KEY: &str =
    "<?xml version='1.0'?><Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message></Error>";
const NO_BUCKET: &str = "<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>";
const NO_BLOB: &str =
    "\u{feff}<?xml version=\"1.0\"?><Error><Code>BlobNotFound</Code><Message>The blob is not there.</Message></Error>";
const NO_OBJECT: &str = r#"{"error": {"code": 404, "message": "No such object: b/a/k", "errors": [{"reason": "notFound"}]}}"#;
const PAGE: &str = "<html><head><title>404 Not Found</title></head><body>nginx</body></html>";

/// A request.
struct Asked {
    /// GET, HEAD or LIST.
    kind: &'static str,
    path: String,
    headers: HashMap<String, String>,
}

/// What is answered: status, headers beside the length, a body, and how much of it comes.
struct Answer(u16, Vec<(&'static str, String)>, Vec<u8>, usize);

fn refused(status: u16, body: &str) -> Answer {
    Answer(status, Vec::new(), body.into(), usize::MAX)
}

/// An object, or the part of it that is asked for.
fn object(asked: &Asked, content: &[u8], headers: &[(&'static str, &str)]) -> Answer {
    let mut headers: Vec<_> = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let Some(range) = asked.headers.get("range") else { return Answer(200, headers, content.to_vec(), usize::MAX) };
    let (first, last) = range.trim_start_matches("bytes=").split_once('-').unwrap();
    let number = |text: &str| text.parse::<usize>().ok();
    let (first, last) = match (number(first), number(last)) {
        (Some(first), last) => (first, last.unwrap_or(usize::MAX).min(content.len() - 1)),
        (None, last) => (content.len().saturating_sub(last.unwrap()), content.len() - 1),
    };
    headers.push(("content-range", format!("bytes {first}-{last}/{}", content.len())));
    Answer(206, headers, content[first..=last].to_vec(), usize::MAX)
}

/// A server, by its URL, and what it was asked.
struct Server(String, Arc<Mutex<Vec<String>>>);

impl Server {
    fn new(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1", answer)
    }

    fn at(host: &str, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let (answer, kept) = (Arc::new(answer), Arc::clone(&log));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&kept));
                std::thread::spawn(move || while talk(stream.as_ref().unwrap(), answer.as_ref(), &log).is_some() {});
            }
        });
        Self(url, log)
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

/// Answers one request; `None` at the end of a connection.
fn talk(stream: &TcpStream, answer: &dyn Fn(&Asked) -> Answer, log: &Mutex<Vec<String>>) -> Option<()> {
    // Who asks waits for the answer before asking again: nothing is lost with the buffer.
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let (method, rest) = first.split_once(' ')?;
    let path = rest.split(' ').next()?.to_owned();
    let headers = lines.map_while(|line| line.ok().filter(|line| !line.is_empty()));
    let headers = headers.filter_map(|l| l.split_once(':').map(|(n, v)| (n.to_lowercase(), v.trim().to_owned()))).collect();
    let is_list = path.contains("list-type=") || path.contains("comp=list");
    let kind = if is_list {
        "LIST"
    } else if method == "HEAD" {
        "HEAD"
    } else {
        "GET"
    };
    log.lock().unwrap().push(kind.to_owned());
    let Answer(status, headers, body, most) = answer(&Asked { kind, path, headers });
    let mut text = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| text += &format!("{name}: {value}\r\n"));
    let mut stream = stream;
    let body = if kind == "HEAD" { &[] } else { &body[..most.min(body.len())] };
    stream.write_all(&[(text + "\r\n").as_bytes(), body].concat()).ok()?;
    if most == usize::MAX { Some(()) } else { stream.shutdown(std::net::Shutdown::Both).ok().and(None) }
}

const TAGGED: [(&str, &str); 2] = [("etag", "\"t\""), ("last-modified", "Mon, 02 Nov 2026 10:00:00 GMT")];

fn bucket(url: &str) -> Service {
    Service::S3 { bucket: "b".into(), endpoint: Some(url.into()), region: None }
}

fn open(service: Service) -> Result<Found> {
    let address = Address { service, key: "a".into(), profile: None };
    let timeout = Duration::from_secs(5);
    object::open(address, &Options { unsigned: true, timeout, documents: &["mark"], ..Options::default() }, false)
}

fn store(service: Service) -> Arc<dyn Store> {
    match open(service) {
        Ok(Found::Directory(remote)) => Arc::new(remote),
        Ok(Found::Object(..)) => panic!("an object"),
        Err(e) => panic!("{e}"),
    }
}

/// A bucket that may not be listed, so that nothing but the answers for single objects tells of them: `mark` is there, and for
/// all others GET is answered as told; HEAD has no body.
fn unlisted(get: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Server {
    Server::new(move |asked| match asked.kind {
        "LIST" => refused(403, "<Error><Code>AccessDenied</Code></Error>"),
        _ if asked.path.ends_with("/mark") => object(asked, b"mark", &TAGGED),
        _ => get(asked),
    })
}

#[test]
fn only_who_says_that_the_object_is_absent_is_believed() {
    for (body, header, expected) in [
        (NO_KEY, None, Kind::NotFound),
        (NO_BLOB, None, Kind::NotFound),
        (NO_OBJECT, None, Kind::NotFound),
        ("", Some(("x-ms-error-code", "BlobNotFound")), Kind::NotFound),
        (NO_BUCKET, None, Kind::Unavailable),
        ("", Some(("x-ms-error-code", "ContainerNotFound")), Kind::Unavailable),
        (PAGE, None, Kind::Unavailable),
        ("", None, Kind::Unavailable),
        ("<Error><Code>ResourceNotFound</Code></Error>", None, Kind::Unavailable),
    ] {
        let is_there = Arc::new(AtomicUsize::new(0));
        let there = Arc::clone(&is_there);
        let server = unlisted(move |asked| match there.load(Ordering::Relaxed) {
            0 => Answer(404, header.map(|(name, value)| (name, value.to_owned())).into_iter().collect(), body.into(), usize::MAX),
            _ => object(asked, b"here", &TAGGED),
        });
        let store = store(bucket(&server.0));
        let seen = |e: Error| {
            assert_eq!(e.kind(), expected, "{body:?} {e}");
            assert!(e.kind() == Kind::NotFound || e.reason().contains("s3://b"), "{e}");
        };
        seen(store.head_object(&key("by head")).unwrap_err());
        seen(read(&*store, "by get", Range::All).unwrap_err());
        // Absence is learnt for the life of the mount, and doubt is not.
        is_there.store(1, Ordering::Relaxed);
        let kinds = [store.head_object(&key("by head")).err(), read(&*store, "by get", Range::All).err()];
        let absent = if expected == Kind::NotFound { Some(Kind::NotFound) } else { None };
        assert_eq!(kinds.map(|e| e.map(|e| e.kind())), [absent, absent], "{body:?}");
    }
}

#[test]
fn a_bucket_that_has_just_answered_is_there() {
    let server = unlisted(|asked| match asked.path.ends_with("page") {
        true => Answer(404, vec![("content-type", "text/html; charset=utf-8".into())], PAGE.into(), usize::MAX),
        false => refused(404, NO_KEY),
    });
    let store = store(bucket(&server.0));
    server.asked();
    for (name, asked) in [("x", &["HEAD", "GET"][..]), ("y", &["HEAD"]), ("y", &[])] {
        assert_eq!(store.head_object(&key(name)).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(server.asked(), asked, "{name}");
    }
    // But no bucket answers with a page for people.
    let e = store.head_object(&key("page")).unwrap_err();
    assert!(e.kind() == Kind::Unavailable && e.reason().contains("web page"), "{e}");
    assert_eq!(server.asked(), ["HEAD", "GET"]);
}

#[test]
fn a_bucket_that_is_not_there_is_named() {
    for body in [NO_BUCKET, NO_KEY, PAGE] {
        let server = Server::new(|_| refused(404, body));
        let e = open(bucket(&server.0)).err().unwrap();
        assert!(e.kind() == Kind::Unavailable && e.reason().contains("s3://b"), "{e}");
    }
}

#[test]
fn a_web_server_has_no_codes() {
    for status in [404, 410] {
        let server = unlisted(move |_| refused(status, PAGE));
        let store = store(Service::Web { base: server.0.clone() });
        assert_eq!(store.head_object(&key("x")).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(kind(&*store, "y"), Kind::NotFound);
    }
}

const PART: Range = Range::Part { offset: 50, length: 20 };

#[test]
fn a_range_after_the_end_is_empty_only_there() {
    for (size, expected) in [(100, Some(Kind::Changed)), (50, None), (0, None)] {
        let server = unlisted(move |asked| match asked.kind {
            "HEAD" => object(asked, &vec![7; size], &TAGGED),
            _ => refused(416, "<Error><Code>InvalidRange</Code></Error>"),
        });
        let store = store(bucket(&server.0));
        let read = read(&*store, "x", PART);
        assert_eq!(read.as_ref().err().map(Error::kind), expected, "{size}");
        assert!(read.unwrap_or_default().is_empty());
    }
    // Without a range it makes no sense.
    let server = unlisted(|_| refused(416, ""));
    assert_eq!(kind(&*store(bucket(&server.0)), "x"), Kind::Unavailable);
}

#[test]
fn a_body_that_breaks_off_in_a_range_that_is_gone_then_is_no_empty_one() {
    let gets = AtomicUsize::new(0);
    let server = unlisted(move |asked| match asked.kind {
        "GET" if gets.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) => {
            let Answer(status, headers, body, _) = object(asked, &[7; 100], &TAGGED);
            Answer(status, headers, body, 5)
        }
        "GET" => refused(416, "<Error><Code>InvalidRange</Code></Error>"),
        _ => object(asked, &[], &TAGGED),
    });
    let store = store(bucket(&server.0));
    assert_eq!(read(&*store, "x", PART).unwrap_err().kind(), Kind::Unavailable);
}

#[test]
fn parts_of_what_has_no_version_are_not_put_together() {
    let content = Arc::new(AtomicUsize::new(1));
    let kept = Arc::clone(&content);
    let server = unlisted(move |asked| object(asked, &[kept.load(Ordering::Relaxed) as u8; 100], &[]));
    let store = store(bucket(&server.0));
    let whole = |from: u64, length| Range::Part { offset: from, length };
    let mut bytes = Vec::new();
    // A first part is one answer, and no second one belongs to it for sure.
    let meta = store.get(&key("x"), PART, None, 100, &mut bytes).unwrap();
    assert_eq!((bytes.as_slice(), meta.size), (&[1; 20][..], 100));
    content.store(2, Ordering::Relaxed);
    for range in [PART, Range::Suffix(9), whole(0, 99), whole(1, 500)] {
        let e = store.get(&key("x"), range, Some(&meta.version), 100, &mut bytes).unwrap_err();
        assert!(e.kind() == Kind::Unsupported && e.reason().contains("entity tag"), "{range:?} {e}");
    }
    for range in [Range::All, whole(0, 100), whole(0, 500), Range::Suffix(100)] {
        store.get(&key("x"), range, Some(&meta.version), 100, &mut bytes).unwrap();
        assert_eq!(bytes, [2; 100], "{range:?}");
    }
    // Either is enough.
    for header in TAGGED {
        let server = unlisted(move |asked| object(asked, &[1; 100], &[header]));
        let store = self::store(bucket(&server.0));
        let meta = store.get(&key("x"), PART, None, 100, &mut bytes).unwrap();
        store.get(&key("x"), PART, Some(&meta.version), 100, &mut bytes).unwrap();
    }
}

/// The commands, with these variables alone.
fn listed(source: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_chunkmount"));
    command.args(["ls", "--timeout", "4"]).args(arguments).arg(source);
    command.env_clear().env("AWS_CONFIG_FILE", "/dev/null").env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout))
}

/// A web page is no empty listing, wherever it was said that the service is.
#[test]
fn answers_of_endpoints_from_the_environment_are_looked_at() {
    // No name that the service has elsewhere.
    let server = Server::at("127.0.0.2", |asked| match asked.kind {
        "LIST" => refused(200, "<html><body>welcome</body></html>"),
        _ => refused(404, NO_KEY),
    });
    let account = ("AZURE_STORAGE_ACCOUNT_NAME", "me");
    let key = format!(
        r#"{{"gcs_base_url": "{}", "disable_oauth": true, "client_email": "", "private_key": "", "private_key_id": ""}}"#,
        server.0
    );
    let cases = [
        ("az://b/a", vec![account, ("AZURE_STORAGE_ENDPOINT", &server.0)]),
        ("az://b/a", vec![account, ("AZURE_ENDPOINT", &server.0)]),
        ("az://b/a", vec![("AZURE_STORAGE_USE_EMULATOR", "true"), ("AZURITE_BLOB_STORAGE_URL", &server.0)]),
        ("gs://b/a", vec![("GOOGLE_BASE_URL", &server.0)]),
        ("gs://b/a", vec![("GOOGLE_SERVICE_ACCOUNT_KEY", &key)]),
        ("s3://b/a", vec![("AWS_ENDPOINT_URL", &server.0)]),
    ];
    // Each of them asks again for some seconds.
    std::thread::scope(|scope| {
        for (source, variables) in cases {
            let url = &server.0;
            scope.spawn(move || {
                let (code, text) = listed(source, &["--no-sign-request"], &variables);
                assert!(code == Some(7) && text.contains(url) && text.contains("no listing"), "{source} {variables:?}: {text}");
            });
        }
    });
}

#[test]
fn passwords_in_endpoints_are_refused_and_not_repeated() {
    let url = "http://me:hush@127.0.0.1:1";
    let account = ("AZURE_STORAGE_ACCOUNT_NAME", "me");
    for (source, arguments, variables) in [
        ("s3://b/a", vec!["--endpoint-url", url], vec![]),
        ("s3://b/a", vec![], vec![("AWS_ENDPOINT_URL_S3", url)]),
        ("s3://b/a", vec![], vec![("AWS_ENDPOINT_URL", "me:hush@127.0.0.1:1")]),
        ("gs://b/a", vec!["--endpoint-url", url], vec![]),
        ("gs://b/a", vec![], vec![("GOOGLE_BASE_URL", url)]),
        ("az://b/a", vec!["--endpoint-url", url], vec![account]),
        ("az://b/a", vec![], vec![account, ("AZURE_STORAGE_ENDPOINT", url)]),
    ] {
        let arguments = [vec!["--no-sign-request"], arguments].concat();
        let (code, text) = listed(source, &arguments, &variables);
        assert!(code == Some(2) && text.contains("endpoint") && !text.contains("hush"), "{source} {variables:?}: {text}");
    }
}
