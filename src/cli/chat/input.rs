//! Reads the next line of a conversation from the editor, a pipe or a plain terminal, and refreshes
//! the completion values.

use std::collections::HashSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::PoisonError;

use tokio::sync::mpsc::unbounded_channel;

use super::editor::EditorInput;
use super::idle::Idle;
use super::talk::Talk;
use super::{agents, session};
use crate::cli::common::failure::Failure;
use crate::cli::output::print::{DIM, HEAD, styled};
use crate::cli::output::{print, text};
use crate::wire::gateway::{GetStatus, ModelProvider};
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::sessions::{ListSessions, SessionKind};

/// Prompt of the conversation.
const PROMPT: &str = "you> ";
/// Note for Ctrl-C when no turn is running.
const LEAVE: &str = "no turn is running; Ctrl-D or /quit quits";

/// The next input.
pub(super) enum ChatInput {
    Line(String),
    End,
    /// Nothing to do; read again.
    Nothing,
}

impl Talk<'_> {
    /// The user's next line; events meanwhile are printed above it.
    pub(super) async fn next(&mut self) -> Result<ChatInput, Failure> {
        if self.editor.is_none() {
            return Ok(self.next_line().await);
        }
        self.link = self.link().await?;
        if self.idle.is_none() {
            let link = self.link().await?;
            self.idle = Some(Idle::open(link, &self.common.place, &self.session.key).await?);
        }
        self.learn_words().await;
        if let (Some(line), Some(editor)) = (self.queued.pop_front(), &mut self.editor) {
            // It was typed while a turn was running.
            print::note(&format!("{}{}", styled(HEAD, PROMPT), text::clean(&line)));
            editor.remember(&line);
            return Ok(ChatInput::Line(line));
        }
        let initial = std::mem::take(&mut self.ahead);
        let (Some(editor), Some(idle)) = (&mut self.editor, &mut self.idle) else {
            return Ok(ChatInput::Nothing);
        };
        editor.open(PROMPT, initial);
        let (says, mut said) = unbounded_channel::<String>();
        let mut is_watched = true;
        loop {
            // Keep this future across prints: what it waits for may take a while.
            let mut news = pin!(idle.next(|text: &str| drop(says.send(text.to_owned()))));
            let came = loop {
                tokio::select! {
                    biased;
                    typed = editor.typed() => return Ok(match typed {
                        EditorInput::Text(text) => ChatInput::Line(text),
                        EditorInput::Dropped => {
                            print::note(&styled(DIM, LEAVE));
                            ChatInput::Nothing
                        }
                        EditorInput::End => ChatInput::End,
                    }),
                    () = self.interrupt.pressed() => {
                        editor.print(&styled(DIM, LEAVE));
                    }
                    Some(text) = said.recv() => editor.print(&styled(DIM, text)),
                    came = &mut news, if is_watched => break came,
                }
            };
            match came {
                Ok(text) => editor.print(&text),
                // The typed line can still be sent; that tries to reconnect once more.
                Err(failure) => {
                    is_watched = false;
                    editor.print(&text::clean(&failure.to_string()));
                }
            }
        }
    }

    /// The next line of a pipe, or of a terminal without an editor.
    async fn next_line(&mut self) -> ChatInput {
        if let Some(line) = self.queued.pop_front() {
            return ChatInput::Line(line);
        }
        if self.person.is_there {
            print::prompt(&styled(HEAD, PROMPT));
        }
        let line = tokio::select! {
            line = self.person.line() => line,
            () = self.interrupt.pressed() => None,
        };
        if line.is_none() && self.person.is_there {
            // Let the shell continue below the prompt, not behind it.
            print::note("");
        }
        line.map_or(ChatInput::End, ChatInput::Line)
    }

    /// Refreshes the completion values; where a request fails, the previous values stay.
    async fn learn_words(&mut self) {
        let agents = agents::of_people(&self.link, session::here()).await;
        let status = self.link.ask(&GetStatus {}).await;
        let request = ListSessions {
            kind: Some(SessionKind::Main),
            limit: PageSize(PAGE_LIMIT),
            ..ListSessions::default()
        };
        let sessions = self.link.ask(&request).await;
        let Some(editor) = &self.editor else {
            return;
        };
        let mut words = editor.words.lock().unwrap_or_else(PoisonError::into_inner);
        let is_plain = |word: &String| text::clean(word) == *word;
        if let Ok(agents) = agents {
            words.agents = agents
                .into_iter()
                .map(|agent| agent.name)
                .filter(is_plain)
                .collect();
        }
        if let Ok(status) = status {
            let named = |of: &ModelProvider| {
                let names = of.models.iter().filter(|model| !model.ends_with('*'));
                names.cloned().collect::<Vec<_>>()
            };
            let all = status.providers.iter().flat_map(named).filter(is_plain);
            words.models = all.collect::<HashSet<_>>().into_iter().collect();
            words.models.sort();
        }
        if let Ok(page) = sessions {
            let keys = page
                .sessions
                .into_iter()
                .map(|session| session.key.to_string());
            words.sessions = keys.filter(is_plain).collect();
        }
        words.folder = self.session.cwd.as_ref().map(PathBuf::from);
    }
}
