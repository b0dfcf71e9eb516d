//! The skills that are part of this program: those of the folder `skills` at the top of its
//! source. A handful of texts, so the compiler's own way to take them in is enough.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use super::file::FILE;
use super::parse::parse;
use super::scan::Found;

const SKILLS: &[(&str, &str)] = &[
    ("delegate", include_str!("../../skills/delegate/SKILL.md")),
    (
        "review-uncertain",
        include_str!("../../skills/review-uncertain/SKILL.md"),
    ),
    (
        "watch-runs",
        include_str!("../../skills/watch-runs/SKILL.md"),
    ),
    (
        "write-skill",
        include_str!("../../skills/write-skill/SKILL.md"),
    ),
];

/// Each of them, read once.
pub(super) fn bundled() -> &'static [Arc<Found>] {
    static READ: LazyLock<Vec<Arc<Found>>> = LazyLock::new(|| {
        let read = |(name, text): &(&str, &str)| {
            Arc::new(Found {
                file: PathBuf::from(format!("bundled/{name}/{FILE}")),
                outcome: parse(name, text.as_bytes(), text.len()),
            })
        };
        SKILLS.iter().map(read).collect()
    });
    &READ
}
