//! Damage to the header, the schema or all of the database file: no row is lost where the rows are
//! intact, and where nothing is readable the start explains what to do.

use std::fs;
use std::ops::Range;

use serde_json::json;

use crate::damage::set_aside;
use crate::harness::{Faults, Place, Script, run, says};

fn place() -> Place {
    Place::new(Script::new().on("*", [says("done")]))
}

/// Pages of the schema's B-tree below its root, as page 1 lists them.
fn schema_pages(database: &[u8]) -> Vec<usize> {
    let number = |at: usize| usize::from(database[at]) << 8 | usize::from(database[at + 1]);
    let page = |at: usize| number(at) << 16 | number(at + 2);
    assert_eq!(database[100], 5, "the schema fits into one page");
    let cells = number(103);
    let mut pages: Vec<usize> = (0..cells)
        .map(|cell| page(number(112 + 2 * cell)))
        .collect();
    pages.push(page(108));
    pages
}

/// A position in the database file, and the range that is overwritten.
type DamagedRange = (usize, Range<usize>);

/// Takes some 6 s: each damaged position needs a start of its own, with and without the WAL file.
#[test]
fn a_damaged_header_or_schema_costs_no_row_with_and_without_a_write_ahead_file() {
    run(async {
        for killed in [true, false] {
            let place = place();
            let daemon = place.start().await;
            let client = daemon.client().await;
            let mut ended = Vec::new();
            for number in 0..6 {
                let spawned = client
                    .spawn(json!({ "task": format!("task {number}") }))
                    .await;
                client.ended(&spawned.id).await;
                ended.push(spawned.id);
            }
            client.quiet().await;
            match killed {
                true => daemon.kill().await,
                false => assert_eq!(daemon.stop().await, 0),
            }
            let names = ["abide.db", "abide.db-wal", "abide.db.outline"];
            let whole = names.map(|name| fs::read(place.state().join(name)).ok());
            let database = whole[0].clone().unwrap();
            let logged = whole[1].as_ref().is_some_and(|log| !log.is_empty());
            assert_eq!(logged, killed, "the write-ahead file");
            let first = [0..16, 16..24, 24..100, 56..64, 100..4096, 0..4096];
            let mut wounds: Vec<DamagedRange> = first.into_iter().map(|bytes| (1, bytes)).collect();
            let below = schema_pages(&database);
            wounds.extend([below[0], below[below.len() - 1]].map(|page| (page, 0..4096)));
            wounds.push((below[below.len() / 2], 0..12));
            for (page, bytes) in wounds {
                for fill in [0, 0xff] {
                    let about = format!("killed {killed}: page {page}, bytes {bytes:?}, {fill}");
                    for entry in fs::read_dir(place.state()).unwrap() {
                        let path = entry.unwrap().path();
                        let name = path.file_name().unwrap().to_str().unwrap();
                        if name.starts_with("abide.db") {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                    for (name, content) in names.iter().zip(&whole) {
                        if let Some(content) = content {
                            fs::write(place.state().join(name), content).unwrap();
                        }
                    }
                    let mut torn = database.clone();
                    let at = (page - 1) * 4096;
                    torn[at + bytes.start..at + bytes.end].fill(fill);
                    fs::write(place.database(), &torn).unwrap();

                    let started = place.start_with(&Faults::default()).await;
                    let daemon = started
                        .unwrap_or_else(|status| panic!("{about}: {status}; {}", place.log()));
                    let client = daemon.client().await;
                    for id in &ended {
                        assert_eq!(client.run(id).await["result"], "done", "{about}");
                    }
                    let spawned = client.spawn(json!({ "task": "one more" })).await;
                    assert_eq!(client.ended(&spawned.id).await["result"], "done", "{about}");
                    client.quiet().await;
                    assert_eq!(daemon.stop().await, 0, "{about}");
                    // The file that was set aside is unchanged, with its WAL.
                    if let Some(aside) = set_aside(&place, "damaged").first() {
                        assert!(fs::read(aside).unwrap() == torn, "{about}");
                        let log = format!("{}-wal", aside.to_str().unwrap());
                        assert_eq!(
                            fs::read(log).ok().is_some_and(|log| !log.is_empty()),
                            killed
                        );
                    }
                }
            }
        }
    });
}

#[test]
fn a_store_of_which_nothing_can_be_read_names_the_newest_backup_that_is_whole() {
    run(async {
        let place = place();
        let daemon = place.start().await;
        let client = daemon.client().await;
        let spawned = client.spawn(json!({ "task": "kept" })).await;
        client.ended(&spawned.id).await;
        client.quiet().await;
        let made = client.call("gateway.backup", json!({})).await;
        let backup = made["path"].as_str().unwrap();
        assert_eq!(daemon.stop().await, 0);
        // A newer backup that is damaged is skipped.
        let folder = place.state().join("backups");
        fs::write(
            folder.join("abide-9999.db"),
            &fs::read(backup).unwrap()[..9000],
        )
        .unwrap();
        let junk = "nothing of a database".repeat(400);
        fs::write(place.database(), &junk).unwrap();
        for _ in 0..2 {
            let output = place.command(&["serve"]).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(74), "{said}");
            let advice = format!("abide restore {backup} --force");
            assert!(said.contains(&advice), "{said}");
            assert_eq!(fs::read_to_string(place.database()).unwrap(), junk);
        }
        let restored = place
            .command(&["restore", backup, "--force"])
            .output()
            .unwrap();
        assert_eq!(restored.status.code(), Some(0), "{restored:?}");
        let daemon = place.start().await;
        let client = daemon.client().await;
        assert_eq!(client.run(&spawned.id).await["result"], "done");
        assert_eq!(daemon.stop().await, 0);
    });
}
