//! Renders the units of systemd from those in `packaging/systemd`, and reads back what was recorded.

use std::fmt::Write as _;

use super::manager::InstallScope;
use super::paths;
use super::plan::{HardeningProfile, ServicePlan};

const USER: &str = include_str!("../../../../packaging/systemd/user/abide.service");
const MACHINE: &str = include_str!("../../../../packaging/systemd/abide.service");
const STRICT: &str = include_str!("../../../../packaging/systemd/hardening-strict.conf");
const USER_SOCKET: &str = include_str!("../../../../packaging/systemd/user/abide.socket");
const MACHINE_SOCKET: &str = include_str!("../../../../packaging/systemd/abide.socket");

/// Beginning of the line that has the plan as JSON.
const RECORD: &str = "# abide service install: ";

/// The service unit as it is shipped.
pub(super) fn shipped(scope: InstallScope) -> &'static str {
    match scope {
        InstallScope::User => USER,
        InstallScope::Machine => MACHINE,
    }
}

/// Is the text the shipped unit, with any path of the program?
pub(super) fn is_shipped(scope: InstallScope, text: &str) -> bool {
    let plain = |text: &str| {
        let lines = text
            .lines()
            .map(|line| match line.strip_prefix("ExecStart=") {
                Some(command) => command
                    .split_once(' ')
                    .map_or("", |(_, rest)| rest)
                    .to_owned(),
                None => line.to_owned(),
            });
        lines.collect::<Vec<_>>()
    };
    plain(text) == plain(shipped(scope))
}

/// The text of the service unit: the shipped one with the program, the folders and the variables of the
/// plan, and the plan itself in the first line.
pub(super) fn service(scope: InstallScope, plan: &ServicePlan) -> String {
    let mut text = record(plan);
    for line in shipped(scope).lines() {
        if line.starts_with("ExecStart=") {
            push(&mut text, &format!("ExecStart={}", command(scope, plan)));
            for (name, value) in &plan.environment {
                let assignment = format!("{name}={value}");
                push(&mut text, &format!("Environment={}", quoted(&assignment)));
            }
        } else {
            push(&mut text, line);
        }
    }
    if scope == InstallScope::Machine && plan.hardening == HardeningProfile::Strict {
        text.push('\n');
        text.push_str(STRICT);
    }
    text
}

/// The text of the socket unit; `None` without socket activation.
pub(super) fn socket(scope: InstallScope, plan: &ServicePlan) -> Option<String> {
    if plan.listen.is_empty() {
        return None;
    }
    let shipped = match scope {
        InstallScope::User => USER_SOCKET,
        InstallScope::Machine => MACHINE_SOCKET,
    };
    let mut text = String::new();
    let mut is_written = false;
    for line in shipped.lines() {
        if !line.starts_with("ListenStream=") {
            push(&mut text, line);
        } else if !std::mem::replace(&mut is_written, true) {
            for address in &plan.listen {
                push(&mut text, &format!("ListenStream={}", escaped(address)));
            }
        }
    }
    Some(text)
}

/// The plan in the text of an installed service unit.
pub(super) fn recorded(text: &str) -> Option<ServicePlan> {
    let json = text.lines().find_map(|line| line.strip_prefix(RECORD))?;
    serde_json::from_str(json).ok()
}

fn record(plan: &ServicePlan) -> String {
    // Strings only, so it always has a JSON form.
    let json = serde_json::to_string(plan).expect("a plan is plain data");
    format!("{RECORD}{json}\n")
}

fn push(text: &mut String, line: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// The command line of the service.
fn command(scope: InstallScope, plan: &ServicePlan) -> String {
    let mut words = vec![plan.program.display().to_string(), "serve".to_owned()];
    let state = match (scope, &plan.state_dir) {
        (_, Some(state)) => Some(state.display().to_string()),
        (InstallScope::Machine, None) => Some(paths::MACHINE_STATE.to_owned()),
        (InstallScope::User, None) => None,
    };
    for (flag, value) in [
        ("--state-dir", state),
        (
            "--config",
            plan.config.as_ref().map(|file| file.display().to_string()),
        ),
    ] {
        words.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
    }
    // A dollar sign would begin a variable.
    let words = words.iter().map(|word| quoted(word).replace('$', "$$"));
    words.collect::<Vec<_>>().join(" ")
}

/// A word as systemd reads it: quoted if necessary, without specifiers.
fn quoted(word: &str) -> String {
    let plain = |ch: char| ch.is_ascii_alphanumeric() || "/._-+:=,@~%$".contains(ch);
    let word = escaped(word);
    if !word.is_empty() && word.chars().all(plain) {
        return word;
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}

fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    pub(crate) fn plan() -> ServicePlan {
        ServicePlan {
            program: "/usr/local/bin/abide".into(),
            state_dir: None,
            config: None,
            environment: BTreeMap::new(),
            hardening: HardeningProfile::Standard,
            listen: Vec::new(),
        }
    }

    fn line<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
        text.lines()
            .filter(|line| line.starts_with(start))
            .collect()
    }

    #[test]
    fn a_unit_is_the_shipped_one_with_what_the_plan_says() {
        let text = service(InstallScope::User, &plan());
        assert_eq!(
            line(&text, "ExecStart="),
            ["ExecStart=/usr/local/bin/abide serve"]
        );
        let rest = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with("ExecStart="));
            lines
                .filter(|line| !line.starts_with(RECORD))
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(rest(&text), rest(USER));
        let machine = service(InstallScope::Machine, &plan());
        assert_eq!(
            line(&machine, "ExecStart="),
            ["ExecStart=/usr/local/bin/abide serve --state-dir /var/lib/abide"]
        );
        assert_eq!(rest(&machine), rest(MACHINE));
        assert_eq!(socket(InstallScope::User, &plan()), None);
        // A package has its own path of the program, and nothing else.
        let packaged = MACHINE.replace("/usr/local/bin/abide", "/usr/bin/abide");
        assert!(is_shipped(InstallScope::Machine, &packaged));
        let changed = packaged.replace("UMask=0077", "UMask=0022");
        assert!(!is_shipped(InstallScope::Machine, &changed));
        assert!(!is_shipped(InstallScope::User, &packaged));
    }

    #[test]
    fn whatever_a_path_has_in_it_reaches_the_program_as_one_word() {
        let mut odd = plan();
        odd.state_dir = Some("/srv/my state/100%/$HOME/\"q\"\\".into());
        odd.environment
            .insert("PATH".to_owned(), "/opt/my tools/bin:/usr/bin".to_owned());
        let text = service(InstallScope::User, &odd);
        assert_eq!(
            line(&text, "ExecStart="),
            [
                r#"ExecStart=/usr/local/bin/abide serve --state-dir "/srv/my state/100%%/$$HOME/\"q\"\\""#
            ]
        );
        assert_eq!(
            line(&text, "Environment=\""),
            [r#"Environment="PATH=/opt/my tools/bin:/usr/bin""#]
        );
        assert_eq!(recorded(&text), Some(odd));
    }

    #[test]
    fn the_strict_profile_is_appended_and_sockets_are_those_of_the_plan() {
        let mut strict = plan();
        strict.hardening = HardeningProfile::Strict;
        strict.listen = vec!["/run/a%b.sock".to_owned(), "127.0.0.1:7000".to_owned()];
        let text = service(InstallScope::Machine, &strict);
        assert_eq!(
            line(&text, "MemoryDenyWriteExecute="),
            ["MemoryDenyWriteExecute=yes"]
        );
        let socket = socket(InstallScope::Machine, &strict).unwrap();
        assert_eq!(
            line(&socket, "ListenStream="),
            ["ListenStream=/run/a%%b.sock", "ListenStream=127.0.0.1:7000"]
        );
        assert_eq!(recorded(&text), Some(strict));
        assert_eq!(recorded(USER), None);
    }
}
