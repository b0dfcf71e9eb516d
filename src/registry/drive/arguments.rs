//! The real arguments of tool calls whose stored form has environment values masked: encrypted when
//! the answer is stored, and decrypted for the step that carries out the call, also after a
//! restart. Called by `drive`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::contract::journal::RunView;
use crate::contract::linked;
use crate::contract::runner::StepOutcome;
use crate::kernel::fault::Fault;
use crate::kernel::run::Run;
use crate::kernel::run::step::{Step, StepKind};
use crate::kernel::secret::Secret;
use crate::kernel::session::message::Block;
use crate::kernel::text::redact::Redactor;
use crate::registry::RegistryInner;
use crate::store::Seal;
use crate::store::tables::environment;

/// The outcome of a performed step.
pub(super) struct MaskedOutcome {
    /// The outcome with secrets masked.
    pub outcome: StepOutcome,
    /// The original arguments of the masked calls, encrypted; `None` if nothing was masked.
    pub sealed: Option<Vec<u8>>,
}

impl From<StepOutcome> for MaskedOutcome {
    fn from(outcome: StepOutcome) -> Self {
        MaskedOutcome {
            outcome,
            sealed: None,
        }
    }
}

/// Arguments by tool call id, for the calls that masking changes.
type MaskedArguments = BTreeMap<String, Value>;

/// Encrypts the arguments that masking will change in an answer of `step`. The answer gets a
/// warning for each call that passes text to another session, because that session gets the masked
/// text.
pub(super) fn sealed(
    seal: &Seal,
    step: &Step,
    outcome: &mut StepOutcome,
    redactor: &Redactor,
) -> Result<Option<Vec<u8>>, Fault> {
    let StepOutcome::Answer {
        blocks, warnings, ..
    } = outcome
    else {
        return Ok(None);
    };
    let mut said = MaskedArguments::new();
    for block in blocks {
        let Block::ToolCall {
            id,
            name,
            arguments,
        } = block
        else {
            continue;
        };
        if !redactor.is_in(arguments) {
            continue;
        }
        if linked::delegates(name) || name == "sessions_send" {
            warnings.push(format!(
                "{name}: values of this run's environment are masked in the text that was passed on; give \
                 the other agent an env of its own if it needs them"
            ));
        }
        said.insert(id.clone(), arguments.clone());
    }
    if said.is_empty() {
        return Ok(None);
    }
    let text = serde_json::to_string(&said).map_err(Fault::internal)?;
    let sealed = seal.close(
        step.run,
        &environment::arguments_of(step.id),
        &Secret::new(text),
    )?;
    Ok(Some(sealed))
}

/// The step as it is carried out: a tool call with the model's original arguments. If they cannot
/// be decrypted, the call is not made and the returned outcome says so.
pub(super) async fn step(
    inner: &RegistryInner,
    view: &RunView,
    step: &Arc<Step>,
) -> Result<Result<Arc<Step>, StepOutcome>, Fault> {
    Ok(match arguments(inner, &view.run, step).await? {
        CallArguments::AsStored => Ok(Arc::clone(step)),
        CallArguments::Otherwise(arguments) => Ok(Arc::new(Step {
            input: arguments,
            ..Step::clone(step)
        })),
        CallArguments::Lost => Err(StepOutcome::ToolResult {
            text: format!(
                "{} was not called and nothing was done: its arguments hold values of the \
                 environment, and their encrypted form cannot be opened with the key that the \
                 daemon has now (env.key in the state folder, or the credential abide-env-key). \
                 Call it again",
                step.tool.as_deref().unwrap_or("the tool")
            ),
            is_error: true,
        }),
    })
}

/// The original arguments of a tool call.
pub(in crate::registry) enum CallArguments {
    /// The same as those stored in the step.
    AsStored,
    /// These; the step has them masked.
    Otherwise(Value),
    /// They cannot be decrypted any more.
    Lost,
}

/// The arguments that the call of `step` is made with.
pub(in crate::registry) async fn arguments(
    inner: &RegistryInner,
    run: &Run,
    step: &Step,
) -> Result<CallArguments, Fault> {
    let asked_by = step.asked_by.filter(|_| step.kind == StepKind::Tool);
    // Only values of the run's environment are masked.
    let Some(asked_by) = asked_by.filter(|_| !run.env.is_empty()) else {
        return Ok(CallArguments::AsStored);
    };
    let (id, name) = (step.run, environment::arguments_of(asked_by));
    let kept = name.clone();
    let read = inner
        .store
        .read_for_registry(move |tx| environment::sealed(tx, id, &kept));
    let Some(sealed) = read.await? else {
        return Ok(CallArguments::AsStored);
    };
    let opened = inner.seal.open(step.run, &name, &sealed);
    let said = opened.and_then(|text| serde_json::from_str::<MaskedArguments>(text.expose()).ok());
    let Some(mut said) = said else {
        return Ok(CallArguments::Lost);
    };
    let call = step.tool_call.as_deref().unwrap_or_default();
    Ok(said
        .remove(call)
        .map_or(CallArguments::AsStored, CallArguments::Otherwise))
}
