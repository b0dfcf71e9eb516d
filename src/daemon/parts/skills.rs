//! Assembles the skills: their settings, the library that holds them, and the loop that detects
//! changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Notify, watch as channel};
use tokio_util::sync::CancellationToken;

use super::{LONGEST_BURST, UNREAD_AGAIN, config_folder, options, refused};
use crate::agent;
use crate::clock::Clock;
use crate::config::{self, Config, FileWatch};
use crate::contract::nodes::NodesSlot;
use crate::daemon::DaemonFailure;
use crate::kernel::policy::env::Environment;
use crate::kernel::secret::GivenValue;
use crate::registry::{Registry, ReloadReason, SkillsReason};
use crate::skill::{self, GivenNames, Host, Library, PromptLimits, ScanLimits};
use crate::watch::{self, Watcher};

/// The skill library with its settings and its watcher.
pub struct SkillParts {
    /// The skills that exist.
    pub library: Arc<Library>,
    /// Sends changed settings to the library.
    pub settings: channel::Sender<skill::SkillSettings>,
    /// Detects changes.
    pub watcher: Watcher,
}

/// The settings of skills, from the configuration and the environment.
pub fn settings(state: &Path, config: &Config, environment: &Environment) -> skill::SkillSettings {
    let names = environment.iter().filter_map(|(name, _)| name.to_str());
    let is_on = |key: &str| {
        config.value(key).is_some_and(|value| match value {
            toml::Value::Boolean(flag) => flag,
            toml::Value::Integer(number) => number != 0,
            toml::Value::String(text) => !text.is_empty(),
            _ => true,
        })
    };
    let keys = config.keys().into_iter().map(String::from);
    let entries = config.named.skills.iter();
    skill::SkillSettings {
        extra_dirs: config.skills_extra.clone(),
        bundled: config.skills_bundled,
        managed: Some(managed(state, config)),
        home: std::env::var_os("HOME")
            .map(PathBuf::from)
            .filter(|home| home.is_absolute()),
        config: config_folder(),
        claude_dirs: config.skills_claude,
        link_targets: config.skills_links.clone(),
        disabled: entries
            .filter(|(_, entry)| !entry.enabled)
            .map(|(name, _)| name.clone())
            .collect(),
        given: given(config),
        // A scan at the end of a burst starts slightly before the debounce is over.
        settle: config.skills_debounce * 3 / 4,
        limits: ScanLimits {
            skills: config.skills_most,
            bytes: usize::try_from(config.skills_bytes).unwrap_or(usize::MAX),
        },
        prompt: PromptLimits {
            skills: config.skills_in_prompt,
            characters: config.skills_characters,
        },
        host: Host {
            platform: std::env::consts::OS.to_owned(),
            path: environment.get("PATH").map(ToOwned::to_owned),
            env: names.map(str::to_owned).collect(),
            // Those of a skill are added where it is listed.
            given: BTreeSet::new(),
            config: keys.filter(|key| is_on(key)).collect(),
            // Those of the tenant are added where skills are looked up.
            remotes: Vec::new(),
        },
    }
}

/// The names of the variables that the settings give to skills and that are readable now, without
/// values.
fn given(config: &Config) -> BTreeMap<String, GivenNames> {
    let readable = |given: &GivenValue| match given {
        GivenValue::Text(_) => true,
        GivenValue::From(place) => config::read(place).is_ok(),
    };
    let entries = options::skill_environments(config).into_iter();
    entries
        .map(|(name, entry)| {
            let names = entry.env.into_iter();
            let names = names.filter(|(_, given)| readable(given));
            let given = GivenNames {
                names: names.map(|(name, _)| name).collect(),
                key: entry.api_key.as_ref().is_some_and(readable),
            };
            (name, given)
        })
        .collect()
}

fn managed(state: &Path, config: &Config) -> PathBuf {
    let own = || state.join("skills");
    config.skills_managed.clone().unwrap_or_else(own)
}

/// Creates the parts. Also creates the managed folder of skills in the state folder: watching its
/// parent would report every write of the store.
pub fn parts(
    state: &Path,
    (workspace, nodes): (PathBuf, NodesSlot),
    clock: &Clock,
    config: &Config,
    environment: &Environment,
) -> Result<SkillParts, DaemonFailure> {
    if config.skills_managed.is_none() {
        let folder = managed(state, config);
        std::fs::create_dir_all(&folder).map_err(|fault| refused(&folder, fault))?;
    }
    let (settings, followed) = channel::channel(settings(state, config, environment));
    let more = Arc::new(Notify::new());
    let library = Arc::new(Library::new(skill::LibraryOptions {
        settings: followed,
        workspace: Some(workspace),
        nodes,
        project: agent::project,
        watch_more: Arc::clone(&more),
        clock: clock.clone(),
    }));
    let looking = Arc::clone(&library);
    let look = Arc::new(move || looking.look());
    Ok(SkillParts {
        watcher: Watcher::over(look, None, more, watching(config), clock.clone()),
        library,
        settings,
    })
}

/// The options of the watcher for skill folders.
fn watching(config: &Config) -> watch::WatchOptions {
    watch::WatchOptions {
        mode: match config.skills_watch {
            FileWatch::Events => watch::WatchMode::Events,
            FileWatch::Poll => watch::WatchMode::Poll(config.skills_poll_each),
            FileWatch::Off => watch::WatchMode::Off,
        },
        quiet: config.skills_debounce,
        longest: LONGEST_BURST.max(config.skills_debounce),
        file: Some(skill::FILE),
    }
}

/// Scans the skills at start, whenever the watcher reports a change, and repeatedly while some
/// cannot be read, until `stop`. A scan in progress is finished.
pub async fn keep(
    registry: Registry,
    library: Arc<Library>,
    mut watcher: Watcher,
    has_changed: Arc<Notify>,
    stop: CancellationToken,
) {
    let mut reason = SkillsReason::Start;
    let heard = watcher.heard();
    loop {
        let changed = registry.skills_changed(reason).await.unwrap_or_else(|fault| {
            tracing::error!(%fault, "a change of skills could not be recorded; the next change records it");
            false
        });
        has_changed.notify_one();
        // Agents may depend on added or removed skills.
        if changed && let Err(fault) = registry.reload_agents(ReloadReason::Watch).await {
            tracing::error!(%fault, "the agents could not be reloaded; the previous ones stay in force");
        }
        reason = SkillsReason::Watch;
        let mut changed = std::pin::pin!(watcher.changed());
        loop {
            let unread = !library.unread().is_empty();
            tokio::select! {
                () = &mut changed => break,
                // The watcher scans, and reports if it found changes.
                () = tokio::time::sleep(UNREAD_AGAIN), if unread => heard.notify_one(),
                () = stop.cancelled() => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn g6_13_without_a_word_about_it_a_burst_ends_after_250_ms_of_quiet_or_2_s() {
        let options = watching(&Config::default());
        assert_eq!(options.mode, watch::WatchMode::Events);
        assert_eq!(options.quiet, Duration::from_millis(250));
        assert_eq!(options.longest, Duration::from_secs(2));
    }

    #[test]
    fn whoever_waits_for_longer_quiet_waits_no_less_while_changes_keep_coming() {
        let options = watching(&Config {
            skills_debounce: Duration::from_secs(5),
            ..Config::default()
        });
        assert_eq!(options.quiet, Duration::from_secs(5));
        assert_eq!(options.longest, Duration::from_secs(5));
    }
}
