//! A single rule of a gate, the subject of a call, and how several rules are combined.

use serde::{Deserialize, Serialize};

use super::Decision;
use crate::kernel::policy::pattern::fits;
use crate::kernel::policy::shell::{Fit, ShellCommand, may_fit};

/// One rule of a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The tool's name, or a pattern of names.
    pub tool: String,
    /// A pattern that the call's arguments must match; `None` matches any call.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// The name of a node, or a pattern of names: the rule applies to calls on these nodes alone.
    /// `None` applies to calls on any machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The decision on a matching call.
    pub decision: Decision,
}

/// One thing that a call affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallTarget {
    /// A thing with these names; a rule applies if its pattern matches one of them.
    Named(Vec<String>),
    /// A folder with these names, including all its content.
    Folder(Vec<String>),
    /// A command of a command line.
    Command(ShellCommand),
    /// Unknown: no rule with a pattern allows it, and any such `ask` or `deny` rule may apply.
    Unknown,
}

/// What a call is about, as rules see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Everything that the call affects; all of it must be allowed.
    pub things: Vec<CallTarget>,
    /// The whole call in several spellings, which only `ask` and `deny` rules check.
    pub texts: Vec<String>,
    /// What a remembered decision covers; empty: every call of the tool.
    pub covers: String,
    /// The node on which the call is made; `None`: this machine.
    pub node: Option<String>,
}

impl Subject {
    /// The same call on a node, if one is named: a remembered decision covers no other machine.
    pub fn on_node(mut self, node: Option<&str>) -> Self {
        if let Some(node) = node {
            let place = |text: &String| format!("{node}: {text}");
            let placed: Vec<String> = self.texts.iter().map(place).collect();
            self.texts.extend(placed);
            self.covers = place(&self.covers);
            self.node = Some(node.to_owned());
        }
        self
    }
}

impl CallTarget {
    fn fit(&self, rule: &Rule, pattern: &str) -> Fit {
        let yes = |is: bool| if is { Fit::Yes } else { Fit::No };
        let any = |names: &[String]| names.iter().any(|name| fits(pattern, name));
        let allows = rule.decision == Decision::Allow;
        match self {
            CallTarget::Named(names) => yes(any(names)),
            CallTarget::Folder(names) if allows || any(names) => yes(any(names)),
            CallTarget::Folder(names) => {
                let inside = |name: &String| match name.as_str() {
                    "." => may_fit(pattern, "\0"),
                    name => may_fit(pattern, &format!("{name}/\0")),
                };
                if names.iter().any(inside) {
                    Fit::Maybe
                } else {
                    Fit::No
                }
            }
            CallTarget::Command(command) if allows => yes(command.allows(pattern)),
            CallTarget::Command(command) => command.restriction_fit(pattern),
            CallTarget::Unknown if allows => Fit::No,
            CallTarget::Unknown => Fit::Maybe,
        }
    }
}

impl Rule {
    /// Whether the rule applies to this thing of a call. To a call that affects nothing only rules
    /// without a pattern apply.
    fn fit(&self, thing: Option<&CallTarget>) -> Fit {
        match (&self.pattern, thing) {
            (None, _) => Fit::Yes,
            (Some(_), None) => Fit::No,
            (Some(pattern), Some(thing)) => thing.fit(self, pattern),
        }
    }

    /// Whether the rule is one for the machine on which the call is made.
    fn is_for_machine(&self, subject: &Subject) -> bool {
        let named = |nodes: &String| subject.node.as_ref().is_some_and(|node| fits(nodes, node));
        self.node.as_ref().is_none_or(named)
    }

    /// Whether it depends on the arguments of calls.
    pub(super) fn looks_at_arguments(&self) -> bool {
        self.pattern.is_some() || self.node.is_some()
    }

    fn fits_text(&self, subject: &Subject) -> bool {
        let pattern = self.pattern.as_deref();
        self.decision != Decision::Allow
            && pattern.is_some_and(|pattern| subject.texts.iter().any(|text| fits(pattern, text)))
    }

    pub(super) fn shown(&self) -> String {
        let mut shown = self.tool.clone();
        if let Some(pattern) = &self.pattern {
            shown.push_str(&format!(" {pattern:?}"));
        }
        if let Some(node) = &self.node {
            shown.push_str(&format!(" on node {node}"));
        }
        format!("{shown}: {}", self.decision)
    }
}

/// The reason of a decision.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reason<'a> {
    /// This rule applies.
    Rule(&'a Rule),
    /// This rule may apply.
    Unsure(&'a Rule),
    /// No rule applies; the tool's default decides.
    Habit,
}

/// What a set of rules decides for one thing.
struct Weighed<'a> {
    /// The rule that applies, with its index if it names exactly this tool.
    rule: Option<(Option<usize>, &'a Rule)>,
    /// A rule that may apply and that no `allow` overrides.
    floor: Option<&'a Rule>,
}

/// Of the rules for exactly this tool the last one that applies; otherwise the strictest of those
/// whose name pattern matches the tool.
fn weigh<'a>(rules: &[&'a Rule], tool: &str, thing: Option<&CallTarget>) -> Weighed<'a> {
    let mut floor = None;
    for (at, rule) in rules.iter().copied().enumerate().rev() {
        if rule.tool != tool {
            continue;
        }
        match rule.fit(thing) {
            Fit::Yes => {
                return Weighed {
                    rule: Some((Some(at), rule)),
                    floor: floor.filter(|_| rule.decision == Decision::Allow),
                };
            }
            Fit::Maybe => floor = floor.or(Some(rule)),
            Fit::No => {}
        }
    }
    let named = rules
        .iter()
        .copied()
        .filter(|rule| rule.tool != tool && fits(&rule.tool, tool));
    let mut strictest: Option<&Rule> = None;
    for rule in named {
        match rule.fit(thing) {
            Fit::Yes if strictest.is_none_or(|one| one.decision.rank() <= rule.decision.rank()) => {
                strictest = Some(rule);
            }
            Fit::Maybe => floor = floor.or(Some(rule)),
            _ => {}
        }
    }
    Weighed {
        rule: strictest.map(|rule| (None, rule)),
        floor,
    }
}

/// The strictest decision of the rules over all things of a call; `None` if no rule applies and
/// there is no default.
pub(super) fn judged<'a>(
    rules: &'a [Rule],
    tool: &str,
    subject: &Subject,
    habit: Option<Decision>,
) -> Option<(Decision, Reason<'a>)> {
    let here = rules.iter().filter(|rule| rule.is_for_machine(subject));
    let rules: Vec<&Rule> = here.collect();
    let things: Vec<Option<&CallTarget>> = match subject.things.is_empty() {
        true => vec![None],
        false => subject.things.iter().map(Some).collect(),
    };
    let mut strictest: Option<(Decision, Reason<'a>)> = None;
    let mut take = |found: (Decision, Reason<'a>)| {
        if strictest.is_none_or(|(known, _)| known.rank() < found.0.rank()) {
            strictest = Some(found);
        }
    };
    // The index after which no rule has been overridden for the whole call.
    let mut since: Option<usize> = Some(usize::MAX);
    for thing in things {
        let Weighed { rule, floor } = weigh(&rules, tool, thing);
        since = since.min(rule.and_then(|(at, _)| at));
        let said = rule.map(|(_, rule)| (rule.decision, Reason::Rule(rule)));
        let said = said.or(habit.map(|habit| (habit, Reason::Habit)));
        if let Some(said) = said {
            take(said);
        }
        if let Some(rule) = floor {
            take((Decision::Ask, Reason::Unsure(rule)));
        }
    }
    for (at, rule) in rules.into_iter().enumerate() {
        let counts = match rule.tool == tool {
            true => since < Some(at),
            false => since.is_none() && fits(&rule.tool, tool),
        };
        if counts && rule.fits_text(subject) {
            take((rule.decision, Reason::Rule(rule)));
        }
    }
    strictest
}

/// True if these rules deny every call of the tool.
pub fn is_closed(rules: &[Rule], tool: &str) -> bool {
    let denies = |rule: &Rule| rule.decision == Decision::Deny;
    let said = judged(rules, tool, &Subject::default(), None);
    said.is_some_and(|(decision, _)| decision == Decision::Deny)
        && rules.iter().filter(|rule| rule.tool == tool).all(denies)
}
