//! What mount(8) and fstab(5) say: lists of options, and the arguments of a helper.

use super::input::Input;
use chunkmount::cli::Cli;
use chunkmount::cli::options::{expand, from_helper};
use clap::CommandFactory;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Words of mount(8), fstab(5) and systemd.mount(5), which mean nothing to a mount.
const SYSTEM: &[&str] = &[
    "ro",
    "rw",
    "nosuid",
    "nodev",
    "noexec",
    "noatime",
    "relatime",
    "sync",
    "auto",
    "noauto",
    "user",
    "users",
    "owner",
    "group",
    "defaults",
    "_netdev",
    "nofail",
    "x-systemd.automount",
    "x-zarr=3",
    "X-mount.mkdir",
    "comment=daemon",
    "user=verbose",
];

/// Flags of the command that no option of a mount may become.
const NEVER: &[&str] = &["unmount", "daemon", "fake", "help", "version", "options"];

/// A byte that tells where a word of the system is put, and then arguments, a line each.
pub fn target(data: &[u8]) {
    let mut input = Input(data);
    let word = input.pick(SYSTEM);
    let arguments: Vec<OsString> = input.0.split(|&b| b == b'\n').map(|line| OsString::from_vec(line.to_vec())).collect();
    list(&arguments, word);
    helper(&arguments);
}

fn list(lists: &[OsString], word: &str) {
    let found = expand(lists);
    let mut with: Vec<OsString> = vec![word.into()];
    for list in lists {
        // A backslash at the end would take the comma that comes next.
        let is_whole = list.as_bytes().iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 0;
        with.push(if is_whole { [list.as_os_str(), OsStr::new(word)].join(OsStr::new(",")) } else { list.clone() });
    }
    assert_eq!(expand(&with), found, "{word} is no word of the system");
    if let Ok(found) = &found {
        check(found.iter());
        assert!(found.len() <= lists.iter().map(|list| words(list.as_bytes())).sum(), "{found:?}");
        let again: Vec<OsString> = found.iter().map(|flag| escaped(flag)).collect();
        assert_eq!(expand(&again).as_ref(), Ok(found));
        assert_eq!(expand(&[again.join(OsStr::new(","))]).as_ref(), Ok(found));
    }
    let mut line: Vec<OsString> = vec!["chunkmount".into(), "source".into(), "mountpoint".into()];
    line.extend(lists.iter().flat_map(|list| ["-o".into(), list.clone()]));
    match Cli::from_arguments(line) {
        Ok(cli) => {
            assert!(found.is_ok(), "{found:?}");
            is_a_mount(&cli, &["source".into(), "mountpoint".into()]);
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

fn helper(arguments: &[OsString]) {
    let found = from_helper(arguments.to_vec());
    let mut line: Vec<OsString> = vec!["/sbin/mount.chunkmount".into()];
    line.extend(arguments.iter().cloned());
    let cli = Cli::from_arguments(line);
    let Ok(found) = found else { return assert!(cli.is_err()) };
    let end = found.iter().position(|flag| flag == "--").unwrap();
    let (flags, places) = found.split_at(end);
    let places = &places[1..];
    check(flags.iter().filter(|flag| match flag.as_bytes() {
        b"-h" | b"--help" | b"-V" | b"--version" => !arguments.contains(flag),
        b"--fake" | b"--verbose" => false,
        _ => true,
    }));
    let mut rest = arguments.iter();
    for place in places {
        assert!(rest.any(|argument| argument == place), "{place:?} is no argument, or not in its order");
        assert!(!place.as_bytes().starts_with(b"-") || place == "-", "{place:?}");
    }
    if let Ok(cli) = cli {
        is_a_mount(&cli, places);
    }
}

/// That flags are those of a mount, with a value where they take one.
fn check<'a>(flags: impl Iterator<Item = &'a OsString>) {
    let command = Cli::command();
    for flag in flags {
        let text = flag.as_bytes().strip_prefix(b"--").unwrap();
        let end = text.iter().position(|&b| b == b'=');
        let name = std::str::from_utf8(&text[..end.unwrap_or(text.len())]).unwrap();
        assert!(!NEVER.contains(&name) && !SYSTEM.contains(&name), "{name}");
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(name)).unwrap();
        assert_eq!(argument.get_action().takes_values(), end.is_some(), "{name}");
    }
}

/// Options of a list that are not empty, at most: commas that were escaped are counted.
fn words(list: &[u8]) -> usize {
    list.split(|&b| b == b',').filter(|word| !word.is_empty()).count()
}

/// A flag as the option that means it.
fn escaped(flag: &OsStr) -> OsString {
    let mut option = Vec::new();
    for &byte in flag.as_bytes().strip_prefix(b"--").unwrap_or_default() {
        if matches!(byte, b',' | b'\\') {
            option.push(b'\\');
        }
        option.push(byte);
    }
    OsString::from_vec(option)
}

/// That what was parsed mounts the first of `places` at the second, whatever else was said.
fn is_a_mount(cli: &Cli, places: &[OsString]) {
    assert!(cli.command.is_none() && cli.unmount.is_none() && !cli.daemon);
    let places = places.iter().map(OsString::as_os_str);
    let parsed = cli.source.as_deref().into_iter().chain(cli.mountpoint.as_deref().map(|path| path.as_os_str()));
    assert!(parsed.eq(places));
}
