//! What runs need from the user: questions, approvals, missing values.

pub(crate) mod approval_text;
pub(crate) mod blocker;
pub(crate) mod needs;
pub(crate) mod open_requests;
pub(crate) mod person;
pub(crate) mod verbatim;
