//! Selects the tools of an agent: applies its definition to the available tools.

use globset::Glob;

use crate::contract::nodes::{NODE_LIST, NODE_READ, NODE_RUN};

/// Tools that an agent has only if its definition names them, since they reach beyond the
/// workspace.
const ONLY_NAMED: &[&str] = &["shell", NODE_RUN, NODE_READ, NODE_LIST];

/// The tools that a definition asks for. Names may be patterns (`*`, `web_*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolChoice {
    /// Only these tools; every tool if unset.
    pub allow: Option<Vec<String>>,
    /// Never these tools; takes precedence over everything else.
    pub deny: Vec<String>,
    /// Switches single tools on or off; an exact name beats a pattern, a later pattern an earlier
    /// one.
    pub switches: Vec<(String, bool)>,
    /// Additional limits: the tools must be in each of these, too.
    pub within: Vec<ToolBounds>,
}

/// The choice of a more trusted definition, which limits a less trusted one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ToolBounds {
    /// The tools that it chooses.
    pub choice: ToolChoice,
    /// True if it names servers.
    pub names_servers: bool,
}

impl ToolChoice {
    /// Returns the tools of `all` that the agent has, and the requested names that match no tool.
    pub(super) fn pick(&self, all: &[String]) -> (Vec<String>, Vec<String>) {
        let mut chosen: Vec<String> = Vec::new();
        // The order of the list, or of `all` without a list.
        let every = ["*".to_owned()];
        let listed = self.allow.as_deref().unwrap_or(&every);
        let on = self
            .switches
            .iter()
            .filter(|(_, on)| *on)
            .map(|(name, _)| name);
        for name in listed.iter().chain(on) {
            for tool in all.iter().filter(|tool| fits(name, tool)) {
                if self.takes(tool) && !chosen.contains(tool) {
                    chosen.push(tool.clone());
                }
            }
        }
        let asked = self.allow.iter().flatten();
        let asked = asked.chain(
            self.switches
                .iter()
                .filter(|(_, on)| *on)
                .map(|(name, _)| name),
        );
        let mut unknown: Vec<String> = Vec::new();
        for name in asked {
            // The tools of servers are known only while these run.
            let is_served = name.contains("__");
            let is_known = is_served || all.iter().any(|tool| fits(name, tool));
            if !is_known && !unknown.contains(name) {
                unknown.push(name.clone());
            }
        }
        (chosen, unknown)
    }

    /// True if the agent has this server tool. If the definition names the server (`is_named`), a
    /// list of tools that does not mention it takes nothing away.
    pub(super) fn takes_served(&self, tool: &str, is_named: bool) -> bool {
        let within = |one: &ToolBounds| one.choice.takes_served(tool, one.names_servers);
        self.within.iter().all(within) && self.serves(tool, is_named)
    }

    fn serves(&self, tool: &str, is_named: bool) -> bool {
        let on = self
            .switches
            .iter()
            .rev()
            .find(|(name, _)| fits(name, tool));
        match on {
            Some(_) => self.chooses(tool),
            None if is_named => !self.deny.iter().any(|name| fits(name, tool)),
            None => self.chooses(tool),
        }
    }

    /// True if it is named exactly, not by a pattern.
    fn names(&self, tool: &str) -> bool {
        let mut listed = self.allow.iter().flatten();
        let mut switched = self.switches.iter();
        listed.any(|name| name == tool) || switched.any(|(name, on)| *on && name == tool)
    }

    /// True if the agent has this tool, provided that it exists.
    pub(super) fn takes(&self, tool: &str) -> bool {
        self.within.iter().all(|one| one.choice.takes(tool)) && self.chooses(tool)
    }

    fn chooses(&self, tool: &str) -> bool {
        if ONLY_NAMED.contains(&tool) && !self.names(tool) {
            return false;
        }
        if self.deny.iter().any(|name| fits(name, tool)) {
            return false;
        }
        let exact = self.switches.iter().rev().find(|(name, _)| name == tool);
        let switch = exact.or_else(|| {
            let mut patterns = self.switches.iter().rev();
            patterns.find(|(name, _)| fits(name, tool))
        });
        let listed = match &self.allow {
            Some(names) => names.iter().any(|name| fits(name, tool)),
            None => true,
        };
        switch.map_or(listed, |(_, on)| *on)
    }
}

/// True if `tool` matches `name`; an invalid pattern matches only itself.
fn fits(name: &str, tool: &str) -> bool {
    // The usual list of an agent that names none; compiling it for each tool would dominate a start.
    if name == tool || name == "*" {
        return true;
    }
    let is_pattern = name.contains(['*', '?', '[', '{']);
    let matches = || Glob::new(name).is_ok_and(|glob| glob.compile_matcher().is_match(tool));
    is_pattern && matches()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(choice: &ToolChoice) -> (Vec<String>, Vec<String>) {
        let all = ["read", "list", "glob", "grep"].map(str::to_owned);
        choice.pick(&all)
    }

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn unset_is_every_tool_and_a_list_only_those_of_it() {
        assert_eq!(pick(&ToolChoice::default()).0.len(), 4);
        let choice = ToolChoice {
            allow: Some(names(&["g*", "write"])),
            deny: names(&["glob"]),
            ..ToolChoice::default()
        };
        assert_eq!(pick(&choice), (names(&["grep"]), names(&["write"])));
        let none = ToolChoice {
            allow: Some(Vec::new()),
            ..ToolChoice::default()
        };
        assert_eq!(pick(&none).0, [""; 0]);
    }

    #[test]
    fn the_shell_is_given_only_to_who_names_it() {
        let all = ["read", "shell"].map(str::to_owned);
        let picked = |choice: ToolChoice| choice.pick(&all).0;
        assert_eq!(picked(ToolChoice::default()), ["read"]);
        let listing = |list: &[&str]| ToolChoice {
            allow: Some(names(list)),
            ..ToolChoice::default()
        };
        assert_eq!(picked(listing(&["*"])), ["read"]);
        assert_eq!(picked(listing(&["*", "shell"])), ["read", "shell"]);
        let switched = |on| ToolChoice {
            switches: vec![("shell".to_owned(), on)],
            ..ToolChoice::default()
        };
        assert_eq!(picked(switched(true)), ["read", "shell"]);
        assert_eq!(picked(switched(false)), ["read"]);
        let denied = ToolChoice {
            deny: names(&["shell"]),
            ..listing(&["shell"])
        };
        assert_eq!(picked(denied), [""; 0]);
    }

    #[test]
    fn e1_a_switch_turns_one_tool_off_or_a_pattern_all_but_one() {
        let choice = ToolChoice {
            switches: vec![("glob".to_owned(), false)],
            ..ToolChoice::default()
        };
        assert_eq!(pick(&choice).0, ["read", "list", "grep"]);
        let choice = ToolChoice {
            switches: vec![("read".to_owned(), true), ("*".to_owned(), false)],
            ..ToolChoice::default()
        };
        assert_eq!(pick(&choice).0, ["read"]);
    }
}
