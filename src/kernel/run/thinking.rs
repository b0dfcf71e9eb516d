//! The thinking level of a model.

use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// How much a model thinks before it answers.
    #[schemars(rename = "ThinkingLevel")]
    Thinking {
        /// No thinking.
        Off = "off",
        /// The least the model supports.
        Minimal = "minimal",
        /// Below medium.
        Low = "low",
        /// Medium.
        Medium = "medium",
        /// Above medium.
        High = "high",
        /// Above high.
        XHigh = "xhigh",
        /// The most the model supports.
        Max = "max",
    }
}
