//! Failures of an object store, sorted by what the server said.
//!
//! Absent is only what a server answered with 404 for one object, and not for a bucket. Messages are made from status, code
//! and message of the error document: never from a URL or a header, which may hold secrets.

use super::wire::{Last, Trace, cause};
use crate::error::{Error, Kind};
use object_store::client::{HttpError, HttpErrorKind};
use std::time::Duration;

/// Sorts the failure of a request that ended.
pub fn sort(e: &object_store::Error, trace: &Trace) -> Error {
    let (attempts, last) = trace.last();
    match last {
        Last::Refused { status, code, message } => refused(status, code.as_deref(), message.as_deref(), attempts),
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
pub fn late(trace: &Trace, deadline: Duration) -> Error {
    let (attempts, last) = trace.last();
    match last {
        // It was about to be asked again.
        Last::Refused { status, code, message } => refused(status, code.as_deref(), message.as_deref(), attempts),
        Last::Broken { late: false, reason } => unavailable(&reason, attempts),
        Last::Odd(reason) => unavailable(&format!("the server gave {reason}"), attempts),
        Last::Nothing => Error::new(Kind::TimedOut, format!("no credentials within {} s", deadline.as_secs_f32())),
        Last::Waiting | Last::Broken { .. } => {
            Error::new(Kind::TimedOut, format!("no answer, or not all of it, within {} s", deadline.as_secs_f32()))
        }
    }
}

/// Whether the server's refusal means that the credentials are no longer good, so that new ones may help.
pub fn is_expired(trace: &Trace) -> bool {
    let (_, last) = trace.last();
    match last {
        Last::Refused { code: Some(code), .. } => {
            matches!(code.as_str(), "ExpiredToken" | "InvalidToken" | "TokenRefreshRequired" | "ExpiredTokenException")
        }
        // An answer to HEAD has no text that would say more.
        Last::Refused { status: 400, code: None, .. } => true,
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

fn refused(status: u16, code: Option<&str>, message: Option<&str>, attempts: u32) -> Error {
    let said = match (code, message) {
        (Some(code), Some(message)) => format!("{status} {code}: {message}"),
        (Some(code), None) => format!("{status} {code}"),
        _ => format!("status {status}"),
    };
    match (status, code) {
        (404, Some("NoSuchBucket" | "ContainerNotFound")) => Error::new(Kind::Unavailable, format!("the server answered {said}")),
        // A name longer than names can be is not there.
        (404, _) | (400, Some("KeyTooLongError")) => Error::not_found(),
        (401 | 403, _) => Error::new(Kind::Denied, format!("the server answered {said}")),
        (400, Some("ExpiredToken" | "InvalidToken" | "TokenRefreshRequired")) => {
            Error::new(Kind::Denied, format!("the server answered {said}"))
        }
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
