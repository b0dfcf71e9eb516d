//! What `abide doctor` and `gateway.doctor` examine: a folder without a running daemon, the
//! surroundings of a daemon, its program, and Ollama servers.

pub mod offline;
pub mod ollama;
pub mod program;
pub mod surroundings;
