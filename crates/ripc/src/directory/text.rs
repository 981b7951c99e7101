//! The texts that name directories: `SCHEME://PLACE?KEY=VALUE&KEY=VALUE`.

use super::limits::TEXT_BYTES_MAX;
use crate::error::DirectoryError;

/// A text, divided into its parts. Values are taken unchanged: nothing is decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text<'a> {
    whole: &'a str,
    /// The part between the scheme and the options.
    pub place: &'a str,
    /// The options in the order of the text.
    pub options: Vec<(&'a str, &'a str)>,
}

impl<'a> Text<'a> {
    /// Takes apart what follows the scheme of `whole`, whose options have these keys.
    ///
    /// # Errors
    /// [`DirectoryError`] names the option that is wrong.
    pub fn parse(whole: &'a str, rest: &'a str, keys: &[&str]) -> Result<Text<'a>, DirectoryError> {
        let (place, options) = rest.split_once('?').unwrap_or((rest, ""));
        let mut text = Text { whole, place, options: Vec::new() };
        if whole.len() > TEXT_BYTES_MAX {
            return Err(text.wrong("it is over 4,096 bytes long"));
        }
        for option in options.split('&').filter(|_| !options.is_empty()) {
            let Some((key, value)) = option.split_once('=').filter(|(_, value)| !value.is_empty()) else {
                return Err(text.wrong(&format!("{option:?} is no option: write KEY=VALUE")));
            };
            if !keys.contains(&key) {
                let keys = keys.join(", ");
                return Err(text.wrong(&format!("there is no option {key:?}; there are {keys}")));
            }
            text.options.push((key, value));
        }
        Ok(text)
    }

    /// The value of an option that may be there once.
    ///
    /// # Errors
    /// [`DirectoryError`]: it is there twice.
    pub fn one(&self, key: &str) -> Result<Option<&'a str>, DirectoryError> {
        let mut values = self.all(key);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(self.wrong(&format!("{key} is there twice: keep one"))),
        }
    }

    /// All values of an option.
    pub fn all<'t>(&'t self, key: &'t str) -> impl Iterator<Item = &'a str> + 't {
        self.options.iter().filter(move |option| option.0 == key).map(|option| option.1)
    }

    /// Makes the error for a wrong text.
    pub fn wrong(&self, reason: &str) -> DirectoryError {
        DirectoryError::bad_text(self.whole, reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_taken_apart() {
        let text = Text::parse("x://a:1?k=v&k=w&one=1", "a:1?k=v&k=w&one=1", &["k", "one"]).unwrap();
        assert_eq!(text.place, "a:1");
        assert_eq!(text.all("k").collect::<Vec<_>>(), ["v", "w"]);
        assert_eq!(text.one("one").unwrap(), Some("1"));
        assert_eq!(text.one("none").unwrap(), None);
        assert!(text.one("k").unwrap_err().reason.contains("twice"));
        assert_eq!(Text::parse("x://a", "a", &[]).unwrap().options, []);
        for wrong in ["a?k", "a?k=", "a?&k=v", "a?other=1"] {
            let error = Text::parse(wrong, wrong, &["k"]).unwrap_err();
            assert!(error.directory == wrong && error.reason.contains("option"), "{error}");
        }
    }
}
