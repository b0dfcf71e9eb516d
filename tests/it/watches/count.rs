//! The number of watches: one folder per skill, whatever it contains and however many workspaces
//! share it.

use std::fs;
use std::path::Path;

use super::{replace, until_bumped, version, watched};
use crate::harness::{Place, Script, run};
use crate::skills::put;

/// Number of skills in the folder.
const SKILLS: usize = 40;
/// Maximum number of other watches: the skills' root, ancestors of roots that do not exist yet, the
/// root in the state folder, and the folders of agents.
const OTHERS: usize = 16;
/// Maximum number of watches that a workspace with its own skills adds: that folder, its root, and
/// the skill in it.
const A_PLACE: usize = 4;

/// Adds subfolders and files to a skill.
fn fill(skill: &Path, name: &str) {
    for folder in [
        "references/deep/deeper",
        "scripts/lib",
        "assets/pictures",
        "node_modules/left/lib",
        ".git/objects",
        "vendor",
    ] {
        let folder = skill.join(name).join(folder);
        fs::create_dir_all(&folder).unwrap();
        for number in 0..5 {
            fs::write(folder.join(format!("{number}.md")), "x").unwrap();
        }
    }
}

/// Creates skills with these numbers in `root`, each with subfolders.
fn put_many(root: &Path, skills: std::ops::Range<usize>) {
    for number in skills {
        let name = format!("s{number}");
        // The contents first: a scan in between finds no skill yet.
        fill(&root.join(&name), ".");
        put(root, &name, "Does it.", "Do it.");
    }
}

#[test]
fn g6_3_g6_4_as_many_folders_are_watched_as_there_are_skills_whatever_lies_in_them() {
    let place = Place::new(Script::new()).with("skills.bundled", "false");
    let (work, root) = (place.work(), place.work().join("skills"));
    put_many(&root, 0..1);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let first = version(&client, &work).await;
        replace(&root.join("s0"), "It is watched.");
        let told = until_bumped(&place, &work, first, 1).await;
        let with_one = watched(&daemon);
        assert!(with_one <= 1 + OTHERS, "{with_one}");

        put_many(&root, 1..SKILLS);
        let told = until_bumped(&place, &work, told.version, SKILLS as u64).await;
        // Once a change of the last skill is noticed, all watches exist.
        replace(&root.join(format!("s{}", SKILLS - 1)), "It is watched.");
        let told = until_bumped(&place, &work, told.version, SKILLS as u64).await;
        let with_many = watched(&daemon);
        assert_eq!(with_many, with_one + SKILLS - 1);

        for number in 0..SKILLS {
            for more in 0..3 {
                fill(&root.join(format!("s{number}")), &format!("more-{more}"));
            }
        }
        replace(&root.join("s0"), "It is still watched.");
        until_bumped(&place, &work, told.version, SKILLS as u64).await;
        assert_eq!(watched(&daemon), with_many);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn what_two_places_share_is_watched_once() {
    let place = Place::new(Script::new()).with("skills.bundled", "false");
    let work = place.work();
    put_many(&place.path().join(".agents/skills"), 0..SKILLS);
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        let mut told = version(&client, &work).await;
        put(&work, "skills/own", "Does it.", "Do it.");
        told = until_bumped(&place, &work, told, SKILLS as u64 + 1)
            .await
            .version;
        replace(&work.join("skills/own"), "It is watched.");
        until_bumped(&place, &work, told, SKILLS as u64 + 1).await;
        let with_one = watched(&daemon);
        assert!((SKILLS..=SKILLS + OTHERS).contains(&with_one), "{with_one}");

        for number in 0..3 {
            let other = place.path().join(format!("other-{number}"));
            put(&other, "skills/own", "Does it.", "Do it.");
            let told = version(&client, &other).await;
            replace(&other.join("skills/own"), "It is watched.");
            until_bumped(&place, &other, told, SKILLS as u64 + 1).await;
            let now = watched(&daemon);
            let most = with_one + (number + 1) * A_PLACE;
            assert!(now <= most, "{now} watched, and {most} at most");
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
