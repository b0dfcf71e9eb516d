//! One attempt to deliver a message: it is signed and sent, and the receiver's answer is read.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode, Url, redirect};

use crate::config::{self, WebhookTable};
use crate::doors::signature::{SigningSecret, sign};
use crate::kernel::secret::{GivenValue, Secret};
use crate::kernel::text;
use crate::kernel::text::redact::Redactor;
use crate::kernel::time::Timestamp;
use crate::outbound;
use crate::outbound::address::{Guarded, Private, refused_in};
use crate::telemetry::redaction::{MaskGuard, hide};

/// Maximum number of attempts at once.
pub(super) const AT_ONCE: usize = 64;
/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read of an answer. A connection with a longer one is closed.
const ANSWER_LIMIT: usize = 64 * 1024;
/// Time limit for the rest of a successful answer, which only keeps the connection usable.
const REST_OF_ANSWER: Duration = Duration::from_secs(2);
/// Maximum number of characters of an answer that are shown.
const SHOWN: usize = 200;
/// The longest wait that a receiver may ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The receiver has it: the status was 2xx.
    Delivered,
    /// It may not have it.
    Failed {
        /// Why.
        why: String,
        /// The wait that the receiver asks for.
        retry_after: Option<Duration>,
    },
    /// The receiver wants no more messages: the status was 410.
    Gone,
}

/// Sends messages to one receiver.
pub(super) struct Sender {
    client: Client,
    url: Url,
    private: Option<Private>,
    timeout: Duration,
    /// Masks the query of the address in what the receiver answers.
    redactor: Redactor,
    /// The same for the log.
    _hidden: MaskGuard,
}

impl Sender {
    /// A sender for the receiver of this table; the error says what the table lacks.
    pub(super) fn new(table: &WebhookTable) -> Result<Sender, String> {
        let url = table.url.as_ref().ok_or("it has no url")?.expose();
        let mut builder = outbound::client(url)
            .connect_timeout(CONNECT.min(table.timeout))
            .timeout(table.timeout)
            .pool_max_idle_per_host(AT_ONCE)
            // Another address would get messages that are for this one.
            .redirect(redirect::Policy::none());
        let private = (!table.allow_private).then(Private::default);
        if let Some(private) = &private {
            // A proxy would resolve names itself.
            builder = builder
                .no_proxy()
                .dns_resolver(Arc::new(Guarded(Arc::new(private.clone()))));
        }
        let url = Url::parse(url).map_err(|fault| format!("its url: {fault}"))?;
        let redactor = redactor(&url);
        Ok(Sender {
            client: builder.build().map_err(|fault| outbound::causes(&fault))?,
            url,
            private,
            timeout: table.timeout,
            _hidden: hide(&redactor),
            redactor,
        })
    }

    /// One attempt. `keys` are those that sign it.
    pub(super) async fn attempt(
        &self,
        keys: &[SigningSecret],
        id: &str,
        body: String,
        now: Timestamp,
    ) -> Answer {
        let host = self.url.host_str().unwrap_or_default();
        if let Some(private) = &self.private
            && let Err(refused) = private.check_literal(host)
        {
            return failed(explained(&refused.to_string()));
        }
        let seconds = now.0 / 1000;
        let mut request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds);
        if !keys.is_empty() {
            let all: Vec<String> = keys
                .iter()
                .map(|key| sign(key, id, seconds, body.as_bytes()))
                .collect();
            request = request.header("webhook-signature", all.join(" "));
        }
        match request.body(body).send().await {
            Ok(response) => answer(response, now, &self.redactor).await,
            Err(fault) => failed(self.reason(fault)),
        }
    }

    fn reason(&self, fault: reqwest::Error) -> String {
        if let Some(refused) = refused_in(&fault) {
            return explained(&refused.to_string());
        }
        if fault.is_timeout() {
            let limit = humantime::format_duration(self.timeout);
            return format!("no answer within {limit} (timeout)");
        }
        // Its path and its query may be secrets.
        outbound::causes(&fault.without_url() as &dyn Error)
    }
}

fn failed(why: String) -> Answer {
    Answer::Failed {
        why,
        retry_after: None,
    }
}

fn explained(refused: &str) -> String {
    format!("{refused}, and allow_private is not set; nothing was sent")
}

/// Masks the query of this address and the values in it, where a receiver repeats them.
fn redactor(url: &Url) -> Redactor {
    let Some(query) = url.query() else {
        return Redactor::default();
    };
    // A pair without a value may be the secret itself.
    let written = query.split('&').map(|pair| match pair.split_once('=') {
        Some((_, value)) => value.to_owned(),
        None => pair.to_owned(),
    });
    let decoded = url
        .query_pairs()
        .map(|(name, value)| match value.is_empty() {
            true => name.into_owned(),
            false => value.into_owned(),
        });
    let all = std::iter::once(format!("?{query}"))
        .chain(written)
        .chain(decoded);
    let all: Vec<Secret> = all.map(Secret::new).collect();
    Redactor::new(all.iter().map(|secret| ("query", secret)))
}

async fn answer(response: Response, now: Timestamp, redactor: &Redactor) -> Answer {
    let status = response.status();
    if status == StatusCode::GONE {
        return Answer::Gone;
    }
    let retry_after = asked_wait(response.headers(), now);
    if status.is_success() {
        // A connection is used again once its answer is read. The message is delivered in any case.
        let _ = tokio::time::timeout(REST_OF_ANSWER, said(response)).await;
        return Answer::Delivered;
    }
    let mut why = format!("the receiver answered {status}");
    if status.is_redirection() {
        why.push_str("; redirects are not followed");
    } else if let Ok(said) = tokio::time::timeout(REST_OF_ANSWER, said(response)).await {
        let said = text::preview(&redactor.whole(&said), SHOWN);
        if !said.is_empty() {
            why.push_str(&format!(": {said}"));
        }
    }
    Answer::Failed { why, retry_after }
}

/// The beginning of the answer's body.
async fn said(mut response: Response) -> String {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_LIMIT - body.len())]);
        if body.len() >= ANSWER_LIMIT {
            break;
        }
    }
    String::from_utf8_lossy(&body).into_owned()
}

/// The wait of `Retry-After`, in seconds or as a date, within its limit.
fn asked_wait(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            Duration::from_millis(Timestamp::from(date).since(now))
        }
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

/// The keys that sign messages of this table, each secret read from its place.
pub(super) fn keys(table: &WebhookTable) -> Result<Vec<SigningSecret>, String> {
    let mut keys = Vec::new();
    for (field, given) in [
        ("secret", &table.secret),
        ("previous_secret", &table.previous_secret),
    ] {
        let Some(given) = given else {
            continue;
        };
        let read = match given {
            GivenValue::Text(text) => Ok(text.clone()),
            GivenValue::From(place) => config::read(place),
        };
        let key = read.and_then(|text| Ok(SigningSecret::parse(text.expose())?));
        keys.push(key.map_err(|why| format!("{field}: {why}"))?);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::secret::ReceiverUrl;

    fn wait(text: &str) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, text.parse().unwrap());
        asked_wait(&headers, Timestamp(784_111_777_000))
    }

    #[test]
    fn a_receiver_asks_for_a_wait_in_seconds_or_by_date_and_not_for_more_than_an_hour() {
        assert_eq!(wait("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait("90000"), Some(LONGEST_RETRY_AFTER));
        assert_eq!(
            wait("Sun, 06 Nov 1994 08:49:40 GMT"),
            Some(Duration::from_secs(3))
        );
        assert_eq!(
            wait("Sun, 06 Nov 1994 08:49:30 GMT"),
            Some(Duration::ZERO),
            "it has passed"
        );
        for wrong in ["", "soon", "-1", "1.5"] {
            assert_eq!(wait(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_that_signs_nothing_is_named_and_not_shown() {
        let secret = |text: &str| WebhookTable {
            secret: Some(GivenValue::text("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")),
            previous_secret: Some(GivenValue::text(text)),
            ..WebhookTable::default()
        };
        assert_eq!(keys(&WebhookTable::default()).map(|keys| keys.len()), Ok(0));
        let both = keys(&secret("whsec_b3RoZXItc2VjcmV0LW90aGVyLXNlY3JldA=="));
        assert_eq!(both.map(|keys| keys.len()), Ok(2));
        let why = keys(&secret("can$ary")).err().unwrap();
        assert!(why.starts_with("previous_secret: "), "{why}");
        assert!(!why.contains("can$ary"), "{why}");
    }

    #[test]
    fn the_query_of_the_address_is_masked_as_a_whole_and_value_by_value() {
        let url = Url::parse("https://a.example/hook?sig=canary%2Bone&v=canary-two&b").unwrap();
        let redactor = redactor(&url);
        for said in [
            "no POST /hook?sig=canary%2Bone&v=canary-two&b here",
            "sig is canary+one",
            "{\"v\": \"canary-two\"}",
        ] {
            let shown = redactor.whole(said);
            assert!(!shown.contains("canary"), "{shown}");
        }
        let plain = Url::parse("https://a.example/hook").unwrap();
        assert!(super::redactor(&plain).is_empty());
    }

    #[tokio::test]
    async fn addresses_of_this_machine_are_not_connected_to() {
        let table = WebhookTable {
            url: Some(ReceiverUrl::new("http://127.0.0.1:1/")),
            ..WebhookTable::default()
        };
        let sender = Sender::new(&table).unwrap();
        let answer = sender.attempt(&[], "evt_1", "{}".to_owned(), Timestamp(0));
        let Answer::Failed { why, .. } = answer.await else {
            panic!("it was sent");
        };
        assert_eq!(
            why,
            "127.0.0.1 is not a public address, and allow_private is not set; nothing was sent"
        );
    }
}
