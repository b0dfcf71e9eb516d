//! JSON Schemas of the kernel's types for the protocol description. `rpc.discover` combines them
//! with those of the wire; a test checks every schema against the daemon's real answers.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::kernel::ids::{
    AgentId, AnnounceId, ApprovalId, BootId, MemoryId, MessageId, QuestionId, RunId, SessionId,
    SessionKey, StepId,
};
use crate::kernel::message::Block;
use crate::kernel::run::{CancelRequest, Pins, RunError, Usage};
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
schema_of!(QuestionId, "QuestionId", |_| id("What a run asks people."));
schema_of!(MemoryId, "MemoryId", |_| id("The id of a memory."));
schema_of!(ApprovalId, "ApprovalId", |_| id(
    "A call of a tool that waits for a person's leave."
));
schema_of!(BootId, "BootId", |_| id("One life of the daemon."));
schema_of!(AnnounceId, "AnnounceId", |_| id(
    "The telling of one run's end."
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
    "description": "The address of a session: names parted by colons.",
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
    "description": "Model use.",
    "type": "object",
    "properties": {
        "modelCalls": count("Calls of a model."),
        "inputTokens": count("Tokens that it read."),
        "outputTokens": count("Tokens that it wrote."),
        "costMicros": count("What that cost, in millionths of the currency of the prices."),
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
        "kind": { "description": "A stable word for programs.", "type": "string" },
        "message": { "description": "A sentence for people.", "type": "string" },
    },
    "required": ["kind", "message"],
}));

schema_of!(CancelRequest, "CancelRequest", |generator| json_schema!({
    "description": "Who asked for a run to end, and when.",
    "type": "object",
    "properties": {
        "by": { "type": "string" },
        "at": generator.subschema_for::<Timestamp>(),
        "reason": { "description": "Why, for people.", "type": "string" },
        "inherited": {
            "description": "It was asked for something above this run, which falls with it.",
            "type": "boolean",
        },
        "byPerson": {
            "description": "A person or a client asked, not an agent or the daemon.",
            "type": "boolean",
        },
    },
    "required": ["by", "at", "inherited", "byPerson"],
}));

schema_of!(Pins, "Pins", |_| json_schema!({
    "description": "What a run keeps from the moment of its spawn, by content hash.",
    "type": "object",
    "properties": {
        "agent": { "description": "The agent's definition.", "type": "string" },
        "tools": { "description": "Its tools and their schemas.", "type": "string" },
        "skills": {
            "description": "The skills that it may use; it has none if unset.",
            "type": "object",
            "properties": {
                "version": {
                    "description": "The version that the skills of its folder had.",
                    "type": "integer",
                },
                "hash": { "description": "The skills that it may use.", "type": "string" },
            },
            "required": ["version", "hash"],
        },
    },
    "required": ["agent", "tools"],
}));

schema_of!(Block, "Block", |_| json_schema!({
    "description": "A part of what a message says.",
    "oneOf": [
        {
            "description": "Text.",
            "type": "object",
            "properties": { "type": { "const": "text" }, "text": { "type": "string" } },
            "required": ["type", "text"],
        },
        {
            "description": "A model asks for a tool.",
            "type": "object",
            "properties": {
                "type": { "const": "tool_call" },
                "id": { "description": "The model's name for this call.", "type": "string" },
                "name": { "description": "The tool.", "type": "string" },
                "arguments": { "description": "Any JSON; null where it did not fit the page." },
            },
            "required": ["type", "id", "name", "arguments"],
        },
        {
            "description": "What a tool answered.",
            "type": "object",
            "properties": {
                "type": { "const": "tool_result" },
                "toolCallId": { "description": "The call that it answers.", "type": "string" },
                "text": { "type": "string" },
                "isError": { "description": "It says that it failed.", "type": "boolean" },
            },
            "required": ["type", "toolCallId", "text", "isError"],
        },
    ],
}));
