//! Parser of a line in `abide chat`: a slash command, or a message for the agent.

/// A slash command; none of them is sent to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlashCommand {
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
pub(super) enum ChatLine {
    /// Only whitespace.
    Blank,
    /// A slash command.
    Command(SlashCommand),
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
pub(super) fn read(typed: &str) -> ChatLine {
    let text = typed.trim();
    if text.is_empty() {
        return ChatLine::Blank;
    }
    if matches!(text, "exit" | "quit") {
        return ChatLine::Command(SlashCommand::Quit);
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
            command(name, argument)
                .map_or_else(|| ChatLine::Unknown(word.to_owned()), ChatLine::Command)
        }
        // A path is not a command.
        _ => ChatLine::Message(text.to_owned()),
    }
}

fn command(name: &str, argument: Option<String>) -> Option<SlashCommand> {
    Some(match name {
        "help" | "?" => SlashCommand::Help,
        "new" => SlashCommand::New(argument),
        "agent" => SlashCommand::Agent(argument),
        "model" => SlashCommand::Model(argument),
        "thinking" => SlashCommand::Thinking(argument),
        "sessions" => SlashCommand::Sessions,
        "attach" => SlashCommand::Attach(argument),
        "compact" => SlashCommand::Compact,
        "usage" => SlashCommand::Usage,
        "quit" | "exit" => SlashCommand::Quit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_a_message() {
        for (typed, line) in [
            (" \n", ChatLine::Blank),
            ("/agent", ChatLine::Command(SlashCommand::Agent(None))),
            (
                "/agent  review \n",
                ChatLine::Command(SlashCommand::Agent(Some("review".into()))),
            ),
            ("exit", ChatLine::Command(SlashCommand::Quit)),
            ("/exit", ChatLine::Command(SlashCommand::Quit)),
            ("/agents are nice", ChatLine::Unknown("/agents".into())),
            (
                "/etc/hosts is odd",
                ChatLine::Message("/etc/hosts is odd".into()),
            ),
            (" /new thing", ChatLine::Message("/new thing".into())),
            (
                "what is /agent?",
                ChatLine::Message("what is /agent?".into()),
            ),
            ("exit code 3?", ChatLine::Message("exit code 3?".into())),
        ] {
            assert_eq!(read(typed), line, "{typed:?}");
        }
    }

    #[test]
    fn each_listed_command_is_one() {
        for (name, ..) in COMMANDS {
            assert!(matches!(read(name), ChatLine::Command(_)), "{name}");
        }
    }
}
