//! See [`crate::fuzzing`].

use super::uri::{ORDER, format, parse};

/// `any://` URIs: what is read and written again is read as the same.
pub fn any_uri(text: &str) {
    let Ok(ways) = parse(text) else { return };
    let uris = ORDER.into_iter().zip(&ways.uris).filter_map(|(kind, uri)| Some((kind, uri.as_deref()?)));
    let again = format(ways.id, uris);
    assert_eq!(parse(&again).as_ref(), Ok(&ways), "{text:?} {again:?}");
}
