//! P15: the cost of a turn in a long conversation: processor time of the daemon, relative to the
//! bytes sent to its model. The conversations are created through the daemon by turns and never
//! compacted.

use futures_util::future::try_join_all;

use crate::Result;
use crate::daemon::{Daemon, Setting};
use crate::figure::Figure;
use crate::machine::processor_time;
use crate::measure::{Round, Samples};
use crate::sample::Sample;
use crate::talk::{self, Talk};
use crate::turns::{InstantModel, turn};

/// Number of earlier messages of a conversation.
pub const LENGTHS: [u64; 3] = [10, 200, 1000];
/// Number of sessions that run a turn at the same time.
pub const SESSIONS: [u64; 2] = [1, 32];

/// Conversations of each length: the maximum number of sessions that run a turn at the same time.
const CONVERSATIONS: usize = 32;
/// Measured turns per conversation.
const TURNS: usize = 5;
/// Time allowed per byte sent, milliseconds.
const BYTE: f64 = 1e-6;

/// Measures all lengths, one after another in the same conversations.
pub fn measure(round: &Round<'_>) -> Result<Samples> {
    let model = InstantModel::start()?;
    let folder = round.folder.join("long");
    let daemon = Daemon::start(round.binary, &folder, Setting::HttpWhole(model.port()))?;
    talk::run(async {
        let opened = (0..CONVERSATIONS).map(|_| Conversation::open(&daemon));
        let mut all = try_join_all(opened).await?;
        let mut samples = Samples::new();
        for length in LENGTHS {
            try_join_all(all.iter_mut().map(|one| one.grow(length))).await?;
            // All at once first: afterwards the in-memory cache of one conversation does not help
            // the next.
            for sessions in SESSIONS.into_iter().rev() {
                let sent = model.bytes();
                let before = processor_time(daemon.pid());
                for some in all.chunks_mut(sessions as usize) {
                    try_join_all(some.iter_mut().map(Conversation::turns)).await?;
                }
                let count = (CONVERSATIONS * TURNS) as f64;
                let bytes = (model.bytes() - sent) as f64 / count;
                let took = before.zip(processor_time(daemon.pid()));
                let Some(took) = took.map(|(before, after)| after.saturating_sub(before)) else {
                    continue;
                };
                let each = took.as_secs_f64() * 1000.0 / count;
                samples.extend(
                    [
                        (Figure::LongTurn(length, sessions), each),
                        (
                            Figure::LongTurnBeyond(length, sessions),
                            each - bytes * BYTE,
                        ),
                        (Figure::LongTurnSent(length, sessions), bytes / 1024.0),
                    ]
                    .map(|(figure, value)| (figure, Sample::of_amounts(&[value]))),
                );
            }
        }
        Ok(samples)
    })
}

/// A session with its own connection.
struct Conversation {
    talk: Talk,
    key: String,
    messages: u64,
}

impl Conversation {
    async fn open(daemon: &Daemon) -> Result<Self> {
        let mut talk = Talk::open(daemon.door()).await?;
        let made = talk.call("sessions.create", r#"{"agent":"build"}"#).await?;
        Ok(Conversation {
            talk,
            key: made["session"]["key"].as_str().ok_or("no key")?.to_owned(),
            messages: 0,
        })
    }

    async fn turn(&mut self) -> Result<()> {
        turn(&mut self.talk, &self.key).await?;
        // The user message and the answer.
        self.messages += 2;
        Ok(())
    }

    /// Runs turns until the conversation has `length` messages.
    async fn grow(&mut self, length: u64) -> Result<()> {
        while self.messages < length {
            self.turn().await?;
        }
        Ok(())
    }

    async fn turns(&mut self) -> Result<()> {
        for _ in 0..TURNS {
            self.turn().await?;
        }
        Ok(())
    }
}
