//! The one error type, sorted by what it means to a reader.
//!
//! A pure layer says only the reason; whoever knows the object adds it with [`Error::about`], once. Nothing turns
//! doubt into absence: [`Kind::NotFound`] is made only where a store positively answered "absent".

use std::borrow::Cow;
use std::fmt;

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// What an error means; it decides the errno, the exit status and the log level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The store answered that the object is absent.
    NotFound,
    /// Permission refused, or a name that leads outside the source.
    Denied,
    /// A codec, data type or layout that is not read; the reason names it.
    Unsupported,
    /// The bytes contradict their header, their checksum or their metadata.
    Corrupt,
    /// Over one of the limits of [`crate::limits`].
    TooBig,
    /// The object is no longer the version that was opened.
    Changed,
    /// The store failed to answer.
    Unavailable,
    /// A symbolic link whose target is missing, as git-annex leaves them where the content was not fetched.
    Dangling,
    /// The store did not answer within the deadline.
    TimedOut,
    /// The caller asked for something that makes no sense (a wrong argument, a mount point in use).
    Usage,
    /// The kernel refused to mount or to unmount.
    Mount,
    /// A fault in this program.
    Bug,
}

/// An error: its kind, the object it is about, and the reason in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    object: Option<Box<str>>,
    reason: Box<str>,
}

impl Error {
    /// An error of `kind` for `reason`, about no object yet.
    pub fn new(kind: Kind, reason: impl Into<String>) -> Self {
        Self { kind, object: None, reason: reason.into().into_boxed_str() }
    }

    /// [`Kind::NotFound`]: only for a positive answer of a store.
    pub fn not_found() -> Self {
        Self::new(Kind::NotFound, "not found")
    }

    /// [`Kind::Corrupt`], with what was claimed and what is allowed.
    pub fn corrupt(reason: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, reason)
    }

    /// [`Kind::Unsupported`], naming what is not read.
    pub fn unsupported(reason: impl Into<String>) -> Self {
        Self::new(Kind::Unsupported, reason)
    }

    /// [`Kind::TooBig`], with the size and the limit.
    pub fn too_big(reason: impl Into<String>) -> Self {
        Self::new(Kind::TooBig, reason)
    }

    /// [`Kind::Usage`].
    pub fn usage(reason: impl Into<String>) -> Self {
        Self::new(Kind::Usage, reason)
    }

    /// The same error, naming the object; an object that is named already stays.
    #[must_use]
    pub fn about(mut self, object: impl fmt::Display) -> Self {
        if self.object.is_none() {
            self.object = Some(object.to_string().into_boxed_str());
        }
        self
    }

    /// The same error, with the place that its object lies in named before it.
    #[must_use]
    pub fn within(mut self, place: impl fmt::Display) -> Self {
        self.object = Some(match self.object.as_deref() {
            None | Some("/") => place.to_string().into_boxed_str(),
            Some(object) => format!("{place}: {object}").into_boxed_str(),
        });
        self
    }

    /// What kind of error this is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether it tells of the bytes, so that it is the same whenever they are read; every other error is the store's.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind, Kind::Corrupt | Kind::Unsupported | Kind::TooBig)
    }

    /// Whether the store failed to answer, which says nothing of what it holds. A refusal is an answer: where names may not be listed,
    /// some services give it for all that is absent. So is a link without a target: it lasts, and what lies beside it is good.
    pub fn is_failure(&self) -> bool {
        matches!(self.kind, Kind::Unavailable | Kind::TimedOut | Kind::Changed)
    }

    /// The object, where it is named.
    pub fn object(&self) -> Option<&str> {
        self.object.as_deref()
    }

    /// The reason, without the object.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// The errno that a reader of the mount sees.
    pub fn errno(&self) -> i32 {
        match self.kind {
            Kind::NotFound => libc::ENOENT,
            Kind::Denied => libc::EACCES,
            Kind::Unsupported => libc::EOPNOTSUPP,
            Kind::Corrupt | Kind::Unavailable | Kind::Dangling | Kind::Mount | Kind::Bug => libc::EIO,
            Kind::TooBig => libc::EFBIG,
            Kind::Changed => libc::ESTALE,
            Kind::TimedOut => libc::ETIMEDOUT,
            Kind::Usage => libc::EINVAL,
        }
    }

    /// The exit status of the command, as the README documents it.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            Kind::Usage => 2,
            Kind::NotFound => 3,
            Kind::Denied => 4,
            Kind::Corrupt | Kind::TooBig => 5,
            Kind::Unsupported => 6,
            Kind::Unavailable | Kind::Dangling | Kind::TimedOut | Kind::Changed => 7,
            Kind::Mount => 8,
            Kind::Bug => 1,
        }
    }

    /// How loud the log is about it: a lookup that finds nothing is ordinary.
    pub fn level(&self) -> log::Level {
        match self.kind {
            Kind::NotFound => log::Level::Debug,
            Kind::Bug => log::Level::Error,
            _ => log::Level::Warn,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            Some(object) => write!(f, "{}: {}", printable(object), printable(&self.reason)),
            None => f.write_str(&printable(&self.reason)),
        }
    }
}

/// A text of one line that cannot command a terminal: control characters, which names in a source may have, are escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::new();
    for c in text.chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    /// Sorts an operating-system error by its errno; what has no meaning of its own is [`Kind::Unavailable`].
    fn from(e: std::io::Error) -> Self {
        let kind = match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => return Self::not_found(),
            Some(libc::EACCES | libc::EPERM | libc::EXDEV) => Kind::Denied,
            Some(libc::ESTALE) => Kind::Changed,
            Some(libc::ETIMEDOUT) => Kind::TimedOut,
            Some(libc::EFBIG) => Kind::TooBig,
            _ => Kind::Unavailable,
        };
        Self::new(kind, e.to_string())
    }
}
