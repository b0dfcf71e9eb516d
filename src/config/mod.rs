//! All settings with defaults and validation, read from a TOML file and then from
//! `ABIDE_<SECTION>__<KEY>` variables. The daemon reads them at start and at a reload.

mod edit;
mod form;
mod load;
mod named;
mod private;
mod reference;
mod settings;
mod source;

pub use edit::{SettingEdit, edit, has, path};
pub use form::{Auth, FileWatch, ProviderKind, ServerScope};
pub use load::{ConfigError, Loaded, unknown};
pub use named::{Named, PriceTable, ProviderTable, ServerTable, SkillTable};
pub use private::{SecretFileRule, Unusable, is_readable_by_others, read_secret};
pub use reference::read;
pub use settings::{Config, MAX_GRACE, is_live, shown};
pub use source::{FlagValue, SettingsSource, ShownSetting, ValueOrigin, folder};

pub use crate::kernel::secret::Secret;
