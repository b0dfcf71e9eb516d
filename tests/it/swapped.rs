//! A program that replaces folders and files of the workspace by links while tools read them:
//! nothing outside is ever read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::harness::{Place, Script, calls, run, says};

const FILES: usize = 1_500;
const ROUNDS: usize = 12;

/// Repeatedly replaces `name` in the workspace by a link to the same name outside, and back.
fn swap(place: &Place, name: &str, stop: &AtomicBool) {
    let (inside, outside) = (
        place.work().join(name),
        place.path().join("outside").join(name),
    );
    let aside = place.work().join(format!("{name}.aside"));
    let mut swaps = 0;
    while !stop.load(Ordering::Relaxed) || swaps == 0 {
        until_free(&inside, || fs::rename(&inside, &aside));
        until_free(&inside, || symlink(&outside, &inside));
        std::thread::yield_now();
        fs::remove_file(&inside).unwrap();
        until_free(&inside, || fs::rename(&aside, &inside));
        std::thread::yield_now();
        swaps += 1;
    }
}

/// Retries `swap` while a writing tool has created a folder in the gap.
fn until_free(inside: &Path, mut swap: impl FnMut() -> std::io::Result<()>) {
    while let Err(error) = swap() {
        assert!(inside.is_dir(), "{error}");
        // A file may be written into it meanwhile, which makes this fail and the loop retry.
        let _ = fs::remove_dir_all(inside);
    }
}

#[test]
fn no_reading_tool_follows_what_becomes_a_link_while_it_reads() {
    let list = |tool: &str, arguments: Value| (tool.to_owned(), arguments);
    let mut answers = Vec::new();
    for _ in 0..ROUNDS {
        let mut answer = calls(
            "grep",
            json!({ "pattern": "canary|inside", "output": "files" }),
        );
        for (tool, arguments) in [
            list("grep", json!({ "pattern": "canary", "path": "tree/deep" })),
            list("glob", json!({ "pattern": "**/canary*" })),
            list("list", json!({ "path": "tree/deep", "max_results": 2000 })),
            list("read", json!({ "path": "tree/deep/0001.txt" })),
            list("read", json!({ "path": "plain.txt" })),
            list(
                "edit",
                json!({ "path": "plain.txt", "old_text": "canary", "new_text": "x" }),
            ),
            list(
                "write",
                json!({ "path": "tree/deep/new.txt", "content": "inside" }),
            ),
        ] {
            answer = answer.and(&tool, arguments);
        }
        answers.push(answer);
    }
    answers.push(says("done"));
    let place = Place::new(Script::new().on("[look]", answers)).with_agent(
        "worker",
        "mode: primary\nmax_loops: 50\ntools: [list, glob, grep, read, write, edit]\ngate: {write: \
         allow, edit: allow}",
    );
    for (root, word) in [
        (place.work(), "inside"),
        (place.path().join("outside"), "canary"),
    ] {
        fs::create_dir_all(root.join("tree/deep")).unwrap();
        for n in 0..FILES {
            fs::write(
                root.join(format!("tree/deep/{n:04}.txt")),
                format!("{word}\n"),
            )
            .unwrap();
        }
        fs::write(root.join(format!("tree/deep/{word}-name.txt")), word).unwrap();
        fs::write(root.join("plain.txt"), word).unwrap();
    }
    let before = listing(&place);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| swap(&place, "tree", &stop));
        scope.spawn(|| swap(&place, "plain.txt", &stop));
        run(async {
            let daemon = place.start().await;
            let client = daemon.client().await;
            let spawned = client
                .spawn(json!({ "task": "[look]", "agent": "worker" }))
                .await;
            let ended = client.ended(&spawned.id).await;
            stop.store(true, Ordering::Relaxed);
            assert_eq!(ended["result"], "done", "{ended}");
            let history = json!({ "sessionKey": spawned.session, "limit": 500 });
            let history = client.call("sessions.history", history).await;
            let results = history["messages"].as_array().unwrap().iter();
            let results: Vec<&str> = results
                .filter(|one| one["kind"] == "tool_result")
                .map(|one| one["content"][0]["text"].as_str().unwrap())
                .collect();
            assert_eq!(results.len(), 8 * ROUNDS);
            for result in &results {
                // The pattern itself is not repeated in results.
                assert!(!result.contains("canary"), "{result}");
            }
            assert!(
                results
                    .iter()
                    .any(|one| one.contains("matching lines in 15")),
                "{results:?}"
            );
            assert_eq!(daemon.stop().await, 0);
        });
    });
    assert_eq!(listing(&place), before);
}

/// Names and contents of the files outside.
fn listing(place: &Place) -> Vec<(String, String)> {
    let outside = place.path().join("outside");
    let entries = fs::read_dir(outside.join("tree/deep")).unwrap().flatten();
    let mut all: Vec<(String, String)> = entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    all.push((
        "plain.txt".to_owned(),
        fs::read_to_string(outside.join("plain.txt")).unwrap(),
    ));
    all.sort();
    all
}
