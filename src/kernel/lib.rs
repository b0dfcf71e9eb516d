//! The package around [`kernel`]; the module path is `kernel::…` both inside and outside of it.

#[path = "mod.rs"]
pub mod kernel;
