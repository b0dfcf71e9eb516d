//! The product's name: spawn, drive, settle, announce, wait, restore.

pub mod request;

use std::time::Duration;

use crate::contract::catalog::Catalog;
use crate::kernel::fault::Fault;
use crate::kernel::ids::{AnnounceId, RunId, SessionKey};
pub use request::*;
#[derive(Clone)]
pub struct Registry {/* Arc inside */}
impl Registry {
    pub async fn spawn(&self, who: &Principal, request: SpawnRequest) -> Result<Accepted, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn run_turn(&self, who: &Principal, request: TurnRequest) -> Result<Accepted, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    /// `bool` = created by this call
    pub async fn create_session(
        &self,
        who: &Principal,
        request: CreateRequest,
    ) -> Result<(SessionView, bool), Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn session(&self, who: &Principal, key: &SessionKey) -> Result<SessionView, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn sessions(
        &self,
        who: &Principal,
        filter: SessionFilter,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<SessionView>, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    /// before/after: seq bounds, exclusive; without both: the last `limit` messages
    pub async fn history(
        &self,
        who: &Principal,
        key: &SessionKey,
        before: Option<i64>,
        after: Option<i64>,
        limit: u32,
        tools: bool,
    ) -> Result<History, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn inbox(
        &self,
        who: &Principal,
        key: &SessionKey,
        acked: bool,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<InboxEntry>, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    /// the ids acknowledged by this or an earlier call
    pub async fn ack(
        &self,
        who: &Principal,
        key: &SessionKey,
        ids: Vec<AnnounceId>,
    ) -> Result<Vec<AnnounceId>, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn wait(
        &self,
        who: &Principal,
        ids: Vec<RunId>,
        all: bool,
        window: Duration,
    ) -> Result<WaitAnswer, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn run(&self, who: &Principal, id: RunId) -> Result<RunDetail, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn runs(
        &self,
        who: &Principal,
        filter: RunFilter,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<Page<RunDetail>, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn steps(
        &self,
        who: &Principal,
        id: RunId,
        limit: u32,
        cursor: Option<String>,
    ) -> Result<StepPage, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub async fn counts(&self) -> Result<Counts, Fault> {
        let _ = (self,);
        unimplemented!()
    }
    pub fn catalog(&self) -> &dyn Catalog {
        let _ = (self,);
        unimplemented!()
    }
    pub fn store_id(&self) -> &str {
        let _ = (self,);
        unimplemented!()
    }
}
