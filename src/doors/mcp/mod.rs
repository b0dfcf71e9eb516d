//! The MCP server: runs as tools, and transcripts, results and skills as resources, for hosts of the
//! Model Context Protocol. The gateway serves it at `/mcp`, and `abide mcp-serve` over pipes.
//!
//! Revisions 2026-07-28 and 2025-11-25, and the older ones that the library knows.

mod call;
mod inbox;
mod output;
mod resources;
mod result;
mod runs;
mod search;
mod spawn;
mod tasks;
mod tool;
mod transcript;
mod wait;

use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, ErrorCode, GetTaskParams,
    GetTaskResult, Implementation, ListResourceTemplatesResult, ListResourcesResult,
    ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer};

use crate::clock::Clock;
use crate::doors::api::Api;
use crate::doors::mcp::call::McpCall;
use crate::kernel::fault::Kind;
use crate::version::version;
use crate::wire::error::WireError;

/// What a host may show its model about this server.
const INSTRUCTIONS: &str = "\
Starts agents that run in the background and survive restarts of this host and of the daemon. \
spawn returns at once with a runId; wait for it, or do other work and read inbox later. Results stay \
until you ack them. A run that needs a person says so in `needs`.";

/// The MCP server over `api`.
#[derive(Clone)]
pub(crate) struct McpServer<A> {
    api: A,
    clock: Clock,
}

impl<A: Api> McpServer<A> {
    /// A server whose calls `api` makes.
    pub(crate) fn new(api: A, clock: Clock) -> Self {
        McpServer { api, clock }
    }

    fn call(&self, context: &RequestContext<RoleServer>) -> McpCall<A> {
        McpCall {
            api: self.api.clone(),
            clock: self.clock.clone(),
            peer: context.peer.clone(),
            progress: context.meta.get_progress_token(),
        }
    }
}

impl<A: Api> ServerHandler for McpServer<A> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_extensions()
            .enable_resources()
            .enable_tools()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("abide", version()).with_title("abide"))
            .with_instructions(INSTRUCTIONS)
    }

    async fn on_initialized(&self, _: rmcp::service::NotificationContext<RoleServer>) {}

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tool::all().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tool::all().iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let as_task = request.name == tool::SPAWN
            && context
                .client_capabilities()
                .is_some_and(|capabilities| capabilities.supports_tasks());
        let call = self.call(&context);
        let arguments = request.arguments.unwrap_or_default();
        let work = async {
            match as_task {
                true => tasks::create(arguments, &call).await,
                false => tool::carry_out(&request.name, arguments, &call).await,
            }
        };
        tokio::select! {
            answer = work => answer,
            // Only the waiting ends: what was started goes on.
            () = context.ct.cancelled() => {
                Err(ErrorData::internal_error("the caller has cancelled this request", None))
            }
        }
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.api, cursor).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let templates = resources::templates();
        Ok(ListResourceTemplatesResult::with_all_items(templates))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let read = resources::read(&self.api, &request.uri).await?;
        Ok(read.into())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        tasks::get(&self.api, &request.task_id).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::update(&self.api, request).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::cancel(&self.api, &request.task_id).await
    }
}

/// The error of the protocol for an error of the API, where the protocol has no other place for it.
fn protocol_error(error: WireError) -> ErrorData {
    let code = match error.kind() {
        Some(Kind::NotFound) => ErrorCode::RESOURCE_NOT_FOUND,
        Some(Kind::InvalidParams) => ErrorCode::INVALID_PARAMS,
        Some(Kind::Internal) | None => ErrorCode::INTERNAL_ERROR,
        Some(_) => ErrorCode::INVALID_REQUEST,
    };
    let message = error.to_string();
    ErrorData::new(code, message, Some(error.data.into()))
}
