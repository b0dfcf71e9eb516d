//! Property tests over recorded streams that are cut, repeated, re-indexed and reordered. Whatever
//! the change, no call is executed twice or without a name, none gets another's arguments, an
//! answer without a good end is rejected, and what is sent back is valid for every server.
//!
//! Takes some 20 s of processor time: rare pairs of changes need the number of cases.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::checks::{ExecutableCall, carried_out};
use super::{Replayed, replay, replay_whole};
use crate::config::ProviderKind;
use crate::kernel::session::message::Block;
use crate::provider::ProviderFault;

/// A recording from `fuzz/corpus/streams`. Those whose name begins with `bad` have no good end. The
/// arguments of `tool_a` contain no letter but `a` in their strings, and so on.
#[derive(Clone, Debug)]
struct Recording {
    name: String,
    kind: ProviderKind,
    text: String,
}

impl Recording {
    fn all() -> Vec<Recording> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/streams");
        let mut all: Vec<Recording> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
                Recording {
                    kind: match name.contains("anthropic") {
                        true => ProviderKind::Anthropic,
                        false => ProviderKind::OpenAi,
                    },
                    text: fs::read_to_string(&path).unwrap(),
                    name,
                }
            })
            .collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    fn good() -> Vec<Recording> {
        let all = Self::all().into_iter();
        all.filter(|one| !one.name.starts_with("bad")).collect()
    }

    fn events(&self) -> Vec<RecordedEvent> {
        let events = self.text.split_terminator("\n\n");
        events.map(RecordedEvent::read).collect()
    }
}

/// An event of a recording; `[DONE]` is text.
#[derive(Clone, Debug)]
struct RecordedEvent {
    name: Option<String>,
    data: Result<Value, String>,
}

impl RecordedEvent {
    fn read(text: &str) -> RecordedEvent {
        let of = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
        let data = of("data: ").unwrap();
        // Parsed as the adapters do it: lone surrogates are marked.
        let read = super::read(data).map(|read| read.value);
        RecordedEvent {
            name: of("event: ").map(str::to_owned),
            data: read.map_err(|_| data.to_owned()),
        }
    }

    fn written(&self) -> String {
        let name = self.name.as_ref().map(|name| format!("event: {name}\n"));
        let data = match &self.data {
            Ok(value) => unmarked(&value.to_string()),
            Err(text) => text.clone(),
        };
        format!("{}data: {data}\n\n", name.unwrap_or_default())
    }

    /// The places in the event that hold the index of its pieces.
    fn indexed(&mut self) -> Vec<&mut Value> {
        let Ok(data) = &mut self.data else {
            return Vec::new();
        };
        if data.get("choices").is_none() {
            let is_block = data["type"]
                .as_str()
                .is_some_and(|kind| kind.contains("block"));
            return if is_block { vec![data] } else { Vec::new() };
        }
        let choices = data["choices"].as_array_mut().unwrap();
        let deltas = choices
            .iter_mut()
            .filter_map(|choice| choice.get_mut("delta"));
        let calls = deltas.filter_map(|delta| delta.get_mut("tool_calls")?.as_array_mut());
        calls.flatten().collect()
    }

    /// Whether it is a piece of a call with neither id nor tool name.
    fn is_nameless(&self) -> bool {
        let mut own = self.clone();
        let pieces = own.indexed();
        !pieces.is_empty()
            && pieces.iter().all(|piece| {
                piece.get("id").is_none()
                    && piece["function"].get("name").is_none()
                    && piece.get("content_block").is_none()
            })
    }

    fn is_end(&self) -> bool {
        let Ok(data) = &self.data else {
            return false;
        };
        let reason = data["choices"][0]["finish_reason"].is_string();
        reason || data["delta"]["stop_reason"].is_string()
    }

    fn with_reason(mut self, reason: &str) -> RecordedEvent {
        if self.is_end() {
            let data = self.data.as_mut().unwrap();
            match data.get("choices").is_some() {
                true => data["choices"][0]["finish_reason"] = reason.into(),
                false => data["delta"]["stop_reason"] = reason.into(),
            }
        }
        self
    }
}

/// JSON text with the surrogate marks written as the original escapes.
fn unmarked(json: &str) -> String {
    let letter = |c: char| match u32::from(c).checked_sub(0x10_F800) {
        Some(offset) => format!("\\u{:04x}", 0xD800 + offset),
        None => c.to_string(),
    };
    json.chars().map(letter).collect()
}

fn read(kind: ProviderKind, text: &str) -> Result<Replayed, ProviderFault> {
    replay(kind, [text.as_bytes().to_vec()])
}

fn of_events(kind: ProviderKind, events: &[RecordedEvent]) -> Result<Replayed, ProviderFault> {
    let text: String = events.iter().map(RecordedEvent::written).collect();
    read(kind, &text)
}

/// The calls that would be executed; panics if an invariant is violated.
fn sound(replayed: &Replayed) -> Vec<ExecutableCall<'_>> {
    let mut run = carried_out(replayed).unwrap_or_else(|fault| panic!("{fault}"));
    // The runner refuses nonexistent tools, here the rest of a name sent in parts.
    run.retain(|(tool, _)| *tool != "sub_");
    let tools: BTreeSet<&str> = run.iter().map(|(tool, _)| *tool).collect();
    assert_eq!(
        tools.len(),
        run.len(),
        "a call is carried out twice: {run:?}"
    );
    for (tool, arguments) in &run {
        let own = tool
            .strip_prefix("sub_")
            .unwrap_or(tool)
            .strip_prefix("tool_")
            .expect("a tool of the recordings");
        let fields = arguments.as_object().unwrap();
        // Every call in the recordings has arguments.
        assert!(!fields.is_empty(), "{tool} lost its arguments");
        for text in fields.values().filter_map(Value::as_str) {
            let foreign = text
                .chars()
                .find(|c| c.is_ascii_lowercase() && !own.contains(*c));
            assert_eq!(
                foreign, None,
                "{tool} got arguments of another call: {arguments}"
            );
        }
    }
    run
}

fn text_of(replayed: &Replayed) -> String {
    crate::kernel::session::message::plain_text(&replayed.answer.blocks)
}

#[test]
fn recordings_are_read_as_they_were_meant() {
    let a = json!({"path": "aaaa/aa.a", "limit": 3});
    for recording in Recording::all() {
        let read = read(recording.kind, &recording.text);
        let is_good = !recording.name.starts_with("bad");
        assert_eq!(read.is_ok(), is_good, "{}: {read:?}", recording.name);
        let Ok(read) = read else { continue };
        let run = sound(&read);
        let expected = match recording.name.split_once('_').unwrap().1 {
            "text" | "paused" | "parts" | "message_differs" => 0,
            "again" | "new_ids" | "function_call" | "halves" | "message_again" | "end_again"
            | "two_choices" | "name_in_parts" => 1,
            "in_turn" | "tools" => 3,
            "all_first" if recording.kind == ProviderKind::OpenAi => 3,
            _ => 2,
        };
        assert_eq!(run.len(), expected, "{}: {run:?}", recording.name);
        match recording.name.as_str() {
            "openai_halves" => assert_eq!(run[0].1, &json!({"path": "a😀\u{FFFD}"})),
            "openai_name_in_parts" => assert_eq!(run[0], ("sub_tool_a", &a)),
            _ if expected > 0 => assert_eq!(run[0], ("tool_a", &a), "{}", recording.name),
            _ => {}
        }
    }
}

/// A stream has the same meaning however its bytes are split: after every byte, and in fewer
/// places.
#[test]
fn a_stream_cut_into_pieces_is_the_same_answer() {
    for recording in Recording::all() {
        let whole = read(recording.kind, &recording.text).map(|read| read.answer);
        for size in 1..40 {
            let pieces = recording.text.as_bytes().chunks(size).map(<[u8]>::to_vec);
            let cut = replay(recording.kind, pieces).map(|read| read.answer);
            assert_eq!(cut, whole, "{} by {size}", recording.name);
        }
    }
}

/// A stream cut before its finish reason is no answer; cut after it, it is the same answer.
#[test]
fn a_stream_that_ends_at_any_byte_is_the_whole_answer_or_none() {
    for recording in Recording::good() {
        let events = recording.events();
        let end = events.iter().position(RecordedEvent::is_end).unwrap();
        let before: usize = recording
            .text
            .split_inclusive("\n\n")
            .take(end)
            .map(str::len)
            .sum();
        let whole = read(recording.kind, &recording.text).unwrap();
        let bytes = recording.text.as_bytes();
        for at in 0..=bytes.len() {
            let Ok(cut) = replay(recording.kind, [bytes[..at].to_vec()]) else {
                continue;
            };
            assert!(at > before, "{} at {at}: {:?}", recording.name, cut.answer);
            assert_eq!(sound(&cut), sound(&whole), "{} at {at}", recording.name);
            assert_eq!(text_of(&cut), text_of(&whole));
        }
    }
}

#[test]
fn an_answer_that_is_not_streamed_is_judged_alike() {
    let body = |reason: &str| {
        json!({"choices": [{"message": {"role": "assistant", "content": "\n", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "tool_a", "arguments": ""}},
            {"id": "b", "type": "function", "function": {"name": "tool_b", "arguments": "{}"}},
            {"id": "b", "type": "function", "function": {"name": "tool_b", "arguments": "{}"}},
        ]}, "finish_reason": reason}]})
        .to_string()
    };
    let read = replay_whole(ProviderKind::OpenAi, &body("tool_calls")).unwrap();
    assert_eq!(carried_out(&read).unwrap().len(), 2);
    assert!(replay_whole(ProviderKind::OpenAi, &body("error")).is_err());
    let body = |reason: &str| {
        json!({"content": [
            {"type": "text", "text": " \n"},
            {"type": "tool_use", "id": "a", "name": "tool_a", "input": {"path": "a"}},
            {"type": "tool_use", "id": "a", "name": "tool_a", "input": {"path": "a"}},
        ], "stop_reason": reason})
        .to_string()
    };
    let read = replay_whole(ProviderKind::Anthropic, &body("tool_use")).unwrap();
    assert_eq!(sound(&read).len(), 1);
    assert!(replay_whole(ProviderKind::Anthropic, &body("error")).is_err());
}

/// How the indexes of a stream are changed.
#[derive(Clone, Copy, Debug)]
enum Indexes {
    Kept,
    AllFirst,
    Left,
    Reversed,
    OneUnseen(u64),
    AllUnseen,
}

fn re_indexed(mut events: Vec<RecordedEvent>, how: Indexes, at: Index) -> Vec<RecordedEvent> {
    let chosen = at.index(events.len());
    for (number, event) in (0_u64..).zip(&mut events) {
        for piece in event.indexed() {
            let Some(index) = piece.get("index").and_then(Value::as_u64) else {
                continue;
            };
            let other = match how {
                Indexes::Kept => Some(index),
                Indexes::AllFirst => Some(0),
                Indexes::Left => None,
                Indexes::Reversed => Some(9 - index),
                Indexes::OneUnseen(unseen) if number == chosen as u64 => Some(unseen),
                Indexes::OneUnseen(_) => Some(index),
                Indexes::AllUnseen => Some(100 + number),
            };
            let fields = piece.as_object_mut().unwrap();
            match other {
                Some(other) => fields.insert("index".to_owned(), other.into()),
                None => fields.remove("index"),
            };
        }
    }
    events
}

fn indexes() -> impl Strategy<Value = Indexes> {
    prop_oneof![
        Just(Indexes::Kept),
        Just(Indexes::AllFirst),
        Just(Indexes::Left),
        Just(Indexes::Reversed),
        (50_u64..60).prop_map(Indexes::OneUnseen),
        Just(Indexes::AllUnseen),
    ]
}

fn recording() -> impl Strategy<Value = Recording> {
    proptest::sample::select(Recording::good())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn repeated_events_carry_nothing_out_twice(
        recording in recording(),
        from in any::<Index>(),
        length in 1usize..6,
        to in any::<Index>(),
    ) {
        let mut events = recording.events();
        let from = from.index(events.len());
        let again = events[from..(from + length).min(events.len())].to_vec();
        // If the index tells calls apart, they may come again anywhere; otherwise a piece belongs
        // to what precedes it.
        let is_told = !recording.name.contains("all_first") && !recording.name.contains("only");
        let to = match is_told {
            true => from + again.len() + to.index(events.len() - from - again.len() + 1),
            false => from + again.len(),
        };
        events.splice(to..to, again);
        if let Ok(read) = of_events(recording.kind, &events) {
            sound(&read);
        }
    }

    #[test]
    fn a_stream_that_begins_anew_carries_nothing_out_twice(
        recording in recording(),
        until in any::<Index>(),
    ) {
        let events = recording.events();
        let end = events.iter().position(RecordedEvent::is_end).unwrap();
        let again = events[..until.index(end + 1)].to_vec();
        let events = [again, events].concat();
        if let Ok(read) = of_events(recording.kind, &events) {
            sound(&read);
        }
    }

    #[test]
    fn re_indexed_and_re_ordered_events_mix_no_arguments(
        recording in recording(),
        how in indexes(),
        at in any::<Index>(),
        swapped in proptest::option::of(any::<Index>()),
        new_id in proptest::option::of(any::<Index>()),
    ) {
        let mut events = re_indexed(recording.events(), how, at);
        if let Some(at) = new_id.map(|at| at.index(events.len())).filter(|at| events[*at].is_nameless()) {
            for piece in events[at].indexed() {
                piece["id"] = "of_its_own".into();
            }
        }
        if let Some(at) = swapped.map(|at| at.index(events.len() - 1)) {
            events.swap(at, at + 1);
        }
        if let Ok(read) = of_events(recording.kind, &events) {
            sound(&read);
        }
    }

    #[test]
    fn an_answer_with_an_unknown_reason_is_none(
        recording in recording(),
        reason in "[a-z_]{1,12}",
    ) {
        let known = ["stop", "eos", "length", "null", "complete"];
        prop_assume!(!known.contains(&reason.as_str()));
        let events: Vec<RecordedEvent> = recording.events().into_iter().map(|one| one.with_reason(&reason)).collect();
        prop_assert!(of_events(recording.kind, &events).is_err());
    }

    #[test]
    fn whatever_bytes_come_are_read_or_refused(
        recording in recording(),
        at in any::<Index>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..8),
        other in any::<bool>(),
    ) {
        let mut text = recording.text.into_bytes();
        let at = at.index(text.len());
        text.splice(at..(at + bytes.len()).min(text.len()), bytes);
        let kind = match (other, recording.kind) {
            (false, kind) => kind,
            (true, ProviderKind::OpenAi) => ProviderKind::Anthropic,
            (true, ProviderKind::Anthropic) => ProviderKind::OpenAi,
        };
        if let Ok(read) = replay(kind, [text]) {
            let checked = carried_out(&read);
            prop_assert!(checked.is_ok(), "{checked:?}");
            let is_native = |block: &Block| matches!(block, Block::Native { .. });
            prop_assert!(read.answer.blocks.iter().any(is_native));
        }
    }
}
