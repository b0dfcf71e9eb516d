//! Tests of repeated scans: every change at a root is found.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use super::ScanLimits;
use super::library_tests::{PLACE, fixture, library};
use super::scan::{Now, look};
use super::sources::SkillRoot;
use crate::contract::skills::{ListedSkill, SkillCatalog};

/// A change: its description and the action.
type Change<'a> = (&'a str, Box<dyn Fn() + 'a>);

/// A repeated scan finds exactly what a first scan would find.
#[test]
fn whatever_changes_at_a_root_is_found() {
    let fixture = fixture();
    for name in ["one", "two", "three"] {
        fixture.skill(&format!("work/skills/{name}"));
    }
    let path = |inside: &str| fixture.path(&format!("work/skills/{inside}"));
    let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, path(at)).unwrap();
    let changes: Vec<Change<'_>> = vec![
        ("nothing", Box::new(|| {})),
        (
            "a file",
            Box::new(|| fixture.skill("work/skills/two/../one")),
        ),
        (
            "a file of the same length",
            Box::new(|| {
                let (old, new) = (path("one/SKILL.md"), path("one/new"));
                let text = fs::read_to_string(&old).unwrap().replace("Do it", "Be it");
                fs::write(&new, text).unwrap();
                fs::rename(new, old).unwrap();
            }),
        ),
        (
            "a file of the same length in its place",
            Box::new(|| {
                let file = path("two/SKILL.md");
                let text = fs::read_to_string(&file).unwrap().replace("Do it", "Go on");
                fs::write(file, text).unwrap();
            }),
        ),
        ("one more", Box::new(|| fixture.skill("work/skills/four"))),
        (
            "one that is hidden",
            Box::new(|| fixture.skill("work/skills/.five")),
        ),
        (
            "a file beside",
            Box::new(|| fs::write(path("README.md"), "x").unwrap()),
        ),
        (
            "one less",
            Box::new(|| fs::remove_dir_all(path("two")).unwrap()),
        ),
        (
            "another name",
            Box::new(|| fs::rename(path("one"), path("uno")).unwrap()),
        ),
        (
            "two swapped",
            Box::new(|| {
                fs::rename(path("uno"), path("aside")).unwrap();
                fs::rename(path("three"), path("uno")).unwrap();
                fs::rename(path("aside"), path("three")).unwrap();
            }),
        ),
        (
            "an empty folder",
            Box::new(|| fs::create_dir(path("six")).unwrap()),
        ),
        (
            "a variant in it",
            Box::new(|| {
                fs::write(path("six/skill.md"), "---\ndescription: x\n---\n").unwrap();
            }),
        ),
        (
            "the variant's text",
            Box::new(|| {
                fs::write(path("six/skill.md"), "---\ndescription: other\n---\n").unwrap();
            }),
        ),
        (
            "the variant gone",
            Box::new(|| fs::remove_dir_all(path("six")).unwrap()),
        ),
        (
            "the same in another folder",
            Box::new(|| {
                let (old, new) = (fixture.path("work/skills"), fixture.path("work/new"));
                fs::create_dir(&new).unwrap();
                for entry in fs::read_dir(&old).unwrap() {
                    let entry = entry.unwrap();
                    fs::rename(entry.path(), new.join(entry.file_name())).unwrap();
                }
                fs::remove_dir(&old).unwrap();
                fs::rename(&new, &old).unwrap();
            }),
        ),
        (
            "a group",
            Box::new(|| fixture.skill("work/skills/group/seven")),
        ),
        (
            "more in the group",
            Box::new(|| fixture.skill("work/skills/group/eight")),
        ),
        (
            "the group gone",
            Box::new(|| fs::remove_dir_all(path("group")).unwrap()),
        ),
        ("a link", Box::new(|| link("four", "nine"))),
        (
            "the link elsewhere",
            Box::new(|| {
                fs::remove_file(path("nine")).unwrap();
                link("uno", "nine");
            }),
        ),
        (
            "the link gone",
            Box::new(|| fs::remove_file(path("nine")).unwrap()),
        ),
        (
            "a skill of tools' folders",
            Box::new(|| fixture.skill("work/skills/build")),
        ),
        (
            "it is none any more",
            Box::new(|| {
                fs::remove_file(path("build/SKILL.md")).unwrap();
            }),
        ),
        (
            "fewer are read",
            Box::new(|| fixture.set(|settings| settings.limits.skills = 2)),
        ),
        (
            "all are read",
            Box::new(|| fixture.set(|settings| settings.limits.skills = 9)),
        ),
        (
            "shorter ones are read",
            Box::new(|| fixture.set(|settings| settings.limits.bytes = 9)),
        ),
        (
            "all of them",
            Box::new(|| fixture.set(|settings| settings.limits.bytes = 999)),
        ),
        (
            "the root elsewhere",
            Box::new(|| {
                fs::rename(fixture.path("work/skills"), fixture.path("work/real")).unwrap();
                std::os::unix::fs::symlink("real", fixture.path("work/skills")).unwrap();
            }),
        ),
        (
            "the root gone",
            Box::new(|| fs::remove_file(fixture.path("work/skills")).unwrap()),
        ),
    ];
    let root = fixture.path("");
    for (what, change) in changes {
        change();
        let found = fixture.here();
        let first = library(&root, fixture.settings.subscribe(), &fixture.clock);
        assert_eq!(found, first.here(PLACE, true), "{what}");
        assert_eq!(fixture.library.look(), first.look(), "{what}");
    }
}

#[test]
fn a_root_of_skills_alone_is_compared_as_a_whole_whatever_lies_beside_them() {
    let fixture = fixture();
    for name in ["one", "two"] {
        fixture.skill(&format!("work/skills/{name}"));
    }
    let root = SkillRoot::given(&fixture.path("work/skills"));
    let after = |before: &Arc<_>| look(&root, ScanLimits::default(), Some(before), Now::default());
    let first = look(&root, ScanLimits::default(), None, Now::default());
    assert!(Arc::ptr_eq(&first, &after(&first)));
    // It holds no skills.
    fs::create_dir(fixture.path("work/skills/node_modules")).unwrap();
    let second = after(&first);
    assert_eq!(second.signature, first.signature);
    assert!(!Arc::ptr_eq(&second, &first));
    assert!(Arc::ptr_eq(&second, &after(&second)));
    assert!(second.is_unchanged(&root, ScanLimits::default()));
}

/// A valid version stays in use until another valid one has settled; one that is gone may come
/// back.
#[test]
fn what_is_being_saved_does_not_count_before_it_is_whole_and_still() {
    let fixture = fixture();
    let settle = Duration::from_millis(300);
    fixture.set(|settings| settings.settle = settle);
    let file = fixture.path("work/skills/one/SKILL.md");
    fixture.skill("work/skills/one");
    let whole = fs::read_to_string(&file).unwrap();
    // Description and stale reason in a scan after this delay.
    let look = |later: Duration| {
        fixture.clock.advance(later);
        let here = fixture.library.here(PLACE, false);
        let found = here.skills.iter().find(|skill| skill.name == "one");
        let shown = |skill: &ListedSkill| (skill.description.clone(), skill.stale.clone());
        (found.map(shown), here.hash.clone())
    };
    let first = "work/skills/one".to_owned();
    let before = look(settle);
    assert_eq!(before.0, Some((first.clone(), None)));
    let header = whole.split_inclusive("---\n").take(2).collect::<String>();
    for (half, says) in [
        ("", "front matter"),
        ("---\nname: one\n", "front matter"),
        (header.as_str(), "no text after the front matter"),
    ] {
        fs::write(&file, half).unwrap();
        let (found, _) = look(settle);
        assert_eq!(found.unwrap().0, first, "{half:?}");
        let (found, hash) = look(settle);
        let (description, stale) = found.unwrap();
        assert_eq!(
            (description, hash),
            (first.clone(), before.1.clone()),
            "{half:?}"
        );
        let stale = stale.unwrap();
        assert!(stale.contains(says), "{half:?}: {stale}");
    }
    // It grows between scans and is taken over once it stops growing.
    let mut text = whole.replace(&first, "second");
    for _ in 0..3 {
        text.push_str("More.\n");
        fs::write(&file, &text).unwrap();
        let (found, hash) = look(settle);
        assert_eq!((found.unwrap().0, hash), (first.clone(), before.1.clone()));
    }
    assert_eq!(look(settle).0, Some(("second".to_owned(), None)));
    // Removed and restored, then removed.
    fs::remove_file(&file).unwrap();
    assert_eq!(look(settle).0, Some(("second".to_owned(), None)));
    fs::write(&file, &text).unwrap();
    look(settle);
    assert_eq!(look(settle).0, Some(("second".to_owned(), None)));
    fs::remove_file(&file).unwrap();
    look(settle);
    assert_eq!(look(settle).0, None);
}
