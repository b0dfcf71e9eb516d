//! What the protocol states about a method: its types, and its row of the table in `methods`. The
//! gateway derives rights, phases, the audit and `rpc.discover` from the rows, the client the name
//! of a method, the command line the command for it.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::kernel::scope::Scope;

/// A method, implemented by the type of its parameters.
pub trait Method: Serialize + DeserializeOwned + JsonSchema + Send + Sync {
    /// Result of a call.
    type Answer: DeserializeOwned + JsonSchema;

    /// Everything else about the method.
    const ROW: &'static MethodRow;
}

/// A method without its types.
#[derive(Debug)]
pub struct MethodRow {
    /// Name on the wire, `namespace.verb`.
    pub name: &'static str,
    /// One-sentence summary.
    pub summary: &'static str,
    /// Whether calls change anything. Calls that do are audited.
    pub effect: Effect,
    /// Who may call it.
    pub access: Access,
    /// The scope that a caller needs, by default `approve` for what decides for a user, otherwise
    /// `read` or `run` by the effect; `None`: any caller may make the call.
    pub scope: Option<Scope>,
    /// Whose objects it concerns.
    pub concerns: Concerns,
    /// When it is answered.
    pub requires: Requires,
    /// How its calls are dispatched.
    pub dispatch: Dispatch,
    /// Parameters that name the objects of a call by id or key. The audit records the first that is
    /// set. If the caller is a program of a run, all of them must belong to that run.
    pub object: &'static [&'static str],
    /// Example parameters, a JSON object. The examples of all methods belong together: the session
    /// and run that some name are created by others.
    pub example: &'static str,
    /// CLI command that does the same; `None` if there is none.
    pub command: Option<&'static str>,
    /// Parameters that the protocol defines and this version does not support.
    pub unsupported: &'static [&'static str],
    /// The one parameter that may also be given by position: subscription clients unsubscribe that
    /// way.
    pub positional: Option<&'static str>,
    /// Schema of the parameters.
    pub params: fn(&mut SchemaGenerator) -> Schema,
    /// Schema of the result.
    pub answer: fn(&mut SchemaGenerator) -> Schema,
}

/// Whether a method changes state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// It only reads.
    Reads,
    /// It creates, changes or removes something.
    Changes,
}

/// Who may call a method. Each variant includes those above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Access {
    /// A caller with the token: the method makes a decision for a user.
    Token,
    /// A process of the owner on the Unix socket, without the token. A drain and a reload do what a
    /// signal of the same user can do, too.
    Socket,
    /// A program that a run has started, for objects of that run.
    Program,
}

/// Whose objects the calls of a method concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Concerns {
    /// Those of the caller's org alone.
    Org,
    /// The whole daemon; only callers of the daemon owner's org may make the call.
    Daemon,
}

/// What a method needs to be answered. Each variant includes those above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Requires {
    /// Nothing: it is answered while the daemon starts.
    Nothing,
    /// A completed start; the default of methods that read.
    Start,
    /// Room on the disk for a write to the store; the default of methods that change something.
    Room,
    /// A daemon that takes new work, that is, does not drain.
    Intake,
}

/// How the calls of a method are dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// As all others.
    Ordinary,
    /// It waits: it has a limit of its own and is not allowed in a batch.
    Waits,
    /// It concerns the calling connection; not allowed in a batch.
    Connection,
}

impl MethodRow {
    /// The row of `M` with the default of each column that the table may leave out.
    pub(super) const fn of<M: Method>(
        name: &'static str,
        summary: &'static str,
        effect: Effect,
        access: Access,
        example: &'static str,
    ) -> Self {
        MethodRow {
            name,
            summary,
            effect,
            access,
            scope: match (access, effect) {
                (Access::Token, _) => Some(Scope::Approve),
                (_, Effect::Reads) => Some(Scope::Read),
                (_, Effect::Changes) => Some(Scope::Run),
            },
            concerns: Concerns::Org,
            requires: match effect {
                Effect::Reads => Requires::Start,
                Effect::Changes => Requires::Room,
            },
            dispatch: Dispatch::Ordinary,
            object: &[],
            example,
            command: None,
            unsupported: &[],
            positional: None,
            params: M::json_schema,
            answer: SchemaGenerator::subschema_for::<M::Answer>,
        }
    }
}

/// Declares the table of methods: implements [`Method`] for the type of each one's parameters, and
/// lists all rows as `METHODS`.
macro_rules! methods {
    ($($name:literal: $params:ty => $answer:ty {
        $summary:literal,
        $effect:ident by $access:ident, example $example:tt,
        $($column:ident: $value:expr,)*
    })+) => {
        $(impl Method for $params {
            type Answer = $answer;

            const ROW: &'static MethodRow = &MethodRow {
                $($column: $value,)*
                ..MethodRow::of::<$params>(
                    $name,
                    $summary,
                    Effect::$effect,
                    Access::$access,
                    stringify!($example),
                )
            };
        })+

        /// All methods.
        pub const METHODS: &[&MethodRow] = &[$(<$params as Method>::ROW),+];
    };
}
pub(super) use methods;

/// Declares the parameters of methods that take none.
macro_rules! no_params {
    ($($(#[$doc:meta])* $name:ident)+) => {
        $($(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq,
            serde::Serialize, serde::Deserialize, schemars::JsonSchema,
        )]
        #[serde(deny_unknown_fields)]
        pub struct $name {})+
    };
}
pub(super) use no_params;
