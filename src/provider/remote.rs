//! A provider over HTTP, as described by a `[providers.NAME]` table: retries, repeats a refused
//! request in another form, and honours the circuit breaker. The adapters know the wire formats.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use hyper::body::Bytes;
use reqwest::{Client, Url};

use super::adapt::{SentBody, Switches};
use super::answer::{AnswerContext, AnswerReader};
use super::failure::{AttemptFailure, Remedy};
use super::health::{BreakerGate, KeyHash, Permit, ProviderPause, Record};
use super::hide::RequestSecrets;
use super::history::AnswerForm;
use super::http::{AttemptRequest, Emitter, NO_CONNECTION, attempt, client};
use super::key::{self, secret};
use super::repair::Repair;
use super::verdict::Size;
use super::{
    AnswerOrigin, ModelAnswer, ModelRequest, PreparedRequest, Provider, ProviderBackoff,
    ProviderFault, anthropic, openai,
};
use crate::clock::Clock;
use crate::config::{ProviderKind, ProviderTable};
use crate::contract::BoxFuture;
use crate::contract::runner::TextSink;
use crate::kernel::provider_health::HealthReport;
use crate::kernel::secret::Reference;
use crate::kernel::text::open_ended;
use crate::kernel::time::Timestamp;

/// Maximum pause between two attempts of a failed request.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Maximum time a call itself waits for a busy provider; for longer waits its run is suspended or
/// another model is used.
const MAX_BUSY_WAIT: Duration = Duration::from_secs(1);
/// Maximum total of such waits in one call.
const MAX_BUSY_WAIT_TOTAL: Duration = Duration::from_secs(3);
/// Maximum number of times a request is sent in another form.
const MAX_FORMS: u32 = 8;

/// A provider over HTTP. Cheap to clone.
#[derive(Clone)]
pub(super) struct HttpProvider(Arc<HttpProviderInner>);

struct HttpProviderInner {
    name: String,
    kind: ProviderKind,
    base_url: String,
    url: String,
    key: Option<Reference>,
    headers: HeaderMap,
    /// Why the configuration cannot be used.
    problem: Option<String>,
    timeout: Option<Duration>,
    stall: Duration,
    retries: u32,
    retry_wait: Duration,
    max_wait: Duration,
    models: Vec<String>,
    /// The HTTP client and the endpoint; built at the first call.
    connection: OnceLock<Result<(Client, Url), String>>,
    record: Arc<Record>,
    clock: Clock,
}

impl HttpProvider {
    /// Creates the provider from its table. Mistakes in the table make its calls fail, not the
    /// daemon's start. `record`: what is known about it so far.
    pub(super) fn new(
        name: &str,
        table: &ProviderTable,
        clock: Clock,
        record: Arc<Record>,
    ) -> Self {
        let mut problem = None;
        let kind = table.kind.or_else(|| usual_kind(name)).unwrap_or_else(|| {
            problem = Some(format!(
                "it has no kind: set providers.{name}.kind to openai or anthropic"
            ));
            ProviderKind::OpenAi
        });
        let base_url = match &table.base_url {
            Some(url) => url.trim(),
            None => usual_url(name, kind),
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
                        "providers.{name}.headers: {header:?} or its value is not allowed in an HTTP header"
                    ));
                }
            }
        }
        HttpProvider(Arc::new(HttpProviderInner {
            url: endpoint(kind, base_url),
            base_url: base_url.to_owned(),
            key,
            headers,
            problem,
            timeout: table.timeout,
            stall: table.stall_timeout.unwrap_or(usual_stall(name)),
            retries: table.retries,
            retry_wait: table.retry_wait,
            max_wait: table.max_wait,
            models: table.models.clone(),
            connection: OnceLock::new(),
            record,
            clock,
            name: name.to_owned(),
            kind,
        }))
    }
}

/// The endpoint's URL. `base` may end at any part of the endpoint's path and may have a query.
fn endpoint(kind: ProviderKind, base: &str) -> String {
    let (path, query) = match base.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (base, None),
    };
    let path = path.trim_end_matches('/');
    let whole = match kind {
        ProviderKind::OpenAi => openai::PATH,
        ProviderKind::Anthropic => anthropic::PATH,
    };
    let last = whole.trim_start_matches("v1/");
    // All these ways of writing an API's address are in use.
    let below = match path.ends_with("/v1") {
        true => last,
        false => whole,
    };
    let url = match path.ends_with(&format!("/{last}")) {
        true => path.to_owned(),
        false => format!("{path}/{below}"),
    };
    match query {
        Some(query) => format!("{url}?{query}"),
        None => url,
    }
}

/// The API kind of a table that names none, by the provider's name.
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

/// The default stall timeout: a local model may have to be loaded first.
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

impl HttpProviderInner {
    /// The headers of a call, including the key.
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

    fn reader(&self, model: &str) -> Box<dyn AnswerReader> {
        let origin = AnswerOrigin {
            provider: self.name.clone(),
            api: self.kind.as_str(),
            model: format!("{}/{model}", self.name),
        };
        match self.kind {
            ProviderKind::OpenAi => Box::new(openai::OpenAiReader::new(origin)),
            ProviderKind::Anthropic => Box::new(anthropic::AnthropicReader::new(origin)),
        }
    }

    fn way(&self) -> Result<(Client, Url), String> {
        let url = Url::parse(&self.url);
        let url = url.map_err(|fault| format!("its base_url is not a valid URL: {fault}"))?;
        Ok((client(&self.base_url)?, url))
    }

    fn body(&self, request: &ModelRequest, switches: &Switches, form: AnswerForm) -> String {
        let call = PreparedRequest::new(request, &self.name, self.kind.as_str(), &self.base_url);
        let call = call.with(switches).in_form(form);
        match self.kind {
            ProviderKind::OpenAi => openai::body(&call),
            ProviderKind::Anthropic => anthropic::body(&call),
        }
    }

    /// Whether this is a local server that the user has to start and has not. One retry is enough
    /// then: the user is present.
    fn is_not_running(&self, failure: &AttemptFailure) -> bool {
        self.name == super::OLLAMA && failure.message.starts_with(NO_CONNECTION)
    }

    async fn complete(
        &self,
        request: ModelRequest,
        sink: &dyn TextSink,
    ) -> Result<ModelAnswer, ProviderFault> {
        let unusable = |why: String| ProviderFault {
            kind: "provider_config",
            ..ProviderFault::new(why)
        };
        let headers = self.headers().map_err(unusable)?;
        let way = self.connection.get_or_init(|| self.way());
        let (client, url) = way.as_ref().map_err(|why| unusable(why.clone()))?;
        let gate = self.gate(&headers, &request);
        let mut repair = Repair::default();
        let known = AnswerContext::of(&request);
        let speaking = Emitter::new(sink);
        let mut switches = self.record.switches(&request.model);
        let clock = &self.clock;
        let (mut forms, mut tries) = (0, Attempts::new(self));
        let mut body = Bytes::from(self.body(&request, &switches, repair.form()));
        loop {
            let mut permit = tries.permit(&gate).await?;
            let letter = AttemptRequest {
                client,
                url,
                headers: &headers,
                body: body.clone(),
                stall: self.stall,
                limit: self.timeout.unwrap_or(request.limit),
            };
            let reader = self.reader(&request.model);
            let tried = attempt(
                &letter,
                reader,
                known.clone(),
                &speaking,
                clock,
                &mut permit,
            );
            let failure = match tried.await {
                Ok(mut answer) => {
                    permit.answered();
                    repair.mark(&mut answer, &self.name);
                    answer.warnings.extend(switches.warnings(&request));
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let failure = self.explained(failure, &body, &request, &headers);
            speaking.discard();
            if forms < MAX_FORMS
                && let Some(other) = self.other_form(&failure, &switches, &body, &request)
            {
                permit.answered();
                forms += 1;
                switches = other;
                body = self.body(&request, &switches, repair.form()).into();
                continue;
            }
            let reason = failure.message.clone();
            let (remedy, retry_after) = (failure.remedy, failure.retry_after);
            let next = tries.after(failure, &request.model);
            let until = self.report(permit, remedy, &reason, retry_after);
            match next {
                RetryDecision::Again(pause) => tokio::time::sleep(pause).await,
                RetryDecision::WhenAllowed => {}
                RetryDecision::Pause => {
                    return Err(tries.final_fault(None).waits(tries.wait(until)));
                }
                RetryDecision::Over(why) => {
                    let other = tries.failures.last().and_then(|last| {
                        self.repaired(&mut repair, last, &request, &body, &switches)
                    });
                    body = other.ok_or_else(|| tries.final_fault(why))?.into();
                }
            }
        }
    }

    /// The failure with the size of the request and what the user can do, without secrets.
    fn explained(
        &self,
        failure: AttemptFailure,
        body: &Bytes,
        request: &ModelRequest,
        headers: &HeaderMap,
    ) -> AttemptFailure {
        let mut failure = failure.sized(Size {
            bytes: body.len() as u64,
            window: request.window,
        });
        if self.is_not_running(&failure) {
            failure.message.push_str("; is it running? (ollama serve)");
        }
        RequestSecrets::of(headers).in_place(&mut failure.message);
        failure
    }

    /// The request in another form, after the provider has refused the conversation; `None` if there
    /// is no other one.
    fn repaired(
        &self,
        repair: &mut Repair,
        failure: &AttemptFailure,
        request: &ModelRequest,
        sent: &Bytes,
        switches: &Switches,
    ) -> Option<String> {
        let body = |form| self.body(request, switches, form);
        let other = repair.next(failure, request, sent, body)?;
        tracing::warn!(
            provider = %self.name,
            model = %request.model,
            refusal = %failure.message,
            form = ?repair.form(),
            "the provider refuses the conversation; it is sent again in another form"
        );
        Some(other)
    }

    /// Reports a failed attempt to the breaker; returns when requests may be sent again.
    fn report(
        &self,
        permit: Permit,
        remedy: Remedy,
        reason: &str,
        retry_after: Option<Duration>,
    ) -> Timestamp {
        match remedy {
            Remedy::Later => {
                let asked = retry_after.filter(|asked| *asked <= self.max_wait);
                permit.busy(reason, self.retry_wait, asked, self.max_wait)
            }
            Remedy::Again => permit.failed(reason, self.retry_wait),
            Remedy::Elsewhere | Remedy::Nothing => permit.answered(),
        }
    }

    /// The circuit breaker for the key in these headers.
    fn gate(&self, headers: &HeaderMap, request: &ModelRequest) -> Arc<BreakerGate> {
        let secrets = headers.values().filter(|value| value.is_sensitive());
        let key = KeyHash::of(secrets.map(HeaderValue::as_bytes));
        let stands_in = request.is_fallback.then_some(request.model.as_str());
        self.record.gate(key, stands_in)
    }

    /// The changed request form if the refusal names a field that is not accepted. Unless it
    /// applies once only, later requests to the model use it from the start.
    fn other_form(
        &self,
        failure: &AttemptFailure,
        switches: &Switches,
        body: &[u8],
        request: &ModelRequest,
    ) -> Option<Switches> {
        let refusal = failure.refusal.as_deref()?;
        let body = std::str::from_utf8(body).ok()?;
        let sent = SentBody::new(body, self.kind == ProviderKind::Anthropic);
        let change = switches.adapted(refusal, &sent, request)?;
        tracing::info!(
            provider = %self.name,
            model = %request.model,
            refusal = %failure.message,
            form = ?change.switches.shown(),
            "a request is sent in another form"
        );
        if !change.once {
            self.record.learn(&request.model, change.switches.clone());
        }
        Some(change.switches)
    }
}

/// What to do after a failed attempt.
enum RetryDecision {
    /// Retry after this pause.
    Again(Duration),
    /// Retry as soon as the breaker allows it.
    WhenAllowed,
    /// Fail the call; the run may wait for the provider.
    Pause,
    /// Fail the call; the text adds a reason beyond the failure itself.
    Over(Option<String>),
}

/// The attempts of one call.
struct Attempts<'a> {
    of: &'a HttpProviderInner,
    begun: Duration,
    pauses: ExponentialBackoff,
    failures: Vec<AttemptFailure>,
    /// The breaker's failure count when this call began to wait for it.
    seen: Option<u32>,
    held: Duration,
}

impl<'a> Attempts<'a> {
    fn new(of: &'a HttpProviderInner) -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(of.retry_wait)
            .with_max_delay(LONGEST_PAUSE)
            .with_factor(2.0)
            .with_max_times(of.retries as usize)
            // Up to one more pause, so that many calls that failed together do not retry together.
            .with_jitter()
            .build();
        Attempts {
            of,
            begun: of.clock.monotonic(),
            pauses,
            failures: Vec::new(),
            seen: None,
            held: Duration::ZERO,
        }
    }

    /// Decides what to do after this failure.
    fn after(&mut self, failure: AttemptFailure, model: &str) -> RetryDecision {
        let remedy = failure.remedy;
        let asked = failure.retry_after.unwrap_or_default();
        let is_over = self.of.is_not_running(&failure) && !self.failures.is_empty();
        let pause = match remedy {
            Remedy::Again | Remedy::Later if !is_over => self.pauses.next(),
            _ => None,
        };
        tracing::warn!(
            provider = %self.of.name,
            %model,
            failure = %failure.message,
            again_in = ?pause,
            "an attempt of a model call failed"
        );
        self.failures.push(failure);
        let waits = remedy == Remedy::Later && !self.of.max_wait.is_zero();
        match pause {
            _ if waits && asked > self.of.max_wait => RetryDecision::Over(Some(format!(
                "the provider asks to wait {}, longer than providers.{}.max_wait ({})",
                humantime::format_duration(Duration::from_secs(asked.as_secs())),
                self.of.name,
                humantime::format_duration(self.of.max_wait)
            ))),
            Some(_) if waits && asked <= MAX_BUSY_WAIT => RetryDecision::WhenAllowed,
            _ if waits => RetryDecision::Pause,
            Some(pause) => RetryDecision::Again(pause),
            None => RetryDecision::Over(None),
        }
    }

    /// Waits until the breaker permits an attempt, or fails.
    async fn permit(&mut self, gate: &Arc<BreakerGate>) -> Result<Permit, ProviderFault> {
        loop {
            match gate.enter() {
                Ok(permit) => return Ok(permit),
                Err(waiting) => self.wait_for_breaker(gate, waiting).await?,
            }
        }
    }

    /// Waits while the breaker is open, as long as the wait is short. Failures of other runs'
    /// requests meanwhile count as attempts of this call.
    async fn wait_for_breaker(
        &mut self,
        gate: &BreakerGate,
        waiting: ProviderPause,
    ) -> Result<(), ProviderFault> {
        let seen = *self.seen.get_or_insert(waiting.failures);
        if waiting.busy && (waiting.remaining > MAX_BUSY_WAIT || self.held >= MAX_BUSY_WAIT_TOTAL) {
            let fault = match self.failures.is_empty() {
                true => ProviderFault::new(waiting.reason),
                false => self.final_fault(None),
            };
            return Err(fault.waits(self.wait(waiting.until)));
        }
        if !waiting.busy && waiting.failures > seen {
            self.seen = Some(waiting.failures);
            for _ in seen..waiting.failures {
                if self.pauses.next().is_none() {
                    return Err(ProviderFault::new(format!(
                        "{}; {} consecutive failures, in this run and others",
                        waiting.reason, waiting.failures
                    )));
                }
            }
        }
        let before = self.of.clock.monotonic();
        gate.wait(waiting.remaining.min(LONGEST_PAUSE)).await;
        self.held += self.of.clock.monotonic().saturating_sub(before);
        Ok(())
    }

    fn wait(&self, until: Timestamp) -> ProviderBackoff {
        ProviderBackoff {
            provider: self.of.name.clone(),
            until,
            max_total: self.of.max_wait,
        }
    }

    /// The fault for the user, from all failures of this call.
    fn final_fault(&self, why: Option<String>) -> ProviderFault {
        let took = self.of.clock.monotonic().saturating_sub(self.begun);
        combined_fault(&self.failures, why, took)
    }
}

/// The fault for the user: the last failure, the number of attempts, and the earlier failures.
fn combined_fault(
    failures: &[AttemptFailure],
    why: Option<String>,
    took: Duration,
) -> ProviderFault {
    let last = failures
        .last()
        .expect("a call gives up only after a failure");
    let mut message = open_ended(&last.message).to_owned();
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
        switches: last.remedy != Remedy::Nothing,
        ..ProviderFault::new(message)
    }
}

impl Provider for HttpProvider {
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

    fn health(&self) -> Option<HealthReport> {
        self.0.record.seen()
    }

    fn learned(&self) -> Vec<String> {
        self.0.record.learned()
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
