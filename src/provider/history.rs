//! Decides which parts of a conversation are sent back to a provider and in which form: the
//! provider's own where that is safe, otherwise text and tool calls. Nothing that a provider or
//! model once produced may make every later request invalid. Used by the adapters' `request`
//! modules.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::value::RawValue;

use super::adapt::Switches;
use super::{ModelRequest, PreparedRequest};
use crate::kernel::run::thinking::Thinking;
use crate::kernel::session::blocks::{BlockRef, Quoted};
use crate::kernel::session::message::{AnswerFinding, Block, Message, Role};

/// Replacement for blank text, which servers refuse.
pub(super) const EMPTY: &str = "(empty)";
/// Replacement for a tool result without text.
pub(super) const NO_OUTPUT: &str = "(no output)";

/// Maximum characters of a tool name that APIs accept.
const NAME_LIMIT: usize = 64;
/// Length of a tool call id that every API accepts: the strictest requires exactly this.
const ID_LENGTH: usize = 9;

/// The form in which earlier answers are sent back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AnswerForm {
    /// As the notes in the conversation say.
    #[default]
    Noted,
    /// The provider's own, except for answers before its last refusal of that form.
    Own,
    /// Everything as text and tool calls, without thinking.
    Plain,
}

/// Value of `plain_up_to`: the plain form for the whole conversation.
const ALL: i64 = i64::MAX - 1;
/// Like [`ALL`], and without thinking.
const ALL_WITHOUT_THINKING: i64 = i64::MAX;

impl<'a> PreparedRequest<'a> {
    pub(super) fn new(
        request: &'a ModelRequest,
        provider: &'a str,
        api: &'a str,
        base_url: &'a str,
    ) -> Self {
        let mut is_own = false;
        let mut refused = None;
        for message in request.messages.iter().rev() {
            match noted(message, provider) {
                Some(NotedForm::Plain) => {
                    refused = Some(message.seq);
                    break;
                }
                Some(NotedForm::Own) => is_own = true,
                None => {}
            }
        }
        let plain_up_to = match refused {
            None => i64::MIN,
            Some(refused) if is_own => refused - 1,
            // Later answers of the provider may contain again what it refused.
            Some(_) => ALL,
        };
        PreparedRequest {
            request,
            provider,
            api,
            base_url,
            plain_up_to,
            native_from: refused.unwrap_or(i64::MIN),
            switches: Switches::default(),
        }
    }

    /// Applies what the model was found not to accept.
    pub(super) fn with(mut self, switches: &Switches) -> Self {
        self.switches.clone_from(switches);
        self
    }

    /// The thinking level that is sent: the nearest one that the model accepts.
    pub(super) fn level(&self) -> Option<Thinking> {
        let level = self.thinking().filter(|_| !self.switches.no_thinking)?;
        self.switches.level(level)
    }

    /// Applies the form to the earlier answers.
    pub(super) fn in_form(mut self, form: AnswerForm) -> Self {
        match form {
            AnswerForm::Noted => {}
            AnswerForm::Own => {
                self.plain_up_to = self.plain_up_to.min(self.native_from.saturating_sub(1))
            }
            AnswerForm::Plain => self.plain_up_to = ALL_WITHOUT_THINKING,
        }
        self
    }

    fn is_plain(&self, message: &Message) -> bool {
        message.seq <= self.plain_up_to
    }

    /// The requested thinking level. `None` if an earlier answer of this turn is sent without its
    /// thinking: the API refuses that combination.
    pub(super) fn thinking(&self) -> Option<Thinking> {
        let messages = self.request.messages.iter().rev();
        let mut turn = messages.take_while(|message| !message.is_input());
        let thoughtless = turn.any(|message| {
            let calls = |block: &Block| matches!(block, Block::ToolCall { .. });
            message.role == Role::Assistant
                && message.content.iter().any(calls)
                && (native_of(self, message).is_none()
                    || noted(message, self.provider) == Some(NotedForm::Plain))
        });
        let is_off =
            self.plain_up_to == ALL_WITHOUT_THINKING || (self.api == "anthropic" && thoughtless);
        self.request.thinking.filter(|_| !is_off)
    }

    /// The id under which a call of `message`, or the result of one, is sent. In plain form, ids
    /// are replaced by ones that every API accepts.
    pub(super) fn id<'b>(&self, message: &Message, id: Quoted<'b>) -> Quoted<'b> {
        match self.is_plain(message) {
            true => Quoted::Plain(Cow::Owned(short_id(&id.text()))),
            false => id,
        }
    }
}

/// What an answer's notes say about the form that this provider accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotedForm {
    Plain,
    Own,
}

fn noted(message: &Message, provider: &str) -> Option<NotedForm> {
    // Most entries are a single text without notes.
    if message.content.only_text().is_some() {
        return None;
    }
    message
        .content
        .pieces()
        .iter()
        .find_map(|block| match block {
            BlockRef::Note(AnswerFinding::Plain { provider: own }) if own == provider => {
                Some(NotedForm::Plain)
            }
            BlockRef::Note(AnswerFinding::Own { provider: own }) if own == provider => {
                Some(NotedForm::Own)
            }
            _ => None,
        })
}

/// The answer in this provider's own JSON; `None` if it must go as text and tool calls. Another
/// provider's JSON would be ignored or refused.
pub(super) fn native_of<'a>(
    call: &PreparedRequest<'_>,
    message: &'a Message,
) -> Option<Cow<'a, RawValue>> {
    if call.is_plain(message) {
        return None;
    }
    let native = message.content.native(call.provider, call.api)?;
    let is_named = message.content.only_text().is_some()
        || message
            .content
            .pieces()
            .iter()
            .all(|block| without_name(block).is_none());
    is_named.then_some(native)
}

/// The id of a tool call without a name.
fn without_name(block: &BlockRef<'_>) -> Option<String> {
    match block {
        BlockRef::ToolCall { id, name, .. } if name.is_blank() => Some(id.text().into_owned()),
        _ => None,
    }
}

/// The ids of calls that name no tool. Neither these calls nor their results are sent.
pub(super) fn unnamed_calls(request: &ModelRequest) -> BTreeSet<String> {
    let messages = request.messages.iter();
    let more = messages
        .filter(|message| message.role == Role::Assistant && message.content.only_text().is_none());
    let blocks = more.flat_map(|message| message.content.pieces());
    blocks.filter_map(|block| without_name(&block)).collect()
}

/// A tool name in the form that APIs accept: models also call tools that do not exist.
pub(super) fn fitting_name(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.len() <= NAME_LIMIT && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let letters = name.chars().map(|c| if fits(c) { c } else { '_' });
    Cow::Owned(letters.take(NAME_LIMIT).collect())
}

/// [`fitting_name`] without copying a stored name that already fits.
pub(super) fn fitting(name: Quoted<'_>) -> Quoted<'_> {
    match fitting_name(&name.text()) {
        Cow::Borrowed(_) => name,
        Cow::Owned(fits) => Quoted::Plain(Cow::Owned(fits)),
    }
}

/// A deterministic id of [`ID_LENGTH`] letters and digits for `id`.
fn short_id(id: &str) -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let hash = blake3::hash(id.as_bytes());
    let letters = hash.as_bytes().iter().take(ID_LENGTH);
    let letters = letters.map(|byte| LETTERS[usize::from(*byte) % LETTERS.len()]);
    letters.map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{assistant, calls, request, result, user};
    use super::*;
    use serde_json::json;

    fn native(provider: &str) -> Block {
        Block::Native {
            provider: provider.to_owned(),
            api: "anthropic".to_owned(),
            model: format!("{provider}/m"),
            json: "[]".to_owned(),
        }
    }

    fn called(seq: i64, name: &str) -> Message {
        let block = Block::ToolCall {
            id: format!("id/{seq}"),
            name: name.to_owned(),
            arguments: json!({}),
        };
        calls(seq, vec![block, native("mine")])
    }

    #[test]
    fn answers_go_back_plain_once_their_form_was_refused() {
        let mut repaired = called(4, "read");
        let note = Block::Note {
            note: AnswerFinding::Plain {
                provider: "mine".to_owned(),
            },
        };
        repaired.content = [repaired.content.into_vec(), vec![note]].concat().into();
        let mut asked = request(vec![
            user(1, "x"),
            called(2, "read"),
            result(3, "id/2", "y", false),
            repaired,
            result(5, "id/4", "y", false),
        ]);
        asked.thinking = Some(Thinking::Low);
        let natives = |call: &PreparedRequest<'_>| -> Vec<bool> {
            let messages = call.request.messages.iter();
            messages.map(|one| native_of(call, one).is_some()).collect()
        };
        let call = PreparedRequest::new(&asked, "mine", "anthropic", "");
        assert_eq!(natives(&call), [false; 5]);
        assert_eq!(call.thinking(), None);
        // A call and its result keep the same id.
        let ids = |at: usize, id: &'static str| {
            let id = Quoted::Plain(id.into());
            call.id(&call.request.messages[at], id).text().into_owned()
        };
        assert_eq!(ids(1, "id/2"), ids(2, "id/2"));
        assert_ne!(ids(1, "id/2"), "id/2");
        assert_ne!(ids(3, "id/4"), "id/4");
        let plain =
            PreparedRequest::new(&asked, "mine", "anthropic", "").in_form(AnswerForm::Plain);
        assert_eq!(natives(&plain), [false; 5]);
        let own = PreparedRequest::new(&asked, "mine", "anthropic", "").in_form(AnswerForm::Own);
        assert_eq!(natives(&own), [false, false, false, true, false]);
        assert_eq!(own.thinking(), None);
        let other = PreparedRequest::new(&asked, "other", "anthropic", "");
        assert_eq!(natives(&other), [false; 5]);
        // The next turn uses thinking again.
        let mut next: Vec<Message> = asked.messages.iter().map(|one| (**one).clone()).collect();
        next.extend([assistant(6, "done"), user(7, "more")]);
        let mut next = request(next);
        next.thinking = Some(Thinking::Low);
        let call = PreparedRequest::new(&next, "mine", "anthropic", "");
        assert_eq!(call.thinking(), Some(Thinking::Low));
        // The plain form was refused, and the provider's own was accepted.
        let mut taken = called(8, "read");
        let note = Block::Note {
            note: AnswerFinding::Own {
                provider: "mine".to_owned(),
            },
        };
        taken.content = [taken.content.into_vec(), vec![note]].concat().into();
        let mut own: Vec<Message> = next.messages.iter().map(|one| (**one).clone()).collect();
        own.extend([taken, result(9, "id/8", "y", false)]);
        let own = request(own);
        let call = PreparedRequest::new(&own, "mine", "anthropic", "");
        let natives: Vec<i64> = own
            .messages
            .iter()
            .filter(|one| native_of(&call, one).is_some())
            .map(|one| one.seq)
            .collect();
        assert_eq!(natives, [4, 8]);
    }

    #[test]
    fn names_and_ids_are_made_to_fit() {
        assert_eq!(fitting_name("read_file-2"), "read_file-2");
        assert_eq!(fitting_name("functions.read file"), "functions_read_file");
        assert_eq!(fitting_name(&"x".repeat(99)).len(), NAME_LIMIT);
        let id = short_id("call_ä/1");
        assert_eq!((id.len(), id.as_str()), (ID_LENGTH, &*short_id("call_ä/1")));
        assert!(id.chars().all(|c| c.is_ascii_alphanumeric()));
        assert_ne!(short_id("a"), short_id("b"));
    }

    #[test]
    fn a_call_without_a_name_does_not_go_back_with_its_answer() {
        let asked = request(vec![called(1, " "), called(2, "read")]);
        assert_eq!(
            unnamed_calls(&asked).into_iter().collect::<Vec<_>>(),
            ["id/1"]
        );
        let call = PreparedRequest::new(&asked, "mine", "anthropic", "");
        assert!(native_of(&call, &asked.messages[0]).is_none());
        assert!(native_of(&call, &asked.messages[1]).is_some());
    }
}
