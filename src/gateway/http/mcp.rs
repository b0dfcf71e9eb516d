//! `/mcp`: the MCP server over streamable HTTP. The caller is admitted before, as for every route.
//!
//! No session of the protocol is kept: what a host needs later is in the store, so its next request
//! is answered after any restart. Hosts of older revisions are served the same way.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Bytes;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::doors::mcp::McpServer;
use crate::gateway::http::HttpResponse;
use crate::gateway::local_api::LocalApi;

/// Answers one request of a host.
pub(crate) async fn answer(
    api: LocalApi,
    shutdown: CancellationToken,
    request: Request<Full<Bytes>>,
) -> HttpResponse {
    let clock = api.clock().clone();
    let payload = api.payload();
    let server = McpServer::new(api, clock);
    // Host and Origin were checked with the token, by the rules of all routes.
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_max_request_body_bytes(payload)
        .with_cancellation_token(shutdown)
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let sessions = Arc::new(NeverSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    boxed(service.handle(request).await)
}

fn boxed<B>(response: Response<B>) -> HttpResponse
where
    B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    response.map(|body| Either::Right(body.boxed_unsync()))
}
