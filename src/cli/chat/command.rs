//! Parser of a line in `abide chat`: a slash command, or a message for the agent.

/// A slash command; none of them is sent to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    New(Option<String>),
    Agent(Option<String>),
    Model(Option<String>),
    Thinking(Option<String>),
    Sessions,
    Attach(Option<String>),
    Compact,
    Usage,
    Quit,
}

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Only whitespace.
    Blank,
    /// A slash command.
    Command(Command),
    /// Looks like a command, but no command has this name.
    Unknown(String),
    /// A message for the agent.
    Message(String),
}

/// Name, argument and purpose of each command, as `/help` lists them.
pub(super) const COMMANDS: [(&str, &str, &str); 10] = [
    ("/help", "", "list these commands and keys"),
    ("/new", "[NAME]", "begin a new session with this agent"),
    (
        "/agent",
        "[NAME]",
        "list the agents, or talk with one in a session of its own",
    ),
    (
        "/model",
        "[MODEL]",
        "show or set the session's model; default: the agent's",
    ),
    (
        "/thinking",
        "[LEVEL]",
        "show or set how much the model thinks; default: the agent's",
    ),
    ("/sessions", "", "list the sessions that you can continue"),
    (
        "/attach",
        "[SESSION]",
        "continue another session, or follow the running turn of this one",
    ),
    (
        "/compact",
        "",
        "shorten what the model sees of this session; the transcript is kept",
    ),
    ("/usage", "", "show what this session has used"),
    ("/quit", "", "quit (also: exit, Ctrl-D)"),
];

/// Keys and their effects, as `/help` lists them.
pub(super) const KEYS: [(&str, &str); 6] = [
    (
        "Enter",
        "send; a line that ends with \\ continues on the next one",
    ),
    (
        "Alt-Enter",
        "begin a new line; pasted text stays one message",
    ),
    ("Tab", "complete /commands, their arguments, and @files"),
    ("↑ ↓ Ctrl-R", "messages that you sent in this folder before"),
    (
        "Ctrl-C",
        "stop the running turn; twice: detach, and it continues",
    ),
    ("Ctrl-D", "quit; running turns continue"),
];

/// Parses a typed line.
pub(super) fn read(typed: &str) -> Line {
    let text = typed.trim();
    if text.is_empty() {
        return Line::Blank;
    }
    if matches!(text, "exit" | "quit") {
        return Line::Command(Command::Quit);
    }
    // A leading blank makes it a message, whatever it looks like.
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let is_word = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|ch| ch.is_alphanumeric() || matches!(ch, '-' | '_' | '?'))
    };
    match word.strip_prefix('/') {
        Some(name) if is_word(name) && !typed.starts_with(char::is_whitespace) => {
            let argument = Some(rest.trim().to_owned()).filter(|rest| !rest.is_empty());
            command(name, argument).map_or_else(|| Line::Unknown(word.to_owned()), Line::Command)
        }
        // A path is not a command.
        _ => Line::Message(text.to_owned()),
    }
}

fn command(name: &str, argument: Option<String>) -> Option<Command> {
    Some(match name {
        "help" | "?" => Command::Help,
        "new" => Command::New(argument),
        "agent" => Command::Agent(argument),
        "model" => Command::Model(argument),
        "thinking" => Command::Thinking(argument),
        "sessions" => Command::Sessions,
        "attach" => Command::Attach(argument),
        "compact" => Command::Compact,
        "usage" => Command::Usage,
        "quit" | "exit" => Command::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_a_message() {
        for (typed, line) in [
            (" \n", Line::Blank),
            ("/agent", Line::Command(Command::Agent(None))),
            (
                "/agent  review \n",
                Line::Command(Command::Agent(Some("review".into()))),
            ),
            ("exit", Line::Command(Command::Quit)),
            ("/exit", Line::Command(Command::Quit)),
            ("/agents are nice", Line::Unknown("/agents".into())),
            (
                "/etc/hosts is odd",
                Line::Message("/etc/hosts is odd".into()),
            ),
            (" /new thing", Line::Message("/new thing".into())),
            ("what is /agent?", Line::Message("what is /agent?".into())),
            ("exit code 3?", Line::Message("exit code 3?".into())),
        ] {
            assert_eq!(read(typed), line, "{typed:?}");
        }
    }

    #[test]
    fn each_listed_command_is_one() {
        for (name, ..) in COMMANDS {
            assert!(matches!(read(name), Line::Command(_)), "{name}");
        }
    }
}
