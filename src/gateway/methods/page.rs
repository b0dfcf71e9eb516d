//! Size-limited pages: a page that is too large is fetched again with a smaller limit, so that its
//! cursor is right.

use std::borrow::Cow;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use crate::gateway::methods::{JsonText, MethodReply, MethodResult};
use crate::kernel::fault::Fault;

/// Maximum size of a page in bytes, unless a single entry is larger.
const PAGE_BYTES: usize = 1024 * 1024;

/// A serialized page of type `T`. Its size is only known by serializing it, so the text is kept.
pub(crate) struct SerializedPage<T> {
    text: JsonText,
    page: PhantomData<fn() -> T>,
}

impl<T> MethodReply for SerializedPage<T> {
    type Shape = T;

    fn into_text(self) -> MethodResult {
        Ok(self.text)
    }
}

/// Serializes a page of type `T`.
pub(crate) fn write<T>(page: &impl Serialize) -> Result<SerializedPage<T>, Fault> {
    Ok(SerializedPage {
        text: JsonText::of(page)?,
        page: PhantomData,
    })
}

impl<T: JsonSchema> JsonSchema for SerializedPage<T> {
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

/// Fetches a page of `limit` entries, or of fewer if that page exceeds [`PAGE_BYTES`].
pub(crate) async fn fit<R, Fut>(
    limit: u32,
    fetch: impl Fn(u32) -> Fut,
) -> Result<SerializedPage<R::Shape>, Fault>
where
    R: MethodReply,
    Fut: Future<Output = Result<R, Fault>>,
{
    let mut limit = limit;
    loop {
        let text = fetch(limit).await?.into_text()?;
        let size = text.as_str().len();
        if size <= PAGE_BYTES || limit == 1 {
            let page = PhantomData;
            return Ok(SerializedPage { text, page });
        }
        limit = smaller(limit, size);
    }
}

/// A limit that would fit if all entries were of equal size; at most half of `limit`, at least 1.
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
        let entries: Vec<String> = serde_json::from_str(page.text.as_str()).unwrap();
        assert!(page.text.as_str().len() <= PAGE_BYTES || entries.len() == 1);
        entries
    }

    #[tokio::test]
    async fn g9_3_a_page_shrinks_until_it_fits() {
        assert_eq!(page_of(10, 500).await.len(), 500);
        let page = page_of(100 * 1024, 50).await;
        assert!(!page.is_empty());
        // A single entry that is too large is still returned; otherwise no reader could get past
        // it.
        assert_eq!(page_of(2 * PAGE_BYTES, 8).await.len(), 1);
    }
}
