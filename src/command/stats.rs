//! `stats`: the counters of a mount, as a table or for Prometheus.

use super::text::{Out, size, table};
use crate::cli::commands::Stats;
use crate::error::{Error, Result};
use serde_json::{Map, Value};
use std::fmt::Write;

/// Counters and gauges: where they lie in the document, name, type, and what they are.
const METRICS: &[(&str, &str, &str, &str)] = &[
    ("/seconds", "uptime_seconds", "gauge", "Time since the mount began."),
    ("/cache/bytes", "cache_bytes", "gauge", "Bytes of decoded blocks that are held."),
    ("/cache/capacity", "cache_capacity_bytes", "gauge", "Most bytes of decoded blocks that are held."),
    ("/cache/blocks", "cache_blocks", "gauge", "Decoded blocks that are held."),
    ("/cache/hits", "cache_hits_total", "counter", "Blocks that were asked for and held."),
    ("/cache/misses", "cache_misses_total", "counter", "Blocks that were asked for and not held."),
    ("/cache/waits", "cache_waits_total", "counter", "Blocks that were asked for while another decoded them."),
    ("/cache/evictions", "cache_evictions_total", "counter", "Blocks that made room for others."),
    ("/passthrough/possible", "passthrough_possible", "gauge", "Whether the kernel reads large chunks by itself."),
    ("/passthrough/opens", "passthrough_opens_total", "counter", "Files that were opened for the kernel to read by itself."),
    ("/passthrough/held", "passthrough_held_bytes", "gauge", "Bytes of decoded blocks that are held for the kernel."),
    ("/read_ahead/chunks", "read_ahead_chunks_total", "counter", "Chunks read ahead of their readers."),
    ("/indexes/bytes", "index_bytes", "gauge", "Bytes of shard indexes and jump tables that are held."),
    ("/indexes/count", "indexes", "gauge", "Shard indexes and jump tables that are held."),
    ("/decode/bytes_in", "decode_input_bytes_total", "counter", "Encoded bytes decoded."),
    ("/decode/bytes_out", "decode_output_bytes_total", "counter", "Bytes that they became."),
    ("/decode/seconds", "decode_seconds_total", "counter", "Time spent decoding, of all threads."),
    ("/store/get", "store_get_requests_total", "counter", "Reads from the source."),
    ("/store/head", "store_head_requests_total", "counter", "Questions to the source after one object."),
    ("/store/list", "store_list_requests_total", "counter", "Questions to the source after names."),
    ("/store/bytes", "store_bytes_total", "counter", "Bytes read from the source."),
    ("/disk/hits", "disk_cache_hits_total", "counter", "Reads that the folder of --disk-cache answered."),
    ("/disk/bytes", "disk_cache_read_bytes_total", "counter", "Bytes that it gave."),
    ("/disk/written", "disk_cache_written_total", "counter", "Reads that were put there."),
    ("/disk/held", "disk_cache_bytes", "gauge", "Bytes that it holds, about."),
    ("/open/files", "open_files", "gauge", "Files that are open."),
    ("/open/directories", "open_directories", "gauge", "Directories that are open."),
    ("/open/inodes", "inodes", "gauge", "Inodes that take memory."),
    ("/errors", "errors_total", "counter", "Requests that failed."),
];

/// The same, of each array.
const OF_ARRAYS: &[(&str, &str, &str)] = &[
    ("hits", "array_hits_total", "Chunks of the array that were asked for and held."),
    ("misses", "array_misses_total", "Chunks of the array that were asked for and not held."),
    ("bytes_in", "array_input_bytes_total", "Encoded bytes of the array decoded."),
    ("bytes_out", "array_output_bytes_total", "Bytes that they became."),
    ("decode_seconds", "array_decode_seconds_total", "Time spent decoding the array."),
    ("errors", "array_errors_total", "Chunks of the array that could not be read."),
];

/// Runs `stats`.
///
/// # Errors
/// When nothing of ours answers there; while watching, its end is no error.
pub fn run(stats: &Stats) -> Result<()> {
    let mut out = Out::new();
    let mut document = read(stats)?;
    if stats.prometheus {
        out.bytes(prometheus(&document).as_bytes())?;
        return out.flush();
    }
    let Some(interval) = stats.watch else {
        page(&document, None).iter().try_for_each(|line| out.line(line))?;
        return out.flush();
    };
    let mut before = None;
    loop {
        out.clear()?;
        page(&document, before.as_ref()).iter().try_for_each(|line| out.line(line))?;
        out.flush()?;
        std::thread::sleep(interval);
        let Ok(next) = read(stats) else { return Ok(()) };
        before = Some(std::mem::replace(&mut document, next));
    }
}

fn read(stats: &Stats) -> Result<Value> {
    let path = stats.mountpoint.join(".chunkmount/stats.json");
    let wrong =
        |e: &dyn std::fmt::Display| Error::usage(format!("no chunkmount answers there: {e}")).about(stats.mountpoint.display());
    let bytes = std::fs::read(path).map_err(|e| wrong(&e))?;
    serde_json::from_slice(&bytes).map_err(|e| wrong(&e))
}

fn number(document: &Value, pointer: &str) -> f64 {
    document.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
}

fn count(document: &Value, pointer: &str) -> u64 {
    document.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

/// The counters as a page; with what they were `before`, rates as well.
fn page(document: &Value, before: Option<&Value>) -> Vec<String> {
    let bytes = |pointer: &str| size(count(document, pointer));
    let n = |pointer: &str| count(document, pointer).to_string();
    let rate = |pointer: &str| {
        let before = before?;
        let seconds = number(document, "/seconds") - number(before, "/seconds");
        let more = number(document, pointer) - number(before, pointer);
        (seconds > 0.0 && more >= 0.0).then(|| format!(", {}/s", size((more / seconds) as u64)))
    };
    let (hits, misses) = (number(document, "/cache/hits"), number(document, "/cache/misses"));
    let share = if hits + misses > 0.0 { format!(" ({:.0} %)", 100.0 * hits / (hits + misses)) } else { String::new() };
    let source = document.get("source").and_then(Value::as_str).unwrap_or_default();
    let passthrough = match document.pointer("/passthrough/possible").and_then(Value::as_bool) {
        Some(true) => format!("{} opens, {} held", n("/passthrough/opens"), bytes("/passthrough/held")),
        _ => "no".to_owned(),
    };
    let mut rows = vec![
        ("source", super::text::plain(source.as_bytes())),
        ("mounted for", format!("{:.0} s", number(document, "/seconds"))),
        ("cache", format!("{} of {} in {} blocks", bytes("/cache/bytes"), bytes("/cache/capacity"), n("/cache/blocks"))),
        ("hits", format!("{}{share}", n("/cache/hits"))),
        (
            "misses",
            format!("{}, {} waited for another's, {} evicted", n("/cache/misses"), n("/cache/waits"), n("/cache/evictions")),
        ),
        ("by the kernel", passthrough),
        ("read ahead", format!("{} chunks", n("/read_ahead/chunks"))),
        ("indexes", format!("{} in {}", n("/indexes/count"), bytes("/indexes/bytes"))),
        (
            "decoded",
            format!(
                "{} from {} in {:.3} s{}",
                bytes("/decode/bytes_out"),
                bytes("/decode/bytes_in"),
                number(document, "/decode/seconds"),
                rate("/decode/bytes_out").unwrap_or_default()
            ),
        ),
        (
            "source asked",
            format!(
                "{} reads, {} heads, {} lists; {}{}",
                n("/store/get"),
                n("/store/head"),
                n("/store/list"),
                bytes("/store/bytes"),
                rate("/store/bytes").unwrap_or_default()
            ),
        ),
        ("open", format!("{} files, {} directories, {} inodes", n("/open/files"), n("/open/directories"), n("/open/inodes"))),
        ("errors", n("/errors")),
    ];
    if document.get("disk").is_some_and(Value::is_object) {
        let text = format!(
            "{} reads answered with {}{}, {} put there; about {} held",
            n("/disk/hits"),
            bytes("/disk/bytes"),
            rate("/disk/bytes").unwrap_or_default(),
            n("/disk/written"),
            bytes("/disk/held")
        );
        let at = rows.iter().position(|(name, _)| *name == "open").unwrap_or(rows.len());
        rows.insert(at, ("disk cache", text));
    }
    let rows: Vec<Vec<String>> = rows.drain(..).map(|(name, text)| vec![name.to_owned(), text]).collect();
    let mut lines = table(&rows, &[]);
    let arrays = arrays(document);
    if !arrays.is_empty() {
        let mut rows = vec![["array", "hits", "misses", "encoded", "decoded", "seconds", "errors"].map(str::to_owned).to_vec()];
        for (name, array) in arrays {
            let n = |key: &str| array.get(key).and_then(Value::as_u64).unwrap_or(0);
            let seconds = array.get("decode_seconds").and_then(Value::as_f64).unwrap_or(0.0);
            rows.push(vec![
                super::text::plain(name.as_bytes()),
                n("hits").to_string(),
                n("misses").to_string(),
                size(n("bytes_in")),
                size(n("bytes_out")),
                format!("{seconds:.3}"),
                n("errors").to_string(),
            ]);
        }
        lines.push(String::new());
        lines.extend(table(&rows, &[1, 2, 3, 4, 5, 6]));
    }
    lines
}

fn arrays(document: &Value) -> &Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    document.get("arrays").and_then(Value::as_object).unwrap_or(&NONE)
}

/// The counters in the text format 0.0.4 of Prometheus.
fn prometheus(document: &Value) -> String {
    let quote = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let source = quote(document.get("source").and_then(Value::as_str).unwrap_or_default());
    let mut text = String::new();
    // Writing to a string cannot fail.
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = write!(text, "# HELP chunkmount_{name} {help}\n# TYPE chunkmount_{name} {kind}\n");
    };
    for (pointer, name, kind, help) in METRICS {
        let value = match document.pointer(pointer) {
            Some(Value::Bool(yes)) => Value::from(u8::from(*yes)),
            Some(value) if value.is_number() => value.clone(),
            _ => continue,
        };
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "chunkmount_{name}{{source=\"{source}\"}} {value}");
    }
    let arrays = arrays(document);
    for (key, name, help) in OF_ARRAYS.iter().filter(|_| !arrays.is_empty()) {
        head(&mut text, name, "counter", help);
        for (array, values) in arrays {
            let value = values.get(key).cloned().unwrap_or(Value::from(0));
            let _ = writeln!(text, "chunkmount_{name}{{source=\"{source}\",array=\"{}\"}} {value}", quote(array));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_kernel_reads_by_itself_is_shown() {
        let line = |document| page(document, None).into_iter().find(|line| line.starts_with("by the kernel")).unwrap();
        let with = json!({"passthrough": {"possible": true, "opens": 7, "held": 3 << 20}});
        let shown = line(&with);
        assert!(shown.contains("7 opens") && shown.contains(&format!("{} held", size(3 << 20))), "{shown}");
        let text = prometheus(&with);
        for line in [
            "chunkmount_passthrough_possible{source=\"\"} 1",
            "chunkmount_passthrough_opens_total{source=\"\"} 7",
            "chunkmount_passthrough_held_bytes{source=\"\"} 3145728",
            "# TYPE chunkmount_passthrough_opens_total counter",
            "# TYPE chunkmount_passthrough_held_bytes gauge",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        let without = json!({"passthrough": {"possible": false, "opens": 0, "held": 0}});
        assert!(line(&without).ends_with(" no") && prometheus(&without).contains("passthrough_possible{source=\"\"} 0"));
    }

    #[test]
    fn the_disk_cache_is_shown_where_there_is_one() {
        let with = json!({"disk": {"hits": 3, "bytes": 2048, "written": 5, "held": 8192}, "seconds": 2.0});
        let without = json!({"disk": null});
        let line = |document| page(document, None).into_iter().find(|line| line.starts_with("disk cache"));
        let shown = line(&with).unwrap();
        assert!(shown.contains("3 reads") && shown.contains("5 put") && shown.contains(&size(8192)), "{shown}");
        assert_eq!(line(&without), None);
        let before = json!({"disk": {"bytes": 0}, "seconds": 1.0});
        assert!(page(&with, Some(&before)).iter().any(|line| line.contains(&format!("{}, {}/s", size(2048), size(2048)))));
        let text = prometheus(&with);
        for line in [
            "chunkmount_disk_cache_hits_total{source=\"\"} 3",
            "chunkmount_disk_cache_read_bytes_total{source=\"\"} 2048",
            "chunkmount_disk_cache_written_total{source=\"\"} 5",
            "chunkmount_disk_cache_bytes{source=\"\"} 8192",
            "# TYPE chunkmount_disk_cache_bytes gauge",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in {text}");
        }
        assert!(!prometheus(&without).contains("disk"));
    }
}
