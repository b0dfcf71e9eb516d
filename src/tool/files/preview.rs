//! Previews of `write` and `edit`: the unified diff that the user sees before approving a call. The
//! runner requests it from the catalogue. The change is computed as in the call itself, from the
//! unmasked arguments and file content; only the result is masked.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::diff::unified;
use super::text_file::WriteTarget;
use super::{edit, write};
use crate::clock::Clock;
use crate::contract::BoxFuture;
use crate::contract::preview::{ChangeEffect, FileChange};
use crate::file_work::{StopFlag, TOOLS};
use crate::kernel::policy::gate::Writes;
use crate::kernel::text::redact::Redactor;
use crate::tool::{Catalogue, Workspace};

/// The maximum size of a shown diff, in bytes.
const DIFF_LIMIT: usize = 128 << 10;
/// The maximum size of a compared file, in bytes.
const COMPARED: usize = 2 << 20;
/// The timeout for a file system that does not answer.
const LIMIT: Duration = Duration::from_secs(3);
/// The maximum number of cached previews.
const KEPT: usize = 128;

/// Cached previews, by call and state of the file.
#[derive(Clone, Default)]
pub(crate) struct PreviewCache(Arc<Mutex<HashMap<[u8; 32], FileChange>>>);

impl PreviewCache {
    fn get(&self, of: &[u8; 32]) -> Option<FileChange> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(of).cloned()
    }

    fn put(&self, of: [u8; 32], change: FileChange) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.clear();
        }
        kept.insert(of, change);
    }
}

/// A call that writes a file.
enum Writing {
    Write { content: String },
    Edit { old: String, new: String },
}

impl Writing {
    /// The path and the change; `None` for a call that writes no file, or whose arguments will be
    /// refused.
    fn of(tool: &str, arguments: &Value) -> Option<(String, Writing)> {
        let text = |name: &str| Some(arguments.get(name)?.as_str()?.to_owned());
        let writing = match tool {
            "write" => Writing::Write {
                content: text("content")?,
            },
            "edit" => Writing::Edit {
                old: text("old_text")?,
                new: text("new_text")?,
            },
            _ => return None,
        };
        Some((text("path")?, writing))
    }
}

/// A requested preview.
struct Asked {
    root: PathBuf,
    denied: Vec<PathBuf>,
    path: String,
    writing: Writing,
    redactor: Redactor,
    /// The hash of the call, independent of the file.
    digest: [u8; 32],
    /// The cache; `None` if it must not be used.
    kept: Option<PreviewCache>,
}

impl Catalogue {
    /// Computes the change of a file in the workspace at `root`; `None` if the call writes no file.
    /// Environment values are masked in it. With `anew` the cache is not used.
    pub fn preview(
        &self,
        root: PathBuf,
        tool: &str,
        arguments: &Value,
        redactor: Redactor,
        anew: bool,
    ) -> BoxFuture<'static, Option<FileChange>> {
        let Some((path, writing)) = Writing::of(tool, arguments) else {
            return Box::pin(std::future::ready(None));
        };
        let said = arguments.to_string();
        let call = digest(&[
            root.as_os_str().as_encoded_bytes(),
            tool.as_bytes(),
            said.as_bytes(),
            &redactor.fingerprint().to_le_bytes(),
        ]);
        let asked = Asked {
            digest: call,
            root,
            denied: self.denied().to_vec(),
            path,
            writing,
            redactor,
            kept: (!anew).then(|| self.kept().clone()),
        };
        let named = asked.shown(&asked.path);
        Box::pin(async move {
            let work = TOOLS.run(move |stop| asked.change(stop));
            let done = tokio::time::timeout(LIMIT, work).await;
            Some(match done {
                Ok(Ok(change)) => change,
                Ok(Err(busy)) => not_shown(named, busy.to_string()),
                Err(_) => not_shown(
                    named,
                    format!(
                        "the file system did not answer within {} s",
                        LIMIT.as_secs()
                    ),
                ),
            })
        })
    }
}

fn not_shown(path: String, why: String) -> FileChange {
    FileChange {
        path,
        effect: ChangeEffect::NotShown(why),
        digest: None,
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&part.len().to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

impl Asked {
    /// The masked text.
    fn shown(&self, text: &str) -> String {
        self.redactor.whole(text).into_owned()
    }

    fn fails(&self, path: &str, why: &str) -> FileChange {
        let (path, why) = (self.shown(path), self.shown(why));
        let digest = digest(&[b"fails", path.as_bytes(), why.as_bytes()]);
        FileChange {
            path,
            effect: ChangeEffect::Fails(why),
            digest: Some(short(digest)),
        }
    }

    fn change(self, stop: &StopFlag) -> FileChange {
        let workspace = match Workspace::open(&self.root, &self.denied) {
            // The write scope is checked when the call is made.
            Ok(workspace) => workspace
                .writing(Writes::Anywhere)
                .masking(self.redactor.clone()),
            Err(crate::tool::Unopened::Gone(why) | crate::tool::Unopened::Refused(why)) => {
                return self.fails(&self.path, &why);
            }
        };
        let target = match WriteTarget::of(&workspace, &self.path) {
            Ok(target) => target,
            Err(why) => return self.fails(&self.path, &why),
        };
        let known = self.kept.as_ref().and_then(|kept| {
            let stamp = target.stamp().ok()?;
            let now = Clock::system().now().0 / 1_000;
            let is_fresh = stamp.as_ref().is_some_and(|one| one.is_fresh_at(now));
            let file = format!("{} {stamp:?}", target.shown);
            (!is_fresh).then(|| (kept, digest(&[&self.digest, file.as_bytes()])))
        });
        if let Some(change) = known.and_then(|(kept, file)| kept.get(&file)) {
            return change;
        }
        match self.compared(&workspace, &target, stop) {
            Ok(change) => {
                if let Some((kept, file)) = known {
                    kept.put(file, change.clone());
                }
                change
            }
            Err(why) => self.fails(&target.shown, &why),
        }
    }

    /// The error is the reason why the call would fail.
    fn compared(
        &self,
        workspace: &Workspace,
        target: &WriteTarget,
        stop: &StopFlag,
    ) -> Result<FileChange, String> {
        let existing = target.existing()?;
        let after = match &self.writing {
            Writing::Write { content } => {
                write::new_content(workspace, &target.shown, existing.as_ref(), content)?
            }
            Writing::Edit { old, new } => {
                let Some(existing) = &existing else {
                    return Err("there is no such file".to_owned());
                };
                match edit::planned_change(&target.shown, existing, old, new)? {
                    edit::EditOutcome::Made(text, _) => text,
                    edit::EditOutcome::IsThere => existing.text.clone(),
                    edit::EditOutcome::Impossible(why) => return Err(why),
                }
            }
        };
        let before = existing.as_ref().map(|one| one.text.as_str());
        stop.check()?;
        let path = self.shown(&target.shown);
        let effect = self.effect(&path, before, &after);
        let known = before.unwrap_or_default();
        // Hashes masked texts, so that the digest reveals nothing about the values.
        let digest = digest(&[
            path.as_bytes(),
            &[u8::from(before.is_some())],
            self.redactor.whole(known).as_bytes(),
            self.redactor.whole(&after).as_bytes(),
            &known.len().to_le_bytes(),
            &after.len().to_le_bytes(),
        ]);
        Ok(FileChange {
            path,
            effect,
            digest: Some(short(digest)),
        })
    }

    fn effect(&self, path: &str, before: Option<&str>, after: &str) -> ChangeEffect {
        if before == Some(after) {
            return ChangeEffect::Nothing;
        }
        let size = before.map_or(0, str::len).max(after.len());
        if size > COMPARED {
            return ChangeEffect::NotShown(format!(
                "the file is too large to be compared ({size} bytes; {COMPARED} at most)"
            ));
        }
        match (
            unified(path, before, after, &self.redactor, DIFF_LIMIT),
            before,
        ) {
            (Err(least), _) => ChangeEffect::NotShown(format!(
                "the diff is too large ({least} bytes or more; {DIFF_LIMIT} at most)"
            )),
            (Ok(diff), Some(_)) => ChangeEffect::Changes(diff),
            (Ok(diff), None) => ChangeEffect::Creates(diff),
        }
    }
}

/// The form of a digest that clients send back.
fn short(digest: [u8; 32]) -> String {
    let text = blake3::Hash::from(digest).to_hex();
    text[..32].to_owned()
}

#[cfg(test)]
#[path = "preview_tests.rs"]
mod tests;
