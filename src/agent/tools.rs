//! Which tools an agent has: what its definition says, applied to the tools there are.

use globset::Glob;

/// What a definition says of tools. Names may be patterns (`*`, `web_*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToolChoice {
    /// These only; every tool if unset.
    pub allow: Option<Vec<String>>,
    /// Not these, whatever else is said.
    pub deny: Vec<String>,
    /// Each of these is on or off; an exact name beats a pattern, a later pattern an earlier one.
    pub switches: Vec<(String, bool)>,
}

impl ToolChoice {
    /// Those of `all` that the agent has, and the asked-for names that no tool has.
    pub(super) fn pick(&self, all: &[String]) -> (Vec<String>, Vec<String>) {
        let mut chosen: Vec<String> = Vec::new();
        // A list keeps its order; without one it is that of the tools.
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
            if !all.iter().any(|tool| fits(name, tool)) && !unknown.contains(name) {
                unknown.push(name.clone());
            }
        }
        (chosen, unknown)
    }

    fn takes(&self, tool: &str) -> bool {
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

/// Is `tool` what `name` stands for? A pattern that makes no sense stands for itself.
fn fits(name: &str, tool: &str) -> bool {
    let is_pattern = name.contains(['*', '?', '[', '{']);
    let matches = || Glob::new(name).is_ok_and(|glob| glob.compile_matcher().is_match(tool));
    name == tool || (is_pattern && matches())
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
