//! Changes settings in the text of a file and leaves everything else as a person wrote it:
//! comments, order, quotes. `abide setup` uses it.

use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

/// The text with each of these settings; a key is the names on the way to it.
pub fn edit(text: &str, settings: &[(Vec<&str>, String)]) -> Result<String, String> {
    let mut document = read(text)?;
    for (key, value) in settings {
        put(&mut document, key, Value::from(value.as_str()))?;
    }
    Ok(document.to_string())
}

/// The text with a setting that is a list of texts.
pub fn edit_list(text: &str, key: &[&str], list: &[String]) -> Result<String, String> {
    let mut document = read(text)?;
    put(
        &mut document,
        key,
        Value::from_iter(list.iter().map(String::as_str)),
    )?;
    Ok(document.to_string())
}

fn read(text: &str) -> Result<DocumentMut, String> {
    text.parse()
        .map_err(|fault: toml_edit::TomlError| fault.to_string())
}

fn put(document: &mut DocumentMut, key: &[&str], mut new: Value) -> Result<(), String> {
    let (field, tables) = key.split_last().ok_or("a setting has a name")?;
    let mut is_dotted = false;
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
            .ok_or_else(|| format!("{name} is no table"))?;
        is_dotted = table.is_dotted();
    }
    match table.get_mut(field).and_then(Item::as_value_mut) {
        Some(old) => {
            // With the comment behind it.
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => {
            table.insert(field, Item::Value(new));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str) -> String {
        let model = (vec!["defaults", "model"], "a/b".to_owned());
        let url = (vec!["providers", "a", "base_url"], "http://x".to_owned());
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
        assert!(edit("defaults = 1", &[(key, String::new())]).is_err());
    }
}
