//! What a person names as SOURCE, told apart without opening it.

use chunkmount::source::{Hints, Place, parse};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A SOURCE; also the same bytes as a path that is spelled as a URL.
pub fn target(data: &[u8]) {
    let has = |hints: &Hints, word: &str| hints.mode.iter().any(|w| w == word);
    if let Ok((place, hints)) = parse(data) {
        assert!(!(has(&hints, "file") && has(&hints, "zip") || has(&hints, "xarray") && has(&hints, "noxarray")), "{hints:?}");
        let Place::Local(path) = place else { return };
        let path = path.as_os_str().as_bytes();
        let is_url = data.get(..5).is_some_and(|s| s.eq_ignore_ascii_case(b"file:")) && data.get(5) == Some(&b'/');
        assert!(!path.is_empty() && path.len() <= data.len());
        assert!(is_url || path == data && hints == Hints::default(), "a path is not taken literally");
    }
    if data.is_empty() || data.contains(&0) {
        return;
    }
    let mut url = b"file:///".to_vec();
    data.iter().for_each(|b| url.extend(format!("%{b:02X}").bytes()));
    url.extend_from_slice(b"#mode=nczarr,zip");
    let (place, hints) = parse(&url).unwrap_or_else(|e| panic!("{}: {e}", String::from_utf8_lossy(&url)));
    assert_eq!(place, Place::Local(OsStr::from_bytes(&[b"/", data].concat()).into()));
    assert_eq!(hints.mode, ["nczarr", "zip"]);
}
