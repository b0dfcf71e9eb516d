//! The shape in which clients and webhooks get an event of the log.

use serde_json::value::RawValue;

use crate::store::tables::events::Event;
use crate::wire::events as wire;

/// An event as it is sent.
pub fn shown(event: &Event) -> wire::Event<&RawValue> {
    let about = &event.circumstances;
    wire::Event {
        cursor: Some(event.cursor),
        at: event.at,
        kind: event.kind.clone(),
        org_id: Some(event.org.clone()).filter(|org| !org.is_empty()),
        session_key: about.session_key.clone(),
        run_id: event.run,
        parent_run_id: about.parent_run,
        trace_id: about.trace_id.clone(),
        data: &event.data,
    }
}
