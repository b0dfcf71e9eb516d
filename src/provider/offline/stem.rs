//! What the forms of one word have in common: `limits` is searched as `limit`.

/// Endings of plurals and verb forms, the longest first.
const ENDINGS: &[&str] = &[
    "izations", "ization", "isation", "ations", "ation", "ments", "ment", "ings", "ions", "ing",
    "ion", "ers", "ors", "ed", "es", "er", "ly", "s", "e",
];

/// What different forms of a word have in common; never empty.
pub(super) fn stems(word: &str) -> Vec<String> {
    if !word.is_ascii() {
        return vec![word.to_owned()];
    }
    if word.starts_with("config") {
        return vec!["config".to_owned()];
    }
    if let Some(stem) = word.strip_suffix("ies")
        && stem.len() >= 3
    {
        return vec![format!("{stem}y"), word.to_owned()];
    }
    for ending in ENDINGS {
        let Some(stem) = word.strip_suffix(ending) else {
            continue;
        };
        let double = *ending == "s" && stem.ends_with(['s', 'u', 'i']);
        if stem.len() < 4 && !(*ending == "s" && stem.len() == 3) || double {
            continue;
        }
        return vec![undoubled(stem).to_owned()];
    }
    vec![word.to_owned()]
}

/// `stopp` of "stopped" is `stop`.
fn undoubled(stem: &str) -> &str {
    let bytes = stem.as_bytes();
    match bytes {
        [.., a, b] if a == b && b"bdgmnprt".contains(b) && bytes.len() > 4 => {
            &stem[..stem.len() - 1]
        }
        _ => stem,
    }
}

/// The beginning of a stem, for a second try.
pub(super) fn shortened(stem: &str) -> String {
    let length = stem.chars().count();
    let kept = (length * 2 / 3).max(4).min(length);
    stem.chars().take(kept).collect()
}
