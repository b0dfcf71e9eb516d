//! What of a conversation goes back to a provider, and in which form: the provider's own where
//! that is safe, else text and calls. Nothing that a provider or a model once gave may make
//! every later request invalid. Used by the adapters' requests.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::value::RawValue;

use super::adapt::Switches;
use super::{Call, ModelRequest};
use crate::kernel::blocks::{BlockRef, Quoted};
use crate::kernel::message::{Block, Message, Note, Role};
use crate::kernel::thinking::Thinking;

/// Stands for a text of blanks, which servers refuse.
pub(super) const EMPTY: &str = "(empty)";
/// Stands for a result without text.
pub(super) const NO_OUTPUT: &str = "(no output)";

/// The most characters of a tool's name that APIs take.
const NAME_LIMIT: usize = 64;
/// The length of an id that every API takes: the strictest wants exactly this.
const ID_LENGTH: usize = 9;

/// The form in which the answers of a conversation go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// As the notes in the conversation say.
    #[default]
    Noted,
    /// The provider's own, except for what is before its last refusal of that.
    Own,
    /// All as text and calls, without thinking.
    Plain,
}

/// Plain to the end of the conversation, however long that is.
const ALL: i64 = i64::MAX - 1;
/// The same, and without thinking.
const ALL_WITHOUT_THINKING: i64 = i64::MAX;

impl<'a> Call<'a> {
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
                Some(Noted::Plain) => {
                    refused = Some(message.seq);
                    break;
                }
                Some(Noted::Own) => is_own = true,
                None => {}
            }
        }
        let plain_up_to = match refused {
            None => i64::MIN,
            Some(refused) if is_own => refused - 1,
            // What it gives later may hold again what it has refused.
            Some(_) => ALL,
        };
        Call {
            request,
            provider,
            api,
            base_url,
            plain_up_to,
            own_from: refused.unwrap_or(i64::MIN),
            switches: Switches::default(),
        }
    }

    /// The same without what the model was found not to take.
    pub(super) fn with(mut self, switches: &Switches) -> Self {
        self.switches.clone_from(switches);
        self
    }

    /// The level of thinking that is sent: the nearest one that the model takes.
    pub(super) fn level(&self) -> Option<Thinking> {
        let level = self.thinking().filter(|_| !self.switches.no_thinking)?;
        self.switches.level(level)
    }

    /// The same in this form.
    pub(super) fn in_form(mut self, form: Form) -> Self {
        match form {
            Form::Noted => {}
            Form::Own => self.plain_up_to = self.plain_up_to.min(self.own_from.saturating_sub(1)),
            Form::Plain => self.plain_up_to = ALL_WITHOUT_THINKING,
        }
        self
    }

    fn is_plain(&self, message: &Message) -> bool {
        message.seq <= self.plain_up_to
    }

    /// How much the model may think. Not at all where an earlier answer of this turn goes back
    /// without what was thought: the API refuses the one without the other.
    pub(super) fn thinking(&self) -> Option<Thinking> {
        let messages = self.request.messages.iter().rev();
        let mut turn = messages.take_while(|message| !message.is_input());
        let thoughtless = turn.any(|message| {
            let calls = |block: &Block| matches!(block, Block::ToolCall { .. });
            message.role == Role::Assistant
                && message.content.iter().any(calls)
                && (native_of(self, message).is_none()
                    || noted(message, self.provider) == Some(Noted::Plain))
        });
        let is_off =
            self.plain_up_to == ALL_WITHOUT_THINKING || (self.api == "anthropic" && thoughtless);
        self.request.thinking.filter(|_| !is_off)
    }

    /// The id under which a call of `message`, or the call of a result in it, goes back. Where
    /// answers go back in plain form, ids are of the form that every API takes.
    pub(super) fn id<'b>(&self, message: &Message, id: Quoted<'b>) -> Quoted<'b> {
        match self.is_plain(message) {
            true => Quoted::Plain(Cow::Owned(short_id(&id.text()))),
            false => id,
        }
    }
}

/// What an answer's notes say of the form in which this provider takes the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noted {
    Plain,
    Own,
}

fn noted(message: &Message, provider: &str) -> Option<Noted> {
    // Most entries are one text, which needs no look.
    if message.content.only_text().is_some() {
        return None;
    }
    message
        .content
        .pieces()
        .iter()
        .find_map(|block| match block {
            BlockRef::Note(Note::Plain { provider: own }) if own == provider => Some(Noted::Plain),
            BlockRef::Note(Note::Own { provider: own }) if own == provider => Some(Noted::Own),
            _ => None,
        })
}

/// An answer as this same provider gave it. Another provider's means nothing to it, or is
/// refused: it gets text and tool calls.
pub(super) fn native_of<'a>(call: &Call<'_>, message: &'a Message) -> Option<Cow<'a, RawValue>> {
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

/// The ids of calls that name no tool. Neither they nor their results go back.
pub(super) fn nameless(request: &ModelRequest) -> BTreeSet<String> {
    let messages = request.messages.iter();
    let more = messages
        .filter(|message| message.role == Role::Assistant && message.content.only_text().is_none());
    let blocks = more.flat_map(|message| message.content.pieces());
    blocks.filter_map(|block| without_name(&block)).collect()
}

/// A tool's name as APIs take it: models also call tools that there are not.
pub(super) fn fitting_name(name: &str) -> Cow<'_, str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.len() <= NAME_LIMIT && name.chars().all(fits) {
        return Cow::Borrowed(name);
    }
    let letters = name.chars().map(|c| if fits(c) { c } else { '_' });
    Cow::Owned(letters.take(NAME_LIMIT).collect())
}

/// The same of a name that is looked at where it is stored.
pub(super) fn fitting(name: Quoted<'_>) -> Quoted<'_> {
    match fitting_name(&name.text()) {
        Cow::Borrowed(_) => name,
        Cow::Owned(fits) => Quoted::Plain(Cow::Owned(fits)),
    }
}

/// An id of [`ID_LENGTH`] letters and digits, always the same for the same `id`.
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
            note: Note::Plain {
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
        let natives = |call: &Call<'_>| -> Vec<bool> {
            let messages = call.request.messages.iter();
            messages.map(|one| native_of(call, one).is_some()).collect()
        };
        let call = Call::new(&asked, "mine", "anthropic", "");
        assert_eq!(natives(&call), [false; 5]);
        assert_eq!(call.thinking(), None);
        // Call and result keep one id.
        let ids = |at: usize, id: &'static str| {
            let id = Quoted::Plain(id.into());
            call.id(&call.request.messages[at], id).text().into_owned()
        };
        assert_eq!(ids(1, "id/2"), ids(2, "id/2"));
        assert_ne!(ids(1, "id/2"), "id/2");
        assert_ne!(ids(3, "id/4"), "id/4");
        let plain = Call::new(&asked, "mine", "anthropic", "").in_form(Form::Plain);
        assert_eq!(natives(&plain), [false; 5]);
        let own = Call::new(&asked, "mine", "anthropic", "").in_form(Form::Own);
        assert_eq!(natives(&own), [false, false, false, true, false]);
        assert_eq!(own.thinking(), None);
        let other = Call::new(&asked, "other", "anthropic", "");
        assert_eq!(natives(&other), [false; 5]);
        // The next turn thinks again.
        let mut next: Vec<Message> = asked.messages.iter().map(|one| (**one).clone()).collect();
        next.extend([assistant(6, "done"), user(7, "more")]);
        let mut next = request(next);
        next.thinking = Some(Thinking::Low);
        let call = Call::new(&next, "mine", "anthropic", "");
        assert_eq!(call.thinking(), Some(Thinking::Low));
        // The plain form was refused, and its own was taken.
        let mut taken = called(8, "read");
        let note = Block::Note {
            note: Note::Own {
                provider: "mine".to_owned(),
            },
        };
        taken.content = [taken.content.into_vec(), vec![note]].concat().into();
        let mut own: Vec<Message> = next.messages.iter().map(|one| (**one).clone()).collect();
        own.extend([taken, result(9, "id/8", "y", false)]);
        let own = request(own);
        let call = Call::new(&own, "mine", "anthropic", "");
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
        assert_eq!(nameless(&asked).into_iter().collect::<Vec<_>>(), ["id/1"]);
        let call = Call::new(&asked, "mine", "anthropic", "");
        assert!(native_of(&call, &asked.messages[0]).is_none());
        assert!(native_of(&call, &asked.messages[1]).is_some());
    }
}
