//! How the programs that a skill needs can be installed, as its metadata says in the words of the
//! clients that came before. It is read, checked and shown; nobody carries it out. Called by
//! `requires`.

use super::requires::platform;
use super::yaml::Node;
use crate::contract::skills::{InstallHint, InstallKind};

/// The hints, and what of them cannot be understood.
pub(super) fn hints(install: Option<&Node>, odd: &mut Vec<String>) -> Vec<InstallHint> {
    let items = match install {
        // Words of some other client's.
        None | Some(Node::Null | Node::Text(_)) => return Vec::new(),
        Some(Node::List(items)) => items.as_slice(),
        Some(one) => std::slice::from_ref(one),
    };
    let mut hints = Vec::new();
    for item in items {
        match hint(item) {
            Ok(Some(hint)) => hints.push(hint),
            // Some other client's way.
            Ok(None) => {}
            Err(why) => odd.push(format!("install: {why}; it is left aside")),
        }
    }
    hints
}

fn hint(item: &Node) -> Result<Option<InstallHint>, String> {
    let text = |name: &str| item.get(name).and_then(Node::text);
    let names = |name: &str| -> Vec<String> {
        let names = match item.get(name) {
            Some(Node::List(items)) => items.as_slice(),
            Some(one) => std::slice::from_ref(one),
            None => &[],
        };
        names
            .iter()
            .filter_map(Node::text)
            .map(str::to_owned)
            .collect()
    };
    let kind = text("kind").ok_or("a kind is expected")?;
    let Some(kind) = InstallKind::parse(kind) else {
        return Ok(None);
    };
    let field = match kind {
        InstallKind::Brew => "formula",
        InstallKind::Apt | InstallKind::Node | InstallKind::Uv => "package",
        InstallKind::Go => "module",
        InstallKind::Download => "url",
    };
    let what = text(field).ok_or_else(|| format!("{} names no {field}", kind.as_str()))?;
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
    let is_address = what.starts_with("https://") || what.starts_with("http://");
    // Somebody may type it: a name is no option, and brings no second command along.
    if what.starts_with('-')
        || !what.chars().all(is_plain)
        || what.contains([';', '&', '|', '`', '$', '<', '>', '\'', '"', '\\'])
            && kind != InstallKind::Download
        || (kind == InstallKind::Download) != is_address
    {
        return Err(format!("{what:?} is no {field}"));
    }
    Ok(Some(InstallHint {
        kind,
        what: what.to_owned(),
        label: text("label").map(str::to_owned),
        bins: names("bins"),
        os: names("os").iter().map(|name| platform(name)).collect(),
    }))
}
