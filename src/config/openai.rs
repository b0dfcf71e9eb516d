//! Settings of the OpenAI-compatible API.

use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// Whether clients see what an agent does besides its text.
    ShownToolCalls {
        /// Its tool calls and its thinking are shown as reasoning.
        Reasoning = "reasoning",
        /// They are not shown.
        Hidden = "hidden",
    }
}

text_enum! {
    /// What happens to a run whose client disconnects before the answer.
    OnDisconnect {
        /// The run goes on.
        Continue = "continue",
        /// The run is cancelled.
        Cancel = "cancel",
    }
}

/// The settings in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenAiOptions {
    /// Whether clients see what an agent does besides its text.
    pub tool_calls: ShownToolCalls,
    /// What happens to a run whose client disconnects before the answer.
    pub on_disconnect: OnDisconnect,
}
