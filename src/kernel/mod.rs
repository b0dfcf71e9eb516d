//! What a run is and how it may move. Pure: no async, no IO, no clock; time and ids come in
//! as values. Every other room may use this one, it uses none of them.

pub mod action;
pub mod announce;
pub mod approval;
pub mod breaker;
pub mod budget;
pub mod called;
pub mod delegation;
pub mod env;
pub mod event;
pub mod fault;
pub mod gate;
pub mod ids;
pub mod limits;
pub mod machine;
pub mod message;
pub mod options;
pub mod pack;
pub mod pattern;
pub mod policy;
pub mod question;
pub mod recover;
pub mod run;
pub mod said;
pub mod send;
pub mod session;
pub mod step;
pub mod text;
pub mod text_enum;
pub mod thinking;
pub mod time;
pub mod waiting;
