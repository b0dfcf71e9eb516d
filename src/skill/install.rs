//! Reads how the programs that a skill needs can be installed, in the metadata format of earlier
//! clients. The hints are checked and shown but never executed. Called by `requires`.

use super::requires::platform;
use super::yaml::YamlNode;
use crate::contract::skills::{InstallHint, InstallKind};

/// The install hints; problems with them are appended to `odd`.
pub(super) fn hints(install: Option<&YamlNode>, odd: &mut Vec<String>) -> Vec<InstallHint> {
    let items = match install {
        // Text of another client's format.
        None | Some(YamlNode::Null | YamlNode::Text(_)) => return Vec::new(),
        Some(YamlNode::List(items)) => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let mut hints = Vec::new();
    for item in items {
        match hint(item) {
            Ok(Some(hint)) => hints.push(hint),
            // An install method of another client.
            Ok(None) => {}
            Err(why) => odd.push(format!("install: {why}; it is ignored")),
        }
    }
    hints
}

fn hint(item: &YamlNode) -> Result<Option<InstallHint>, String> {
    let text = |name: &str| item.get(name).and_then(YamlNode::text);
    let names = |name: &str| -> Vec<String> {
        let names = match item.get(name) {
            Some(YamlNode::List(items)) => items.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        names
            .iter()
            .filter_map(YamlNode::text)
            .map(str::to_owned)
            .collect()
    };
    let kind = text("kind").ok_or("kind is missing")?;
    let Some(kind) = InstallKind::parse(kind) else {
        return Ok(None);
    };
    let field = match kind {
        InstallKind::Brew => "formula",
        InstallKind::Apt | InstallKind::Node | InstallKind::Uv => "package",
        InstallKind::Go => "module",
        InstallKind::Download => "url",
    };
    let what = text(field).ok_or_else(|| format!("{} has no {field}", kind.as_str()))?;
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
    let is_address = what.starts_with("https://") || what.starts_with("http://");
    // Users may type the name into a shell: it must not be an option or contain a second command.
    if what.starts_with('-')
        || !what.chars().all(is_plain)
        || what.contains([';', '&', '|', '`', '$', '<', '>', '\'', '"', '\\'])
            && kind != InstallKind::Download
        || (kind == InstallKind::Download) != is_address
    {
        return Err(format!("{what:?} is not a valid {field}"));
    }
    Ok(Some(InstallHint {
        kind,
        what: what.to_owned(),
        label: text("label").map(str::to_owned),
        bins: names("bins"),
        os: names("os").iter().map(|name| platform(name)).collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skill::Host;
    use crate::skill::corpus_tests::{noted, taken, with};

    #[test]
    fn how_programs_are_installed_is_read_checked_and_never_more_than_words() {
        let header = |install: &str| {
            with(&format!(
                "name: odd\ndescription: C\nmetadata: {{\"openclaw\": {{\"requires\": {{\"bins\": [\"gh\"], \
                 \"anyBins\": [\"rg\", \"ag\"]}}, \"install\": {install}}}}}"
            ))
        };
        let all = r#"[
            {"id": "b", "kind": "brew", "formula": "gh", "bins": ["gh"], "label": "GitHub CLI"},
            {"kind": "node", "package": "@a/gh", "bins": ["gh"], "os": ["win32"]},
            {"kind": "go", "module": "example.org/rg", "bins": ["rg"]},
            {"kind": "uv", "package": "ag", "bins": ["ag"], "os": ["darwin", "linux"]},
            {"kind": "download", "url": "https://example.org/gh.zip?a=b&c", "bins": ["gh"]}
        ]"#;
        let requires = taken(&header(&all.replace('\n', " "))).requires;
        let words: Vec<String> = requires.install.iter().map(InstallHint::words).collect();
        assert_eq!(
            words,
            [
                "brew install gh",
                "npm install -g @a/gh",
                "go install example.org/rg@latest",
                "uv tool install ag",
                "https://example.org/gh.zip?a=b&c",
            ]
        );
        assert_eq!(requires.install[0].label.as_deref(), Some("GitHub CLI"));
        assert_eq!(requires.install[3].os, ["macos", "linux"]);
        let host = Host {
            platform: "linux".to_owned(),
            ..Host::default()
        };
        let missing = requires.missing_programs(&host);
        let shown: Vec<(Vec<&str>, Vec<String>)> = missing
            .into_iter()
            .map(|one| {
                (
                    one.any_of,
                    one.hints.iter().map(|hint| hint.words()).collect(),
                )
            })
            .collect();
        let words = |of: &[usize]| of.iter().map(|at| words[*at].clone()).collect::<Vec<_>>();
        assert_eq!(
            shown,
            [
                (vec!["gh"], words(&[0, 4])),
                (vec!["rg", "ag"], words(&[2, 3])),
            ]
        );
        for (broken, why) in [
            (r#"[{"formula": "gh"}]"#, "kind is missing"),
            (r#"[{"kind": "brew", "package": "gh"}]"#, "has no formula"),
            (
                r#"[{"kind": "brew", "formula": "--HEAD"}]"#,
                "is not a valid formula",
            ),
            (
                r#"[{"kind": "node", "package": "a; rm -r b"}]"#,
                "is not a valid package",
            ),
            (
                r#"[{"kind": "uv", "package": "$(id)"}]"#,
                "is not a valid package",
            ),
            (
                r#"[{"kind": "download", "url": "file:///etc"}]"#,
                "is not a valid url",
            ),
            (
                r#"[{"kind": "go", "module": "https://example.org"}]"#,
                "is not a valid module",
            ),
        ] {
            let skill = noted(&header(broken), 4, why);
            assert_eq!(skill.requires.install, []);
        }
        // Many hints list no programs, and methods of other clients are not an error.
        let bare = r#"[{"kind": "apt", "package": "gh"}, {"kind": "winget", "id": "x"}]"#;
        let skill = taken(&header(bare));
        let about = skill
            .notes
            .iter()
            .filter(|note| note.text.contains("install"));
        assert_eq!(about.count(), 0, "{:?}", skill.notes);
        let missing = skill.requires.missing_programs(&host);
        assert_eq!(missing[0].hints[0].words(), "apt install gh");
        let plain = taken(&with(
            "name: odd\ndescription: C\nmetadata:\n  install: npm i",
        ));
        assert_eq!((plain.requires.install, plain.notes.len()), (vec![], 0));
    }
}
