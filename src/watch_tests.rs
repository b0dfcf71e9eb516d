//! Tests of watchers on real files.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;
use crate::kernel::time::Timestamp;

const QUICK: WatchOptions = WatchOptions {
    mode: WatchMode::Events,
    quiet: Duration::from_millis(20),
    longest: Duration::from_millis(200),
    file: None,
};

fn watcher(folder: &Path, mode: WatchMode) -> Watcher {
    let options = WatchOptions { mode, ..QUICK };
    Watcher::new(vec![folder.to_owned()], options, Clock::system())
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(test);
}

#[test]
fn g6_5_ten_saves_of_each_kind_are_each_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.md");
    fs::write(&file, "0").unwrap();
    run(async {
        let mut watcher = watcher(dir.path(), WatchMode::Events);
        for round in 1..=10 {
            fs::write(&file, format!("in place {round}")).unwrap();
            watcher.changed().await;
            let aside = dir.path().join(".a.md.new");
            fs::write(&aside, format!("renamed {round}")).unwrap();
            fs::rename(&aside, &file).unwrap();
            watcher.changed().await;
            fs::remove_file(&file).unwrap();
            fs::write(&file, format!("made anew {round}")).unwrap();
            watcher.changed().await;
        }
    });
}

#[test]
fn a_folder_may_come_later_vanish_and_come_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config/abide/agents");
    run(async {
        let mut watcher = watcher(&folder, WatchMode::Events);
        for _ in 0..2 {
            fs::create_dir_all(&folder).unwrap();
            watcher.changed().await;
            fs::write(folder.join("a.md"), "a").unwrap();
            watcher.changed().await;
            fs::remove_dir_all(dir.path().join("config")).unwrap();
            watcher.changed().await;
        }
    });
}

#[test]
fn a_file_behind_a_link_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, real) = (dir.path().join("agents"), dir.path().join("dotfiles"));
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir_all(&real).unwrap();
    fs::write(real.join("a.md"), "a").unwrap();
    std::os::unix::fs::symlink(real.join("a.md"), folder.join("a.md")).unwrap();
    run(async {
        let mut watcher = watcher(&folder, WatchMode::Events);
        fs::write(real.join("a.md"), "another").unwrap();
        watcher.changed().await;
    });
}

#[test]
fn g6_7_polling_finds_a_change_without_events() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watcher = watcher(dir.path(), WatchMode::Poll(Duration::from_millis(5)));
        fs::write(dir.path().join("a.md"), "a").unwrap();
        watcher.changed().await;
    });
}

#[test]
fn reading_is_no_change_and_neither_is_what_lies_beside() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("agents");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.md"), "a").unwrap();
    run(async {
        let mut watcher = watcher(&folder, WatchMode::Events);
        let _ = fs::read(folder.join("a.md")).unwrap();
        fs::write(dir.path().join("beside.txt"), "b").unwrap();
        let heard = tokio::time::timeout(Duration::from_millis(150), watcher.changed());
        assert!(heard.await.is_err());
        // Events still arrive.
        fs::write(folder.join("b.md"), "b").unwrap();
        watcher.changed().await;
    });
}

/// Watches one skill-like folder under `root` that may not exist.
fn awaiting(root: &Path, file: Option<&'static str>) -> Watcher {
    let folder = root.join("config/skills");
    let look = move || looked(std::slice::from_ref(&folder));
    let options = WatchOptions { file, ..QUICK };
    Watcher::over(
        Arc::new(look),
        None,
        Arc::default(),
        options,
        Clock::system(),
    )
}

async fn hears_nothing(watcher: &mut Watcher) {
    let heard = tokio::time::timeout(Duration::from_millis(150), watcher.heard.notified());
    assert!(heard.await.is_err());
}

#[test]
fn what_lies_beside_an_awaited_folder_is_not_even_heard() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watcher = awaiting(dir.path(), None);
        // The first scan.
        watcher.changed().await;
        for round in 0..20 {
            fs::write(dir.path().join("store.db-wal"), format!("{round}")).unwrap();
            fs::write(dir.path().join(format!("made {round}")), "x").unwrap();
        }
        hears_nothing(&mut watcher).await;
        fs::create_dir_all(dir.path().join("config/skills")).unwrap();
        watcher.changed().await;
    });
}

/// Removals beside the awaited folder are not remembered, since no later scan would clear them.
#[test]
fn what_goes_beside_an_awaited_folder_costs_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let mut watcher = awaiting(dir.path(), None);
        watcher.changed().await;
        for round in 0..20 {
            let beside = dir.path().join(format!("made {round}"));
            fs::write(&beside, "x").unwrap();
            fs::rename(&beside, dir.path().join("renamed")).unwrap();
            fs::remove_file(dir.path().join("renamed")).unwrap();
        }
        hears_nothing(&mut watcher).await;
        assert_eq!(lock(&watcher.shared).removed, BTreeSet::new());
    });
}

#[test]
fn a_folder_is_missed_that_was_renamed_with_the_one_that_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config/skills");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.md"), "a").unwrap();
    run(async {
        let mut watcher = awaiting(dir.path(), None);
        watcher.changed().await;
        for round in 0..3 {
            let aside = dir.path().join(format!("aside {round}"));
            fs::rename(dir.path().join("config"), &aside).unwrap();
            watcher.changed().await;
            fs::rename(&aside, dir.path().join("config")).unwrap();
            watcher.changed().await;
            fs::write(folder.join("a.md"), format!("written {round}")).unwrap();
            watcher.changed().await;
        }
    });
}

/// The system's watches of the folder and its descendants are gone by then, although it looks
/// unchanged.
#[test]
fn a_folder_that_was_renamed_away_and_back_at_once_is_still_heard() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("project/skills");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.md"), "a").unwrap();
    // The project folder is watched as well, since more may appear there.
    let both = [folder.clone(), dir.path().join("project/others")];
    run(async {
        let look = Arc::new(move || looked(&both));
        let heard = Arc::default();
        let mut watcher = Watcher::over(look, None, heard, QUICK, Clock::system());
        watcher.changed().await;
        for (round, renamed) in ["project", "project/skills"].iter().enumerate() {
            let (there, aside) = (dir.path().join(renamed), dir.path().join("aside"));
            fs::rename(&there, &aside).unwrap();
            fs::rename(&aside, &there).unwrap();
            let write = async {
                // By now it has scanned and found nothing new.
                tokio::time::sleep(QUICK.longest).await;
                fs::write(folder.join("a.md"), format!("written {round}")).unwrap();
            };
            let told = tokio::time::timeout(Duration::from_secs(10), watcher.changed());
            let ((), told) = futures_util::future::join(write, told).await;
            assert!(told.is_ok(), "{renamed}");
        }
    });
}

/// The parent is watched because another awaited folder may appear there.
#[test]
fn a_folder_is_missed_that_was_renamed_beside_an_awaited_one() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("skills");
    fs::create_dir_all(&folder).unwrap();
    let both = [folder.clone(), dir.path().join("others")];
    run(async {
        let look = Arc::new(move || looked(&both));
        let heard = Arc::default();
        let mut watcher = Watcher::over(look, None, heard, QUICK, Clock::system());
        watcher.changed().await;
        for round in 0..3 {
            let aside = dir.path().join(format!("aside {round}"));
            fs::rename(&folder, &aside).unwrap();
            watcher.changed().await;
            fs::rename(&aside, &folder).unwrap();
            watcher.changed().await;
        }
    });
}

#[test]
fn with_a_name_only_writes_to_such_files_are_heard() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config/skills");
    fs::create_dir_all(&folder).unwrap();
    for file in ["SKILL.md", "notes.txt"] {
        fs::write(folder.join(file), "x").unwrap();
    }
    run(async {
        let mut watcher = awaiting(dir.path(), Some("SKILL.md"));
        watcher.changed().await;
        fs::write(folder.join("notes.txt"), "another").unwrap();
        hears_nothing(&mut watcher).await;
        fs::write(folder.join("SKILL.md"), "another").unwrap();
        watcher.changed().await;
    });
}

#[test]
fn a_folder_that_was_swapped_is_watched_again() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config/skills");
    fs::create_dir_all(&folder).unwrap();
    run(async {
        let mut watcher = awaiting(dir.path(), None);
        watcher.changed().await;
        for round in 0..3 {
            let next = dir.path().join(format!("next {round}"));
            fs::create_dir_all(&next).unwrap();
            fs::write(next.join("a.md"), format!("swapped {round}")).unwrap();
            fs::rename(&folder, dir.path().join(format!("old {round}"))).unwrap();
            fs::rename(&next, &folder).unwrap();
            watcher.changed().await;
            fs::write(folder.join("a.md"), format!("written {round}")).unwrap();
            watcher.changed().await;
        }
    });
}

#[test]
fn where_no_events_can_be_had_it_looks_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("config/skills");
    run(async {
        let mut watcher = awaiting(dir.path(), None);
        let notice = watcher.notice();
        assert_eq!(notice.get(), None);
        watcher.fall_back("too many watches");
        assert!(notice.get().unwrap().contains("too many watches"));
        tokio::time::pause();
        watcher.changed().await;
        fs::create_dir_all(&folder).unwrap();
        watcher.changed().await;
    });
}

/// A watcher on the test clock that records when it scans and takes every scan for a change.
struct Looking {
    clock: Clock,
    heard: Arc<Notify>,
    looks: Arc<Mutex<Vec<Duration>>>,
    watcher: Watcher,
}

const USUAL: WatchOptions = WatchOptions {
    mode: WatchMode::Events,
    quiet: Duration::from_millis(250),
    longest: Duration::from_secs(2),
    file: None,
};

/// A watcher that has finished its first scan.
fn looking() -> Looking {
    let clock = Clock::test(Timestamp(0));
    let looks = Arc::new(Mutex::new(Vec::new()));
    let (seen, now) = (Arc::clone(&looks), clock.clone());
    let look: ScanFn = Arc::new(move || {
        let mut looks = seen.lock().unwrap();
        looks.push(now.monotonic());
        FolderScan {
            signature: looks.len() as u64,
            ..FolderScan::default()
        }
    });
    let heard: Arc<Notify> = Arc::default();
    let watcher = Watcher::over(look, None, Arc::clone(&heard), USUAL, clock.clone());
    Looking {
        clock,
        heard,
        looks,
        watcher,
    }
}

impl Looking {
    /// Makes changes after these pauses; returns the times of the scans up to its report.
    async fn while_changing(&mut self, pauses: impl Iterator<Item = u64>) -> Vec<Duration> {
        tokio::time::pause();
        let changes = async {
            for pause in pauses.map(Duration::from_millis) {
                tokio::time::sleep(pause).await;
                self.clock.advance(pause);
                self.heard.notify_one();
            }
        };
        let told = self.watcher.changed();
        futures_util::future::join(changes, told).await;
        self.looks.lock().unwrap().clone()
    }
}

/// Changes every 70 ms leave no quiet time of 250 ms; they are reported after two seconds
/// nevertheless.
#[test]
fn g6_13_changes_that_never_pause_are_looked_at_after_the_longest_time() {
    let between = Duration::from_millis(70);
    run(async {
        let looks = looking().while_changing((0..60).map(|_| 70)).await;
        // One at the start and one for all changes since.
        assert_eq!(looks.len(), 2, "{looks:?}");
        assert_eq!(looks[0], Duration::ZERO);
        assert!(looks[1] <= USUAL.longest, "{looks:?}");
        assert!(looks[1] > USUAL.longest - between, "{looks:?}");
    });
}

#[test]
fn a_look_that_was_begun_ahead_does_not_count_if_more_is_heard() {
    run(async {
        // The second change comes after the early scan for the first one has started.
        let looks = looking().while_changing([0, 230].into_iter()).await;
        let at: Vec<u128> = looks.iter().map(Duration::as_millis).collect();
        // At the start, before the end of the first quiet time, and for both changes.
        assert_eq!(at, [0, 0, 230]);
    });
}

#[test]
fn looks_at_a_slow_disk_do_not_pile_up() {
    let (at_work, most, count) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let counts = Arc::new((at_work, most, count));
    let seen = Arc::clone(&counts);
    let look: ScanFn = Arc::new(move || {
        let (at_work, most, count) = &*seen;
        most.fetch_max(at_work.fetch_add(1, SeqCst) + 1, SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        at_work.fetch_sub(1, SeqCst);
        FolderScan {
            signature: count.fetch_add(1, SeqCst) as u64,
            ..FolderScan::default()
        }
    });
    let heard: Arc<Notify> = Arc::default();
    run(async {
        let clock = Clock::system();
        let mut watcher = Watcher::over(look, None, Arc::clone(&heard), QUICK, clock);
        // Each comes when an early scan has just started.
        let changes = async {
            loop {
                tokio::time::sleep(QUICK.quiet * 9 / 10).await;
                heard.notify_one();
            }
        };
        let told = async {
            for _ in 0..3 {
                watcher.changed().await;
            }
        };
        tokio::select! {
            () = changes => {}
            () = told => {}
        }
    });
    assert_eq!(counts.1.load(SeqCst), 1);
}
