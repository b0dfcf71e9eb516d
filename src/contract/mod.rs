//! The traits between the modules of the daemon. They depend on the kernel only.

use std::future::Future;
use std::pin::Pin;

pub mod allow;
pub mod catalog;
pub mod commit;
pub mod control;
pub mod delegate;
pub mod finding;
pub mod journal;
pub mod linked;
pub mod nodes;
pub mod pin;
pub mod preview;
pub mod processes;
pub mod reach;
pub mod rows;
pub mod runner;
pub mod servers;
pub mod skills;
pub mod webhooks;

/// A boxed future, so that the traits here are usable as trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
