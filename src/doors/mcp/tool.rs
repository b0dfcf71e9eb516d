//! The tools: their names, texts and schemas, and the way from a call to its answer. An error of the
//! API is an answer that the model reads; only an unknown tool is an error of the protocol.

use std::sync::{Arc, LazyLock};

use rmcp::ErrorData;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, JsonObject, ToolAnnotations};
use schemars::JsonSchema;
use schemars::generate::{Contract, SchemaSettings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::doors::api::Api;
use crate::doors::mcp::call::McpCall;
use crate::doors::mcp::inbox::{Ack, Inbox};
use crate::doors::mcp::result::ReadResult;
use crate::doors::mcp::runs::{Cancel, List, Status};
use crate::doors::mcp::search::SearchHistory;
use crate::doors::mcp::spawn::Spawn;
use crate::doors::mcp::wait::{Send, Wait};
use crate::kernel::fault::{Fault, Kind};
use crate::wire::error::WireError;

/// Name of the tool that starts a run.
pub(super) const SPAWN: &str = Spawn::NAME;

/// A tool, implemented by the type of its arguments.
pub(super) trait McpTool: DeserializeOwned + JsonSchema + std::marker::Send {
    /// Name of the tool.
    const NAME: &'static str;
    /// Title for people.
    const TITLE: &'static str;
    /// What it does, for models.
    const ABOUT: &'static str;
    /// What a call changes.
    const EFFECT: ToolEffect;
    /// The structured result.
    type Output: Serialize + JsonSchema;

    /// Carries out a call.
    fn run<A: Api>(
        self,
        call: &McpCall<A>,
    ) -> impl Future<Output = Result<Self::Output, WireError>> + std::marker::Send;
}

/// What a call of a tool changes.
pub(super) enum ToolEffect {
    /// Nothing.
    Reads,
    /// It adds something.
    Adds,
    /// It ends something; a repeat ends nothing more.
    Ends,
    /// It marks something; a repeat marks nothing more.
    Marks,
}

/// All tools.
pub(super) fn all() -> &'static [rmcp::model::Tool] {
    static ALL: LazyLock<Vec<rmcp::model::Tool>> = LazyLock::new(|| {
        vec![
            declared::<Spawn>(),
            declared::<Wait>(),
            declared::<Send>(),
            declared::<Status>(),
            declared::<ReadResult>(),
            declared::<List>(),
            declared::<Cancel>(),
            declared::<Inbox>(),
            declared::<Ack>(),
            declared::<SearchHistory>(),
        ]
    });
    &ALL
}

fn declared<T: McpTool>() -> rmcp::model::Tool {
    let hints =
        ToolAnnotations::with_title(T::TITLE).open_world(matches!(T::EFFECT, ToolEffect::Adds));
    let hints = match T::EFFECT {
        ToolEffect::Reads => hints.read_only(true),
        ToolEffect::Adds => hints.read_only(false).destructive(false).idempotent(false),
        ToolEffect::Ends => hints.read_only(false).destructive(true).idempotent(true),
        ToolEffect::Marks => hints.read_only(false).destructive(false).idempotent(true),
    };
    rmcp::model::Tool::new(T::NAME, T::ABOUT, schema::<T>(Contract::Deserialize))
        .with_title(T::TITLE)
        .with_raw_output_schema(schema::<T::Output>(Contract::Serialize))
        .with_annotations(hints)
}

/// The schema of a type in this direction. All parts are in place: some hosts do not resolve
/// references.
fn schema<T: JsonSchema>(contract: Contract) -> Arc<JsonObject> {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
        settings.contract = contract;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    without_formats(&mut schema);
    match schema {
        Value::Object(mut schema) => {
            schema.remove("title");
            Arc::new(schema)
        }
        other => unreachable!("the type of a tool is an object, not {other}"),
    }
}

/// Removes the formats of numbers, such as `uint64`, which validators do not know.
fn without_formats(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
            }
            fields.values_mut().for_each(without_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(without_formats),
        _ => {}
    }
}

/// Carries out a call of the tool with this name.
pub(super) async fn carry_out<A: Api>(
    name: &str,
    arguments: JsonObject,
    call: &McpCall<A>,
) -> Result<CallToolResponse, ErrorData> {
    let answer = match name {
        Spawn::NAME => structured::<Spawn, A>(arguments, call).await,
        Wait::NAME => structured::<Wait, A>(arguments, call).await,
        Send::NAME => structured::<Send, A>(arguments, call).await,
        Status::NAME => structured::<Status, A>(arguments, call).await,
        ReadResult::NAME => structured::<ReadResult, A>(arguments, call).await,
        List::NAME => structured::<List, A>(arguments, call).await,
        Cancel::NAME => structured::<Cancel, A>(arguments, call).await,
        Inbox::NAME => structured::<Inbox, A>(arguments, call).await,
        Ack::NAME => structured::<Ack, A>(arguments, call).await,
        SearchHistory::NAME => structured::<SearchHistory, A>(arguments, call).await,
        name => {
            let name = crate::kernel::text::prefix(name, 80);
            return Err(ErrorData::invalid_params(
                format!("there is no tool {name:?}"),
                None,
            ));
        }
    };
    Ok(answer.unwrap_or_else(refused).into())
}

async fn structured<T: McpTool, A: Api>(
    arguments: JsonObject,
    call: &McpCall<A>,
) -> Result<CallToolResult, WireError> {
    let output = decoded::<T>(arguments)?.run(call).await?;
    let output = serde_json::to_value(&output).map_err(Fault::internal)?;
    Ok(CallToolResult::structured(output))
}

/// Decodes the arguments of a call; the error names the argument.
pub(super) fn decoded<T: McpTool>(arguments: JsonObject) -> Result<T, WireError> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|at| {
        let path = at.path().to_string();
        let what = at.inner();
        let fault = match path.as_str() {
            "." => Fault::new(Kind::InvalidParams, what.to_string()),
            path => Fault::params(path, what),
        };
        fault
            .hint("correct the arguments and call the tool again")
            .into()
    })
}

/// The answer to a call that failed: what happened, and what to do.
pub(super) fn refused(error: WireError) -> CallToolResult {
    let kind = error.kind().map_or("other", Kind::as_str);
    let mut text = format!("{kind}: {}", error.message);
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nHint: {hint}"));
    }
    if error.data.get("retryable") == Some(&Value::Bool(true)) {
        text.push_str("\nThe same call may succeed later.");
    }
    CallToolResult::error(vec![ContentBlock::text(text)])
}
