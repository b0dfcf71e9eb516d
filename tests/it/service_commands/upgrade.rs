//! A service whose program is replaced: the path in the unit stays valid, and a restart switches.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use super::manager::{Kind, ScriptedManager, told};
use super::put;
use crate::harness::run;

#[test]
fn g15_8_the_unit_names_a_link_that_an_upgrade_changes_and_a_restart_switches_to_it() {
    run(async {
        let manager = ScriptedManager::new(super::place(), Kind::Systemd);
        let place = manager.place();
        let versions = place.path().join("versions");
        let first = put(&versions.join("abide-1"));
        // A link on the PATH leads to the version.
        let link = manager.folder().join("bin/abide");
        symlink(&first, &link).unwrap();
        // The first version says that it is an older one.
        let variables = place.path().join(".config/abide/service.env");
        fs::create_dir_all(variables.parent().unwrap()).unwrap();
        fs::write(&variables, "ABIDE_TEST_VERSION=0.0.9\n").unwrap();
        let mut install = manager.command_of(&first, &["service", "install", "--yes"]);
        let installed = told(&mut install);
        assert_eq!(installed.code, 0, "{}", installed.err);
        let unit = fs::read_to_string(manager.unit()).unwrap();
        assert!(
            unit.contains(&format!("ExecStart={} serve", link.display())),
            "{unit}"
        );
        assert!(
            installed
                .err
                .contains("an upgrade that changes the link is followed")
        );
        let client = super::client(&manager).await;
        let task = json!({ "task": "[held]", "agent": "explore" });
        let held = client.spawn(task).await;
        client.in_state(&held.id, "running").await;

        // The upgrade: another version, the link to it, and the first one is removed.
        let second = put(&versions.join("abide-2"));
        fs::remove_file(&variables).unwrap();
        fs::remove_file(&link).unwrap();
        symlink(&second, &link).unwrap();
        fs::remove_dir_all(versions.join("abide-1")).unwrap();
        let shown = told(&mut manager.command_of(&second, &["service", "status"]));
        let own = env!("CARGO_PKG_VERSION");
        let skew = format!("the daemon is abide 0.0.9, older than this program ({own})");
        assert!(shown.err.contains(&skew), "{}", shown.err);
        let status = told(&mut manager.command_of(&second, &["status", "--json"])).json();
        assert_eq!(status["program"]["path"], link.to_str().unwrap());
        assert_eq!(status["program"]["change"], "replaced");

        let restarted = told(&mut manager.command_of(&second, &["service", "restart"]));
        assert_eq!(restarted.code, 0, "{}", restarted.err);
        let switched = format!("restarted: abide 0.0.9 is now {own}");
        assert!(restarted.out.contains(&switched), "{}", restarted.out);
        let running = fs::read_link(format!("/proc/{}/exe", manager.pid())).unwrap();
        assert_eq!(running, second);
        place.let_go("go");
        let client = super::client(&manager).await;
        assert_eq!(client.ended(&held.id).await["result"], "held is done");
    });
}
