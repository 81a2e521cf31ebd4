//! The help that a person sees is kept as files, so that a change of it is seen. `CHUNKMOUNT_UPDATE=1 cargo test --test cli` writes
//! them anew.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]
use std::path::Path;
use std::process::Command;

fn said(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_chunkmount")).args(arguments).env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the program says is what the file has.
fn kept(arguments: &[&str], name: &str) -> String {
    let text = said(arguments);
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/help")).join(name);
    if std::env::var_os("CHUNKMOUNT_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{}", path.display());
    text
}

/// Whether the lines fit a terminal of 80 columns.
fn is_narrow(text: &str) -> bool {
    text.lines().all(|line| line.chars().count() <= 80)
}

#[test]
fn short_help_fits_a_screen() {
    let text = kept(&["-h"], "short.txt");
    // A terminal of 24 lines, with the prompt below.
    assert!(text.lines().count() <= 23, "{} lines", text.lines().count());
    assert!(is_narrow(&text));
}

#[test]
fn full_help() {
    let full = kept(&["--help"], "full.txt");
    for command in ["ls", "tree", "cat", "info", "cp", "check", "stats"] {
        assert!(is_narrow(&kept(&[command, "-h"], &format!("{command}.txt"))), "{command}");
        assert!(full.contains(&format!("  {command} ")), "{command}");
    }
}

#[test]
fn the_version_names_formats_and_codecs() {
    let text = said(&["-V"]);
    assert_eq!(text, said(&["--version"]));
    assert_eq!(text.lines().next().unwrap(), concat!("chunkmount ", env!("CARGO_PKG_VERSION")));
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/formats.md")).unwrap().to_lowercase();
    let words = text.lines().skip(3).flat_map(|line| line.split_once(": ").unwrap().1.split(", "));
    for word in words {
        assert!(page.contains(word), "{word} is not on the page of formats");
    }
}

#[test]
fn the_manual_page_has_the_sections_of_manual_pages() {
    let page = said(&["generate", "man"]);
    let sections: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
    for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"COMMAND LS\"", "\"EXIT STATUS\"", "\"SEE ALSO\""] {
        assert!(sections.contains(&section), "{section}: {sections:?}");
    }
    assert!(!sections.contains(&"EXTRA"));
}
