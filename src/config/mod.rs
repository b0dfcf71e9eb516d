//! All settings with defaults and validation, read from a TOML file and then from
//! `ABIDE_<SECTION>__<KEY>` variables. The daemon reads them at start and at a reload.

mod edit;
mod form;
mod hooks;
mod load;
mod named;
mod openai;
mod private;
mod reference;
mod settings;
mod source;
mod template;

pub use edit::{SettingEdit, edit, has, path};
pub use form::{Auth, FileWatch, ProviderKind, ServerScope};
pub use hooks::{HookCheck, HookTables};
pub use load::{ConfigError, Loaded, unknown};
pub use named::{
    HookTable, Named, PriceTable, ProviderTable, ServerTable, SkillTable, WebhookTable,
};
pub use openai::{OnDisconnect, OpenAiOptions, ShownToolCalls};
pub use private::{SecretFileRule, Unusable, is_readable_by_others, read_secret};
pub use reference::read;
pub use settings::{Config, MAX_GRACE, is_live, shown};
pub use source::{FlagValue, SettingsSource, ShownSetting, ValueOrigin, folder};
pub use template::{FieldSource, Template, TemplateField, TemplatePart};

pub use crate::kernel::secret::Secret;
