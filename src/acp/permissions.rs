//! Approvals as requests to the user in the editor. What the editor does not answer stays open and
//! can be decided elsewhere; what is decided elsewhere is withdrawn here.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use serde::Deserialize;
use tokio::sync::oneshot;

use super::calls::call_id;
use super::editor::Editor;
use super::titles;
use crate::acp_protocol::RpcError;
use crate::acp_protocol::answer::{AskPermission, PermissionKind, PermissionOption};
use crate::acp_protocol::request::{PermissionAnswer, PermissionOutcome};
use crate::acp_protocol::update::{ToolCallUpdate, ToolContent, ToolStatus};
use crate::kernel::fault::Kind;
use crate::kernel::ids::{ApprovalId, SessionKey};
use crate::kernel::policy::approval::{ApprovalState, Choice, Remember};
use crate::wire::approvals::{Approval, ListApprovals, ResolveApproval};
use crate::wire::input::{PAGE_LIMIT, PageSize};

/// Ids of the decisions that the user is offered.
const ALLOW_ONCE: &str = "allow";
const ALLOW_SESSION: &str = "allow_session";
const REJECT: &str = "reject";

/// The approvals that the editor was asked for.
#[derive(Default)]
pub(super) struct Permissions {
    asked: RefCell<HashMap<ApprovalId, AskedApproval>>,
    is_watched: Cell<bool>,
}

struct AskedApproval {
    /// The open session in which it is shown.
    session: String,
    /// Withdraws the request when it is dropped.
    _withdraw: oneshot::Sender<()>,
}

impl Permissions {
    /// True for the first caller, who watches for approvals from then on.
    pub(super) fn begin_watch(&self) -> bool {
        !self.is_watched.replace(true)
    }

    /// An approval is no longer open.
    pub(super) fn resolved(&self, id: ApprovalId) {
        self.asked.borrow_mut().remove(&id);
    }

    /// Asks for the open approvals in the tree of this session, each once.
    pub(super) fn refresh(&self, editor: &Rc<Editor>, key: &SessionKey) {
        let (editor, key) = (Rc::clone(editor), key.clone());
        tokio::task::spawn_local(async move {
            let request = ListApprovals {
                session_key: Some(key),
                tree: Some(true),
                state: Some(ApprovalState::Open),
                previews: Some(true),
                limit: PageSize(PAGE_LIMIT),
                ..ListApprovals::default()
            };
            // Without an answer they stay open, and the next look asks for them.
            let Ok(open) = editor.link.call(&request).await else {
                return;
            };
            for approval in open.approvals {
                editor.permissions.ask(&editor, approval);
            }
        });
    }

    /// Forgets what was asked in a session that is closed or opened anew.
    pub(super) fn forget(&self, session: &str) {
        self.asked
            .borrow_mut()
            .retain(|_, asked| asked.session != session);
    }

    fn ask(&self, editor: &Rc<Editor>, approval: Approval) {
        let keys = [
            Some(&approval.session_key),
            approval.root_session_key.as_ref(),
        ];
        let open = |key: &SessionKey| editor.session(key.as_str()).ok();
        let Some(session) = keys.into_iter().flatten().find_map(open) else {
            return;
        };
        let mut asked = self.asked.borrow_mut();
        if asked.contains_key(&approval.id) {
            return;
        }
        let (withdraw, withdrawn) = oneshot::channel();
        let session = session.key.to_string();
        asked.insert(
            approval.id,
            AskedApproval {
                session: session.clone(),
                _withdraw: withdraw,
            },
        );
        let editor = Rc::clone(editor);
        tokio::task::spawn_local(async move {
            decide(&editor, session, approval, withdrawn).await;
        });
    }
}

/// Asks the user and carries the decision out.
async fn decide(
    editor: &Rc<Editor>,
    session: String,
    approval: Approval,
    withdrawn: oneshot::Receiver<()>,
) {
    let params = AskPermission {
        tool_call: shown(editor, &session, &approval),
        session_id: session.clone(),
        options: options(&approval),
    };
    let method = "session/request_permission";
    let mut request = editor.output.request(method, params).await;
    let answer = tokio::select! {
        answer = request.answer() => answer,
        _ = withdrawn => return request.withdraw().await,
    };
    let (id, key) = (approval.id, approval.session_key.clone());
    let Some((decision, remember)) = answer.and_then(|answer| decision(&answer)) else {
        // It stays open for `abide approvals`.
        return;
    };
    let request = ResolveApproval {
        id,
        decision,
        remember,
        digest: approval.change.and_then(|change| change.digest),
    };
    match editor.link.call(&request).await {
        Ok(_) => return,
        // It was decided elsewhere, or the call would do something else than what was shown.
        Err(error) if is_of_kind(&error, Kind::Conflict) => {}
        // No daemon has answered, so whether it is decided is not known.
        Err(error) if error.data.is_none() => {
            editor.link.client_at_last().await;
        }
        // A repeat would fail, too, and an editor that answers by itself would repeat it forever.
        Err(error) => {
            let text = format!(
                "the decision was not carried out: {}. The open ones are in: abide approvals",
                error.message
            );
            return editor.note(&session, text).await;
        }
    }
    // The user is asked again if it is still open.
    editor.permissions.resolved(id);
    editor.permissions.refresh(editor, &key);
}

/// True for a refusal of the daemon of this kind.
pub(super) fn is_of_kind(error: &RpcError, kind: Kind) -> bool {
    let given = error.data.as_ref().and_then(|data| data.get("kind"));
    given.and_then(serde_json::Value::as_str) == Some(kind.as_str())
}

fn decision(answer: &serde_json::Value) -> Option<(Choice, Option<Remember>)> {
    let answer = PermissionAnswer::deserialize(answer).ok()?;
    let PermissionOutcome::Selected { option_id } = answer.outcome else {
        return None;
    };
    match option_id.as_str() {
        ALLOW_ONCE => Some((Choice::Allow, None)),
        ALLOW_SESSION => Some((Choice::Allow, Some(Remember::Session))),
        REJECT => Some((Choice::Deny, None)),
        _ => None,
    }
}

fn options(approval: &Approval) -> Vec<PermissionOption> {
    let what = match approval
        .covers
        .as_deref()
        .filter(|covers| !covers.is_empty())
    {
        Some(covers) => crate::kernel::text::preview(covers, 60),
        None => format!("every call of {}", approval.tool),
    };
    [
        (
            ALLOW_ONCE,
            "Allow once".to_owned(),
            PermissionKind::AllowOnce,
        ),
        (
            ALLOW_SESSION,
            format!("Allow for this session: {what}"),
            PermissionKind::AllowAlways,
        ),
        (REJECT, "Reject".to_owned(), PermissionKind::RejectOnce),
    ]
    .map(|(option_id, name, kind)| PermissionOption {
        option_id: option_id.to_owned(),
        name,
        kind,
    })
    .into()
}

/// The call that is to be approved.
fn shown(editor: &Editor, session: &str, approval: &Approval) -> ToolCallUpdate {
    let tool = &approval.tool;
    let folder = approval.folder.clone().unwrap_or_else(|| {
        let open = editor.session(session);
        open.map_or_else(|_| String::new(), |open| open.folder.borrow().clone())
    });
    let call = match &approval.tool_call_id {
        Some(call) => call_id(approval.run_id, call),
        None => format!("approval:{}", approval.id),
    };
    let mut content = titles::change(tool, &approval.arguments, &folder);
    content.push(ToolContent::text(why(approval)));
    ToolCallUpdate {
        tool_call_id: call,
        title: Some(titles::title(tool, &approval.arguments)),
        kind: Some(titles::kind(tool)),
        status: Some(ToolStatus::Pending),
        locations: Some(titles::locations(tool, &approval.arguments, &folder)),
        raw_input: Some(approval.arguments.clone()),
        content: Some(content),
    }
}

/// Why an approval is needed, and what the user should know besides.
fn why(approval: &Approval) -> String {
    let mut text = format!("{}: {}", approval.agent, approval.why);
    if let Some(change) = &approval.change
        && let Some(reason) = &change.reason
    {
        text.push_str(&format!("\n{} {}: {reason}", change.path, change.effect));
    }
    if !approval.env.is_empty() {
        let names = approval.env.join(", ");
        text.push_str(&format!("\nVariables of its environment: {names}"));
    }
    text
}
