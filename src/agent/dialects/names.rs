//! Maps names of tools in other programs' agent files to the tools here.

use crate::agent::names::nearest;
use crate::kernel::text::in_quotes;

/// The tools of this program, except linked agents and server tools.
pub(in crate::agent) const OURS: &[&str] = &[
    "read",
    "list",
    "glob",
    "grep",
    "write",
    "edit",
    "shell",
    "node_run",
    "node_read",
    "node_list",
    "fetch",
    "todo",
    "output",
    "skill",
    "task",
    "delegate",
    "agents_list",
    "sessions_spawn",
    "sessions_wait",
    "sessions_send",
    "sessions_list",
    "sessions_history",
    "session_status",
    "sessions_yield",
    "runs_cancel",
    "ask",
    "memory_save",
    "memory_search",
    "command",
];

/// The tools with which an agent delegates.
pub(super) const DELEGATING: &[&str] = &["task", "sessions_spawn"];

/// Names in other programs, lowercase without `-` and `_`, and the tool here.
#[rustfmt::skip]
const THEIRS: &[(&[&str], &str)] = &[
    (&["read", "readfile", "readmanyfiles", "fsread", "view", "viewfile", "openfile", "notebookread"], "read"),
    (&["ls", "list", "listdirectory", "listdir", "listfiles"], "list"),
    (&["glob", "filesearch", "findfiles"], "glob"),
    (&["grep", "search", "searchfilecontent", "grepsearch", "searchfiles", "codesearch", "textsearch"], "grep"),
    (&["write", "writefile", "createfile", "fswrite", "savefile"], "write"),
    (&["edit", "multiedit", "notebookedit", "replace", "strreplace", "strreplaceeditor", "editfile", "editfiles", "applypatch", "patch"], "edit"),
    (&["bash", "shell", "powershell", "runshellcommand", "executebash", "runinterminal", "runcommand", "runcommands", "execute", "terminal"], "shell"),
    (&["webfetch", "fetch", "urlfetch", "fetchwebpage"], "fetch"),
    (&["todo", "todos", "todowrite", "todoread", "writetodos", "taskcreate", "taskupdate", "tasklist", "taskget", "managetodolist"], "todo"),
    (&["skill", "slashcommand", "activateskill"], "skill"),
    (&["askuserquestion", "askuser", "question", "ask"], "ask"),
    (&["savememory"], "memory_save"),
];
/// Tools of other programs without a counterpart here; denying them requires nothing.
#[rustfmt::skip]
const NOTHING: &[&str] = &[
    "websearch", "googlewebsearch", "bashoutput", "killshell", "killbash", "exitplanmode",
    "enterplanmode", "listmcpresources", "listmcpresourcestool", "readmcpresource",
    "readmcpresourcetool", "lsp", "toolsearch", "monitor", "croncreate", "crondelete", "cronlist",
    "enterworktree", "exitworktree", "taskstop", "taskoutput", "sendmessage", "teamcreate", "teamdelete", "codebase", "usages", "problems",
    "changes", "testfailure", "vscodeapi", "think", "externaldirectory", "doomloop",
];

/// A tool as a file names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamedTool {
    /// This tool, or the tools that match this pattern.
    Tool(String),
    /// Calls of the tool that match one of these gate patterns.
    Calls(String, Vec<String>),
    /// Delegation to these agents; to any agent if empty.
    Agents(Vec<String>),
    /// A known tool without a counterpart here.
    Nothing(String),
    /// A call pattern without a counterpart here.
    Unreadable(String),
    /// An unknown tool.
    Unknown(String),
}

/// Normalizes case, `-` and `_` in a name. A leading sign is kept: `-Bash` is not `Bash`.
pub(super) fn key(name: &str) -> String {
    let rest = name.trim_start_matches(|c: char| !c.is_alphanumeric());
    let (sign, rest) = name.split_at(name.len() - rest.len());
    let kept = rest.chars().filter(|c| !matches!(c, '-' | '_' | ' ' | '.'));
    let sign = sign.chars().filter(|c| !matches!(c, '_' | ' '));
    sign.chain(kept.flat_map(char::to_lowercase)).collect()
}

/// Returns the tool that an entry of a list removes (`-Bash`, `!Bash`); an error if it is a word of
/// a sentence (`all except Bash`).
pub(super) fn taken_away(written: &str) -> Result<Option<&str>, String> {
    const WORDS: &[&str] = &[
        "no",
        "not",
        "non",
        "none",
        "never",
        "without",
        "except",
        "excluding",
        "exclude",
        "but",
        "minus",
        "deny",
        "only",
        "and",
        "or",
        "everything",
        "anything",
        "less",
    ];
    let written = written.trim();
    let name = written.split('(').next().unwrap_or(written).trim();
    let word = key(name);
    let is_word = WORDS.contains(&word.as_str());
    let is_alone = word == "none";
    if is_word && !is_alone || word.ends_with(':') {
        return Err(format!(
            "{} is not a tool: name the tools, or use {{deny: [...]}}",
            in_quotes(name, 64)
        ));
    }
    let Some(rest) = written.strip_prefix(['-', '!', '^', '~']) else {
        return Ok(None);
    };
    match rest.trim() {
        "" => Err(format!("{} is not a tool", in_quotes(written, 64))),
        rest => Ok(Some(rest)),
    }
}

/// Parses an entry. With `widens` the entry grants something and must not be read as more than it
/// says; otherwise it restricts something and must not be read as less.
pub(super) fn entry(written: &str, widens: bool) -> NamedTool {
    let written = written.trim();
    let (name, calls) = match written.split_once('(') {
        Some((name, rest)) => (name.trim(), rest.strip_suffix(')').or(Some(rest))),
        None => (written, None),
    };
    let calls = calls
        .map(str::trim)
        .filter(|calls| !matches!(*calls, "" | "*" | "**"));
    if matches!(
        key(name).as_str(),
        "task" | "agent" | "runsubagent" | "newtask"
    ) {
        let named = calls.unwrap_or_default().split(',').map(str::trim);
        return NamedTool::Agents(
            named
                .filter(|one| !one.is_empty())
                .map(str::to_owned)
                .collect(),
        );
    }
    if let Some(served) = served(name) {
        return match calls {
            None => NamedTool::Tool(served),
            Some(_) => NamedTool::Unreadable(written.to_owned()),
        };
    }
    if matches!(key(name).as_str(), "*" | "all" | "alltools") {
        return NamedTool::Tool("*".to_owned());
    }
    let own = OURS.contains(&name).then_some(name);
    let own = own.or_else(|| {
        let found = THEIRS
            .iter()
            .find(|(theirs, _)| theirs.contains(&key(name).as_str()));
        found.map(|(_, own)| *own)
    });
    match (own, calls) {
        (Some(own), None) => NamedTool::Tool(own.to_owned()),
        (Some(own), Some(calls)) => match patterns(own, calls, widens) {
            Some(patterns) => NamedTool::Calls(own.to_owned(), patterns),
            None => NamedTool::Unreadable(written.to_owned()),
        },
        (None, _) if NOTHING.contains(&key(name).as_str()) => NamedTool::Nothing(name.to_owned()),
        // A pattern, a linked agent, or a server tool by its name here.
        (None, None) if is_here(name) => NamedTool::Tool(name.to_owned()),
        (None, _) => NamedTool::Unknown(written.to_owned()),
    }
}

fn is_here(name: &str) -> bool {
    name.contains(['*', '?', '[', '{'])
        || name.contains("__")
        || name.starts_with("subagent_")
        || name.starts_with("call_")
}

/// The name here of a server tool, or of all tools of a server, from the forms of other programs.
fn served(name: &str) -> Option<String> {
    if let Some(rest) = name.strip_prefix("mcp__") {
        return Some(match rest.split_once("__") {
            Some((server, tool)) => format!("{server}__{tool}"),
            None if rest == "*" => "*__*".to_owned(),
            None => format!("{}__*", rest.trim_end_matches('*')),
        });
    }
    if name == "mcp_*" {
        return Some("*__*".to_owned());
    }
    let slashed = name.strip_prefix('@').unwrap_or(name);
    match slashed.split_once('/') {
        Some((server, tool)) if !server.is_empty() && !tool.is_empty() => {
            Some(format!("{server}__{tool}"))
        }
        None if name.starts_with('@') && slashed != "builtin" => Some(format!("{slashed}__*")),
        _ => None,
    }
}

/// Converts the text in parentheses after a tool's name to gate patterns; `None` if it has no
/// counterpart.
pub(super) fn patterns(tool: &str, calls: &str, widens: bool) -> Option<Vec<String>> {
    match tool {
        "shell" => commands(calls, widens),
        "fetch" => calls
            .strip_prefix("domain:")
            .map(|host| vec![host.trim().to_owned()]),
        "read" | "list" | "glob" | "grep" | "write" | "edit" if widens => open_paths(calls),
        "read" | "list" | "glob" | "grep" | "write" | "edit" => Some(closed_paths(calls)),
        _ => None,
    }
}

/// Converts command patterns such as `git log:*`, `git log *` or `npm test`.
pub(super) fn commands(calls: &str, widens: bool) -> Option<Vec<String>> {
    let start = calls
        .strip_suffix(":*")
        .or_else(|| calls.strip_suffix(" *"));
    let patterns = match start {
        Some(start) => vec![start.to_owned(), format!("{start} *")],
        None => vec![calls.to_owned()],
    };
    match calls.contains('?') {
        false => Some(patterns),
        true if widens => None,
        // `?` matched one character there; `*` matches at least that.
        true => Some(patterns.iter().map(|one| one.replace('?', "*")).collect()),
    }
}

/// Converts paths that are allowed. Only exact equivalents are accepted, since `*` here also
/// matches across folders.
fn open_paths(calls: &str) -> Option<Vec<String>> {
    let path = calls.strip_prefix("./").unwrap_or(calls);
    let path = path.strip_prefix('/').unwrap_or(path);
    if path.starts_with(['/', '~']) {
        return None;
    }
    let (folder, open) = match path.strip_suffix("/**") {
        Some(folder) => (folder, true),
        None => (path, false),
    };
    // A bare name matches files in every folder there.
    if folder.is_empty()
        || folder.contains(['*', '?', '[', '{', '!'])
        || (!open && !path.contains('/'))
    {
        return None;
    }
    Some(match open {
        true => vec![folder.to_owned(), format!("{folder}/*")],
        false => vec![folder.to_owned()],
    })
}

/// Converts paths that are denied; the patterns match at least those.
fn closed_paths(calls: &str) -> Vec<String> {
    let anywhere = calls.starts_with("~/") || calls.starts_with("//");
    let path = calls
        .trim_start_matches("./")
        .trim_start_matches('~')
        .trim_start_matches('/');
    let path = path.trim_end_matches('/');
    let path: String = path
        .replace("**/", "*")
        .replace("**", "*")
        .replace('?', "*");
    let mut found = vec![path.clone(), format!("{path}/*")];
    if anywhere || !path.contains('/') {
        found.extend([format!("*/{path}"), format!("*/{path}/*")]);
    }
    found
}

/// Splits a list in one text at commas, line ends and blanks, except within parentheses.
pub(super) fn split(list: &str) -> Vec<String> {
    let mut depth = 0_u32;
    let mut parts = vec![String::new()];
    for c in list.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if depth > 0 || !matches!(c, ',' | '\n') => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty());
    parts
        .flat_map(|part| match part.contains('(') || key(part) == "alltools" {
            true => vec![part.to_owned()],
            false => part.split_whitespace().map(str::to_owned).collect(),
        })
        .collect()
}

/// The error for a restriction of an unknown tool.
pub(in crate::agent) fn no_tool(name: &str) -> String {
    let shown = in_quotes(name, 64);
    let hint = match nearest(name, OURS) {
        Some(near) => format!("did you mean {near:?}?"),
        None => format!(
            "correct the name or remove it; the tools are {}",
            OURS.join(", ")
        ),
    };
    format!("tool {shown} is unknown, so this restriction cannot be applied; {hint}")
}

/// The names here of a tool in a gate rule; `None` if it is unknown.
pub(in crate::agent) fn gated(name: &str) -> Option<Vec<String>> {
    match entry(name, false) {
        NamedTool::Tool(own) => Some(vec![own]),
        NamedTool::Agents(named) if named.is_empty() => {
            Some(DELEGATING.iter().map(ToString::to_string).collect())
        }
        NamedTool::Nothing(_) => Some(Vec::new()),
        _ => None,
    }
}
