//! Edits settings in the text of a TOML file. Everything else stays as the user wrote it: comments,
//! order, quotes. Used by the commands that write settings.

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::load::syntax;
use super::named;

/// The UTF-8 byte order mark that some editors write at the start of a file.
const MARK: &str = "\u{feff}";

/// A change of one setting.
#[derive(Clone, Debug)]
pub enum SettingEdit {
    /// Sets this value.
    Set(Value),
    /// Removes the setting from the file.
    Unset,
}

impl SettingEdit {
    /// Sets this string.
    pub fn text(text: &str) -> SettingEdit {
        SettingEdit::Set(Value::from(text))
    }

    /// Sets a list of these strings.
    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> SettingEdit {
        SettingEdit::Set(Value::from_iter(texts))
    }

    /// The values that command-line words may mean, likeliest first: the TOML value they spell, the
    /// text itself, a list of it.
    pub fn meant(words: &[String]) -> Vec<SettingEdit> {
        let texts = || SettingEdit::texts(words.iter().map(String::as_str));
        let [word] = words else {
            return vec![texts()];
        };
        let typed = word.parse::<Value>().ok().map(SettingEdit::Set);
        typed
            .into_iter()
            .chain([SettingEdit::text(word), texts()])
            .collect()
    }
}

/// The path of a setting in the document: the names of its tables, then its own. A table name
/// chosen by the user may contain dots.
pub fn path(key: &str) -> Vec<&str> {
    match named::parts(key) {
        Some((section, name, field)) if named::is_key(key) => {
            section.split('.').chain([name, field]).collect()
        }
        _ => key.split('.').collect(),
    }
}

/// Returns the text with each change applied; a key is the path of its setting.
pub fn edit(text: &str, changes: &[(Vec<&str>, SettingEdit)]) -> Result<String, String> {
    // Line endings and the byte order mark are kept, too.
    let (mark, text) = match text.strip_prefix(MARK) {
        Some(rest) => (MARK, rest),
        None => ("", text),
    };
    let has_returns = text.contains("\r\n");
    let mut document: DocumentMut = text
        .parse()
        .map_err(|fault: toml_edit::TomlError| syntax(text, fault.span(), fault.message()))?;
    // New settings are appended to a file that holds nothing but comments.
    let mut before = String::new();
    if document.is_empty() && !text.trim().is_empty() {
        before = format!("{}\n", text.trim_end());
        document = DocumentMut::new();
    }
    for (key, change) in changes {
        let (field, tables) = key.split_last().ok_or("a setting key must not be empty")?;
        let mut is_dotted = false;
        if matches!(change, SettingEdit::Unset) && !is_in(&document, key) {
            continue;
        }
        let mut table: &mut dyn TableLike = document.as_table_mut();
        for name in tables {
            let item = table.entry(name).or_insert_with(|| {
                let mut new = Table::new();
                new.set_dotted(is_dotted);
                new.set_implicit(true);
                Item::Table(new)
            });
            table = item
                .as_table_like_mut()
                .ok_or_else(|| format!("{name} is not a table"))?;
            is_dotted = table.is_dotted();
        }
        let SettingEdit::Set(new) = change else {
            table.remove(field);
            remove_empty(document.as_table_mut(), tables);
            continue;
        };
        let mut new = new.clone();
        match table.get_mut(field).and_then(Item::as_value_mut) {
            Some(old) => {
                // Keep the comment after the value.
                *new.decor_mut() = old.decor().clone();
                *old = new;
            }
            None => {
                table.insert(field, Item::Value(new));
            }
        }
    }
    let mut new = match document.is_empty() {
        true if !before.is_empty() => text.to_owned(),
        _ => before + &document.to_string(),
    };
    if has_returns {
        new = new.replace("\r\n", "\n").replace('\n', "\r\n");
    }
    Ok(format!("{mark}{new}"))
}

/// Removes the tables on this path that are empty and carry no comment.
fn remove_empty(table: &mut dyn TableLike, path: &[&str]) {
    let Some((name, rest)) = path.split_first() else {
        return;
    };
    let is_empty = match table.get_mut(name) {
        Some(Item::Table(inner)) => {
            remove_empty(inner, rest);
            let decor = inner.decor();
            let comments = [decor.prefix(), decor.suffix()];
            let mut comments = comments.into_iter().flatten();
            inner.is_empty() && comments.all(|raw| raw.as_str().unwrap_or("").trim().is_empty())
        }
        Some(Item::Value(Value::InlineTable(inner))) => {
            remove_empty(inner, rest);
            inner.is_empty()
        }
        _ => false,
    };
    if is_empty {
        table.remove(name);
    }
}

/// Is this table or setting present in the text? Always false for text that is not TOML.
pub fn has(text: &str, key: &[&str]) -> bool {
    text.parse().is_ok_and(|document| is_in(&document, key))
}

fn is_in(document: &DocumentMut, key: &[&str]) -> bool {
    let found = key.iter().try_fold(document.as_item(), |item, name| {
        item.as_table_like().and_then(|table| table.get(name))
    });
    found.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str) -> String {
        let model = (vec!["defaults", "model"], SettingEdit::text("a/b"));
        let url = (path("providers.a.base_url"), SettingEdit::text("http://x"));
        edit(text, &[model, url]).unwrap()
    }

    #[test]
    fn only_the_settings_change() {
        let before = "# mine\n[defaults] # theirs\nmodel = 'old' # why\nrun_timeout = \"1h\"\n";
        let after = changed(before);
        let kept = before.replace("'old'", "\"a/b\"");
        assert_eq!(
            after,
            format!("{kept}\n[providers.a]\nbase_url = \"http://x\"\n")
        );
        assert_eq!(changed(&after), after);
    }

    #[test]
    fn every_way_of_writing_tables_stays_readable() {
        for before in [
            "",
            "defaults.model = \"x\"\nproviders.b.kind = \"openai\"\n",
            "defaults = { model = \"x\" }\n[lanes]\nmain = 2\n",
            "[providers.a]\nkind = \"openai\" # k\n[lanes]\nmain = 2\n",
        ] {
            let after: toml::Table = changed(before).parse().unwrap();
            assert_eq!(after["defaults"]["model"].as_str(), Some("a/b"), "{before}");
            let url = after["providers"]["a"]["base_url"].as_str();
            assert_eq!(url, Some("http://x"), "{before}");
        }
        assert!(edit("a = [", &[]).is_err());
        let key = vec!["defaults", "model"];
        assert!(edit("defaults = 1", &[(key, SettingEdit::text(""))]).is_err());
    }

    #[test]
    fn a_setting_is_taken_out_and_nothing_else() {
        let before = "# mine\n[lanes]\nmain = 2 # two\n# of children\nsubagent = 3\n";
        let after = edit(before, &[(path("lanes.main"), SettingEdit::Unset)]).unwrap();
        assert_eq!(after, "# mine\n[lanes]\n# of children\nsubagent = 3\n");
        let absent = edit(before, &[(path("lanes.global"), SettingEdit::Unset)]).unwrap();
        assert_eq!(absent, before);

        // An emptied table is removed, unless it carries a comment.
        for (before, after) in [
            ("[lanes]\nmain = 2\n\n[wait]\na = 1\n", "\n[wait]\na = 1\n"),
            ("lanes = { main = 2 }\n", ""),
            ("lanes.main = 2\nb = 1\n", "b = 1\n"),
            ("# mine\n[lanes]\nmain = 2\n", "# mine\n[lanes]\n"),
        ] {
            let edited = edit(before, &[(path("lanes.main"), SettingEdit::Unset)]).unwrap();
            assert_eq!(edited, after);
        }
    }

    #[test]
    fn ends_of_lines_and_the_mark_of_the_encoding_stay() {
        let before = "\u{feff}# mine\r\n[lanes]\r\nmain = 2\r\n";
        let change = (path("lanes.main"), SettingEdit::Set(3.into()));
        let only = "# mine\n#[lanes]\n";
        let after = edit(only, std::slice::from_ref(&change)).unwrap();
        assert_eq!(after, format!("{only}[lanes]\nmain = 3\n"));
        assert_eq!(
            edit(only, &[(path("lanes.main"), SettingEdit::Unset)]).unwrap(),
            only
        );
        let after = edit(before, &[change]).unwrap();
        assert_eq!(after, before.replace('2', "3"));
    }

    #[test]
    fn names_with_dots_stay_in_one_piece() {
        assert_eq!(path("lanes.main"), ["lanes", "main"]);
        assert_eq!(path("prices.a/b-1.5.input"), ["prices", "a/b-1.5", "input"]);
        assert_eq!(
            path("skills.entries.a.b.enabled"),
            ["skills", "entries", "a.b", "enabled"]
        );
        let price = (path("prices.a/b-1.5.input"), SettingEdit::Set(2.into()));
        let text = edit("", &[price]).unwrap();
        assert_eq!(text, "[prices.\"a/b-1.5\"]\ninput = 2\n");
    }

    #[test]
    fn words_of_a_command_line_are_tried_as_what_they_look_like_first() {
        let meant = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            let changes = SettingEdit::meant(&words).into_iter();
            let values = changes.map(|change| match change {
                SettingEdit::Set(value) => value.to_string(),
                SettingEdit::Unset => String::new(),
            });
            values.collect()
        };
        assert_eq!(meant(&["4"]), ["4", "\"4\"", "[\"4\"]"]);
        assert_eq!(meant(&["1h"]), ["\"1h\"", "[\"1h\"]"]);
        assert_eq!(meant(&["[\"a\"]"])[0], "[\"a\"]");
        assert_eq!(meant(&["a", "4"]), ["[\"a\", \"4\"]"]);
    }
}
