//! The environments of runs: composed when a run is created, encrypted into its rows, rebuilt from
//! them each time it takes a slot, and tracked until no process holds them. The rules are in
//! [`crate::kernel::policy::overlay`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::options::SkillEnvironment;
use super::{Principal, Registry, RegistryInner};
use crate::command::{LackEnvironment, ProvideEnvironment, RestoreEnvironment, StepRef};
use crate::config;
use crate::contract::catalog::Resolved;
use crate::contract::journal::{RunEnvironment, RunView};
use crate::contract::skills::{PinnedSkill, SOURCES, SkillPin};
use crate::kernel::fault::{Fault, Kind};
use crate::kernel::ids::RunId;
use crate::kernel::policy::overlay;
use crate::kernel::policy::overlay::{EnvName, Giver, Overlay, REQUEST, SkillEnv};
use crate::kernel::run::Run;
use crate::kernel::run::step::Step;
use crate::kernel::secret::{GivenValue, Secret};
use crate::kernel::text::redact::Redactor;
use crate::registry::api::agents::off_thread;
use crate::registry::api::answer::RunDetail;
use crate::store::tables::environment;
use crate::store::tables::environment::{NewEnvironment, StoredValue};

/// Skill sources inside the project or on another machine, which are untrusted.
const OF_PROJECT: [&str; 3] = ["project", "workspace", "node"];
/// Maximum number of checks for processes of an ended run; later checks happen with the comparison
/// of rows and tasks.
const LOOKS: u32 = 40;
/// Pause between two of these checks.
const PAUSE: Duration = Duration::from_millis(50);

impl RegistryInner {
    /// The agent as a run pins it, with the environment that it and its skills contribute.
    pub(super) fn with_environment(&self, mut resolved: Resolved) -> Resolved {
        let options = self.options();
        let pinned = match &resolved.skills {
            Some(SkillPin::Now(now)) if !options.skills.is_empty() => {
                now.picked.set.skills.as_slice()
            }
            _ => &[],
        };
        let skills: Vec<SkillEnv> = pinned
            .iter()
            .map(|skill| of_skill(skill, &options.skills, &mut resolved.warnings))
            .collect();
        if resolved.env.env.is_empty() && skills.is_empty() {
            return resolved;
        }
        let mut overlay = overlay::build_overlay(&self.environment.names(), &resolved.env, &skills);
        for (name, laid) in &overlay.values {
            if let GivenValue::From(place) = &laid.given
                && let Err(why) = config::read(place)
            {
                resolved.warnings.push(format!(
                    "environment: {name}: {why}; the run will pause when it starts a program"
                ));
            }
        }
        resolved.warnings.append(&mut overlay.warnings);
        resolved.overlay = overlay;
        resolved
    }

    /// The environment of a new run in its stored form.
    pub(super) fn sealed(&self, run: RunId, overlay: &Overlay) -> Result<NewEnvironment, Fault> {
        let values = overlay.values.iter();
        let values = values.map(|(name, laid)| self.stored(run, name, &laid.given, laid.secret));
        Ok(NewEnvironment {
            names: overlay.names(),
            values: values.collect::<Result<_, _>>()?,
        })
    }

    fn stored(
        &self,
        run: RunId,
        name: &str,
        given: &GivenValue,
        secret: bool,
    ) -> Result<StoredValue, Fault> {
        let (reference, sealed) = match given {
            GivenValue::From(place) => (Some(place.clone()), None),
            GivenValue::Text(text) => (None, Some(self.seal.close(run, name, text)?)),
        };
        Ok(StoredValue {
            name: name.to_owned(),
            secret,
            reference,
            sealed,
            missing_reason: None,
        })
    }

    /// Builds the environment of the run's programs from its rows.
    pub(super) async fn environment_of(
        self: &Arc<Self>,
        run: &Run,
    ) -> Result<Arc<RunEnvironment>, Fault> {
        if run.env.is_empty() {
            return Ok(Arc::clone(&self.plain));
        }
        let (inner, run) = (Arc::clone(self), run.clone());
        // References may point to files, which are read here.
        off_thread(move || {
            let stored = inner.store.read_now(|tx| environment::of(tx, run.id))?;
            let mut made = RunEnvironment {
                variables: inner.environment.clone(),
                ..RunEnvironment::default()
            };
            let mut secrets: Vec<(&str, Secret)> = Vec::new();
            for EnvName { name, .. } in &run.env {
                let stored = stored.iter().find(|value| value.name == *name);
                match inner.value(run.id, name, stored) {
                    Ok(value) => {
                        made.variables = made.variables.with(name, value.expose());
                        if stored.is_none_or(|stored| stored.secret) {
                            secrets.push((name, value));
                        }
                    }
                    Err(why) => made.missing.push((name.clone(), why)),
                }
            }
            made.redactor = Redactor::new(secrets.iter().map(|(name, value)| (*name, value)));
            Ok(Arc::new(made))
        })
        .await
    }

    /// The value of a name of the run, or the reason why it is missing.
    fn value(
        &self,
        run: RunId,
        name: &str,
        stored: Option<&StoredValue>,
    ) -> Result<Secret, String> {
        let stored = stored.ok_or("its stored value was lost")?;
        if let Some(place) = &stored.reference {
            return config::read(place);
        }
        let Some(sealed) = &stored.sealed else {
            return Err(
                "the original run got it from the caller, and it is not kept for a retry".into(),
            );
        };
        self.seal.open(run, name, sealed).ok_or_else(|| {
            "it was encrypted with another key than this daemon has (env.key in the state folder, or \
             the credential abide-env-key)"
                .to_owned()
        })
    }

    /// Prepares the environment of a retry of `old`: values that the request passed to that run are
    /// not kept and must be provided again; references are kept.
    pub(super) fn given_before(
        &self,
        old: &Run,
        environment: &mut NewEnvironment,
    ) -> Result<(), Fault> {
        if old.env.iter().all(|one| one.from != REQUEST) {
            return Ok(());
        }
        let stored = self.store.read_now(|tx| environment::of(tx, old.id))?;
        for one in old.env.iter().filter(|one| one.from == REQUEST) {
            environment.names.retain(|known| known.name != one.name);
            environment.values.retain(|known| known.name != one.name);
            environment.names.push(one.clone());
            let before = stored.iter().find(|known| known.name == one.name);
            environment.values.push(StoredValue {
                name: one.name.clone(),
                secret: before.is_none_or(|before| before.secret),
                reference: before.and_then(|before| before.reference.clone()),
                sealed: None,
                missing_reason: None,
            });
        }
        Ok(())
    }

    /// Once this returns, the step waits for the missing values of its run's environment, unless
    /// they were provided meanwhile.
    pub(super) async fn lack(self: &Arc<Self>, view: &RunView, step: &Step) -> Result<(), Fault> {
        let command = LackEnvironment {
            by: StepRef {
                run: step.run,
                step: step.seq,
                attempt: step.attempts,
            },
            lacks: view.environment.missing.clone(),
        };
        super::drive::submit(self, command).await?;
        // The missing values may have been provided since this task read them.
        self.go_on_if_whole(&view.run).await
    }

    /// Releases the steps that wait for values if none is missing any more. It is called after
    /// every commit that makes a step wait or provides a value, so the later of the two sees both.
    async fn go_on_if_whole(self: &Arc<Self>, run: &Run) -> Result<(), Fault> {
        if !self.environment_of(run).await?.missing.is_empty() {
            return Ok(());
        }
        let command = ProvideEnvironment {
            org: run.org.clone(),
            run: run.id,
            values: Vec::new(),
            complete: true,
        };
        match self.store.submit_waiting(command).await {
            // On a conflict the run has ended meanwhile.
            Ok(_) => Ok(()),
            Err(fault) if fault.kind == Kind::Conflict => Ok(()),
            Err(fault) => Err(fault),
        }
    }
}

/// The environment that the settings give to a skill. A reference that cannot be read is skipped
/// with a warning.
fn of_skill(
    skill: &PinnedSkill,
    entries: &BTreeMap<String, SkillEnvironment>,
    warnings: &mut Vec<String>,
) -> SkillEnv {
    let name = &skill.name;
    let entry = skill.key.as_ref().and_then(|key| entries.get(key));
    let entry = entry.or_else(|| entries.get(name));
    let mut env: BTreeMap<String, GivenValue> = BTreeMap::new();
    if let Some(entry) = entry {
        env.extend(entry.env.clone());
        match (&entry.api_key, &skill.primary_env) {
            (Some(value), Some(primary)) if overlay::is_name(primary) => {
                env.insert(primary.clone(), value.clone());
            }
            (Some(_), _) => warnings.push(format!(
                "environment: skill {name} has an API key in the settings but declares no variable for it"
            )),
            (None, _) => {}
        }
    }
    env.retain(|variable, given| {
        let GivenValue::From(place) = given else {
            return true;
        };
        let read = config::read(place);
        if let Err(why) = &read {
            let told = format!("environment: {variable} of skill {name} is ignored: {why}");
            warnings.push(told);
        }
        read.is_ok()
    });
    let declared = skill.required_env.iter().chain(&skill.primary_env);
    SkillEnv {
        name: name.clone(),
        rank: SOURCES
            .iter()
            .position(|source| *source == skill.source)
            .unwrap_or_default(),
        of_project: OF_PROJECT.contains(&skill.source.as_str()),
        declared: declared.cloned().collect(),
        key: skill.primary_env.clone(),
        env: env.into_iter().collect(),
    }
}

/// Refuses references that cannot be read, with the variable's name.
fn check_readable(env: &BTreeMap<String, GivenValue>) -> Result<(), Fault> {
    for (name, given) in env {
        if let GivenValue::From(place) = given
            && let Err(why) = config::read(place)
        {
            let message = format!("{name}: {why}. Nothing was done");
            return Err(Fault::params("env", message).with("name", name.as_str()));
        }
    }
    Ok(())
}

/// Refuses references of callers that do not operate the daemon: the place of a reference is read as
/// the daemon, with its variables and files.
fn check_references(who: &Principal, env: &BTreeMap<String, GivenValue>) -> Result<(), Fault> {
    let mut given = env.iter();
    let referring = given.find(|(_, given)| matches!(given, GivenValue::From(_)));
    match referring {
        Some((name, _)) if !who.is_operator() && who.run.is_none() => Err(Fault::new(
            Kind::Forbidden,
            format!(
                "the value of {name} is a reference, which is read with the daemon's rights; this \
                 token may only give values; nothing was done"
            ),
        )
        .hint("give the value itself, or use a token of the owner's org with the scope admin")),
        _ => Ok(()),
    }
}

impl Registry {
    /// The agent as a run pins it, with the request's environment values on top.
    pub(super) async fn with_request(
        &self,
        who: &Principal,
        mut resolved: Resolved,
        env: BTreeMap<String, GivenValue>,
    ) -> Result<Resolved, Fault> {
        if env.is_empty() {
            return Ok(resolved);
        }
        let overlay = std::mem::take(&mut resolved.overlay);
        check_references(who, &env)?;
        let giver = match who.with_token && who.is_operator() {
            true => Giver::Operator,
            false => Giver::Other,
        };
        resolved.overlay = overlay.with_request(env.clone(), giver)?;
        off_thread(move || check_readable(&env)).await?;
        Ok(resolved)
    }

    /// Once this returns, the values are stored, and the run continues if nothing is missing. They
    /// take effect the next time the run takes a slot or waits for a value.
    pub async fn provide_env(
        &self,
        who: &Principal,
        id: RunId,
        env: BTreeMap<String, GivenValue>,
    ) -> Result<RunDetail, Fault> {
        let run = self.run(who, id).await?.run;
        check_references(who, &env)?;
        for (name, given) in &env {
            overlay::check(name, given)?;
            if run.env.iter().all(|known| known.name != *name) {
                let names: Vec<&str> = run.env.iter().map(|known| known.name.as_str()).collect();
                let message = format!("run {id} has no {name} in its environment");
                return Err(Fault::params("env", message)
                    .with("name", name.as_str())
                    .hint(match names.is_empty() {
                        true => "it has only the base environment".to_owned(),
                        false => format!("it has {}", names.join(", ")),
                    }));
            }
        }
        let inner = Arc::clone(&self.inner);
        let org = who.org.clone();
        let command = off_thread(move || {
            check_readable(&env)?;
            let stored = inner.store.read_now(|tx| environment::of(tx, id))?;
            let values = env.iter().map(|(name, given)| {
                let before = stored.iter().find(|known| known.name == *name);
                let secret = before.is_none_or(|before| before.secret)
                    || overlay::is_secret(name, REQUEST, given);
                inner.stored(id, name, given, secret)
            });
            let values = values.collect::<Result<Vec<_>, _>>()?;
            let lacks = run.env.iter().any(|known| {
                let kept = stored.iter().find(|one| one.name == known.name);
                !env.contains_key(&known.name) && inner.value(id, &known.name, kept).is_err()
            });
            Ok(ProvideEnvironment {
                org,
                run: id,
                values,
                complete: !lacks,
            })
        })
        .await?;
        let after = self.inner.store.submit(command).await?;
        self.inner.go_on_if_whole(&after.run).await?;
        self.run(who, after.run.id).await
    }
}

/// Waits until no process holds the ended run's environment, then records that. A process that
/// lives longer is checked again with the comparison of rows and tasks.
pub(super) fn until_restored(inner: &Arc<RegistryInner>, tasks: &TaskTracker, run: RunId) {
    let inner = Arc::clone(inner);
    tasks.spawn(async move {
        let mut looks = LOOKS;
        while !inner.processes.of_run(run).await.is_empty() {
            looks -= 1;
            if looks == 0 || inner.drains.is_ending() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
        let command = RestoreEnvironment { run };
        if let Err(fault) = inner.store.submit_waiting(command).await {
            tracing::warn!(%run, %fault, "could not record that the environment is restored; will retry");
        }
    });
}

/// The same for every ended run whose environment a process may still hold: runs of an earlier
/// boot, and runs whose processes could not be stopped.
pub(super) fn look_at_all(inner: &Arc<RegistryInner>, tasks: &TaskTracker) {
    let (inner, all) = (Arc::clone(inner), tasks.clone());
    tasks.spawn(async move {
        match inner
            .store
            .read_for_registry(environment::left_applied)
            .await
        {
            Ok(runs) => {
                for run in runs {
                    until_restored(&inner, &all, run);
                }
            }
            Err(fault) => tracing::warn!(%fault, "could not check the environments of ended runs"),
        }
    });
}
