//! Line editor of `abide chat`: rustyline in its own thread, with completion and a history for each
//! folder. Output during typing is printed above the edited line.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc as channel};

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Cmd, ColorMode, CompletionType, Config, Context, ExternalPrinter, KeyCode, KeyEvent, Modifiers,
};
use tokio::sync::mpsc;

use super::complete::{Words, complete};
use crate::cli::common::failure::Failure;
use crate::cli::output::print;
use crate::cli::output::print::{HEAD, styled};

/// Maximum number of messages in a folder's history.
const KEPT: usize = 1_000;

/// Result of one read from the editor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EditorInput {
    /// A message or command, possibly of several lines.
    Text(String),
    /// Ctrl-C: the typed text was dropped.
    Dropped,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// A request to the editor thread.
struct Want {
    prompt: String,
    /// Text that was typed ahead; the edited line starts with it.
    initial: String,
    /// Only add `initial` to the history; read nothing.
    is_typed: bool,
}

/// Handle of the editor thread.
pub(super) struct Editor {
    wants: channel::Sender<Want>,
    typed: mpsc::UnboundedReceiver<EditorInput>,
    printer: Box<dyn ExternalPrinter + Send>,
    /// True while a read is pending.
    is_open: bool,
    /// Completion values, shared with the editor thread.
    pub(super) words: Arc<Mutex<Words>>,
}

impl Editor {
    /// Opens an editor on this terminal; the histories are stored in the state folder.
    pub(super) fn new(state: Option<PathBuf>, folder: Option<&Path>) -> Result<Editor, Failure> {
        let words = Arc::new(Mutex::new(Words::default()));
        let failed = |error: ReadlineError| Failure::local("the terminal cannot be used", error);
        let mut line =
            rustyline::Editor::<EditorHelper, FileHistory>::with_config(config().map_err(failed)?)
                .map_err(failed)?;
        line.set_helper(Some(EditorHelper {
            words: Arc::clone(&words),
        }));
        for key in [
            KeyEvent(KeyCode::Enter, Modifiers::ALT),
            KeyEvent(KeyCode::Char('J'), Modifiers::CTRL | Modifiers::ALT),
        ] {
            line.bind_sequence(key, Cmd::Newline);
        }
        let history = state.and_then(|state| history_of(&state, folder?));
        if let Some(file) = &history {
            // The first time there is no file.
            let _ = line.load_history(file);
        }
        let printer: Box<dyn ExternalPrinter + Send> = match line.create_external_printer() {
            Ok(printer) => Box::new(printer),
            // The terminal has no cursor control.
            Err(_) => Box::new(Plain),
        };
        let (wants, wanted) = channel::channel::<Want>();
        let (says, typed) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            while let Ok(want) = wanted.recv() {
                if want.is_typed {
                    remember(&mut line, &want.initial, history.as_deref());
                    continue;
                }
                if says
                    .send(read(&mut line, &want, history.as_deref()))
                    .is_err()
                {
                    return;
                }
            }
        });
        Ok(Editor {
            wants,
            typed,
            printer,
            is_open: false,
            words,
        })
    }

    /// Starts a read, unless one is pending.
    pub(super) fn open(&mut self, prompt: &str, initial: String) {
        if !self.is_open {
            let prompt = prompt.to_owned();
            // If the thread has ended, `typed` returns the end of the input.
            let _ = self.wants.send(Want {
                prompt,
                initial,
                is_typed: false,
            });
            self.is_open = true;
        }
    }

    /// Adds a message to the history that was typed while a turn was running.
    pub(super) fn remember(&mut self, text: &str) {
        let _ = self.wants.send(Want {
            prompt: String::new(),
            initial: text.to_owned(),
            is_typed: true,
        });
    }

    /// Waits for the result of the pending read. Cancel-safe.
    pub(super) async fn typed(&mut self) -> EditorInput {
        let typed = self.typed.recv().await.unwrap_or(EditorInput::End);
        self.is_open = false;
        typed
    }

    /// Prints text above the edited line.
    pub(super) fn print(&mut self, text: &str) {
        let text = print::note_for_screen(text, 0);
        let text = match anstream::AutoStream::choice(&std::io::stderr()) {
            anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
            _ => text,
        };
        // Notes are optional; a failed print is ignored.
        let _ = self.printer.print(format!("{text}\n"));
    }
}

/// Printer for a terminal that cannot print above the edited line.
struct Plain;

impl ExternalPrinter for Plain {
    fn print(&mut self, text: String) -> rustyline::Result<()> {
        print::note(text.trim_end());
        Ok(())
    }
}

fn config() -> Result<Config, ReadlineError> {
    let colours = match anstream::AutoStream::choice(&std::io::stdout()) {
        anstream::ColorChoice::Never => ColorMode::Disabled,
        _ => ColorMode::Enabled,
    };
    Ok(Config::builder()
        .max_history_size(KEPT)?
        .history_ignore_dups(true)?
        .history_ignore_space(false)
        .completion_type(CompletionType::List)
        .completion_show_all_if_ambiguous(true)
        .bracketed_paste(true)
        .color_mode(colours)
        .build())
}

/// History file of a folder, in a directory with mode 0700. `None` if the state folder does not
/// exist (it is not created) or if the file is a symbolic link.
fn history_of(state: &Path, folder: &Path) -> Option<PathBuf> {
    if !state.is_dir() {
        return None;
    }
    let all = state.join("history");
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&all)
        .ok()?;
    let name = blake3::hash(folder.as_os_str().as_encoded_bytes()).to_hex();
    let file = all.join(&name[..16]);
    // A symbolic link could point anywhere.
    let is_link = fs::symlink_metadata(&file).is_ok_and(|data| data.is_symlink());
    (!is_link).then_some(file)
}

fn read(
    line: &mut rustyline::Editor<EditorHelper, FileHistory>,
    want: &Want,
    history: Option<&Path>,
) -> EditorInput {
    let prompt = (want.prompt.clone(), styled(HEAD, &want.prompt));
    match line.readline_with_initial(&prompt, (&want.initial, "")) {
        Ok(text) => {
            let text = joined(&text);
            if !text.trim().is_empty() {
                remember(line, &text, history);
            }
            EditorInput::Text(text)
        }
        Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => EditorInput::Dropped,
        Err(_) => EditorInput::End,
    }
}

fn remember(
    line: &mut rustyline::Editor<EditorHelper, FileHistory>,
    text: &str,
    history: Option<&Path>,
) {
    if line.add_history_entry(text).unwrap_or(false)
        && let Some(file) = history
    {
        // A failed history write must not end the conversation.
        let _ = line.append_history(file);
    }
}

/// Removes the backslashes that continue a line.
fn joined(text: &str) -> String {
    text.replace("\\\n", "\n").replace('\r', "\n")
}

/// Completion and validation callbacks for rustyline.
struct EditorHelper {
    words: Arc<Mutex<Words>>,
}

impl rustyline::Helper for EditorHelper {}

impl Completer for EditorHelper {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let words = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(complete(&words, &line[..at]))
    }
}

impl Hinter for EditorHelper {
    type Hint = String;
}

impl Highlighter for EditorHelper {}

impl Validator for EditorHelper {
    fn validate(&self, line: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match line.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_a_history_of_its_own_and_no_state_folder_is_made_for_it() {
        let state = tempfile::tempdir().unwrap();
        let of = |folder: &str| history_of(state.path(), Path::new(folder));
        assert_ne!(of("/a"), of("/b"));
        assert_eq!(of("/a"), of("/a"));
        assert_eq!(
            history_of(&state.path().join("none"), Path::new("/a")),
            None
        );
    }

    #[test]
    fn a_backslash_at_the_end_of_a_line_joins_nothing_but_the_lines() {
        assert_eq!(joined("one\\\ntwo\nthree\\four"), "one\ntwo\nthree\\four");
    }
}
