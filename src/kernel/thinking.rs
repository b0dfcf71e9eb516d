//! How much a model may think before it answers.

use super::text_enum::text_enum;

text_enum! {
    /// How much a model may think before it answers; a model without such levels ignores it.
    Thinking {
        /// Not at all.
        Off = "off",
        /// As little as the model can.
        Minimal = "minimal",
        /// A little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// A lot.
        High = "high",
        /// More than a lot.
        XHigh = "xhigh",
        /// As much as the model can.
        Max = "max",
    }
}
