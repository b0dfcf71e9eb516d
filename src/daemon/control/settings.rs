//! The settings in force, and how a reload passes new ones to the parts that follow them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::agent;
use crate::clock::Clock;
use crate::config::{Config, HookTables, Loaded, OpenAiOptions, SettingsSource, is_live, shown};
use crate::contract::control::{
    EffectiveSettings, ModelProvider, Reloaded, Setting, SettingChange,
};
use crate::contract::servers::ServerViews;
use crate::daemon::listen::tls::GatewayCertificate;
use crate::daemon::notifications;
use crate::daemon::parts::{self, options};
use crate::gateway;
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::policy::env::Environment;
use crate::kernel::text::open_ended;
use crate::provider::Providers;
use crate::registry::{Registry, ReloadReason, SkillsReason};
use crate::runner;
use crate::skill;
use crate::store::Store;
use crate::tool::McpServers;
use crate::webhooks::WebhookTables;

/// The settings in force and the parts that follow them.
pub struct InForce {
    source: SettingsSource,
    state: Mutex<LoadedSettings>,
    /// Serializes reloads.
    turn: tokio::sync::Mutex<()>,
    followers: Followers,
}

struct LoadedSettings {
    running: Loaded,
    /// The settings that the next start would apply.
    next: Config,
}

/// The parts that accept new settings at run time.
pub struct Followers {
    /// Spawn limits, recovery and other settings of store commands.
    pub store: Store,
    /// What is notified, and by which command.
    pub notifications: watch::Sender<notifications::NotifySettings>,
    /// The webhooks.
    pub webhooks: watch::Sender<WebhookTables>,
    /// Lanes, limits and timeouts.
    pub registry: Registry,
    /// The drain timeout, which only a start changes.
    pub drain_timeout: Duration,
    /// Host names and origins that clients may use.
    pub names: watch::Sender<gateway::Names>,
    /// What clients of the OpenAI-compatible API see.
    pub openai: watch::Sender<OpenAiOptions>,
    /// The inbound webhooks.
    pub hooks: watch::Sender<HookTables>,
    /// Timeouts and other settings of steps.
    pub runner: watch::Sender<runner::RunnerOptions>,
    /// The model providers.
    pub providers: Arc<Providers>,
    /// The tool servers.
    pub servers: McpServers,
    /// The models that agents may use.
    pub models: watch::Sender<agent::AvailableModels>,
    /// The settings of skills.
    pub skills: watch::Sender<skill::SkillSettings>,
    /// The state folder.
    pub folder: PathBuf,
    /// The base environment of programs.
    pub environment: Environment,
    /// Used to validate new settings.
    pub clock: Clock,
    /// The certificate of TCP connections, with TLS.
    pub certificate: Option<Arc<GatewayCertificate>>,
}

impl InForce {
    /// `running` was read from `source` and is already applied to the parts.
    pub fn new(source: SettingsSource, running: Loaded, followers: Followers) -> Self {
        let next = running.config.clone();
        InForce {
            source,
            state: Mutex::new(LoadedSettings { running, next }),
            turn: tokio::sync::Mutex::default(),
            followers,
        }
    }

    /// The settings in force, and those that take effect at the next start.
    pub fn show(&self) -> EffectiveSettings {
        let state = self.lock();
        let waiting = |key: &str| {
            let next = state.next.value(key);
            let differs = next != state.running.config.value(key);
            differs.then(|| shown(key, next.as_ref()))
        };
        let settings = state.running.shown().map(|setting| Setting {
            pending: waiting(&setting.key),
            key: setting.key,
            value: setting.value,
            source: setting.origin.kind().into(),
            from: setting.origin.name().map(str::to_owned),
            live: setting.live,
        });
        EffectiveSettings {
            settings: settings.collect(),
            file: state.running.file_name(),
            warnings: state.running.warnings.clone(),
        }
    }

    /// The model providers.
    pub fn providers(&self) -> Vec<ModelProvider> {
        self.followers.providers.shown()
    }

    /// Why inbound webhooks cannot be used at present, by the name of each.
    pub fn hook_problems(&self) -> BTreeMap<String, String> {
        let hooks = self.lock().running.config.named.hooks.clone();
        let problems = hooks.into_iter().filter_map(|(name, hook)| {
            let why = hook.read_secret().err()?;
            Some((name, format!("secret: {why}")))
        });
        problems.collect()
    }

    /// The tool servers.
    pub fn servers(&self) -> Arc<ServerViews> {
        Arc::clone(&self.followers.servers.seen().borrow())
    }

    /// Reads the source again. Once this returns, every change that needs no restart is applied.
    pub async fn reload(&self) -> Result<Reloaded, Fault> {
        let _turn = self.turn.lock().await;
        let fresh = self.source.load().map_err(|fault| {
            Fault::new(
                Kind::Conflict,
                format!(
                    "{}. The settings in force are unchanged",
                    open_ended(&fault.to_string())
                ),
            )
            .hint("correct it (abide config check) and reload again")
        })?;
        parts::check_models(&fresh.config, &self.followers.clock)?;
        let mut running = self.lock().running.clone();
        let mut reloaded = Reloaded {
            warnings: fresh.warnings.clone(),
            ..Reloaded::default()
        };
        // A table may be new, or may have been removed.
        let mut keys = running.config.keys();
        let new = fresh.config.keys();
        keys.extend(new.into_iter().filter(|key| !running.config.has(key)));
        for key in keys {
            let (before, after) = (running.config.value(&key), fresh.config.value(&key));
            if before == after {
                reloaded.unchanged += 1;
                running.take_from(&fresh, &key)?;
                continue;
            }
            let live = is_live(&key);
            if live {
                running.take_from(&fresh, &key)?;
            }
            let change = SettingChange {
                before: shown(&key, before.as_ref()),
                after: shown(&key, after.as_ref()),
                key,
            };
            if live {
                reloaded.applied.push(change);
            } else {
                reloaded.needs_restart.push(change);
            }
        }
        running.take_named_from(&fresh);
        running.file = fresh.file;
        running.warnings = fresh.warnings;
        self.hand_on(&running.config).await?;
        if let Some(certificate) = &self.followers.certificate
            && let Err(why) = certificate.reload().await
        {
            reloaded.warnings.push(why);
        }
        let mut state = self.lock();
        state.running = running;
        state.next = fresh.config;
        Ok(reloaded)
    }

    async fn hand_on(&self, config: &Config) -> Result<(), Fault> {
        let parts = &self.followers;
        let others = {
            // Agents may depend on providers and tool servers.
            let known = self.lock();
            let (known, named) = (&known.running.config.named, &config.named);
            (&known.providers, &known.mcp) != (&named.providers, &named.mcp)
        };
        parts.store.configure(options::of_store(config)).await?;
        let options = options::of_registry(config, parts.drain_timeout);
        parts.registry.configure(options);
        parts.names.send_replace(options::names(config));
        parts.openai.send_replace(options::openai(config));
        parts.hooks.send_replace(options::hooks(config));
        parts.runner.send_replace(options::of_runner(config));
        let notifications = notifications::NotifySettings::of(config);
        parts.notifications.send_if_modified(|known| {
            let changed = *known != notifications;
            *known = notifications;
            changed
        });
        parts.webhooks.send_if_modified(|known| {
            let changed = *known != config.named.webhooks;
            known.clone_from(&config.named.webhooks);
            changed
        });
        let other = {
            let known = self.lock();
            known.running.config.named.providers != config.named.providers
        };
        parts.providers.configure(&config.named.providers);
        if other {
            parts.registry.providers_configured().await?;
        }
        parts.servers.configure(&config.named.mcp).await;
        let programs = Arc::clone(&parts.models.borrow().programs);
        let models = parts::models(config, &parts.providers, programs);
        let changed = parts.models.send_if_modified(|known| {
            let changed = !known.is_like(&models);
            *known = models;
            changed
        });
        let skills = parts::skills::settings(&parts.folder, config, &parts.environment);
        let other = parts.skills.send_if_modified(|known| {
            let other = *known != skills;
            *known = skills;
            other
        });
        if other {
            parts.registry.skills_changed(SkillsReason::Config).await?;
        }
        if changed || others || other {
            // The cached state of each agent may be outdated.
            parts.registry.reload_agents(ReloadReason::Manual).await?;
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, LoadedSettings> {
        // The state is replaced as a whole, so it is consistent even if the lock is poisoned.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
