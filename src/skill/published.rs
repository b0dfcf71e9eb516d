//! The skills that nodes publish of their own folders. They are usable only on their node, and a
//! name that the gateway has already stays with the gateway's skill. Used by `library`.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use super::file::FILE;
use super::parse::parse;
use super::scan::{ScanLimits, SkillFile};
use crate::front_matter::LoadError;
use crate::kernel::node::NodeSkill;

/// The skills of these nodes. A skill whose name is in `taken`, or is another node's, gets the name
/// of its node in front.
pub(super) fn published(
    nodes: &[(String, Vec<NodeSkill>)],
    mut taken: BTreeSet<String>,
    limits: ScanLimits,
) -> Vec<Arc<SkillFile>> {
    let mut files = Vec::new();
    for (node, skills) in nodes {
        for skill in skills.iter().take(limits.skills) {
            let file = PathBuf::from(format!("node://{node}/{}/{FILE}", skill.folder));
            let mut outcome = parse(&skill.folder, skill.text.as_bytes(), limits.bytes);
            if let Ok(skill) = &mut outcome {
                skill.requires.on_node = Some(node.clone());
                if taken.contains(&skill.name) {
                    skill.name = format!("{node}-{}", skill.name);
                }
                if !taken.insert(skill.name.clone()) {
                    let reason = format!("there is another skill {}", skill.name);
                    outcome = Err(LoadError::whole(reason));
                }
            }
            files.push(Arc::new(SkillFile { file, outcome }));
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skill(folder: &str, text: &str) -> NodeSkill {
        NodeSkill {
            folder: folder.to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_the_name_of_its_node_in_front() {
        let text = |name: &str| format!("---\nname: {name}\ndescription: D.\n---\nDo it.\n");
        let nodes = [
            (
                "mac".to_owned(),
                vec![
                    skill("a", &text("a")),
                    skill("b", &text("b")),
                    skill("x", "no header"),
                ],
            ),
            ("pi".to_owned(), vec![skill("b", &text("b"))]),
        ];
        let taken = BTreeSet::from(["a".to_owned()]);
        let limits = ScanLimits {
            skills: 10,
            bytes: 1000,
        };
        let files = published(&nodes, taken, limits);
        let names: Vec<Option<&str>> = files
            .iter()
            .map(|file| file.outcome.as_ref().ok().map(|skill| skill.name.as_str()))
            .collect();
        assert_eq!(names, [Some("mac-a"), Some("b"), None, Some("pi-b")]);
        let places: Vec<&str> = files.iter().filter_map(|file| file.file.to_str()).collect();
        assert_eq!(places[0], "node://mac/a/SKILL.md");
        let on = files[3].outcome.as_ref().unwrap().requires.on_node.clone();
        assert_eq!(on.as_deref(), Some("pi"));
    }
}
