//! The JSON of a delivery: its body, or a field of a form, as GitHub sends it on request.

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_json::Value;

use super::{Delivery, HookError};
use crate::config::HookCheck;

/// The field of a form with the JSON.
const FIELD: &str = "payload";

/// How a body holds its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyForm {
    /// It is JSON.
    Json,
    /// It is a form with JSON in one field.
    Form,
}

/// The form that the headers announce.
pub(super) fn form(check: Option<HookCheck>, headers: &HeaderMap) -> Result<BodyForm, HookError> {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next();
    let kind = kind.unwrap_or_default().trim().to_ascii_lowercase();
    let is_github = check == Some(HookCheck::Github);
    match kind.as_str() {
        "application/json" => Ok(BodyForm::Json),
        // Such as application/cloudevents+json.
        kind if kind.starts_with("application/") && kind.ends_with("+json") => Ok(BodyForm::Json),
        "application/x-www-form-urlencoded" if is_github => Ok(BodyForm::Form),
        _ => Err(HookError::wrong_form()),
    }
}

/// The JSON of a delivery.
pub(super) fn json(check: Option<HookCheck>, delivery: &Delivery<'_>) -> Result<Value, HookError> {
    let read = match form(check, delivery.headers)? {
        BodyForm::Json => serde_json::from_slice(delivery.body),
        BodyForm::Form => {
            let mut fields = form_urlencoded::parse(delivery.body);
            let field = fields.find(|(name, _)| name == FIELD);
            let (_, text) = field
                .ok_or_else(|| HookError::not_json(format!("the form has no field {FIELD}")))?;
            serde_json::from_str(&text)
        }
    };
    read.map_err(|error| HookError::not_json(format!("the body is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(check: HookCheck, kind: &str, body: &[u8]) -> Result<Value, u16> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, kind.parse().unwrap());
        let delivery = Delivery {
            headers: &headers,
            body,
        };
        json(Some(check), &delivery).map_err(|error| error.status)
    }

    #[test]
    fn json_is_the_body_or_the_field_of_a_form() {
        let found = Ok(serde_json::json!({ "a": "b c" }));
        for kind in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/cloudevents+json",
        ] {
            assert_eq!(read(HookCheck::Bearer, kind, b"{\"a\":\"b c\"}"), found);
        }
        let form = "application/x-www-form-urlencoded";
        let body = b"x=1&payload=%7B%22a%22%3A%22b+c%22%7D";
        assert_eq!(read(HookCheck::Github, form, body), found);
        assert_eq!(read(HookCheck::Standard, form, body), Err(415));
        for kind in ["text/plain", "application/xml", "text/html+json", "json"] {
            assert_eq!(read(HookCheck::Bearer, kind, b"{}"), Err(415), "{kind}");
        }
        for broken in [&b"{"[..], b"", b"\xff", b"{} {}"] {
            assert_eq!(
                read(HookCheck::Bearer, "application/json", broken),
                Err(400)
            );
        }
        assert_eq!(read(HookCheck::Github, form, b"other=1"), Err(400));
    }
}
