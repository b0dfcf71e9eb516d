//! Translates the daemon's hints to the command line: its errors name methods, users type commands.
//! Used where an error of the daemon becomes a message.

/// The command for each method. A method that is missing here has no command of its own.
const COMMANDS: [(&str, &str); 53] = [
    ("agent.run", "abide chat"),
    ("agent.wait", "abide wait"),
    ("agents.create", "abide agents create"),
    ("agents.delete", "abide agents delete"),
    ("agents.get", "abide agents show"),
    ("agents.list", "abide agents"),
    ("agents.reload", "abide agents reload"),
    ("approvals.forget", "abide approvals forget"),
    ("approvals.list", "abide approvals"),
    ("approvals.remembered", "abide approvals remembered"),
    ("approvals.resolve", "abide approvals allow"),
    ("events.subscribe", "abide events"),
    ("gateway.audit", "abide audit"),
    ("gateway.backup", "abide backup"),
    ("gateway.config", "abide config show"),
    ("gateway.doctor", "abide doctor"),
    ("gateway.drain", "abide stop"),
    ("gateway.reload", "abide config reload"),
    ("gateway.status", "abide status"),
    ("mcp.list", "abide mcp"),
    ("memory.delete", "abide memory delete"),
    ("memory.list", "abide memory"),
    ("memory.search", "abide memory search"),
    ("questions.answer", "abide answer"),
    ("questions.list", "abide answer"),
    ("runs.cancel", "abide cancel"),
    ("runs.dismiss_announce", "abide inbox --dismiss"),
    ("runs.get", "abide wait"),
    ("runs.list", "abide ps"),
    ("runs.provide_env", "abide env"),
    ("runs.resolve", "abide review"),
    ("runs.retry", "abide retry"),
    ("runs.retry_announce", "abide inbox --retry"),
    ("runs.steer", "abide steer"),
    ("runs.steps", "abide logs"),
    ("sessions.ack", "abide inbox --ack"),
    ("sessions.cancel", "abide cancel"),
    ("sessions.compact", "abide sessions compact"),
    ("sessions.delete", "abide sessions delete"),
    ("sessions.get", "abide sessions"),
    ("sessions.history", "abide history"),
    ("sessions.inbox", "abide inbox"),
    ("sessions.list", "abide sessions"),
    ("sessions.patch", "abide sessions patch"),
    ("sessions.reset", "abide sessions reset"),
    ("sessions.send", "abide send"),
    ("sessions.spawn", "abide spawn"),
    ("skills.list", "abide skills"),
    ("skills.refresh", "abide skills refresh"),
    ("trust.add", "abide trust"),
    ("trust.list", "abide trust"),
    ("trust.revoke", "abide trust --revoke"),
    ("usage.summary", "abide usage"),
];

/// Replaces methods by commands in a hint of the daemon.
pub(crate) fn in_commands(hint: &str) -> String {
    let mut told = String::with_capacity(hint.len());
    let mut word = String::new();
    for ch in hint.chars().chain([' ']) {
        // The characters of a method's name.
        if ch.is_ascii_lowercase() || matches!(ch, '.' | '_') {
            word.push(ch);
            continue;
        }
        told.push_str(&command(&word));
        word.clear();
        told.push(ch);
    }
    told.pop();
    told
}

/// The command for a method; any other word is unchanged.
fn command(word: &str) -> String {
    let bare = word.trim_end_matches('.');
    match COMMANDS.iter().find(|(method, _)| *method == bare) {
        Some((_, command)) => format!("{command}{}", &word[bare.len()..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::help;

    #[test]
    fn a_hint_names_commands() {
        for (told, read) in [
            (
                "wait for it (agent.wait), or cancel it first (runs.cancel)",
                "wait for it (abide wait), or cancel it first (abide cancel)",
            ),
            ("its result: runs.get.", "its result: abide wait."),
            (
                "raise defaults.max_client_children, or sessions.visibility",
                "raise defaults.max_client_children, or sessions.visibility",
            ),
            ("子 runs.list", "子 abide ps"),
        ] {
            assert_eq!(in_commands(told), read);
        }
    }

    #[test]
    fn every_command_is_there() {
        let top = help::command_with_help();
        for (method, command) in COMMANDS {
            let mut words = command.split(' ').skip(1);
            let name = words.next().unwrap();
            let found = top.find_subcommand(name);
            let found = found.unwrap_or_else(|| panic!("{method}: {command}"));
            for word in words {
                let is_there = match word.strip_prefix("--") {
                    Some(flag) => found.get_arguments().any(|of| of.get_long() == Some(flag)),
                    None => found.find_subcommand(word).is_some(),
                };
                assert!(is_there, "{method}: {command}");
            }
        }
    }
}
