//! What mount(8) and fstab(5) have to say, as flags of the one parser: `-o a,b=c`, and the arguments of a `mount.TYPE` helper.
//!
//! Pure: words in, words out. An option of the list is the flag of the same name (`cache_size=1G` is `--cache-size=1G`), so there
//! is no second list of options to keep; what only mount(8), fstab(5) or systemd care about is dropped.

use super::Cli;
use clap::{Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Options of mount(8) that say nothing to a mount that is read-only, without devices and set-user-id programs, and whose
/// files have no access times and cannot be executed; and those for mount(8), fstab(5) and systemd alone.
const DROPPED: &[&str] = &[
    "ro",
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "norelatime",
    "strictatime",
    "nostrictatime",
    "lazytime",
    "nolazytime",
    "async",
    "sync",
    "dirsync",
    "silent",
    "loud",
    "mand",
    "nomand",
    "iversion",
    "noiversion",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "defaults",
    "_netdev",
    "nofail",
    "default_permissions",
    "symfollow",
];

/// The same with a value, or beginning so.
const DROPPED_PREFIXES: &[&str] = &["x-", "X-", "comment=", "user=", "helper=", "uhelper=", "fsname=", "subtype="];

/// Whether the program was called as a helper of mount(8).
pub fn is_helper(name: &OsStr) -> bool {
    Path::new(name).file_name().is_some_and(|name| name.as_bytes().starts_with(b"mount."))
}

/// The flags that the lists of `-o` mean.
///
/// # Errors
/// A sentence for a person.
pub fn expand(lists: &[OsString]) -> Result<Vec<OsString>, String> {
    let (mut found, command) = (Vec::new(), Cli::command());
    lists.iter().try_for_each(|list| flags(&command, list, false, &mut found))?;
    Ok(found)
}

/// The arguments of `mount.TYPE SOURCE MOUNTPOINT [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE.SUBTYPE]` as those of this program.
///
/// # Errors
/// A sentence for a person.
pub fn from_helper(arguments: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let (mut places, mut lists, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let mut sloppy = false;
    let mut rest = arguments.into_iter();
    while let Some(argument) = rest.next() {
        match argument.as_bytes() {
            b"-o" => lists.push(rest.next().ok_or("-o needs a list of options")?),
            b"-t" | b"-N" => drop(rest.next()),
            b"-h" | b"--help" | b"-V" | b"--version" => found.push(argument),
            [b'-', letters @ ..] if !letters.is_empty() && letters.iter().all(|l| b"sfnvr".contains(l)) => {
                sloppy |= letters.contains(&b's');
                if letters.contains(&b'f') {
                    found.push("--fake".into());
                }
                if letters.contains(&b'v') {
                    found.push("--verbose".into());
                }
            }
            [b'-', _, ..] => return Err(format!("{argument:?} is no option of a helper of mount(8)")),
            _ => places.push(argument),
        }
    }
    let command = Cli::command();
    for list in &lists {
        flags(&command, list, sloppy, &mut found)?;
    }
    found.push("--".into());
    found.extend(places);
    Ok(found)
}

/// Adds the flags that a list of options means. Commas separate; a backslash takes the next character as it is.
fn flags(command: &Command, list: &OsStr, sloppy: bool, found: &mut Vec<OsString>) -> Result<(), String> {
    for option in split(list.as_bytes()).into_iter().filter(|option| !option.is_empty()) {
        let text = String::from_utf8_lossy(&option).into_owned();
        if DROPPED.contains(&text.as_str()) || DROPPED_PREFIXES.iter().any(|prefix| text.starts_with(prefix)) {
            continue;
        }
        let end = option.iter().position(|b| *b == b'=').unwrap_or(option.len());
        let (name, value) = option.split_at_checked(end).unwrap_or((&option, &[]));
        let name = String::from_utf8_lossy(name).replace('_', "-");
        match known(command, &name) {
            None if sloppy => continue,
            None => return Err(format!("\"{text}\" is no mount option that is understood")),
            Some(false) if !value.is_empty() => return Err(format!("the mount option \"{text}\" takes no value")),
            Some(true) if value.is_empty() => return Err(format!("the mount option \"{text}\" needs a value")),
            Some(_) => {}
        }
        let mut flag = format!("--{name}").into_bytes();
        flag.extend_from_slice(value);
        found.push(OsString::from_vec(flag));
    }
    Ok(())
}

/// Whether there is a flag of this name for a mount, and if so whether it takes a value.
fn known(command: &Command, name: &str) -> Option<bool> {
    let is_other = ["unmount", "daemon", "fake", "help", "version"].contains(&name);
    let found = command.get_arguments().find(|argument| argument.get_long() == Some(name) && !is_other)?;
    Some(found.get_action().takes_values())
}

fn split(list: &[u8]) -> Vec<Vec<u8>> {
    let mut options = vec![Vec::new()];
    let mut bytes = list.iter();
    while let Some(&byte) = bytes.next() {
        match (byte, options.last_mut()) {
            (b',', _) => options.push(Vec::new()),
            (b'\\', Some(option)) => option.extend(bytes.next()),
            (_, Some(option)) => option.push(byte),
            (_, None) => {}
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    #[test]
    fn a_list_becomes_flags_and_the_systems_own_are_dropped() {
        let list = "rw,noauto,x-systemd.automount,_netdev,zarr=3,cache_size=1G,fill_missing,log_file=/a\\,b";
        assert_eq!(
            expand(&words(&[list, "allow_other"])).unwrap(),
            words(&["--zarr=3", "--cache-size=1G", "--fill-missing", "--log-file=/a,b", "--allow-other"])
        );
        for wrong in ["nothing", "daemon", "unmount=x", "allow_other=1", "zarr", "version"] {
            assert!(expand(&words(&[wrong])).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_helper_takes_what_mount_passes() {
        // As util-linux's mount(8) runs it: SOURCE MOUNTPOINT, short flags, then the options.
        assert_eq!(
            from_helper(words(&["/a", "/m", "-n", "-v", "-o", "rw,zarr=3", "-t", "chunkmount"])).unwrap(),
            words(&["--verbose", "--zarr=3", "--", "/a", "/m"])
        );
        assert_eq!(from_helper(words(&["/a", "/m", "-sf", "-o", "nothing"])).unwrap(), words(&["--fake", "--", "/a", "/m"]));
        assert!(from_helper(words(&["/a", "/m", "-o", "nothing"])).is_err() && from_helper(words(&["-x"])).is_err());
        assert!(is_helper(OsStr::new("/sbin/mount.chunkmount")) && !is_helper(OsStr::new("/sbin/chunkmount")));
    }
}
