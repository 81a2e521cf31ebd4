//! Failures of an object store, sorted by what the server said.
//!
//! Absent is only what a server says is absent: by its code for one object, and not for a bucket or with a page that something
//! on the way made up. A plain web server has no codes, and its 404 is all there is. Messages are made from status, code and
//! message of the error document: never from a URL, which may hold secrets. `bucket` is what the bucket or container is called,
//! `None` for a web server.

use super::wire::{Last, Trace, WEB_PAGE, cause};
use crate::error::{Error, Kind};
use object_store::client::{HttpError, HttpErrorKind};
use std::time::Duration;

/// What S3, Google and Azure say of an object that is not there.
const NO_OBJECT: [&str; 3] = ["NoSuchKey", "BlobNotFound", "PathNotFound"];

/// What they say of a bucket or container that is not there.
const NO_BUCKET: [&str; 3] = ["NoSuchBucket", "ContainerNotFound", "FilesystemNotFound"];

/// What servers say of credentials that they no longer take.
const ENDED: [&str; 6] = [
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidToken",
    "TokenRefreshRequired",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
];

/// Sorts the failure of a request that ended.
pub fn sort(e: &object_store::Error, trace: &Trace, bucket: Option<&str>) -> Error {
    let (attempts, last) = trace.last();
    match last {
        Last::Refused { status, code, message } => refused(status, code.as_deref(), message.as_deref(), attempts, bucket),
        Last::Broken { late: true, .. } => Error::new(Kind::TimedOut, format!("no answer{}", tries(attempts))),
        Last::Broken { reason, .. } => unavailable(&reason, attempts),
        Last::Odd(reason) => unavailable(&format!("the server gave {reason}"), attempts),
        // Asked for nothing: no credentials, or a name that the library cannot send.
        Last::Nothing => match e {
            object_store::Error::InvalidPath { .. } => Error::unsupported(format!("no name that can be asked for: {}", cause(e))),
            _ => Error::new(Kind::Denied, cause(e)),
        },
        // Answered well, and the answer is not what was asked for.
        Last::Waiting => unavailable(&format!("the server's answer makes no sense: {}", cause(e)), attempts),
    }
}

/// What is said when the deadline is over.
pub fn late(trace: &Trace, deadline: Duration, bucket: Option<&str>) -> Error {
    let (attempts, last) = trace.last();
    match last {
        // It was about to be asked again.
        Last::Refused { status, code, message } => refused(status, code.as_deref(), message.as_deref(), attempts, bucket),
        Last::Broken { late: false, reason } => unavailable(&reason, attempts),
        Last::Odd(reason) => unavailable(&format!("the server gave {reason}"), attempts),
        Last::Nothing => Error::new(Kind::TimedOut, format!("no credentials within {} s", deadline.as_secs_f32())),
        Last::Waiting | Last::Broken { .. } => {
            Error::new(Kind::TimedOut, format!("no answer, or not all of it, within {} s", deadline.as_secs_f32()))
        }
    }
}

/// Whether the server's refusal means that the credentials are no longer good, so that others may help.
pub fn is_expired(trace: &Trace) -> bool {
    matches!(trace.last().1, Last::Refused { code: Some(code), .. } if ENDED.contains(&code.as_str()))
}

/// Whether the server gives no reason for its refusal, as in an answer to HEAD: the credentials may be those of a while ago.
pub fn is_untold(trace: &Trace) -> bool {
    matches!(trace.last().1, Last::Refused { status: 400 | 401 | 403, code: None, .. })
}

/// Whether the server refused without a word: the credentials may have ended, or be meant for another region.
pub fn is_mute(trace: &Trace, bucket: Option<&str>) -> bool {
    bucket.is_some() && matches!(trace.last().1, Last::Refused { status: 400, code: None, .. })
}

/// Whether the server said that something is absent, and not what: the object, or the bucket.
pub fn is_unclear(trace: &Trace, bucket: Option<&str>) -> bool {
    match trace.last().1 {
        Last::Refused { status: 404, code, .. } => {
            let code = code.as_deref().unwrap_or_default();
            bucket.is_some() && !NO_OBJECT.contains(&code) && !NO_BUCKET.contains(&code)
        }
        _ => false,
    }
}

/// Whether the last attempt was refused by a web page, as no store does it.
pub fn is_page(trace: &Trace) -> bool {
    matches!(trace.last().1, Last::Refused { code: Some(code), .. } if code == WEB_PAGE)
}

/// Whether the server knows no HEAD, or says so.
pub fn is_unknown_method(trace: &Trace) -> bool {
    matches!(status(trace), Some(405 | 501))
}

/// Whether the answer may be for want of ranges that have no beginning: there are servers that take them for mistakes, or fail, or
/// overlook them.
pub fn is_no_suffix(trace: &Trace) -> bool {
    match trace.last().1 {
        Last::Refused { status: 400, code, .. } => !code.is_some_and(|code| ENDED.contains(&code.as_str())),
        Last::Refused { status: 500 | 501, .. } | Last::Waiting => true,
        _ => false,
    }
}

/// Whether the last attempt was answered with success.
pub fn answered(trace: &Trace) -> bool {
    trace.last().1 == Last::Waiting
}

/// An answer whose body ended early.
pub fn broke_off(e: &object_store::Error) -> Error {
    let mut at: Option<&dyn std::error::Error> = Some(e);
    while let Some(inner) = at {
        if inner.downcast_ref::<HttpError>().is_some_and(|e| e.kind() == HttpErrorKind::Timeout) {
            return Error::new(Kind::TimedOut, "the answer came to a stop");
        }
        at = inner.source();
    }
    Error::new(Kind::Unavailable, format!("the answer broke off: {}", cause(e)))
}

/// The HTTP status that the last attempt got, where it was no success.
pub fn status(trace: &Trace) -> Option<u16> {
    match trace.last().1 {
        Last::Refused { status, .. } => Some(status),
        _ => None,
    }
}

fn refused(status: u16, code: Option<&str>, message: Option<&str>, attempts: u32, bucket: Option<&str>) -> Error {
    let said = match (code, message) {
        (Some(code), Some(message)) => format!("{status} {code}: {message}"),
        (Some(code), None) => format!("{status} {code}"),
        _ => format!("status {status}"),
    };
    match (status, code) {
        (404 | 410, _) if bucket.is_none() => Error::not_found(),
        (404, Some(code)) if NO_OBJECT.contains(&code) => Error::not_found(),
        (404, Some(code)) if NO_BUCKET.contains(&code) => {
            let reason = format!("{} is not there: the server answered {said}", bucket.unwrap_or_default());
            Error::new(Kind::Unavailable, reason)
        }
        (404, _) => {
            let bucket = bucket.unwrap_or_default();
            Error::new(Kind::Unavailable, format!("the server answered {said}, and not what is absent: the object, or {bucket}"))
        }
        // A name longer than names can be is not there.
        (400, Some("KeyTooLongError")) => Error::not_found(),
        (401 | 403, _) => Error::new(Kind::Denied, format!("the server answered {said}")),
        (400, Some(code)) if ENDED.contains(&code) => Error::new(Kind::Denied, format!("the server answered {said}")),
        (400, None) => Error::new(Kind::Denied, "the server answered status 400, as for credentials that have ended"),
        (412, _) => Error::new(Kind::Changed, "the object is another version than the one that was opened"),
        (408, _) => Error::new(Kind::TimedOut, format!("the server answered {said}{}", tries(attempts))),
        _ => unavailable(&format!("the server answered {said}"), attempts),
    }
}

fn unavailable(reason: &str, attempts: u32) -> Error {
    Error::new(Kind::Unavailable, format!("{reason}{}", tries(attempts)))
}

fn tries(attempts: u32) -> String {
    if attempts > 1 { format!(", after {attempts} attempts") } else { String::new() }
}
