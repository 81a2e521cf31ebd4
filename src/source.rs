//! What a person names as SOURCE, as an open store.
//!
//! A path is taken literally; what begins with a scheme is a URL, with percent-encoding and, after `#`, the hints of netCDF
//! (`mode=nczarr,zip`). Zip archives are told by content, never by name. The store is opened at once, so that a wrong SOURCE
//! fails with one line that names it.

mod remote;

use crate::array::{Formats, Node};
use crate::error::{Error, Kind, Result};
use crate::format;
use crate::limits;
use crate::store::dir::{DirOptions, DirStore};
use crate::store::nested::NestedStore;
use crate::store::object::{self, Address, Found};
use crate::store::zip::ZipStore;
use crate::store::{Key, Range, Store};
pub use remote::Hints;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The words of `mode=` that are understood.
const MODES: [&str; 7] = ["file", "zip", "s3", "zarr", "nczarr", "xarray", "noxarray"];

/// How a source is opened.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Follow symbolic links that lead outside a directory.
    pub follow_symlinks: bool,
    /// How object stores and web servers are asked.
    pub object: object::Options,
}

/// What a person named.
#[derive(Debug, PartialEq, Eq)]
pub enum Place {
    /// A path of this machine.
    Local(PathBuf),
    /// In an object store, and whether it is named as directories are.
    Remote(Address, bool),
}

/// An open source.
pub struct Opened {
    /// Where its bytes come from.
    pub store: Arc<dyn Store>,
    /// Its name, as `df` shows it: the real path, or the bucket and key.
    pub name: String,
    /// The local file or directory, without links; a mount point must not lie in it.
    pub path: Option<PathBuf>,
    /// Time of the last modification of the file or directory.
    pub modified: SystemTime,
    /// The words of `mode=`.
    pub mode: Vec<String>,
}

impl Opened {
    fn says(&self, word: &str) -> bool {
        self.mode.iter().any(|w| w == word)
    }

    /// The formats that are looked for, by the mode: netCDF's words for Zarr exclude all others. Which version of Zarr it is,
    /// the content tells.
    pub fn formats(&self) -> Formats {
        let zarr = ["zarr", "nczarr", "xarray", "noxarray"].iter().any(|word| self.says(word));
        if zarr { Formats::Zarr } else { Formats::All }
    }

    /// Whether the mode asks for NCZarr, and not for pure Zarr, as `zarr` and `xarray` do to netCDF.
    pub fn nczarr(&self) -> bool {
        self.says("nczarr") && !self.says("zarr") && !self.says("xarray")
    }

    /// Whether the mode has netCDF take no notice of `_ARRAY_DIMENSIONS`.
    pub fn noxarray(&self) -> bool {
        self.says("noxarray")
    }
}

/// Opens `source`.
///
/// # Errors
/// [`Kind::NotFound`] where there is nothing; [`Kind::Unsupported`] for what is neither directory nor
/// file, and for schemes that are not read; [`Kind::Corrupt`] for a file that is no zip archive or a damaged one;
/// [`Kind::Usage`] for a URL that makes no sense or whose mode contradicts the content.
pub fn open(source: impl AsRef<std::ffi::OsStr>, options: &Options) -> Result<Opened> {
    let source = source.as_ref();
    let shown = source.to_string_lossy().into_owned();
    // A URL that may hold a secret is not repeated.
    let named = || if shown.contains('@') || shown.contains('?') { "SOURCE" } else { &shown };
    let (place, hints) = parse(source.as_bytes()).map_err(|e| e.about(named()))?;
    let opened = match place {
        Place::Local(path) => local(&path, hints.mode, options),
        Place::Remote(address, is_directory) => distant(address, is_directory, hints.mode, options),
    };
    opened.map_err(|e| e.about(&shown))
}

/// The place that a source names, and what its words say beside. Pure.
///
/// # Errors
/// As [`open`], for what can be told without looking.
pub fn parse(source: &[u8]) -> Result<(Place, Hints)> {
    let literal = || Ok((Place::Local(PathBuf::from(OsString::from_vec(source.to_vec()))), Hints::default()));
    if source.is_empty() {
        return Err(Error::usage("is empty").about("SOURCE"));
    }
    let Some(scheme) = scheme(source) else { return literal() };
    let rest = source.get(scheme.len() + 1..).unwrap_or_default();
    let is_file = match scheme.to_ascii_lowercase().as_str() {
        "file" => true,
        "s3" | "gs" | "gcs" | "az" | "azure" | "adl" | "abfs" | "abfss" | "http" | "https" => false,
        _ if rest.starts_with(b"//") => return Err(Error::unsupported(format!("{scheme}:// is no scheme that is read"))),
        _ => return literal(),
    };
    let (place, fragment) = match rest.iter().position(|&b| b == b'#') {
        Some(hash) => (rest.get(..hash).unwrap_or_default(), rest.get(hash + 1..).unwrap_or_default()),
        None => (rest, &b""[..]),
    };
    let hints = hints(fragment)?;
    if !is_file {
        let (address, is_directory) = remote::address(scheme, place, &hints)?;
        return Ok((Place::Remote(address, is_directory), hints));
    }
    if hints.profile.is_some() || hints.region.is_some() || hints.mode.iter().any(|word| word == "s3") {
        return Err(Error::usage("a file:// URL has nothing to do with S3"));
    }
    let place = place.strip_prefix(b"//").unwrap_or(place);
    // The only host that a file can be on; anything else is a relative path, which netCDF allows.
    let place = place.strip_prefix(b"localhost").filter(|p| p.starts_with(b"/")).unwrap_or(place);
    let path = decode(place)?;
    if path.is_empty() {
        return Err(Error::usage("a URL without a path"));
    }
    Ok((Place::Local(PathBuf::from(OsString::from_vec(path))), hints))
}

// The scheme of a URL: letters before `://`, or `file:` alone.
fn scheme(source: &[u8]) -> Option<&str> {
    let colon = source.iter().position(|&b| b == b':')?;
    let scheme = std::str::from_utf8(source.get(..colon)?).ok()?;
    let named = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let after = source.get(colon + 1..)?;
    (named && (after.starts_with(b"//") || scheme.eq_ignore_ascii_case("file") && after.starts_with(b"/"))).then_some(scheme)
}

fn decode(text: &[u8]) -> Result<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|&b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        match (digit(), digit()) {
            (Some(high), Some(low)) if high << 4 | low != 0 => decoded.push(high << 4 | low),
            _ => return Err(Error::usage("a % in a URL must be followed by two hexadecimal digits, and not stand for NUL")),
        }
    }
    Ok(decoded)
}

fn hints(fragment: &[u8]) -> Result<Hints> {
    let fragment = decode(fragment)?;
    let fragment = String::from_utf8_lossy(&fragment);
    let mut hints = Hints::default();
    for part in fragment.split('&').filter(|p| !p.is_empty()) {
        let list = match part.split_once('=') {
            Some(("mode", list)) => list,
            Some(("aws.profile" | "awsprofile", profile)) => {
                hints.profile = Some(profile.to_owned());
                continue;
            }
            Some(("aws.region" | "awsregion", region)) => {
                hints.region = Some(region.to_owned());
                continue;
            }
            _ => {
                let known = "mode=..., aws.profile=... and aws.region=...";
                return Err(Error::usage(format!("\"{part}\" after # is not understood; {known} are")));
            }
        };
        for word in list.split(',').map(|w| w.trim().to_ascii_lowercase()).filter(|w| !w.is_empty()) {
            if !MODES.contains(&word.as_str()) {
                return Err(Error::usage(format!("mode \"{word}\" is not understood; {} are", MODES.join(", "))));
            }
            hints.mode.push(word);
        }
    }
    let has = |word: &str| hints.mode.iter().any(|w| w == word);
    for (one, other) in [("file", "zip"), ("xarray", "noxarray")] {
        if has(one) && has(other) {
            return Err(Error::usage(format!("mode names both {one} and {other}")));
        }
    }
    Ok(hints)
}

fn distant(address: Address, is_directory: bool, mode: Vec<String>, options: &Options) -> Result<Opened> {
    let has = |word: &str| mode.iter().any(|w| w == word);
    let key = address.key.clone();
    let named_zip = [".zip", ".ozx"].iter().any(|suffix| key.to_ascii_lowercase().ends_with(suffix));
    let object_first = !is_directory && !has("file") && (has("zip") || named_zip);
    let settings = object::Options { documents: format::DOCUMENTS, ..options.object.clone() };
    let (store, name): (Arc<dyn Store>, String) = match object::open(address, &settings, object_first)? {
        Found::Directory(_) if has("zip") => {
            return Err(Error::usage("mode=zip is asked for, and this is no object but what names have before a slash"));
        }
        Found::Directory(directory) => {
            let name = directory.name();
            (Arc::new(directory), name)
        }
        Found::Object(..) if has("file") => {
            return Err(Error::usage("mode=file (a directory) is asked for, and this is an object"));
        }
        Found::Object(directory, key) => {
            let name = directory.locate(&key);
            (archive(Arc::new(directory), key, Path::new(&name))?, name)
        }
    };
    Ok(Opened { store, name, path: None, modified: SystemTime::now(), mode })
}

fn local(path: &Path, mode: Vec<String>, options: &Options) -> Result<Opened> {
    let real = std::fs::canonicalize(path)?;
    let metadata = std::fs::metadata(&real)?;
    let has = |word: &str| mode.iter().any(|w| w == word);
    let store: Arc<dyn Store> = if metadata.is_dir() {
        if has("zip") {
            return Err(Error::usage("mode=zip is asked for, and this is a directory"));
        }
        Arc::new(DirStore::open(&real, DirOptions { follow_symlinks: options.follow_symlinks })?)
    } else if metadata.is_file() {
        if has("file") {
            return Err(Error::usage("mode=file (a directory) is asked for, and this is a file"));
        }
        let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else {
            return Err(Error::unsupported("a file without a directory"));
        };
        let key = Key::root().join(name.as_bytes())?;
        // The container names itself by its place in its folder; the person's own words say more.
        let folder = DirStore::open(folder, DirOptions::default()).map_err(|e| Error::new(e.kind(), e.reason()))?;
        archive(Arc::new(folder), key, &real)?
    } else {
        return Err(Error::unsupported("neither a directory nor a regular file"));
    };
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Ok(Opened { store, name: real.display().to_string(), path: Some(real), modified, mode })
}

/// The archive at `key` of `container`, which a person calls `path`, and the archives in it.
fn archive(container: Arc<dyn Store>, key: Key, path: &Path) -> Result<Arc<dyn Store>> {
    let archive = ZipStore::open(container, key).map_err(|e| Error::new(e.kind(), e.reason()))?;
    let leave = holds_one_array(&archive, path).map_err(|e| Error::new(e.kind(), e.to_string()))?;
    Ok(NestedStore::wrap(if leave { archive.leave_folder() } else { archive }, format::is_mark))
}

/// Whether the folder that was entered is no store but the only array of one: tensorstore writes no documents above its arrays,
/// and then the archive itself is the root. A folder that is called as stores or this archive are is a store all the same.
fn holds_one_array(archive: &ZipStore, path: &Path) -> Result<bool> {
    let Some(folder) = archive.folder() else { return Ok(false) };
    // The outermost directory of an array of WKW whose header is missing.
    if folder.strip_prefix('z').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())) {
        return Ok(true);
    }
    let is_store = [".zarr", ".n5", ".ozx"].iter().any(|suffix| folder.ends_with(suffix));
    if is_store || path.file_stem().is_some_and(|stem| stem.as_bytes() == folder.as_bytes()) {
        return Ok(false);
    }
    let mut documents = format::Documents::new();
    for &name in format::DOCUMENTS {
        let mut bytes = Vec::new();
        let key = Key::root().join(name)?;
        match archive.get(&key, Range::All, None, limits::DOCUMENT, &mut bytes) {
            Ok(_) => drop(documents.insert(name, Ok(bytes))),
            Err(e) if e.kind() == Kind::NotFound => {}
            // A damaged document is judged with the others; what the disk does not answer is not known.
            Err(e) if e.is_damage() => drop(documents.insert(name, Err(e))),
            Err(e) => return Err(e),
        }
    }
    Ok(matches!(format::detect(&documents, &format::Context::default()), Ok(Node::Array(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(source: &str) -> (String, String) {
        let (place, hints) = parse(source.as_bytes()).unwrap();
        let Place::Local(path) = place else { panic!("{source} is a path") };
        (path.to_str().unwrap().to_owned(), hints.mode.join(","))
    }

    fn refused(source: &str) -> Kind {
        parse(source.as_bytes()).unwrap_err().kind()
    }

    #[test]
    fn sources_are_paths_or_urls() {
        for (source, path, mode) in [
            ("a/b.zarr", "a/b.zarr", ""),
            ("a%20b#mode=zip", "a%20b#mode=zip", ""),
            ("a:b", "a:b", ""),
            ("file:///a/b%20c.zip#mode=nczarr,zip", "/a/b c.zip", "nczarr,zip"),
            ("file://localhost/a", "/a", ""),
            ("file:/a", "/a", ""),
            ("FILE://rel/a#mode=NCZarr", "rel/a", "nczarr"),
            ("file:a", "file:a", ""),
        ] {
            assert_eq!(parsed(source), (path.to_owned(), mode.to_owned()), "{source}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for source in
            ["", "file://", "file:///a%2", "file:///a%00b", "file:///a#mode=bytes", "file:///a#mode=zip,file", "file:///a#x=y"]
        {
            assert_eq!(refused(source), Kind::Usage, "{source}");
        }
        assert_eq!(refused("ftp://h/p"), Kind::Unsupported);
    }

    #[test]
    fn urls_of_object_stores_have_hints() {
        for source in ["s3://b/k#mode=nczarr,s3&aws.profile=me", "S3://b/k#awsprofile=me&mode=s3"] {
            let (place, hints) = parse(source.as_bytes()).unwrap();
            let Place::Remote(address, false) = place else { panic!("{source} is no directory's name") };
            assert_eq!((address.key.as_str(), address.profile.as_deref()), ("k", Some("me")), "{source}");
            assert!(hints.mode.contains(&"s3".to_owned()), "{source}");
        }
        for source in ["gs://b", "az://b", "https://h/p/", "http://h"] {
            assert!(matches!(parse(source.as_bytes()).unwrap().0, Place::Remote(_, true)), "{source}");
        }
    }

    /// What the disk does not answer says nothing of the archive.
    #[test]
    fn an_archive_that_cannot_be_read_is_no_answer() {
        use crate::store::faulty::{Call, Effect, Faulty};
        use std::io::Write;
        let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        writer.start_file("a/.zarray", zip::write::SimpleFileOptions::default()).unwrap();
        let text = r#"{"zarr_format": 2, "shape": [], "chunks": [], "dtype": "<i4", "fill_value": 0, "order": "C", "filters": null, "compressor": null}"#;
        writer.write_all(text.as_bytes()).unwrap();
        let memory = crate::store::mem::MemStore::default();
        let key = Key::root().join("x.zip").unwrap();
        memory.put(key.clone(), writer.finish().unwrap().into_inner());
        let container = Arc::new(Faulty::new(Arc::new(memory)));
        let archive = ZipStore::open(container.clone(), key.clone()).unwrap();
        assert!(holds_one_array(&archive, Path::new("/x.zip")).unwrap());
        container.always(Call::Get, key, Effect::Fail(Kind::Unavailable, "no answer".into()));
        let archive_error = holds_one_array(&archive, Path::new("/x.zip")).unwrap_err();
        assert_eq!(archive_error.kind(), Kind::Unavailable);
    }
}
