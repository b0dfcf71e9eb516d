//! A connection to the daemon, and the translation of its errors into failures. Used by every
//! command that calls a daemon.

pub(crate) mod activation;
mod closed;
pub(crate) mod discover;
pub(crate) mod known;
pub(crate) mod start;
pub(crate) mod token;
pub(crate) mod trust;
pub(crate) mod watch;
pub(crate) mod words;

use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::common::Common;
use crate::cli::common::failure::{Failure, exit};
use crate::cli::link::discover::{DaemonTarget, NO_DAEMON, Transport, Where, start_command};
use crate::cli::link::token::{read_token, token_for_socket};
use crate::cli::output::print;
use crate::client::{Client, ClientError, EventSubscription, NodeOutputParts};
use crate::clock::Clock;
use crate::daemon::Endpoint;
use crate::kernel::fault::Kind;
use crate::kernel::ids::BootId;
use crate::version::version;
use crate::wire::PROTOCOL;
use crate::wire::events::SubscribeEvents;
use crate::wire::gateway::{GetStatus, Status};
use crate::wire::method::Method;

/// A connection to the daemon.
pub(crate) struct DaemonLink {
    client: Client,
    /// The daemon that this is connected to.
    pub(crate) target: DaemonTarget,
}

impl DaemonLink {
    /// Finds the daemon and connects to it.
    pub(crate) async fn open(place: &Where) -> Result<DaemonLink, Failure> {
        let (client, target) = by_any_way(place, connect).await?;
        Ok(DaemonLink { client, target })
    }

    /// The connection alone, for a caller with its own errors.
    pub(crate) fn into_client(self) -> Client {
        self.client
    }

    /// Calls a method and returns the client's error unchanged.
    pub(crate) async fn call(&self, method: &str, params: Value) -> Result<Value, ClientError> {
        self.client.call(method, params).await
    }

    /// Calls the method with these parameters and returns the reply unparsed.
    pub(crate) async fn raw<M: Method>(&self, params: &M) -> Result<Value, Failure> {
        self.request(params).await
    }

    /// As [`Link::raw`], but if the connection is lost, the call is made again over a new one. The
    /// parameters must have an id or idempotency key, so that a repeat does nothing more.
    pub(crate) async fn raw_retried<M: Method>(
        &self,
        params: &M,
        place: &Where,
    ) -> Result<Value, Failure> {
        match self.raw(params).await {
            Err(lost) if is_broken(&lost) => {
                let again = reconnect(place, lost, print::note).await?;
                again.raw(params).await
            }
            answer => answer,
        }
    }

    /// Subscribes to events.
    pub(crate) async fn subscribe(
        &self,
        request: &SubscribeEvents,
    ) -> Result<EventSubscription, Failure> {
        let events = self.client.subscribe(request).await;
        events.map_err(|error| self.failure(error))
    }

    /// The output of programs on nodes that this connection follows.
    pub(crate) async fn node_output(&self) -> Result<NodeOutputParts, Failure> {
        let parts = self.client.node_output().await;
        parts.map_err(|error| self.failure(error))
    }

    /// The failure for a client error of this connection.
    pub(crate) fn failure(&self, error: ClientError) -> Failure {
        failure(error, &self.target)
    }

    /// Calls the method with these parameters and parses the reply.
    pub(crate) async fn ask<M: Method>(&self, params: &M) -> Result<M::Answer, Failure> {
        self.request(params).await
    }

    /// As [`Link::ask`], but with `--json` the reply is printed as received, and the result is
    /// `None`.
    pub(crate) async fn ask_or_print<M: Method>(
        &self,
        params: &M,
        common: &Common,
    ) -> Result<Option<M::Answer>, Failure> {
        if common.json {
            print::object(&self.raw(params).await?)?;
            return Ok(None);
        }
        self.ask(params).await.map(Some)
    }

    async fn request<M: Method, R: DeserializeOwned>(&self, params: &M) -> Result<R, Failure> {
        let answer = self.client.call(M::ROW.name, params).await;
        answer.map_err(|error| self.failure(error))
    }
}

/// How long [`answering`] waits for an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The status of the daemon at `place`; `None` if none answers.
pub(crate) async fn answering(place: &Where) -> Option<Status> {
    let asked = async {
        let link = DaemonLink::open(place).await.ok()?;
        link.ask(&GetStatus {}).await.ok()
    };
    tokio::time::timeout(ANSWER, asked).await.ok().flatten()
}

/// The status of the daemon at `place`, if it is ready and another process than that of `before`. While
/// one process is gone and the next is not up yet, any error is to be expected.
pub(crate) async fn ready(place: &Where, before: Option<BootId>) -> Option<Status> {
    let status = answering(place).await?;
    (status.phase == "ready" && Some(status.boot_id) != before).then_some(status)
}

/// Refuses a daemon of another protocol version: one of both would misread the other.
fn speaks(endpoint: &Endpoint) -> Result<(), Failure> {
    if endpoint.protocol == PROTOCOL {
        return Ok(());
    }
    let own = version();
    let (theirs, protocol) = (&endpoint.version, endpoint.protocol);
    Err(Failure::new(
        exit::NO_DAEMON,
        "protocol",
        format!(
            "the daemon (version {theirs}) speaks protocol {protocol}, this program (version \
             {own}) speaks {PROTOCOL}; no request was sent"
        ),
    )
    .hint(format!(
        "use the program of version {theirs}, or run the daemon of this one: kill {} && abide \
         serve --detach (all accepted work is kept)",
        endpoint.pid
    )))
}

/// Connects by the first transport that reaches the daemon.
pub(crate) async fn by_any_way<C>(
    place: &Where,
    connect: impl AsyncFn(&Transport) -> Result<Result<C, ClientError>, Failure>,
) -> Result<(C, DaemonTarget), Failure> {
    let target = match place.target() {
        Err(none) if activation::start(place).await => place.target().map_err(|_| none)?,
        found => found?,
    };
    if let Some(endpoint) = &target.endpoint {
        speaks(endpoint)?;
    }
    let mut lost = None;
    for way in &target.ways {
        match connect(way).await? {
            Ok(connection) => return Ok((connection, target)),
            // An unreachable socket says nothing about the daemon's address. One that this user may not
            // open says that this user is to have no access, so the token is not tried.
            Err(error @ ClientError::NoDaemon { .. }) => lost = Some(error),
            Err(error) => return Err(failure(error, &target)),
        }
    }
    let lost = lost.expect("a target has at least one way, and each has failed");
    Err(failure(lost, &target))
}

/// Connects by one transport; the outer failure comes before connecting, such as an unreadable
/// token file.
async fn connect(way: &Transport) -> Result<Result<Client, ClientError>, Failure> {
    Ok(match way {
        Transport::Socket { path, token_file } => {
            let token = token_for_socket(token_file.as_deref());
            Client::connect_socket_with(path, token.as_deref()).await
        }
        Transport::Tcp {
            url,
            token_file,
            pin,
        } => {
            let token = read_token(token_file)?;
            let open = async |trust| Client::connect_trusting(url, trust, Some(&token)).await;
            trust::connect(url, *pin, open).await?
        }
    })
}

/// Parses a reply of [`Link::raw`].
pub(crate) fn read<R: DeserializeOwned>(answer: &Value) -> Result<R, Failure> {
    R::deserialize(answer).map_err(|error| {
        Failure::local("the daemon's answer cannot be read", error)
            .hint("--json prints it unparsed")
    })
}

/// True if the connection was lost, so that the outcome of the request is unknown.
pub(crate) fn is_broken(failure: &Failure) -> bool {
    failure.kind == LOST
}

/// Reconnects to the daemon, retrying for at most [`SEARCH`]. `say` gets a note that this is going
/// on, and one if the daemon was stopped.
pub(crate) async fn reconnect(
    place: &Where,
    _lost: Failure,
    mut say: impl FnMut(&str),
) -> Result<DaemonLink, Failure> {
    say(&format!(
        "the connection to the daemon was lost; retrying for up to {} s",
        RECONNECT_TIMEOUT.as_secs()
    ));
    let clock = Clock::system();
    let started = clock.monotonic();
    let mut is_announced = false;
    loop {
        let gone = match DaemonLink::open(place).await {
            Ok(link) => return Ok(link),
            Err(failure) if failure.code != exit::NO_DAEMON => return Err(failure),
            Err(gone) => gone,
        };
        if !is_announced && let Some(folder) = place.stopped() {
            is_announced = true;
            say(&format!(
                "the daemon was stopped; all accepted work is kept, and its runs resume when you {}",
                start_command(&folder)
            ));
        }
        if clock.monotonic() - started > RECONNECT_TIMEOUT {
            return Err(reconnect_timed_out(gone));
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The failure for a daemon that has not come back in time.
fn reconnect_timed_out(gone: Failure) -> Failure {
    let said = |text: &str| text.contains("is kept");
    let is_said = said(&gone.message) || gone.hints.iter().any(|hint| said(hint));
    let kept = if is_said {
        ""
    } else {
        "; all accepted work is kept"
    };
    let message = format!(
        "the daemon has not come back for {} s: {}{kept}",
        RECONNECT_TIMEOUT.as_secs(),
        gone.message
    );
    let mut failure = Failure::new(exit::NO_DAEMON, NO_DAEMON, message);
    // The hints of the lost connection apply only while a daemon answers.
    failure.hints = gone.hints;
    failure
}

/// How long a connection to a lost daemon is retried.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between two attempts.
pub(crate) const RETRY: Duration = Duration::from_millis(250);

const LOST: &str = "link_lost";

fn failure(error: ClientError, target: &DaemonTarget) -> Failure {
    let code = error.exit();
    let failure = match &error {
        ClientError::NoDaemon { url, .. } => {
            let text = match &target.endpoint {
                Some(endpoint) => format!("process {} does not answer at", endpoint.pid),
                None => "cannot connect to a daemon at".to_owned(),
            };
            Failure::new(code, NO_DAEMON, format!("{text} {url}"))
                .hint("check it: abide status; start one: abide serve --detach")
        }
        ClientError::NotPermitted { url, .. } => closed::failure(Path::new(url), code),
        ClientError::Unauthorized { url } => Failure::new(
            exit::AUTH,
            "unauthorized",
            format!("the daemon at {url} rejected this token"),
        )
        .hint("use the token of its state folder: --state-dir DIR or --token-file FILE"),
        ClientError::LinkLost(_) => Failure::new(code, LOST, error.to_string())
            .hint("what the daemon accepted is kept; see it with: abide ps"),
        ClientError::Rpc(fault) => {
            let kind = fault.kind().map_or("other", Kind::as_str);
            let mut failure = Failure::new(code, kind, fault.message.clone());
            failure.hints.extend(fault.hint().map(words::in_commands));
            failure.data = Some(Box::new(Value::Object(fault.data.clone())));
            failure
        }
        ClientError::Url { .. } => Failure::usage(error.to_string()),
        ClientError::Untrusted { .. } | ClientError::OtherCertificate { .. } => {
            trust::refused(&error)
        }
        ClientError::NoTls { url } => Failure::new(code, "no_tls", error.to_string())
            .hint(format!("without TLS: {}", url.replacen("s://", "://", 1))),
        ClientError::NeedsTls { url } => Failure::new(code, "needs_tls", error.to_string())
            .hint(format!("with TLS: {}", url.replacen("://", "s://", 1))),
        ClientError::Refused { url, status: 403 } if url.starts_with('/') => Failure::new(
            code,
            "forbidden",
            format!(
                "{url} accepts the user who started the daemon, and root, but no tool server, \
                 no process that a run's program left behind, and no process whose origin is \
                 unknown"
            ),
        )
        .hint("run as that user, in a session of your own, or use --url and --token-file"),
        ClientError::Refused { .. } | ClientError::Answer(_) => {
            Failure::new(code, "refused", error.to_string())
        }
    };
    with_versions(failure, target)
}

/// Adds a hint if a version difference may explain why the request was refused.
fn with_versions(failure: Failure, target: &DaemonTarget) -> Failure {
    let own = version();
    let Some(theirs) = target.endpoint.as_ref().map(|endpoint| &endpoint.version) else {
        return failure;
    };
    let misunderstood = matches!(
        failure.kind,
        "unknown_method" | "invalid_params" | "refused"
    );
    if !misunderstood || theirs == own {
        return failure;
    }
    failure.hint(format!(
        "the daemon is version {theirs}, this program {own}; restart it: abide stop && abide serve --detach"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn target(version: &str) -> DaemonTarget {
        let endpoint = json!({
            "version": version, "protocol": 1, "pid": 1, "url": "http://127.0.0.1:1",
            "bootId": "01936f0e-0000-7000-8000-000000000001",
            "startedAt": "2026-11-30T00:53:20.123Z",
        });
        DaemonTarget {
            ways: vec![Transport::Socket {
                path: "/nowhere".into(),
                token_file: None,
            }],
            endpoint: serde_json::from_value(endpoint).unwrap(),
        }
    }

    #[test]
    fn c7_a_daemon_that_does_not_come_back_is_given_up_with_what_to_do() {
        let gone = Failure::new(exit::NO_DAEMON, "no_daemon", "no daemon runs on /state")
            .hint("start it: abide serve --detach");
        let failure = reconnect_timed_out(gone);
        assert_eq!(failure.code, exit::NO_DAEMON);
        assert_eq!(
            failure.message,
            "the daemon has not come back for 60 s: no daemon runs on /state; all accepted work \
             is kept"
        );
        assert_eq!(failure.hints, ["start it: abide serve --detach"]);
    }

    #[test]
    fn an_older_daemon_that_does_not_understand_is_named_with_both_versions() {
        let unknown = || Failure::new(2, "unknown_method", "no method runs.new");
        let told = with_versions(unknown(), &target("0.0.1")).to_string();
        assert!(told.contains("version 0.0.1"), "{told}");
        assert!(told.contains(version()), "{told}");
        assert!(told.contains("abide stop && abide serve"), "{told}");

        // For the same version, or another kind of error, no hint is added.
        let same = target(version());
        assert_eq!(with_versions(unknown(), &same), unknown());
        let missing = || Failure::new(3, "not_found", "no run");
        assert_eq!(with_versions(missing(), &target("0.0.1")), missing());
    }
}
