//! The tool `result`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::output::RunOutput;
use crate::doors::mcp::tool::{McpTool, ToolEffect};
use crate::kernel::fault::Fault;
use crate::kernel::ids::RunId;
use crate::kernel::run::RunError;
use crate::kernel::text;
use crate::wire::error::WireError;
use crate::wire::input;
use crate::wire::runs::GetRun;
use crate::wire::shapes::Word;

/// Maximum size of a part of a result in bytes.
const PART_BYTES: usize = 64 * 1024;

/// Reads the whole result of a run.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ReadResult {
    /// Id of the run.
    #[serde(deserialize_with = "input::id")]
    run_id: RunId,
    /// First byte of the part; 0 if unset.
    #[serde(default)]
    offset: u64,
}

/// A part of a result.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResultOutput {
    /// Id of the run.
    run_id: RunId,
    /// `pending` while it is open, otherwise its outcome.
    status: Word,
    /// The part, at most 64 KiB; empty if there is no result.
    text: String,
    /// Pass it as `offset` for the next part; absent on the last part.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// Length of the whole result in bytes.
    bytes: u64,
    /// Why it did not end `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<RunError>,
}

impl McpTool for ReadResult {
    const NAME: &'static str = "result";
    const TITLE: &'static str = "Read the result of a run";
    const ABOUT: &'static str = "Read the final text of a run, in parts of 64 KiB. Needed only where \
        another tool reports resultTruncated.";
    const EFFECT: ToolEffect = ToolEffect::Reads;
    type Output = ResultOutput;

    async fn run<A: Api>(self, call: &McpCall<A>) -> Result<ResultOutput, WireError> {
        let run = ask(
            &call.api,
            &GetRun {
                run_id: self.run_id,
            },
        )
        .await?;
        let run = RunOutput::from(run);
        let all = run.result.unwrap_or_default();
        let (part, next) = part(&all, self.offset)?;
        Ok(ResultOutput {
            run_id: run.run_id,
            status: run.status,
            text: part.to_owned(),
            next_offset: next,
            bytes: all.len() as u64,
            error: run.error,
        })
    }
}

/// The part of `all` from the byte `offset`, or from the next whole character, and where the next
/// part begins.
fn part(all: &str, offset: u64) -> Result<(&str, Option<u64>), Fault> {
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    if start > all.len() {
        let message = format!("the result has {} bytes", all.len());
        return Err(Fault::params("offset", message));
    }
    let start = (start..=all.len())
        .find(|at| all.is_char_boundary(*at))
        .unwrap_or(all.len());
    let part = text::prefix(&all[start..], PART_BYTES);
    let end = start + part.len();
    Ok((part, (end < all.len()).then_some(end as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_result_are_the_whole_result() {
        let all = "ä€😀x".repeat(20_000);
        let (mut joined, mut offset) = (String::new(), Some(0));
        while let Some(start) = offset {
            let (text, next) = part(&all, start).unwrap();
            assert!(text.len() <= PART_BYTES && !text.is_empty());
            joined.push_str(text);
            offset = next;
        }
        assert_eq!(joined, all);
        // An offset inside of a character means the next one.
        assert!(part(&all, 1).unwrap().0.starts_with('€'));
        assert_eq!(part("", 0).unwrap(), ("", None));
        assert!(part("abc", 4).is_err());
    }
}
