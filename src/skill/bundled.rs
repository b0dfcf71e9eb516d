//! The skills built into the program: those of the folder `skills` at the top of its source. They
//! are few, so `include_str!` is enough. Used by `library`.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use super::file::FILE;
use super::parse::parse;
use super::scan::SkillFile;

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

/// The built-in skills, parsed once.
pub(super) fn bundled() -> &'static [Arc<SkillFile>] {
    static READ: LazyLock<Vec<Arc<SkillFile>>> = LazyLock::new(|| {
        let read = |(name, text): &(&str, &str)| {
            Arc::new(SkillFile {
                file: PathBuf::from(format!("bundled/{name}/{FILE}")),
                outcome: parse(name, text.as_bytes(), text.len()),
            })
        };
        SKILLS.iter().map(read).collect()
    });
    &READ
}
