//! Tests the previews of calls that write a file.

use std::fs;

use serde_json::json;

use super::*;
use crate::kernel::secret::Secret;
use crate::tool::ToolOptions;

struct Place {
    folder: tempfile::TempDir,
    catalogue: Catalogue,
}

fn place() -> Place {
    Place {
        folder: tempfile::tempdir().unwrap(),
        catalogue: Catalogue::new(ToolOptions::default()),
    }
}

impl Place {
    async fn masked(&self, tool: &str, arguments: Value, redactor: Redactor) -> ChangeEffect {
        let root = self.folder.path().canonicalize().unwrap();
        let catalogue = &self.catalogue;
        let change = catalogue.preview(root, tool, &arguments, redactor, false);
        change.await.unwrap().effect
    }

    async fn effect(&self, tool: &str, arguments: Value) -> ChangeEffect {
        self.masked(tool, arguments, Redactor::default()).await
    }

    fn holds(&self, text: impl AsRef<[u8]>) {
        fs::write(self.folder.path().join("a.txt"), text).unwrap();
    }
}

fn write(content: &str) -> Value {
    json!({ "path": "a.txt", "content": content })
}

fn edit(old: &str, new: &str) -> Value {
    json!({ "path": "a.txt", "old_text": old, "new_text": new })
}

#[tokio::test]
async fn a_write_is_a_diff_against_the_file_as_it_is() {
    let place = place();
    assert_eq!(
        place.effect("write", write("one\n")).await,
        ChangeEffect::Creates("--- /dev/null\n+++ b/a.txt\n@@ -0,0 +1 @@\n+one\n".to_owned())
    );
    place.holds("one\ntwo");
    assert_eq!(
        place.effect("write", write("one\nthree\n")).await,
        ChangeEffect::Changes(
            "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n\\ No newline at end of \
             file\n+three\n"
                .to_owned()
        )
    );
    assert_eq!(
        place.effect("write", write("one\ntwo")).await,
        ChangeEffect::Nothing
    );
}

#[tokio::test]
async fn an_edit_is_a_diff_or_the_reason_for_which_it_would_fail() {
    let place = place();
    let missing = place.effect("edit", edit("two", "three")).await;
    assert_eq!(
        missing,
        ChangeEffect::Fails("there is no such file".to_owned())
    );
    place.holds("one\r\ntwo\r\n");
    let ChangeEffect::Changes(diff) = place.effect("edit", edit("two\n", "2\nand\n")).await else {
        panic!("no diff");
    };
    assert!(diff.ends_with(" one\r\n-two\r\n+2\r\n+and\r\n"), "{diff:?}");
    let ChangeEffect::Fails(why) = place.effect("edit", edit("four", "4")).await else {
        panic!("it would not fail");
    };
    assert!(why.contains("was not found"), "{why}");
}

#[tokio::test]
async fn what_cannot_be_compared_is_named() {
    let place = place();
    place.holds(b"\xff\xfe\0");
    let ChangeEffect::Fails(why) = place.effect("write", write("x")).await else {
        panic!("it would not fail");
    };
    assert!(why.contains("not UTF-8 text"), "{why}");
    place.holds("old\n");
    let long = "a line of text\n".repeat(20_000);
    let ChangeEffect::NotShown(why) = place.effect("write", write(&long)).await else {
        panic!("it is shown");
    };
    assert!(why.contains("too large"), "{why}");
    let outside = json!({ "path": "../a.txt", "content": "x" });
    let ChangeEffect::Fails(why) = place.effect("write", outside).await else {
        panic!("it would not fail");
    };
    assert!(why.contains("outside"), "{why}");
    let root = place.folder.path().to_owned();
    let shell = json!({ "command": "ls" });
    let change = place
        .catalogue
        .preview(root, "shell", &shell, Redactor::default(), false);
    assert_eq!(change.await, None);
}

fn keys() -> Redactor {
    let secret = Secret::new("hunter2-hunter2");
    Redactor::new([("API_KEY", &secret)])
}

#[tokio::test]
async fn values_are_masked_in_what_is_shown_and_not_in_what_is_compared() {
    let place = place();
    place.holds("key = hunter2-hunter2\nother\n");
    // The call uses the file content unmasked.
    let masked = edit("key = [secret:API_KEY]\nother", "key = x");
    let ChangeEffect::Fails(why) = place.masked("edit", masked, keys()).await else {
        panic!("it would not fail");
    };
    assert!(why.contains("was not found"), "{why}");
    let ChangeEffect::Changes(diff) = place.masked("edit", edit("other", "new"), keys()).await
    else {
        panic!("no diff");
    };
    assert!(
        diff.ends_with("\n key = [secret:API_KEY]\n-other\n+new\n"),
        "{diff}"
    );
}

#[tokio::test]
async fn a_write_that_the_call_refuses_is_said_to_fail_and_no_change_is_hidden() {
    let place = place();
    let (value, mask) = ("key = hunter2-hunter2\n", "key = [secret:API_KEY]\n");
    for form in ["", "# form: [secret:API_KEY]\n"] {
        place.holds(format!("{value}{form}"));
        let content = format!("{mask}{form}");
        let ChangeEffect::Fails(why) = place.masked("write", write(&content), keys()).await else {
            panic!("it would not fail");
        };
        assert!(why.contains("Use edit around"), "{why}");
        // Text of the file that looks like a mask may stay, with or without the value.
        let effect = place.masked("write", write(&format!("{form}end\n")), keys());
        assert!(matches!(effect.await, ChangeEffect::Changes(_)));
    }
    place.holds(mask);
    let ChangeEffect::Changes(diff) = place.masked("write", write(value), keys()).await else {
        panic!("no diff");
    };
    let lines = "-key = [secret:API_KEY]\n+key = [secret:API_KEY]\n\\ Some lines look alike here but differ";
    assert!(diff.contains(lines) && !diff.contains("hunter2"), "{diff}");
}

#[tokio::test]
async fn a_value_of_several_lines_is_masked_in_each() {
    let place = place();
    place.holds("a\n-- BEGIN\nsecret\nEND --\nz\n");
    let secret = Secret::new("-- BEGIN\nsecret\nEND --");
    let redactor = Redactor::new([("CERT", &secret)]);
    let ChangeEffect::Changes(diff) = place.masked("write", write("a\nz\n"), redactor).await else {
        panic!("no diff");
    };
    let removed = "-[secret:CERT]\n".repeat(3);
    assert!(diff.ends_with(&format!(" a\n{removed} z\n")), "{diff}");
}

#[tokio::test]
async fn a_carriage_return_ends_no_line() {
    let place = place();
    place.holds("keep\rgone\nb\n");
    let ChangeEffect::Changes(diff) = place.effect("write", write("keep\rnew\nb\n")).await else {
        panic!("no diff");
    };
    assert!(diff.ends_with("-keep\rgone\n+keep\rnew\n b\n"), "{diff:?}");
}

#[tokio::test]
async fn a_change_that_was_worked_out_is_taken_until_the_file_is_another_one() {
    let place = place();
    let file = place.folder.path().join("a.txt");
    let put = |text: &str| {
        place.holds(text);
        let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000);
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    };
    put("one\n");
    let digest = async || {
        let root = place.folder.path().canonicalize().unwrap();
        let change = place
            .catalogue
            .preview(root, "write", &write("x\n"), keys(), true);
        change.await.unwrap().digest.unwrap()
    };
    let before = digest().await;
    assert_eq!(before, digest().await);
    let shown = place.masked("write", write("x\n"), keys()).await;
    put("two\n");
    assert_ne!(before, digest().await);
    assert_ne!(shown, place.masked("write", write("x\n"), keys()).await);
}
