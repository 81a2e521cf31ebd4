//! What is told while everything is read: a bar on a terminal, a line for each problem, and what all of them come to.

use super::graver;
use super::text::{plain, size, unwritten};
use crate::error::{Error, Kind, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most files that are named for one cause, such as a damaged shard; how many more there are is one line.
const NAMED: u64 = 100;

/// See the module.
pub struct Progress {
    bar: ProgressBar,
    bytes: AtomicU64,
    files: AtomicU64,
    problems: AtomicU64,
    worst: Mutex<Option<Kind>>,
    causes: Mutex<Causes>,
    /// Why the standard output does not have every line.
    unwritten: Mutex<Option<Error>>,
    /// Whether problems are the result (standard output), or beside it (standard error).
    is_result: bool,
}

/// What several files may fail with.
#[derive(Default)]
struct Causes {
    /// Files that each has failed so far, by a number for the cause: most are those of a single file.
    files: HashMap<u64, u64>,
    /// Those of too many files, in the order in which they became that.
    frequent: Vec<(u64, Error)>,
}

impl Causes {
    /// Whether another file that fails with `e` is to be named.
    fn is_named(&mut self, e: &Error) -> bool {
        let mut hasher = DefaultHasher::new();
        (e.object(), e.reason()).hash(&mut hasher);
        let cause = hasher.finish();
        let files = self.files.entry(cause).or_default();
        *files += 1;
        if *files == NAMED + 1 {
            self.frequent.push((cause, e.clone()));
        }
        *files <= NAMED
    }
}

impl Progress {
    /// Nothing read yet. There is a bar only on a terminal, and unless it is not wanted.
    pub fn new(quiet: bool, is_result: bool) -> Self {
        let bar = match !quiet && std::io::stderr().is_terminal() {
            true => ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr_with_hz(10)),
            false => ProgressBar::hidden(),
        };
        let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} files {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(250));
        let (bytes, files, problems) = Default::default();
        let (worst, causes, unwritten) = Default::default();
        Self { bar, bytes, files, problems, worst, causes, unwritten, is_result }
    }

    /// A file was found that is to be read.
    pub fn found(&self) {
        self.bar.inc_length(1);
    }

    /// A file was read, with so many bytes, or skipped.
    pub fn done(&self, bytes: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if !self.bar.is_hidden() {
            self.bar.set_message(size(bytes));
        }
        self.bar.inc(1);
    }

    /// Bytes read.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Files read.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Something cannot be read: a line with what is wrong with what.
    pub fn problem(&self, e: &Error) {
        self.count(e);
        self.say(&line(e));
    }

    /// The file `path` cannot be read: a line with its name, with what that lies at, and with what is wrong, unless there were many of the
    /// same cause.
    pub fn failed(&self, path: &[u8], e: Error) {
        self.count(&e);
        let e = e.about(plain(path));
        let is_named = self.causes.lock().is_named(&e);
        if is_named {
            self.say(&line(&at(path, e)));
        }
    }

    fn count(&self, e: &Error) {
        self.problems.fetch_add(1, Ordering::Relaxed);
        let mut worst = self.worst.lock();
        *worst = Some(graver(*worst, e.kind()));
    }

    /// Writes a line beside the bar.
    pub fn say(&self, line: &str) {
        self.bar.suspend(|| {
            if !self.is_result {
                // Who does not listen to the lines still gets the exit status.
                let _ = writeln!(std::io::stderr(), "{line}");
            } else if let Err(e) = writeln!(std::io::stdout(), "{line}")
                && e.kind() != std::io::ErrorKind::BrokenPipe
            {
                self.unwritten.lock().get_or_insert(unwritten(&e));
            }
        });
    }

    /// Takes the bar away, says what all comes to, and fails if there was any problem, with the kind of the gravest; or if a result was
    /// not written.
    ///
    /// # Errors
    /// See above; it names `source`.
    pub fn finish(&self, source: &str, sum: Option<&str>) -> Result<()> {
        self.bar.finish_and_clear();
        let causes = self.causes.lock();
        for (cause, e) in &causes.frequent {
            let more = causes.files.get(cause).map_or(0, |files| files.saturating_sub(NAMED));
            self.say(&format!("{}; {more} more {}", line(e), if more == 1 { "file" } else { "files" }));
        }
        sum.into_iter().for_each(|sum| self.say(sum));
        let problems = self.problems.load(Ordering::Relaxed);
        let unwritten = self.unwritten.lock().take();
        match *self.worst.lock() {
            None => unwritten.map_or(Ok(()), Err),
            Some(kind) => {
                let noun = if problems == 1 { "problem" } else { "problems" };
                let see = unwritten.map_or_else(|| "see above".to_owned(), |e| e.to_string());
                Err(Error::new(kind, format!("{problems} {noun}; {see}")).about(source))
            }
        }
    }
}

/// The error `e` of the file `path`, which it then names, before what that lies at in the source.
pub fn at(path: &[u8], e: Error) -> Error {
    let path = if path.is_empty() { "/".to_owned() } else { plain(path) };
    if e.object().is_none_or(|object| object == path) { e.about(path) } else { e.within(path) }
}

fn line(e: &Error) -> String {
    format!("{}  {e}", word(e.kind()))
}

/// The word that a line of a problem begins with.
fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Corrupt => "corrupt",
        Kind::TooBig => "too-large",
        Kind::NotFound => "missing",
        Kind::Denied => "denied",
        Kind::Unsupported => "unsupported",
        Kind::Unavailable | Kind::Dangling | Kind::TimedOut | Kind::Changed => "unavailable",
        Kind::Usage | Kind::Mount | Kind::Bug => "failed",
    }
}
