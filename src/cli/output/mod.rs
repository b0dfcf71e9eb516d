//! What a terminal is shown: text, Markdown, lines that are redrawn.

pub(crate) mod markdown;
pub(crate) mod print;
pub(crate) mod screen;
pub(crate) mod text;
