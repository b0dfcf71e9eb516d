//! The thinking level of a model.

use crate::kernel::text::text_enum::text_enum;

text_enum! {
    /// How much a model may think before it answers; models without such levels ignore it.
    Thinking {
        /// No thinking.
        Off = "off",
        /// The lowest level of the model.
        Minimal = "minimal",
        /// A little thinking.
        Low = "low",
        /// A medium amount of thinking.
        Medium = "medium",
        /// A lot of thinking.
        High = "high",
        /// More than `high`.
        XHigh = "xhigh",
        /// The highest level of the model.
        Max = "max",
    }
}
