//! The line that a person types in `abide chat`: rustyline in a thread of its own, with a history
//! for each folder and completion. What happens while the person types is printed above the line.

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
use crate::cli::failure::Failure;
use crate::cli::print::{self, HEAD, styled};

/// The most messages that are kept for a folder.
const KEPT: usize = 1_000;

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// A message or command; it may have several lines.
    Text(String),
    /// Ctrl-C: what was typed of a line is dropped.
    Dropped,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// What is to be typed.
struct Want {
    prompt: String,
    /// What was typed before anybody asked.
    initial: String,
    /// It was typed already, and goes into the history as it is.
    is_typed: bool,
}

/// The line editor.
pub(super) struct Editor {
    wants: channel::Sender<Want>,
    typed: mpsc::UnboundedReceiver<Typed>,
    printer: Box<dyn ExternalPrinter + Send>,
    /// Something is being typed.
    is_open: bool,
    /// What Tab knows.
    pub(super) words: Arc<Mutex<Words>>,
}

impl Editor {
    /// An editor on this terminal; the history of a folder is kept below the state folder.
    pub(super) fn new(state: Option<PathBuf>, folder: Option<&Path>) -> Result<Editor, Failure> {
        let words = Arc::new(Mutex::new(Words::default()));
        let failed = |error: ReadlineError| Failure::local("the terminal cannot be used", error);
        let mut line =
            rustyline::Editor::<Help, FileHistory>::with_config(config().map_err(failed)?)
                .map_err(failed)?;
        line.set_helper(Some(Help {
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
            // The first time there is none.
            let _ = line.load_history(file);
        }
        let printer: Box<dyn ExternalPrinter + Send> = match line.create_external_printer() {
            Ok(printer) => Box::new(printer),
            // A terminal without a cursor.
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

    /// Lets the person type, unless they do already.
    pub(super) fn open(&mut self, prompt: &str, initial: String) {
        if !self.is_open {
            let prompt = prompt.to_owned();
            // Where the thread has ended, so has the input.
            let _ = self.wants.send(Want {
                prompt,
                initial,
                is_typed: false,
            });
            self.is_open = true;
        }
    }

    /// Keeps a message in the history that was typed while a turn was under way.
    pub(super) fn remember(&mut self, text: &str) {
        let _ = self.wants.send(Want {
            prompt: String::new(),
            initial: text.to_owned(),
            is_typed: true,
        });
    }

    /// What they have typed; nothing is lost when this is dropped.
    pub(super) async fn typed(&mut self) -> Typed {
        let typed = self.typed.recv().await.unwrap_or(Typed::End);
        self.is_open = false;
        typed
    }

    /// Prints a text above the line that is typed.
    pub(super) fn print(&mut self, text: &str) {
        let text = print::note_for_screen(text, 0);
        let text = match anstream::AutoStream::choice(&std::io::stderr()) {
            anstream::ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
            _ => text,
        };
        // Notes are a courtesy.
        let _ = self.printer.print(format!("{text}\n"));
    }
}

/// For a terminal that cannot print above the line.
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

/// The file of a folder's history. It is this user's alone, as the state folder is; a state folder
/// that is not there is not made for it.
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
    // A link here could lead anywhere.
    let is_link = fs::symlink_metadata(&file).is_ok_and(|data| data.is_symlink());
    (!is_link).then_some(file)
}

fn read(
    line: &mut rustyline::Editor<Help, FileHistory>,
    want: &Want,
    history: Option<&Path>,
) -> Typed {
    let prompt = (want.prompt.clone(), styled(HEAD, &want.prompt));
    match line.readline_with_initial(&prompt, (&want.initial, "")) {
        Ok(text) => {
            let text = joined(&text);
            if !text.trim().is_empty() {
                remember(line, &text, history);
            }
            Typed::Text(text)
        }
        Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => Typed::Dropped,
        Err(_) => Typed::End,
    }
}

fn remember(line: &mut rustyline::Editor<Help, FileHistory>, text: &str, history: Option<&Path>) {
    if line.add_history_entry(text).unwrap_or(false)
        && let Some(file) = history
    {
        // A history that cannot be written is no reason to end a conversation.
        let _ = line.append_history(file);
    }
}

/// A backslash at the end of a line only meant that it goes on.
fn joined(text: &str) -> String {
    text.replace("\\\n", "\n").replace('\r', "\n")
}

/// What rustyline asks while the person types.
struct Help {
    words: Arc<Mutex<Words>>,
}

impl rustyline::Helper for Help {}

impl Completer for Help {
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

impl Hinter for Help {
    type Hint = String;
}

impl Highlighter for Help {}

impl Validator for Help {
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
