//! Pages that stay within their size: a page that is too large is asked for again, smaller,
//! so that its cursor is right.

use std::io;

use serde::Serialize;

use crate::kernel::fault::Fault;

/// The most bytes of a page, unless one entry alone is larger.
const PAGE_BYTES: usize = 1024 * 1024;

/// The page that `fetch` gives for a limit of `limit` entries, or for fewer if that one is too
/// large.
pub(super) async fn fit<T, Fut>(limit: u32, fetch: impl Fn(u32) -> Fut) -> Result<T, Fault>
where
    T: Serialize,
    Fut: Future<Output = Result<T, Fault>>,
{
    let mut limit = limit;
    loop {
        let page = fetch(limit).await?;
        let size = size(&page)?;
        if size <= PAGE_BYTES || limit == 1 {
            return Ok(page);
        }
        limit = smaller(limit, size);
    }
}

/// A limit that would fit if all entries were of one size, and at most the half.
fn smaller(limit: u32, size: usize) -> u32 {
    let share = u64::from(limit) * PAGE_BYTES as u64 / size as u64;
    u32::try_from(share).unwrap_or(limit).min(limit / 2).max(1)
}

fn size(page: &impl Serialize) -> Result<usize, Fault> {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, page).map_err(Fault::internal)?;
    Ok(count.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn page_of(entry: usize, asked: u32) -> Vec<String> {
        let fetch = async |limit: u32| Ok(vec!["x".repeat(entry); limit as usize]);
        fit(asked, fetch).await.unwrap()
    }

    #[tokio::test]
    async fn g9_3_a_page_shrinks_until_it_fits() {
        assert_eq!(page_of(10, 500).await.len(), 500);
        let page = page_of(100 * 1024, 50).await;
        assert!(!page.is_empty());
        assert!(size(&page).unwrap() <= PAGE_BYTES);
        // What is too large alone still comes, so that nobody is stuck before it.
        assert_eq!(page_of(2 * PAGE_BYTES, 8).await.len(), 1);
    }
}
