//! Runs the file operations of tools on the threads of a pool, and stops them when their result is
//! no longer wanted.

use super::ToolOutput;
use crate::contract::BoxFuture;
pub(super) use crate::file_work::StopFlag;
use crate::file_work::TOOLS;

/// Runs `work`. Its error becomes a failed result, and so does a lack of threads.
pub(super) fn blocking<F>(work: F) -> BoxFuture<'static, ToolOutput>
where
    F: FnOnce(&StopFlag) -> Result<String, String> + Send + 'static,
{
    Box::pin(async move {
        match TOOLS.run(work).await {
            Ok(done) => done.into(),
            Err(busy) => ToolOutput::error(busy.to_string()),
        }
    })
}
