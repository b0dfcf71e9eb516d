//! One rule of a gate, what a call is about, and which of several rules decides.

use serde::{Deserialize, Serialize};

use super::Decision;
use crate::kernel::pattern::fits;
use crate::kernel::shell::{Command, Fit, may_fit};

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The tool's name, or a pattern.
    pub tool: String,
    /// A pattern of what it is called with; any call if unset.
    #[serde(rename = "match", default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// What becomes of such a call.
    pub decision: Decision,
}

/// One thing that a call touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// It has these names: a rule speaks of it that fits one of them.
    Named(Vec<String>),
    /// A folder of these names with everything in it.
    Folder(Vec<String>),
    /// A command of a command line.
    Command(Command),
    /// It is not known what: no rule with a pattern allows it, and any may speak of it.
    Unknown,
}

/// What a call is about, as rules look at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Each thing that it touches: all of them must be allowed.
    pub things: Vec<Thing>,
    /// All of it in several spellings, at which only `ask` and `deny` look.
    pub texts: Vec<String>,
    /// What a remembered decision covers; empty: every call of the tool.
    pub covers: String,
}

impl Thing {
    fn fit(&self, rule: &Rule, pattern: &str) -> Fit {
        let yes = |is: bool| if is { Fit::Yes } else { Fit::No };
        let any = |names: &[String]| names.iter().any(|name| fits(pattern, name));
        let allows = rule.decision == Decision::Allow;
        match self {
            Thing::Named(names) => yes(any(names)),
            Thing::Folder(names) if allows || any(names) => yes(any(names)),
            Thing::Folder(names) => {
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
            Thing::Command(command) if allows => yes(command.allows(pattern)),
            Thing::Command(command) => command.is_meant(pattern),
            Thing::Unknown if allows => Fit::No,
            Thing::Unknown => Fit::Maybe,
        }
    }
}

impl Rule {
    /// Does it speak of this thing of a call? A call that touches nothing is spoken of by rules
    /// without a pattern alone.
    fn fit(&self, thing: Option<&Thing>) -> Fit {
        match (&self.pattern, thing) {
            (None, _) => Fit::Yes,
            (Some(_), None) => Fit::No,
            (Some(pattern), Some(thing)) => thing.fit(self, pattern),
        }
    }

    fn fits_text(&self, subject: &Subject) -> bool {
        let pattern = self.pattern.as_deref();
        self.decision != Decision::Allow
            && pattern.is_some_and(|pattern| subject.texts.iter().any(|text| fits(pattern, text)))
    }

    pub(super) fn shown(&self) -> String {
        match &self.pattern {
            Some(pattern) => format!("{} {pattern:?}: {}", self.tool, self.decision),
            None => format!("{}: {}", self.tool, self.decision),
        }
    }
}

/// Why a call is decided on so.
#[derive(Clone, Copy, Debug)]
pub(super) enum Why<'a> {
    /// This rule fits it.
    Rule(&'a Rule),
    /// This one may.
    Unsure(&'a Rule),
    /// No rule speaks of it.
    Habit,
}

/// What rules say of one thing.
struct Weighed<'a> {
    /// The one that fits, and its place among those of exactly this tool.
    rule: Option<(Option<usize>, &'a Rule)>,
    /// One that may fit and that no allowance overrides.
    floor: Option<&'a Rule>,
}

/// Of the rules written for exactly this tool the last that fits; else, of those whose pattern of
/// names fits, the strictest.
fn weigh<'a>(rules: &'a [Rule], tool: &str, thing: Option<&Thing>) -> Weighed<'a> {
    let mut floor = None;
    for (at, rule) in rules.iter().enumerate().rev() {
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

/// The strictest of what rules say of the things of a call; `None` where none speaks of it and
/// there is no habit.
pub(super) fn judged<'a>(
    rules: &'a [Rule],
    tool: &str,
    subject: &Subject,
    habit: Option<Decision>,
) -> Option<(Decision, Why<'a>)> {
    let things: Vec<Option<&Thing>> = match subject.things.is_empty() {
        true => vec![None],
        false => subject.things.iter().map(Some).collect(),
    };
    let mut strictest: Option<(Decision, Why<'a>)> = None;
    let mut take = |found: (Decision, Why<'a>)| {
        if strictest.is_none_or(|(known, _)| known.rank() < found.0.rank()) {
            strictest = Some(found);
        }
    };
    // The first place from which on a rule has not been overridden for all of the call.
    let mut since: Option<usize> = Some(usize::MAX);
    for thing in things {
        let Weighed { rule, floor } = weigh(rules, tool, thing);
        since = since.min(rule.and_then(|(at, _)| at));
        let said = rule.map(|(_, rule)| (rule.decision, Why::Rule(rule)));
        let said = said.or(habit.map(|habit| (habit, Why::Habit)));
        if let Some(said) = said {
            take(said);
        }
        if let Some(rule) = floor {
            take((Decision::Ask, Why::Unsure(rule)));
        }
    }
    for (at, rule) in rules.iter().enumerate() {
        let counts = match rule.tool == tool {
            true => since < Some(at),
            false => since.is_none() && fits(&rule.tool, tool),
        };
        if counts && rule.fits_text(subject) {
            take((rule.decision, Why::Rule(rule)));
        }
    }
    strictest
}

/// Do these rules leave no call of the tool open?
pub fn is_closed(rules: &[Rule], tool: &str) -> bool {
    let denies = |rule: &Rule| rule.decision == Decision::Deny;
    let said = judged(rules, tool, &Subject::default(), None);
    said.is_some_and(|(decision, _)| decision == Decision::Deny)
        && rules.iter().filter(|rule| rule.tool == tool).all(denies)
}
