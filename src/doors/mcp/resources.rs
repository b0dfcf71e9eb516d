//! The resources: results of runs, transcripts of sessions, and skills.

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use rmcp::ErrorData;
use rmcp::model::{
    ListResourcesResult, ReadResourceResult, Resource, ResourceContents, ResourceTemplate,
};

use crate::doors::api::{Api, ask};
use crate::doors::mcp::protocol_error;
use crate::doors::mcp::transcript::markdown;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{RunId, SessionKey};
use crate::wire::error::WireError;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::runs::{GetRun, ListRuns, State};
use crate::wire::sessions::{GetHistory, ListSessions, SessionKind};
use crate::wire::skills::ListSkills;

const MARKDOWN: &str = "text/markdown";
/// Number of resources on a page.
const PAGE: PageSize = PageSize(50);

/// Characters of a name that have a meaning in an address.
const RESERVED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'%')
    .add(b'/')
    .add(b'?')
    .add(b'#')
    .add(b'"')
    .add(b'<')
    .add(b'>');

/// What a resource shows, in the order in which resources are listed.
#[derive(Clone, Copy, PartialEq)]
enum ResourceKind {
    Skill,
    Result,
    Transcript,
}

impl ResourceKind {
    const ALL: [ResourceKind; 3] = [
        ResourceKind::Skill,
        ResourceKind::Result,
        ResourceKind::Transcript,
    ];

    /// First part of its addresses and cursors.
    fn as_str(self) -> &'static str {
        match self {
            ResourceKind::Skill => "skill",
            ResourceKind::Result => "result",
            ResourceKind::Transcript => "transcript",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut all = ResourceKind::ALL.into_iter();
        all.find(|kind| kind.as_str() == text)
    }

    fn next(self) -> Option<Self> {
        let mut all = ResourceKind::ALL.into_iter();
        all.find(|kind| *kind == self);
        all.next()
    }

    fn uri(self, name: &str) -> String {
        let name = utf8_percent_encode(name, RESERVED);
        format!("abide://{}/{name}", self.as_str())
    }
}

/// The templates of the addresses.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: &str, name: &str, about: &str| {
        ResourceTemplate::new(uri, name)
            .with_description(about)
            .with_mime_type(MARKDOWN)
    };
    vec![
        template(
            "abide://result/{runId}",
            "result",
            "The final text of a run",
        ),
        template(
            "abide://transcript/{sessionKey}",
            "transcript",
            "The latest 500 messages of a session",
        ),
        template(
            "abide://skill/{name}",
            "skill",
            "A skill of the default workspace",
        ),
    ]
}

/// One page of resources.
pub(super) async fn list(
    api: &impl Api,
    cursor: Option<String>,
) -> Result<ListResourcesResult, ErrorData> {
    let (kind, inner) = match &cursor {
        None => (ResourceKind::Skill, None),
        Some(cursor) => {
            let (kind, inner) = cursor.split_once(':').unwrap_or((cursor, ""));
            let Some(kind) = ResourceKind::parse(kind) else {
                let message = "the cursor is not one of this list";
                return Err(ErrorData::invalid_params(message, None));
            };
            (
                kind,
                Some(inner.to_owned()).filter(|inner| !inner.is_empty()),
            )
        }
    };
    let listed = match kind {
        ResourceKind::Skill => skills(api, inner).await,
        ResourceKind::Result => results(api, inner).await,
        ResourceKind::Transcript => transcripts(api, inner).await,
    };
    let (resources, next) = listed.map_err(protocol_error)?;
    let mut page = ListResourcesResult::with_all_items(resources);
    page.next_cursor = match next {
        Some(inner) => Some(format!("{}:{inner}", kind.as_str())),
        None => kind.next().map(|kind| format!("{}:", kind.as_str())),
    };
    Ok(page)
}

type Listed = Result<(Vec<Resource>, Option<String>), WireError>;

async fn skills(api: &impl Api, cursor: Option<String>) -> Listed {
    let request = ListSkills {
        limit: PAGE,
        cursor,
        ..ListSkills::default()
    };
    let page = ask(api, &request).await?;
    let usable = page.skills.into_iter().filter(|skill| skill.eligible);
    let resources = usable.map(|skill| {
        Resource::new(ResourceKind::Skill.uri(&skill.name), skill.name)
            .with_description(skill.description)
            .with_mime_type(MARKDOWN)
    });
    Ok((resources.collect(), page.next_cursor))
}

async fn results(api: &impl Api, cursor: Option<String>) -> Listed {
    let request = ListRuns {
        states: vec![State::Ok],
        limit: PAGE,
        cursor,
        ..ListRuns::default()
    };
    let page = ask(api, &request).await?;
    let resources = page.runs.into_iter().map(|run| {
        let id = run.run_id.to_string();
        let name = run.label.unwrap_or_else(|| run.title.clone());
        Resource::new(ResourceKind::Result.uri(&id), id)
            .with_title(name)
            .with_description(format!("Result of a run of {}", run.agent))
            .with_mime_type(MARKDOWN)
    });
    Ok((resources.collect(), page.next_cursor))
}

async fn transcripts(api: &impl Api, cursor: Option<String>) -> Listed {
    let request = ListSessions {
        kind: Some(SessionKind::All),
        limit: PAGE,
        cursor,
        ..ListSessions::default()
    };
    let page = ask(api, &request).await?;
    let resources = page.sessions.into_iter().map(|session| {
        let key = session.key.as_str();
        let resource = Resource::new(ResourceKind::Transcript.uri(key), key)
            .with_description(format!("Transcript of a session of {}", session.agent))
            .with_mime_type(MARKDOWN);
        match session.title.or(session.label) {
            Some(title) => resource.with_title(title),
            None => resource,
        }
    });
    Ok((resources.collect(), page.next_cursor))
}

/// The content of one resource.
pub(super) async fn read(api: &impl Api, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let text = content(api, uri).await.map_err(protocol_error)?;
    let contents = ResourceContents::text(text, uri).with_mime_type(MARKDOWN);
    Ok(ReadResourceResult::new(vec![contents]))
}

async fn content(api: &impl Api, uri: &str) -> Result<String, WireError> {
    let missing = || Fault::not_found("resource", crate::kernel::text::prefix(uri, 200));
    let address = uri.strip_prefix("abide://").ok_or_else(missing)?;
    let (kind, name) = address.split_once('/').ok_or_else(missing)?;
    let name = percent_decode_str(name)
        .decode_utf8()
        .map_err(|_| missing())?;
    match ResourceKind::parse(kind).ok_or_else(missing)? {
        ResourceKind::Skill => {
            let request = ListSkills {
                name: Some(name.into_owned()),
                ..ListSkills::default()
            };
            let page = ask(api, &request).await?;
            let skill = page.skills.into_iter().next();
            Ok(skill.and_then(|skill| skill.body).ok_or_else(missing)?)
        }
        ResourceKind::Result => {
            let run_id: RunId = name.parse().map_err(|_| missing())?;
            let run = ask(api, &GetRun { run_id }).await?;
            Ok(run.result.ok_or_else(|| {
                missing().hint("the run has no result, or not yet; see it with the tool status")
            })?)
        }
        ResourceKind::Transcript => {
            let session_key: SessionKey = name.parse().map_err(|_| missing())?;
            let request = GetHistory {
                session_key,
                before: None,
                after: None,
                tools: None,
                limit: PageSize(PAGE_LIMIT),
            };
            Ok(markdown(&ask(api, &request).await?.messages))
        }
    }
}
