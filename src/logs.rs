//! The log: one line for each event, as text or as JSON, to the terminal, to a file, or to the system's log in the background.
//!
//! A process in the background has no terminal; what it says goes to the socket of syslog(3), where journald listens as well. Where
//! nobody listens the line is lost, as the terminal's would be: `--log-file` keeps it.

use crate::cli::{LogFormat, Logs};
use crate::error::{Error, Kind, Result, printable};
use log::{Level, LevelFilter};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// Target of the page of statistics, which is logged whatever the level is.
const STATISTICS: &str = "chunkmount::statistics";

/// Where syslog(3) sends its datagrams.
const SOCKET: &str = "/dev/log";

/// Whether the process has let go of its terminal.
static BACKGROUND: AtomicBool = AtomicBool::new(false);

/// Starts to log.
///
/// # Errors
/// [`Kind::Usage`] where the file cannot be written or the levels make no sense.
pub fn start(logs: &Logs) -> Result<()> {
    let level = match logs.verbose {
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    let mut builder = env_logger::Builder::new();
    // What libraries log is not written for those who mount.
    builder.filter_level(LevelFilter::Error).filter_module("chunkmount", level);
    // It says that a reply could not be sent, as when a reader was killed that waited for it.
    builder.filter_module("fuser::reply", LevelFilter::Off);
    if let Some(levels) = &logs.log_level {
        for (target, level) in parse(levels).map_err(|e| e.about("--log-level"))? {
            builder.filter(Some(target.unwrap_or("chunkmount")), level);
        }
    }
    builder.filter_module(STATISTICS, LevelFilter::Info);
    let format = logs.log_format;
    let has_file = logs.log_file.is_some();
    builder.format(move |out, record| {
        let text = record.args().to_string();
        if !has_file && BACKGROUND.load(Ordering::Relaxed) {
            let _ = system(Path::new(SOCKET), record.level(), &printable(&text));
            return Ok(());
        }
        writeln!(out, "{}", line(format, SystemTime::now(), record.level(), record.target(), &text))
    });
    if let Some(path) = &logs.log_file {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|e| Error::usage(format!("the log cannot be written there: {e}")).about(path.display()))?;
        builder.target(env_logger::Target::Pipe(Box::new(file)));
    }
    builder.try_init().map_err(|e| Error::new(Kind::Bug, e.to_string()))
}

/// From now on there is no terminal.
pub fn background() {
    BACKGROUND.store(true, Ordering::Relaxed);
}

/// Logs a page of statistics, whatever the level: a line for each group of counters.
pub fn statistics(document: &[u8]) {
    let Ok(Value::Object(groups)) = serde_json::from_slice(document) else { return };
    for (name, value) in groups.iter().filter(|(name, _)| *name != "arrays") {
        log::info!(target: STATISTICS, "{name}: {value}");
    }
    if let Some(Value::Object(arrays)) = groups.get("arrays") {
        for (name, value) in arrays {
            log::info!(target: STATISTICS, "array {name}: {value}");
        }
    }
}

/// `debug`, or levels of parts of the program: `warn,chunkmount::store=debug`.
fn parse(levels: &str) -> Result<Vec<(Option<&str>, LevelFilter)>> {
    let level = |text: &str| {
        text.trim()
            .parse()
            .map_err(|_| Error::usage(format!("\"{text}\" is no level; error, warn, info, debug, trace and off are")))
    };
    let one = |part: &'_ str| match part.split_once('=') {
        Some((target, text)) => level(text).map(|level| (target.trim().to_owned(), level)),
        None => level(part).map(|level| (String::new(), level)),
    };
    let mut found = Vec::new();
    for part in levels.split(',') {
        let (target, level) = one(part)?;
        let target = part.get(..target.len()).filter(|target| !target.is_empty());
        found.push((target, level));
    }
    Ok(found)
}

/// The line of an event.
fn line(format: LogFormat, time: SystemTime, level: Level, target: &str, text: &str) -> String {
    let level = level.as_str().to_lowercase();
    match format {
        LogFormat::Text => format!("{} {level} {}", utc(time), printable(text)),
        LogFormat::Json => json!({ "time": utc(time), "level": level, "target": target, "message": text }).to_string(),
    }
}

/// Sends an event to the system's log, as syslog(3) does, but waits for nobody who reads it: readers of the mount would wait as well.
fn system(socket: &Path, level: Level, text: &str) -> std::io::Result<()> {
    /// `LOG_DAEMON`, shifted.
    const FACILITY: u8 = 3 << 3;
    let severity = match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    };
    let text = format!("<{}>chunkmount[{}]: {text}", FACILITY | severity, std::process::id());
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to(text.as_bytes(), socket).map(drop)
}

/// Coordinated universal time to the second.
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days, by the era of 400 years that starts on a first of March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_event_is_a_line() {
        // `date -u -d @1709210096 +%FT%TZ`
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_210_096);
        assert_eq!(line(LogFormat::Text, time, Level::Warn, "chunkmount::vfs", "a: b"), "2024-02-29T12:34:56Z warn a: b");
        // A name in a source can neither begin a line of its own nor command a terminal.
        let forged = line(LogFormat::Text, time, Level::Warn, "chunkmount::vfs", "a\u{1b}[31m\nb: c");
        assert_eq!(forged, "2024-02-29T12:34:56Z warn a\\u{1b}[31m\\nb: c");
        let json: Value = serde_json::from_str(&line(LogFormat::Json, time, Level::Info, "chunkmount::vfs", "a\n\"b\"")).unwrap();
        assert_eq!(
            json,
            json!({ "time": "2024-02-29T12:34:56Z", "level": "info", "target": "chunkmount::vfs", "message": "a\n\"b\"" })
        );
    }

    #[test]
    fn levels_are_for_all_or_for_parts() {
        let found = parse("info,chunkmount::store=debug").unwrap();
        assert_eq!(found, [(None, LevelFilter::Info), (Some("chunkmount::store"), LevelFilter::Debug)]);
        assert!(parse("loud").is_err() && parse("a=").is_err() && parse("").is_err());
    }

    #[test]
    fn the_systems_log_gets_datagrams() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("log");
        let socket = UnixDatagram::bind(&path).unwrap();
        system(&path, Level::Warn, "x: is corrupt").unwrap();
        let mut bytes = [0; 100];
        let length = socket.recv(&mut bytes).unwrap();
        // Facility daemon, severity warning: RFC 3164.
        assert_eq!(String::from_utf8_lossy(&bytes[..length]), format!("<28>chunkmount[{}]: x: is corrupt", std::process::id()));
    }

    #[test]
    fn a_log_that_nobody_reads_keeps_nobody_waiting() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("log");
        let _socket = UnixDatagram::bind(&path).unwrap();
        // Far more than the datagrams that a socket takes before its reader does (unix(7), `max_dgram_qlen`).
        let ended = (0..100_000).find_map(|_| system(&path, Level::Warn, "x").err());
        assert_eq!(ended.map(|e| e.kind()), Some(std::io::ErrorKind::WouldBlock));
    }
}
