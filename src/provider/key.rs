//! Reads a provider's API key from its configured source. The value is only put into headers that
//! are marked as sensitive.

use http::HeaderValue;

use crate::config;
use crate::kernel::secret::{Reference, Secret};

/// Reads the key; `None` if the provider needs none. Called before each request, so that a changed
/// key file needs no restart. The error names the source, never its content.
pub(super) fn read(place: Option<&Reference>) -> Result<Option<Secret>, String> {
    let read = place.map(config::read).transpose();
    read.map_err(|why| format!("its key is missing: {why}"))
}

/// A header value that debug output does not show.
pub(super) fn secret(text: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| "it has characters that are not allowed in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_only_asked_for_where_one_is_named() {
        assert_eq!(read(None).unwrap(), None);
        let unset = Reference::Variable("ABIDE_TEST_NO_SUCH_KEY".to_owned());
        let refused = read(Some(&unset)).unwrap_err();
        assert!(refused.contains("its key is missing"), "{refused}");
        assert!(refused.contains("ABIDE_TEST_NO_SUCH_KEY"), "{refused}");
        let value = secret("Bearer sk-1").unwrap();
        assert!(!format!("{value:?}").contains("sk-1"));
    }
}
