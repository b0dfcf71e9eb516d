//! A corpus of unusual `SKILL.md` files, each with its expected outcome.

use std::fs;
use std::path::Path;

use super::parse::{Skill, parse};
use super::scan::{ScanLimits, SkillFile, check};
use crate::front_matter::LoadError;

const LIMIT: usize = 1 << 20;

fn read(text: &str) -> Result<Skill, LoadError> {
    parse("odd", text.as_bytes(), LIMIT)
}

pub(super) fn taken(text: &str) -> Skill {
    read(text).unwrap_or_else(|broken| panic!("{text}\nnot taken: {broken}"))
}

/// A file with this front matter and a body.
pub(super) fn with(header: &str) -> String {
    format!("---\n{header}\n---\nDo it.\n")
}

fn notes(skill: &Skill) -> Vec<String> {
    skill.notes.iter().map(ToString::to_string).collect()
}

/// Asserts that the skill is accepted with one note, on this line and with this text; returns it.
pub(super) fn noted(text: &str, line: usize, says: &str) -> Skill {
    let skill = taken(text);
    let found = skill
        .notes
        .iter()
        .any(|note| note.line == Some(line) && note.text.contains(says));
    assert!(found, "{text}\n{:?}", notes(&skill));
    skill
}

fn refused(bytes: &[u8], line: Option<usize>, says: &str) {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let broken = parse("odd", bytes, LIMIT).expect_err(&shown);
    assert!(broken.reason.contains(says), "{shown}\n{broken}");
    assert_eq!(broken.line, line, "{shown}\n{broken}");
}

#[test]
fn what_the_specification_allows_is_taken_without_a_word() {
    let plain = with("name: odd\ndescription: Counts.");
    for (what, text) in [
        ("plain", plain.clone()),
        ("line ends of Windows", plain.replace('\n', "\r\n")),
        ("line ends of an old Mac", plain.replace('\n', "\r")),
        ("spaces behind the marks", plain.replace("---\n", "---  \n")),
        ("no line end at the end", plain.trim_end().to_owned()),
        ("a rule in the body", format!("{plain}\n---\nmore")),
        (
            "a second header in the body",
            format!("{plain}---\nname: b\n---\n"),
        ),
        ("a comment", plain.replace("name", "# about it\nname")),
        ("double quotes", plain.replace("Counts.", "\"Counts.\"")),
        ("single quotes", plain.replace("Counts.", "'Counts.'")),
        ("a folded text", plain.replace("Counts.", ">\n  Counts.")),
        (
            "a folded text, stripped",
            plain.replace("Counts.", ">-\n  Counts."),
        ),
        ("a literal text", plain.replace("Counts.", "|\n  Counts.")),
        ("empty lines in the header", plain.replace("name", "\nname")),
        ("a license", plain.replace("name", "license: MIT\nname")),
        (
            "metadata of texts",
            plain.replace("name", "metadata:\n  a: \"1\"\n  b: two\nname"),
        ),
        (
            "metadata of nothing",
            plain.replace("name", "metadata:\nname"),
        ),
        (
            "metadata of null",
            plain.replace("name", "metadata: null\nname"),
        ),
        (
            "tools with spaces",
            plain.replace("name", "allowed-tools: Bash(git:*) Read\nname"),
        ),
    ] {
        let skill = read(&text).unwrap_or_else(|broken| panic!("{what}: {broken}"));
        assert_eq!(skill.name, "odd", "{what}");
        assert_eq!(skill.description, "Counts.", "{what}");
        assert!(
            skill.body.body.starts_with("Do it."),
            "{what}: {:?}",
            skill.body
        );
        assert!(!skill.body.body.contains('\r'), "{what}");
        assert_eq!(notes(&skill), [""; 0], "{what}");
    }
}

#[test]
fn values_are_texts_as_they_are_written() {
    for (written, read) in [
        ("1.10", "1.10"),
        ("010", "010"),
        ("2025-10-20", "2025-10-20"),
        ("yes", "yes"),
        ("true", "true"),
        ("0x1f", "0x1f"),
        ("\"a\\tb\"", "a\tb"),
        ("'it''s'", "it's"),
        ("\"\\u00e4\"", "ä"),
        ("!!str 5", "5"),
        ("!custom word", "word"),
        ("&anchor word", "word"),
    ] {
        let skill = taken(&with(&format!("name: odd\ndescription: {written}")));
        assert_eq!(skill.description, read, "{written}");
    }
    let inner = taken(&with("name: odd\ndescription: |\n  one\n  two\n"));
    assert_eq!(inner.description, "one\ntwo");
    let folded = taken(&with("name: odd\ndescription: >\n  one\n  two\n"));
    assert_eq!(folded.description, "one two");
    let chinese = taken(&with("name: odd\ndescription: 数える。使うとき"));
    assert_eq!(chinese.description, "数える。使うとき");
}

#[test]
fn g6_8_what_is_put_right_is_said_with_its_line() {
    let colon = "name: odd\ndescription: Use it when: code is odd, and: always";
    let skill = noted(&with(colon), 3, "put it in quotes");
    assert_eq!(skill.description, "Use it when: code is odd, and: always");
    // Nothing of it can be read as YAML.
    let broken = "name: odd\ndescription: \"Counts: all\nmetadata: {a: [b}\n\tc: d";
    let skill = taken(&with(broken));
    assert_eq!(skill.description, "\"Counts: all");
    assert!(notes(&skill)[0].contains("line by line"), "{skill:?}");
    for (line, says, header) in [
        (2, "name is missing", "name:\ndescription: Counts."),
        (
            2,
            "differs from the folder's name",
            "name: even\ndescription: Counts.",
        ),
        (
            2,
            "lower-case letters",
            "name: Odd Skill\ndescription: Counts.",
        ),
        (
            2,
            "lower-case letters",
            "name: odd_skill\ndescription: Counts.",
        ),
        (
            2,
            "lower-case letters",
            "name: odd--skill\ndescription: Counts.",
        ),
        (2, "lower-case letters", "name: -odd\ndescription: Counts."),
        (2, "lower-case letters", "name: a.b/c\ndescription: Counts."),
        (
            4,
            "occurs twice",
            "name: odd\ndescription: Counts.\nname: even",
        ),
        (
            2,
            "not a field of the specification",
            "version: 1\nname: odd\ndescription: Counts.",
        ),
        (
            2,
            "not a field of the specification",
            "hooks: {a: b}\nname: odd\ndescription: Counts.",
        ),
        (
            3,
            "not a field of the specification",
            "description: Counts.\nName: odd",
        ),
        (
            2,
            "its values must be text",
            "metadata: {a: {b: c}}\nname: odd\ndescription: Counts.",
        ),
        (
            2,
            "a map is expected",
            "metadata: [a, b]\nname: odd\ndescription: Counts.",
        ),
        (
            2,
            "read as JSON",
            "metadata: '{\"a\": 1}'\nname: odd\ndescription: Counts.",
        ),
        (
            2,
            "not a list",
            "allowed-tools: [Read, Write]\nname: odd\ndescription: Counts.",
        ),
        (
            2,
            "spaces are expected",
            "allowed-tools: Read, Write\nname: odd\ndescription: Counts.",
        ),
    ] {
        let skill = noted(&with(header), line, says);
        assert_eq!(skill.description, "Counts.", "{header}");
    }
    let mark = noted(
        &format!("\u{feff}{}", with("name: odd\ndescription: C")),
        1,
        "byte order",
    );
    assert_eq!(mark.name, "odd");
    noted(
        &format!("\n\n{}", with("name: odd\ndescription: C")),
        1,
        "2 empty lines",
    );
    let missing = taken(&with("description: Counts."));
    assert_eq!(missing.name, "odd");
    assert!(notes(&missing)[0].contains("the folder's name \"odd\" is used"));
    let long = "x".repeat(65);
    noted(
        &with(&format!("name: {long}\ndescription: C")),
        2,
        "65 characters",
    );
    let long = "ä".repeat(1025);
    noted(
        &with(&format!("name: odd\ndescription: {long}")),
        3,
        "1025 characters",
    );
    let long = "x".repeat(501);
    noted(
        &with(&format!("compatibility: {long}\nname: odd\ndescription: C")),
        2,
        "501",
    );
    // The limits count characters and are inclusive.
    let most = taken(&with(&format!(
        "name: odd\ndescription: {}",
        "ä".repeat(1024)
    )));
    assert_eq!(notes(&most), [""; 0]);
}

#[test]
fn what_cannot_be_taken_names_its_line_and_the_reason() {
    for (line, says, text) in [
        (Some(1), "no front matter", "# A readme\n".to_owned()),
        (Some(1), "no front matter", String::new()),
        (
            Some(1),
            "no front matter",
            "```\n---\nname: a\n---\n```\n".to_owned(),
        ),
        (
            Some(1),
            "no front matter",
            "# comment\n---\nname: a\n---\n".to_owned(),
        ),
        (
            Some(1),
            "no closing line",
            "---\nname: odd\ndescription: x\n".to_owned(),
        ),
        (
            Some(1),
            "no closing line",
            "---\ndescription: a --- b\n----\n".to_owned(),
        ),
        (None, "description is missing", with("name: odd")),
        (
            Some(3),
            "description is missing",
            with("name: odd\ndescription:"),
        ),
        (
            Some(3),
            "description is missing",
            with("name: odd\ndescription: '  '"),
        ),
        (None, "description is missing", "---\n---\nbody".to_owned()),
        (
            Some(3),
            "text is expected",
            with("name: odd\ndescription: [a, b]"),
        ),
        (
            Some(2),
            "text is expected",
            with("name: {a: b}\ndescription: x"),
        ),
        (
            Some(2),
            "control character",
            with("name: \"a\\nb\"\ndescription: x"),
        ),
        (
            Some(3),
            "merge conflict",
            "---\nname: odd\n<<<<<<< HEAD\ndescription: x\n---\n".into(),
        ),
        (Some(2), "not YAML", with("- a\n- b")),
        (Some(2), "not YAML", with("just words")),
        (Some(3), "not YAML", with("name: odd\nx: [a\n\ty: b}")),
    ] {
        refused(text.as_bytes(), line, says);
    }
    refused(b"\xff\xfe-\0-\0-\0", None, "UTF-16");
    refused(
        b"---\nname: odd\ndescription: a\xffb\n---\n",
        Some(3),
        "not UTF-8 at byte 28",
    );
    refused(b"---\nname: odd\ndescription: a\0b\n---\n", Some(3), "NUL");
    let large = format!("{}{}", with("name: odd\ndescription: x"), "x".repeat(LIMIT));
    refused(large.as_bytes(), None, "is 1048576");
    let large = format!(
        "{}{}",
        with("name: odd\ndescription: x"),
        "x".repeat(LIMIT / 2)
    );
    assert!(taken(&large).body.body.len() > LIMIT / 2);
}

#[test]
fn headers_that_would_grow_without_end_are_refused_at_once() {
    let mut bomb = String::from("name: odd\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let below = format!("*a{}", level - 1);
        let ten = [below.as_str(); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{ten}]\n"));
    }
    refused(with(&bomb).as_bytes(), Some(6), "more than 5000 values");
    let deep = format!("name: odd\nx: {}{}", "[".repeat(100), "]".repeat(100));
    refused(with(&deep).as_bytes(), Some(3), "nested more than 32 deep");
    let wide = format!("name: odd\nx: [{}]", "a, ".repeat(6000));
    refused(with(&wide).as_bytes(), Some(3), "more than 5000 values");
    refused(with("name: odd\nx: &a [*a]").as_bytes(), Some(3), "");
    refused(
        with("name: odd\nx: *unknown").as_bytes(),
        Some(3),
        "not YAML",
    );
    // A few aliases are allowed.
    let alias = taken(&with("name: &n odd\ndescription: *n"));
    assert_eq!(alias.description, "odd");
}

#[test]
fn what_other_clients_write_is_understood() {
    let openclaw = "name: odd\ndescription: C\nmetadata: {\"openclaw\": {\"emoji\": \"x\", \
         \"requires\": {\"bins\": [\"git\"], \"env\": [\"A_KEY\"],}, \"primaryEnv\": \"A_KEY\", \
         \"os\": [\"darwin\"]}}";
    let lines = "name: odd\ndescription: C\nmetadata:\n  {\n    \"clawdbot\":\n      {\n        \
         \"requires\": { \"anyBins\": [\"rg\", \"grep\"] },\n        \"always\": true,\n      },\n  }";
    let nested = "name: odd\ndescription: C\nmetadata:\n  moltbot:\n    skillKey: key\n    \
         requires:\n      config:\n        - skills.bundled";
    let text = "name: odd\ndescription: C\nmetadata: '{\"clawdis\": {\"os\": \"linux\"}}'";
    let plain =
        "name: odd\ndescription: C\nmetadata:\n  requires:\n    bins: [git]\n  primaryEnv: K";
    let needs = |header: &str| taken(&with(header)).requires;
    let found = needs(openclaw);
    assert_eq!(
        (found.bins, found.os),
        (vec!["git".into()], vec!["macos".into()])
    );
    assert_eq!(found.env, ["A_KEY"]);
    assert_eq!(found.primary_env.as_deref(), Some("A_KEY"));
    let found = needs(lines);
    assert_eq!(found.any_bins, ["rg", "grep"]);
    assert!(found.always);
    let found = needs(nested);
    assert_eq!(found.key.as_deref(), Some("key"));
    assert_eq!(found.config, ["skills.bundled"]);
    assert_eq!(needs(text).os, ["linux"]);
    let found = needs(plain);
    assert_eq!(
        (found.bins, found.primary_env),
        (vec!["git".into()], Some("K".into()))
    );
    let odd = noted(
        &with("name: odd\ndescription: C\nmetadata: {abide: {requires: {bins: {a: b}}}}"),
        4,
        "bins: a list of names is expected",
    );
    assert!(odd.requires.bins.is_empty());
    let hidden = taken(&with(
        "name: odd\ndescription: C\ndisable-model-invocation: true",
    ));
    assert!(hidden.hidden);
    let tools = "name: odd\ndescription: C\nallowed-tools: Bash(git add, git commit:*), Read";
    assert_eq!(
        taken(&with(tools)).allowed_tools,
        ["Bash(git add, git commit:*)", "Read"]
    );
}

fn put(folder: &Path, inside: &str, text: &str) {
    let file = folder.join(inside);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn skill(name: &str) -> String {
    with(&format!("name: {name}\ndescription: Does {name}."))
}

fn names(found: &[SkillFile]) -> Vec<String> {
    let name = |found: &SkillFile| match &found.outcome {
        Ok(skill) => skill.name.clone(),
        Err(broken) => format!("{}: {}", found.file.display(), broken.reason),
    };
    found.iter().map(name).collect()
}

#[test]
fn g6_10_groups_are_looked_through_and_what_lies_too_deep_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "one/SKILL.md", &skill("one"));
    put(dir.path(), "group/two/SKILL.md", &skill("two"));
    put(dir.path(), "a/b/c/d/e/six/SKILL.md", &skill("six"));
    put(dir.path(), "a/b/c/d/e/f/seven/SKILL.md", &skill("seven"));
    put(dir.path(), "lower/skill.md", &skill("lower"));
    // No skills inside a skill, in folders that tools create, or in hidden folders.
    put(dir.path(), "one/references/SKILL.md", &skill("inner"));
    put(dir.path(), "node_modules/x/SKILL.md", &skill("x"));
    put(dir.path(), ".git/y/SKILL.md", &skill("y"));
    put(dir.path(), "build/SKILL.md", &skill("build"));
    put(dir.path(), "notes.md", "no skill");
    let found = check(dir.path(), ScanLimits::default());
    let names = names(&found);
    let deep = names.iter().find(|name| name.contains("seven")).unwrap();
    assert!(
        deep.contains("7 levels below") && deep.contains("6"),
        "{deep}"
    );
    let good: Vec<&str> = names
        .iter()
        .map(String::as_str)
        .filter(|name| !name.contains("seven"))
        .collect();
    assert_eq!(good, ["six", "build", "two", "lower", "one"]);
    let lower = found.iter().find(|found| found.file.ends_with("skill.md"));
    let lower = lower.unwrap().outcome.as_ref().unwrap();
    assert!(notes(lower).iter().any(|note| note.contains("in capitals")));
}

#[test]
fn links_in_circles_end_and_pipes_are_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "one/SKILL.md", &skill("one"));
    std::os::unix::fs::symlink(dir.path(), dir.path().join("again")).unwrap();
    fs::create_dir(dir.path().join("pipe")).unwrap();
    let pipe = dir.path().join("pipe/SKILL.md");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    fs::create_dir(dir.path().join("gone")).unwrap();
    std::os::unix::fs::symlink("/nowhere", dir.path().join("gone/SKILL.md")).unwrap();
    let found = names(&check(dir.path(), ScanLimits::default()));
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found[0].contains("the link is broken"), "{found:?}");
    assert_eq!(found[1], "one");
    assert!(found[2].contains("not a regular file"), "{found:?}");
}

#[test]
fn files_and_folders_beyond_the_limits_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", "d"] {
        put(dir.path(), &format!("{name}/SKILL.md"), &skill(name));
    }
    put(
        dir.path(),
        "a/SKILL.md",
        &format!("{}{}", skill("a"), "x".repeat(500)),
    );
    let limits = ScanLimits {
        skills: 3,
        bytes: 400,
    };
    let found = names(&check(dir.path(), limits));
    assert!(
        found[0].contains("400 bytes (setting skills.max_file_bytes)"),
        "{found:?}"
    );
    assert_eq!(found[1..3], ["b", "c"]);
    assert!(
        found[3].contains("1 skills over the limit of 3"),
        "{found:?}"
    );
}

#[test]
fn the_programs_own_skills_keep_to_the_specification() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("skills");
    let found = check(&folder, ScanLimits::default());
    assert_eq!(
        names(&found),
        ["delegate", "review-uncertain", "watch-runs", "write-skill"]
    );
    for found in &found {
        assert_eq!(notes(found.outcome.as_ref().unwrap()), [""; 0]);
    }
    let bundled: Vec<SkillFile> = super::bundled::bundled()
        .iter()
        .map(|found| (**found).clone())
        .collect();
    assert_eq!(names(&bundled), names(&found));
}

#[test]
fn skills_in_the_shape_of_real_ones_are_taken() {
    for (header, name, part) in [
        (
            "name: odd\ndescription: Use it when a table: is wide",
            "odd",
            "is wide",
        ),
        (
            "name: Odd Skill\ndescription: Counts.",
            "Odd Skill",
            "Counts.",
        ),
        (
            "name: odd\ndescription: >-\n  Use when: x.\n  <example>y: z</example>",
            "odd",
            "y: z",
        ),
        (
            "name: odd\ndescription: Use when: x.\n<example>\nuser: \"Count: it\"\n\tassistant: I count\n</example>\nlicense: MIT",
            "odd",
            "assistant: I count",
        ),
        (
            "name: odd\ndescription: C\nallowed-tools: Read, Bash(git log:*)\nversion: 1.0.0",
            "odd",
            "C",
        ),
        (
            "name: odd\ndescription: C\nmodel: sonnet\nuser-invocable: true\ncontext: fork",
            "odd",
            "C",
        ),
        ("description: Has no name.", "odd", "no name"),
        (
            "name: odd\ndescription: 'C: it''s'\nmetadata:\n  version: 1.2",
            "odd",
            "C: it's",
        ),
    ] {
        let skill = taken(&with(header));
        assert_eq!(skill.name, name, "{header}");
        assert!(
            skill.description.contains(part),
            "{header}: {}",
            skill.description
        );
        assert!(
            !skill.description.contains("license"),
            "{header}: {}",
            skill.description
        );
    }
}
