//! Renders the property list of launchd from the one in `packaging/launchd`, and reads back what was
//! recorded.

use std::path::Path;

use super::plan::ServicePlan;

const SHIPPED: &str = include_str!("../../../../packaging/launchd/org.abide.daemon.plist");
/// Begin and end of the comment that has the plan as JSON.
const RECORD: (&str, &str) = ("<!-- abide service install: ", " -->");
/// The place of the program in the shipped list.
const PROGRAM: &str = "    <string>@HOME@/.cargo/bin/abide</string>\n    <string>serve</string>\n";
/// The first variable in the shipped list; those of the plan follow before it.
const VARIABLES: &str = "    <key>ABIDE_SUPERVISOR</key>\n";

/// The list as it is shipped.
pub(super) fn shipped(home: &Path) -> String {
    SHIPPED.replace("@HOME@", &escaped(&home.display().to_string()))
}

/// The text of the list: the shipped one with the program, the folders and the variables of the plan, and
/// the plan itself in a comment.
pub(super) fn agent(home: &Path, plan: &ServicePlan) -> String {
    let mut words = vec![plan.program.display().to_string(), "serve".to_owned()];
    for (flag, path) in [("--state-dir", &plan.state_dir), ("--config", &plan.config)] {
        let path = path.iter().map(|path| path.display().to_string());
        words.extend(path.flat_map(|path| [flag.to_owned(), path]));
    }
    let words: String = words
        .iter()
        .map(|word| format!("    <string>{}</string>\n", escaped(word)))
        .collect();
    let variables: String = plan
        .environment
        .iter()
        .map(|(name, value)| {
            let (name, value) = (escaped(name), escaped(value));
            format!("    <key>{name}</key>\n    <string>{value}</string>\n")
        })
        .collect();
    let text = SHIPPED
        .replacen(PROGRAM, &words, 1)
        .replacen(VARIABLES, &format!("{variables}{VARIABLES}"), 1)
        .replace("@HOME@ stands", "HOME stands")
        .replace("@HOME@", &escaped(&home.display().to_string()));
    text.replacen("<plist ", &format!("{}\n<plist ", record(plan)), 1)
}

/// The plan in the text of an installed list.
pub(super) fn recorded(text: &str) -> Option<ServicePlan> {
    let (_, rest) = text.split_once(RECORD.0)?;
    let (json, _) = rest.split_once(RECORD.1)?;
    serde_json::from_str(json).ok()
}

fn record(plan: &ServicePlan) -> String {
    // Strings only, so it always has a JSON form. Two hyphens would end the comment; JSON has another
    // form for the second one.
    let json = serde_json::to_string(plan).expect("a plan is plain data");
    let json = json.replace("--", "-\\u002d");
    format!("{}{json}{}", RECORD.0, RECORD.1)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::cli::commands::service::plan::HardeningProfile;

    #[test]
    fn a_list_is_the_shipped_one_with_what_the_plan_says() {
        let plan = ServicePlan {
            program: "/opt/a & b/abide".into(),
            state_dir: Some("/srv/two--hyphens".into()),
            config: None,
            environment: BTreeMap::from([("PATH".to_owned(), "/opt/bin".to_owned())]),
            hardening: HardeningProfile::Standard,
            listen: Vec::new(),
        };
        let text = agent(Path::new("/srv/a"), &plan);
        for expected in [
            "    <string>/opt/a &amp; b/abide</string>\n    <string>serve</string>\n    \
             <string>--state-dir</string>\n    <string>/srv/two--hyphens</string>\n  </array>",
            "    <key>PATH</key>\n    <string>/opt/bin</string>\n    <key>ABIDE_SUPERVISOR</key>",
            "<string>/srv/a/Library/Logs/abide.log</string>",
        ] {
            assert!(text.contains(expected), "{text}");
        }
        assert!(!text.contains("@HOME@"), "{text}");
        // A comment may not have two hyphens.
        for comment in text.split("<!--").skip(1) {
            let (comment, _) = comment.split_once("-->").unwrap();
            assert!(!comment.contains("--"), "{comment}");
        }
        assert_eq!(recorded(&text), Some(plan));
        assert_eq!(recorded(SHIPPED), None);
    }
}
