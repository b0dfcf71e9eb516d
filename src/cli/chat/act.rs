//! Handlers of the slash commands of `abide chat`.

use super::agents;
use super::command::{COMMANDS, KEYS, SlashCommand};
use super::session::{ChatOptions, here};
use super::talk::Talk;
use crate::cli::commands::usage;
use crate::cli::common::failure::Failure;
use crate::cli::common::ids;
use crate::cli::live::tree;
use crate::cli::output::print;
use crate::cli::output::print::{HEAD, styled};
use crate::cli::output::text::{COLUMNS, TextTable, age, line, wrap};
use crate::clock::Clock;
use crate::kernel::ids::SessionKey;
use crate::kernel::run::thinking::Thinking;
use crate::wire::gateway::{GetStatus, Status};
use crate::wire::input::PageSize;
use crate::wire::lifecycle::{CompactSession, Compacting, PatchSession};
use crate::wire::runs::{ListRuns, Runs};
use crate::wire::sessions::{GetSession, ListSessions, SessionKind, Sessions};
use crate::wire::shapes::Session;

/// Maximum number of sessions or runs per request.
const LISTED: u32 = 20;
/// Column width of the names in the help.
const NAMES: usize = 19;
/// Argument that clears the session's model or thinking level.
const DEFAULT: &str = "default";

impl Talk<'_> {
    /// Executes a slash command.
    pub(super) async fn act(&mut self, command: SlashCommand) -> Result<(), Failure> {
        self.link = self.link().await?;
        match command {
            SlashCommand::Help => {
                print::note(&help_text());
                print::note("");
            }
            SlashCommand::New(name) => return self.new_session(name).await,
            SlashCommand::Agent(name) => {
                return self.agent(name.as_deref().unwrap_or_default()).await;
            }
            SlashCommand::Model(model) => return self.model(model).await,
            SlashCommand::Thinking(level) => return self.thinking(level).await,
            SlashCommand::Sessions => return self.sessions().await,
            SlashCommand::Attach(Some(name)) => {
                let wanted = ChatOptions {
                    name: Some(ids::session(&self.link, &name).await?.to_string()),
                    ..ChatOptions::default()
                };
                return self.switch_to(&wanted).await;
            }
            SlashCommand::Attach(None) => return self.attach().await,
            SlashCommand::Compact => return self.compact().await,
            SlashCommand::Usage => return self.usage().await,
            // The conversation ends before this is called.
            SlashCommand::Quit => {}
        }
        Ok(())
    }

    async fn new_session(&mut self, name: Option<String>) -> Result<(), Failure> {
        let agent = &self.session.agent;
        let typed = name.clone().unwrap_or_default();
        let name = name.map(|name| match name.contains(':') {
            true => name,
            false => format!("agent:{agent}:{name}"),
        });
        if let Some(name) = &name
            && let Err(why) = SessionKey::parse(name)
        {
            let typed = line(&typed, 40);
            return Err(Failure::usage(format!(
                "the name {typed:?} is not valid for a session: {}",
                why.rule
            )));
        }
        let wanted = ChatOptions {
            agent: name.is_none().then(|| agent.to_string()),
            name,
            is_new: true,
            model: self.session.model.clone(),
            thinking: self.session.thinking.as_deref().and_then(Thinking::parse),
            cwd: self.session.cwd.clone(),
        };
        self.switch_to(&wanted).await
    }

    /// Switches to another agent in that agent's own session; lists the agents if no name is given.
    async fn agent(&mut self, name: &str) -> Result<(), Failure> {
        let chosen = agents::choose(&self.link, &self.session.agent, name, here()).await?;
        let Some(chosen) = chosen else {
            return Ok(());
        };
        let key = agents::session_of(&self.session.key, &self.session.agent, &chosen.name);
        let wanted = ChatOptions {
            name: Some(key),
            ..ChatOptions::default()
        };
        self.switch_to(&wanted).await
    }

    async fn model(&mut self, model: Option<String>) -> Result<(), Failure> {
        let Some(model) = model else {
            let status: Status = self.link.ask(&GetStatus {}).await?;
            let now = match &self.session.model {
                Some(model) => model.clone(),
                None => format!("the agent's (the default agent has {})", status.model),
            };
            self.say(&format!("model: {now}"));
            let all: Vec<String> = status
                .providers
                .into_iter()
                .flat_map(|of| of.models)
                .collect();
            self.say(&format!(
                "available: {}; set one: /model NAME",
                all.join(", ")
            ));
            return Ok(());
        };
        let request = PatchSession {
            model: Some(Some(model).filter(|model| model != DEFAULT)),
            ..PatchSession::unchanged(self.session.key.clone())
        };
        self.patch(&request).await?;
        let now = self.session.model.as_deref().unwrap_or("the agent's");
        self.say(&format!("model from the next turn on: {now}"));
        Ok(())
    }

    /// The daemon has changed this conversation's session once this returns.
    async fn patch(&mut self, request: &PatchSession) -> Result<(), Failure> {
        self.session = self.link.ask(request).await?;
        Ok(())
    }

    /// Thinking level of this session, for display.
    fn thinking_now(&self) -> &str {
        self.session.thinking.as_deref().unwrap_or("the agent's")
    }

    async fn thinking(&mut self, typed: Option<String>) -> Result<(), Failure> {
        let levels: Vec<&str> = Thinking::ALL.iter().map(|level| level.as_str()).collect();
        let levels = levels.join(", ");
        let Some(typed) = typed else {
            let now = self.thinking_now();
            self.say(&format!(
                "thinking: {now}; set it: /thinking LEVEL ({levels}, {DEFAULT})"
            ));
            return Ok(());
        };
        let wanted = match typed.as_str() {
            DEFAULT => None,
            word => Some(Thinking::parse(word).ok_or_else(|| {
                let word = line(word, 40);
                Failure::usage(format!(
                    "{word} is not a level; use one of: {levels}, {DEFAULT}"
                ))
            })?),
        };
        let request = PatchSession {
            thinking: Some(wanted),
            ..PatchSession::unchanged(self.session.key.clone())
        };
        self.patch(&request).await?;
        let now = self.thinking_now();
        self.say(&format!("thinking from the next turn on: {now}"));
        Ok(())
    }

    async fn sessions(&mut self) -> Result<(), Failure> {
        let request = ListSessions {
            kind: Some(SessionKind::Main),
            limit: PageSize(LISTED),
            ..ListSessions::default()
        };
        let page: Sessions = self.link.ask(&request).await?;
        let now = Clock::system().now();
        let mut table = TextTable::new(&["", "SESSION", "ACTIVE", "MSGS", "WHAT"]);
        for one in page.sessions {
            let is_this = one.key == self.session.key;
            table.row(vec![
                if is_this { "●" } else { " " }.to_owned(),
                one.key.to_string(),
                format!("{} ago", age(one.updated_at, now)),
                one.messages.to_string(),
                one.label.or(one.title).unwrap_or_default(),
            ]);
        }
        print::note(&table.fit(print::notes_width()).lines().join("\n"));
        print::note("continue one: /attach SESSION (a key, its last digits, or a label)");
        Ok(())
    }

    /// Follows the open turn of this session, if there is one.
    async fn attach(&mut self) -> Result<(), Failure> {
        let request = ListRuns {
            session_key: Some(self.session.key.clone()),
            limit: PageSize(LISTED),
            ..ListRuns::default()
        };
        let page: Runs = self.link.ask(&request).await?;
        let open = page.runs.iter().rfind(|run| !tree::is_ended(&run.state));
        match open.map(|run| run.run_id) {
            Some(run) => self.follow(run).await.map(|_| ()),
            None => {
                self.say("no turn is open in this session; /sessions lists others");
                Ok(())
            }
        }
    }

    async fn compact(&mut self) -> Result<(), Failure> {
        let request = CompactSession {
            session_key: self.session.key.clone(),
            idempotency_key: Some(Clock::system().new_id().to_string()),
        };
        let new: Compacting = self.link.ask(&request).await?;
        self.follow(new.run_id).await.map(|_| ())
    }

    async fn usage(&mut self) -> Result<(), Failure> {
        let request = GetSession {
            session_key: self.session.key.clone(),
        };
        self.session = self.link.ask(&request).await?;
        let Session {
            usage: used,
            messages,
            ..
        } = &self.session;
        let cost = match used.cost_micros {
            0 => String::new(),
            micros => format!(", cost {}", usage::money(micros)),
        };
        let text = format!(
            "{messages} {}, {}, {} tokens sent, {} received{cost}",
            if *messages == 1 {
                "message"
            } else {
                "messages"
            },
            usage::model_calls(used.model_calls),
            usage::short(used.input_tokens),
            usage::short(used.output_tokens),
        );
        self.say(&text);
        Ok(())
    }
}

/// Help text of the commands and keys.
pub(super) fn help_text() -> String {
    let columns = print::notes_width().unwrap_or(COLUMNS);
    let mut lines = Vec::new();
    let mut row = |what: &str, about: &str| {
        let mut parts = wrap(about, columns.saturating_sub(NAMES + 1).max(NAMES)).into_iter();
        let first = parts.next().unwrap_or_default();
        lines.push(format!(
            "{} {first}",
            styled(HEAD, format!("{what:NAMES$}"))
        ));
        lines.extend(parts.map(|part| format!("{:NAMES$} {part}", "")));
    };
    for (name, argument, about) in COMMANDS {
        row(format!("{name} {argument}").trim_end(), about);
    }
    row("", "");
    for (key, about) in KEYS {
        row(key, about);
    }
    lines.join("\n")
}
