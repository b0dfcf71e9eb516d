//! The working folder of a run: a missing one is refused, and the outcome of a run whose folder
//! disappears.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::harness::{Place, Script, calls, run, says};

#[test]
fn a_folder_that_is_not_there_is_refused_wherever_it_is_named() {
    run(async {
        let place = Place::new(Script::new().on("[a]", [says("done")]));
        let daemon = place.start().await;
        let client = daemon.client().await;
        let base = place.work().canonicalize().unwrap();
        let gone = base.join("gone");
        fs::write(base.join("file"), "").unwrap();
        fs::create_dir(base.join("real")).unwrap();
        symlink(base.join("real"), base.join("link")).unwrap();
        let made = json!({ "owner": "client", "cwd": base.join("link") });
        let made = client.call("sessions.create", made).await;
        let made = made["session"].clone();
        let key = made["key"].as_str().unwrap().to_owned();
        let stored = base.join("real");
        assert_eq!(made["cwd"], stored.to_str().unwrap(), "{made}");
        for folder in [&gone, &base.join("file")] {
            for (method, params) in [
                ("sessions.spawn", json!({ "task": "[a]", "cwd": folder })),
                (
                    "sessions.create",
                    json!({ "owner": "client", "cwd": folder }),
                ),
                (
                    "sessions.patch",
                    json!({ "sessionKey": key, "cwd": folder }),
                ),
            ] {
                let fault = client.refused(method, params).await;
                assert_eq!(fault.data["kind"], "invalid_params", "{method}: {fault:?}");
                assert!(fault.message.contains("nothing was changed"), "{fault:?}");
            }
        }
        let listed = client.call("runs.list", json!({})).await;
        assert_eq!(listed["runs"], json!([]));
        // A repeat gets its first answer, even if the folder is gone.
        let spawn = json!({ "task": "[a]", "cwd": base.join("real"), "idempotencyKey": "once" });
        let first = client.call("sessions.spawn", spawn.clone()).await;
        client.ended(first["runId"].as_str().unwrap()).await;
        fs::remove_dir(base.join("real")).unwrap();
        let again = client.call("sessions.spawn", spawn).await;
        assert_eq!(again["runId"], first["runId"]);
        assert_eq!(daemon.stop().await, 0);
    });
}

#[test]
fn a_run_whose_folder_goes_ends_and_says_so_once() {
    let read = || calls("read", json!({ "path": "notes.txt" }));
    let script = Script::new()
        .on("[gone]", [read().held_by("gone"), read(), says("done")])
        .on("[linked]", [read().held_by("linked"), read(), says("done")]);
    let place = Place::new(script);
    let folder = place.work().canonicalize().unwrap().join("inner");
    run(async {
        let daemon = place.start().await;
        let client = daemon.client().await;
        for name in ["gone", "linked"] {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("notes.txt"), "inside").unwrap();
            let spawn = json!({ "task": format!("[{name}]"), "cwd": folder });
            let run = client.spawn(spawn).await;
            client.in_state(&run.id, "running").await;
            fs::rename(&folder, folder.with_file_name("away")).unwrap();
            let why = match name {
                "linked" => {
                    symlink(folder.with_file_name("away"), &folder).unwrap();
                    "was replaced by a link"
                }
                _ => "does not exist any more",
            };
            place.let_go(name);
            let ended = client.ended(&run.id).await;
            assert_eq!(ended["error"]["kind"], "workspace_gone", "{ended}");
            let said = ended["error"]["message"].as_str().unwrap();
            assert!(said.contains(why) && said.contains("abide retry"), "{said}");
            fs::remove_dir_all(folder.with_file_name("away")).unwrap();
        }
        assert_eq!(daemon.stop().await, 0);
    });
}
