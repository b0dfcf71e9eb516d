//! Pages that stay within their size: a page that is too large is asked for again, smaller,
//! so that its cursor is right.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::kernel::fault::Fault;

/// The most bytes of a page, unless one entry alone is larger.
const PAGE_BYTES: usize = 1024 * 1024;

/// A page as it is sent. To know its size is to write it, and it is not written twice.
pub(super) struct Written<T> {
    text: Box<RawValue>,
    page: PhantomData<fn() -> T>,
}

impl<T> Serialize for Written<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for Written<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// The page that `fetch` gives for a limit of `limit` entries, or for fewer if that one is too
/// large.
pub(super) async fn fit<T, Fut>(limit: u32, fetch: impl Fn(u32) -> Fut) -> Result<Written<T>, Fault>
where
    T: Serialize,
    Fut: Future<Output = Result<T, Fault>>,
{
    let mut limit = limit;
    loop {
        let text = to_raw_value(&fetch(limit).await?).map_err(Fault::internal)?;
        let size = text.get().len();
        if size <= PAGE_BYTES || limit == 1 {
            let page = PhantomData;
            return Ok(Written { text, page });
        }
        limit = smaller(limit, size);
    }
}

/// A limit that would fit if all entries were of one size, and at most the half.
fn smaller(limit: u32, size: usize) -> u32 {
    let share = u64::from(limit) * PAGE_BYTES as u64 / size as u64;
    u32::try_from(share).unwrap_or(limit).min(limit / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn page_of(entry: usize, asked: u32) -> Vec<String> {
        let fetch = async |limit: u32| Ok(vec!["x".repeat(entry); limit as usize]);
        let page = fit(asked, fetch).await.unwrap();
        let entries: Vec<String> = serde_json::from_str(page.text.get()).unwrap();
        assert!(page.text.get().len() <= PAGE_BYTES || entries.len() == 1);
        entries
    }

    #[tokio::test]
    async fn g9_3_a_page_shrinks_until_it_fits() {
        assert_eq!(page_of(10, 500).await.len(), 500);
        let page = page_of(100 * 1024, 50).await;
        assert!(!page.is_empty());
        // What is too large alone still comes, so that nobody is stuck before it.
        assert_eq!(page_of(2 * PAGE_BYTES, 8).await.len(), 1);
    }
}
