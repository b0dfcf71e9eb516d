//! A provider that is reached over HTTP, as a `[providers.NAME]` table describes it: it asks,
//! and asks again where that may help. The adapters know what is said; this knows how often.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::{Client, Url};

use super::answer::{Known, Reader};
use super::failure::{Failure, Remedy};
use super::http::{Letter, NO_CONNECTION, Speaking, attempt, client};
use super::key::{self, secret};
use super::repair::Repair;
use super::{Call, ModelAnswer, ModelRequest, Origin, Provider, ProviderFault, anthropic, openai};
use crate::clock::Clock;
use crate::config::{ProviderKind, ProviderTable};
use crate::contract::BoxFuture;
use crate::contract::runner::TextSink;
use crate::kernel::redact::Redactor;
use crate::kernel::secret::{Reference, Secret};

/// A provider may ask for a pause of so long at most; who asks for more gets no other try.
const LONGEST_ASKED: Duration = Duration::from_secs(120);
/// The longest pause that nobody has asked for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A provider over HTTP. Cheap to clone.
#[derive(Clone)]
pub(super) struct Remote(Arc<Inner>);

struct Inner {
    name: String,
    kind: ProviderKind,
    base_url: String,
    url: String,
    key: Option<Reference>,
    headers: HeaderMap,
    /// Why it cannot be used as it is configured.
    problem: Option<String>,
    timeout: Option<Duration>,
    stall: Duration,
    retries: u32,
    retry_wait: Duration,
    models: Vec<String>,
    /// What the requests are sent with, and where to.
    way: OnceLock<Result<(Client, Url), String>>,
    clock: Clock,
}

impl Remote {
    /// As `table` describes it. What is wrong with that is a problem of its calls, not of the
    /// daemon's.
    pub(super) fn new(name: &str, table: &ProviderTable, clock: Clock) -> Self {
        let mut problem = None;
        let kind = table.kind.or_else(|| usual_kind(name)).unwrap_or_else(|| {
            problem = Some(format!(
                "it has no kind: set providers.{name}.kind to openai or anthropic"
            ));
            ProviderKind::OpenAi
        });
        let base_url = match &table.base_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => usual_url(name, kind).to_owned(),
        };
        let path = match kind {
            ProviderKind::OpenAi => openai::PATH,
            ProviderKind::Anthropic => anthropic::PATH,
        };
        // Both ways of writing the address of this API are in use.
        let path = match base_url.ends_with("/v1") {
            true => path.trim_start_matches("v1/"),
            false => path,
        };
        let key = key_place(name, table).unwrap_or_else(|why| {
            problem.get_or_insert(why);
            None
        });
        let mut headers = HeaderMap::new();
        for (header, value) in &table.headers {
            let header_name: Result<HeaderName, _> = header.parse();
            match (header_name, secret(value.expose())) {
                (Ok(header), Ok(value)) => {
                    headers.insert(header, value);
                }
                _ => {
                    problem.get_or_insert(format!(
                        "providers.{name}.headers: {header:?} and its value are no header"
                    ));
                }
            }
        }
        Remote(Arc::new(Inner {
            url: format!("{base_url}/{path}"),
            base_url,
            key,
            headers,
            problem,
            timeout: table.timeout,
            stall: table.stall_timeout.unwrap_or(usual_stall(name)),
            retries: table.retries,
            retry_wait: table.retry_wait,
            models: table.models.clone(),
            way: OnceLock::new(),
            clock,
            name: name.to_owned(),
            kind,
        }))
    }
}

/// The kind of a table that names none.
fn usual_kind(name: &str) -> Option<ProviderKind> {
    match name {
        "openai" | super::OLLAMA => Some(ProviderKind::OpenAi),
        "anthropic" => Some(ProviderKind::Anthropic),
        _ => None,
    }
}

fn usual_url(name: &str, kind: ProviderKind) -> &'static str {
    match (name, kind) {
        (super::OLLAMA, _) => super::OLLAMA_URL,
        (_, ProviderKind::OpenAi) => openai::BASE_URL,
        (_, ProviderKind::Anthropic) => anthropic::BASE_URL,
    }
}

/// A model on this machine may have to be loaded first.
fn usual_stall(name: &str) -> Duration {
    match name {
        super::OLLAMA => Duration::from_mins(5),
        _ => Duration::from_mins(1),
    }
}

fn key_place(name: &str, table: &ProviderTable) -> Result<Option<Reference>, String> {
    let file = table.api_key_file.as_ref();
    let places = [
        table.api_key_env.clone().map(Reference::Variable),
        file.map(|path| Reference::File(path.to_string_lossy().into_owned())),
        table.api_key_cred.clone().map(Reference::Credential),
    ];
    let mut places = places.into_iter().flatten();
    match (places.next(), places.next()) {
        (place, None) => Ok(place),
        (_, Some(_)) => Err(format!(
            "providers.{name} has more than one of api_key_env, api_key_file and api_key_cred"
        )),
    }
}

impl Inner {
    /// Takes out of a provider's words what is not to be repeated: it has seen the key.
    fn secrets(headers: &HeaderMap) -> Redactor {
        let secrets = headers.iter().filter(|(_, value)| value.is_sensitive());
        let secrets: Vec<(&str, Secret)> = secrets
            .filter_map(|(name, value)| {
                let text = value.to_str().ok()?;
                let text = text.strip_prefix("Bearer ").unwrap_or(text);
                Some((name.as_str(), Secret::new(text)))
            })
            .collect();
        Redactor::new(secrets.iter().map(|(name, value)| (*name, value)))
    }

    /// The headers of a call, with the key.
    fn headers(&self) -> Result<HeaderMap, String> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let mut headers = HeaderMap::new();
        if self.kind == ProviderKind::Anthropic {
            let version = HeaderValue::from_static(anthropic::VERSION);
            headers.insert("anthropic-version", version);
        }
        if let (Some(place), Some(key)) = (&self.key, key::read(self.key.as_ref())?) {
            let key = key.expose();
            let (name, value) = match self.kind {
                ProviderKind::OpenAi => (header::AUTHORIZATION, format!("Bearer {key}")),
                ProviderKind::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
            };
            let value = secret(&value)
                .map_err(|why| format!("its key in {place} cannot be used: {why}"))?;
            headers.insert(name, value);
        }
        headers.extend(self.headers.clone());
        Ok(headers)
    }

    fn reader(&self, model: &str) -> Box<dyn Reader> {
        let origin = Origin {
            provider: self.name.clone(),
            api: self.kind.as_str(),
            model: format!("{}/{model}", self.name),
        };
        match self.kind {
            ProviderKind::OpenAi => Box::new(openai::Answer::new(origin)),
            ProviderKind::Anthropic => Box::new(anthropic::Answer::new(origin)),
        }
    }

    fn way(&self) -> Result<(Client, Url), String> {
        let url = Url::parse(&self.url);
        let url = url.map_err(|fault| format!("its base_url is no address: {fault}"))?;
        Ok((client(&self.base_url)?, url))
    }

    fn body(&self, request: &ModelRequest, repair: &Repair) -> String {
        let mut call = Call::new(request, &self.name, self.kind.as_str(), &self.base_url);
        if repair.is_done() {
            call = call.plain();
        }
        match self.kind {
            ProviderKind::OpenAi => openai::body(&call),
            ProviderKind::Anthropic => anthropic::body(&call),
        }
    }

    async fn complete(
        &self,
        request: ModelRequest,
        sink: &dyn TextSink,
    ) -> Result<ModelAnswer, ProviderFault> {
        let unusable = |why: String| ProviderFault {
            kind: "provider_config",
            message: why,
            switches: true,
        };
        let headers = self.headers().map_err(unusable)?;
        let way = self.way.get_or_init(|| self.way());
        let (client, url) = way.as_ref().map_err(|why| unusable(why.clone()))?;
        let mut repair = Repair::default();
        let mut letter = Letter {
            client,
            url,
            headers: &headers,
            body: self.body(&request, &repair).into(),
            stall: self.stall,
            limit: self.timeout.unwrap_or(request.limit),
        };
        let secrets = Self::secrets(&headers);
        let known = Known::of(&request);
        let speaking = Speaking::new(sink);
        let begun = self.clock.monotonic();
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(self.retry_wait)
            .with_max_delay(LONGEST_PAUSE)
            .with_factor(2.0)
            .with_max_times(self.retries as usize)
            // Up to one pause more, so that many who failed together do not come back so.
            .with_jitter()
            .build();
        let mut failures: Vec<Failure> = Vec::new();
        loop {
            let reader = self.reader(&request.model);
            let tried = attempt(&letter, reader, known.clone(), &speaking, &self.clock).await;
            let mut failure = match tried {
                Ok(mut answer) => {
                    repair.mark(&mut answer, &self.name);
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            if self.name == super::OLLAMA && failure.message.starts_with(NO_CONNECTION) {
                failure.message.push_str("; is it running? (ollama serve)");
            }
            secrets.in_place(&mut failure.message);
            speaking.take_back();
            if repair.begins(&failure, &request) {
                tracing::warn!(
                    provider = %self.name,
                    model = %request.model,
                    refusal = %failure.message,
                    "the provider refuses the conversation; it is sent again in plain form"
                );
                letter.body = self.body(&request, &repair).into();
                failures.push(failure);
                continue;
            }
            let pause = next_pause(&failure, &mut pauses);
            tracing::warn!(
                provider = %self.name,
                model = %request.model,
                failure = %failure.message,
                again_in = ?pause.as_ref().ok(),
                "a model call has failed"
            );
            failures.push(failure);
            match pause {
                Ok(pause) => tokio::time::sleep(pause).await,
                Err(why) => {
                    let took = self.clock.monotonic().saturating_sub(begun);
                    return Err(told(&failures, why, took));
                }
            }
        }
    }
}

/// How long to wait before the next try, or why there is none.
fn next_pause(
    failure: &Failure,
    pauses: &mut impl Iterator<Item = Duration>,
) -> Result<Duration, Option<String>> {
    if failure.remedy != Remedy::Again {
        return Err(None);
    }
    let pause = pauses.next().ok_or(None)?;
    match failure.retry_after {
        // Not before, and not all at the same moment either.
        Some(asked) if asked <= LONGEST_ASKED => Ok(asked + pause / 4),
        Some(asked) => Err(Some(format!(
            "the provider asks for a pause of {}, and none is longer than {}",
            humantime::format_duration(Duration::from_secs(asked.as_secs())),
            humantime::format_duration(LONGEST_ASKED)
        ))),
        None => Ok(pause),
    }
}

/// What a person is told: what happened last, how often it was tried, what happened before.
fn told(failures: &[Failure], why: Option<String>, took: Duration) -> ProviderFault {
    let last = failures.last().expect("told after a failure");
    let mut message = last.message.clone();
    if let Some(why) = why {
        message.push_str(&format!("; {why}"));
    }
    if failures.len() > 1 {
        let seconds = took.as_secs_f64();
        message.push_str(&format!(
            "; tried {} times in {seconds:.1} s",
            failures.len()
        ));
        let mut before: Vec<&str> = Vec::new();
        for failure in &failures[..failures.len() - 1] {
            if failure.message != last.message && !before.contains(&&*failure.message) {
                before.push(&failure.message);
            }
        }
        if !before.is_empty() {
            message.push_str(&format!(", before that: {}", before.join("; ")));
        }
    }
    ProviderFault {
        kind: last.kind,
        message,
        switches: last.remedy != Remedy::Nothing,
    }
}

impl Provider for Remote {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn offered(&self) -> Vec<String> {
        let name = &self.0.name;
        match self.0.models.is_empty() {
            true => vec![format!("{name}/*")],
            false => {
                let models = self.0.models.iter();
                models.map(|model| format!("{name}/{model}")).collect()
            }
        }
    }

    fn thinking(&self) -> Vec<String> {
        self.offered()
    }

    fn limits_itself(&self) -> bool {
        true
    }

    fn problem(&self) -> Option<String> {
        self.0.headers().err()
    }

    fn kind(&self) -> &'static str {
        self.0.kind.as_str()
    }

    fn complete(
        &self,
        request: ModelRequest,
        sink: Arc<dyn TextSink>,
    ) -> BoxFuture<'static, Result<ModelAnswer, ProviderFault>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move { inner.complete(request, sink.as_ref()).await })
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
