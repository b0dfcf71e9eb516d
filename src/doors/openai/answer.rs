//! What both forms of the API say about a run: its times and usage, why it failed, and what it did.

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::follow::{Piece, pieces, whole_text};
use super::guard::DisconnectGuard;
use super::{OpenAi, OpenAiError, OpenAiRun};
use crate::config::ShownToolCalls;
use crate::doors::api::{Api, ask};
use crate::kernel::run::Usage;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{GetRun, ListSteps};
use crate::wire::shapes::Run;

/// A run that has ended, with its whole text and what it did.
pub(super) struct Answered {
    pub(super) run: Run,
    pub(super) text: String,
    /// `None` if it is not shown, or there is nothing to show.
    pub(super) reasoning: Option<String>,
}

impl<A: Api> OpenAi<A> {
    /// Waits for the end of a run. A client that disconnects meanwhile drops this, and `guard` with it.
    pub(super) async fn answered(
        &self,
        run: &OpenAiRun,
        mut guard: DisconnectGuard<A>,
    ) -> Result<Answered, OpenAiError> {
        let ended = self.ended(run).await;
        guard.disarm();
        self.read(run, ended?).await
    }

    async fn ended(&self, run: &OpenAiRun) -> Result<Run, OpenAiError> {
        let mut pieces = pieces(self.api.clone(), run.clone());
        loop {
            let piece = tokio::select! {
                biased;
                piece = pieces.next() => piece,
                () = self.stopping.cancelled() => return Err(OpenAiError::stopping(run.run_id)),
            };
            match piece {
                Some(Piece::Ended(ended)) => return Ok(*ended),
                Some(Piece::Lost(error)) => return Err(error),
                Some(Piece::Text(_) | Piece::Reasoning(_)) => {}
                None => {
                    let run_id = run.run_id;
                    return Ok(ask(&self.api, &GetRun { run_id }).await?);
                }
            }
        }
    }

    /// The answer of a run as it is stored.
    pub(super) async fn read(&self, run: &OpenAiRun, ended: Run) -> Result<Answered, OpenAiError> {
        let text = whole_text(&self.api, run).await?;
        let reasoning = match self.options.tool_calls {
            ShownToolCalls::Hidden => None,
            ShownToolCalls::Reasoning => Some(self.tool_lines(run).await?),
        };
        Ok(Answered {
            run: ended,
            text,
            reasoning: reasoning.filter(|lines| !lines.is_empty()),
        })
    }

    /// A line for each tool call of a run.
    async fn tool_lines(&self, run: &OpenAiRun) -> Result<String, OpenAiError> {
        let mut request = ListSteps {
            run_id: run.run_id,
            limit: PageSize(PAGE_LIMIT),
            cursor: None,
        };
        let mut lines = String::new();
        loop {
            let page = ask(&self.api, &request).await?;
            for step in page.steps {
                if let Some(tool) = step.tool {
                    let about = step.params_summary.unwrap_or_default();
                    lines.push_str(format!("{tool} {about}").trim_end());
                    lines.push('\n');
                }
            }
            request.cursor = page.next_cursor;
            if request.cursor.is_none() {
                return Ok(lines);
            }
        }
    }

    /// Whether what an agent does is shown.
    pub(super) fn shows_reasoning(&self) -> bool {
        self.options.tool_calls == ShownToolCalls::Reasoning
    }
}

/// Seconds since 1970 at which the run was accepted.
pub(super) fn created(run: &Run) -> i64 {
    run.created_at.0.div_euclid(1000)
}

/// The usage of a run in the words of chat completions.
pub(super) fn chat_usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens.saturating_add(usage.output_tokens),
    })
}

/// Why a run that has ended has no answer; `None` if it has one.
pub(super) fn failure(run: &Run) -> Option<OpenAiError> {
    let status = match run.state.as_ref() {
        "ok" => return None,
        "timeout" => 504,
        "cancelled" => 409,
        _ => 500,
    };
    let message = match &run.error {
        Some(error) => format!("the run has ended: {}", error.message),
        None => format!("the run has ended: {}", run.state),
    };
    let code = match &run.error {
        Some(error) => error.kind.clone(),
        None => run.state.to_string(),
    };
    Some(OpenAiError {
        status,
        class: if status == 409 {
            "conflict_error"
        } else {
            "server_error"
        },
        code,
        message: format!("{message} (run {}; see: abide logs)", run.run_id),
        param: None,
        // The same request would start another run.
        retryable: false,
        retry_after_ms: None,
    })
}
