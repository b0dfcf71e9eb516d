//! Skill roots that appear later, disappear and come back: a user's, a project's, a folder's.

use std::fs;
use std::path::PathBuf;

use serde_json::json;

use super::{SkillsChange, bumps, replace, until_bumped, version};
use crate::harness::{Place, Script, run};
use crate::skills::put;

/// Working folders: a deep one within `project`, and `project` itself.
const WORKS: [&str; 2] = ["project/deep/down", "project"];

/// Each root except that of the working folder, relative to the place: the root, the ancestor
/// folder that the test removes with it, and its source.
const ROOTS: [(&str, &str, &str); 6] = [
    (".claude/skills", ".claude", "personal"),
    (".agents/skills", ".agents", "personal"),
    (".config/abide/skills", ".config/abide", "personal"),
    ("project/.claude/skills", "project/.claude", "project"),
    ("project/.agents/skills", "project/.agents", "project"),
    ("project/.abide/skills", "project/.abide", "project"),
];

/// A place and the latest reported version of its skills.
struct WatchedPlace {
    place: Place,
    work: PathBuf,
    version: i64,
}

impl WatchedPlace {
    /// Waits until a version with this number of skills is reported.
    async fn now_has(&mut self, skills: u64) {
        let told = until_bumped(&self.place, &self.work, self.version, skills).await;
        self.version = told.version;
    }
}

/// Takes some 13 s: seven roots, two ways of watching, and a wait for each of nine changes.
#[test]
fn every_root_may_come_later_vanish_and_come_back_by_events_and_by_looking() {
    let hows = ["\"events\"", "\"poll\""];
    for (how, work) in hows
        .into_iter()
        .flat_map(|how| WORKS.map(|work| (how, work)))
    {
        run(async {
            let place = Place::new(Script::new())
                .with("skills.watch", how)
                .with("skills.poll_each", "\"20ms\"")
                .with("skills.debounce", "\"20ms\"")
                .with("skills.bundled", "false");
            let (all, folder) = (place.path().to_owned(), place.path().join(work));
            fs::create_dir_all(&folder).unwrap();
            fs::create_dir_all(all.join("project/.git")).unwrap();
            let daemon = place.start().await;
            let client = daemon.client().await;
            let version = version(&client, &folder).await;
            let mut course = WatchedPlace {
                place,
                work: folder,
                version,
            };
            let own = format!("{work}/skills");
            let own = [(own.as_str(), own.as_str(), "workspace")];
            for (root, above, source) in ROOTS.into_iter().chain(own) {
                let (root, above) = (all.join(root), all.join(above));
                let skill = root.join("one");
                // It is created together with its ancestor folders.
                put(&root, "one", "Does it.", "Do it.");
                course.now_has(1).await;
                let params = json!({ "workspace": course.work, "name": "one" });
                let listed = client.call("skills.list", params).await;
                assert_eq!(listed["skills"][0]["source"], source, "{listed}");
                replace(&skill, "It is watched.");
                course.now_has(1).await;
                // It disappears, comes back, and is watched again.
                let aside = all.join("aside");
                fs::rename(&root, &aside).unwrap();
                course.now_has(0).await;
                fs::rename(&aside, &root).unwrap();
                course.now_has(1).await;
                replace(&skill, "It is watched again.");
                course.now_has(1).await;
                // It disappears with its ancestor folder and is created anew.
                fs::rename(&above, &aside).unwrap();
                course.now_has(0).await;
                put(&root, "one", "Does it.", "It is another one.");
                course.now_has(1).await;
                replace(&skill, "It is watched, too.");
                course.now_has(1).await;
                fs::remove_dir_all(&above).unwrap();
                course.now_has(0).await;
                fs::remove_dir_all(&aside).unwrap();
            }
            assert_eq!(daemon.stop().await, 0);
            let told = bumps(&course.place, &course.work);
            let versions: Vec<i64> = told.iter().map(|bump| bump.version).collect();
            assert_eq!(
                versions,
                (2..=course.version).collect::<Vec<i64>>(),
                "{how}"
            );
            let by_looks = |bump: &SkillsChange| bump.reason == "watch";
            assert!(told.iter().all(by_looks), "{told:?}");
        });
    }
}
