//! Agent names: which are valid, which look the same to a model, and which known name is closest to
//! an unknown one.

use crate::kernel::ids::AgentId;
use crate::kernel::text::in_quotes;

/// The maximum length of a name: the 64 characters of a tool name minus the prefix `subagent_`,
/// with some reserve.
pub(super) const NAME_LIMIT: usize = 48;

/// Checks a name that a definition states.
pub(super) fn check(name: &str) -> Result<AgentId, String> {
    if name.chars().count() > NAME_LIMIT {
        let shown = in_quotes(name, NAME_LIMIT);
        return Err(format!(
            "name {shown} is too long: {NAME_LIMIT} characters at most, so that tools can be \
             named after it"
        ));
    }
    AgentId::parse(name).map_err(|_| {
        format!(
            "name {:?} is invalid: use letters, digits, '.', '_' and '-', starting with a letter or digit",
            // Shown as written, including blanks around it.
            name.chars().take(NAME_LIMIT).collect::<String>()
        )
    })
}

/// Derives a valid name from an invalid one; the result may be empty.
pub(super) fn derived(name: &str) -> String {
    if check(name).is_ok() {
        return name.to_owned();
    }
    let mut own = String::new();
    for c in name.chars().flat_map(char::to_lowercase) {
        match c {
            c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') => own.push(c),
            _ if own.ends_with('-') => {}
            _ => own.push('-'),
        }
    }
    let own = own.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let own: String = own.chars().take(NAME_LIMIT).collect();
    own.trim_end_matches('-').to_owned()
}

/// The form of a name within a tool name: two names with the same slug would be the same tool.
pub(super) fn slug(name: &str) -> String {
    name.chars()
        .map(|ch| match ch {
            '.' | '-' => '_',
            ch => ch.to_ascii_lowercase(),
        })
        .collect()
}

/// The known name in `names` that is closest to `name`, if one is close enough.
pub(super) fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let wanted: String = name.to_lowercase().chars().take(64).collect();
    names
        .iter()
        .map(|known| (strsim::levenshtein(&wanted, known), *known))
        .filter(|(distance, known)| *distance <= known.len() / 3 + 1)
        .min()
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g4_14_a_tool_named_after_an_agent_satisfies_every_provider() {
        for name in ["a", "Code.Review-2", &"x".repeat(NAME_LIMIT)] {
            check(name).unwrap();
            let tool = format!("subagent_{}", slug(name));
            assert!(tool.len() <= 64, "{tool}");
            let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
            assert!(tool.bytes().all(fits), "{tool}");
        }
        for name in [
            "",
            "a b",
            "ä",
            "-a",
            "a/b",
            "../a",
            "*",
            &"x".repeat(NAME_LIMIT + 1),
        ] {
            assert!(check(name).is_err(), "{name}");
        }
    }

    #[test]
    fn g4_13_names_that_differ_in_case_or_punctuation_have_one_slug() {
        assert_eq!(slug("Code-Review"), slug("code.review"));
        assert_ne!(slug("code-review"), slug("codereview"));
    }
}
