//! The common part of tools that call the registry through [`Delegate`], keyed by the id of their
//! step. A refusal becomes a result with a message and the ids concerned. The tools are in
//! `session_tools`, `memory_tools` and `delegating`.

use std::sync::Arc;

use serde_json::Value;

use super::ToolOutput;
use super::built_in::AskRegistry;
use crate::contract::BoxFuture;
use crate::contract::delegate::{Delegate, Site, ToolReply};
use crate::contract::linked::Link;
use crate::kernel::fault::Fault;
use crate::kernel::policy::gate::Rights;

/// The calling step and its rights.
pub(super) struct CallingStep<'a> {
    pub site: Site,
    pub rights: &'a Rights,
    /// The link, if the tool is a linked agent.
    pub link: Option<&'a Link>,
}

pub(super) type ReplyFuture = BoxFuture<'static, Result<ToolReply, Fault>>;

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// The call is done, with this result.
    Done(ToolOutput),
    /// The workspace folder is gone, so the run cannot continue. The text is for people.
    Gone(String),
    /// There is no result yet: the step waits.
    Waits,
    /// It is unknown whether the effect happened.
    Uncertain {
        /// Why, as a clause.
        why: String,
        /// Nothing more will become known.
        is_final: bool,
    },
}

/// Calls the registry by the tool `name`.
pub(super) fn call(
    name: &str,
    ask: &AskRegistry,
    registry: Option<&Arc<dyn Delegate>>,
    by: CallingStep<'_>,
    arguments: Value,
) -> BoxFuture<'static, Called> {
    let failed = |text: String| -> BoxFuture<'static, Called> {
        Box::pin(std::future::ready(Called::Done(ToolOutput::error(text))))
    };
    let Some(registry) = registry else {
        return failed(format!(
            "{} is not available yet: the daemon is starting",
            name
        ));
    };
    let answer = match ask(registry.as_ref(), by, arguments) {
        Ok(answer) => answer,
        Err(text) => return failed(text),
    };
    Box::pin(async move {
        match answer.await {
            Ok(ToolReply::Now(Value::String(text))) => Called::Done(ToolOutput::text(text)),
            Ok(ToolReply::Now(value)) => Called::Done(ToolOutput::text(value.to_string())),
            Ok(ToolReply::Pending) => Called::Waits,
            Err(fault) => Called::Done(ToolOutput::error(in_words(&fault))),
        }
    })
}

/// Formats a refusal for the model: what happened, what to do, and the data about it.
pub(super) fn in_words(fault: &Fault) -> String {
    let mut text = format!("{}: {}", fault.kind.as_str(), fault.message);
    if let Some(hint) = &fault.hint {
        text.push_str("\nwhat to do: ");
        text.push_str(hint);
    }
    if !fault.data.is_empty() {
        text.push('\n');
        text.push_str(&Value::Object((*fault.data).clone()).to_string());
    }
    text
}

pub(super) fn ms(seconds: usize) -> u64 {
    u64::try_from(seconds)
        .unwrap_or(u64::MAX)
        .saturating_mul(1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::fault::Kind;

    #[test]
    fn g14_6_a_refusal_in_words_has_its_ids() {
        let fault = Fault::new(Kind::Conflict, "it is busy")
            .hint("wait")
            .with("runId", "0193");
        let words = in_words(&fault);
        assert!(
            words.contains("it is busy") && words.contains("wait"),
            "{words}"
        );
        assert!(words.contains("\"runId\":\"0193\""), "{words}");
    }
}
