//! Every setting, its default and its check. TOML file, then `ABIDE_<SECTION>__<KEY>`
//! variables. The daemon reads them at start and at a reload.

mod form;
mod load;
mod settings;
mod source;

pub use form::FileWatch;
pub use load::{ConfigError, Loaded};
pub use settings::{Config, KEYS, MOST_GRACE, is_live, shown};
pub use source::{Flag, Origin, Shown, Source};
