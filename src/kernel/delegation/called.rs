//! The view that an agent has when it is called into another agent's session: the conversation up
//! to its call, with the other agents' content quoted, then the call, then its own steps. Pure; the
//! store builds the views of called runs with it.
//!
//! ```text
//! transcript     user   agent   result   [call  answer]   agent   result   [call │ …
//! what it sees   user  "said"     –       call  answer    "said"     –      call │ …
//!                                      its own, earlier                  this run
//! ```

use std::collections::HashSet;

use crate::kernel::ids::RunId;
use crate::kernel::run::Run;
use crate::kernel::session::message::{Block, Message, MessageKind, Origin, Role};

/// The metadata key that holds the agent's name in both entries of a call (request and answer).
pub const AGENT_KEY: &str = "agent";

/// The entries of its session as the called `run` sees them, in transcript order. Entries that
/// concern only other agents are left out: results of their calls, and the intermediate steps of
/// called agents.
pub fn seen_by(run: &Run, transcript: Vec<Message>) -> Vec<Message> {
    let own = |message: &Message| message.child_run == Some(run.id);
    let begins = transcript.iter().position(own).unwrap_or(transcript.len());
    let answers = transcript
        .iter()
        .filter(|message| message.kind == MessageKind::SubAgentAi);
    let answered: HashSet<RunId> = answers.filter_map(|message| message.child_run).collect();
    let mut seen = Vec::with_capacity(transcript.len());
    for (index, message) in transcript.into_iter().enumerate() {
        if own(&message) {
            seen.push(message);
        } else if index < begins {
            seen.extend(view_entry(run, &answered, message));
        }
    }
    seen
}

/// Converts an entry from before the call; `None` if it is left out.
fn view_entry(run: &Run, answered: &HashSet<RunId>, message: Message) -> Option<Message> {
    match (message.kind, message.child_run) {
        (MessageKind::SubAgentUser | MessageKind::SubAgentAi, Some(child)) => {
            if !answered.contains(&child) {
                return None;
            }
            let is_call = message.kind == MessageKind::SubAgentUser;
            let agent = agent_of(&message).unwrap_or_else(|| "an agent".to_owned());
            if agent == run.agent.as_str() {
                // Its own earlier call, not quoted.
                return Some(Message {
                    kind: MessageKind::Text,
                    tool_call: None,
                    metadata: None,
                    ..message
                });
            }
            let what = if is_call { "was asked" } else { "answered" };
            quoted(&format!("Agent {agent} {what}"), message)
        }
        (_, Some(_)) => None,
        (MessageKind::Text | MessageKind::ToolCall, None) if message.role == Role::Assistant => {
            quoted("The agent of this session said", message)
        }
        (MessageKind::Text | MessageKind::Announce | MessageKind::Compaction, None) => {
            Some(message)
        }
        _ => None,
    }
}

fn agent_of(message: &Message) -> Option<String> {
    let agent = message.metadata.as_ref()?.get(AGENT_KEY)?;
    agent.as_str().map(str::to_owned)
}

/// Another agent's content as a quoted user message; `None` if it has no text.
fn quoted(who: &str, message: Message) -> Option<Message> {
    let said = message.text();
    if said.trim().is_empty() {
        return None;
    }
    Some(Message {
        role: Role::User,
        kind: MessageKind::Text,
        origin: Origin::Internal,
        content: vec![Block::Text {
            text: format!("[{who}:]\n{said}"),
        }]
        .into(),
        tool_call: None,
        metadata: None,
        ..message
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::ids::{AgentId, MessageId};
    use crate::kernel::run::AnnouncePolicy;
    use crate::kernel::sample::queued;
    use crate::kernel::session::message::NewMessage;
    use crate::kernel::session::raw_metadata::RawMetadata;
    use serde_json::json;
    use uuid::Uuid;

    fn id(number: u128) -> RunId {
        RunId(Uuid::from_u128(number))
    }

    fn called(number: u128, agent: &str) -> Run {
        Run {
            id: id(number),
            agent: AgentId::parse(agent).unwrap(),
            ..queued(AnnouncePolicy::None)
        }
    }

    struct Transcript(Vec<Message>);

    impl Transcript {
        fn put(&mut self, new: NewMessage) -> &mut Message {
            let seq = self.0.len() as i64 + 1;
            self.0.push(new.at(seq, 1, Default::default()));
            self.0.last_mut().unwrap()
        }

        fn said(&mut self, text: &str) {
            self.put(NewMessage::user(MessageId(Uuid::from_u128(1)), text));
        }

        fn answer(&mut self, run: u128, text: &str, calls: &str) -> &mut Message {
            let mut blocks = vec![Block::Text {
                text: text.to_owned(),
            }];
            if !calls.is_empty() {
                blocks.push(Block::ToolCall {
                    id: calls.to_owned(),
                    name: "read".to_owned(),
                    arguments: json!({}),
                });
            }
            let new = NewMessage::answer(MessageId(Uuid::from_u128(2)), id(run), blocks);
            self.put(new)
        }

        fn result(&mut self, run: u128, call: &str) -> &mut Message {
            let message = MessageId(Uuid::from_u128(3));
            self.put(NewMessage::tool_result(message, id(run), call, "r", false))
        }

        /// Appends the request or the answer of a call of `agent`.
        fn side(&mut self, kind: MessageKind, run: u128, agent: &str, text: &str) {
            let of_user = kind == MessageKind::SubAgentUser;
            let message = match of_user {
                true => self.put(NewMessage::user(MessageId(Uuid::from_u128(4)), text)),
                false => self.answer(run, text, ""),
            };
            message.kind = kind;
            message.child_run = Some(id(run));
            message.metadata = RawMetadata::of(&json!({ AGENT_KEY: agent }));
        }

        fn seen(&self, run: &Run) -> Vec<(Role, String)> {
            let seen = seen_by(run, self.0.clone());
            seen.iter()
                .map(|message| (message.role, message.text()))
                .collect()
        }
    }

    fn texts(seen: &[(Role, String)]) -> Vec<(&str, &str)> {
        seen.iter()
            .map(|(role, text)| (role.as_str(), text.as_str()))
            .collect()
    }

    #[test]
    fn b1_a_called_agent_sees_the_conversation_its_earlier_calls_and_its_call_last() {
        use MessageKind::{SubAgentAi, SubAgentUser};
        let mut transcript = Transcript(Vec::new());
        transcript.said("hello");
        transcript.answer(1, "I ask", "c1");
        transcript.side(SubAgentUser, 2, "helper", "first");
        transcript.answer(2, "", "k1").child_run = Some(id(2));
        transcript.result(2, "k1").child_run = Some(id(2));
        transcript.side(SubAgentAi, 2, "helper", "one");
        transcript.result(1, "c1");
        transcript.side(SubAgentUser, 3, "other", "you");
        transcript.side(SubAgentAi, 3, "other", "yes");
        // This call has no answer.
        transcript.side(SubAgentUser, 4, "helper", "lost");
        transcript.answer(1, "", "c2");
        transcript.side(SubAgentUser, 5, "helper", "second");
        transcript.answer(5, "looks", "k2").child_run = Some(id(5));
        transcript.result(5, "k2").child_run = Some(id(5));
        // It has called another agent in turn, and its caller has another result.
        transcript.side(SubAgentUser, 6, "other", "deep");
        transcript.side(SubAgentAi, 6, "other", "deeper");
        transcript.result(1, "c3");
        let seen = transcript.seen(&called(5, "helper"));
        assert_eq!(
            texts(&seen),
            [
                ("user", "hello"),
                ("user", "[The agent of this session said:]\nI ask"),
                ("user", "first"),
                ("assistant", "one"),
                ("user", "[Agent other was asked:]\nyou"),
                ("user", "[Agent other answered:]\nyes"),
                ("user", "second"),
                ("assistant", "looks"),
                ("tool", ""),
            ]
        );
        // Before its call is in the transcript, everything counts as before its call.
        let before = Transcript(transcript.0[..11].to_vec());
        assert_eq!(before.seen(&called(5, "helper")).len(), 6);
        let last = seen_by(&called(5, "helper"), transcript.0.clone());
        let inputs = last.iter().rfind(|message| message.is_input()).unwrap();
        assert_eq!(inputs.text(), "second");
    }
}
