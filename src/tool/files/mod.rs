//! The tools for files, and the folder that they are confined to.

pub(crate) mod definition_files;
pub(crate) mod diff;
pub(crate) mod edit;
pub(crate) mod glob;
pub(crate) mod grep;
pub(crate) mod ignored;
pub(crate) mod list;
pub(crate) mod preview;
pub(crate) mod read;
pub(crate) mod text_file;
pub(crate) mod walk;
pub(crate) mod workspace;
pub(crate) mod write;
