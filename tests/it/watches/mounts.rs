//! File systems without change events. A test cannot mount them, so a failpoint gives the system's
//! number of their type.

use serde_json::json;

use super::{bumps, notice, until_bumped, version, watched};
use crate::harness::{Faults, Place, Script, eventually, run};
use crate::skills::put;

/// The system's number of each type, and its name.
const SILENT: [(u32, &str); 6] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "FUSE"),
];

/// Types with change events: ext4, overlayfs, tmpfs, btrfs and XFS.
const TELLING: [u32; 5] = [0xef53, 0x794c_7630, 0x0102_1994, 0x9123_683e, 0x5846_5342];

fn on(kind: u32) -> Faults {
    Faults::ordered(&format!("watch.file_system=give:{kind}"))
}

fn place() -> Place {
    let place = Place::new(Script::new());
    put(&place.work(), "skills/one", "Does it.", "Do it.");
    place
}

#[test]
fn g6_7_of_each_kind_of_file_system_without_events_it_is_said_that_folders_are_looked_at() {
    for (kind, name) in SILENT {
        let place = place();
        run(async {
            let daemon = place.start_with(&on(kind)).await.unwrap();
            let client = daemon.client().await;
            let found = eventually("the notice", async || notice(&client).await).await;
            assert_eq!(found["status"], "warn", "{found}");
            let said = found.to_string();
            for words in [
                "detected late",
                &format!("is on {name}"),
                "every 5s",
                "skills.watch = \\\"poll\\\"",
            ] {
                assert!(said.contains(words), "{words}: {said}");
            }
            let status = client.call("gateway.status", json!({})).await;
            let notices = status["notices"].as_array().unwrap();
            assert!(notices.contains(&found["message"]), "{status}");
            // Folders that could be watched are not watched either.
            eventually("the end of all watches", async || {
                (watched(&daemon) == 0).then_some(())
            })
            .await;
            assert_eq!(daemon.stop().await, 0);
        });
    }
}

#[test]
fn g6_7_a_change_on_a_file_system_without_events_is_found_all_the_same() {
    let place = place();
    let work = place.work();
    run(async {
        let daemon = place.start_with(&on(SILENT[0].0)).await.unwrap();
        let client = daemon.client().await;
        let first = version(&client, &work).await;
        eventually("the notice", async || notice(&client).await).await;
        eventually("the end of all watches", async || {
            (watched(&daemon) == 0).then_some(())
        })
        .await;
        put(&work, "skills/two", "Does it.", "Do it.");
        let with_own = 4 + 2;
        until_bumped(&place, &work, first, with_own).await;
        let told = bumps(&place, &work);
        assert!(told.iter().all(|bump| bump.reason == "watch"), "{told:?}");
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn nothing_is_said_of_file_systems_that_tell_of_changes() {
    for kind in TELLING {
        let place = place();
        let work = place.work();
        run(async {
            let daemon = place.start_with(&on(kind)).await.unwrap();
            let client = daemon.client().await;
            let first = version(&client, &work).await;
            put(&work, "skills/two", "Does it.", "Do it.");
            until_bumped(&place, &work, first, 4 + 2).await;
            assert_eq!(notice(&client).await, None, "{kind:x}");
            assert!(watched(&daemon) > 0);
            assert_eq!(daemon.stop().await, 0);
        });
    }
}
