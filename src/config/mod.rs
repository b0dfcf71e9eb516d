//! Every setting, its default and its check. TOML file, then `ABIDE_<SECTION>__<KEY>`
//! variables. The daemon reads it once at start.

mod load;
mod settings;

pub use load::{ConfigError, Loaded, load};
pub use settings::{Config, FileWatch};
