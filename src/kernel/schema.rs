//! JSON Schemas of the kernel's types for the protocol description. `rpc.discover` combines them
//! with those of the wire; a test checks every schema against the daemon's real answers.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::kernel::ids::{
    AgentId, AnnounceId, ApprovalId, BootId, CallId, MemoryId, MessageId, NodeId, QuestionId,
    RunId, SessionId, SessionKey, StepId, TokenId,
};
use crate::kernel::run::{CancelRequest, Pins, RunError, Usage};
use crate::kernel::session::message::Block;
use crate::kernel::time::Timestamp;

/// The pattern of an id's text form.
const UUID: &str = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$";

/// Implements [`JsonSchema`] for a type, with this name and schema.
macro_rules! schema_of {
    ($type:ty, $name:literal, $schema:expr) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let make: fn(&mut SchemaGenerator) -> Schema = $schema;
                make(generator)
            }
        }
    };
}

schema_of!(RunId, "RunId", |_| id("A run."));
schema_of!(SessionId, "SessionId", |_| id("A session."));
schema_of!(StepId, "StepId", |_| id("A step of a run."));
schema_of!(MessageId, "MessageId", |_| id("An entry of a transcript."));
schema_of!(QuestionId, "QuestionId", |_| id(
    "A run's question to the user."
));
schema_of!(MemoryId, "MemoryId", |_| id(
    "An entry of the long-term memory."
));
schema_of!(ApprovalId, "ApprovalId", |_| id(
    "A person's approval of a tool call."
));
schema_of!(NodeId, "NodeId", |_| id("A paired node."));
schema_of!(CallId, "CallId", |_| id("A call to a node."));
schema_of!(TokenId, "TokenId", |_| id("An access token."));
schema_of!(BootId, "BootId", |_| id("One boot of the daemon process."));
schema_of!(AnnounceId, "AnnounceId", |_| id(
    "The announce of one run's end."
));

fn id(what: &str) -> Schema {
    let example = "01936f0e-0000-7000-8000-000000000001";
    json_schema!({ "description": what, "type": "string", "pattern": UUID, "examples": [example] })
}

schema_of!(AgentId, "AgentName", |_| json_schema!({
    "description": "The name of an agent.",
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
    "examples": ["build"],
}));

schema_of!(SessionKey, "SessionKey", |_| json_schema!({
    "description": "The address of a session: names separated by colons.",
    "type": "string",
    "maxLength": 256,
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})*$",
    "examples": ["agent:build:main"],
}));

schema_of!(Timestamp, "Timestamp", |_| json_schema!({
    "description": "A point in time, RFC 3339 in UTC with milliseconds.",
    "type": "string",
    "format": "date-time",
    "examples": ["2026-01-02T03:04:05.678Z"],
}));

schema_of!(Usage, "Usage", |_| json_schema!({
    "description": "Model usage.",
    "type": "object",
    "properties": {
        "modelCalls": count("Number of model calls."),
        "inputTokens": count("Tokens sent to the model."),
        "outputTokens": count("Tokens received from the model."),
        "costMicros": count("Cost in millionths of the currency of the prices."),
    },
    "required": ["modelCalls", "inputTokens", "outputTokens"],
}));

fn count(what: &str) -> Schema {
    json_schema!({ "description": what, "type": "integer", "minimum": 0 })
}

schema_of!(RunError, "RunError", |_| json_schema!({
    "description": "Why a run did not end `ok`.",
    "type": "object",
    "properties": {
        "kind": { "description": "A stable error kind for programs.", "type": "string" },
        "message": { "description": "A sentence for people.", "type": "string" },
    },
    "required": ["kind", "message"],
}));

schema_of!(CancelRequest, "CancelRequest", |generator| json_schema!({
    "description": "A requested cancel of a run.",
    "type": "object",
    "properties": {
        "by": { "type": "string" },
        "at": generator.subschema_for::<Timestamp>(),
        "reason": { "description": "Why, for people.", "type": "string" },
        "inherited": {
            "description": "The cancel was requested for an ancestor and cascaded to this run.",
            "type": "boolean",
        },
        "byPerson": {
            "description": "A person or a client requested it, not an agent or the daemon.",
            "type": "boolean",
        },
    },
    "required": ["by", "at", "inherited", "byPerson"],
}));

schema_of!(Pins, "Pins", |_| json_schema!({
    "description": "What is pinned for a run when it is spawned, by content hash.",
    "type": "object",
    "properties": {
        "agent": { "description": "Hash of the agent's definition.", "type": "string" },
        "tools": { "description": "Hash of its tools and their schemas.", "type": "string" },
        "skills": {
            "description": "The skills that it may use; unset if it has none.",
            "type": "object",
            "properties": {
                "version": {
                    "description": "Version of the skill snapshot of its folder.",
                    "type": "integer",
                },
                "hash": { "description": "Hash of the skills that it may use.", "type": "string" },
            },
            "required": ["version", "hash"],
        },
    },
    "required": ["agent", "tools"],
}));

schema_of!(Block, "Block", |_| json_schema!({
    "description": "A content block of a message.",
    "oneOf": [
        {
            "description": "A piece of text.",
            "type": "object",
            "properties": { "type": { "const": "text" }, "text": { "type": "string" } },
            "required": ["type", "text"],
        },
        {
            "description": "A tool call that the model requests.",
            "type": "object",
            "properties": {
                "type": { "const": "tool_call" },
                "id": { "description": "The model's id for this call.", "type": "string" },
                "name": { "description": "Name of the tool.", "type": "string" },
                "arguments": { "description": "Any JSON; null if it did not fit into the page." },
            },
            "required": ["type", "id", "name", "arguments"],
        },
        {
            "description": "The result of a tool call.",
            "type": "object",
            "properties": {
                "type": { "const": "tool_result" },
                "toolCallId": { "description": "Id of the call it answers.", "type": "string" },
                "text": { "type": "string" },
                "isError": { "description": "True if the tool failed.", "type": "boolean" },
            },
            "required": ["type", "toolCallId", "text", "isError"],
        },
    ],
}));
