//! Doors: other protocols in front of the API. A door translates requests into calls of methods and
//! results back. It keeps no state of its own, so a restart of the daemon loses nothing. The gateway
//! serves doors in its own process, and the command line carries them to a daemon.

pub(crate) mod api;
pub(crate) mod hooks;
pub(crate) mod mcp;
pub(crate) mod openai;
pub(crate) mod signature;
