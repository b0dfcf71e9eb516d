//! Patterns in which `*` matches any text: for agents that may interact, and for tool arguments.

/// True if `text` matches `pattern`, in which `*` matches any text.
pub fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    // A split has at least one part.
    let Some(mut rest) = parts.next().and_then(|start| text.strip_prefix(start)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((end, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pattern_fits_what_it_was_made_of(
            parts in prop::collection::vec("[ab]{0,3}", 1..4),
            fill in "[abc]{0,3}",
        ) {
            let pattern = parts.join("*");
            prop_assert!(fits(&pattern, &parts.join(&fill)));
            let other = format!("x{}", parts.join(&fill));
            prop_assert!(parts[0].is_empty() || !fits(&pattern, &other));
        }
    }
}
