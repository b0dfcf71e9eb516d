//! Determines which parent folders to watch: where an awaited path may appear, and where a watched
//! folder may be renamed together with its parent. Called by the watcher.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::FolderScan;

/// Folders, each with the paths in it that matter.
pub(super) type Above = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

/// Adds to `needed` the folders above those that were found: a watch on a folder does not report
/// that its parent is renamed.
pub(super) fn around(looked: &FolderScan, needed: Above) -> Above {
    let mut outermost: Vec<(&Path, &PathBuf)> = Vec::new();
    // The keys are sorted, so folders with the same parent follow each other and it is looked up
    // once.
    let (mut last, mut is_within) = (None, false);
    for folder in looked.folders.keys() {
        let holder = folder.parent();
        if last != Some(holder) {
            is_within = holder.is_none_or(|holder| looked.folders.contains_key(holder));
            last = Some(holder);
        }
        if let Some(holder) = holder.filter(|_| !is_within) {
            outermost.push((holder, folder));
        }
    }
    let holders: Vec<PathBuf> = outermost
        .iter()
        .map(|(holder, _)| (*holder).to_owned())
        .collect();
    let mut around = needed;
    for (folder, paths) in above(&holders) {
        around.entry(folder).or_default().extend(paths);
    }
    for (holder, folder) in outermost {
        // Its own watch reports its removal; an event from the parent counts as well.
        if let Some(paths) = around.get_mut(holder) {
            paths.insert(folder.clone());
        }
    }
    around
}

/// The nearest existing ancestor folder of each of `awaited`, with the path in it that matters.
pub(super) fn above(awaited: &[PathBuf]) -> Above {
    let mut found = Above::new();
    for path in awaited {
        let ancestors: Vec<&Path> = path.ancestors().collect();
        let pair = ancestors.windows(2).find(|pair| pair[1].is_dir());
        if let Some([expected, folder]) = pair {
            let paths = found.entry(folder.to_path_buf()).or_default();
            paths.insert(expected.to_path_buf());
        }
    }
    found
}
