//! See [`crate::fuzzing`].

use super::uri::{ORDER, format, parse};

/// `any://` URIs: what is read and written again is read as the same.
pub fn any_uri(text: &str) {
    let Ok(paths) = parse(text) else { return };
    let uris = ORDER.into_iter().zip(&paths.uris).filter_map(|(kind, uri)| Some((kind, uri.as_deref()?)));
    let again = format(paths.id, uris);
    assert_eq!(parse(&again).as_ref(), Ok(&paths), "{text:?} {again:?}");
}
