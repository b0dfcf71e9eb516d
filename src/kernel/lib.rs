//! The package around [`kernel`]: inside and outside of it the paths of the kernel are the same.

#[path = "mod.rs"]
pub mod kernel;
